"""Words that a trailing ``*`` of an argv pattern may stand for: they only read, and only inside the workspace.

Flags are listed by what is known to be harmless, never by what is known to be dangerous: options grow with every
release, and GNU programs accept abbreviations. A flag that is not listed asks. Programs that run what their arguments
say (wrappers, interpreters, editors) have no harmless arguments at all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from chatops.domain.secrets import is_secret, may_hold_secrets
from chatops.shell.programs import (
    GIT,
    LAUNCHERS,
    MODULES,
    PROGRAMS,
    RUN_WORKSPACE_CODE,
    RUNS_ITS_ARGUMENTS,
    Harmless,
)

_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|lua|php|node|nodejs|tclsh|wish|Rscript|guile|sh|bash)[0-9.]*")
_OTHER_INTERPRETERS = frozenset("dash zsh ksh csh tcsh fish source . deno bun".split())
_PLAIN = re.compile(r"[\w.][\w./+%,:~^-]*")
_QUIET_FLAGS = frozenset({"-q", "--quiet", "-v", "--verbose", "--version", "--help"})
_NUMBER_FLAG = re.compile(r"-[0-9]{1,9}")
_RESPONSE_FILE = re.compile(r"@(?![~^{]|$)")
"""``@FILE`` makes many programs read further arguments; git's ``@`` and ``@~1`` do not."""
_SEPARATORS = re.compile(r"[/:=,@]")
_SETTINGS = frozenset({".docker", ".config", ".git", ".chatops"})
"""Folders of settings, which may include credentials."""


def credential_word(word: str) -> bool:
    """Return True if a word names a place where secrets usually are, or git's own folder."""
    parts = [part.casefold() for part in _SEPARATORS.split(word)]
    return is_secret(parts) or any(part in _SETTINGS or may_hold_secrets((part,)) for part in parts)


def inside(word: str, *, cwd: str) -> bool:
    """Return True if no part of a word leaves the folder `cwd`: absolute parts only below it, no ``..``, no ``~``."""
    if word.startswith("~") or _RESPONSE_FILE.match(word) or ".." in _SEPARATORS.split(word) or credential_word(word):
        return False
    below = cwd.rstrip("/")
    if word.startswith("/"):
        return bool(below) and (word == below or word.startswith(f"{below}/"))
    return not any(mark in word for mark in ("=/", ":/", ",/", "@/", "=~", ":~"))


def harmless_tail(*, prefix: Sequence[str], tail: Sequence[str], cwd: str) -> bool:
    """Return True if `tail` is harmless after the words `prefix` that a user has written out.

    `prefix` holds at least the program. An empty tail is harmless: the user has named every word.
    """
    if not tail:
        return True
    words = launched(tuple(prefix))
    if not words:
        return False
    name = words[0]
    if name == "git":
        return _git(words[1:], tail, cwd=cwd)
    if name in RUNS_ITS_ARGUMENTS or _INTERPRETER.fullmatch(name):
        return False
    program = PROGRAMS.get(name)
    if program is None:
        return all(_plain(word, cwd=cwd) for word in tail)
    return _Arguments(program=program, cwd=cwd).accept(tail)


def interpreter(name: str) -> bool:
    """Return True if a program of this name runs the file given as its first argument."""
    return _INTERPRETER.fullmatch(name) is not None or name in _OTHER_INTERPRETERS


def known_reader(argv: Sequence[str]) -> int:
    """Return how many leading words name a program (and its sub-command) that is known to only read; 0: none."""
    words = launched(tuple(argv))
    if not words:
        return 0
    skipped = len(argv) - len(words)
    if words[0] == "git":
        return skipped + 2 if len(words) > 1 and words[1] in GIT else 0
    return skipped + 1 if words[0] in PROGRAMS else 0


def runs_its_arguments(argv: Sequence[str]) -> bool:
    """Return True if the program is known to run what its arguments say, or if it cannot be told which one it is."""
    words = launched(tuple(argv))
    return not words or words[0] in RUNS_ITS_ARGUMENTS or interpreter(words[0])


def runs_no_workspace_code(argv: Sequence[str], *, cwd: str) -> bool:
    """Return True if this command is known not to run any file in the folder `cwd`, whatever the folder holds.

    Launchers count as unknown, because ``uv run`` builds the project that it is in.
    """
    known, words = known_reader(argv), tuple(argv)
    if not known or launched(words) != words or words[0] in RUN_WORKSPACE_CODE:
        return False
    return harmless_tail(prefix=words[:known], tail=words[known:], cwd=cwd)


def file_words(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words that a known reader takes as files: operands, and values of its flags, also attached ones."""
    words = tuple(argv)[known_reader(argv) :]
    started = launched(tuple(argv))
    program = (GIT.get(started[1]) if started[:1] == ("git",) and len(started) > 1 else None) or (
        PROGRAMS.get(started[0]) if started else None
    )
    if program is None:
        return ()
    arguments = _Arguments(program=program, cwd="/")
    arguments.accept(words)
    return (*arguments.operands, *arguments.values)


def launched(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the program that the leading launchers start, with its words; empty if that cannot be told."""
    while launcher := next((start for start in LAUNCHERS if words[: len(start)] == start), None):
        words = words[len(launcher) :]
        if launcher[-1] == "-m" and (not words or words[0] not in MODULES):
            return ()
    return words


def _git(words: Sequence[str], tail: Sequence[str], *, cwd: str) -> bool:
    """Return True if `tail` is harmless for git.

    Options before the sub-command configure git itself, so the sub-command has to come first.
    """
    if words:
        program = GIT.get(words[0])
        return program is not None and _Arguments(program=program, cwd=cwd).accept(tail)
    program = GIT.get(tail[0])
    return program is not None and _Arguments(program=program, cwd=cwd).accept(tail[1:])


def _plain(word: str, *, cwd: str) -> bool:
    """Return True for a word that a program is unlikely to take for more than a name."""
    if word in _QUIET_FLAGS:
        return True
    return _PLAIN.fullmatch(word) is not None and "::" not in word and "//" not in word and inside(word, cwd=cwd)


@dataclass(kw_only=True)
class _Arguments:
    """Parses a tail as getopt would, with the flags that `program` lists."""

    program: Harmless
    cwd: str
    operands: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    pattern_given: bool = False

    def accept(self, tail: Sequence[str]) -> bool:
        """Return True if every flag is listed and every operand and value stays inside."""
        if self.program.text:
            return True
        words = list(tail)
        while words:
            word = words.pop(0)
            if word == "--":
                if any(later.startswith("-") for later in words):
                    return False
                self.operands.extend(words)
                break
            if not word.startswith("-") or word == "-":
                self.operands.append(word)
            elif not self._flag(word, words):
                return False
        return self._operands_accepted()

    def _operands_accepted(self) -> bool:
        most = self.program.max_operands
        if most is not None and len(self.operands) > most:
            return False
        texts = 0 if self.pattern_given else self.program.text_operands
        files = self.operands[texts:] + self.values
        return all(word == "-" or inside(word, cwd=self.cwd) for word in files)

    def _flag(self, word: str, rest: list[str]) -> bool:
        if self.program.single_dash_words:
            return self._valued(word, rest) if word in self.program.valued else word in self.program.flags
        if _NUMBER_FLAG.fullmatch(word):
            return self.program.numbers
        if word.startswith("--"):
            name, has_value, value = word.partition("=")
            return self._long(name, value if has_value else None, rest)
        return self._cluster(word[1:], rest)

    def _long(self, name: str, value: str | None, rest: list[str]) -> bool:
        program = self.program
        if name in program.flags and value is None:
            return True
        if name not in program.valued and name not in program.optional_valued:
            return False
        if value is None:
            return name in program.optional_valued or self._valued(name, rest)
        self._keep(name, value)
        return True

    def _cluster(self, letters: str, rest: list[str]) -> bool:
        for position, letter in enumerate(letters):
            flag, remainder = f"-{letter}", letters[position + 1 :]
            if flag in self.program.optional_valued:
                self._keep(flag, remainder)
                return True
            if flag in self.program.valued:
                if not remainder:
                    return self._valued(flag, rest)
                self._keep(flag, remainder)
                return True
            if flag not in self.program.flags:
                return False
        return True

    def _valued(self, flag: str, rest: list[str]) -> bool:
        # A value that looks like a flag is refused: a program with other rules would parse it as a flag.
        if not rest or rest[0].startswith("-"):
            return False
        self._keep(flag, rest.pop(0))
        return True

    def _keep(self, flag: str, value: str) -> None:
        self.pattern_given = self.pattern_given or flag in self.program.pattern_flags
        if flag not in self.program.text_values:
            self.values.append(value)
