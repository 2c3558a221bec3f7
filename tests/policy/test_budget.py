"""Budgets as they are written on the command line and in sentences."""

import pytest

from chatops.domain.errors import ConfigError
from chatops.policy.budget import NO_BUDGET, Budget, amount, parse_budget


def test_what_the_command_line_names() -> None:
    assert parse_budget(()) == NO_BUDGET
    assert parse_budget(("cost=0.50, tokens=200000", "minutes=1.5")) == Budget(cost=0.5, tokens=200_000, minutes=1.5)


@pytest.mark.parametrize(
    "text",
    ["", "0.50", "cost", "cost=", "cost=0", "cost=-1", "cost=nan", "cost=inf", "tokens=1.5", "euro=1", "cost=1,,"],
)
def test_what_is_no_budget_is_an_error_and_never_no_limit(text: str) -> None:
    with pytest.raises(ConfigError, match="--budget"):
        parse_budget((text,))


def test_a_limit_is_named_once() -> None:
    with pytest.raises(ConfigError):
        parse_budget(("cost=1", "cost=5"))


def test_amounts_are_never_rounded_to_nothing() -> None:
    assert [amount("cost", value) for value in (2.0, 0.52, 0.0123, 0.00001)] == ["2.00", "0.52", "0.0123", "<0.0001"]
    assert str(Budget(cost=2, tokens=500_000, minutes=30)) == "cost 2.00, 500,000 tokens, 30 minutes"
