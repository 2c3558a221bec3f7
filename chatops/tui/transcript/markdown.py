"""Draws a part of a Markdown text as lines. Imported late: the parser is not needed for the first paint.

Everything the model wrote stays visible. HTML is shown as source, link and image targets are printed beside their text
and are never live, and reference definitions are ordinary text. The parser resolves character references, so text is
sanitised after parsing, token by token. Tables shrink and wrap to the width, or become lists.

Why not a library: markdown-it-py parses, the drawing is ours. Textual's Markdown widget makes a widget of every
paragraph, while the transcript is one widget that draws lines (see `viewport`). Rich's Markdown draws a whole text at
once, so that a growing answer would cost more with every word. By default both make links live without showing where
they lead, and neither shows HTML.
"""

import logging
import re
import signal
import threading
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from types import FrameType

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Token as TokenKind  # type: ignore[import-untyped]
from pygments.token import _TokenType
from pygments.util import ClassNotFound  # type: ignore[import-untyped]
from rich.align import AlignMethod
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from chatops.domain.sanitize import sanitize
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.lines import PROSE, fold, padded, prefixed, wrap

log = logging.getLogger(__name__)

_LETTERS_OR_DIGITS = re.compile("[A-Za-z0-9]+")
_REFERENCE = re.compile(r"&#?\w{1,32};")
"""A character reference, such as ``&amp;``, which is drawn as the character."""
_FORMULA = re.compile(r"\$\$[^$\n]{1,400}\$\$|\$(?=[^\s$])[^$\n]{1,400}(?<=\S)\$(?!\d)")
"""A formula in dollar signs. An amount of money, such as ``$5``, does not match."""
_TASK = re.compile(r"\[([ xX])\][ \t]+(?=\S)")
"""The box at the start of a task in a list."""
_TICK = re.compile(r"^([ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+)\[[xX]\](?=[ \t])", re.MULTILINE)
"""The tick of a task, which is drawn as a sign."""
_DIFF_LANGUAGES = ("diff", "patch", "udiff")
_MIN_WIDTH = 8
"""Minimum columns for nested content, and for a column of a table that is shrunk."""
_RULE_WIDTH = 40
"""Maximum columns of a rule."""
_LONGEST_WORD = 24
"""Maximum columns of a word that a table keeps in one piece."""
_LONGEST_HIGHLIGHTED = 20_000
"""Longer code (in characters) is not highlighted."""
_TIME_LIMIT_S = 0.25
"""CPU seconds for one piece of code. Ordinary code of that length takes a tenth of it."""
_NEXT_ALARM_S = 0.01
"""CPU seconds to the next alarm: Python ignores an exception that is raised in a weakref callback or a finalizer."""
_given_up: set[str] = set()
"""Lexers that exceeded the limit or failed once."""


def _take_formula(state: StateInline, silent: bool) -> bool:
    """Take a formula as it is written: its stars, underscores and backslashes are no Markdown."""
    found = _FORMULA.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end()
    return True


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False})
    parser.inline.ruler.before("escape", "formula", _take_formula)
    return parser.enable(["table", "strikethrough"]).disable(["reference"])


def markdown_lines(source: str, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return `source` drawn in `width` columns. Never raises for any source.

    CommonMark drops some text: content that is nested too deep, cells beyond a table's heading. If letters or digits
    would get lost, the source is shown as it is.
    """
    source = sanitize(source, prose=True)
    lines = _Drawing(theme).flow(_parser().parse(source), width=width)
    shown = sum(_letter_count(line.plain) for line in lines)
    if not lines or shown < _letter_count(_TICK.sub(r"\1", _REFERENCE.sub("", source))):
        return wrap(Text(source, theme.text, end=""), width=min(width, PROSE))
    return lines


def code_blocks(source: str) -> list[tuple[str, str]]:
    """Return language and content of each code block of a Markdown text, fenced or indented, as it is drawn."""
    blocks = (token for token in _parser().parse(source) if token.type in ("fence", "code_block"))
    return [(token.info.strip(), token.content.removesuffix("\n")) for token in blocks]


def _letter_count(text: str) -> int:
    return len(text) - len(_LETTERS_OR_DIGITS.sub("", text))


class _Drawing:
    """Draws the blocks of a text."""

    def __init__(self, theme: BlockTheme) -> None:
        self.theme = theme

    def flow(self, tokens: Sequence[Token], *, width: int, tight: bool = False) -> list[Text]:
        """Return the lines of consecutive blocks, separated by an empty line unless the list is tight."""
        lines: list[Text] = []
        for node in _nodes(tokens):
            drawn = self._block(node, width=max(_MIN_WIDTH, width))
            if drawn and lines and not tight:
                lines.append(Text(end=""))
            lines.extend(drawn)
        return lines

    def _block(self, node: Sequence[Token], *, width: int) -> list[Text]:
        head, body = node[0], node[1:-1]
        match head.type:
            case "paragraph_open":
                return wrap(self._inline(body), width=min(width, PROSE))
            case "heading_open":
                return wrap(self._inline(body, base=self._heading(head.tag)), width=min(width, PROSE))
            case "bullet_list_open" | "ordered_list_open":
                return self._list(head, body, width=width)
            case "blockquote_open":
                mark = Text(f"{self.theme.symbols.quote} ", self.theme.muted, end="")
                return prefixed(self.flow(body, width=width - 2), first=mark, rest=mark)
            case "fence" | "code_block":
                return code_lines(head.content, language=head.info, width=width, theme=self.theme)
            case "table_open":
                return self._table(body, width=width)
            case "hr":
                return [Text(self.theme.symbols.rule * min(width, _RULE_WIDTH), self.theme.muted, end="")]
            case _:
                return wrap(self._inline(node), width=min(width, PROSE))

    def _heading(self, tag: str) -> Style:
        """Return the style of a heading, so that the first three levels can be told apart."""
        match tag:
            case "h1":
                return self.theme.heading + Style(underline=True)
            case "h2":
                return self.theme.heading
            case "h3":
                return self.theme.text + self.theme.strong + self.theme.emphasis
            case _:
                return self.theme.text + self.theme.emphasis

    def _list(self, head: Token, body: Sequence[Token], *, width: int) -> list[Text]:
        items, signs = _nodes(body), self.theme.symbols
        start = int(head.attrs.get("start", 1)) if head.type == "ordered_list_open" else None
        digits = len(str((start or 0) + len(items) - 1))
        lines: list[Text] = []
        for index, item in enumerate(items):
            box = _take_box(item)
            is_ticked = bool(box.strip())
            number = f"{str(start + index).rjust(digits)}. " if start is not None else ""
            task = ""
            if box:
                task = f"{signs.ticked if is_ticked else signs.box} "
            sign = f"{number}{task}" or f"{signs.bullet} "
            tight = any(token.type == "paragraph_open" and token.hidden for token in item)
            drawn = self.flow(item[1:-1], width=width - cell_len(sign), tight=tight) or [Text(end="")]
            if lines and not tight and len(drawn) > 1:
                lines.append(Text(end=""))
            style = self.theme.good if is_ticked else self.theme.muted
            first, rest = Text(sign, style, end=""), Text(" " * cell_len(sign), end="")
            lines.extend(prefixed(drawn, first=first, rest=rest))
        return lines

    def _table(self, body: Sequence[Token], *, width: int) -> list[Text]:
        rows: list[list[Text]] = []
        alignments: list[AlignMethod] = []
        for token in body:
            match token.type:
                case "tr_open":
                    rows.append([])
                case "th_open":
                    style = str(token.attrs.get("style", ""))
                    if "right" in style:
                        alignments.append("right")
                    else:
                        alignments.append("center" if "center" in style else "left")
                case "inline":
                    rows[-1].append(self._inline([token]))
        return _table_lines(rows, alignments=alignments, width=width, theme=self.theme)

    def _inline(self, tokens: Sequence[Token], *, base: Style | None = None) -> Text:
        text = Text(end="", overflow="fold")
        for token in tokens:
            _Inline(self.theme, text, base or self.theme.text).add(token.children or [token])
        return text


def _take_box(item: Sequence[Token]) -> str:
    """Remove the box of a task from a list item. Return what was in it, such as an x; empty if there is no box."""
    inline = item[2] if len(item) > 2 and item[1].type == "paragraph_open" else None
    first = inline.children[0] if inline is not None and inline.children else None
    box = _TASK.match(first.content) if first is not None and first.type == "text" else None
    if first is None or box is None:
        return ""
    first.content = first.content[box.end() :]
    return box[1]


class _Inline:
    """Appends inline tokens to a text, tracking the open styles."""

    def __init__(self, theme: BlockTheme, text: Text, base: Style) -> None:
        self.theme = theme
        self.text = text
        self.styles = [base]
        self.links: list[tuple[str, int]] = []
        """Each open link: its target, and where its text starts."""

    def add(self, tokens: Sequence[Token]) -> None:
        """Append all of `tokens`."""
        for token in tokens:
            self._add(token)

    def _add(self, token: Token) -> None:
        match token.type:
            case "softbreak":
                self._put(" ")
            case "hardbreak":
                self.text.append("\n")
            case "code_inline":
                self._put(sanitize(token.content), self.theme.inline_code)
            case "strong_open":
                self._enter(self.theme.strong)
            case "em_open":
                self._enter(self.theme.emphasis)
            case "s_open":
                self._enter(self.theme.strike)
            case "strong_close" | "em_close" | "s_close":
                self._leave()
            case "link_open":
                self.links.append((_link_target(token, "href"), len(self.text)))
                self._enter(self.theme.link)
            case "link_close":
                self._leave()
                self._put_target(*self.links.pop())
            case "image":
                self._put(f"[image: {token.content}]", self.theme.muted)
                self._put(f" ({sanitize(_link_target(token, 'src'))})", self.theme.muted)
            case _:
                self._put(token.content)

    def _put_target(self, href: str, begin: int) -> None:
        """Print where a link leads, unless its text, which starts at `begin`, says just that."""
        if self.text.plain[begin:] not in (href, href.removeprefix("mailto:")):
            self._put(f" ({sanitize(href)})", self.theme.muted)

    def _put(self, content: str, style: Style | None = None) -> None:
        under = self.styles[-1]
        self.text.append(sanitize(content, newlines=False, prose=True), under + style if style is not None else under)

    def _enter(self, style: Style) -> None:
        self.styles.append(self.styles[-1] + style)

    def _leave(self) -> None:
        if len(self.styles) > 1:
            self.styles.pop()


def _link_target(token: Token, attribute: str) -> str:
    title = token.attrs.get("title")
    return f'{token.attrs.get(attribute, "")} "{title}"' if title else str(token.attrs.get(attribute, ""))


def code_lines(code: str, *, language: str, width: int, theme: BlockTheme) -> list[Text]:
    """Return a code block: its language, then the code broken at the width, every character kept."""
    name, _, _ = language.partition(" ")
    shown = highlight(sanitize(code.rstrip("\n")), language=name, theme=theme)
    # Two columns before each line, and one after it.
    indent, wrapped = Text("  ", end=""), Text(f"{theme.symbols.wrapped} ", theme.muted, end="")
    lines, code_width = [], width - 3
    for line in shown.split("\n", allow_blank=True):
        style = theme.code + _changed_style(line.plain, theme) if name.lower() in _DIFF_LANGUAGES else theme.code
        parts = prefixed(fold(line, width=code_width), first=indent, rest=wrapped)
        lines += [padded(part, width=width, style=style) for part in parts]
    label = sanitize(language.strip(), newlines=False)
    if label:
        parts = prefixed(fold(Text(label, theme.muted, end=""), width=code_width), first=indent, rest=wrapped)
        lines[:0] = [padded(part, width=width, style=theme.code) for part in parts]
    return lines


def _changed_style(line: str, theme: BlockTheme) -> Style:
    """Return the background of a line of a diff."""
    if line.startswith(("+++", "---")):
        return Style()
    if line.startswith("+"):
        return theme.added
    return theme.removed if line.startswith("-") else Style()


def _nodes(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Return the direct children: each a slice from an opening token to its closing one, or a single token."""
    nodes: list[Sequence[Token]] = []
    depth = start = 0
    for index, token in enumerate(tokens):
        if depth == 0:
            start = index
        depth += token.nesting
        if depth <= 0:
            nodes.append(tokens[start : index + 1])
            depth = 0
    return nodes


def _table_lines(
    rows: list[list[Text]], *, alignments: Sequence[AlignMethod], width: int, theme: BlockTheme
) -> list[Text]:
    """Return `rows` (the first is the heading) in `width` columns. Nothing is cut off."""
    columns = max((len(row) for row in rows), default=0)
    if not columns:
        return []
    between = f" {theme.symbols.bar} "
    room = width - len(between) * (columns - 1)
    cells = [[row[column].plain for row in rows if column < len(row)] for column in range(columns)]
    widths = _fit_columns(cells, room=room)
    if widths is None:
        return _table_as_list(rows, width=width, theme=theme)
    lines: list[Text] = []
    for index, row in enumerate(rows):
        if index == 0:
            row = [_bold(cell, theme) for cell in row]
        lines.extend(_table_row(row, widths=widths, alignments=alignments, between=Text(between, theme.muted, end="")))
        if index == 0:
            total = sum(widths) + len(between) * (columns - 1)
            lines.append(Text(theme.symbols.rule * total, theme.muted, end=""))
    return lines


def _fit_columns(columns: Sequence[Sequence[str]], *, room: int) -> list[int] | None:
    """Return widths for the cells of each column that add up to at most `room`, shrinking the widest columns.

    No column gets narrower than its words, but for those of more than `_LONGEST_WORD`. None if they do not fit.
    """
    natural = [max(1, *map(cell_len, cells)) for cells in columns]
    least = [max(min(size, _MIN_WIDTH), _longest_word(cells)) for size, cells in zip(natural, columns, strict=True)]
    if sum(least) > room:
        return None
    for limit in range(room, 0, -1):
        widths = [min(size, max(limit, low)) for size, low in zip(natural, least, strict=True)]
        if sum(widths) <= room:
            return widths
    return least


def _longest_word(cells: Iterable[str]) -> int:
    words = (cell_len(word) for cell in cells for word in cell.split())
    return max((cells for cells in words if cells <= _LONGEST_WORD), default=1)


def _table_row(row: list[Text], *, widths: list[int], alignments: Sequence[AlignMethod], between: Text) -> list[Text]:
    cells = [wrap(cell, width=size) for cell, size in zip(row, widths, strict=False)]
    height = max((len(cell) for cell in cells), default=0)
    lines = []
    for y in range(height):
        line = Text(end="")
        for x, size in enumerate(widths):
            if x:
                line.append_text(between)
            part = cells[x][y] if x < len(cells) and y < len(cells[x]) else Text(end="")
            part.align(alignments[x] if x < len(alignments) else "left", size)
            line.append_text(part)
        line.rstrip()
        lines.append(line)
    return lines


def _table_as_list(rows: list[list[Text]], *, width: int, theme: BlockTheme) -> list[Text]:
    heading, *body = rows
    lines: list[Text] = []
    for row in body or [heading]:
        for index, cell in enumerate(row):
            name = heading[index] if index < len(heading) else Text(end="")
            sign = theme.symbols.bullet if index == 0 else " "
            entry = Text.assemble(_bold(name, theme), ": ", cell, end="")
            first, rest = Text(f"{sign} ", theme.muted, end=""), Text("  ", end="")
            lines.extend(prefixed(wrap(entry, width=width - 2), first=first, rest=rest))
    return lines


def _bold(cell: Text, theme: BlockTheme) -> Text:
    copy = cell.copy()
    copy.stylize(theme.strong)
    return copy


def highlight(code: str, *, language: str, theme: BlockTheme) -> Text:
    """Return `code` (already sanitised) with the theme's colours. Its text is never changed.

    Lexers are hundreds of regular expressions applied to untrusted text, and many take quadratic time or worse in a
    line's length. Each therefore has a CPU time limit. A language whose lexer exceeds it is no longer highlighted.
    """
    plain = Text(code, theme.text, end="")
    lexer = _lexer(language)
    if lexer is None or len(code) > _LONGEST_HIGHLIGHTED or lexer.name in _given_up:
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
        signal.setitimer(signal.ITIMER_VIRTUAL, _TIME_LIMIT_S, _NEXT_ALARM_S)
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
        TokenKind.Comment: theme.muted + theme.emphasis,
        TokenKind.Keyword: theme.link + Style(underline=False),
        TokenKind.Operator.Word: theme.link + Style(underline=False),
        TokenKind.Name.Function: theme.text + theme.strong,
        TokenKind.Name.Class: theme.text + theme.strong,
        TokenKind.Name.Tag: theme.link + Style(underline=False),
        TokenKind.Name.Attribute: theme.inline_code,
        TokenKind.Literal.String: theme.good,
        TokenKind.Literal.Number: theme.inline_code,
        TokenKind.Generic.Inserted: theme.good,
        TokenKind.Generic.Deleted: theme.bad,
        TokenKind.Generic.Heading: theme.muted,
    }


def _style_of(kind: _TokenType | None, styles: dict[_TokenType, Style]) -> Style | None:
    while kind is not None:
        if kind in styles:
            return styles[kind]
        kind = kind.parent
    return None
