"""Syntax highlighting. Imported late, with the Markdown parser. Colours come from the theme, not from pygments.

Lexers are hundreds of regular expressions applied to untrusted text, and many take quadratic time or worse in a line's
length. Each therefore has a CPU time limit. A language whose lexer exceeds it is no longer highlighted.
"""

import logging
import signal
import threading
from functools import lru_cache
from types import FrameType

from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Token, _TokenType  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]
from rich.style import Style
from rich.text import Text

from chatops.tui.theme import BlockTheme

log = logging.getLogger(__name__)

_LONGEST = 20_000
"""Longer code (in characters) is not highlighted."""
_SECONDS = 0.25
"""CPU seconds for one piece of code. Ordinary code of that length takes a tenth of it."""
_AGAIN_S = 0.01
"""CPU seconds to the next alarm: Python ignores an exception that is raised in a weakref callback or a finalizer."""
_given_up: set[str] = set()
"""Lexers that exceeded the limit or failed once."""


def highlight(code: str, *, language: str, theme: BlockTheme) -> Text:
    """Return `code` (already sanitised) with colours. Its text is never changed."""
    plain = Text(code, theme.text, end="")
    lexer = _lexer(language)
    if lexer is None or len(code) > _LONGEST or lexer.name in _given_up:
        return plain
    try:
        tokens = _tokens(lexer, code)
    except Exception as error:
        _given_up.add(lexer.name)
        log.info("code in %s has no colours any more: %s", lexer.name, type(error).__name__)
        return plain
    styles = _styles(theme)
    text = Text(end="")
    for kind, value in tokens:
        text.append(value, _style_of(kind, styles) or theme.text)
    return text if text.plain == code else plain


class _TimeLimitError(Exception):
    """The lexer has used up its CPU time."""


class _Alarm:
    """Signal handler that interrupts a lexer. Only a signal interrupts a running regular expression."""

    def __init__(self) -> None:
        self.armed = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        # A late alarm, after the lexer has finished, must not hit other code.
        if self.armed:
            raise _TimeLimitError
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


_alarm = _Alarm()


def _tokens(lexer: Lexer, code: str) -> list[tuple[_TokenType, str]]:
    """Return all tokens; none outside the main thread, because only the main thread gets signals.

    Raises _TimeLimitError, and any exception of the lexer.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    # The handler stays installed: an unhandled signal would end the program.
    signal.signal(signal.SIGVTALRM, _alarm)
    try:
        _alarm.armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS, _AGAIN_S)
        return list(lexer.get_tokens(code))
    finally:
        # First, so that no alarm interrupts the next line.
        _alarm.armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    if not language:
        return None
    try:
        lexer: Lexer = get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    except (ClassNotFound, ValueError):
        return None
    return lexer


@lru_cache(maxsize=8)
def _styles(theme: BlockTheme) -> dict[_TokenType, Style]:
    return {
        Token.Comment: theme.muted + theme.emphasis,
        Token.Keyword: theme.link + Style(underline=False),
        Token.Operator.Word: theme.link + Style(underline=False),
        Token.Name.Function: theme.text + theme.strong,
        Token.Name.Class: theme.text + theme.strong,
        Token.Name.Tag: theme.link + Style(underline=False),
        Token.Name.Attribute: theme.inline_code,
        Token.Literal.String: theme.good,
        Token.Literal.Number: theme.inline_code,
        Token.Generic.Inserted: theme.good,
        Token.Generic.Deleted: theme.bad,
        Token.Generic.Heading: theme.muted,
    }


def _style_of(kind: _TokenType | None, styles: dict[_TokenType, Style]) -> Style | None:
    while kind is not None:
        if kind in styles:
            return styles[kind]
        kind = kind.parent
    return None
