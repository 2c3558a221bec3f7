"""Tools, calls of tools, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from chatops.domain.canonical import digest
from chatops.domain.ids import CallId
from chatops.domain.rights import AccessLevel, Verdict

ALIASES: Mapping[str, str] = MappingProxyType({"code_interpreter": "python_exec"})
"""Other names of built-in tools, used by models and registries."""


def tool_name(name: str) -> str:
    """Return the name of the tool that `name` means: itself, unless it is an alias."""
    return ALIASES.get(name, name)


BUILT_IN = "built-in"
"""Source of the tools that come with chatops."""
KILLED = "killed (out of memory?)"
"""Text for a program that ended with a SIGKILL not sent by chatops: usually the kernel was out of memory."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    reads_workspace: bool = False
    """True if its result may contain workspace data; later outbound calls then ask."""
    asks_after_reading: bool = False
    """True if it sends text off the machine, so that it asks once the session has read workspace files."""
    timeout_s: float = 60.0
    source: str = BUILT_IN
    steps: tuple[str, ...] = ()
    """Names of the workflow steps that it is bound to, as ``STEP`` or ``WORKFLOW.STEP``; empty: usable everywhere."""


def definition_of(spec: ToolSpec) -> str:
    """Return a digest of what an approval takes the tool for. Rights and limits are left out: they are judged again."""
    return digest(spec.name, spec.description, spec.schema, spec.read_only, spec.idempotent, spec.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A call as the model wrote it. `arguments` is its unparsed text."""

    name: str
    arguments: str
    provider_id: str = ""
    repairs: tuple[str, ...] = ()
    """What the parser had to assume; such a call always asks the user."""
    problem: str = ""
    """Why it cannot run although it was recognised (cut off, two objects in one)."""
    guessed: bool = False
    """True if it may be text about a call rather than a call. The model is told so once per turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call with an id made by chatops. `arguments` is what the model wrote, or the user's edit of it."""

    id: CallId
    name: str
    arguments: str
    provider_id: str = ""
    repairs: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of a call: where (`path`, e.g. ``edits[0].old``), what, and the given value."""

    path: str
    message: str
    given: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """Facts that the inspection of a call found: judged, shown to the user, digested.

    They include everything that a dialog shows and that an approval binds. The text of arguments is canonical JSON.
    Paths are absolute and resolved.
    """

    arguments: str
    problems: tuple[Problem, ...] = ()
    may_heal: bool = False
    """True if the problems are not in the arguments, so that an earlier call may remove them."""
    repairs: tuple[str, ...] = ()
    refusal: str = ""
    """Why the call is refused in any case: a protected target. Empty: it is not."""
    caution: str = ""
    """Why this call asks although the tool itself would not."""
    reveals: str = ""
    """What the command may read that `file_read` refuses or asks about, as a sentence. No rule that allows further
    words answers for such a call."""
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
    sandbox: str = ""
    """The sandbox level that the call would run at, for display."""
    network: bool = False
    by_hand: str = ""
    """Why only a decision of the user on this very call permits it, whatever rules say."""
    definition: str = ""
    """A digest of the tool's definition; a difference makes the call ask again. Empty: stored by a
    version without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """Result of a tool. `content` is text for the model, cut to size if `truncated`."""

    outcome: Outcome
    content: str
    truncated: bool = False
    duration_ms: int = 0
