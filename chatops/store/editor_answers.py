"""How fast editors have answered questions about calls, so that one that answers by itself is found out."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatops.store.store import Store

_SETTING = "editors"
_MAX_ANSWERS = 50
"""The last answers of an editor that are kept."""
_MAX_EDITORS = 20
"""Editors that are kept, those that answered last."""


def note_answer(store: "Store", client: str, *, seconds: float, void: bool) -> None:
    """Store that an editor has answered. `void`: before anyone could have read the question."""
    known = dict(editors(store))
    times, voids = known.pop(client, ([], 0))
    known[client] = (times if void else [*times, round(seconds, 2)][-_MAX_ANSWERS:], voids + void)
    store.set_setting(_SETTING, json.dumps(dict(list(known.items())[-_MAX_EDITORS:])))


def editors(store: "Store") -> Mapping[str, tuple[list[float], int]]:
    """Return the seconds of the last answers of each editor, and how many were void, by its name and version."""
    return {name: (times, voids) for name, (times, voids) in json.loads(store.setting(_SETTING) or "{}").items()}
