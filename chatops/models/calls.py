"""Assemble the calls of a reply from fragments in their own field.

Servers disagree about index and id: either may be missing, null, late, repeated or changing. The rule: a fragment that
names a function starts a call, unless it clearly continues the one that it points at. A fragment without a name
continues a call.
"""

import json
import re
from dataclasses import dataclass, field
from typing import cast

from chatops.dialects.json_reader import UnreadableValueError, read_whole, unwrap
from chatops.domain.tools import RawCall
from chatops.models.server_json import CallDelta
from chatops.models.wire import scrub

LONGEST_NAME = 256
"""Maximum characters of a name or id, as stored. A server can send any length; the rest is dropped."""
MAX_CALLS = 1_000
"""Maximum number of calls in one reply; beyond it a server is broken or hostile."""
_PATH_WITHIN = 300
"""Characters of the arguments in which a path at their beginning is looked for."""
_PATH_FIRST = re.compile(r'\s*\{\s*"path"\s*:\s*("(?:[^"\\]|\\.)*")')
CUT_BY_LENGTH = "the reply hit the length limit inside this call"
CUT_BY_FILTER = "the provider's filter stopped the reply inside this call"
TWO_IN_ONE = "its arguments hold two JSON values in a row"
IN_A_FENCE = "the arguments were in a code fence"


class TooManyCallsError(Exception):
    """The reply has more calls than any valid reply."""


@dataclass(slots=True, kw_only=True)
class _Slot:
    """A call that is not complete yet."""

    index: int | None
    """Index of the fragment that began it; None if the server gives none."""
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    """The arguments, in the pieces in which they came."""
    extra_content: str = ""
    """JSON text that the server wants back with this call; empty if there is none."""

    @property
    def arguments(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


class CallCollector:
    """Collector of the calls of one reply, in the order in which they began."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def last_name(self) -> str:
        """The name of the call that began last, as far as it has come."""
        return self._slots[-1].name if self._slots else ""

    @property
    def last_path(self) -> str:
        """The path that the call which began last is for, once it is complete; empty if it does not come first."""
        parts = self._slots[-1].parts[:_PATH_WITHIN] if self._slots else ()
        found = _PATH_FIRST.match("".join(part[:_PATH_WITHIN] for part in parts)[:_PATH_WITHIN])
        return scrub(str(_parse(found[1]) or "")) if found else ""

    def add(self, delta: CallDelta, *, whole: bool = False) -> None:
        """Add a fragment. With `whole`, it comes from a complete message, so it is a call of its own.

        Raises TooManyCallsError.
        """
        slot = None if whole else self._slot_of(delta)
        if slot is None:
            if len(self._slots) >= MAX_CALLS:
                raise TooManyCallsError
            slot = _Slot(index=delta.index)
            self._slots.append(slot)
        if delta.index is not None:
            self._by_index[delta.index] = slot
        if delta.id and not slot.id:
            slot.id = delta.id
        if delta.id:
            self._by_id.setdefault(delta.id, slot)
        _add_name(slot, delta.name)
        if delta.arguments:
            slot.parts.append(delta.arguments)
        slot.extra_content = delta.extra_content or slot.extra_content

    def _slot_of(self, delta: CallDelta) -> _Slot | None:
        """Return the call that a fragment continues; None if it starts one."""
        if delta.index is None:
            return self._slot_without_index(delta)
        slot = self._by_index.get(delta.index)
        if slot is None or not delta.id or not slot.id or delta.id == slot.id:
            return slot
        known = self._by_id.get(delta.id)
        if known is not None and known.index == delta.index:
            return known
        # Another id at the same index: some servers generate a new id for every fragment, others never count up.
        if not delta.name:
            return slot
        continues = delta.name == slot.name and slot.arguments != "" and not _is_complete(slot.arguments)
        return slot if continues else None

    def _slot_without_index(self, delta: CallDelta) -> _Slot | None:
        last = self._slots[-1] if self._slots else None
        known = self._by_id.get(delta.id) if delta.id else None
        if known is not None:
            # Some servers give all calls of a tool the same id.
            return None if delta.name and _is_complete(known.arguments) else known
        if delta.name or last is None:
            return None
        # A new id after a complete call is a call whose name comes late.
        return None if delta.id and last.id and _is_complete(last.arguments) else last

    def finish(self, *, finish_reason: str) -> tuple[RawCall, ...]:
        """Return the calls of the complete reply, each with the problem that prevents running it, if any."""
        slots = [slot for slot in self._slots if slot.name or slot.id or slot.arguments]
        return tuple(_raw_call(slot, finish_reason=finish_reason, is_last=slot is slots[-1]) for slot in slots)


def _add_name(slot: _Slot, name: str) -> None:
    """Add a name to a call.

    Servers send it once, with every fragment, as a growing prefix, or in segments before the arguments.
    """
    if not name or name == slot.name:
        return
    if not slot.name or name.startswith(slot.name):
        slot.name = name
    elif not slot.parts:
        slot.name += name


def _raw_call(slot: _Slot, *, finish_reason: str, is_last: bool) -> RawCall:
    arguments, repairs = repair_arguments(scrub(slot.arguments))
    return RawCall(
        name=scrub(slot.name)[:LONGEST_NAME],
        arguments=arguments,
        provider_id=scrub(slot.id)[:LONGEST_NAME],
        repairs=repairs,
        problem=_problem(slot, finish_reason=finish_reason, is_last=is_last),
        extra_content=slot.extra_content,
    )


def repair_arguments(arguments: str) -> tuple[str, tuple[str, ...]]:
    """Return arguments repaired to the only JSON object that they can mean, and the repairs.

    Arguments that are an object already, or that have no meaning or several, are returned unchanged without repairs.
    """
    if not arguments.strip() or isinstance(_parse(arguments), dict):
        return arguments, ()
    fenced = _text_in_fence(arguments)
    repairs = [IN_A_FENCE] if fenced else []
    try:
        read = read_whole(fenced or arguments)
        value, unwrapped = unwrap(read.value)
    except UnreadableValueError:
        return arguments, ()
    if not isinstance(value, dict):
        return arguments, ()
    text = scrub(json.dumps(value, ensure_ascii=False))
    return text, tuple(dict.fromkeys(str(repair) for repair in (*repairs, *read.repairs, *unwrapped)))


def _text_in_fence(arguments: str) -> str:
    """Return the text in a code fence, without its first line; empty if there is no fence around all of it."""
    text = arguments.strip()
    fence = "```"
    return text.removesuffix(fence).partition("\n")[2] if text.startswith(fence) and text.endswith(fence) else ""


def _parse(arguments: str) -> object:
    """Return the JSON value; None if it is null or no JSON."""
    try:
        return cast(object, json.loads(arguments, strict=False))
    except (ValueError, RecursionError):
        return None


def _problem(slot: _Slot, *, finish_reason: str, is_last: bool) -> str:
    if is_last and finish_reason == "length":
        return CUT_BY_LENGTH
    if is_last and finish_reason == "content_filter" and not _is_complete(slot.arguments):
        return CUT_BY_FILTER
    return TWO_IN_ONE if _holds_two_objects(slot.arguments) else ""


def _is_complete(arguments: str) -> bool:
    """Return True for a JSON object. The last character is looked at first, as this runs at every fragment."""
    return arguments.rstrip().endswith("}") and isinstance(_parse(arguments), dict)


def _holds_two_objects(arguments: str) -> bool:
    text = arguments.strip()
    if not text.startswith("{") or not text.endswith("}"):
        return False
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return text[end:].lstrip().startswith("{")
