"""Tokens and cost. `None` instead of a `Usage` means that the server did not report it, never zero."""

from functools import reduce

from chatops.domain.frozen_dataclass import frozen_dataclass


@frozen_dataclass
class Usage:
    """Tokens of one model call or a sum of them; `cost` in the registry's price unit, None if unpriced."""

    input_tokens: int = 0
    """All input tokens, `cached_tokens` included."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that the server read from its prompt cache."""
    cost: float | None = None

    def plus(self, other: "Usage | None") -> "Usage":
        """Return the sum. An unknown summand adds nothing; the cost is unknown only if both are."""
        if other is None:
            return self
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=sum(costs) if costs else None,
        )


def total(*parts: Usage | None) -> Usage | None:
    """Return the sum of the known usages; None if none is known."""
    known = [part for part in parts if part is not None]
    return reduce(Usage.plus, known) if known else None
