"""Budgets: the cost, tokens and minutes of a turn after which it asks a person whether it may continue."""

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import money

LimitName = Literal["cost", "tokens", "minutes"]
LIMIT_NAMES: tuple[LimitName, ...] = ("cost", "tokens", "minutes")
MAX_LIMITS = MappingProxyType({"cost": 1e6, "tokens": 1e12, "minutes": 1e5})
"""The highest limits that can be set. Anything above them is a typing error."""
_CENTS_FROM = 0.1
"""The lowest cost, in the unit of the prices, that is shown to the cent. Smaller ones get two digits more."""


@frozen_dataclass
class Budget:
    """Limits of a turn. Where one is reached, the turn asks; only the decision of a person lets it continue."""

    cost: float | None = None
    """In the unit of the prices; None: no such limit, as for the others."""
    tokens: int | None = None
    """Input and output together."""
    minutes: float | None = None
    """Of models and tools at work."""

    def of(self, limit: LimitName) -> float | None:
        """Return one limit; None if there is none."""
        return {"cost": self.cost, "tokens": self.tokens, "minutes": self.minutes}[limit]

    def plus(self, added: "Budget") -> "Budget":
        """Return this budget with each of its limits raised by what `added` has. It gets no limit that it had not."""
        return Budget(
            cost=None if self.cost is None else self.cost + (added.cost or 0),
            tokens=None if self.tokens is None else self.tokens + (added.tokens or 0),
            minutes=None if self.minutes is None else self.minutes + (added.minutes or 0),
        )

    def raised(self, limit: LimitName, more: float) -> "Budget":
        """Return this budget with `more` of one limit, also where it had none."""
        match limit:
            case "cost":
                return replace(self, cost=(self.cost or 0) + more)
            case "tokens":
                return replace(self, tokens=(self.tokens or 0) + int(more))
            case "minutes":
                return replace(self, minutes=(self.minutes or 0) + more)

    def __str__(self) -> str:
        values = ((limit, self.of(limit)) for limit in LIMIT_NAMES)
        return ", ".join(with_unit(limit, value) for limit, value in values if value is not None)


NO_BUDGET = Budget()


def strictest(*budgets: Budget) -> Budget:
    """Return the budget that has the lowest of each limit."""
    return Budget(
        cost=min((budget.cost for budget in budgets if budget.cost is not None), default=None),
        tokens=min((budget.tokens for budget in budgets if budget.tokens is not None), default=None),
        minutes=min((budget.minutes for budget in budgets if budget.minutes is not None), default=None),
    )


def parse_budget(texts: Iterable[str]) -> Budget:
    """Return the budget that texts such as ``cost=0.50,minutes=10`` name. Raises ConfigError."""
    given: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0  # Refused below, as any number that is not above zero.
        # An unknown name has the maximum 0, so it is refused too.
        if name in given or not 0 < value <= MAX_LIMITS.get(name, 0) or (name == "tokens" and value % 1):
            raise ConfigError(
                f"--budget {part!r} is not understood.",
                advice="Name each limit once, with a number above zero: cost=0.50, tokens=200000 or minutes=10.",
            )
        given[name] = value
    tokens = int(given["tokens"]) if "tokens" in given else None
    return Budget(cost=given.get("cost"), tokens=tokens, minutes=given.get("minutes"))


def amount(limit: LimitName, value: float) -> str:
    """Return an amount without its unit: ``0.50``, ``500,000``, ``12.5``."""
    match limit:
        case "cost":
            return money(value, cents_from=_CENTS_FROM).replace("$", "") if value else "0.00"
        case "tokens":
            return f"{value:,.0f}"
        case "minutes":
            return f"{value:.1f}".removesuffix(".0")


def with_unit(limit: LimitName, value: float) -> str:
    """Return an amount with its unit: ``cost 0.50``, ``500,000 tokens``, ``12.5 minutes``."""
    return f"cost {amount(limit, value)}" if limit == "cost" else f"{amount(limit, value)} {limit}"
