"""Deferred import of the Markdown parser and pygments. Until the first paint is done, text is drawn plain."""

import importlib
import re
from collections.abc import Callable
from typing import Protocol, cast

from rich.text import Text

from chatops.tui.theme import PLAIN, BlockTheme
from chatops.tui.transcript.lines import styled, wrap

LONGEST = 16_000
"""Longer Markdown (in characters) is shown as its source, because parsing is not linear."""

_OPENING = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))")


class _MarkdownModule(Protocol):
    markdown_lines: Callable[..., list[Text]]
    code_lines: Callable[..., list[Text]]


_loaded: list[_MarkdownModule] = []


def warm_up() -> None:
    """Import the Markdown renderer. Call it in a thread after the first paint; takes about 0.1 s once."""
    if _loaded:
        return
    module = cast(_MarkdownModule, importlib.import_module("chatops.tui.transcript.markdown"))
    module.markdown_lines("*a*\n\n```python\nb = 1\n```\n", width=40, theme=PLAIN)
    _loaded.append(module)


def is_warm() -> bool:
    """Return True if Markdown is rendered by now."""
    return bool(_loaded)


def draw_markdown(source: str, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return a piece of Markdown as lines.

    A single code block may have any length. Other pieces longer than `LONGEST` stay plain.
    """
    source = source.strip("\n")
    head, _, body = source.partition("\n")
    opening = _OPENING.fullmatch(head.rstrip("\r"))
    if not _loaded or (len(source) > LONGEST and opening is None):
        return wrap(styled((source, theme.text)), width=width)
    if opening is None:
        return _loaded[0].markdown_lines(source, width=width, theme=theme)
    fence, language = opening[1] or opening[3], opening[2] or opening[4] or ""
    lines = body.split("\n")
    end = lines[-1].strip()
    if len(end) >= len(fence) and set(end) == {fence[0]}:
        lines.pop()
    return _loaded[0].code_lines("\n".join(lines), language=language, width=width, theme=theme)
