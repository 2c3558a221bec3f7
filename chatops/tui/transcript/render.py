"""Draws one block as lines. Answers that are still streaming are drawn by `answer`."""

from collections.abc import Sequence
from dataclasses import fields
from typing import assert_never

from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from chatops.domain.files import FileRef
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.wording import plural
from chatops.tui.keymap import with_user_keys
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import AnswerDrawing
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    NoticeBlock,
    ReasoningBlock,
    StepBlock,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.transcript.card import card_lines
from chatops.tui.transcript.lines import GUTTER, PROSE, one_line, padded, prefixed, strips_of, styled, truncated, wrap

_BLANK = Text(" " * GUTTER, end="")
_MOST_LINES = 12
"""Lines of a message of the user that are shown in full; a longer one is folded to `FOLDED_LINES`."""
_MOST_CHARACTERS = 2_000
FOLDED_LINES = 6
_GRANTS = " (/permissions)"
"""Command that lists suspended grants. Left out if it would take another line."""
_LAST_THOUGHTS = 12
"""Lines shown of the end of reasoning that is still growing."""


def render_block(
    block: Block,
    width: int,
    theme: BlockTheme,
    *,
    expanded: bool = False,
    further: Sequence[ToolCardBlock] = (),
) -> list[Strip]:
    """Return `block` in `width` columns, gutter included, without empty lines around it.

    `further` are the cards that are folded into this one.

    Untrusted text is sanitised: no control character acts, and none is hidden.
    """
    if isinstance(block, AnswerBlock):
        drawing = AnswerDrawing(width=width, theme=theme)
        drawing.extend(block.text)
        if not block.open:
            drawing.close(incomplete=block.incomplete)
        return drawing.strips()
    lines = _lines(block, width=width, theme=theme, expanded=expanded, further=further)
    return strips_of(lines, width=width, base=theme.base)


def source_strips(block: Block, width: int, theme: BlockTheme) -> list[Strip]:
    """Return the plain source text of a block that could not be drawn, because a bug must not hide it."""
    values = [getattr(block, one.name) for one in fields(block) if one.name not in ("id", "kind", "level", "status")]
    text = "\n".join(value for value in values if isinstance(value, str) and value)
    source = styled(("! This could not be displayed. Source text:\n", theme.warn), (text, theme.text))
    return strips_of(
        prefixed(wrap(source, width=max(1, width - GUTTER)), first=_BLANK, rest=_BLANK), width=width, base=theme.base
    )


def can_open(block: Block) -> bool:
    """Return True if the block has details that are shown only on demand."""
    match block:
        case UserBlock():
            return block.text.count("\n") >= _MOST_LINES or len(block.text) > _MOST_CHARACTERS
        case StepBlock():
            return bool(block.text)
        case _:
            return isinstance(block, ToolCardBlock | ReasoningBlock)


def _lines(
    block: UserBlock | ReasoningBlock | ToolCardBlock | RoleSwitchMessage | NoticeBlock | StepBlock,
    *,
    width: int,
    theme: BlockTheme,
    expanded: bool,
    further: Sequence[ToolCardBlock],
) -> list[Text]:
    room = max(1, width - GUTTER)
    prose = min(room, PROSE)
    match block:
        case UserBlock():
            bar = Text(theme.symbols.user.ljust(GUTTER), theme.role(block.role), end="")
            words = wrap(styled((block.text, theme.text), prose=True), width=prose)
            if can_open(block) and not expanded and (more := len(words) - FOLDED_LINES) > 0:
                rest = f"{theme.symbols.ellipsis} {plural(more, 'more line')} {with_user_keys('(ctrl+o)')}"
                words[FOLDED_LINES:] = [Text(rest, theme.muted, end="")]
            named = [_file(file, width=prose, theme=theme) for file in block.files]
            lines = prefixed([*words, *named], first=bar, rest=bar)
            return [padded(line, width=width, style=theme.user_text) for line in lines]
        case ReasoningBlock():
            lines = _thought(block, width=prose, theme=theme, expanded=expanded)
            return prefixed(lines, first=_BLANK, rest=_BLANK)
        case ToolCardBlock():
            lines = card_lines(block, width=room, theme=theme, expanded=expanded, further=further)
            return prefixed(lines, first=_BLANK, rest=_BLANK)
        case RoleSwitchMessage():
            return _divider(block, width=width, theme=theme)
        case NoticeBlock():
            return _notice(block, width=prose, theme=theme)
        case StepBlock():
            lines = _step(block, width=room, theme=theme, expanded=expanded)
            return prefixed(lines, first=_BLANK, rest=_BLANK)
        case _ as never:
            assert_never(never)


def _file(file: FileRef, *, width: int, theme: BlockTheme) -> Text:
    """Return one line about a file of a message."""
    text = truncated(one_line(file.attachment), width=width, ellipsis=theme.symbols.ellipsis)
    return Text(text, theme.warn if file.problem else theme.muted, end="")


def _thought(block: ReasoningBlock, *, width: int, theme: BlockTheme, expanded: bool) -> list[Text]:
    signs = theme.symbols
    words = len(block.text.split())
    sign = signs.unfolded if expanded else signs.folded
    state = f"thinking{signs.ellipsis}" if block.open else "thought"
    lines = [Text(f"{sign} {state} ({plural(words, 'word')})", theme.muted, end="")]
    if expanded:
        thought = styled((block.text.strip(), theme.muted + theme.emphasis), prose=True)
        shown = wrap(thought, width=width - 2)
        indent = Text("  ", end="")
        lines.extend(prefixed(shown[-_LAST_THOUGHTS:] if block.open else shown, first=indent, rest=indent))
    return lines


def _divider(block: RoleSwitchMessage, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return the line of a role switch. Tools that do not fit are counted: first the lost ones, then also the new."""
    lines: list[Text] = []
    for named in (2, 1, 0):
        lines = _switch(block, width=width, theme=theme, added=named > 0, removed=named > 1)
        if len(lines) == 1:
            break
    return lines


def _switch(block: RoleSwitchMessage, *, width: int, theme: BlockTheme, added: bool, removed: bool) -> list[Text]:
    """Return the line of a role switch, with the names of the tools that it adds and removes, or their number."""
    signs = theme.symbols
    gained = ", ".join(block.added) if added else plural(len(block.added), "tool")
    lost = ", ".join(block.removed) if removed else plural(len(block.removed), "tool")
    text = Text(f"{signs.rule * 2} ", theme.muted, end="")
    if block.before != block.after:
        text.append(one_line(block.before), theme.role(block.before)).append(f" {signs.arrow} ", theme.muted)
    text.append(one_line(block.after), theme.role(block.after))
    changes = [
        (f"+ {gained}" if block.added else "", theme.good),
        (f"{signs.minus} {lost}" if block.removed else "", theme.bad),
        (f"{plural(block.suspended, 'grant')} suspended" if block.suspended else "", theme.warn),
    ]
    for content, style in changes:
        if content:
            text.append(f" {signs.dot} ", theme.muted).append(one_line(content), style)
    if block.suspended and text.cell_len + len(_GRANTS) <= width - GUTTER - 1:
        text.append(_GRANTS, theme.muted)
    if block.model and text.cell_len + len(block.model) + 12 <= width:
        text.append(f" {signs.dot} model {one_line(block.model)}", theme.muted)
    indent = Text(" " * (GUTTER + 1), end="")
    lines = prefixed(wrap(text, width=width - GUTTER - 1), first=Text(end=""), rest=indent)
    last = lines[-1]
    if last.cell_len + 1 < width:
        last.append(" " + signs.rule * (width - last.cell_len - 1), theme.muted)
    return lines


def _step(block: StepBlock, *, width: int, theme: BlockTheme, expanded: bool) -> list[Text]:
    signs = theme.symbols
    sign = f"{signs.unfolded if expanded else signs.folded} " if can_open(block) else f"{signs.rule} "
    room = max(1, width - len(sign) - 1)
    title = truncated(one_line(block.title), width=room, ellipsis=signs.ellipsis)
    line = Text.assemble((sign, theme.muted), (title, theme.user), " ", end="")
    line.append(signs.rule * (width - line.cell_len), theme.muted)
    if not expanded:
        return [line]
    indent = Text("  ", end="")
    return [line, *prefixed(wrap(styled((block.text, theme.muted)), width=width - 2), first=indent, rest=indent)]


def _notice(block: NoticeBlock, *, width: int, theme: BlockTheme) -> list[Text]:
    sign, word, style = _level(block, theme)
    text = styled((f"{word}: " if word else "", style), (block.text, theme.text))
    lines = prefixed(wrap(text, width=width), first=Text(sign.ljust(GUTTER), style, end=""), rest=Text("  ", end=""))
    if parts := [block.advice] * bool(block.advice) + ["Press R to retry."] * block.retry:
        arrow = Text(f"  {theme.symbols.arrow} ", theme.muted, end="")
        advice = wrap(styled((" ".join(parts), theme.text)), width=width - 2)
        lines.extend(prefixed(advice, first=arrow, rest=Text(" " * arrow.cell_len, end="")))
    return lines


def _level(block: NoticeBlock, theme: BlockTheme) -> tuple[str, str, Style]:
    match block.level:
        case "info":
            return theme.symbols.dot, "", theme.muted
        case "warning":
            return "!", "Note", theme.warn
        case "error":
            return theme.symbols.failed, "Error", theme.bad
        case _ as never:
            assert_never(never)
