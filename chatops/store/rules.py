"""Rules that every store follows, without SQL: call order, titles, ids, and who may acquire a lease."""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from chatops.domain.decisions import Principal
from chatops.domain.errors import AlreadyDecidedError, SessionHeldError, StoreError
from chatops.domain.ids import CallId, SessionId, TurnId
from chatops.domain.messages import Message, UserMessage
from chatops.engine.effects import RunTool, TurnStep
from chatops.engine.state import (
    AwaitingModel,
    CallState,
    CheckingAnswer,
    Finished,
    InRound,
    Settled,
    Stopping,
    TurnState,
)
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.machine import advance_run
from chatops.engine.workflow.state import CheckingGate, RunFinished, RunningStep, WorkflowState
from chatops.store.base import Holder, LeaseRow, PendingCallRow, RunMark

TITLE_LENGTH = 60
AT_MOST_NAMED = 5
"""Maximum number of matching sessions that an error names."""
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_A_DAY = 86_400.0


def in_call_order(queued: Sequence[PendingCallRow]) -> list[PendingCallRow]:
    """Sort calls by turn, those of a turn as the model made them. The order of inspection says nothing."""
    turns = {one.turn_id: place for place, one in reversed(list(enumerate(queued)))}
    return sorted(queued, key=lambda one: (turns[one.turn_id], _numbers(one.pending.call.id)))


def _numbers(call_id: CallId) -> tuple[int, ...]:
    return tuple(int(part) for part in call_id.split(".")[1:] if part.isdecimal())


def open_calls(state: TurnState) -> frozenset[CallId]:
    """Return the calls of a turn that have no result yet: only they can still take a posted decision."""
    return frozenset(item.call.id for item in _calls(state) if not isinstance(item.status, Settled))


def _calls(state: TurnState) -> tuple[CallState, ...]:
    match state.phase:
        case InRound(calls=calls) | Stopping(calls=calls):
            return calls
        case AwaitingModel() | CheckingAnswer() | Finished():
            return ()
        case _:
            assert_never(state.phase)


def intents(step: TurnStep) -> tuple[RunTool, ...]:
    """Return the tool runs that a step starts. Each needs a journal row before it is performed."""
    return tuple(effect for effect in step.effects if isinstance(effect, RunTool))


def carries_nothing(step: TurnStep) -> bool:
    """Return True if `step` stores nothing but its state and has no effects."""
    return not (step.messages or step.results or step.decisions or step.grants or step.effects)


def mark_of(state: WorkflowState) -> RunMark:
    """Return the summary of a run that lists show."""
    phase = state.phase
    if isinstance(phase, RunFinished):
        return RunMark(workflow=state.spec.name, phase=phase.kind, step="", result=phase.result.value)
    return RunMark(workflow=state.spec.name, phase=phase.kind, step=state.spec.step(phase.step).name, result="")


def turn_of(state: WorkflowState) -> TurnId | None:
    """Return the turn that a run waits for, if any."""
    return state.phase.turn_id if isinstance(state.phase, RunningStep | CheckingGate) else None


def applies(review: ReviewStep | CancelRun, state: WorkflowState) -> bool:
    """Return True if a review or cancellation changes the run's state."""
    return advance_run(state, review).state is not state


def must_be_first(step: WorkflowStep, before: WorkflowState, posted: Iterable[ReviewStep | CancelRun]) -> None:
    """Raise AlreadyDecidedError if another input of the same kind was posted for the run first.

    `before` is the run before `step`. The process that posted the first one has reported that it counts.
    """
    for first in posted:
        if type(first) is type(step.word) and first != step.word and applies(first, before):
            raise AlreadyDecidedError(
                f"Run {before.session_id} was already reviewed or cancelled by {first.by}; the first one counts.",
                advice=f"To see its state: chatops workflow show {before.session_id}",
            )


def title_from(messages: Iterable[Message]) -> str:
    """Return the first non-empty line of the first user message, at most 60 characters; empty if there is none."""
    for message in messages:
        if isinstance(message, UserMessage):
            lines = (" ".join(line.split()) for line in message.text.splitlines())
            return next((line for line in lines if line), "")[:TITLE_LENGTH].rstrip()
    return ""


def turn_after(session_id: SessionId, last: TurnId | None) -> TurnId:
    """Return the id after the session's last turn, for when the store cannot be asked for it."""
    number = (last or "").rpartition(".")[2]
    return TurnId(f"{session_id}.{int(number) + 1 if number.isdecimal() else 1}")


def new_session_id(now: float) -> SessionId:
    """Return an id such as ``20261121-101512-k3f9``: the time (UTC), and a random part for uniqueness."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return SessionId(f"{stamp}-{''.join(secrets.choice(_ALPHABET) for _ in range(4))}")


def ambiguous(prefix: str, names: list[str]) -> StoreError:
    """Return the error for a prefix of several ids."""
    shown = ", ".join(names[:AT_MOST_NAMED]) + (", …" if len(names) > AT_MOST_NAMED else "")
    return StoreError(f"{prefix!r} is the beginning of several sessions: {shown}.", advice="Give more of the id.")


def keeps_out(lease: LeaseRow, *, me: Holder, now: float, alive: Callable[[Holder], bool]) -> bool:
    """Return True if the lease of a session still counts, as seen by `me`.

    On the same host the lease counts exactly while its process lives. Another host, or another container of this one,
    cannot be checked, so its lease counts until it expires. A lease that expires in more than a day comes from a clock
    that was wrong, and does not count.
    """
    if _can_be_seen(lease.holder, me):
        return alive(lease.holder)
    return 0 < lease.expires_at - now <= _A_DAY


def _can_be_seen(other: Holder, me: Holder) -> bool:
    boot, _, container = other.boot_id.partition("/")
    my_boot, _, my_container = me.boot_id.partition("/")
    return other.host == me.host and (boot != my_boot or container == my_container)


def may_take(
    lease: LeaseRow | None, holder: Holder, *, session_id: SessionId, now: float, alive: Callable[[Holder], bool]
) -> None:
    """Raise SessionHeldError unless `holder` may own the session now."""
    if lease is None or lease.holder == holder or not keeps_out(lease, me=holder, now=now, alive=alive):
        return
    other = lease.holder
    who = f"host {other.host}, pid {other.pid}, since {since(lease, now=now)}"
    if other.host == holder.host:
        raise SessionHeldError(
            f"Session {session_id} is open in another chatops on this machine ({who}).",
            advice=f"Continue there, or close that chatops (pid {other.pid}) and try again; `chatops -r {session_id}` "
            "follows it and can take it over, `chatops approvals list` works meanwhile.",
        )
    left = int(lease.expires_at - now) + 1
    raise SessionHeldError(
        f"Session {session_id} is open on another machine ({who}).",
        advice=f"Continue there, or close it there. If {other.host} is gone, try again in {left} s.",
    )


def since(lease: LeaseRow, *, now: float) -> str:
    """Return the local time at which a session was opened, with the date unless it is today.

    An older chatops did not store that time: then it is unknown.
    """
    if not lease.since:
        return "an unknown time"
    then, today = time.localtime(lease.since), time.localtime(now)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)


def already_decided(call_id: CallId, *, by: Principal) -> AlreadyDecidedError:
    """Return the error for a user whose decision came second."""
    return AlreadyDecidedError(
        f"Call {call_id} was already decided by {by}; the first decision counts.",
        advice="`chatops approvals list` shows what is still pending.",
    )


def taken_over(session_id: SessionId, by: Holder) -> str:
    """Return the message for the process that lost the session."""
    return f"Session {session_id} was taken over by another chatops (host {by.host}, pid {by.pid})."
