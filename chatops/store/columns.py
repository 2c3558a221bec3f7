"""Values of columns with the type they should have; damage may have made them anything. Raises Unreadable."""

from chatops.domain.errors import Unreadable
from chatops.store.connection import Value


def text(value: Value) -> str:
    """A text column."""
    if isinstance(value, str):
        return value
    raise _damaged(value)


def text_or_none(value: Value) -> str | None:
    """A text column that may be empty."""
    return None if value is None else text(value)


def text_or(value: Value, instead: str) -> str:
    """A text column that is only shown: `instead` if damage made it something else."""
    return value if isinstance(value, str) else instead


def number_or_zero(value: Value) -> float:
    """A number that is only shown: 0 if damage made it something else."""
    return value if isinstance(value, int | float) else 0


def integer(value: Value) -> int:
    """An integer column."""
    if isinstance(value, int):
        return value
    raise _damaged(value)


def real(value: Value) -> float:
    """A number, such as a time."""
    if isinstance(value, int | float):
        return float(value)
    raise _damaged(value)


def real_or_none(value: Value) -> float | None:
    """A number that may be missing."""
    return None if value is None else real(value)


def _damaged(value: Value) -> Unreadable:
    return Unreadable(
        f"A row of the session store is damaged: {type(value).__name__} where another type belongs.",
        advice="Run `chatops doctor` to check the store.",
    )
