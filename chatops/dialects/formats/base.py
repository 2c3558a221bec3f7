"""The types that readers of formats share with the scanner."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from chatops.dialects.offers import Offers
from chatops.dialects.reading import Confidence, DiagnosticKind
from chatops.dialects.repairs import UnreadableValueError
from chatops.domain.canonical import JsonValue

MAX_CALL = 8_000_000
"""Maximum length of one call in characters."""
MAX_DEPTH = 100
"""Maximum nesting depth for recursive readers: each level takes several frames of the stack left to them."""
NAME = r"[^\s<>{}()\[\]\"'`|｜,;=]{1,256}"
"""A name as models write it without quotes: anything but characters that could end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a tool on offer that was read. Indices are into the text that was read."""

    name: str
    arguments: dict[str, JsonValue]
    start: int
    end: int
    repairs: tuple[str, ...] = ()
    closed: bool = True
    """True if the whole call was there, the closing tag of its format included."""
    confidence: Confidence = Confidence.HIGH


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A recognised call that cannot be used, and why."""

    kind: DiagnosticKind
    message: str
    start: int
    name: str = ""
    empty: bool = False
    """True if only an opening tag was written, at the end of the text."""


Item = Call | Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A block of calls, or a wrapper around them. Its text is not shown to the user."""

    end: int
    """Index after the block."""
    format: str
    items: tuple[Item, ...] = ()
    sure: bool = True
    """True if no further text could change this."""
    wraps: bool = False
    """True for an opening tag around calls, which follow it."""
    rest_is_invented: bool = False
    """True if the model made up the results that follow: they are neither run nor shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No call is here; the text is text. `sure` as in `Found`."""

    sure: bool = True


Outcome = Found | Nothing
NOT_HERE = Nothing()
NOT_YET = Nothing(sure=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A place where a call may begin, for the reader of its format."""

    text: str
    """All text so far; more may come."""
    start: int
    """Index of the opening tag."""
    after: int
    """Index after the word of the opening tag: at `>`, `=` or white space."""
    offers: Offers
    wrapper: str = ""
    """The format of the surrounding wrapper, if the wrapper determines the format."""


ReadCalls = Callable[[Opening], Outcome]


_SPACE = re.compile(r"\s*+")


def skip_space(text: str, at: int) -> int:
    """Return the index of the first character at or after `at` that is not white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def unknown(name: str, offers: Offers, start: int) -> Trouble:
    """Return the trouble with a name that is not on offer."""
    return Trouble(
        kind=DiagnosticKind.UNKNOWN_TOOL,
        message=f"is no tool here; {offers.listed()}" if name.strip() else f"has no name; {offers.listed()}",
        start=start,
        name=name.strip(),
    )


def unreadable(error: UnreadableValueError, name: str, start: int) -> Trouble:
    """Return the trouble with arguments that could not be read because of `error`."""
    if error.cut:
        return cut_off(name, start)
    where = max(error.position - start, 0)
    return Trouble(
        kind=DiagnosticKind.UNREADABLE,
        message=f"could not be read: {error.message}, {where} characters into the call",
        start=start,
        name=name,
    )


def cut_off(name: str, start: int) -> Trouble:
    """Return the trouble with a call whose end is missing."""
    return Trouble(
        kind=DiagnosticKind.CUT_OFF,
        message="was cut off before its end, so nothing of it was run; write the whole call again",
        start=start,
        name=name,
    )


def begun(start: int) -> Trouble:
    """Return the trouble with an opening tag that nothing follows."""
    return Trouble(
        kind=DiagnosticKind.CUT_OFF,
        message="was begun and not written; write the whole call",
        start=start,
        empty=True,
    )


def with_repair(item: Item, repair: str) -> Item:
    """Return `item` with one more repair, if it is a call."""
    if isinstance(item, Trouble) or repair in item.repairs:
        return item
    return replace(item, repairs=(*item.repairs, repair))


def unclosed(item: Item) -> Item:
    """Return `item` marked as not closed by the text, if it is a call."""
    return item if isinstance(item, Trouble) else replace(item, closed=False)


def doubtful(item: Item) -> Item:
    """Return `item` with low confidence, as it may be an example, if it is a call."""
    return item if isinstance(item, Trouble) else replace(item, confidence=Confidence.LOW)
