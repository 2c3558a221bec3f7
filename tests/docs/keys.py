"""Write docs/keys.md, all keys and commands, from what F1 shows: ``python -m tests.docs.keys``."""

import re
from collections.abc import Iterator
from pathlib import Path

from chatops.tui.commands.help import help_text

PAGE = Path(__file__).parents[2] / "docs" / "keys.md"
HEAD = """\
# Keys and commands

`F1` shows this page in the chat, with the keys that you have set. It is written from the same tables:
`python -m tests.docs.keys`.
"""
_ROW = re.compile(r"  (\S.*?)  +(\S.*)")


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    head = ""
    for line in help_text().splitlines():
        if found := _ROW.fullmatch(line):
            if head:
                first = "command" if head == "Commands" else "key"
                yield from (f"## {head}\n", f"| {first} | |", "|---|---|")
                head = ""
            left, right = (cell.replace("|", "\\|") for cell in found.groups())
            yield f"| `{left}` | {right} |"
        else:
            if line and not head:
                head = line
            if not line:
                yield ""
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
