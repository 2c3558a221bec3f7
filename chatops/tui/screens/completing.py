"""Completion while typing: watches the message, fills the list, inserts the chosen completion."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from chatops.domain.errors import ChatopsError
from chatops.tui.commands.completion import (
    Query,
    complete_argument,
    complete_command,
    complete_file,
    offers_of,
    query_at,
)
from chatops.tui.commands.face import Face
from chatops.tui.commands.files import workspace_files
from chatops.tui.composer.completions import Completion, Completions
from chatops.tui.composer.composer import Composer


class Completer:
    """Connects the message field with the list of completions above it.

    Files are listed in a thread at the first @. A command's arguments are requested when the cursor reaches them.
    """

    def __init__(
        self, composer: Composer, offered: Completions, workspace: Callable[[], Path | None], *, face: Face
    ) -> None:
        self._composer = composer
        self._face = face
        self._asked: tuple[str, ...] = ()
        self._known: Sequence[Completion] = ()
        """Completions that may follow the words in `_asked`."""
        self._list = offered
        self._workspace = workspace
        self._files: tuple[str, ...] = ()
        self._walked: Path | None = None
        self._closed_for = ""
        self._offered_for = ""

    def handle(self, key: str) -> None:
        """Handle a key pressed while the list is open, or a changed text if `key` is empty.

        A completion is only taken if it was offered for the current text, because keys arrive faster than lists.
        """
        if key in ("tab", "enter") and self._composer.text != self._offered_for:
            self._look()
        match key:
            case "up":
                self._list.move(-1)
            case "down":
                self._list.move(1)
            case "escape":
                self._closed_for = self._composer.text
                self._offer([])
            case "tab":
                if self._list.current is None:
                    self._closed_for = ""
                    self._look()
                else:
                    self._take()
            case "enter":
                self._enter()
            case _:
                self._look()

    def _offer(self, items: list[Completion]) -> None:
        self._list.offer(items)
        self._composer.popup_open = bool(items)

    def _look(self) -> None:
        self._offered_for = self._composer.text
        query = self._query()
        if query is None or query.kind != "argument":
            self._asked = ()
        if query is None or self._composer.text == self._closed_for:
            self._offer([])
        elif query.kind == "argument":
            self._offer(complete_argument(query.word, self._known) if self._is_known(query) else [])
        elif query.kind == "command":
            self._offer(complete_command(query.word))
        else:
            self._walk()
            self._offer(complete_file(query.word, self._files))

    def _query(self) -> Query | None:
        row, column = self._composer.cursor_location
        if row >= self._composer.document.line_count:
            # The text has changed and the cursor has not moved yet.
            return None
        return query_at(self._composer.document.get_line(row), row=row, column=column)

    def _is_known(self, query: Query) -> bool:
        """Return True if the arguments that may follow are known. Otherwise request them."""
        if query.before == self._asked:
            return True
        self._asked, self._known = query.before, ()
        offers = offers_of(query.before)
        if offers is None:
            return True

        async def ask() -> None:
            try:
                known = await offers(self._face, query.before)
            except ChatopsError:
                # Completion is optional; the command itself reports what is wrong.
                known = ()
            if query.before == self._asked:
                self._known = known
                self._look()

        self._composer.run_worker(ask(), group="arguments", exclusive=True)
        return False

    def _enter(self) -> None:
        """Run a command that is complete; otherwise take the highlighted completion."""
        current = self._list.current
        query = self._query()
        if current is None or query is None:
            self._composer.send()
            return
        written = self._composer.text.strip() if query.kind == "command" else query.word
        ends = query.kind == "argument" and (not query.word or current.insert.strip() == query.word)
        if ends or (written.startswith("/") and current.insert.strip() == written):
            self._offer([])
            self._composer.send()
            return
        is_command = current.insert.startswith("/") and " " not in current.text
        self._take()
        if is_command:
            self._composer.send()

    def _take(self) -> None:
        current, query = self._list.current, self._query()
        row, column = self._composer.cursor_location
        if current is not None and query is not None:
            self._composer.replace(current.insert, (row, query.start), (row, column))
            self._composer.move_cursor((row, query.start + len(current.insert)))
        self._offer([])

    def _walk(self) -> None:
        root = self._workspace()
        if root is None or root == self._walked:
            return
        self._walked = root

        async def walk() -> None:
            self._files = await asyncio.to_thread(workspace_files, root)
            self._look()

        self._composer.run_worker(walk(), group="files", exclusive=True)
