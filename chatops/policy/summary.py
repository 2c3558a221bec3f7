"""Describe what a role may do. The first screen, the role picker and the command line show these words.

One clause says what it does without asking, one what it asks about first, one how far its calls reach.
"""

from collections.abc import Sequence

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import BUILT_IN, ToolSpec, Verdict
from chatops.domain.wording import list_words, plural
from chatops.policy.grant import Grant


@frozen_dataclass(kw_only=False)
class _Kind:
    """Tools that do the same kind of thing: what a role does with them, and what it asks before."""

    does: str
    asks: str


_READS = _Kind("reads files", "reading files")
_SEARCHES_DOCUMENTS = _Kind("searches documents", "searches of documents")
_EDITS = _Kind("edits files", "edits")
_RUNS = _Kind("runs commands", "commands")
_RUNS_CODE = _Kind("runs code", "code")
_FETCHES = _Kind("fetches web pages", "web pages")
_SEARCHES_WEB = _Kind("searches the web", "web searches")
_KINDS = (_READS, _SEARCHES_DOCUMENTS, _EDITS, _RUNS, _RUNS_CODE, _FETCHES, _SEARCHES_WEB)


def rights_in_words(grant: Grant) -> tuple[str, ...]:
    """Return what the model may do, as clauses: ``reads files``, ``asks before edits and commands``, ``no network``."""
    if not grant.tools:
        return ("no tools",)
    verdicts = {tool: grant.judge_tool(tool.name).verdict for tool in grant.tools}
    others = [tool for tool in grant.tools if tool.source != BUILT_IN]
    ruled = {answer.tool for answer in grant.answers}
    unasked, asked = [], []
    for kind in _KINDS:
        known = [tool for tool in grant.tools if tool.source == BUILT_IN and _kind_of(tool) is kind]
        if known and all(verdicts[tool] is Verdict.ALLOW for tool in known):
            unasked.append(kind.does)
        elif known:
            # A rule of the role or the command line answers for some of them.
            asked.append(f"most {kind.asks}" if any(tool.name in ruled for tool in known) else kind.asks)
    allowed = sum(verdicts[tool] is Verdict.ALLOW for tool in others)
    if allowed:
        unasked.append(f"calls {plural(allowed, 'other tool')}")
    if rest := len(others) - allowed:
        asked.append(plural(rest, "other tool"))
    clauses = [list_words(unasked)] if unasked else []
    if asked:
        clauses.append(f"asks before {list_words(asked)}")
    reach = _reach_clauses(grant, {_kind_of(tool) for tool in grant.tools if tool.source == BUILT_IN}, others)
    copy = ["works on a copy"] if grant.contain and grant.may_contain else []
    return (*copy, *clauses, *reach) if clauses else (*copy, "keeps notes", *reach)


def _kind_of(tool: ToolSpec) -> _Kind | None:
    """Return what a built-in tool does; None if it only keeps notes."""
    known = tool.capabilities
    if known.writes:
        return _EDITS
    if known.command:
        return _RUNS
    if known.code:
        return _RUNS_CODE
    if known.url:
        return _FETCHES
    if tool.asks_after_reading:
        return _SEARCHES_WEB
    if known.path:
        return _READS
    return _SEARCHES_DOCUMENTS if known.reads_workspace else None


def _reach_clauses(grant: Grant, kinds: set[_Kind | None], others: Sequence[ToolSpec]) -> tuple[str, ...]:
    """Return how far calls reach. Of tools that chatops did not write nothing is known."""
    sandbox, runs = grant.sandbox, bool({_RUNS, _RUNS_CODE} & kinds)
    if runs and sandbox is not None and sandbox.network:
        return ("commands reach the network",)
    if runs and sandbox is not None and sandbox.hosts:
        return (f"commands reach {plural(len(sandbox.hosts), 'host')}",)
    if others or {_FETCHES, _SEARCHES_WEB} & kinds:
        return ("commands without network",) if runs else ()
    return ("no network",)
