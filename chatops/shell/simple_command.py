"""Read the words of one simple command, and of no other.

Any other command has no words, so policy asks about it. Single and double quotes and backslashes are read as POSIX
shells do (XCU 2.2). Everything that a shell would act on is rejected: operators, expansions, redirections, assignments,
comments, reserved words, control and invisible characters. Policy and tools share this reader, so tools run exactly the
words that were judged.
"""

import re
import unicodedata
from collections.abc import Callable
from types import MappingProxyType

Expand = Callable[[str], tuple[str, ...]]
"""Turns a glob relative to the working folder into the sorted names that it matches."""

MAX_COMMAND_CHARS = 8_000
"""The user is always asked about longer commands: nobody reviews them at a glance."""

_SHELL_SIGNS = MappingProxyType(
    dict.fromkeys(";&", "joins several commands")
    | {"|": "has a pipe"}
    | dict.fromkeys("<>", "redirects input or output")
    | dict.fromkeys("()", "groups commands")
    | dict.fromkeys("$`", "has a variable or inserts the output of a command")
    | dict.fromkeys("{}[]", "has brackets that a shell expands")
)
"""Characters that a shell acts on, each with what it makes of the command."""
RESERVED = frozenset(
    "! [[ ]] { } case coproc do done elif else esac fi for function if in select then time until while".split()
)
_BARE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})


def is_bare_name(word: str) -> bool:
    """Return True if a program word is a plain ASCII name that is looked up in PATH: no slash, no look-alikes."""
    return _BARE_NAME.fullmatch(word) is not None


def is_visible(text: str) -> bool:
    """Return True if every character is visible as what it is: no control, invisible or private-use characters."""
    return all(char == " " or unicodedata.category(char) not in _HIDDEN_CATEGORIES for char in text)


def simple_words(command: str, *, expand: Expand | None = None) -> tuple[str, ...]:
    """Return the words of `command` if it is one simple command, else an empty tuple.

    A word with an unquoted ``*`` or ``?`` is not simple, unless `expand` is given. Then it becomes the names that
    `expand` returns (itself if there are none), and these are the words to judge and to run. A glob that is absolute or
    climbs with ``..`` is never expanded.
    """
    words, _ = _read_words(command, expand=expand)
    return words


def why_not_simple(command: str) -> str:
    """Return why `command` is not a simple command, as a predicate: ``has a pipe``.

    Empty for a simple command, also for one with globs.
    """
    _, fault = _read_words(command, expand=lambda glob: (glob,))
    return fault


def _read_words(command: str, *, expand: Expand | None) -> tuple[tuple[str, ...], str]:
    """Return the words and an empty text, or no words and why there are none."""
    if len(command) > MAX_COMMAND_CHARS:
        return (), "is too long"
    if not is_visible(command):
        return (), "has several lines or hidden characters"
    words: list[str] = []
    index = 0
    while index < len(command):
        if command[index] == " ":
            index += 1
            continue
        word = _WordParser(command, index)
        if fault := word.read():
            return (), fault
        if not words and (word.quoted or word.glob or word.text in RESERVED or "=" in word.text):
            return (), "begins with a word that only a shell understands"
        if word.glob:
            names = _expand_glob(word, expand)
            if not names:
                return (), "has a name pattern outside of its folder"
            words.extend(names)
        else:
            words.append(word.text)
        index = word.index
    return tuple(words), "" if words else "is empty"


def _expand_glob(word: "_WordParser", expand: Expand | None) -> tuple[str, ...]:
    """Return the names that a glob matches; empty if it may not be expanded here."""
    if expand is None or word.quoted or word.text.startswith(("/", "-")) or ".." in word.text.split("/"):
        return ()
    return expand(word.text) or (word.text,)


class _WordParser:
    """Parses one word from `index` on."""

    def __init__(self, command: str, index: int) -> None:
        self.command = command
        self.index = index
        self.text = ""
        self.quoted = False
        self.glob = False

    def read(self) -> str:
        """Return why a shell would act on the word rather than take it literally; empty if it takes it literally."""
        start = self.index
        while self.index < len(self.command) and (char := self.command[self.index]) != " ":
            if char in "'\"":
                fault = self._read_quotes(char)
            elif char == "\\":
                fault = self._read_backslash()
            else:
                fault = self._read_plain(char, first=self.index == start)
            if fault:
                return fault
        return ""

    def _read_plain(self, char: str, *, first: bool) -> str:
        if char == "|" and self.command[self.index + 1 : self.index + 2] == "|":
            return _SHELL_SIGNS["&"]
        if fault := _SHELL_SIGNS.get(char, ""):
            return fault
        if char == "#" and first:
            return "has a comment"
        if char == "~" and (first or self.text[-1:] in {"=", ":"}):
            return "names a home folder by ~"
        if char in "*?":
            self.glob = True
        self.text += char
        self.index += 1
        return ""

    def _read_quotes(self, mark: str) -> str:
        end = self.command.find(mark, self.index + 1)
        if end < 0:
            return "has a quote without an end"
        inner = self.command[self.index + 1 : end]
        # A backslash in double quotes may hide the closing quote. It is too rare to be worth parsing.
        if mark == '"' and (sign := next((char for char in inner if char in "$`\\"), "")):
            return _SHELL_SIGNS.get(sign, "has a backslash in quotes")
        self.text += inner
        self.quoted = True
        self.index = end + 1
        return ""

    def _read_backslash(self) -> str:
        if self.index + 1 >= len(self.command):
            return "ends with a backslash"
        self.text += self.command[self.index + 1]
        self.quoted = True
        self.index += 2
        return ""
