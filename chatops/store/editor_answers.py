"""Times in which editors have answered questions about calls, by which one that answers by itself is found."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from chatops.domain.errors import UnreadableError

if TYPE_CHECKING:
    from chatops.store.store import Store

_SETTING = "editors"
_MAX_ANSWERS = 50
"""The last answers of an editor that are kept."""
_MAX_EDITORS = 20
"""Editors that are kept, those that answered last."""


class EditorAnswers(NamedTuple):
    """Times in which an editor has answered."""

    times_s: Sequence[float]
    """Seconds of the last answers that counted."""
    too_soon: int
    """Answers that were void: before anyone could have read the question."""


def note_answer(store: "Store", client: str, *, seconds: float, void: bool) -> None:
    """Store that an editor has answered."""
    known: dict[str, EditorAnswers] = {}
    with suppress(UnreadableError):
        known.update(editors(store))
    times_s, too_soon = known.pop(client, EditorAnswers([], 0))
    if void:
        known[client] = EditorAnswers(times_s, too_soon + 1)
    else:
        known[client] = EditorAnswers([*times_s, round(seconds, 2)][-_MAX_ANSWERS:], too_soon)
    store.set_setting(_SETTING, json.dumps(dict(list(known.items())[-_MAX_EDITORS:])))


def editors(store: "Store") -> Mapping[str, EditorAnswers]:
    """Return the answers of each editor, by its name and version. Raises UnreadableError."""
    try:
        known = json.loads(store.setting(_SETTING) or "{}").items()
        return {name: EditorAnswers([*map(float, times)], int(too_soon)) for name, (times, too_soon) in known}
    except (ValueError, TypeError, AttributeError):
        raise UnreadableError(
            f"The answers of editors in {store.path} are damaged.", advice="The next answer replaces them."
        ) from None
