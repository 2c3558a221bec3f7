"""Tools, calls of tools and their results, and the terms of the policy about them: access levels and verdicts."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Literal

from chatops.domain.canonical import digest, json_or_text, parse_json
from chatops.domain.endings import Ending
from chatops.domain.files import FileRef
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.domain.sandbox import NARROWEST, Lack, SandboxSpec
from chatops.domain.sanitize import sanitize
from chatops.domain.usage import Usage

ALIASES: Mapping[str, str] = MappingProxyType({"code_interpreter": "python_exec"})
"""Other names of built-in tools, as models and registries use them."""
LevelWord = Literal["viewer", "user", "operator", "admin"]
VerdictWord = Literal["allow", "ask", "deny"]


class AccessLevel(IntEnum):
    """The highest level of access of a user. A higher level includes the lower ones."""

    VIEWER = 0
    USER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The level as written in the registry."""
        return self.name.lower()


class Verdict(StrEnum):
    """The decision of the policy on a call. Ordered by strictness, see `strictness`."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """Strictness as a number: 0 for allow, 1 for ask, 2 for deny."""
        return ("allow", "ask", "deny").index(self.value)


def tool_name(name: str) -> str:
    """Return the name of the tool that `name` means: itself, unless it is an alias."""
    return ALIASES.get(name, name)


@frozen_dataclass
class Capabilities:
    """Effects of a tool's calls beyond returning a result. Policy, engine and UIs ask this and never a tool's name.

    `command`, `code`, `url` and `path` name arguments; empty: the tool has no such argument.
    """

    command: str = ""
    """Argument with a command line to run. Rules for the tool are patterns of words."""
    code: str = ""
    """Argument with source code to run. No pattern can tell what code does."""
    url: str = ""
    """Argument with a URL to fetch. Rules for the tool are hosts."""
    path: str = ""
    """Argument that names a file or a folder. Rules for the tool are globs, as for a tool without any of these."""
    writes: str = ""
    """Path of the file that a call writes, as a template over its arguments: ``{path}``, ``flows/{name}.json``."""
    reads_workspace: bool = False
    """True if its result may contain data of the workspace; later outbound calls then ask."""
    returns_content: bool = False
    """True if its result is the content of files, which says nothing about how the call went."""
    verb: str = ""
    """Name that the user sees, such as ``Read``; empty: the tool's own name."""
    counts: tuple[str, str] = ("", "")
    """Nouns for one and for many of what `ResultFacts.count` counts. An empty second is the first with an s."""
    in_diff: tuple[str, ...] = ()
    """Names of the arguments whose whole text the diff of a call shows."""
    folds: bool = False
    """True if calls in a row that succeeded are shown as one line."""
    delegates: bool = False
    """True if a call is the turn of another role, see `policy.delegation`."""

    @property
    def runs_anything(self) -> bool:
        """True if the model writes what runs, so that a rule without a pattern would permit everything."""
        return bool(self.command or self.code)

    @property
    def has_pattern(self) -> bool:
        """True if what a call does depends on arguments that rules should name."""
        return self.runs_anything or bool(self.url or self.path or self.writes)


NO_CAPABILITIES = Capabilities()
_READS = Capabilities(path="path", reads_workspace=True, returns_content=True)
_WRITES = Capabilities(path="path", writes="{path}", reads_workspace=True)
_FOR_DISPLAY = ("verb", "counts", "in_diff", "folds")
"""Fields of `Capabilities` that say only how a call is drawn."""
BUILT_IN_TOOLS: Mapping[str, Capabilities] = MappingProxyType(
    {
        "file_read": replace(_READS, verb="Read", counts=("line", ""), folds=True),
        "file_list": replace(_READS, verb="List", counts=("entry", "entries")),
        "file_search": replace(_READS, verb="Search", counts=("match", "matches")),
        "file_write": replace(_WRITES, verb="Write", in_diff=("content",)),
        "file_edit": replace(_WRITES, verb="Edit", in_diff=("old", "new")),
        "scratch_write": Capabilities(),
        "scratch_read": Capabilities(),
        "knowledge_search": Capabilities(reads_workspace=True),
        "skill_read": Capabilities(),
        "memory_read": Capabilities(),
        "memory_write": Capabilities(in_diff=("text",)),
        "web_search": Capabilities(verb="Web search"),
        "wolfram_alpha": Capabilities(),
        "web_fetch": Capabilities(url="url", verb="Fetch"),
        "shell_exec": Capabilities(command="command", reads_workspace=True, verb="Shell"),
        "python_exec": Capabilities(code="code", reads_workspace=True, verb="Python"),
        "delegate": Capabilities(verb="Delegate", delegates=True),
    }
)
"""The built-in tools. Each takes its capabilities from here, so that rules can be read without loading the tools."""


def built_in_capabilities(tool: str) -> Capabilities:
    """Return the capabilities of the built-in tool of this name or alias; of any other tool, none."""
    return BUILT_IN_TOOLS.get(tool_name(tool), NO_CAPABILITIES)


CONTAINED_APPLY = "contained_apply"
"""Name of the call that applies the changes of a contained turn. The engine makes it; no model can call it."""
BUDGET_EXTEND = "budget_extend"
"""Name of the call that asks whether a turn may spend more. The engine makes it; no model can call it."""
ENGINE_CALLS = (CONTAINED_APPLY, BUDGET_EXTEND)


def is_undo(arguments: str) -> bool:
    """Return True if these arguments of `CONTAINED_APPLY` ask to take changes back."""
    given = json_or_text(arguments)
    return isinstance(given, dict) and given.get("undo") is True


_APPLY, _UNDO, _BUDGET = "Apply", "Undo", "Budget"
"""Verbs of the calls of the engine, which are no tools and have no capabilities."""
_TAKEN_VERBS = {verb.casefold() for verb in (_APPLY, _UNDO, _BUDGET, *(own.verb for own in BUILT_IN_TOOLS.values()))}
"""Verbs that only our own calls are shown by, so that no other tool can pass for one of them."""


def shown_verb(tool: str, known: Capabilities, arguments: str = "") -> str:
    """Return the name to show for a tool. Another tool cannot have the name that one of ours is shown by."""
    if tool == CONTAINED_APPLY:
        return _UNDO if is_undo(arguments) else _APPLY
    if tool == BUDGET_EXTEND:
        return _BUDGET
    if known.verb and tool_name(tool) in BUILT_IN_TOOLS:
        return known.verb
    declared = _one_line(known.verb)
    if declared and declared.casefold() not in _TAKEN_VERBS:
        return declared
    name = _one_line(tool) or "(no name)"
    return f'"{name}"' if name.casefold() in _TAKEN_VERBS else name


def _one_line(text: str) -> str:
    return sanitize(" ".join(text.split()), newlines=False)


BUILT_IN = "built-in"
"""Source of the tools that come with chatops."""


class Outcome(StrEnum):
    """Outcome of a call."""

    SUCCESS = "success"
    FAILED = "failed"
    """It ran and reported a failure."""
    INVALID = "invalid"
    """It could not run as written: unknown tool, malformed or wrong arguments."""
    DENIED = "denied"
    """Policy or a user refused it; it did not run."""
    INTERRUPTED = "interrupted"
    """It was stopped, or its turn was, before it ended."""
    UNKNOWN = "unknown"
    """It was started, and it is not known whether it took effect."""


class Exposure(IntEnum):
    """The part of the workspace that a command gets in the sandbox; a higher value is less."""

    WHOLE = 0
    """All of it: the user has decided on this very call."""
    MASKED = 1
    """Without files that may hold secrets: a rule allowed the call."""
    READ_ONLY = 2
    """As MASKED, and nothing in the workspace can be written."""


@frozen_dataclass
class ToolSpec:
    """A tool as policy and models see it. `schema` is canonical JSON text, so that a spec is hashable."""

    name: str
    description: str
    schema: str
    min_access: AccessLevel = AccessLevel.OPERATOR
    verdict: Verdict = Verdict.ASK
    read_only: bool = False
    """True if it changes nothing, so that it may run beside other reads and again after a crash."""
    idempotent: bool = False
    """True if running it twice has the same effect as once, so that it may be repeated after a crash."""
    reconcilable: bool = False
    """True if the tool can find out whether a started call took effect."""
    capabilities: Capabilities = NO_CAPABILITIES
    asks_after_reading: bool = False
    """True if it sends text off the machine, so that it asks once the session has read workspace files."""
    timeout_s: float = 60.0
    source: str = BUILT_IN
    output_schema: str = ""
    """JSON Schema of the structured result, canonical; empty: the tool declares none."""
    steps: tuple[str, ...] = ()
    """Names of the workflow steps that it is bound to, as ``STEP`` or ``WORKFLOW.STEP``; empty: usable everywhere."""


def written_path(known: Capabilities, arguments: str) -> str:
    """Return the path of the file that a call with these arguments (JSON) writes; empty if it writes none."""
    try:
        given = parse_json(arguments)
        return known.writes.format_map(given) if isinstance(given, Mapping) else ""
    except (ValueError, LookupError):
        return ""


def changed_lines(diff: str) -> tuple[int, int]:
    """Return how many lines a unified diff adds and removes."""
    _, _, hunks = f"\n{diff}".partition("\n@@")
    return hunks.count("\n+"), hunks.count("\n-")


def definition_of(spec: ToolSpec) -> str:
    """Return a digest of what an approval takes the tool for.

    It leaves out rights and limits, which are judged again, and fields that only say how a call is drawn.
    """
    return digest(
        spec.name,
        spec.description,
        spec.schema,
        spec.output_schema,
        spec.read_only,
        spec.idempotent,
        spec.source,
        {
            name: value
            for name, value in asdict(spec.capabilities).items()
            # `delegates` is newer than stored digests, which stay valid because it is left out when empty.
            if name not in _FOR_DISPLAY and (value or name != "delegates")
        },
    )


@frozen_dataclass
class RawCall:
    """A call as the model wrote it. `arguments` is its unparsed text."""

    name: str
    arguments: str
    provider_id: str = ""
    repairs: tuple[str, ...] = ()
    """Assumptions that the parser had to make; such a call always asks the user."""
    problem: str = ""
    """Reason why it cannot run although it was recognised (cut off, two objects in one)."""
    guessed: bool = False
    """True if it may be text about a call rather than a call. The model is told so once per turn."""
    extra_content: str = ""
    """JSON object text that the server attached for itself, such as Gemini's thought signature; empty if none."""


@frozen_dataclass
class ToolCall(RawCall):
    """A call with an id made by chatops. `arguments` is what the model wrote, or the user's edit of it.

    `extra_content` is sent back with the call, unchanged, to the model that made it.
    """

    id: CallId


@frozen_dataclass
class Problem:
    """One problem of a call: where (`path`, e.g. ``edits[0].old``), what, and the given value."""

    path: str
    message: str
    given: str = ""


@frozen_dataclass
class ServerFacts:
    """The MCP server that runs a call, and its tool as the server describes it."""

    name: str
    """Name of the server in the registry."""
    origin: str
    """The command that starts the server, or its URL; from the registry."""
    tool: str
    """Name that the server gives the tool; untrusted text."""
    description: str
    """The server's own words about the tool; untrusted text."""
    by_url: bool = False
    """True if `origin` is a URL."""


@frozen_dataclass
class DelegationFacts:
    """The role that a call hands a task to, compared with the rights in force."""

    role: str
    model: str
    """Label of the model that is asked first."""
    adds: tuple[str, ...]
    """Everything that the role adds to the rights in force, each in a phrase; empty: nothing."""
    grant: str
    """Digest of the grant that the child turn would get."""


@frozen_dataclass
class CallFacts:
    """Facts that the inspection of a call found: judged, shown to the user, digested.

    They include everything that a dialog shows and that an approval binds. The text of arguments is canonical JSON.
    Paths are absolute and resolved.
    """

    arguments: str
    problems: tuple[Problem, ...] = ()
    may_resolve: bool = False
    """True if the problems are not in the arguments, so that an earlier call may remove them."""
    repairs: tuple[str, ...] = ()
    refusal: str = ""
    """Reason why the call is refused in any case: a protected target. Empty: it is not."""
    caution: str = ""
    """Reason why this call asks although the tool itself would not."""
    reveals: str = ""
    """Files that the command may read although `file_read` would refuse them or ask, as a sentence. A rule answers for
    such a call only if it names every word, and the program runs no code of the folder."""
    cwd: str = ""
    workspace: str = ""
    """Start of relative path rules. Not digested, because `paths` are absolute."""
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    command: str = ""
    """The exact command text, for tools that run a command."""
    argv: tuple[str, ...] = ()
    """The words of `command` if it is one simple command without operators or expansion, else empty."""
    interpreter: tuple[str, ...] = ()
    """The program, with its options, that gets `command` as its last argument. Empty: `argv` is run if there is one,
    else a shell."""
    diff: str = ""
    """Unified diff of what an edit would change."""
    hashes: tuple[str, ...] = ()
    """Content of the targets before the call, as ``<path> <sha256>``; a difference makes the call ask again."""
    creates: bool = False
    """True if `diff` makes a new file, for display. False also if stored by a version without it."""
    sandbox: str = ""
    """The sandbox level that the call would run at, for display."""
    network: bool = False
    lacks: tuple[Lack, ...] = ()
    """Reasons for which the command will probably fail in its sandbox, for display."""
    extra: SandboxSpec = NARROWEST
    """Wider limits that the user can grant to this call alone; `NARROWEST` if there are none."""
    extra_sandbox: str = ""
    """As `sandbox`, if the user permits `extra`."""
    needs_user: str = ""
    """Reason why only a decision of the user on this very call permits it, whatever rules say."""
    contained: str = ""
    """Name of the copy of the workspace that the call works on, in a contained turn; empty: the workspace itself."""
    definition: str = ""
    """Digest of the tool's definition; a difference makes the call ask again. Empty: no tool has inspected it."""
    credentials: tuple[str, ...] = ()
    """Credentials that the command can use without seeing them, each in words. No rule made without them answers."""
    sandboxed: bool = False
    """True if a sandbox would confine the program that the call runs. Remembered rules depend on it."""
    folder: str = ""
    """Identity of the workspace folder, see `config.folder_identity`. Empty: not known. Remembered rules depend on
    it; approvals are bound to `cwd` and `paths`."""
    server: ServerFacts | None = None
    """The MCP server that runs the call; None: chatops runs it."""
    delegation: DelegationFacts | None = None
    """The role that a call delegates to; None: it does not delegate."""

    def relative(self, path: str) -> str:
        """Return a path in the workspace relative to it, any other as it is."""
        return path.removeprefix(self.workspace.rstrip("/") + "/") if self.workspace else path


class ResultSource(StrEnum):
    """Origin of the result of a call."""

    CALL = "call"
    """The tool, or a check of the call."""
    EARLIER_ATTEMPT = "earlier_attempt"
    """The same call in an earlier attempt at a workflow step. It did not run again."""
    USER = "user"
    """The user denied the call, or said what became of it."""
    STOPPED = "stopped"
    """The user stopped the turn before the call ran."""
    SURPLUS = "surplus"
    """Nothing: the reply had too many calls, and this one was not looked at."""
    LOST = "lost"
    """Nothing: no result was recorded, and this one stands in for it."""
    HELD = "held"
    """Nothing: the call never started, in a copy of its session that cannot be saved."""
    IMPORTED = "imported"
    """A file that was imported. The call never ran here, and nothing of its result was checked."""


NOT_RUN_HERE = "imported, not run here"
"""Mark of an imported result for the user."""


@frozen_dataclass
class SkillUse:
    """Tools that a skill permits while it is in use. It permits nothing that the role does not."""

    name: str
    tools: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    """Tools that ask before each call."""


@frozen_dataclass
class ResultFacts:
    """Facts about a result, apart from its text, which is for the model."""

    source: ResultSource = ResultSource.CALL
    reason: str = ""
    """Short reason for the user: why an invalid call did not run, or the reason that the user gave for a denial."""
    ending: Ending | None = None
    """End of the program that the call ran; None: it ran none, or that is not known."""
    problems: tuple[Problem, ...] = ()
    """Problems that a validation found."""
    wrote: str = ""
    """The file that the call wrote, as the arguments name it."""
    reads_workspace: bool = False
    """True if the result may contain data of the workspace."""
    diff: str = ""
    """Unified diff of what the call changed in that file. Its end may be missing."""
    added: int = 0
    """Number of lines that the call added to the file."""
    removed: int = 0
    count: int | None = None
    """Number of lines that were read, of entries that were listed, or of matches that were found."""
    so_far: int = 0
    """For a call that was stopped: number of characters at the end of the content that are its output until then."""
    refused_hosts: tuple[str, ...] = ()
    """``HOST:PORT`` that the command asked its sandbox for in vain; untrusted text, made visible."""
    files: tuple[FileRef, ...] = ()
    """Files that the call returned, kept by `ToolContext.keep_file`. The content of the result names them."""
    skill: SkillUse | None = None
    """The skill that the call put in use for the rest of the turn, if it restricts tools."""
    usage: Usage | None = None
    """What the models of a child turn have used. It counts for the turn of the call too."""
    not_chosen: tuple[str, ...] = ()
    """For the changes of a contained turn: the paths, in the workspace, that the user did not choose to apply."""


NO_FACTS = ResultFacts()


@frozen_dataclass
class ToolResult:
    """Result of a tool. `content` is text for the model, cut to size if `truncated`."""

    outcome: Outcome
    content: str
    truncated: bool = False
    duration_ms: int = 0
    facts: ResultFacts = NO_FACTS


@frozen_dataclass
class CallEnd(ToolResult):
    """A call with its only result, whether it ran or not: what events, messages and screens say of it."""

    tool: str
    arguments: str
    """Arguments as run (the user may have edited them); canonical JSON if they could be parsed."""
    decided_by: str = ""
    """Author of the decision: ``policy``, ``rule: …``, a principal such as ``uid 1000 (ana)``."""


class Processes(StrEnum):
    """State of the processes of an interrupted attempt."""

    GONE = "gone"
    """No process was found."""
    STOPPED = "stopped"
    """Some were still running and have been stopped."""
    RUNNING = "running"
    """Some could not be stopped."""
    ELSEWHERE = "elsewhere"
    """The chatops process that started them is alive. So they are left alone, and it may start more."""
    RESTARTED = "restarted"
    """The attempt was started before the last restart of this machine, or in a container."""
    OTHER_MACHINE = "other machine"
    """The attempt was started on another machine. It may still run there, so nothing is done twice here."""
    UNSEEN = "unseen"
    """Processes cannot be inspected here."""


@frozen_dataclass
class Interruption:
    """Knowledge about attempt `attempt` of a call, which may have taken effect."""

    call_id: CallId
    attempt: int
    started_at: float | None = None
    """Seconds since the epoch, by the journal."""
    output: str = ""
    """Its output until then, cut to size; untrusted text."""
    processes: Processes = Processes.UNSEEN
    count: int = 0
    """Number of processes that `processes` is about."""
