"""The calls that a dialog shows, each with its own mark: a plain value without a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Rejected
from chatops.domain.events import PendingCall
from chatops.domain.ids import CallId


class Mark(StrEnum):
    """How one call stands, in the word that is shown."""

    UNDECIDED = "undecided"
    SENDING = "sending"
    APPROVED = "approved"
    DENIED = "denied"
    CHECKING = "edited, checking"
    DONE = "marked done"
    ELSEWHERE = "decided elsewhere"


def mark_of(decision: Decision) -> Mark:
    """The mark that an answer leaves."""
    match decision:
        case Approved():
            return Mark.APPROVED
        case Edited():
            return Mark.CHECKING
        case Rejected():
            return Mark.DENIED
        case MarkedDone():
            return Mark.DONE


@dataclass(slots=True)
class Item:
    """One call of the list. `seen`: the end of what would run has been on screen, for this very digest."""

    pending: PendingCall
    mark: Mark = Mark.UNDECIDED
    seen: bool = False

    @property
    def waits(self) -> bool:
        """Whether it still needs an answer from here."""
        return self.mark is Mark.UNDECIDED


@dataclass(slots=True)
class Docket:
    """All calls since the dialog opened, in order, decided ones included, and which one is shown."""

    items: list[Item] = field(default_factory=list)
    index: int = 0

    @property
    def current(self) -> Item | None:
        """The call that is shown."""
        return self.items[self.index] if self.items else None

    @property
    def waiting(self) -> list[Item]:
        """The calls without an answer."""
        return [item for item in self.items if item.waits]

    @property
    def open(self) -> bool:
        """Whether the dialog still has something to do: answers to give, on their way, or under check."""
        return any(item.mark in (Mark.UNDECIDED, Mark.SENDING, Mark.CHECKING) for item in self.items)

    def find(self, call_id: CallId) -> Item | None:
        """The item of that call."""
        return next((item for item in self.items if item.pending.call.id == call_id), None)

    def refresh(self, pending: Sequence[PendingCall]) -> bool:
        """Take over what waits now. True: a call that was shown or decided here has changed under our eyes.

        A new digest is a new question: nobody has seen it, nobody has answered it. A call that no longer waits
        and got no answer from here was decided elsewhere.
        """
        changed = False
        shown = self.current
        waiting = {call.call.id for call in pending}
        for call in pending:
            item = self.find(call.call.id)
            if item is None:
                self.items.append(Item(call))
            elif (item.pending.digest, item.pending.reason) != (call.digest, call.reason):
                item.pending, item.mark, item.seen = call, Mark.UNDECIDED, False
                changed = True
            else:
                # The rights in force may have changed since; what would run has not.
                item.pending = call
        for item in self.items:
            if item.waits and item.pending.call.id not in waiting:
                item.mark = Mark.ELSEWHERE
        # As the model made them, not as their inspections ended; what is on screen stays there.
        self.items.sort(key=lambda item: _place(item.pending.call.id))
        self.index = next((at for at, item in enumerate(self.items) if item is shown), self.index)
        return changed

    def step(self, by: int) -> None:
        """Show the next or previous call, around the ends."""
        if self.items:
            self.index = (self.index + by) % len(self.items)

    def show_next_waiting(self) -> bool:
        """Show the next call without an answer; False if there is none."""
        for offset in range(len(self.items)):
            at = (self.index + offset) % len(self.items)
            if self.items[at].waits:
                self.index = at
                return True
        return False

    def show_first_waiting(self) -> bool:
        """Show the first call without an answer, in the order of the calls; True if another one was shown."""
        shown, self.index = self.index, 0
        self.show_next_waiting()
        return self.index != shown

    def unseen(self) -> list[Item]:
        """Calls without an answer whose end has not been on screen."""
        return [item for item in self.waiting if not item.seen]

    def approvable(self) -> list[Item]:
        """What `approve the rest` may approve: no call whose earlier run may have taken effect, none that is denied."""
        return [item for item in self.waiting if not item.pending.in_doubt and item.pending.denial is None]


def _place(call_id: CallId) -> tuple[int, ...]:
    """Turn, round and index, which the id of a call ends with."""
    return tuple(int(part) for part in call_id.split(".")[-3:] if part.isdecimal())
