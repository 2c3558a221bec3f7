"""How fast editors have answered questions about calls, so that one that answers by itself is found out."""

import json
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from chatops.domain.wording import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatops.store.store import Store

_KEY = "editors"
_LAST, _MOST_CLIENTS = 50, 20
"""Answers of each editor that are kept, and editors."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one editor."""

    seconds: tuple[float, ...] = ()
    """Time from question to answer, of the last ones that counted."""
    void: int = 0
    """Answers that came before anyone could have read the question. They decided nothing."""

    def __str__(self) -> str:
        parts = [plural(len(self.seconds), "answer")]
        if self.seconds:
            parts.append(f"the fastest after {min(self.seconds):.1f} s, half within {median(self.seconds):.1f} s")
        if self.void:
            parts.append(f"{self.void} too soon, which decided nothing")
        return ", ".join(parts)


def note_answer(store: "Store", client: str, *, seconds: float, void: bool) -> None:
    """Store that an editor has answered."""
    known = dict(editors(store))
    before = known.pop(client, Answers())
    times = before.seconds if void else (*before.seconds, round(seconds, 2))[-_LAST:]
    known[client] = replace(before, seconds=times, void=before.void + void)
    kept = list(known.items())[-_MOST_CLIENTS:]
    store.set_setting(_KEY, json.dumps({name: [list(one.seconds), one.void] for name, one in kept}))


def editors(store: "Store") -> "Mapping[str, Answers]":
    """Return the answers of each editor, by its name and version, the last one last."""
    known = json.loads(store.setting(_KEY) or "{}")
    return {name: Answers(tuple(seconds), void) for name, (seconds, void) in known.items()}
