"""Budgets: the most that a turn may cost, use and take before it asks a person whether it may go on."""

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import money

LimitName = Literal["cost", "tokens", "minutes"]
LIMITS: tuple[LimitName, ...] = ("cost", "tokens", "minutes")
MOST = MappingProxyType({"cost": 1e6, "tokens": 1e12, "minutes": 1e5})
"""The highest limits that can be set."""
_TO_THE_CENT = 0.1


@frozen_dataclass
class Budget:
    """Limits of a turn. Where one is reached, the turn asks; nothing but a decision of a person lets it go on."""

    cost: float | None = None
    """In the unit of the prices; None: no such limit, as for the others."""
    tokens: int | None = None
    """Input and output together."""
    minutes: float | None = None
    """Of models and tools at work."""

    def of(self, limit: LimitName) -> float | None:
        """Return one limit; None if there is none."""
        value: float | None = getattr(self, limit)
        return value

    def plus(self, added: "Budget") -> "Budget":
        """Return this budget with each of its limits raised by what `added` has."""
        return Budget(
            cost=None if self.cost is None else self.cost + (added.cost or 0),
            tokens=None if self.tokens is None else self.tokens + (added.tokens or 0),
            minutes=None if self.minutes is None else self.minutes + (added.minutes or 0),
        )

    def raised(self, limit: LimitName, more: float) -> "Budget":
        """Return this budget with more of one limit."""
        match limit:
            case "cost":
                return replace(self, cost=(self.cost or 0) + more)
            case "tokens":
                return replace(self, tokens=(self.tokens or 0) + int(more))
            case "minutes":
                return replace(self, minutes=(self.minutes or 0) + more)

    def __str__(self) -> str:
        given = ((limit, self.of(limit)) for limit in LIMITS)
        return ", ".join(with_unit(limit, value) for limit, value in given if value is not None)


NO_BUDGET = Budget()


def strictest(*budgets: Budget) -> Budget:
    """Return the budget that has the lowest of each limit."""
    return Budget(
        cost=min((given.cost for given in budgets if given.cost is not None), default=None),
        tokens=min((given.tokens for given in budgets if given.tokens is not None), default=None),
        minutes=min((given.minutes for given in budgets if given.minutes is not None), default=None),
    )


def parse_budget(texts: Iterable[str]) -> Budget:
    """Return the budget that texts such as ``cost=0.50,minutes=10`` name. Raises ConfigError."""
    given: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if name in given or not 0 < value <= MOST.get(name, 0) or (name == "tokens" and value % 1):
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
            return money(value, cents_from=_TO_THE_CENT).replace("$", "") if value else "0.00"
        case "tokens":
            return f"{value:,.0f}"
        case "minutes":
            return f"{value:.1f}".removesuffix(".0")


def with_unit(limit: LimitName, value: float) -> str:
    """Return an amount with its unit: ``cost 0.50``, ``500,000 tokens``, ``12.5 minutes``."""
    return f"cost {amount(limit, value)}" if limit == "cost" else f"{amount(limit, value)} {limit}"
