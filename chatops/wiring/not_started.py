"""Reasons why chatops does not start a turn of a job or a queue by itself."""

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import reveal
from chatops.domain.wording import cut
from chatops.policy.registry import ModelSpec
from chatops.policy.registry_checks import model_problem

_MAX_ABOUT_CHARS = 200
"""Characters of what a reason is about."""


class WhyNot(StrEnum):
    """Reason why a job was not started again."""

    OWNER = "owner"
    STORE = "store"
    HOST = "host"
    BOOT = "boot"
    FOLDER_GONE = "folder gone"
    FOLDER = "folder"
    MODEL = "model"
    KEY = "key"
    SANDBOX = "sandbox"
    FAILED = "failed"


@frozen_dataclass(kw_only=False)
class NotStarted:
    """A reason with what it is about: a variable, a path, a level, an error."""

    why: WhyNot
    about: str = ""

    def __str__(self) -> str:
        """Return the reason as it is stored, for `read`."""
        return f"{self.why}:{self.about}"

    @classmethod
    def read(cls, stored: str) -> "NotStarted | None":
        """Return a stored reason; None for an empty text, or one of another version."""
        why, _, about = stored.partition(":")
        return cls(WhyNot(why), about) if why in [*WhyNot] else None

    @property
    def sentence(self) -> str:
        """The reason as a clause."""
        about = reveal(cut(self.about, most=_MAX_ABOUT_CHARS), newlines=False)
        match self.why:
            case WhyNot.OWNER:
                return f"only the user who started it may start it again (uid {about})"
            case WhyNot.STORE:
                return about or "the store belongs to another user"
            case WhyNot.HOST:
                return f"it belongs to host {about}"
            case WhyNot.BOOT:
                return "the machine was restarted since"
            case WhyNot.FOLDER_GONE:
                return f"its folder {about} is gone"
            case WhyNot.FOLDER:
                return f"another folder is at {about} now"
            case WhyNot.MODEL:
                return f"its model {about}"
            case WhyNot.KEY:
                return f"its model's key is missing: {about}"
            case WhyNot.SANDBOX:
                return f"the sandbox is of level {about}, lower than when it was started"
            case WhyNot.FAILED:
                return about.rstrip(".")


def why_no_answer(models: Iterable[ModelSpec]) -> NotStarted | None:
    """Return why none of these models can be asked from here; None if one can be, or there is none."""
    found: list[NotStarted] = []
    for spec in models:
        if why := model_problem(spec):
            found.append(NotStarted(WhyNot.MODEL, f"{spec.name} {why}"))
        elif spec.key.env and not os.environ.get(spec.key.env, "").strip():
            found.append(NotStarted(WhyNot.KEY, f"{spec.key.env} is not set"))
        elif spec.key.file and not os.access(Path(spec.key.file).expanduser(), os.R_OK):
            found.append(NotStarted(WhyNot.KEY, f"{spec.key.file} cannot be read"))
        else:
            return None
    return found[0] if found else None
