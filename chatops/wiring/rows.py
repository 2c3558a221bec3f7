"""What the commands and the chat say in the same way: the rows of lists, and sentences about names, rules and runs."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from chatops.config.folder_identity import path_of
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId
from chatops.domain.wording import plural
from chatops.headless.screen import when
from chatops.policy.remembered import scope_words
from chatops.policy.rule_syntax import show_rule

if TYPE_CHECKING:
    from chatops.store.base import RuleRow, SessionInfo
    from chatops.store.store import Store


@frozen_dataclass
class RoleRow:
    """A role in the role switcher: what it may use here, for this user."""

    name: str
    model: str
    tools: tuple[str, ...]
    rights: tuple[str, ...] = ()
    """What it may do, as clauses; see `policy.summary`."""
    description: str = ""


@frozen_dataclass
class ModelRow:
    """A configured model. `name` is the registry's, `label` the usual name; empty if that is the same."""

    name: str
    label: str
    note: str = ""
    missing: str = ""
    """The reason why the model cannot be used here, in a sentence; empty if it can."""
    is_set_up: bool = True
    """False if it is as chatops brings it, so that nothing is known of it before its server was asked."""


@frozen_dataclass
class RuleItem:
    """A remembered rule in the picker of those to revoke."""

    id: str
    rule: str
    about: str
    """Where it answers, and when it was made and used."""


@frozen_dataclass
class SessionRow:
    """A stored session in the session picker."""

    id: SessionId
    title: str
    when: str
    """Text for the user, such as ``today 10:15``."""
    messages: int
    pending: int = 0
    """Number of calls that wait for a decision."""
    state: str = ""
    """The state of an unfinished turn, in one line; empty if it is finished."""
    run: str = ""
    """The state of a workflow run, such as ``make: to review`` or ``answered``; empty if it is not a run."""
    role: str = ""
    asks: tuple[str, ...] = ()
    """The calls that wait for a decision, such as ``shell_exec (git push)``."""
    copy_of: str = ""
    """Title and time of the session that it is a copy of; empty for an original."""
    source: str = ""
    """Id of the session that it is a copy of; empty for an original."""


def first_source(row: SessionRow, sources: Mapping[str, str]) -> str:
    """Return the id of the session that `row` is a copy of, or a copy of a copy of; `sources` are by session."""
    chain = [str(row.id)]
    while (source := sources.get(chain[-1], "")) and source not in chain:
        chain.append(source)
    return chain[-1]


@frozen_dataclass
class HitRow:
    """A text of a session that contains what was searched for."""

    session_id: SessionId
    title: str
    when: str
    text: str
    """The whole message, or the title."""
    message_id: str = ""
    """The message, which copies of the session share; empty for a title."""
    is_copy: bool = False
    """True if the session is a copy of another one."""
    folder: str = ""
    """The folder that the session was held in; empty if it is this workspace."""


@frozen_dataclass
class WorkflowRow:
    """A workflow in the list of workflows."""

    name: str
    steps: tuple[str, ...] = ()
    description: str = ""
    problem: str = ""
    """The reason why the workflow cannot be used, with file and line; empty if it can."""


@frozen_dataclass
class RunRow:
    """A workflow run that has not ended."""

    id: SessionId
    title: str
    state: str
    """Its state: ``make: 1 call to approve``, ``make: to review``, ``make: not finished``."""
    when: str


NO_TITLE = "(no title)"
TO_REVIEW = "awaiting_review"
"""`kind` of the phase of a run that waits for a review."""


def unknown_name(kind: str, name: str, known: Sequence[str]) -> ConfigError:
    """Return the error for an unknown name, with the known ones, nearest first."""
    near = get_close_matches(name, known, n=3, cutoff=0.4)
    ordered = [*near, *(other for other in known if other not in near)]
    listing = ", ".join(ordered) if ordered else "none"
    return ConfigError(f"There is no {kind} {name!r}.", advice=f"Known: {listing}.")


def runs_to_review(store: "Store", workspace: str | None = None) -> "list[SessionInfo]":
    """Return the runs with a step to review, of one workspace or of all, newest activity first."""
    return [info for info in store.runs(workspace=workspace) if info.run is not None and info.run.phase == TO_REVIEW]


def run_state(info: "SessionInfo") -> str:
    """Return the state of a run in a few words; empty for a chat."""
    run = info.run
    if run is None:
        return ""
    if run.result:
        return run.result
    if info.pending:
        return f"{run.step}: {plural(info.pending, 'call')} to approve"
    return f"{run.step}: {'to review' if run.phase == TO_REVIEW else 'not finished'}"


def workflow_list(workflows: Sequence[WorkflowRow], runs: Sequence[RunRow], *, resumes: str) -> str:
    """Return the list of workflows, and of the runs that have not ended. `resumes` says what resumes one."""
    lines: list[str] = []
    for row in workflows:
        if row.problem:
            lines += [row.name, *(f"  cannot be used: {line}" for line in row.problem.split("\n")), ""]
        else:
            lines += [
                f"{row.name}: {' → '.join(row.steps)}",
                *([f"  {row.description}"] if row.description else []),
                "",
            ]
    if not workflows:
        lines += ["None is defined. Define one under workflows in the registry, or as a file beside it.", ""]
    lines += ["Unfinished runs"]
    lines += [f"  {row.id}   {row.state}, {row.when}\n    {row.title}" for row in runs] or ["  none"]
    lines += ["", f"/workflow run NAME QUERY starts one. {resumes}"]
    return "\n".join(lines)


class RuleLines(NamedTuple):
    """A remembered rule in words."""

    pattern: str
    where: str
    """The place where it answers."""
    since: str
    """Times of its making and its use, in words."""


def describe_rule(row: "RuleRow") -> RuleLines:
    """Return a remembered rule in three lines."""
    rule = row.rule
    where = f"{scope_words(rule.scope, rule.role)}{f' ({path_of(rule.folder)})' if rule.folder else ''}"
    used = "not used yet"
    if row.used_at is not None:
        used = f"used {'once' if row.uses == 1 else f'{row.uses} times'}, last {when(row.used_at)}"
    since = f"made {when(row.made_at)} with call {rule.source_call}; {used}"
    return RuleLines(show_rule(rule.tool, rule.pattern), where, since)
