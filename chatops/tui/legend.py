"""The key legend under a dialog, with key names in bold."""

import re

from textual.content import Content

_NAMES = r"Enter|Esc|Tab|PgUp|PgDn|ctrl\+(?:[a-z]|End)|[A-Za-z]"
_KEYS = re.compile(rf"(?:^|(?<=\s\s))(?:{_NAMES})(?= |$)(?: (?:{_NAMES})(?= |$))*", re.MULTILINE)
"""Key names at the start of an entry. Entries are separated by two or more spaces, or by newlines."""


def legend(text: str) -> Content:
    """Return entries such as ``a approve once   Esc later`` with their keys in bold.

    Bold is also visible on terminals without colours.
    """
    content = Content(text)
    for found in _KEYS.finditer(text):
        content = content.stylize("bold", found.start(), found.end())
    return content
