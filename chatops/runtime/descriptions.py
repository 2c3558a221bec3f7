"""Sentences about stored sessions: who decided a call, what a crash interrupted, what an unfinished turn waits for.

They are derived from stored values alone, so they are correct before any process opens the session.

For a pending call that the current rights deny they name the roles that could run it.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from chatops.domain.decisions import Answered, Approved, Edited, MarkedDone, Principal, Recorded, Rejected
from chatops.domain.errors import ConfigError, NoSuchSessionError, UnreadableError
from chatops.domain.events import Denial, PendingCall
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import NARROWEST
from chatops.domain.sanitize import reveal
from chatops.domain.tools import CONTAINED_APPLY, CallFacts, Interruption, Processes, ToolCall, Verdict
from chatops.domain.wording import cut, plural
from chatops.engine.state import (
    AwaitingDecision,
    AwaitingModel,
    CallState,
    CheckingAnswer,
    ChildTurn,
    Finished,
    InRound,
    Permitted,
    Rechecking,
    Reconciling,
    Settled,
    Started,
    Stopping,
    TurnState,
)
from chatops.engine.view import pending_calls
from chatops.engine.workflow.inputs import ReviewStep
from chatops.policy.grant import Grant
from chatops.policy.sandbox import describe_extra
from chatops.policy.workflow import PYTHON_PROGRAM, WorkflowSpec
from chatops.runtime.settings import Rights, SessionSettings, stored_settings
from chatops.store.base import DecisionRow, PendingCallRow, SessionInfo
from chatops.store.store import Store

log = logging.getLogger(__name__)


def find_decision(store: Store, session: SessionId, call_id: CallId) -> DecisionRow | None:
    """Return the decision on a call: one posted for the turn, else the last one that the turn took, else None."""
    queued = store.pending_calls(session_id=session)
    posted = (row.decided for row in queued if row.pending.call.id == call_id and row.decided is not None)
    logged = reversed(store.decisions(session_id=session))
    taken = (row for row in logged if row.call_id == call_id and not isinstance(row.decision, Answered))
    return next(posted, None) or next(taken, None)


def describe_decision(answer: DecisionRow) -> str:
    """Return the decision in words: ``denied by uid 1000 (ana) via approvals on box, pts/3, at 10:15:12``."""
    return f"{decision_word(answer.decision)} by {_describe_decider(answer.by)} at {describe_time(answer.decided_at)}"


def describe_review(review: ReviewStep, *, at: float | None = None) -> str:
    """Return a review in words: ``accepted by uid 1000 (ana) via workflow on box, pts/3, at 10:15:12``.

    `at` is when the run took it, in seconds since the epoch; None leaves it out.
    """
    when = "" if at is None else f" at {describe_time(at)}"
    return f"{_REVIEW_WORDS[review.review.kind]} by {_describe_decider(review.by)}{when}"


_REVIEW_WORDS = {"accept": "accepted", "try_again": "sent back", "skip": "skipped", "stop_run": "stopped"}


def _describe_decider(by: Principal) -> str:
    place = ", ".join(part.removeprefix("/dev/") for part in by.place)
    return f"{by}{f' on {place}' if place else ''}"


def describe_time(at: float) -> str:
    """Return a time (seconds since the epoch) in the user's time zone, with the day unless it is today."""
    when = datetime.fromtimestamp(at).astimezone()
    day = "" if when.date() == datetime.now().astimezone().date() else f"{when:%Y-%m-%d} "
    return f"{day}{when:%H:%M:%S}"


def decision_word(decision: Recorded, *, outcome_unknown: bool = False) -> str:
    """Return the decision on a call, which may have an unknown outcome, as a few words such as "approved"."""
    match decision:
        case Approved() if outcome_unknown:
            return "to be run again"
        case Rejected() if outcome_unknown:
            return "left unknown"
        case Approved(extra=extra):
            return "approved" if extra == NARROWEST else f"approved with {describe_extra(extra)}"
        case Edited():
            return "edited"
        case Rejected():
            return "denied"
        case MarkedDone():
            return "marked as done"
        case Answered():
            return "answered"


UNKNOWN_NOTE = "Outcome unknown: it was started and interrupted; it may have taken effect. Check before you decide."

NO_OUTPUT = "none was kept"

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def describe_start(interruption: Interruption, *, now: float) -> str:
    """Return the start time in the user's time zone, and how long before `now` (seconds since the epoch) that was."""
    if interruption.started_at is None:
        return "not known"
    at = datetime.fromtimestamp(interruption.started_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    ago = _time_ago(now - interruption.started_at)
    return f"{at} ({ago})" if ago else at


def describe_processes(interruption: Interruption, facts: CallFacts) -> str:
    """Return what became of the attempt's processes; empty for a call that starts none."""
    many = interruption.count != 1
    number = f"{interruption.count} {'were' if many else 'was'}"
    match interruption.processes:
        case Processes.GONE | Processes.UNSEEN if not facts.command:
            return ""
        case Processes.GONE:
            return "stopped: none is still running"
        case Processes.STOPPED:
            return f"stopped now: {number} still running"
        case Processes.RUNNING:
            return f"{interruption.count} still running, and could not be stopped"
        case Processes.ELSEWHERE if not interruption.count:
            return "none found; the chatops that started it is still running and was left alone"
        case Processes.ELSEWHERE:
            return f"{interruption.count} still running in another chatops, which was left alone"
        case Processes.RESTARTED:
            return "none here: this machine was restarted since, or the call ran in a container"
        case Processes.OTHER_MACHINE:
            return "none here: the call ran on another machine, where it may still be running"
        case Processes.UNSEEN:
            return "cannot be inspected on this machine"


def _time_ago(seconds: float) -> str:
    """Return a duration in the largest unit that fits; empty if negative, as after a change of the clock."""
    if seconds < 0:
        return ""
    for size, name in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{plural(count, name)} ago"
    return "just now"


_MAX_SUBJECT_CHARS = 60
"""Maximum characters of a command or path in the summary."""


def way_to_continue(session_id: str, run: WorkflowSpec | None = None) -> str:
    """Return what continues a session: a command, or a call in the Python program that started the workflow `run`."""
    if run is not None and run.source == PYTHON_PROGRAM:
        return f'workflow.resume("{session_id}") in the program that started it'
    return f"chatops resume {session_id}"


def stored_way_to_continue(store: Store, session_id: SessionId) -> str:
    """Return what continues a stored session. For a child session, that is what continues its caller's."""
    run = None
    with suppress(NoSuchSessionError, UnreadableError):
        info = store.session(session_id)
        info = info if info.parent is None else store.session(info.parent)
        session_id = info.id
        if info.queue:
            return "chatops queue list"
        if store.job(session_id) is not None:
            return f"chatops jobs resume {session_id}"
        run = store.load_run(session_id).spec if info.run is not None else None
    return way_to_continue(session_id, run)


def resume_summary(store: Store, info: SessionInfo) -> str:
    """Return one line on a session whose turn is unfinished; empty if it has none.

    It does not tell if a process owns the session now: see `Store.lease`. Raises StoreError.
    """
    if info.active_turn is None:
        return ""
    try:
        state = store.load_turn(info.active_turn)
    except UnreadableError:
        return "not finished, and what is stored of its turn cannot be read"
    waiting = store.pending_calls(session_id=info.id)
    decided = {row.pending.call.id: row.decided for row in waiting if row.decided is not None}
    return turn_summary(state, decided)


def turn_summary(state: TurnState, decided: Mapping[CallId, DecisionRow]) -> str:
    """Return the summary of a turn that no process runs.

    `decided`: posted decisions that the turn has not taken yet.
    """
    match state.phase:
        case AwaitingModel():
            return "reply cut off"
        case CheckingAnswer():
            return "interrupted before the reply was checked"
        case InRound(calls=calls, proposed_under=grant):
            # While a call asks, those that may run wait for it. Only the one that asks is named.
            asks = any(isinstance(call.status, AwaitingDecision) for call in calls)
            named = (call for call in calls if not (asks and isinstance(call.status, Permitted | Rechecking)))
            parts = (_call_clause(call, grant, decided) for call in named)
            return "; ".join(dict.fromkeys(text for text in parts if text)) or "interrupted between two requests"
        case Stopping(calls=calls):
            running = [call_line(call.call, call.status.facts) for call in calls if isinstance(call.status, Started)]
            return f"interrupted while stopping {', '.join(running)}: outcome unknown"
        case Finished():
            return ""


def _call_clause(state: CallState, grant: Grant, answers: Mapping[CallId, DecisionRow]) -> str:
    call = state.call
    match state.status:
        case Settled():
            return ""
        case AwaitingDecision(facts=facts) if (decided := answers.get(call.id)) is not None:
            return _decided_clause(call, facts, decided)
        case AwaitingDecision(facts=facts) as waiting if waiting.outcome_unknown:
            return f"interrupted while running {call_line(call, facts)}: outcome unknown"
        case AwaitingDecision(facts=facts):
            return f"waiting for your approval of {call_line(call, facts)}"
        case Started(child=ChildTurn(pending=(asked, *_))) if (decided := answers.get(asked.call.id)) is not None:
            return _decided_clause(asked.call, asked.facts, decided)
        case Started(child=ChildTurn(pending=(asked, *_))):
            return f"waiting for your approval of {call_line(asked.call, asked.facts)} as {asked.role}"
        case Started(facts=facts) | Reconciling(facts=facts):
            return f"interrupted while running {call_line(call, facts)}: {_outcome_clause(call, grant)}"
        case Permitted(facts=facts) | Rechecking(facts=facts):
            return f"interrupted before it started {call_line(call, facts)}"
        case _:
            return f"interrupted before it checked {call_line(call, None)}"


def _decided_clause(call: ToolCall, facts: CallFacts, decided: DecisionRow) -> str:
    return f"{decision_word(decided.decision)} in another terminal, not resumed yet: {call_line(call, facts)}"


def _outcome_clause(call: ToolCall, grant: Grant) -> str:
    spec = grant.tool(call.name)
    if spec is not None and (spec.read_only or spec.idempotent):
        return "it runs again on resume"
    if spec is not None and spec.reconcilable:
        return "its effect is checked on resume"
    return "outcome unknown"


def call_line(call: ToolCall, facts: CallFacts | None) -> str:
    """Return a call in one line: ``shell_exec (git push)``."""
    about = (
        "" if facts is None else facts.command or " ".join(map(facts.relative, facts.paths)) or " ".join(facts.hosts)
    )
    return f"{_short_line(call.name)} ({_short_line(about)})" if about else _short_line(call.name)


def _short_line(text: str) -> str:
    return reveal(cut(text, most=_MAX_SUBJECT_CHARS), newlines=False)


_MAX_NAMED_ROLES = 3


def with_roles(pending: Sequence[PendingCall], settings: SessionSettings, rights: Rights) -> tuple[PendingCall, ...]:
    """Add to each denied call the roles that could run it. A workflow step's role is fixed, so there are none."""
    return tuple(
        call
        if call.denial is None or settings.step is not None
        else replace(call, denial=replace(call.denial, could_run=_roles_that_could_run(call, settings, rights)))
        for call in pending
    )


def judge_now(store: Store, queued: PendingCallRow, rights: Rights) -> PendingCall:
    """Return a queued call as `chatops resume` would judge it now; as stored if its turn cannot be read.

    Two kinds of calls are judged by the stored grant alone. A process that has the session open keeps that grant up to
    date under its own registry and flags. A Python program that has started the run alone knows its tools and role.
    """
    try:
        info, state = store.session(queued.session_id), store.load_turn(queued.turn_id)
        run = store.load_run(info.id) if info.unfinished_run is not None else None
    except (NoSuchSessionError, UnreadableError) as error:
        log.info("%s is judged as stored: %s", queued.pending.call.id, error)
        return queued.pending
    settings = stored_settings(store, info, role=state.grant.role)
    judged_elsewhere = store.lease(info.id) is not None
    if run is not None:
        settings = settings.at_step(run)
        judged_elsewhere = judged_elsewhere or run.spec.source == PYTHON_PROGRAM
    if not judged_elsewhere:
        now = settings.grant_for(state.grant, rights)
        state = replace(state, grant=state.grant.intersection(now))
    found = [pending for pending in pending_calls(state) if pending.call.id == queued.pending.call.id]
    return with_roles(found, settings, rights)[0] if found else queued.pending


def denial_sentence(denial: Denial) -> str:
    """Return why the call cannot run and which roles could run it."""
    reason = f"It cannot run now, as {denial.role}. Denied by: {denial.by}."
    roles = denial.could_run[:_MAX_NAMED_ROLES]
    if not roles:
        return reason
    named = " or ".join(filter(None, (", ".join(roles[:-1]), roles[-1])))
    return f"{reason} Role{'s' if len(roles) > 1 else ''} {named} could run it."


def _may_run(pending: PendingCall, grant: Grant) -> bool:
    """Return True if a role with this grant could run the call."""
    if pending.call.name == CONTAINED_APPLY:
        # The engine makes this call, so no grant has its tool. The role of the turn may let it run.
        return grant.role == pending.role
    return grant.judge(pending.call.name, pending.facts).verdict is not Verdict.DENY


def _roles_that_could_run(pending: PendingCall, settings: SessionSettings, rights: Rights) -> tuple[str, ...]:
    found = []
    in_force = pending.denial.role if pending.denial is not None else ""
    # A turn keeps the restrictions that were put on its role, so only switching to another role helps.
    for role in (role for role in rights.roles() if role != in_force):
        try:
            grant = replace(settings, role=role).grant(rights)
        except ConfigError:
            continue
        if _may_run(pending, grant):
            found.append(role)
    # The role that proposed the call comes first: it fits the call best.
    return tuple(sorted(found, key=lambda role: role != pending.role))
