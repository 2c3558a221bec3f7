"""Effects of a shell command, as far as its words tell: programs, files written, hosts, dangers, needs.

The dialog shows them, the sandbox learns from them what a call will lack, and restricting rules match every program.
They never permit anything: a program can always do more than its words say.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.shell import program_effects as programs
from chatops.shell.grammar import Program, Span, Word, parse
from chatops.shell.harmless import is_credential_word, is_interpreter

_T = TypeVar("_T")

_MAX_DEPTH = 4
"""Maximum depth at which programs in the arguments of others are followed; deeper ones are `unclear`."""
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,63})://(?:[^/@\s]*@)?"
    r"(?P<host>(?:\[[0-9a-fA-F:.]+\]|[^/:?#\s'\"]+)(?::[0-9]{1,5})?)",
    re.IGNORECASE,
)
_REMOTE_PATH = re.compile(r"(?:[\w.-]+@)?([\w-]+(?:\.[\w-]+)+|[\w-]+):(?!//).*")
_DEV_HOST = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/.+")
_STEERING_VARIABLE = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH_ENV|ENV|IFS|SHELLOPTS|PS4|PROMPT_COMMAND|PYTHON\w+|PERL\w+|RUBY\w+|NODE_\w+|GIT_\w+"
    r"|\w*EDITOR|PAGER|HOME|\w*_PROXY|\w*_proxy|JAVA_TOOL_OPTIONS"
)
"""Variables that decide which programs run, or what they load."""
_REDEFINING = ("alias", "function", "enable", "hash")
"""Commands that give the name of a program another meaning."""
_SETTING_VARIABLES = ("export", "declare", "typeset", "readonly", "env", "sudo", "doas", "time")
"""Commands whose arguments may be `NAME=value`."""


class Danger(StrEnum):
    """Reason to look twice at a part of a command."""

    DELETES = "deletes"
    DISCARDS = "discards"
    """It drops commits, branches or changes."""
    PRIVILEGED = "privileged"
    RUNS_INPUT = "runs_input"
    """An interpreter runs what another program prints."""
    RUNS_TEXT = "runs_text"
    """An interpreter runs text of the command itself."""
    USES_NETWORK = "uses_network"
    CONTACTS = "contacts"
    SECRET = "secret"
    HOME = "home"
    WRITES = "writes"
    STEERS = "steers"
    """It sets a variable that decides what programs do."""
    REDEFINES = "redefines"
    """It gives the name of a program another meaning."""
    COMPUTED = "computed"
    """The name of the program is known only when it runs."""


class NeedKind(StrEnum):
    """Need of a program that a sandbox may withhold."""

    NETWORK = "network"
    COMMIT = "commit"
    """Objects, refs and index below ``.git`` writable."""
    CONFIGURE = "configure"
    """All of ``.git`` writable."""


@frozen_dataclass(kw_only=False)
class Warned:
    """A danger, the program or word it is about, and where that stands in the command."""

    danger: Danger
    about: str
    span: Span


@frozen_dataclass(kw_only=False)
class Need:
    """A need of a command, and the words that cause it, such as ``git push``."""

    kind: NeedKind
    by: str
    hosts: tuple[str, ...] = ()
    """Hosts that it contacts by HTTP, with a port if one is named; empty if they are not known, or it uses more than
    HTTP."""


@frozen_dataclass(kw_only=False)
class Effects:
    """Effects of a command. All names in the order in which they first occur, each once."""

    programs: tuple[str, ...] = ()
    argvs: tuple[tuple[str, ...], ...] = ()
    """The known words of each program, also of those that another one starts."""
    writes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    warnings: tuple[Warned, ...] = ()
    needs: tuple[Need, ...] = ()
    loaders: tuple[str, ...] = ()
    """Programs that may run files of the folder."""
    unclear: str = ""
    """As in `grammar.Parsed`."""


@lru_cache(maxsize=64)
def effects(command: str) -> Effects:
    """Return what `command` does, as far as its words tell. Never raises."""
    collector = _Collector()
    collector.read(command)
    return Effects(
        programs=_without_repeats(argv[0] for argv in collector.argvs),
        argvs=_without_repeats(collector.argvs),
        writes=_without_repeats(collector.writes),
        hosts=_without_repeats(collector.hosts),
        warnings=_without_repeats(sorted(collector.warnings, key=lambda warning: warning.span)),
        needs=_without_repeats(collector.needs),
        loaders=_without_repeats(collector.loaders),
        unclear=collector.unclear,
    )


def _without_repeats(found: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(found))


@dataclass
class _Collector:
    """Collects the effects of a command and of the commands in its arguments."""

    argvs: list[tuple[str, ...]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    warnings: list[Warned] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    loaders: list[str] = field(default_factory=list)
    unclear: str = ""

    def read(self, command: str, *, depth: int = 0, at: Span | None = None) -> None:
        """Collect from `command`. `at` is where it stands in the whole, if it is a word of it."""
        parsed = parse(command)
        self.unclear = self.unclear or parsed.unclear
        for name in parsed.functions:
            self._warn(Danger.REDEFINES, name, at or (0, len(command)))
        for redirection in parsed.redirections:
            span, name = at or redirection.span, redirection.target.text or redirection.target.source
            host = _DEV_HOST.fullmatch(name)
            if host is not None:
                self._contact(host[1], span=span)
                self._need(NeedKind.NETWORK, name)
            elif redirection.writes and not name.startswith("/dev/"):
                self.writes.append(name)
                self._warn(Danger.WRITES, name, span)
            self._warn_of_place(name, span)
        for program in parsed.programs:
            self._collect_program(program, depth=depth, at=at)

    def _collect_program(self, program: Program, *, depth: int, at: Span | None) -> None:
        for name in program.assigned:
            if _STEERING_VARIABLE.fullmatch(name):
                self._warn(Danger.STEERS, name, at or program.words[0].span)
        if program.words[0].text is None:
            self._warn(Danger.COMPUTED, program.words[0].source, at or program.words[0].span)
            return
        self._collect_words(program.words, reads_pipe=program.reads_pipe, depth=depth, at=at)

    def _collect_words(self, words: Sequence[Word], *, reads_pipe: bool, depth: int, at: Span | None) -> None:
        """Collect what the program of these words does. The first word is known."""
        argv = _argv_of(words)
        name = argv[0].rsplit("/", 1)[-1]
        name_span = at or words[0].span
        self.argvs.append(argv)
        if words[0].glob:
            self._warn(Danger.COMPUTED, words[0].source, name_span)
        for word in words[1:]:
            self._collect_argument(word, at=at)
        self._collect_files(name, argv, span=at or (words[0].span[0], words[-1].span[1]))
        # The name and the word after it, such as `git push`, unless that is known only when it runs.
        verb_span = at or (words[0].span[0], words[1 if len(argv) > 1 else 0].span[1])
        self._collect_network(name, argv, span=verb_span if name in programs.PACKAGE_MANAGERS else name_span)
        if name == "git":
            self._collect_git(argv, span=verb_span)
        if name in programs.PRIVILEGED:
            self._warn(Danger.PRIVILEGED, name, name_span)
        if name in _REDEFINING:
            self._warn(Danger.REDEFINES, name, name_span)
        if name in _SETTING_VARIABLES:
            for variable in (word.partition("=")[0] for word in argv[1:]):
                if _STEERING_VARIABLE.fullmatch(variable):
                    self._warn(Danger.STEERS, variable, name_span)
        runs_shell_text = programs.runs_shell_text(name) and programs.program_text(name, words) is not None
        if not runs_shell_text and not programs.loads_nothing(name, argv):
            self.loaders.append(name)
        self._collect_inner(name, words, reads_pipe=reads_pipe, depth=depth, at=at)

    def _collect_inner(
        self, name: str, words: Sequence[Word], *, reads_pipe: bool, depth: int, at: Span | None
    ) -> None:
        """Collect from the programs that this one starts because its arguments say so."""
        argv = _argv_of(words)
        text = programs.program_text(name, words)
        if text is not None:
            self._warn(Danger.RUNS_TEXT, name, at or words[0].span)
            if text.text is None:
                self.unclear = self.unclear or f"what {name} runs is known only then"
            elif depth >= _MAX_DEPTH:
                self.unclear = self.unclear or "programs are nested too deeply to follow"
            elif programs.runs_shell_text(name):
                self.read(text.text, depth=depth + 1, at=at or text.span)
            return
        if reads_pipe and (is_interpreter(name) or name in ("eval", "source", ".")) and not programs.runs_a_file(argv):
            self._warn(Danger.RUNS_INPUT, name, at or words[0].span)
        inner = programs.started_words(name, words)
        if not inner:
            return
        if depth >= _MAX_DEPTH:
            self.unclear = self.unclear or "programs are nested too deeply to follow"
        elif inner[0].text is None:
            self._warn(Danger.COMPUTED, inner[0].source, at or inner[0].span)
        else:
            self._collect_words(inner, reads_pipe=reads_pipe and name != "xargs", depth=depth + 1, at=at)

    def _collect_argument(self, word: Word, *, at: Span | None) -> None:
        """Collect from one argument, whatever program gets it."""
        text = word.text if word.text is not None else word.source
        for url in _URL.finditer(text):
            if url["scheme"] != "file":
                self._contact(url["host"], span=at or word.span)
        if host := _DEV_HOST.fullmatch(text):
            self._contact(host[1], span=at or word.span)
            self._need(NeedKind.NETWORK, text)
        self._warn_of_place(text.partition("=")[2] or text, at or word.span, source=word.source)

    def _warn_of_place(self, name: str, span: Span, *, source: str = "") -> None:
        """Warn about a path of credentials or in the home folder."""
        if "://" in name or any(char.isspace() for char in name):
            return
        if is_credential_word(name):
            self._warn(Danger.SECRET, name, span)
        elif (source or name).startswith(("~", "$HOME", '"$HOME')):
            self._warn(Danger.HOME, source or name, span)

    def _collect_files(self, name: str, argv: Sequence[str], *, span: Span) -> None:
        valued = programs.FILE_VALUED.get(name, frozenset())
        operands = [word for word in programs.operands_of(argv, valued) if word != "{}"]
        if name in programs.FIRST_IS_NO_FILE:
            operands = operands[1:]
        if name in programs.WRITES_OPERANDS:
            self.writes += operands
        elif name in programs.WRITES_LAST:
            self.writes += [word for word in operands[-1:] if not _REMOTE_PATH.fullmatch(word)]
        elif name in ("sed", "perl", "gsed") and any(programs.changes_in_place(word) for word in argv[1:]):
            self.writes += operands[1:]  # the first is the script
        elif name == "dd":
            self.writes += [word[3:] for word in argv if word.startswith("of=")]
        elif name == "tar" and len(argv) > 1 and programs.creates_archive(argv[1]):
            # Flags without a dash are the first operand.
            self.writes += operands[:1] if argv[1].startswith("-") else operands[1:2]
        self.writes += programs.flag_values(argv, programs.OUTPUT_FLAGS.get(name, frozenset()))
        if name in programs.DELETES or (name == "find" and "-delete" in argv):
            self._warn(Danger.DELETES, name, span)

    def _collect_network(self, name: str, argv: Sequence[str], *, span: Span) -> None:
        if name in programs.FETCHES or name in programs.REACHES_OUT:
            hosts = _hosts_of(name, argv)
            if name == "rsync" and not hosts:
                return  # It copies from folder to folder here.
            self._need(NeedKind.NETWORK, name, hosts=hosts if name in programs.FETCHES else ())
            for host in hosts:
                self._contact(host, span=span)
            if not hosts:
                self._warn(Danger.USES_NETWORK, name, span)
        elif loading := _loading_words(name, argv):
            self._need(NeedKind.NETWORK, loading)
            self._warn(Danger.USES_NETWORK, loading, span)

    def _collect_git(self, argv: Sequence[str], *, span: Span) -> None:
        words = programs.after_git_options(argv[1:])
        verb = words[0] if words else ""
        name = f"git {verb}"
        if verb in programs.GIT_NETWORK or (verb in ("submodule", "remote") and "update" in words):
            hosts = [remote[1] for word in words[1:] if (remote := _REMOTE_PATH.fullmatch(word)) and "@" in word]
            web = _web_hosts(words)
            self._need(NeedKind.NETWORK, name, hosts=() if hosts else web)
            for host in hosts:
                self._contact(host, span=span)
            if not hosts and not web:
                self._warn(Danger.USES_NETWORK, name, span)
        if verb in programs.GIT_CONFIGURES and programs.changes_settings(verb, words):
            self._need(NeedKind.CONFIGURE, name)
        elif verb in programs.GIT_COMMITS and programs.changes_repository(verb, words):
            self._need(NeedKind.COMMIT, name)
        if programs.GIT_DISCARDS.get(verb, frozenset()) & set(words[1:]):
            self._warn(Danger.DISCARDS, name, span)
        if "-c" in argv[1 : len(argv) - len(words)]:
            self._warn(Danger.STEERS, "git -c", span)

    def _contact(self, host: str, *, span: Span) -> None:
        self.hosts.append(host)
        self._warn(Danger.CONTACTS, host, span)

    def _need(self, kind: NeedKind, by: str, *, hosts: Sequence[str] = ()) -> None:
        self.needs.append(Need(kind, by, tuple(hosts)))

    def _warn(self, danger: Danger, about: str, span: Span) -> None:
        self.warnings.append(Warned(danger, about, span))


def _web_hosts(words: Sequence[str]) -> list[str]:
    urls = (url for word in words for url in _URL.finditer(word))
    return [url["host"] for url in urls if url["scheme"].lower() in ("http", "https")]


def _hosts_of(name: str, argv: Sequence[str]) -> list[str]:
    """Return the hosts that a program of `FETCHES` or `REACHES_OUT` contacts, as far as its words name them."""
    operands = programs.operands_of(argv, programs.NETWORK_VALUED | programs.OUTPUT_FLAGS.get(name, frozenset()))
    if name in programs.HOST_FIRST:
        return [word.rpartition("@")[2] for word in operands[:1]]
    web = _web_hosts(argv)
    if name in ("scp", "rsync", "sftp"):
        return [*web, *(remote[1] for word in operands if (remote := _REMOTE_PATH.fullmatch(word)))]
    if name in programs.FETCHES and not web:
        # A host without a scheme, as in `curl example.org/page`.
        return [word.partition("/")[0] for word in operands[:1] if "." in word]
    return web


def _loading_words(name: str, argv: Sequence[str]) -> str:
    """Return the words by which a package manager is told to use the network, as `npm install`; empty if it is not."""
    if name in programs.PACKAGE_MANAGERS:
        verb = next((word for word in argv[1:] if not word.startswith("-")), "")
        if name in programs.PACKAGE_RUNNERS or (name == "yarn" and not verb):
            return name
        return f"{name} {verb}" if verb in programs.PACKAGE_VERBS else ""
    if argv[1:3] == ("-m", "pip") and len(argv) > 3 and argv[3] in programs.PACKAGE_VERBS:
        return f"pip {argv[3]}"
    return ""


def _argv_of(words: Sequence[Word]) -> tuple[str, ...]:
    return Program(tuple(words)).argv
