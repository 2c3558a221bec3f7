"""Tables within a given width. Columns shrink and wrap; if that does not fit either, rows become lists."""

from rich.cells import cell_len
from rich.text import Text

from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.lines import prefixed, wrap

_NARROWEST = 8


def table_lines(rows: list[list[Text]], *, width: int, theme: BlockTheme) -> list[Text]:
    """Return `rows` (the first is the heading) in `width` columns. Nothing is cut off."""
    columns = max((len(row) for row in rows), default=0)
    if not columns:
        return []
    between = f" {theme.symbols.bar} "
    room = width - len(between) * (columns - 1)
    widths = _fit(
        [max(cell_len(row[i].plain) if i < len(row) else 0 for row in rows) for i in range(columns)], room=room
    )
    if widths is None:
        return _as_lists(rows, width=width, theme=theme)
    lines: list[Text] = []
    for index, row in enumerate(rows):
        if index == 0:
            row = [_bold(cell, theme) for cell in row]
        lines.extend(_row(row, widths=widths, between=Text(between, theme.muted, end="")))
        if index == 0:
            total = sum(widths) + len(between) * (columns - 1)
            lines.append(Text(theme.symbols.rule * total, theme.muted, end=""))
    return lines


def _fit(natural: list[int], *, room: int) -> list[int] | None:
    """Return widths that add up to at most `room`, shrinking the widest columns. None if there are too many columns."""
    widths = [max(1, size) for size in natural]
    while sum(widths) > room:
        widest = max(range(len(widths)), key=widths.__getitem__)
        second = max((size for size in widths if size < widths[widest]), default=_NARROWEST)
        cut = min(sum(widths) - room, max(1, widths[widest] - second))
        widths[widest] -= cut
        if widths[widest] < _NARROWEST:
            return None
    return widths


def _row(row: list[Text], *, widths: list[int], between: Text) -> list[Text]:
    cells = [wrap(cell, width=size) for cell, size in zip(row, widths, strict=False)]
    height = max((len(cell) for cell in cells), default=0)
    lines = []
    for y in range(height):
        line = Text(end="")
        for x, size in enumerate(widths):
            if x:
                line.append_text(between)
            part = cells[x][y] if x < len(cells) and y < len(cells[x]) else Text(end="")
            line.append_text(part)
            line.append(" " * (size - cell_len(part.plain)))
        line.rstrip()
        lines.append(line)
    return lines


def _as_lists(rows: list[list[Text]], *, width: int, theme: BlockTheme) -> list[Text]:
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
