"""The first screen: folder, model, role, messages to try, sessions left open. Shown until the first message."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from chatops.config.paths import show_folder
from chatops.domain import __version__
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import clauses, cut
from chatops.tui.keys import key_of
from chatops.tui.textual_internals import ErrorBoundary

if TYPE_CHECKING:
    from chatops.runtime.view import Snapshot
    from chatops.wiring.rows import SessionRow
    from chatops.wiring.workspace import Workspace

_LEAST_HEIGHT, _ROOMY_HEIGHT = 18, 28
"""Lines of the window from which on more is shown than name, folder and model, and from which on all of it."""
_ESSENTIAL_LINES = 4
"""Lines that name the program, the folder and the model."""
_MAX_WIDTH = 100
"""Columns, so that the ends of a line stand near each other on a wide window."""
_README_NAMES = ("README.md", "README.rst", "README.txt", "README", "pyproject.toml", "package.json")
_DEFAULT_TIP = "what can you help me with?"
_LABEL_WIDTH = 7
"""Columns of the words before the tips and the sessions."""
_MAX_SESSIONS = 3
"""Sessions that are named where there is room for all."""
_BRANCH_REF = "ref: refs/heads/"
_LONGEST_HEAD = 300
"""Bytes read of the file that names the branch."""


@frozen_dataclass
class FirstFacts:
    """Content of the first screen besides the session's own state."""

    role: str
    tools: Sequence[str] = ()
    """The tools of the role."""
    rights: Sequence[str] = ()
    """What the role may do, as clauses."""
    open: Sequence["SessionRow"] = ()
    """Sessions of this workspace, those with pending approvals first. Of a session and its copies only the newest."""
    branch: str = ""
    """The branch of git that is checked out; empty if none is known."""


def first_facts(workspace: "Workspace", role: str, rows: Sequence["SessionRow"], *, branch: str = "") -> FirstFacts:
    """Return the facts for a role; `rows` are the sessions of this workspace."""
    row = next((row for row in workspace.roles() if row.name == role), None)
    tools, rights = (row.tools, row.rights) if row is not None else ((), ())
    # What waits for the user comes first.
    open_first = sorted(_newest_versions(rows), key=lambda row: not row.pending)
    return FirstFacts(role=role, tools=tools, rights=rights, open=open_first, branch=branch)


def branch_of(workspace: str) -> str:
    """Return the branch that is checked out in a folder; empty if there is none.

    Git itself is not run: the configuration of a folder can make it start programs.
    """
    try:
        # Without O_NONBLOCK opening a pipe would block.
        with open(os.open(os.path.join(workspace, ".git", "HEAD"), os.O_RDONLY | os.O_NONBLOCK), "rb") as head:
            content = (head.read(_LONGEST_HEAD) or b"").decode("utf-8", "replace")
    except OSError:
        return ""
    return content.removeprefix(_BRANCH_REF).strip() if content.startswith(_BRANCH_REF) else ""


def _newest_versions(rows: Sequence["SessionRow"]) -> list["SessionRow"]:
    """Return those of `rows`, newest first, that are no other version of an earlier row; all with pending calls."""
    # With its values it is loaded after the first paint, which needs none of them.
    from chatops.wiring.rows import first_source

    sources = {str(row.id): row.source for row in rows}
    newest: list[SessionRow] = []
    seen: set[str] = set()
    for row in rows:
        first = first_source(row, sources)
        if row.pending or first not in seen:
            newest.append(row)
        seen.add(first)
    return newest


class FirstScreen(ErrorBoundary, Static):
    """Lines above an empty transcript. Tab, or a click on a tip, offers it as the message."""

    @dataclass(eq=False, repr=False)
    class TipChosen(Message):
        """Posted when a tip is clicked."""

        text: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False
        self._tips: dict[int, str] = {}
        """The tips by the line that shows them."""

    def show(
        self, snapshot: "Snapshot", facts: FirstFacts, *, colours: Mapping[str, str], width: int, height: int
    ) -> None:
        """Show the lines that fit into a window of this size."""
        self._set_display(True)
        room, roomy = min(width - 4, _MAX_WIDTH), height >= _ROOMY_HEIGHT
        lines, self._tips = first_lines(snapshot, facts, colour=colours.get(facts.role, ""), width=room, roomy=roomy)
        if height < _LEAST_HEIGHT:
            lines, self._tips = [line for line in lines[:_ESSENTIAL_LINES] if line.plain], {}
        self.update(Content("\n").join(lines))

    def hide(self) -> None:
        """Leave the room to the transcript."""
        self._set_display(False)

    def _set_display(self, visible: bool) -> None:
        self.display = visible
        self.screen.set_class(visible, "-first")

    def tip_after(self, text: str) -> str:
        """Return the tip after the one that `text` is, or the first for an empty text; empty for any other text."""
        tips = list(self._tips.values()) if self.display else []
        if not text:
            return tips[0] if tips else ""
        if text not in tips:
            return ""
        return tips[(tips.index(text) + 1) % len(tips)]

    def on_click(self, event: events.Click) -> None:
        """Offer the clicked tip."""
        offset = event.get_content_offset(self)
        tip = self._tips.get(offset.y) if offset is not None else None
        if tip is not None:
            self.post_message(self.TipChosen(tip))


def first_lines(
    snapshot: "Snapshot", facts: FirstFacts, *, colour: str, width: int, roomy: bool
) -> tuple[list[Content], dict[int, str]]:
    """Return the lines, and the tips by their line. `roomy` is False if there is room for the essential only."""
    muted, accent = "$text-muted", "$text-accent"
    lines = [Content.assemble(("chatops", f"bold {accent}"), (f" {__version__}", muted)), Content("")]
    branch = cut(f"git {_one_line(facts.branch)}", most=width // 3) if facts.branch else ""
    folder = Content.styled(show_folder(snapshot.workspace), "bold")
    lines.append(_spread_line(folder, Content.styled(branch, muted), width))
    if snapshot.is_demo:
        model = Content.assemble("demo model, ", ("no key needed", muted))
        change = Content.assemble(("chatops connect URL", accent), "  uses your own")
    else:
        model = Content(_one_line(snapshot.model_label or snapshot.model))
        change = Content.assemble(("/model", accent), "  another model")
    lines.append(_spread_line(model, change, width))
    switch = Content.assemble((key_of("role"), accent), "  another role")
    room = max(8, width - cell_len(snapshot.role) - switch.cell_length - 2)
    rights = clauses([_one_line(clause) for clause in facts.rights], most=room - 2)
    role = Content.assemble((_one_line(snapshot.role), f"bold {colour}".rstrip()), (f"  {rights}", muted))
    lines += [_spread_line(role, switch, width), Content("")]
    tips: dict[int, str] = {}
    for number, tip in enumerate(_tips(snapshot, facts.tools)[: 3 if roomy else 2]):
        tips[len(lines)] = tip
        line = Content.assemble((("" if number else "Try").ljust(_LABEL_WIDTH), muted), tip)
        offer = Content.assemble(("Tab", accent), "  take one") if number == 0 else Content("")
        lines.append(_spread_line(line, offer, width))
    lines += [Content(""), *_session_lines(facts.open[: _MAX_SESSIONS if roomy else 1], width)]
    return lines, tips


def _tips(snapshot: "Snapshot", tools: Sequence[str]) -> list[str]:
    """Return messages that the tools of the role can answer in this workspace."""
    readable = next((name for name in _README_NAMES if os.path.isfile(os.path.join(snapshot.workspace, name))), "")
    in_git = os.path.exists(os.path.join(snapshot.workspace, ".git"))
    # By name, because the demo model answers each of these texts with a call of that very tool.
    demo = {
        "list .": "file_list" in tools,
        f"read {readable}": "file_read" in tools and bool(readable),
        "run `git status`": "shell_exec" in tools and in_git,
        "search import": "file_search" in tools,
    }
    model = {
        "what does this project do?": "file_read" in tools,
        "which parts have no tests?": "file_search" in tools,
        "explain the last commit": "shell_exec" in tools and in_git,
    }
    return [tip for tip, works in (demo if snapshot.is_demo else model).items() if works] or [_DEFAULT_TIP]


def _session_lines(rows: Sequence["SessionRow"], width: int) -> list[Content]:
    lines = []
    for number, row in enumerate(rows):
        asks = f"? {cut(_one_line('; '.join(row.asks)), most=width // 2)}  " if row.asks else ""
        when = Content.styled(_one_line(row.when), "$text-muted")
        room = max(8, width - _LABEL_WIDTH - cell_len(asks) - when.cell_length - 2)
        title = Content.assemble(
            (("" if number else "Open").ljust(_LABEL_WIDTH), "$text-muted"),
            (asks, "bold $text-warning"),
            cut(f"{'↳ ' if row.source else ''}{_one_line(row.title)}", most=room),
        )
        lines.append(_spread_line(title, when, width))
    if rows:
        accent = "$text-accent"
        keys = Content.assemble(" " * _LABEL_WIDTH, ("/sessions", accent), "  all of them")
        pending = Content.assemble((key_of("pending"), accent), "  what is pending")
        lines.append(_spread_line(keys, pending if any(row.asks for row in rows) else Content(""), width))
    return lines


def _spread_line(left: Content, right: Content, width: int) -> Content:
    """Return `left` and `right` at the ends of a line, or `left` alone where both do not fit."""
    if not right.plain or left.cell_length + 2 + right.cell_length > width:
        return left
    return Content.assemble(left, " " * max(2, width - left.cell_length - right.cell_length), right)


def _one_line(text: str) -> str:
    return sanitize(text, newlines=False)
