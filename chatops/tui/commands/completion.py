"""Completions for the word at the cursor: commands after a slash, their arguments, files after an @."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from textual.fuzzy import FuzzySearch

from chatops.tui.commands.table import Offers, find_command, visible_commands
from chatops.tui.composer.completions import MAX_SHOWN, Completion

_SCORED = 200
_SEARCH = FuzzySearch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The word being typed, without its sign, and where it starts on its line."""

    kind: Literal["command", "argument", "file"]
    word: str
    start: int
    before: tuple[str, ...] = ()
    """The words before an argument. The first is the command, without its slash."""


def query_at(line: str, *, row: int, column: int) -> Query | None:
    """Return what could be completed at the cursor, or None."""
    before = line[:column]
    if row == 0 and before.startswith("/") and " " not in before:
        return Query(kind="command", word=before[1:], start=0)
    start = max(before.rfind(" "), before.rfind("\t")) + 1
    if before[start : start + 1] == "@":
        return Query(kind="file", word=before[start + 1 :], start=start)
    words = tuple(before[1:start].split())
    if row == 0 and before.startswith("/") and offers_of(words) is not None:
        return Query(kind="argument", word=before[start:], start=start, before=words)
    return None


def complete_command(word: str) -> list[Completion]:
    """Return the commands that start with `word`, then those that contain its letters in order."""
    commands = visible_commands()
    first = [command for command in commands if command.name.startswith(word)]
    rest = [command for command in commands if command not in first and _in_order(word, command.name)]
    return [
        Completion(insert=f"/{command.name} ", text=f"/{command.name} {command.args}".rstrip(), note=command.help)
        for command in (*first, *rest)
    ]


def offers_of(before: Sequence[str]) -> Offers | None:
    """Return the function that completes the word after `before`, or None."""
    command = find_command(before[0]) if before else None
    return command.offers if command is not None else None


def complete_argument(word: str, offered: Sequence[Completion]) -> list[Completion]:
    """Return the matching `offered` completions.

    Those equal to `word` are first, then those that start with it, then those that contain its letters in order.
    """
    first = sorted((one for one in offered if one.text.startswith(word)), key=lambda one: one.text != word)
    return [*first, *(one for one in offered if one not in first and _in_order(word, one.text))]


def complete_file(word: str, files: Sequence[str]) -> list[Completion]:
    """Return the files that match best. Only a bounded number is scored, so that keys are never delayed."""
    if not word:
        return [_file(path) for path in files[:MAX_SHOWN]]
    wanted = word.casefold()
    named = [path for path in files if wanted in path.rpartition("/")[2].casefold()]
    inside = [path for path in files if wanted in path.casefold()] if len(named) < MAX_SHOWN else []
    loose = [path for path in files if _in_order(wanted, path.casefold())] if not named and not inside else []
    candidates = list(dict.fromkeys((*named, *inside, *loose)))[:_SCORED]
    candidates.sort(key=lambda path: (-_SEARCH.match(word, path)[0], len(path)))
    return [_file(path) for path in candidates[:MAX_SHOWN]]


def _file(path: str) -> Completion:
    quoted = f'"{path}"' if " " in path else path
    return Completion(insert=f"@{quoted} ", text=path)


def _in_order(word: str, text: str) -> bool:
    letters = iter(text)
    return all(letter in letters for letter in word)
