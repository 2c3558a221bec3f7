"""Calls as JSON objects between tags: one, several in a row, or a list of them."""

import re
from collections.abc import Sequence

from chatops.dialects.formats.base import Found, Item, Opening, skip_space, unclosed, unreadable, with_repair
from chatops.dialects.formats.closing import CLOSER, closer_after, closer_may_come
from chatops.dialects.formats.shapes import Shape
from chatops.dialects.json_reader import JsonRead, UnreadableValueError, read_value, unwrap
from chatops.dialects.offers import Offers
from chatops.domain.canonical import JsonValue

NO_CLOSER = "the closing tag is missing"
_FENCE_OPENS = re.compile(r"\s*+(?:`{3,}|~{3,})[ \t]*[\w-]{0,20}\s*")
_FENCE_ENDS = re.compile(r"\s*(?:`{3,}|~{3,})")
_MORE = re.compile(r"\{|\[\s*\{")
_BETWEEN = re.compile(r"[\s,;]*+")


def skip_fence(text: str, at: int) -> int:
    """Return the index after the opening line of a fence, if one opens here; otherwise after the white space."""
    found = _FENCE_OPENS.match(text, at)
    return found.end() if found else skip_space(text, at)


def read_objects(
    text: str,
    start: int,
    at: int,
    offers: Offers,
    *,
    format: str,
) -> Found:
    """Return the calls of the block that opens at `start`; its first object or list begins at `at`."""
    items: list[Item] = []
    sure = True
    whole = True
    position = end = at
    while position == at or _MORE.match(text, position):
        try:
            read = read_value(text, position, close_open=True)
        except UnreadableValueError as error:
            return broken(text, position, error, name_in(text, position), format=format, before=items)
        shape = Shape(offers, position, read.end, read.repairs, read.closed)
        items += shape.items(read.value, keyed=format in _KEYED)
        sure = sure and is_sure(text, read)
        whole = whole and not read.unclosed
        between = _BETWEEN.match(text, read.end)
        position = between.end() if between else read.end
        end = read.end
    return closed_block(text, end, items, format=format, whole=whole, sure=sure)


def is_sure(text: str, read: JsonRead) -> bool:
    """Return True if a value would be the same if more text came."""
    return not read.repairs and skip_space(text, read.end) < len(text)


_OPEN_ENDED = frozenset(
    {
        "commandr_action",
        "functools",
        "gigachat3",
        "gigachat31",
        "granite20b_fc",
        "granite3",
        "llama3_python_tag",
        "llama4_pythonic",
        "mistral_json",
        "mistral_v11",
    }
)
"""Formats whose calls end where their JSON or Python ends: they have no closing tag."""
_KEYED = frozenset({"apertus"})
"""Formats in which `{NAME: {arguments}}` is a call."""


def closed_block(
    text: str,
    end: int,
    items: list[Item],
    *,
    format: str,
    whole: bool = True,
    sure: bool = True,
) -> Found:
    """Return the block of `items` that end at `end`, with its closing tag; mark the items if there is none.

    `whole`: no bracket had to be added for the model. `sure`: no further text could change the items.
    """
    after = closer_after(text, end)
    if after is None:
        sure = sure and not closer_may_come(text, end)
        if format not in _OPEN_ENDED:
            items = [with_repair(each, NO_CLOSER) for each in items]
            whole = False
    if not whole:
        items = [unclosed(each) for each in items]
    return Found(end=end if after is None else after, format=format, items=tuple(items), sure=sure)


def broken(
    text: str, start: int, error: UnreadableValueError, name: str, *, format: str, before: Sequence[Item] = ()
) -> Found:
    """Return a block whose call at `start` cannot be read: the items `before` it count, the rest is skipped."""
    closer = None if error.cut else CLOSER.search(text, error.position)
    return Found(
        end=closer.end() if closer else len(text),
        format=format,
        items=(*before, unreadable(error, name, start)),
        sure=False,
    )


_NAMED = re.compile(r"""[\[{\s]*["']?(?:name|tool_name|tool)["']?\s*:\s*["']([^"'\n]{1,80})["']""")


def name_in(text: str, at: int) -> str:
    """Return the name that a broken object seems to have, for the message about it."""
    found = _NAMED.match(text, at)
    return found[1] if found else ""


def read_arguments(text: str, at: int) -> tuple[dict[str, JsonValue], int, tuple[str, ...], bool]:
    """Return the object of arguments at `at`, perhaps in a fence: value, end, repairs, and True if that is sure.

    Raises UnreadableValueError if it cannot be read or the text does not close it.
    """
    fenced = _FENCE_OPENS.match(text, at)
    read = read_value(text, fenced.end() if fenced else at)
    try:
        value, repairs = unwrap(read.value)
    except UnreadableValueError as error:
        raise UnreadableValueError(error.message, read.end) from None
    if not isinstance(value, dict):
        raise UnreadableValueError("there is no object of arguments", at)
    repairs = (*read.repairs, *repairs)
    sure = is_sure(text, read)
    if not fenced:
        return value, read.end, repairs, sure
    ends = _FENCE_ENDS.match(text, read.end)
    if ends is None:
        return value, read.end, repairs, sure and text[skip_space(text, read.end)] not in "`~"
    return value, ends.end(), repairs, sure and ends.end() < len(text)


def read_named(opening: Opening, written: str, at: int, *, format: str) -> Found:
    """Return the call of the tool `written`, whose object of arguments begins at `at`."""
    text, start = opening.text, opening.start
    try:
        arguments, end, repairs, sure = read_arguments(text, at)
    except UnreadableValueError as error:
        return broken(text, start, error, written, format=format)
    item = Shape(opening.offers, start, end, repairs).call(written, arguments)
    return closed_block(text, end, [item], format=format, sure=sure)
