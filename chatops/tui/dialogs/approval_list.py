"""The calls that an approval dialog shows, each with its mark. Plain values that need no terminal."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from chatops.domain.decisions import Approved, ArgumentPattern, Decision, Edited, MarkedDone, Rejected
from chatops.domain.events import AskReason, PendingCall, ToolFinished, ToolStarted
from chatops.domain.ids import CallId, session_of
from chatops.domain.tools import Outcome, ResultSource
from chatops.policy.rule_syntax import suggest_exact
from chatops.runtime.call_sheet import CallSheet, Offer, OfferKey, call_offers, call_sheet

_NOT_RUN = frozenset({Outcome.DENIED, Outcome.INVALID, Outcome.INTERRUPTED})
"""Outcomes of calls that never ran."""


class CallMark(StrEnum):
    """The state of one call. The value is the text that is shown."""

    UNDECIDED = "undecided"
    SENDING = "sending"
    APPROVED = "approved"
    DENIED = "denied"
    CHECKING = "edited, checking"
    DONE = "marked done"
    REUSED = "done before"
    """The edited call was made by an earlier attempt at the step. Its result is used again."""
    NOT_RUN = "not run"
    """The edited call got its result without running, for example because the turn was stopped."""
    CONTAINED = "contained"
    """It runs in a copy of the workspace, without an answer."""
    ELSEWHERE = "decided elsewhere"


def mark_of(decision: Decision) -> CallMark:
    """Return the mark for a decision."""
    match decision:
        case Approved():
            return CallMark.APPROVED
        case Edited():
            return CallMark.CHECKING
        case Rejected():
            return CallMark.DENIED
        case MarkedDone():
            return CallMark.DONE


def mark_after_edit(event: ToolStarted | ToolFinished) -> CallMark:
    """Return the mark of an edited call that starts or ends before anyone was asked about it again."""
    if isinstance(event, ToolStarted):
        return CallMark.APPROVED
    if event.facts.source is ResultSource.EARLIER_ATTEMPT:
        return CallMark.REUSED
    return CallMark.NOT_RUN if event.outcome in _NOT_RUN else CallMark.APPROVED


@dataclass(slots=True)
class ListedCall:
    """One call of the list."""

    pending: PendingCall
    mark: CallMark = CallMark.UNDECIDED
    seen: bool = False
    """True once the whole call has been on screen, for this exact digest."""
    opened: bool = False
    """True once this call was on screen, read or not. `before` does not change after that."""
    before: CallSheet | None = None
    """The call that the user had seen last when this one was shown. What is the same in both need not be repeated.

    None: show all of this one, because there was no such call or this one is asked again.
    """

    @property
    def undecided(self) -> bool:
        """True while the call still needs an answer from this dialog."""
        return self.mark is CallMark.UNDECIDED

    def offer(self, key: OfferKey) -> Offer | None:
        """Return the answer of this key, or None if this call does not have it."""
        return next((offer for offer in call_offers(self.pending) if offer.key == key), None)

    @property
    def exact_pattern(self) -> ArgumentPattern:
        """The pattern of `s`, which allows this call for the session and nothing wider."""
        return suggest_exact(self.pending.call.name, self.pending.facts)

    @property
    def edits_pattern(self) -> ArgumentPattern | None:
        """The pattern of `S`, which allows edits in the folder of the file for the session; None if not offered."""
        offer = self.offer("S")
        return offer.pattern if offer is not None else None

    @property
    def is_checking(self) -> bool:
        """True while the edited call is checked."""
        return self.mark is CallMark.CHECKING


@dataclass(slots=True)
class LastSeenCall:
    """The call of the session that the user has seen last, from its beginning to its end."""

    call_id: CallId | None = None
    sheet: CallSheet | None = None

    def set_before(self, item: ListedCall) -> None:
        """Set `before` of a call when its question is first shown."""
        if not item.opened:
            again = item.pending.reason is not AskReason.POLICY or item.pending.call.id == self.call_id
            item.opened, item.before = True, None if again else self.sheet

    def add(self, item: ListedCall) -> None:
        """Note that all of this call was on screen."""
        self.call_id, self.sheet = item.pending.call.id, call_sheet(item.pending, now=time.time())


@dataclass(slots=True)
class ApprovalList:
    """All calls since the dialog opened, in order and including decided ones, and which one is shown."""

    items: list[ListedCall] = field(default_factory=list)
    index: int = 0
    """The place of the shown call."""

    @property
    def current(self) -> ListedCall | None:
        """The shown call."""
        return self.items[self.index] if self.items else None

    @property
    def undecided(self) -> list[ListedCall]:
        """The calls without an answer."""
        return [item for item in self.items if item.undecided]

    @property
    def open(self) -> bool:
        """True while answers are to be given, are being sent, or are being checked."""
        return any(item.mark in (CallMark.UNDECIDED, CallMark.SENDING, CallMark.CHECKING) for item in self.items)

    def find(self, call_id: CallId) -> ListedCall | None:
        """Return the item of a call, or None."""
        return next((item for item in self.items if item.pending.call.id == call_id), None)

    def refresh(self, pending: Sequence[PendingCall]) -> list[ListedCall]:
        """Adopt the session's pending calls. Return the known calls whose question is a new one.

        Another digest or reason is a new question: it counts as unseen and undecided. A call that is no longer
        pending and got no answer from here was decided elsewhere.
        """
        changed = []
        shown = self.current
        for asked in pending:
            item = self.find(asked.call.id)
            if item is None:
                self.items.append(ListedCall(asked))
            elif (item.pending.digest, item.pending.reason) != (asked.digest, asked.reason):
                item.pending, item.mark, item.seen, item.opened = asked, CallMark.UNDECIDED, False, False
                changed.append(item)
            elif item.pending != asked:
                # The rights may have changed since; what would run has not.
                item.pending = asked
        pending_ids = {asked.call.id for asked in pending}
        for item in self.items:
            if item.undecided and item.pending.call.id not in pending_ids:
                item.mark = CallMark.ELSEWHERE
        # Sort in the order the model made the calls, not the order their checks ended. The shown call stays shown.
        sessions = list(dict.fromkeys(_session(item) for item in self.items))
        self.items.sort(key=lambda item: (sessions.index(_session(item)), _order_in_session(item.pending.call.id)))
        self.index = next((place for place, item in enumerate(self.items) if item is shown), self.index)
        return changed

    def move(self, by: int) -> None:
        """Show the call `by` places further on. After the last one, the first one follows."""
        if self.items:
            self.index = (self.index + by) % len(self.items)

    def show_next_undecided(self) -> bool:
        """Show the next call without an answer. Return False if there is none."""
        places = ((self.index + offset) % len(self.items) for offset in range(len(self.items)))
        place = next((place for place in places if self.items[place].undecided), None)
        self.index = self.index if place is None else place
        return place is not None

    def show_first_undecided(self) -> bool:
        """Show the first call without an answer, or else the first of all. Return True if it changed."""
        before, self.index = self.index, 0
        self.show_next_undecided()
        return self.index != before

    def unseen(self) -> list[ListedCall]:
        """Return the undecided calls whose end has not been on screen."""
        return [item for item in self.undecided if not item.seen]

    def approvable(self) -> list[ListedCall]:
        """Return the calls that "approve the rest" may approve.

        They have no unknown outcome, are not denied by the rights in force, and delegate no further rights.
        """
        return [
            item
            for item in self.undecided
            if not item.pending.outcome_unknown
            and item.pending.denial is None
            and not ((delegation := item.pending.facts.delegation) is not None and delegation.adds)
        ]


def _session(item: ListedCall) -> str:
    return session_of(item.pending.call.id)


def _order_in_session(call_id: CallId) -> tuple[int, ...]:
    """Return turn, round and index, which a call id ends with."""
    return tuple(int(part) for part in call_id.split(".")[-3:] if part.isdecimal())
