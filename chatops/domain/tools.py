"""Tools, calls of tools and what came of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from chatops.domain.canonical import digest
from chatops.domain.ids import CallId
from chatops.domain.rights import AccessLevel, Verdict

ALIASES: Mapping[str, str] = MappingProxyType({"code_interpreter": "python_exec"})
"""Other names that models and registries have for built-in tools."""


def tool_name(name: str) -> str:
    """The name of the tool that `name` means: itself, unless it is an alias."""
    return ALIASES.get(name, name)


BUILT_IN = "built-in"
"""Source of the tools that come with chatops."""
KILLED = "killed (out of memory?)"
"""How a program ended that SIGKILL ended, not sent by us: as a rule that is the kernel, for want of memory."""


class Outcome(StrEnum):
    """What came of a call."""

    SUCCESS = "success"
    FAILED = "failed"
    """It ran and reported a failure."""
    INVALID = "invalid"
    """It could not run as written: unknown tool, broken or wrong arguments."""
    DENIED = "denied"
    """Policy or a person refused it; it did not run."""
    INTERRUPTED = "interrupted"
    """It was stopped, or the turn was, before it ended."""
    UNKNOWN = "unknown"
    """It was started and nothing tells whether it took effect."""


class Exposure(IntEnum):
    """How much of the workspace a command gets in the sandbox; a higher value is less."""

    WHOLE = 0
    """The user has decided on this very call."""
    MASKED = 1
    """A rule allowed it, so what may hold secrets is hidden."""
    READ_ONLY = 2
    """Likewise, and nothing in the workspace can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as policy and model see it. `schema` is canonical JSON text, so that a spec is hashable."""

    name: str
    description: str
    schema: str
    min_access: AccessLevel = AccessLevel.OPERATOR
    verdict: Verdict = Verdict.ASK
    read_only: bool = False
    """Changes nothing, so it may run beside other reads and again after a crash."""
    idempotent: bool = False
    """Running it twice is as running it once, so a crash may repeat it."""
    reconcilable: bool = False
    """The tool can tell from the outside world whether a started call took effect."""
    reads_workspace: bool = False
    """Its result may hold what the workspace holds; later outbound calls ask (surface, section 4)."""
    asks_after_reading: bool = False
    """Sends text off the machine, so it asks once the session has read workspace files."""
    timeout_s: float = 60.0
    source: str = BUILT_IN
    steps: tuple[str, ...] = ()
    """Names of the workflow steps that it is bound to, as ``STEP`` or ``WORKFLOW.STEP``; empty: it may be used
    everywhere."""


def definition_of(spec: ToolSpec) -> str:
    """A digest of what a person who approves a call takes the tool for; its rights and limits are judged anew."""
    return digest(spec.name, spec.description, spec.schema, spec.read_only, spec.idempotent, spec.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A call as the model wrote it: `arguments` is its text, whatever that is."""

    name: str
    arguments: str
    provider_id: str = ""
    repairs: tuple[str, ...] = ()
    """What the reader had to assume to read it; such a call always goes to the person."""
    problem: str = ""
    """Why it cannot be run although it was recognised (cut off, two objects in one)."""
    guessed: bool = False
    """It may be text about a call and not one: the model is told of it once in a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call with an id of ours. `arguments` is what the model wrote, or a person's edit of it."""

    id: CallId
    name: str
    arguments: str
    provider_id: str = ""
    repairs: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a call: where (`path`, e.g. ``edits[0].old``), what, and what was given."""

    path: str
    message: str
    given: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What inspection found out about a call: judged, shown to the person, digested.

    Everything a dialog shows and everything that an approval binds is in here; the text of arguments
    is canonical JSON. Paths are absolute and resolved.
    """

    arguments: str
    problems: tuple[Problem, ...] = ()
    may_heal: bool = False
    """The problems concern the world and not the arguments: an earlier call may cure them."""
    repairs: tuple[str, ...] = ()
    refusal: str = ""
    """A protected target: refused whatever any verdict says."""
    caution: str = ""
    """Why this call asks although the tool itself would not."""
    reveals: str = ""
    """What the command may read that `file_read` refuses or asks about, as a sentence: no rule that allows further
    words answers for it."""
    cwd: str = ""
    workspace: str = ""
    """Relative path rules start here. Not digested: `paths` are absolute."""
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    command: str = ""
    """The exact command text, for tools that run one."""
    argv: tuple[str, ...] = ()
    """The words of `command` if it is one simple command without operators or expansion, else empty."""
    interpreter: tuple[str, ...] = ()
    """The program, with its options, that gets `command` as its last word; empty: `argv` runs, else a shell."""
    diff: str = ""
    """Unified diff of what an edit would change."""
    hashes: tuple[str, ...] = ()
    """Content of the targets before the call, as ``<path> <sha256>``; a difference asks again."""
    sandbox: str = ""
    """The level the call would run at, in words."""
    network: bool = False
    by_hand: str = ""
    """Why only a person's answer to this very call permits it, whatever rules say."""
    definition: str = ""
    """A digest of what the tool says of itself; a difference asks again. Empty: stored before this was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool gave back. `content` is text for the model, cut to size where `truncated` says so."""

    outcome: Outcome
    content: str
    truncated: bool = False
    duration_ms: int = 0
