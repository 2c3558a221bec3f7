"""Draws a block that is no answer: its lines, gutter included. Answers are drawn by `answer`, cards by `card`.

An image is half blocks in the colours of a small raster, or a line that says what it is. A cell shows two pixels: the
upper half block in the colour of the upper one, on the colour of the lower one. Only terminals with many colours get
them. In the same cells, a terminal that has the image draws it itself (`graphics`), if the window is wide enough for
all of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias, assert_never

from rich.color import Color
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from chatops.domain.files import FileRef, shown_name
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.tools import Capabilities
from chatops.domain.wording import plural
from chatops.tui.graphics import placeholder_rows
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.blocks import Block, NoticeBlock, ReasoningBlock, StepBlock, ToolCardBlock, UserBlock
from chatops.tui.transcript.card import card_lines, hidden_lines
from chatops.tui.transcript.lines import (
    GUTTER,
    PROSE,
    indented,
    one_line,
    padded,
    prefixed,
    short_line,
    strips_of,
    styled,
    wrap,
)

if TYPE_CHECKING:
    from chatops.tools.picture import Picture, Raster

_MAX_LINES, _MAX_CHARACTERS = 12, 2_000
"""The longest message of the user that is shown in full; a longer one is folded to `FOLDED_LINES`."""
FOLDED_LINES = 6
"""Lines that stay of a folded message of the user."""
_LISTS_GRANTS = " (/permissions)"
"""Command that lists suspended grants. Left out if it would take another line."""
_LAST_THOUGHTS = 12
"""Lines shown of the end of reasoning that is still growing. All of it is shown once it is finished."""
PictureOf: TypeAlias = "Callable[[FileRef], Picture | None]"
"""Returns what is known of an image; None while nothing is."""
_HALF = "▀"
_MAX_SHOWN = 4
"""Images of one block that are shown. All of them are named."""
_OPAQUE = 255
_Colour = tuple[int, int, int]


def block_lines(
    block: UserBlock | ReasoningBlock | ToolCardBlock | RoleSwitchMessage | NoticeBlock | StepBlock,
    *,
    width: int,
    theme: BlockTheme,
    expanded: bool = False,
    capabilities: Capabilities | None = None,
    further: Sequence[ToolCardBlock] = (),
    pictures: PictureOf = lambda file: None,
) -> list[Text]:
    """Return a block that is no answer in `width` columns, gutter included, without empty lines around it.

    `capabilities` are those of the tool of a card; None: those of the built-in tool of its name. `further` are the
    cards that are folded into this one. `pictures` is asked for what can be shown of its images.

    Untrusted text is sanitised: no control character acts, and none is hidden.
    """
    room = max(1, width - GUTTER)
    prose = min(room, PROSE)
    match block:
        case UserBlock():
            bar = Text(theme.symbols.user.ljust(GUTTER), theme.role(block.role), end="")
            lines = wrap(styled((block.text, theme.text), prose=True), width=prose)
            hidden = len(lines) - FOLDED_LINES
            if hidden > 0 and can_open(block) and not expanded:
                lines[FOLDED_LINES:] = [hidden_lines(hidden, theme)]
            lines += [_file_line(file, width=prose, theme=theme) for file in block.files]
            lines += picture_lines(block.files, pictures, width=prose, theme=theme)
            return [padded(line, width=width, style=theme.user_text) for line in prefixed(lines, first=bar, rest=bar)]
        case ReasoningBlock():
            return indented(_thought_lines(block, width=prose, theme=theme, expanded=expanded), columns=GUTTER)
        case ToolCardBlock():
            lines = card_lines(
                block, width=room, theme=theme, expanded=expanded, capabilities=capabilities, further=further
            )
            previews = picture_lines(block.files, pictures, width=max(1, prose - 2), theme=theme)
            return indented([*lines, *indented(previews, columns=2)], columns=GUTTER)
        case RoleSwitchMessage():
            return _switch_lines(block, width=width, theme=theme)
        case NoticeBlock():
            return _notice_lines(block, width=prose, theme=theme)
        case StepBlock():
            return indented(_step_lines(block, width=room, theme=theme, expanded=expanded), columns=GUTTER)
        case _ as never:
            assert_never(never)


def can_open(block: Block) -> bool:
    """Return True if the block has details that are shown only on demand."""
    match block:
        case UserBlock():
            return block.text.count("\n") >= _MAX_LINES or len(block.text) > _MAX_CHARACTERS
        case StepBlock():
            return bool(block.text)
        case _:
            return isinstance(block, ToolCardBlock | ReasoningBlock)


def source_strips(block: Block, width: int, theme: BlockTheme) -> list[Strip]:
    """Return the plain source text of a block that could not be drawn, because a bug must not hide it."""
    values = (
        getattr(block, field.name) for field in fields(block) if field.name not in ("id", "kind", "level", "status")
    )
    text = "\n".join(value for value in values if isinstance(value, str) and value)
    source = styled(("! This could not be displayed. Source text:\n", theme.warn), (text, theme.text))
    lines = indented(wrap(source, width=max(1, width - GUTTER)), columns=GUTTER)
    return strips_of(lines, width=width, base=theme.base)


def _file_line(file: FileRef, *, width: int, theme: BlockTheme) -> Text:
    """Return one line about a file of a message."""
    text = short_line(file.attachment, width=width, ellipsis=theme.symbols.ellipsis)
    return Text(text, theme.warn if file.problem else theme.muted, end="")


def _thought_lines(block: ReasoningBlock, *, width: int, theme: BlockTheme, expanded: bool) -> list[Text]:
    signs = theme.symbols
    words = len(block.text.split())
    sign = signs.unfolded if expanded else signs.folded
    state = f"thinking{signs.ellipsis}" if block.open else "thought"
    lines = [Text(f"{sign} {state} ({plural(words, 'word')})", theme.muted, end="")]
    if expanded:
        thought = styled((block.text.strip(), theme.muted + theme.emphasis), prose=True)
        wrapped = wrap(thought, width=width - 2)
        lines += indented(wrapped[-_LAST_THOUGHTS:] if block.open else wrapped, columns=2)
    return lines


def _switch_lines(block: RoleSwitchMessage, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return the line of a role switch. Tools that do not fit are counted: first the lost ones, then also the new."""
    added, removed = ", ".join(block.added), ", ".join(block.removed)
    added_count, removed_count = plural(len(block.added), "tool"), plural(len(block.removed), "tool")
    lines: list[Text] = []
    for gained, lost in ((added, removed), (added, removed_count), (added_count, removed_count)):
        lines = _switch_with(block, width=width, theme=theme, gained=gained, lost=lost)
        if len(lines) == 1:
            break
    return lines


def _switch_with(block: RoleSwitchMessage, *, width: int, theme: BlockTheme, gained: str, lost: str) -> list[Text]:
    """Return the line of a role switch, with words for the tools `gained` and `lost`, and a rule up to its end."""
    signs = theme.symbols
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
    if block.suspended and text.cell_len + len(_LISTS_GRANTS) <= width - GUTTER - 1:
        text.append(_LISTS_GRANTS, theme.muted)
    model = f" {signs.dot} model {one_line(block.model)}"
    # The last three cells are for the indentation, and a sign of the rule.
    if block.model and text.cell_len + len(model) + 3 <= width:
        text.append(model, theme.muted)
    # Its first line starts in the gutter.
    indent = Text(" " * (GUTTER + 1), end="")
    lines = prefixed(wrap(text, width=width - GUTTER - 1), first=Text(end=""), rest=indent)
    last = lines[-1]
    if last.cell_len + 1 < width:
        last.append(" " + signs.rule * (width - last.cell_len - 1), theme.muted)
    return lines


def _step_lines(block: StepBlock, *, width: int, theme: BlockTheme, expanded: bool) -> list[Text]:
    signs = theme.symbols
    sign = f"{signs.rule} "
    if can_open(block):
        sign = f"{signs.unfolded if expanded else signs.folded} "
    title = short_line(block.title, width=max(1, width - len(sign) - 1), ellipsis=signs.ellipsis)
    line = Text.assemble((sign, theme.muted), (title, theme.user), " ", end="")
    line.append(signs.rule * (width - line.cell_len), theme.muted)
    message = wrap(styled((block.text, theme.muted)), width=width - 2) if expanded else []
    return [line, *indented(message, columns=2)]


def _notice_lines(block: NoticeBlock, *, width: int, theme: BlockTheme) -> list[Text]:
    sign, word, style = _sign_of_level(block, theme)
    text = styled((f"{word}: " if word else "", style), (block.text, theme.text))
    lines = prefixed(wrap(text, width=width), first=Text(sign.ljust(GUTTER), style, end=""), rest=Text("  ", end=""))
    if advice := " ".join(filter(None, (block.advice, "Press R to retry." if block.retry else ""))):
        arrow = Text(f"  {theme.symbols.arrow} ", theme.muted, end="")
        wrapped = wrap(styled((advice, theme.text)), width=width - 2)
        lines += prefixed(wrapped, first=arrow, rest=Text(" " * arrow.cell_len, end=""))
    return lines


def _sign_of_level(block: NoticeBlock, theme: BlockTheme) -> tuple[str, str, Style]:
    """Return the sign before a notice, the word that begins it, and the style of both."""
    match block.level:
        case "info":
            return theme.symbols.dot, "", theme.muted
        case "warning":
            return "!", "Note", theme.warn
        case "error":
            return theme.symbols.failed, "Error", theme.bad
        case _ as never:
            assert_never(never)


def picture_lines(files: Iterable[FileRef], pictures: PictureOf, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return the size of each image among `files`, and its preview if there is one."""
    images = [file for file in files if file.is_image][:_MAX_SHOWN]
    lines: list[Text] = []
    for file in images:
        if (picture := pictures(file)) is None:
            continue
        facts = [f"{picture.size[0]} × {picture.size[1]} pixels"] if picture.size is not None else []
        facts += [picture.problem] if picture.problem else []
        if facts:
            name = f"{shown_name(file.path)}: " if len(images) > 1 else ""
            lines.append(Text((name + ", ".join(facts))[:width], theme.muted, end=""))
        if (raster := picture.raster) is not None and picture.image_id and width >= raster.width:
            lines.extend(placeholder_rows(picture.image_id, columns=raster.width, rows=rows_of(raster)))
        elif raster is not None:
            lines.extend(_raster_lines(raster, width=width, behind=_background(theme)))
    return lines


def rows_of(raster: "Raster") -> int:
    """Return the lines that an image takes."""
    return -(-raster.height // 2)


def _background(theme: BlockTheme) -> _Colour:
    """Return the colour that shows through transparent pixels."""
    colour = theme.base.bgcolor if theme.base is not None else None
    if colour is None or colour.is_default:
        return (0, 0, 0) if theme.dark else (_OPAQUE,) * 3
    return tuple(colour.get_truecolor())  # type: ignore[return-value]


def _raster_lines(raster: "Raster", *, width: int, behind: _Colour) -> Iterator[Text]:
    """Yield the lines of a raster, made smaller if it is wider than `width`."""
    columns = max(1, min(raster.width, width))
    scale = raster.width / columns
    height = max(1, round(raster.height / scale))
    rows = [[_pixel(raster, x, y, scale=scale, behind=behind) for x in range(columns)] for y in range(height)]
    for y in range(0, height, 2):
        line = Text(end="", no_wrap=True)
        below = rows[y + 1] if y + 1 < height else [None] * columns
        for upper, lower in zip(rows[y], below, strict=True):
            back = None if lower is None else Color.from_rgb(*lower)
            line.append(_HALF, Style(color=Color.from_rgb(*upper), bgcolor=back))
        yield line


def _pixel(raster: "Raster", x: int, y: int, *, scale: float, behind: _Colour) -> _Colour:
    """Return the colour of a pixel of the scaled raster."""
    column, row = min(raster.width - 1, int(x * scale)), min(raster.height - 1, int(y * scale))
    at = 4 * (row * raster.width + column)
    *colour, alpha = raster.pixels[at : at + 4]
    red, green, blue = (
        (over * alpha + under * (_OPAQUE - alpha)) // _OPAQUE for over, under in zip(colour, behind, strict=True)
    )
    return red, green, blue
