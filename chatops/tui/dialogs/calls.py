"""Base of the dialogs that show pending calls, one at a time, and have one key per answer.

A subclass says what waits and where an answer goes: `ApprovalScreen` asks about the calls of one session,
`AllPendingScreen` about those of all sessions. An answer names the call with the digest of what was shown.
"""

from collections.abc import Sequence
from typing import ClassVar

from textual.content import Content
from textual.screen import Screen

from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError
from chatops.domain.events import AskReason, PendingCall
from chatops.runtime.descriptions import denial_sentence, describe_decision
from chatops.store.base import DecisionRow
from chatops.tui.composer import Composer
from chatops.tui.dialogs.approval_frame import call_list, heading, reason_question
from chatops.tui.dialogs.approval_keys import AskedCall
from chatops.tui.dialogs.approval_list import ApprovalList, CallMark, ListedCall, mark_of
from chatops.tui.dialogs.body import DialogFrame
from chatops.tui.dialogs.dialog_keys import AnswerKey, DialogKey, Room
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.dialogs.rows import Description, line, read_on_label, too_narrow_for_sides

_NOT_FOR_BUDGET = "Only you decide on a budget, each time: a goes on, d ends the turn."
_ONLY_FOR_UNKNOWN = "This key only applies to calls whose outcome is unknown."


class CallsDialog(GuardedDialog):
    """Asks about pending calls until none is left or the user postpones them with Esc."""

    GROWS_WHEN_READ: ClassVar[bool] = True
    UNKNOWN_NOTE: ClassVar[str] = "It may have taken effect already: R runs it again, u says unknown, m marks it done."
    """Said if a key is pressed that does not answer an unknown outcome."""

    def __init__(self, composer: Composer) -> None:
        super().__init__(composer)
        self._calls = ApprovalList()
        self._details = False
        self._described: Description | None = None
        """The description drawn last; None if it has to be made again."""
        self._described_from: object = None
        """The values that `_described` was made from."""

    # What a subclass says

    def waiting(self) -> Sequence[PendingCall]:
        """Return the calls that wait now."""
        raise NotImplementedError

    async def decide(self, asked: PendingCall, decision: Decision) -> bool:
        """Store a decision on exactly what was asked. Return False if another one was first or the call has changed."""
        raise NotImplementedError

    async def decision_on(self, asked: PendingCall) -> DecisionRow | None:
        """Return the decision on a call, or None."""
        raise NotImplementedError

    def description(self, item: ListedCall, *, details: bool, side_by_side: bool) -> Description:
        """Return everything the user has to see of a call."""
        raise NotImplementedError

    def begin(self) -> None:
        """Show the first call that waits, if any does."""
        self._calls.refresh(self.waiting())
        self._calls.show_first_undecided()
        if not self._calls.open:
            self._close()
            return
        self.show()
        self.app.theme_changed_signal.subscribe(self, lambda _: self.show())

    def refresh_subject(self) -> None:
        """Show what is pending now."""
        shown = self._calls.current
        was_undecided = shown is not None and shown.undecided
        if changed := self._calls.refresh(self.waiting()):
            # The description of an edited call begins with that.
            others = [item for item in changed if item.pending.reason is not AskReason.EDITED]
            which = "This call" if shown in others else "Another call"
            self.note_change(f"{which} has changed since it was shown. Look again." if others else "")
        else:
            # Calls arrive as their checks end. Until a key acts, the user has not started on a later one.
            started = self.acts(KeyKind.VIEW) or (shown is not None and shown.is_checking)
            if not started and self._calls.show_first_undecided():
                self.pause()
        if shown is not None and was_undecided and shown.mark is CallMark.ELSEWHERE and self._calls.open:
            self.note = f"{line(shown.pending.call.name)} was decided elsewhere."
            self.app.run_worker(self._show_decider(shown), group="who decided")
        self._show_next()

    async def _show_decider(self, item: ListedCall) -> None:
        """Show who answered first, where and when."""
        decider = await self._answered_elsewhere(item)
        if self.can_draw and decider:
            self.show_note(decider)
        elif not self.can_draw and not self._calls.open:
            self.show_note_or_notice(decider or "Decided elsewhere: nothing is pending here.")

    async def _answered_elsewhere(self, item: ListedCall) -> str:
        """Return who answered a call first, where and when, as a sentence; empty if that is not known."""
        try:
            answer = await self.decision_on(item.pending)
        except ChatopsError:
            return ""
        name = line(item.pending.call.name)
        return f"Answered elsewhere: {name} was {describe_decision(answer)}." if answer is not None else ""

    def _show_next(self) -> None:
        """Show the next undecided call, or close the dialog if there is nothing left to do."""
        if not self._calls.open:
            self._close()
            return
        shown = self._calls.current
        # An edited call stays on screen until it was checked.
        stays = shown is not None and (shown.undecided or shown.is_checking)
        if not stays and self._calls.show_next_undecided():
            answered_elsewhere = shown is not None and shown.mark is CallMark.ELSEWHERE
            answered_here = not answered_elsewhere and self.gate.taken_just_now(self._now)
            self.pause(KeyKind.DECIDE if answered_here else KeyKind.VIEW)
        self.show()

    def _close(self) -> None:
        if not self.is_attached or self.finished:
            return
        for item in self._calls.items:
            if item.mark is CallMark.ELSEWHERE:
                self.app.run_worker(self._show_decider(item), group="who decided")
        self.finish()

    # Keys

    def _go_next(self) -> None:
        self._calls.move(1)
        self._show_other()

    def _go_previous(self) -> None:
        self._calls.move(-1)
        self._show_other()

    def _toggle_details(self) -> None:
        self._details = not self._details
        self.show()
        self.call_after_refresh(self._show_details)

    def _show_other(self, note: str = "") -> None:
        """Show the call that a key has brought up. It cannot have been read yet."""
        self.note = note
        self.pause(KeyKind.DECIDE)
        self.show()

    def _show_details(self) -> None:
        """Scroll to the details, if the end of the call has been on screen. Otherwise they wait below it."""
        item = self._calls.current
        if self._details and item is not None and item.seen and self._described is not None:
            self.payload.show_row(self._described.payload)
        self.show_frame()

    def _toggle_sides(self) -> None:
        if (item := self._calls.current) is None or not self.has_diff(item):
            self.show_note("This call has no diff to show side by side.")
        else:
            super()._toggle_sides()

    # Answers

    def answer(self, key: DialogKey) -> None:
        """Handle a key of the table."""
        if isinstance(key, AnswerKey) and not ((item := self._calls.current) and item.undecided):
            self.not_taken("this call is decided. Tab shows the next")
        else:
            super().answer(key)

    def why_not(self, key: DialogKey) -> str:
        """Return why the key does not apply to the call, or why that may not run."""
        if (item := self._calls.current) is None or not isinstance(key, AnswerKey):
            return ""
        pending = item.pending
        if key.runs and pending.denial is not None:
            return denial_sentence(pending.denial)
        if not key.answers.includes(outcome_unknown=pending.outcome_unknown):
            return self.UNKNOWN_NOTE if pending.outcome_unknown else _ONLY_FOR_UNKNOWN
        if pending.reason is AskReason.BUDGET and key.act not in ("approve", "deny", "ask_reason"):
            return _NOT_FOR_BUDGET
        return key.missing if key.missing and key.words(self._asked(item)) is None else ""

    @property
    def is_read(self) -> bool:
        """True if all of the call was on the screen."""
        return (item := self._calls.current) is not None and item.seen

    def perform(self, key: DialogKey) -> None:
        """Do what a key does, with the shown call if it answers that."""
        item = self._calls.current
        if item is None or not isinstance(key, AnswerKey):
            super().perform(key)
        else:
            getattr(self, f"_{key.act}")(item)

    def _approve(self, item: ListedCall) -> None:
        self._send(item, Approved())

    def _deny(self, item: ListedCall) -> None:
        self._send(item, Rejected())

    def _mark_done(self, item: ListedCall) -> None:
        self._send(item, MarkedDone())

    def _send(self, item: ListedCall, decision: Decision) -> None:
        item.mark = CallMark.CHECKING if isinstance(decision, Edited) else CallMark.SENDING
        self.send(self._decide(item, item.pending, decision), alone=False)

    async def _decide(self, item: ListedCall, asked: PendingCall, decision: Decision) -> str:
        try:
            taken = await self.decide(asked, decision)
        except ChatopsError:
            if item.pending is asked:
                item.mark = CallMark.UNDECIDED
            raise
        if item.pending.digest == asked.digest and item.mark in (CallMark.SENDING, CallMark.CHECKING):
            item.mark = mark_of(decision) if taken else CallMark.UNDECIDED
            if not taken:
                if self.can_draw:
                    self.not_answered("The call no longer waits for this decision.")
                if await self._answered_elsewhere(item):
                    item.mark = CallMark.ELSEWHERE
                    await self._show_decider(item)
        if self.is_attached:
            self.refresh_subject()
        return ""  # What is wrong was said above.

    def _ask_reason(self, item: ListedCall) -> None:
        self._ask(item, reason_question(item.pending))

    def _ask(self, item: ListedCall, question: Screen[Decision | None] | Screen[Approved | None]) -> None:
        """Open a screen for the decision. Its result is dropped if the call has changed meanwhile."""
        asked = item.pending

        def done(decision: Decision | None) -> None:
            if decision is None:
                return
            if item.undecided and item.pending is asked:
                self._send(item, decision)
            else:
                self.drop(item, asked)

        self.app.push_screen(question, done)

    def drop(self, item: ListedCall, asked: PendingCall) -> None:
        """Say that a decision on `asked` was not sent."""
        self.show_note_or_notice("Nothing was sent: the call has changed or was decided meanwhile.")

    # Drawing

    @property
    def pointed_row(self) -> int:
        """The first row of the details while they are shown."""
        return self._described.payload + 1 if self._details and self._described is not None else super().pointed_row

    def has_diff(self, item: ListedCall) -> bool:
        """Return True if the call can be shown side by side."""
        return bool(item.pending.facts.diff)

    def show(self) -> None:
        """Draw the shown call."""
        item = self._calls.current
        if item is None or not self.can_draw:
            return
        sides = self.body.side_by_side and not too_narrow_for_sides(self.size.width)
        self.body.set_class(sides and self.has_diff(item), "-wide")
        made_from = (item.pending, item.before, self._details, sides, self.app.theme)
        if self._described is None or self._described_from != made_from:
            self._described_from = made_from
            self._described = self.description(item, details=self._details, side_by_side=sides)
        self.show_subject(self._described, key=self.subject_of(item), seen=item.seen)

    def subject_of(self, item: ListedCall) -> str:
        """Return the name under which the gate knows a call. Keys that were pressed for another name do not answer."""
        return f"{item.pending.call.id} {item.pending.digest}"

    def frame(self) -> DialogFrame | None:
        """Return heading and list of calls."""
        if (item := self._calls.current) is None:
            return None
        return DialogFrame(
            title=heading(
                self._calls,
                width=self.body.line_width,
                narrow=self.room is not Room.USUAL,
                colours=getattr(self.app, "role_colours", {}),
            ),
            calls=self.listed() if len(self._calls.items) > 1 else None,
            waits=item.undecided,
        )

    def listed(self) -> Content:
        """Return the list of calls."""
        return call_list(self._calls)

    def _asked(self, item: ListedCall) -> AskedCall:
        sides = self.body.sides_label if self.has_diff(item) else None
        return AskedCall(
            item=item, calls=self._calls, details=self._details, sides_label=sides, full_label=self.body.full_label
        )

    @property
    def unread(self) -> str:
        """What approving keys do until all of the call was read."""
        return "" if self.is_read else read_on_label(self.payload.lines_left, short=self.room is not Room.USUAL)

    def on_resize(self) -> None:
        """Leave side by side where there is no room for it."""
        super().on_resize()
        if self.body.side_by_side:
            self.show()

    def end_read(self, subject: str) -> None:
        """Allow the approval of this call, now that all of it has been on screen."""
        item = self._calls.current
        if item is not None and subject == self.subject_of(item) and not self.body.too_small:
            item.seen = True
