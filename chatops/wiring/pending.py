"""The pending calls of all sessions, which ``chatops approvals`` and the desk list, show and decide.

Nothing here opens a session. A decision is posted for the turn: a process that owns the session takes it at once,
otherwise the process that resumes the session.

A list is asked for often, by shells and status lines, and is empty most of the time. So what only a call needs is
imported when there is one.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.domain.decisions import Approved, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError, UnreadableError
from chatops.domain.ids import SessionId, session_of
from chatops.domain.sanitize import show_path
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.engine.inputs import DecideCall
from chatops.engine.recovery import unknown_attempts
from chatops.engine.view import waits_for_child
from chatops.headless.pending import answers
from chatops.runtime.descriptions import (
    decision_word,
    denial_sentence,
    describe_decision,
    find_decision,
    judge_now,
    resume_summary,
    stored_way_to_continue,
)
from chatops.wiring.jobs import start_if_job
from chatops.wiring.rows import runs_to_review

if TYPE_CHECKING:
    from chatops.contained.turns import ContainedTurns
    from chatops.domain.decisions import Decision, Principal
    from chatops.domain.events import PendingCall
    from chatops.domain.ids import CallId
    from chatops.runtime.settings import Rights
    from chatops.store.base import PendingCallRow, SessionInfo
    from chatops.store.store import Store

log = logging.getLogger(__name__)

SHORTEST_DIGEST = 8
"""Minimum hex digits that may stand for a digest."""


def state_in_words(queued: "PendingCallRow") -> str:
    """Return the state of a call in a few words."""
    if queued.decided is None:
        if queued.pending.denial is not None:
            return "cannot run now"
        return "outcome unknown" if queued.pending.outcome_unknown else "pending"
    return f"{decision_word(queued.decided.decision)} by {queued.decided.by}"


class PendingCalls:
    """The pending calls of a store, and the decisions on them of one user in one UI. Methods block."""

    def __init__(self, store: "Store", *, rights: "Callable[[], Rights]", data: Path) -> None:
        """Read nothing yet. `rights` is called when there is a call to judge; `data` is the data folder."""
        self._store = store
        self._rights = rights
        self._data = data

    def all(self) -> "list[PendingCallRow]":
        """Return all pending calls, oldest turn first, judged under the current rights. Raises StoreError."""
        return [self.judge_again(queued) for queued in self._store.pending_calls()]

    def judge_again(self, queued: "PendingCallRow") -> "PendingCallRow":
        """Return the call with the verdict of the current rights."""
        return replace(queued, pending=judge_now(self._store, queued, self._rights()))

    def with_changes(self, queued: "PendingCallRow") -> "PendingCallRow":
        """Return the call with the changes of a contained turn as text, which are not stored with it."""
        if queued.pending.call.name != CONTAINED_APPLY:
            return queued
        facts = self._contained().shown(queued.pending.facts)
        return replace(queued, pending=replace(queued.pending, facts=facts))

    def interrupted(self) -> Iterator[tuple[str, str]]:
        """Yield id and state of sessions with a call interrupted by a crash that no user was asked about yet."""
        for info in self._store.sessions():
            if info.active_turn is None or self._store.lease(info.id) is not None:
                continue
            try:
                turn = self._store.load_turn(info.active_turn)
                if unknown_attempts(turn) and not waits_for_child(turn):
                    yield info.id, resume_summary(self._store, info)
            except UnreadableError as error:
                log.info("session %s is left out: %s", info.id, error)

    def reviews(self) -> "list[SessionInfo]":
        """Return the workflow runs with a step to review, which is decided with ``workflow resume``."""
        return runs_to_review(self._store)

    def decide(
        self,
        queued: "PendingCallRow",
        decision: "Decision",
        *,
        by: "Principal",
        digest: str | None,
        again: bool = False,
    ) -> bool:
        """Post a decision on exactly what `queued` shows. Returns False if another decision was first.

        `digest` is the one that the user saw, or its beginning; None: any. `again`: a call whose outcome is unknown is
        to run once more.

        Raises ChatopsError if nothing was decided: the call is another one by now, cannot run, or needs another answer,
        or the site does not let users decide here.
        """
        self._rights().check_surface(by.via)
        pending = queued.pending
        require_digest(pending, digest)
        if not isinstance(decision, Rejected):
            check_unknown_outcome(pending, done=isinstance(decision, MarkedDone), again=again)
        if isinstance(decision, Approved):
            self._check_changes(pending, decision.only, digest=digest)
            if queued.decided is None:
                refuse_denied(self.judge_again(queued).pending, queued.session_id)
        return self.post(pending, decision, by=by)

    def post(self, pending: "PendingCall", decision: "Decision", *, by: "Principal") -> bool:
        """Post a decision that was checked. Returns False if another one was first.

        Raises ConfigError if the call has approvers, `by` is none of them, and the decision would let it run.
        """
        if pending.approvers and not isinstance(decision, Rejected):
            known = self._store.decider(session_of(pending.call.id), by.member, pending.approvers)
            self._rights().check_decider(pending, by, known, foreign=False, containment=None)
        decided = DecideCall(call_id=pending.call.id, digest=pending.digest, decision=decision, by=by)
        return self._store.post_decision(decided)

    def decided(self, session: "SessionId", call: "CallId") -> str:
        """Return what was decided on a call, as a sentence; empty if that is not known."""
        answer = find_decision(self._store, session, call)
        return f"{call} was {describe_decision(answer)}." if answer else ""

    def continue_session(self, queued: "PendingCallRow") -> str:
        """Start the session again if it is a job, and return what happens after a decision, as sentences."""
        if said := start_if_job(self._store, queued.session_id):
            return said
        if self._store.lease(queued.session_id) is not None:
            return "The session continues in the process that has it open."
        if whose := self._store.foreign(queued.session_id):
            return f"The session belongs to {whose}: it continues there."
        return f"No process has the session open. To continue it: {self.way_to_continue(queued)}"

    def way_to_continue(self, queued: "PendingCallRow") -> str:
        """Return what continues the session of a call."""
        return stored_way_to_continue(self._store, queued.session_id)

    def _contained(self) -> "ContainedTurns":
        from chatops.contained.turns import ContainedTurns  # few calls are about changes

        return ContainedTurns(self._data)

    def _check_changes(self, pending: "PendingCall", only: tuple[str, ...] | None, *, digest: str | None) -> None:
        """Raise ChatopsError unless changes of a contained turn are approved by digest, and `only` names some."""
        call, contained = pending.call.id, pending.call.name == CONTAINED_APPLY
        if contained and digest is None:
            verb = "takes back" if is_undo(pending.call.arguments) else "applies"
            raise ChatopsError(
                f"{call} {verb} the changes of a contained turn, and only what was shown can be approved.",
                advice=f"See them, and the digest at their end: chatops approvals show {call}",
            )
        if only and not contained:
            raise ChatopsError(f"{call} is not a contained turn, so --only means nothing; nothing was approved.")
        if only:
            paths = self._contained().paths(pending.call.arguments)
            if unknown := [path for path in only if path not in paths]:
                raise ChatopsError(
                    f"There is no change of {show_path(unknown[0])} that can be applied; nothing was approved.",
                    advice=f"See what there is: chatops approvals show {call}",
                )


def require_digest(pending: "PendingCall", digest: str | None) -> None:
    """Raise ChatopsError unless `digest` (its beginning, or None for any) is that of the pending call."""
    if digest is None:
        return
    if len(digest) < SHORTEST_DIGEST or not pending.digest.startswith(digest.lower()):
        raise ChatopsError(
            f"{pending.call.id} is not what was shown under the digest {digest!r}; nothing was approved.",
            advice=f"See what is pending now: chatops approvals show {pending.call.id}",
        )


def check_unknown_outcome(pending: "PendingCall", *, done: bool, again: bool) -> None:
    """Raise ChatopsError unless a call with an unknown outcome is declared done or to be run again.

    Also raised if either is declared of a call that was not started.
    """
    option = ""
    if done:
        option = "--done"
    elif again:
        option = "--again"
    call = pending.call.id
    if pending.outcome_unknown and not option:
        raise ChatopsError(
            f"{call} was interrupted and may have taken effect; nothing was approved.",
            advice="\n".join(["Check what happened, then report it:", *(f"  {answer}" for answer in answers(pending))]),
        )
    if option and not pending.outcome_unknown:
        raise ChatopsError(
            f"{call} has not been started yet, so {option} means nothing; nothing was approved.",
            advice=f"To let it run: chatops approvals approve {call}",
        )


def refuse_denied(pending: "PendingCall", session: str) -> None:
    """Raise ChatopsError if the current rights would deny the call."""
    if pending.denial is None:
        return
    call = pending.call.id
    ways = [f"To deny it: chatops approvals deny {call} --reason TEXT"]
    if pending.denial.could_run:
        ways.insert(0, f"To switch the role: chatops -r {session} --role {pending.denial.could_run[0]}")
    raise ChatopsError(
        f"{pending.call.name} ({call}) was not approved. {denial_sentence(pending.denial)}", advice="\n".join(ways)
    )
