"""How fast editors have answered questions about calls, so that one that answers by itself is found out."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatops.store.store import Store

_KEY = "editors"
_LAST, _MAX_CLIENTS = 50, 20
"""Answers of each editor that are kept, and editors."""


def note_answer(store: "Store", client: str, *, seconds: float, void: bool) -> None:
    """Store that an editor has answered. `void`: before anyone could have read the question."""
    known = dict(editors(store))
    times, voids = known.pop(client, ([], 0))
    known[client] = (times if void else [*times, round(seconds, 2)][-_LAST:], voids + void)
    store.set_setting(_KEY, json.dumps(dict(list(known.items())[-_MAX_CLIENTS:])))


def editors(store: "Store") -> Mapping[str, tuple[list[float], int]]:
    """Return the seconds of the last answers of each editor, and how many were void, by its name and version."""
    return {name: (times, voids) for name, (times, voids) in json.loads(store.setting(_KEY) or "{}").items()}
