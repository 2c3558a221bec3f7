"""What keys do, in one or two lines under a dialog: the keys stand out from the words beside them."""

import re

from textual.content import Content

_NAMES = r"Enter|Esc|Tab|PgUp|PgDn|ctrl\+(?:[a-z]|End)|[A-Za-z]"
_KEYS = re.compile(rf"(?:^|(?<=\s\s))(?:{_NAMES})(?= |$)(?: (?:{_NAMES})(?= |$))*", re.MULTILINE)
"""The names of keys at the beginning of an entry; entries are parted by two spaces or more, or stand on lines."""


def legend(text: str) -> Content:
    """Entries such as ``a approve once   Esc later`` with their keys in bold, which is there without colours too."""
    content = Content(text)
    for found in _KEYS.finditer(text):
        content = content.stylize("bold", found.start(), found.end())
    return content
