"""Read every command with the grammar of bash: its programs, redirections and expansions.

The dialog shows them, and rules that restrict match them. `simple_command` reads some commands independently of this.
Policy uses both: where they disagree (`differs`), the user is asked. No command is refused because of its grammar.
tree-sitter parses and recovers from errors. Its grammar of bash does not know all of bash (``<>``, ``coproc``), so
`Parsed.unclear` says what the result leaves out.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, dropwhile, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.shell.simple_command import RESERVED, is_visible, simple_words

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
"""The backslashes that a shell removes from an unquoted word, and between double quotes."""
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_GLOB = re.compile(r"[*?]|\[.+\]")
_NOT_UNDERSTOOD = "a part of it is not understood"
_DESCRIPTOR = re.compile(r"(?:\d+|\{\w+\})[<>]")
_BEYOND_A_BYTE = re.compile(r"[^\x00-\xff]")
_MAX_PROGRESS_REPORTS = 400
"""Reports of progress after which the parser is stopped. Hostile input costs it quadratic time; this is 0.2 s."""
_MAX_NODES = 20_000
"""Maximum number of nodes of the tree that are read; a longer command is `unclear`."""
_COMMANDS = frozenset({"command", "declaration_command", "unset_command"})
_NOT_SIMPLE = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect", "subshell"})
_SEQUENCES = frozenset({"program", "subshell", "compound_statement"})
"""Statements whose exit code is that of their last part."""
_PASSING_ON = frozenset({"list", "redirected_statement", "heredoc_redirect"})
"""Statements whose exit code may be that of any part. A pipe after a here document stands within the document."""
_ENDING_WITH_COMMAND = frozenset({"pipeline", "list", "redirected_statement", "negated_command"})
_NOT_STATEMENTS = frozenset({"comment", "heredoc_start", "heredoc_body", "heredoc_end", "file_redirect"})
_SUBSTITUTIONS: dict[str, Literal["command", "variable", "pattern"]] = {
    "command_substitution": "command",
    "process_substitution": "command",
    "simple_expansion": "variable",
    "expansion": "variable",
    "arithmetic_expansion": "variable",
    "brace_expression": "pattern",
}
_WRITING = frozenset({">", ">>", ">|", "&>", "&>>", "<>"})
_OPERATORS = _WRITING | {"<", ">&", "<&", "<&-", ">&-"}
_OPENING = re.compile(r"\[\[?\s|\(\(|[{!]\s")
"""Start of a test, a group or a negation. ``[a-z]``, ``{}`` and ``!x`` are none: they are names of programs."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[|\+?=)", re.ASCII)

Span = tuple[int, int]
"""Start and end of a part of the command, in characters."""


@frozen_dataclass(kw_only=False)
class Word:
    """A word of a program: `text` is what the program gets, or None if only the running shell knows."""

    text: str | None
    source: str
    span: Span

    @property
    def glob(self) -> bool:
        """True if the shell may put names of files in its place."""
        return _GLOB.search(_QUOTED.sub("", self.source)) is not None


@frozen_dataclass(kw_only=False)
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


@frozen_dataclass(kw_only=False)
class Redirection:
    """A redirection to or from a file."""

    target: Word
    writes: bool
    span: Span


@frozen_dataclass(kw_only=False)
class Substitution:
    """A part that the shell replaces by something it computes or by what a program prints."""

    kind: Literal["command", "variable", "pattern"]
    span: Span


@frozen_dataclass(kw_only=False)
class Parsed:
    """A command as the grammar reads it, each list in the order of the text."""

    programs: tuple[Program, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    substitutions: tuple[Substitution, ...] = ()
    functions: tuple[str, ...] = ()
    """Names of functions that it defines. A program of that name is the function."""
    simple: tuple[str, ...] = ()
    """The words if the command is one program with known words and nothing else, as in `simple_words`."""
    pipeline: tuple[str, ...] = ()
    """Names of the programs of the pipeline whose last one sets the exit code; a name that is not known is empty.

    Empty without such a pipeline, and where the command sets `pipefail` first."""
    unclear: str = ""
    """Why a part of the command may be missing here; empty if nothing is."""


@lru_cache(maxsize=64)
def parse(command: str) -> Parsed:
    """Parse `command`. Never raises: what cannot be parsed is `unclear`."""
    data = _for_grammar(command).encode()

    def read(offset: int, _: object) -> bytes:
        return data[offset : offset + 4_096]

    reports_left = iter(range(_MAX_PROGRESS_REPORTS))

    def is_too_slow(offset: int, error: bool) -> bool:
        return next(reports_left, None) is None

    try:
        root = _parser().parse(read, encoding="utf8", progress_callback=is_too_slow).root_node
    except ValueError:
        return Parsed(unclear="it is too long or too deeply nested to be parsed")
    reader = _Reader(command)
    reader.read(root)
    return Parsed(
        programs=tuple(sorted(reader.programs, key=attrgetter("span"))),
        redirections=tuple(sorted(reader.redirections, key=attrgetter("span"))),
        substitutions=tuple(sorted(reader.substitutions, key=attrgetter("span"))),
        functions=tuple(reader.functions),
        simple=_simple_words_of(root, reader),
        pipeline=_pipeline_of(root, reader),
        unclear=_why_unclear(command, reader, error=root.has_error),
    )


def differs(command: str) -> bool:
    """Return True if `simple_words` reads one simple command here and the grammar something else."""
    words = simple_words(command, expand=lambda glob: (glob,))
    return bool(words) and words != parse(command).simple


def _parser() -> "Parser":
    """Return a new parser, because commands are parsed in several threads."""
    # Imported late: most calls and all screens but the dialog do without.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _why_unclear(command: str, reader: "_Reader", *, error: bool) -> str:
    if error:
        return _NOT_UNDERSTOOD
    if not is_visible(command.replace("\n", " ").replace("\t", " ")):
        return "it has control characters or invisible ones"
    return reader.unclear


def _simple_words_of(root: "Node", reader: "_Reader") -> tuple[str, ...]:
    """Return the words of the command if it consists of one program with known words."""
    only = root.children[0] if root.child_count == 1 else None
    kinds = {child.type for child in only.children} if only is not None else set()
    if only is None or root.has_error or only.type not in _COMMANDS or kinds & _NOT_SIMPLE:
        return ()
    if len(reader.programs) != 1 or reader.redirections:
        return ()
    words = reader.programs[0].words
    known = tuple(word.text for word in words if word.text is not None and not word.source.startswith("~"))
    return known if len(known) == len(words) else ()


def _pipeline_of(root: "Node", reader: "_Reader") -> tuple[str, ...]:
    """Return the names of the programs of the pipeline that may set the exit code of the command, see `Parsed`."""
    to_search = [root]
    while to_search:
        node = to_search.pop()
        parts = [child for child in node.named_children if child.type not in _NOT_STATEMENTS]
        if node.type == "pipeline":
            return () if any(map(_sets_pipefail, reader.programs)) else reader.names_in_pipeline(parts[-1])
        if node.type in _PASSING_ON:
            to_search.extend(parts)
        elif node.type in _SEQUENCES:
            to_search.extend(parts[-1:])
    return ()


def _sets_pipefail(program: Program) -> bool:
    name, *words = program.argv or ("",)
    return name == "set" and "pipefail" in words and words[words.index("pipefail") - 1].startswith("-")


class _Reader:
    """Collects what a tree holds. Iterative, because hostile commands are nested deeply."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.programs: list[Program] = []
        self.redirections: list[Redirection] = []
        self.substitutions: list[Substitution] = []
        self.functions: list[str] = []
        self.unclear = ""
        byte_sizes = (len(char.encode()) for char in _for_grammar(command))
        self._starts = None if command.isascii() else list(accumulate(byte_sizes, initial=0))
        """Offset of each character in the bytes that were parsed; None: the offset equals the index."""
        self._late_words: dict[int, list[Word]] = {}
        """Words of a program that stand after a redirection, by the node of its command. The tree has them there."""

    def read(self, root: "Node") -> None:
        """Collect everything below `root`."""
        # Each node with whether its input comes from a pipe.
        to_read: list[tuple[Node, bool]] = [(root, False)]
        nodes_read, leaves = 0, list[Span]()
        while to_read:
            node, piped = to_read.pop()
            nodes_read += 1
            if nodes_read > _MAX_NODES:
                self.unclear = "it is too long to be read as a whole"
                return
            self._read_node(node, piped=piped)
            after_pipe = False
            for child in node.children:
                after_pipe = after_pipe or (node.type == "pipeline" and child.type in ("|", "|&"))
                to_read.append((child, piped or after_pipe))
            if not node.children:
                leaves.append(self._span_of(node))
        ends = [0, *(end for _, end in sorted(leaves))]
        starts = [*(start for start, _ in sorted(leaves)), len(self.command)]
        # The grammar skips an escaped space, which to bash is a character of a word.
        if any(self.command[end:start].replace("\\\n", "").strip() for end, start in zip(ends, starts, strict=True)):
            self.unclear = _NOT_UNDERSTOOD

    def names_in_pipeline(self, last: "Node") -> tuple[str, ...]:
        """Return the names of the programs before `last`, the end of a pipeline, and its own."""
        start, end = self._span_of(last)
        before = [program for program in self.programs if program.span[0] < start]
        own = [program for program in self.programs if start <= program.span[0] < end and last.type == "command"]
        names = [program.words[0].text or "" for program in sorted(before, key=attrgetter("span"))]
        return (*names, own[0].words[0].text or "" if own else "")

    def _read_node(self, node: "Node", *, piped: bool) -> None:
        match node.type:
            case "command" | "declaration_command" | "unset_command":
                self._read_command(node, piped=piped)
            case "redirected_statement":
                self._keep_late_words(node)
            case "file_redirect":
                self._read_redirection(node)
            case "variable_assignment" if _ASSIGNMENT.match(self._source_of(node)) is None:
                self.unclear = _NOT_UNDERSTOOD
            case "test_command" | "compound_statement" | "negated_command" if not _OPENING.match(self._source_of(node)):
                self.unclear = _NOT_UNDERSTOOD
            case "word" | "simple_expansion" if any(map(str.isspace, _ESCAPED.sub("", self._source_of(node)))):
                self.unclear = _NOT_UNDERSTOOD
            case "file_descriptor" if not self._source_of(node).strip("{}").isalnum():
                self.unclear = _NOT_UNDERSTOOD
            case "function_definition":
                name = node.child_by_field_name("name")
                self.functions.append(self._source_of(name) if name is not None else "")
            case kind if kind in _SUBSTITUTIONS:
                self.substitutions.append(Substitution(_SUBSTITUTIONS[kind], self._span_of(node)))

    def _read_command(self, node: "Node", *, piped: bool) -> None:
        words: list[Word] = []
        assigned: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment" and not words:
                assigned.append(self._source_of(child).partition("=")[0].rstrip("+"))
            elif child.type not in _NOT_SIMPLE and child.end_byte > child.start_byte:
                words.append(self._word_of(child))
        if not words:
            return
        late = self._late_words.pop(node.id, ())
        words = sorted([*words, *late], key=lambda word: word.span)
        between = [self.command[word.span[1] : following.span[0]] for word, following in pairwise(words)]
        between = [text.replace("\\\n", "") for text in between]
        # After a word == or =~ the grammar reads the next line as one more word of the command.
        if not all(between) or any("\n" in text for text in between):
            self.unclear = _NOT_UNDERSTOOD
        # The grammar takes the descriptor of a here-string for a word.
        if any(_DESCRIPTOR.match(self.command, word.span[0]) for word in words):
            self.unclear = _NOT_UNDERSTOOD
        first = words[0].source
        if first in RESERVED and (first != "time" or late or not _is_plain_time(words)):
            self.unclear = f"{first} is not understood"
        self.programs.append(Program(tuple(words), tuple(assigned), piped))

    def _keep_late_words(self, statement: "Node") -> None:
        """Give the words after a redirection, as in ``sudo >log rm x``, to the command that it follows."""
        late: list[Node] = []
        for part in _redirects(statement):
            closes = any(child.type in ("<&-", ">&-") for child in part.children)
            late += part.children_by_field_name("destination")[0 if closes else 1 :]
            late += part.children_by_field_name("argument")
        command = statement.child_by_field_name("body")
        while late and command is not None and command.type not in _COMMANDS:
            command = command.named_children[-1] if command.type in _ENDING_WITH_COMMAND else None
        if late and command is None:
            self.unclear = "words stand after a redirection"
        elif command is not None:
            self._late_words.setdefault(command.id, []).extend(map(self._word_of, late))

    def _read_redirection(self, node: "Node") -> None:
        target = node.child_by_field_name("destination")
        operator = next((child.type for child in node.children if child.type in _OPERATORS), "")
        if target is None or operator in ("<&-", ">&-"):
            return
        word = self._word_of(target)
        if operator in (">&", "<&") and (word.source.removesuffix("-").isdigit() or word.source == "-"):
            return  # to or from a descriptor, not a file
        writes = operator in _WRITING or operator == ">&" or node.has_error
        self.redirections.append(Redirection(word, writes, self._span_of(node)))

    def _word_of(self, node: "Node") -> Word:
        return Word(self._text_of(node), self._source_of(node), self._span_of(node))

    def _text_of(self, node: "Node") -> str | None:
        """Return a word as the program gets it, before globs; None if the shell has to compute it."""
        parts = list(self._parts_of(node))
        return None if None in parts else "".join(part for part in parts if part is not None)

    def _parts_of(self, node: "Node") -> Iterator[str | None]:
        source = self._source_of(node)
        match node.type:
            case "command_name" | "concatenation":
                braces = [child for child in node.children if child.type == "word" and self._source_of(child) == "{"]
                if braces and ("," in source or ".." in source):
                    yield None
                for child in node.children:
                    yield from self._parts_of(child)
            case "word" | "number" | "extglob_pattern" | "regex" | "test_operator":
                yield _ESCAPED.sub(_without_line_feeds, source)
            case "raw_string":
                yield source[1:-1]
            case "string":
                known = all(child.type in ('"', "string_content") for child in node.children)
                inner = _ESCAPED_IN_QUOTES.sub(_without_line_feeds, source[1:-1])
                yield inner if known and len(source) > 1 else None
            case "variable_assignment" | "variable_name":
                value = node.child_by_field_name("value")
                if value is None:
                    yield source
                else:
                    name_and_sign = source[: self._span_of(value)[0] - self._span_of(node)[0]]
                    yield name_and_sign
                    yield from self._parts_of(value)
            case _ if not node.is_named and not {"$", "`"} & set(source):  # $"…" is translated, $$ is a number
                yield source
            case _:
                if source == "`":
                    self.unclear = _NOT_UNDERSTOOD
                yield None

    def _source_of(self, node: "Node") -> str:
        start, end = self._span_of(node)
        return self.command[start:end]

    def _span_of(self, node: "Node") -> Span:
        if self._starts is None:
            return node.start_byte, node.end_byte
        return bisect_left(self._starts, node.start_byte), bisect_left(self._starts, node.end_byte)


def _is_plain_time(words: list[Word]) -> bool:
    """Return True if bash reads these words after the keyword `time` as the grammar does.

    The keyword takes -p alone, and only first. Bash runs any other option, or a later -p, as a program.
    """
    timed = dropwhile(lambda text: text in ("-p", "--"), (word.text or "" for word in words[1:]))
    name = next((text for text in timed if not _ASSIGNMENT.match(text)), "")
    quoted = any(_ASSIGNMENT.match(word.text or "") and not _ASSIGNMENT.match(word.source) for word in words)
    return not (quoted or name.startswith("-") or name in RESERVED)


def _redirects(statement: "Node") -> Iterator["Node"]:
    """Yield the redirections of a statement, also those behind the start of a here document."""
    for part in statement.children_by_field_name("redirect"):
        yield part
        yield from _redirects(part)


def _for_grammar(command: str) -> str:
    """Return the command with a sign for each character beyond U+00FF, which is no letter and no space to bash either.

    The scanner of tree-sitter-bash 0.25 passes characters to the C library's `isdigit`, which reads
    outside of its table then and can end the process.
    """
    return _BEYOND_A_BYTE.sub("¤", command)


def _without_line_feeds(escaped: re.Match[str]) -> str:
    """Return what follows a backslash. A line feed there joins two lines."""
    return escaped[1].strip("\n")
