"""Shortens the style codes of a frame, which are most of its bytes.

Textual writes each piece of a line with all of its colours and a reset after it, some 40 bytes for a word. Where
another piece follows at once, only what differs from the style before it is needed. ECMA-48, section 8.3.117 (SGR).
"""

import re
from functools import lru_cache

_NEXT_ROW = re.compile(r"\r\n(?=\x1b\[\d+;\d+H)")
"""The end of a row before the cursor is put somewhere anyway."""
_BETWEEN = re.compile(r"\x1b\[0m((?:\x1b\[\d+;\d+H)?)\x1b\[([\d;]+)m")
"""The end of a piece and the start of the next one, perhaps elsewhere."""
_COLOURS = {"38": "39", "48": "49"}
"""The parameter that sets a colour of its own, and the one that sets the default again."""


def with_short_styles(text: str) -> str:
    """Return `text`, in which each styled piece ends with a reset, with shorter codes of the same effect."""
    first, *rest = _BETWEEN.split(_NEXT_ROW.sub("", text))
    written, before = [first], _last_codes(first)
    for move, codes, piece in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        written += (move, _change(before, codes), piece)
        # Text without a style may follow in the same piece, and then text with another one.
        before = _last_codes(piece) if "\x1b[" in piece else codes
    return "".join(written)


def _last_codes(text: str) -> str:
    return text.rpartition("\x1b[")[2].partition("m")[0]


@lru_cache(maxsize=4096)
def _change(before: str, after: str) -> str:
    """Return the sequence that changes one style into another, given as SGR parameters."""
    old, new = _style(before), _style(after)
    if old is None or new is None or not old.keys() - _COLOURS.keys() <= new.keys():
        # An attribute ends, and there is no short code for that.
        return f"\x1b[0;{after}m"
    parts = [new.get(name, off) for name, off in _COLOURS.items() if old.get(name) != new.get(name)]
    parts += [name for name in new if name not in old and name not in _COLOURS]
    return f"\x1b[{';'.join(parts)}m" if parts else ""


def _style(codes: str) -> dict[str, str] | None:
    """Return the attributes and colours by name, the first parameter; None if these are no such parameters."""
    left, style = codes.split(";"), dict[str, str]()
    while left:
        name, *left = left
        if not name.isdecimal() or name == "0":
            return None
        if name in _COLOURS:
            size = {"2": 4, "5": 2}.get(left[0] if left else "", 0)
            if not size or len(left) < size:
                return None
            style[name], left = ";".join([name, *left[:size]]), left[size:]
        elif 30 <= int(name) <= 49 or int(name) >= 90:
            # A colour of the terminal's own palette, or its default one.
            style["38" if int(name) // 10 in (3, 9) else "48"] = name
        else:
            style[name] = name
    return style
