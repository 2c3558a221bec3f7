"""Column values with the type they should have. Damage may have changed it, so these raise UnreadableError."""

from chatops.domain.errors import UnreadableError
from chatops.store.connection import Value


def text(value: Value) -> str:
    """Return a text column. Raises UnreadableError."""
    if isinstance(value, str):
        return value
    raise _damaged(value)


def text_or_none(value: Value) -> str | None:
    """Return a text column that may be NULL. Raises UnreadableError."""
    return None if value is None else text(value)


def text_or(value: Value, instead: str) -> str:
    """Return a text column that is only displayed; `instead` if it is damaged."""
    return value if isinstance(value, str) else instead


def number_or_zero(value: Value) -> float:
    """Return a number that is only displayed; 0 if it is damaged."""
    return value if isinstance(value, int | float) else 0


def integer(value: Value) -> int:
    """Return an integer column. Raises UnreadableError."""
    if isinstance(value, int):
        return value
    raise _damaged(value)


def real(value: Value) -> float:
    """Return a number, such as a time. Raises UnreadableError."""
    if isinstance(value, int | float):
        return float(value)
    raise _damaged(value)


def real_or_none(value: Value) -> float | None:
    """Return a number that may be NULL. Raises UnreadableError."""
    return None if value is None else real(value)


def _damaged(value: Value) -> UnreadableError:
    return UnreadableError(
        f"A row of the session store is damaged: {type(value).__name__} where another type belongs.",
        advice="Run `chatops doctor` to check the store.",
    )
