"""The programs, redirections and expansions of a shell command, parsed with the grammar of bash.

`argv` reads the words of one simple command and refuses all else. This module reads every command, for the dialog and
for rules that restrict. Policy never trusts one of them alone: `differs` says where they disagree, and then the call
asks. No command is refused because of its grammar.

tree-sitter parses and recovers from errors. Its grammar of bash does not know all of bash (``<>``, ``coproc``), so
`Parsed.unclear` says what the result leaves out.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from chatops.shell.argv import RESERVED, simple_words, visible

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MOST_STEPS = 400
"""Reports of progress after which the parser is stopped. Hostile input costs it quadratic time; this is 0.2 s."""
_MOST_NODES = 20_000

Span = tuple[int, int]
"""Start and end of a part of the command, in characters."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a program: `text` is what the program gets, or None if only the running shell knows."""

    text: str | None
    source: str
    span: Span


@dataclass(frozen=True, slots=True)
class Program:
    """A program that the command runs, or a builtin. The first word names it."""

    words: tuple[Word, ...]
    assigned: tuple[str, ...] = ()
    """Names of the variables that are set for it."""
    reads_pipe: bool = False
    """True if its input comes from another program."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The words up to the first one that is not known."""
        known: list[str] = []
        for word in self.words:
            if word.text is None:
                break
            known.append(word.text)
        return tuple(known)

    @property
    def span(self) -> Span:
        """The whole of its words."""
        return self.words[0].span[0], self.words[-1].span[1]


@dataclass(frozen=True, slots=True)
class Redirection:
    """A redirection to or from a file."""

    target: Word
    writes: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Substitution:
    """A part that the shell replaces by something it computes or by what a program prints."""

    kind: Literal["command", "variable", "pattern"]
    span: Span


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command as the grammar reads it, each list in the order of the text."""

    programs: tuple[Program, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    substitutions: tuple[Substitution, ...] = ()
    functions: tuple[str, ...] = ()
    """Names of functions that it defines. A program of that name is the function."""
    simple: tuple[str, ...] = ()
    """The words if the command is one program with known words and nothing else, as in `argv.simple_words`."""
    pipeline: tuple[str, ...] = ()
    """Names of the programs of the pipeline whose last one sets the exit code; a name that is not known is empty.

    Empty without such a pipeline, and where the command sets `pipefail` first."""
    unclear: str = ""
    """Why a part of the command may be missing here; empty if nothing is."""


@lru_cache(maxsize=64)
def parse(command: str) -> Parsed:
    """Parse `command`. Never raises: what cannot be parsed is `unclear`."""
    data = command.encode("utf-8", "replace")

    def read(offset: int, _: object) -> bytes:
        return data[offset : offset + 4_096]

    parser = _parser()
    try:
        root = parser.parse(read, encoding="utf8", progress_callback=_stop_after(_MOST_STEPS)).root_node
    except ValueError:
        return Parsed(unclear="it is too long or too deeply nested to be parsed")
    reader = _Reader(command)
    reader.read(root)
    return Parsed(
        programs=tuple(sorted(reader.programs, key=lambda one: one.span)),
        redirections=tuple(sorted(reader.redirections, key=lambda one: one.span)),
        substitutions=tuple(sorted(reader.substitutions, key=lambda one: one.span)),
        functions=tuple(reader.functions),
        simple=_simple(root, reader),
        pipeline=_pipeline(root, reader),
        unclear=_unclear(command, reader, error=root.has_error),
    )


def differs(command: str) -> bool:
    """Return True if `argv` reads one simple command here and the grammar reads something else."""
    words = simple_words(command, expand=lambda glob: (glob,))
    return bool(words) and words != parse(command).simple


def _parser() -> "Parser":
    """Return a new parser, because commands are parsed in several threads."""
    # Imported late: most calls and all screens but the dialog do without.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _stop_after(steps: int) -> Callable[[int, bool], bool]:
    counter = iter(range(steps))
    return lambda offset, error: next(counter, None) is None


def _unclear(command: str, reader: "_Reader", *, error: bool) -> str:
    if error:
        return "a part of it is not understood"
    if not visible(command.replace("\n", " ").replace("\t", " ")):
        return "it has control characters or invisible ones"
    return reader.unclear


def _simple(root: "Node", reader: "_Reader") -> tuple[str, ...]:
    """Return the words of the command if it consists of one program with known words."""
    only = root.children[0] if root.child_count == 1 else None
    kinds = {child.type for child in only.children} if only is not None else set()
    if only is None or root.has_error or only.type not in _COMMANDS or kinds & _NOT_SIMPLE:
        return ()
    if len(reader.programs) != 1 or reader.redirections:
        return ()
    words = reader.programs[0].words
    return tuple(word.text for word in words if word.text is not None) if all(_plain(word) for word in words) else ()


def _pipeline(root: "Node", reader: "_Reader") -> tuple[str, ...]:
    """Return the names of the programs of the pipeline that may set the exit code of the command, see `Parsed`."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        parts = [child for child in node.named_children if child.type not in _NO_STATEMENTS]
        if node.type == "pipeline":
            return () if any(map(_sets_pipefail, reader.programs)) else reader.piped(parts[-1])
        if node.type in _PASSING_ON:
            waiting.extend(parts)
        elif node.type in _SEQUENCES:
            waiting.extend(parts[-1:])
    return ()


def _sets_pipefail(program: Program) -> bool:
    name, *words = program.argv or ("",)
    return name == "set" and "pipefail" in words and words[words.index("pipefail") - 1].startswith("-")


def _plain(word: Word) -> bool:
    return word.text is not None and not word.source.startswith("~")


_COMMANDS = frozenset({"command", "declaration_command", "unset_command"})
_NOT_SIMPLE = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect", "subshell"})
_SEQUENCES = frozenset({"program", "subshell", "compound_statement"})
"""Statements whose exit code is that of their last part."""
_PASSING_ON = frozenset({"list", "redirected_statement", "heredoc_redirect"})
"""Statements whose exit code may be that of any part. A pipe after a here document stands within the document."""
_NO_STATEMENTS = frozenset({"comment", "heredoc_start", "heredoc_body", "heredoc_end", "file_redirect"})
_SUBSTITUTIONS: dict[str, Literal["command", "variable", "pattern"]] = {
    "command_substitution": "command",
    "process_substitution": "command",
    "simple_expansion": "variable",
    "expansion": "variable",
    "arithmetic_expansion": "variable",
    "brace_expression": "pattern",
}
_WRITING = frozenset({">", ">>", ">|", "&>", "&>>", "<>"})


class _Reader:
    """Collects what a tree holds. Iterative, because hostile commands are nested deeply."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.programs: list[Program] = []
        self.redirections: list[Redirection] = []
        self.substitutions: list[Substitution] = []
        self.functions: list[str] = []
        self.unclear = ""
        self._starts = None if command.isascii() else list(accumulate(_sizes(command), initial=0))

    def read(self, root: "Node") -> None:
        """Collect everything below `root`."""
        waiting: list[tuple[Node, bool]] = [(root, False)]
        seen = 0
        while waiting:
            node, piped = waiting.pop()
            seen += 1
            if seen > _MOST_NODES:
                self.unclear = "it is too long to be read as a whole"
                return
            self._note(node, piped=piped)
            follows = False
            for child in node.children:
                follows = follows or (node.type == "pipeline" and child.type in ("|", "|&"))
                waiting.append((child, piped or follows))

    def piped(self, last: "Node") -> tuple[str, ...]:
        """Return the names of the programs before `last`, the end of a pipeline, and its own."""
        start, end = self._span(last)
        before = [program for program in self.programs if program.span[0] < start]
        own = [program for program in self.programs if start <= program.span[0] < end and last.type == "command"]
        names = [program.words[0].text or "" for program in sorted(before, key=lambda one: one.span)]
        return (*names, own[0].words[0].text or "" if own else "")

    def _note(self, node: "Node", *, piped: bool) -> None:
        match node.type:
            case "command" | "declaration_command" | "unset_command":
                self._command(node, piped=piped)
            case "file_redirect":
                self._redirection(node)
            case "function_definition":
                name = node.child_by_field_name("name")
                self.functions.append(self._source(name) if name is not None else "")
            case kind if kind in _SUBSTITUTIONS:
                self.substitutions.append(Substitution(_SUBSTITUTIONS[kind], self._span(node)))

    def _command(self, node: "Node", *, piped: bool) -> None:
        words: list[Word] = []
        assigned: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment" and not words:
                assigned.append(self._source(child).partition("=")[0].rstrip("+"))
            elif child.type not in _NOT_SIMPLE and child.end_byte > child.start_byte:
                words.append(self._word(child))
        if not words:
            return
        if words[0].source in RESERVED - {"time"}:
            self.unclear = f"{words[0].source} is not understood"
        self.programs.append(Program(tuple(words), tuple(assigned), piped))

    def _redirection(self, node: "Node") -> None:
        target = node.child_by_field_name("destination")
        operator = next((child.type for child in node.children if child.type in _WRITING | {"<", ">&", "<&"}), "")
        if target is None:
            return
        word = self._word(target)
        descriptor = word.source.removesuffix("-").isdigit() or word.source == "-"
        writes = operator in _WRITING or (operator == ">&" and not descriptor) or node.has_error
        if operator in (">&", "<&") and descriptor:
            return
        self.redirections.append(Redirection(word, writes, self._span(node)))

    def _word(self, node: "Node") -> Word:
        return Word(self._text(node), self._source(node), self._span(node))

    def _text(self, node: "Node") -> str | None:
        """Return a word as the program gets it, before globs; None if the shell has to compute it."""
        parts = list(self._parts(node))
        return None if None in parts else "".join(part for part in parts if part is not None)

    def _parts(self, node: "Node") -> Iterator[str | None]:
        source = self._source(node)
        match node.type:
            case "command_name" | "concatenation":
                braces = [child for child in node.children if child.type == "word" and self._source(child) == "{"]
                if braces and ("," in source or ".." in source):
                    yield None
                for child in node.children:
                    yield from self._parts(child)
            case "word" | "number" | "extglob_pattern" | "regex" | "test_operator":
                yield _unescaped(source)
            case "raw_string":
                yield source[1:-1]
            case "string":
                known = all(child.type in ('"', "string_content") for child in node.children)
                yield _unquoted(source[1:-1]) if known and len(source) > 1 else None
            case "variable_assignment" | "variable_name":
                value = node.child_by_field_name("value")
                if value is None:
                    yield source
                else:
                    name_and_sign = source[: self._span(value)[0] - self._span(node)[0]]
                    yield name_and_sign
                    yield from self._parts(value)
            case _ if not node.is_named:
                yield source
            case _:
                yield None

    def _source(self, node: "Node") -> str:
        start, end = self._span(node)
        return self.command[start:end]

    def _span(self, node: "Node") -> Span:
        if self._starts is None:
            return node.start_byte, node.end_byte
        return bisect_left(self._starts, node.start_byte), bisect_left(self._starts, node.end_byte)


def _sizes(command: str) -> Iterator[int]:
    return (len(char.encode("utf-8", "replace")) for char in command)


def _unescaped(source: str) -> str | None:
    """Remove the backslashes of an unquoted word."""
    if "\\" not in source:
        return source
    out: list[str] = []
    chars = iter(source)
    for char in chars:
        if char != "\\":
            out.append(char)
        elif (escaped := next(chars, "")) != "\n":
            out.append(escaped)
    return "".join(out)


def _unquoted(inner: str) -> str:
    """Remove the backslashes that a shell removes between double quotes."""
    out: list[str] = []
    at = 0
    while at < len(inner):
        pair = inner[at : at + 2]
        if pair[:1] == "\\" and pair[1:] in ("$", "`", '"', "\\", "\n"):
            out.append(pair[1:].strip("\n"))
            at += 2
        else:
            out.append(inner[at])
            at += 1
    return "".join(out)
