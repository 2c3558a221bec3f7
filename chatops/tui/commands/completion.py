"""Completion while the user types: commands after a slash, their arguments, files after an @.

Why not a library: textual-autocomplete completes an `Input` of one line, and the message field is a `TextArea`.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from textual.fuzzy import FuzzySearch

from chatops.domain.errors import ChatopsError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.git.ignore import GitIgnore
from chatops.tui.commands.replies import Context
from chatops.tui.commands.table import ALIASES, COMMANDS, SlashCommand, find_command
from chatops.tui.composer import MAX_SHOWN, Completion, Completions, Composer

_MAX_SCORED = 200
"""Maximum number of files whose match is scored. Each score delays the key that asked for it."""
_SEARCH = FuzzySearch()
MAX_FILES, MAX_DEPTH, MAX_SECONDS = 5_000, 12, 1.0
"""Maximum number of files listed, of folders above them, and of seconds that this may take."""
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "env", "dist", "build", "target", "site-packages"})


@frozen_dataclass
class WorkspaceFiles:
    """Paths relative to the workspace, nearest first. Those of folders end with a slash."""

    paths: tuple[str, ...] = ()
    complete: bool = True
    """False if a limit was reached, so that there may be more."""


def workspace_files(root: Path, *, below: str = "", seconds: float = MAX_SECONDS) -> WorkspaceFiles:
    """Return the paths `below` a folder of `root`: at most `MAX_FILES`, found in at most `seconds`.

    Links are not followed, unreadable folders are skipped, and names that cannot be shown on one line are left out.
    """
    if below and not (root / below).resolve().is_relative_to(root.resolve()):
        return WorkspaceFiles()
    ignored = GitIgnore(root, start=below)
    until = time.monotonic() + seconds
    found: list[str] = []
    waiting = deque([(below, 0)])
    while waiting and len(found) < MAX_FILES and time.monotonic() < until:
        folder, depth = waiting.popleft()
        for name, is_folder in _entries(root / folder):
            path = f"{folder}{name}"
            if name.startswith(".") or not name.isprintable() or ignored.ignores(f"{path}/" if is_folder else path):
                continue
            if not is_folder:
                found.append(path)
            elif name not in _SKIPPED_FOLDERS:
                found.append(f"{path}/")
                if depth < MAX_DEPTH:
                    waiting.append((f"{path}/", depth + 1))
    return WorkspaceFiles(paths=tuple(found[:MAX_FILES]), complete=not waiting and len(found) <= MAX_FILES)


def _entries(folder: Path) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.is_symlink()
            )
    except OSError:
        return []


@frozen_dataclass
class CompletionQuery:
    """The word being typed, without its sign, and where it starts on its line."""

    kind: Literal["command", "argument", "file"]
    word: str
    start: int
    before: tuple[str, ...] = ()
    """The words before an argument. The first is the command, without its slash."""


def query_at(line: str, *, row: int, column: int) -> CompletionQuery | None:
    """Return what could be completed at the cursor, or None."""
    before = line[:column]
    if row == 0 and before.startswith("/") and " " not in before:
        return CompletionQuery(kind="command", word=before[1:], start=0)
    start = max(before.rfind(" "), before.rfind("\t")) + 1
    if before[start : start + 1] == "@":
        return CompletionQuery(kind="file", word=before[start + 1 :], start=start)
    words = tuple(before[1:start].split())
    if row == 0 and before.startswith("/") and completed_command(words) is not None:
        return CompletionQuery(kind="argument", word=before[start:], start=start, before=words)
    return None


def complete_command(word: str) -> list[Completion]:
    """Return the commands that start with `word`, then those that contain its letters in order."""
    first = [command for command in COMMANDS if command.name.startswith(word)]
    rest = [command for command in COMMANDS if command not in first and _has_letters_in_order(word, command.name)]
    return [
        Completion(insert=f"/{command.name} ", text=f"/{command.name} {command.args}".rstrip(), note=command.help)
        for command in (*first, *rest)
    ]


def _only_completion(word: str) -> str:
    """Return the completion of `word` if one command begins so and that needs no argument; else an empty string."""
    match [command for command in COMMANDS if word and command.name.startswith(word)]:
        case [only] if only.args[:1] in ("", "["):
            return f"/{only.name} "
        case _:
            return ""


def completed_command(before: Sequence[str]) -> SlashCommand | None:
    """Return the command that can complete the word after `before`, or None."""
    command = find_command(before[0]) if before else None
    return command if command is not None and (command.words or command.offers) else None


def complete_argument(word: str, offered: Sequence[Completion]) -> list[Completion]:
    """Return the matching `offered` completions.

    Those equal to `word` are first, then those that start with it, then those that contain its letters in order. A
    number only stands for one that starts with it.
    """
    first = sorted((offer for offer in offered if offer.text.startswith(word)), key=lambda offer: offer.text != word)
    if word.isdigit():
        return first
    return [*first, *(offer for offer in offered if offer not in first and _has_letters_in_order(word, offer.text))]


def complete_file(word: str, files: Sequence[str]) -> list[Completion]:
    """Return the files that match best. Only a bounded number is scored, so that keys are never delayed."""
    if not word:
        return [_file_completion(path) for path in files[:MAX_SHOWN]]
    wanted = word.casefold()
    in_name = [path for path in files if wanted in os.path.basename(path.rstrip("/")).casefold()]
    in_path = [path for path in files if wanted in path.casefold()] if len(in_name) < MAX_SHOWN else []
    candidates = list(dict.fromkeys((*in_name, *in_path)))
    candidates = candidates or [path for path in files if _has_letters_in_order(wanted, path.casefold())]
    del candidates[_MAX_SCORED:]
    candidates.sort(key=lambda path: (-_SEARCH.match(word, path)[0], len(path)))
    return [_file_completion(path) for path in candidates[:MAX_SHOWN]]


def _file_completion(path: str) -> Completion:
    quoted = f'"{path}"' if " " in path else path
    return Completion(insert=f"@{quoted} ", text=path)


def _has_letters_in_order(word: str, text: str) -> bool:
    rest = iter(text)
    # Each `in` reads on in the iterator, so that the letters have to come in this order.
    return all(letter in rest for letter in word)


class Completer:
    """Connects the message field with the list of completions above it.

    Files are listed in a thread at the first @, and below a folder if the workspace has too many to know them all. A
    command's arguments are requested when the cursor reaches them.
    """

    def __init__(self, composer: Composer, offered: Completions, context: Callable[[], Context]) -> None:
        """Create the completer. `context` raises ChatopsError while no session is open."""
        self._composer = composer
        self._context = context
        self._asked_after: tuple[str, ...] = ()
        """The words after which arguments were asked for last."""
        self._arguments: Sequence[Completion] = ()
        """Completions that may follow those words; empty until they are known."""
        self._list = offered
        self._files: dict[tuple[Path, str], WorkspaceFiles] = {}
        """Paths found in a workspace, also for its folders that could not be listed whole."""
        self._closed_for = ""
        """The text for which the user has closed the list."""
        self._offered_for = ""
        """The text for which completions were offered last."""

    def handle(self, key: str) -> None:
        """Handle a key pressed while the list is open, or a changed text if `key` is empty.

        A completion is only taken if it was offered for the current text, because keys arrive faster than lists.
        """
        if key in ("tab", "enter") and self._composer.text != self._offered_for:
            self._update()
        match key:
            case "up":
                self._list.move(-1)
            case "down":
                self._list.move(1)
            case "escape":
                self._closed_for = self._composer.text
                self._offer([])
            case "tab":
                if self._composer.popup_open and self._list.current is None:
                    self._list.move(1)
                if self._list.current is None:
                    self._closed_for = self._composer.placed_text = ""
                    self._update()
                else:
                    self._insert()
            case "enter":
                self._enter()
            case _:
                self._update()

    def _offer(self, items: list[Completion], *, highlight: bool = True, note: str = "") -> None:
        self._list.offer(items, highlight=highlight, note=note)
        self._composer.popup_open = bool(items)

    def _update(self) -> None:
        """Offer what completes the word at the cursor."""
        self._offered_for = self._composer.text
        query = self._query()
        if query is None or query.kind != "argument":
            self._asked_after = ()
        if query is None or self._composer.text in (self._closed_for, self._composer.placed_text):
            self._offer([])
        elif query.kind == "argument":
            if query.before != self._asked_after:
                self._request_arguments(query.before)
            # Without an argument the command is complete, and Enter runs it.
            self._offer(complete_argument(query.word, self._arguments), highlight=bool(query.word))
        elif query.kind == "command":
            self._offer(complete_command(query.word))
        else:
            files = self._files_for(query.word)
            note = "" if files.complete else f"Only the nearest {MAX_FILES:,} paths are known: type FOLDER/ to see more"
            self._offer(complete_file(query.word, files.paths), note=note)

    def _query(self) -> CompletionQuery | None:
        row, column = self._composer.cursor_location
        if row >= self._composer.document.line_count:
            # The text has changed and the cursor has not moved yet.
            return None
        return query_at(self._composer.document.get_line(row), row=row, column=column)

    def _request_arguments(self, before: tuple[str, ...]) -> None:
        """Ask for the arguments that may follow these words. There are none until they have come."""
        self._asked_after, self._arguments = before, ()
        if (command := completed_command(before)) is None:
            return

        async def ask() -> None:
            try:
                arguments = await command.complete(self._context(), before)
            except ChatopsError:
                # Completion is optional; the command itself reports what is wrong.
                arguments = ()
            if before == self._asked_after:
                self._arguments = arguments
                self._update()

        self._composer.run_worker(ask(), group="arguments", exclusive=True)

    def _enter(self) -> None:
        """Run a command or send a message that is complete; otherwise only take the highlighted completion.

        A command is complete as soon as no other one begins so, unless it needs an argument.
        """
        current, query = self._list.current, self._query()
        if current is None or query is None or self._is_complete(current, query):
            self._offer([])
            self._composer.send()
            return
        self._insert()
        if query.kind == "command" and current.insert == _only_completion(query.word):
            self._composer.send()

    def _is_complete(self, current: Completion, query: CompletionQuery) -> bool:
        """Return True if what is typed is the highlighted completion, or another name of a command."""
        match query.kind:
            case "command":
                written = self._composer.text.strip()
                return current.insert.strip() == written or written[1:] in ALIASES
            case "argument":
                return query.word == current.insert.strip()
            case "file":
                return query.word == current.text

    def _insert(self) -> None:
        """Put the highlighted completion in place of the word at the cursor."""
        current, query = self._list.current, self._query()
        row, column = self._composer.cursor_location
        if current is not None and query is not None:
            self._composer.replace(current.insert, (row, query.start), (row, column))
            self._composer.move_cursor((row, query.start + len(current.insert)))
        self._offer([])

    def _files_for(self, word: str) -> WorkspaceFiles:
        """Return the known files among which `word` may be, and start to list those that are not known yet."""
        try:
            root = Path(self._context().session.snapshot().workspace)
        except ChatopsError:
            return WorkspaceFiles()
        nearest = self._files_below(root, "")
        folder = word[: word.rfind("/") + 1]
        return nearest if nearest.complete or not folder else self._files_below(root, folder)

    def _files_below(self, root: Path, folder: str) -> WorkspaceFiles:
        """Return the known files below a folder. The first time, start to list them."""
        if (files := self._files.get((root, folder))) is not None:
            return files
        self._files[root, folder] = WorkspaceFiles()

        async def walk() -> None:
            self._files[root, folder] = await asyncio.to_thread(workspace_files, root, below=folder)
            self._update()

        self._composer.run_worker(walk(), group="files")
        return self._files[root, folder]
