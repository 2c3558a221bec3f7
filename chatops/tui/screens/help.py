"""The help text, made from the tables of keys and commands."""

from chatops.tui.commands.table import visible_commands
from chatops.tui.keys import KEY_GROUPS, KEYS, KeyGroup


def help_text(*, first: KeyGroup = "message") -> str:
    """Return all keys and commands in aligned columns, those of the place `first` before the others."""
    lines: list[str] = []
    for place in (first, *(one for one in KEY_GROUPS if one != first)):
        rows = [(entry.keys, entry.does) for entry in KEYS if entry.where == place]
        lines += [KEY_GROUPS[place], *_table(rows), ""]
    lines.append("Commands")
    lines += _table([(f"/{command.name} {command.args}".rstrip(), command.help) for command in visible_commands()])
    return "\n".join(lines)


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return [f"  {left:<28} {right}" for left, right in rows]
