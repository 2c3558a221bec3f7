"""Definition of a mutant."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """In `file`, `before` (there exactly once) becomes `after`; `promise` is what then no longer holds."""

    promise: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = ("tests/engine",)
