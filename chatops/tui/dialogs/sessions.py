"""The picker for sessions: preview, filter over titles and texts, rename and delete."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.widgets import Input

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId
from chatops.domain.wording import excerpt, plural
from chatops.runtime.session import owned
from chatops.tui.dialogs.modal import Legend
from chatops.tui.dialogs.picker import MOST_SHOWN, Choice, Picker, columns
from chatops.tui.dialogs.question import Question
from chatops.tui.keys import KeyHint
from chatops.tui.notice import show_notice
from chatops.wiring.rows import SessionRow, origin

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView
    from chatops.wiring.sessions import SessionList

_PAUSE_S = 0.2
"""Seconds without a key after which the texts of sessions are searched."""
_LEAST = 3
"""Characters from which on texts are searched."""
_AROUND = 60
"""Characters shown on each side of a text that was found."""
_TALL_PREVIEW, _LOW_PREVIEW, _HIGH = 8, 4, 24
"""Lines of the preview in a window of at least `_HIGH` lines, and in a lower one."""

SESSION_KEYS = (KeyHint("ctrl+n", "rename"), KeyHint("ctrl+d", "delete"))
_KEYS_AGAIN = (KeyHint("ctrl+d", "again deletes it"), KeyHint("escape", "keeps it"))


class SessionPicker(Picker):
    """Lists sessions. The result is the id of the chosen one."""

    BINDINGS: ClassVar = [
        Binding("ctrl+n", "rename", "rename", priority=True),
        Binding("ctrl+d", "delete", "delete", priority=True),
    ]

    def __init__(
        self,
        rows: Sequence[SessionRow],
        *,
        session: "SessionView",
        sessions: "SessionList",
        wanted: str = "",
    ) -> None:
        """List `rows`, filtered by `wanted`. `session` is the open one, which cannot be deleted."""
        self._wanted_first = wanted
        self._rows = {row.id: row for row in rows}
        self._open = session
        self._sessions = sessions
        self._said: dict[str, Sequence[str]] = {}
        """The last question and answer of sessions whose preview was shown."""
        self.found: dict[str, str] = {}
        """The newest message that has the text of the filter, by session."""
        self.wanted = ""
        """The text that was looked for in messages."""
        self._doomed = ""
        """The session that is deleted when ctrl+d is pressed again."""
        empty = "No session of this folder matches.\nIn all folders: /search --all WORDS"
        super().__init__("Sessions", choices=self._listed(), hint=SESSION_KEYS, empty=empty)

    def on_mount(self) -> None:
        """Put the words that were given into the filter. The base class fills the list."""
        if self._wanted_first:
            self.query_one(Input).insert_text_at_cursor(self._wanted_first)

    def _listed(self) -> list[Choice]:
        return [self._choice(row) for row in below_origins(tuple(self._rows.values()))]

    def _choice(self, row: SessionRow) -> Choice:
        sign = "?" if row.asks else "…" if row.state or row.pending else "↳" if row.copy_of else " "
        found = [row.title, row.id, row.role, "pending" if row.pending else "", row.state, row.run, *row.asks]
        asks = f"   ? {'; '.join(row.asks)}" if row.asks else ""
        return Choice(
            key=row.id,
            text=f"{columns((row.when, 16))} {sign} {row.title}{asks}".rstrip(),
            find=" ".join(found),
            current=row.id == self._open.session_id,
        )

    @property
    def start(self) -> str:
        """The session used last, which is a copy below its origin where a turn was taken back."""
        return next(iter(self._rows), "")

    # Preview

    @property
    def preview_lines(self) -> int:
        """The height for a session with all its facts and its last answer, where that leaves room for the list."""
        return _TALL_PREVIEW if self.size.height >= _HIGH else _LOW_PREVIEW

    def describe(self, choice: Choice) -> str:
        """Return title, facts, and the last question and answer; these are loaded once they are needed."""
        self._ask_about("")
        row = self._rows[SessionId(choice.key)]
        if choice.key not in self._said:
            self._said[choice.key] = ()
            self.run_worker(self._load(row.id), group=f"preview {row.id}")
        facts = [row.id, row.role, plural(row.messages, "message"), "open now" if choice.current else ""]
        lines = [row.title, "   ".join(fact for fact in (*facts, f"run, {row.run}" if row.run else "") if fact)]
        lines += [f"copy of {row.copy_of}"] if row.copy_of else []
        waits = f"pending: {'; '.join(row.asks)}" if row.asks else row.state
        lines += [waits] if waits else []
        if (text := self.found.get(choice.key)) is not None:
            return "\n".join([*lines, f"found: {excerpt(text, self.wanted, around=_AROUND)}"])
        return "\n".join([*lines, *self._said[choice.key]])

    async def _load(self, session_id: SessionId) -> None:
        try:
            self._said[session_id] = await self._sessions.last_said(session_id)
        except ChatopsError as error:
            self._said[session_id] = [str(error)]
        if not self._doomed:
            self.show_preview()

    # Filter

    @on(Input.Changed)
    def look_into_texts(self, event: Input.Changed) -> None:
        """Also list the sessions in which the text was said."""
        self.found = {}
        self.run_worker(self._search_texts(event.value.strip()), group="search", exclusive=True)

    async def _search_texts(self, wanted: str) -> None:
        if len(wanted) < _LEAST:
            return
        await asyncio.sleep(_PAUSE_S)
        try:
            hits = await self._sessions.search(wanted)
        except ChatopsError as error:
            show_notice(self.app, error.full)
            return
        for hit in hits:
            if hit.session_id in self._rows:
                self.found.setdefault(hit.session_id, hit.text)
        self.wanted = wanted
        self.refill()

    def matching(self, wanted: str) -> list[Choice]:
        """Return the sessions with the text in title or messages, then the latest ones whose title is like it.

        Only the latest are compared letter by letter: with thousands that would delay each key.
        """
        if not wanted:
            return super().matching(wanted)
        exact = wanted.casefold()
        first = [one for one in self.choices if exact in one.find.casefold() or one.key in self.found]
        known = {one.key for one in first}
        return [*first, *(one for one in self.alike(wanted, self.choices[:MOST_SHOWN]) if one.key not in known)]

    # Rename and delete

    def action_rename(self) -> None:
        """Ask for another title of the highlighted session (ctrl+n)."""
        if (choice := self.highlighted_choice) is None:
            return
        row = self._rows[SessionId(choice.key)]

        def answered(title: str | None) -> None:
            if title is not None:
                self.run_worker(self._rename(row, title), group="rename")

        question = Question(
            "Rename the session", explain=row.id, text=row.title, check=_one_line, done="renames", enter_answers=True
        )
        self.app.push_screen(question, answered)

    async def _rename(self, row: SessionRow, title: str) -> None:
        from dataclasses import replace

        try:
            if row.id == self._open.session_id:
                await owned(self._open, "The session was not renamed").rename(title)
            else:
                await self._sessions.rename(row.id, title)
        except ChatopsError as error:
            show_notice(self.app, error.full)
            return
        self._rows[row.id] = replace(row, title=title)
        self.choices = tuple(self._listed())
        self.refill()

    def action_delete(self) -> None:
        """Ask whether to delete the highlighted session (ctrl+d). A second time, delete it."""
        if (choice := self.highlighted_choice) is None:
            return
        row = self._rows[SessionId(choice.key)]
        if choice.current:
            self.show_text("This session is open. Open another one to delete it.")
        elif self._doomed == choice.key:
            self._ask_about("")
            self.run_worker(self._delete(row), group="delete")
        else:
            self._ask_about(choice.key)
            unfinished = ", an unfinished turn" if row.state else ""
            lost = f", {plural(row.pending, 'pending call')}" if row.pending else unfinished
            what = f"Delete this session for good ({plural(row.messages, 'message')}{lost})?"
            self.show_text(f"{what}\n{row.title}")

    def _ask_about(self, key: str) -> None:
        """Note which session ctrl+d deletes next, or none, and show the keys for that."""
        self._doomed = key
        self.query_one(Legend).show(*(_KEYS_AGAIN if key else self.keys))

    def go_back(self) -> None:
        """Handle Esc: close the question whether to delete a session, or else the picker."""
        if self._doomed:
            self.show_preview()
        else:
            super().go_back()

    def choose(self, key: str) -> None:
        """Choose a row (Enter), unless the picker asks whether to delete it."""
        if not self._doomed:
            super().choose(key)

    async def _delete(self, row: SessionRow) -> None:
        try:
            await self._sessions.delete(row.id)
        except ChatopsError as error:
            self.show_text(error.full)
            return
        del self._rows[row.id]
        self.choices = tuple(self._listed())
        self.refill()


def below_origins(rows: Sequence[SessionRow]) -> list[SessionRow]:
    """Return `rows`, newest first, with the copies of a session right below it. The newest of them gives the place."""
    versions: dict[str, list[SessionRow]] = {}
    sources = {str(row.id): row.source for row in rows}
    for row in rows:
        versions.setdefault(origin(row, sources), []).append(row)
    return [row for found in versions.values() for row in sorted(found, key=lambda one: bool(one.source))]


def _one_line(title: str) -> str:
    if not title.strip():
        raise ValueError("A title has to say something. Esc goes back.")
    return " ".join(title.split())
