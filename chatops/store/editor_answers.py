"""How fast editors have answered questions about calls, so that one that answers by itself is found out."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from chatops.domain.errors import UnreadableError

if TYPE_CHECKING:
    from chatops.store.store import Store

_SETTING = "editors"
_MAX_ANSWERS = 50
"""The last answers of an editor that are kept."""
_MAX_EDITORS = 20
"""Editors that are kept, those that answered last."""


def note_answer(store: "Store", client: str, *, seconds: float, void: bool) -> None:
    """Store that an editor has answered. `void`: before anyone could have read the question."""
    known: dict[str, tuple[list[float], int]] = {}
    with suppress(UnreadableError):
        known.update(editors(store))
    times, voids = known.pop(client, ([], 0))
    known[client] = (times if void else [*times, round(seconds, 2)][-_MAX_ANSWERS:], voids + void)
    store.set_setting(_SETTING, json.dumps(dict(list(known.items())[-_MAX_EDITORS:])))


def editors(store: "Store") -> Mapping[str, tuple[list[float], int]]:
    """Return the seconds of the last answers of each editor, and how many were void, by its name and version.

    Raises UnreadableError.
    """
    try:
        known = json.loads(store.setting(_SETTING) or "{}").items()
        return {name: ([float(seconds) for seconds in times], int(voids)) for name, (times, voids) in known}
    except (ValueError, TypeError, AttributeError):
        raise UnreadableError(
            f"The answers of editors in {store.path} are damaged.", advice="The next answer replaces them."
        ) from None
