"""Terms of the policy: access levels and verdicts."""

from enum import IntEnum, StrEnum
from typing import Literal

LevelWord = Literal["viewer", "user", "operator", "admin"]
VerdictWord = Literal["allow", "ask", "deny"]


class AccessLevel(IntEnum):
    """The highest level of access of a user. A higher level includes the lower ones."""

    VIEWER = 0
    USER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The level as written in the registry."""
        return self.name.lower()


class Verdict(StrEnum):
    """The decision of the policy on a call. Ordered by strictness, see `strictness`."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """Strictness as a number: 0 for allow, 1 for ask, 2 for deny."""
        return ("allow", "ask", "deny").index(self.value)
