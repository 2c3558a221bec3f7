"""The simple ways to start the chat, parsed without argparse.

Building the whole command line takes a tenth of the time to the first paint. What is parsed here means exactly what
`commands.parser` makes of it; everything else is left to that.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from argparse import Namespace

_WITH_VALUE = ("--role", "--model")
_EVERYWHERE = ("--registry", "--workspace")
"""Flags that are missing in the namespace if they were not given."""
_LAST = ("-c", "--continue")


def quick_chat(argv: Sequence[str]) -> "Namespace | None":
    """Return the flags of the chat if none of them needs checking; None: use argparse."""
    given: dict[str, object] = {}
    words = iter(argv)
    for word in words:
        if word in _LAST:
            given["last"] = True
        elif word in _WITH_VALUE or word in _EVERYWHERE:
            value = next(words, "-")
            if not value or value.startswith("-"):
                return None
            given[word.removeprefix("--")] = value
        else:
            return None
    return cast("Namespace", SimpleNamespace(**{**_defaults(), **given}))


def _defaults() -> dict[str, object]:
    return {
        "approve": [],
        "command": None,
        "last": False,
        "max_rounds": None,
        "model": None,
        "on_approval": "pause",
        "output_format": "text",
        "prompt": None,
        "role": None,
        "session": None,
        "summary": False,
        "version": False,
    }
