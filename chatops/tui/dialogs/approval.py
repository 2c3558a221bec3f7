"""The approval dialog: each pending call, exactly what would run, and one key per answer.

The dialog holds no rights and no session state. Answers go to `Session.decide` with the digest of what was shown,
and the list follows what the session publishes.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.screen import Screen

from chatops.domain.decisions import Approved, ArgumentPattern, Decision, Edited, MarkedDone, Rejected, RuleScope
from chatops.domain.errors import ChatopsError
from chatops.domain.events import (
    ApprovalRequested,
    AskReason,
    CallDecided,
    Event,
    PendingCall,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import Problem
from chatops.domain.wording import plural
from chatops.runtime.descriptions import denial_sentence
from chatops.runtime.session import owned
from chatops.tui.composer import Composer
from chatops.tui.dialogs.approval_frame import (
    KEYS,
    AskedCall,
    answered_elsewhere,
    call_legend,
    calls,
    describe,
    heading,
    reason_question,
)
from chatops.tui.dialogs.approval_list import ApprovalList, CallMark, LastSeenCall, ListedCall, mark_after_edit, mark_of
from chatops.tui.dialogs.arguments import arguments_form
from chatops.tui.dialogs.body import DialogFrame
from chatops.tui.dialogs.dialog_keys import AnswerKey, DialogKey, Room, legend_of
from chatops.tui.dialogs.external_editor import edit_call
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.dialogs.rows import Description, line, missing_columns, read_on
from chatops.tui.dialogs.rule import RuleDialog
from chatops.tui.keys import KeyLegend
from chatops.tui.theme import theme_of

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

_ONLY_UNKNOWN = "This key only applies to calls whose outcome is unknown."
_ONLY_A_PERSON = "Only you decide on a budget, each time: a goes on, d ends the turn."
_IS_UNKNOWN = "It may have taken effect already: R runs it again, u says unknown, m marks it done."


class ApprovalScreen(GuardedDialog):
    """Asks about the pending calls until none is left or the user postpones them with Esc."""

    KEYS = KEYS
    GROWS_WHEN_READ: ClassVar[bool] = True

    def __init__(self, session: "SessionView", composer: Composer, *, seen: LastSeenCall) -> None:
        """Ask about the calls of `session`; `seen` is what the user has seen of it in earlier dialogs."""
        super().__init__(composer)
        self._session = session
        self._last_seen = seen
        self._calls = ApprovalList()
        self._details = False
        self._described: tuple[object, Description] | None = None
        """The description drawn last, and what it was made from."""
        self._edits: dict[str, dict[str, str]] = {}
        """Changed arguments that were not sent, by the digest of the call and the argument's name."""

    def begin(self) -> None:
        """Show the first call that waits, if any does."""
        self._calls.refresh(self._session.snapshot().pending)
        self._calls.show_first_undecided()
        if not self._calls.open:
            self._close()
            return
        self.show()
        self.app.theme_changed_signal.subscribe(self, lambda _: self.show())

    def feed(self, event: Event) -> None:
        """Handle an event of the session. Called for every event while the dialog is open."""
        if not self.can_draw:
            return
        match event:
            case ApprovalRequested() | CallDecided():
                self.follow()
            case ToolStarted() | ToolFinished():
                item = self._calls.find(event.id)
                if item is not None and item.mark is CallMark.CHECKING:
                    item.mark = mark_after_edit(event)
                self.follow()
            case TurnFinished():
                self._close()

    def refresh_subject(self) -> None:
        """Show what is pending now."""
        shown = self._calls.current
        waited = shown is not None and shown.undecided
        if changed := self._calls.refresh(self._session.snapshot().pending):
            # The description of an edited call begins with that.
            others = [item for item in changed if item.pending.reason is not AskReason.EDITED]
            which = "This call" if shown in others else "Another call"
            self.note_change(f"{which} has changed since it was shown. Look again." if others else "")
        elif not (self.acts(KeyKind.VIEW) or (shown and shown.checked)) and self._calls.show_first_undecided():
            # Calls arrive as their checks end. Until a key acts, the user has not started on a later one.
            self.pause()
        if shown is not None and waited and shown.mark is CallMark.ELSEWHERE and self._calls.open:
            self.note = f"{line(shown.pending.call.name)} was decided elsewhere."
            self.app.run_worker(self._show_decider(shown), group="who decided")
        self._show_next()

    async def _show_if_second(self, item: ListedCall) -> None:
        """Show who answered first, if this answer came second and the other one is known."""
        if await answered_elsewhere(self._session, item.pending):
            item.mark = CallMark.ELSEWHERE
            await self._show_decider(item)

    async def _show_decider(self, item: ListedCall) -> None:
        """Show who answered first, where and when."""
        who = await answered_elsewhere(self._session, item.pending)
        if self.can_draw and who:
            self.show_note(who)
        elif not self.can_draw and not self._calls.open:
            self.show_note_or_notice(who or "Decided elsewhere: nothing is pending here.")

    def _show_next(self) -> None:
        """Show the next undecided call, or close the dialog if there is nothing left to do."""
        if not self._calls.open:
            self._close()
            return
        shown = self._calls.current
        # An edited call stays on screen until it was checked.
        if not (shown is not None and (shown.undecided or shown.checked)) and self._calls.show_next_undecided():
            own = self.taken_just_now and shown is not None and shown.mark is not CallMark.ELSEWHERE
            self.pause(KeyKind.DECIDE if own else KeyKind.VIEW)
        self.show()

    def _close(self) -> None:
        if not self.is_attached or self.finished:
            return
        for item in self._calls.items:
            if item.mark is CallMark.ELSEWHERE:
                self.app.run_worker(self._show_decider(item), group="who decided")
        self.finish()

    # Keys

    def _step_on(self) -> None:
        self._calls.step(1)
        self._show_other()

    def _step_back(self) -> None:
        self._calls.step(-1)
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
            self.payload.show_row(self._described[1].payload)
        self.show_frame()

    def _toggle_sides(self) -> None:
        if (item := self._calls.current) is None or not item.pending.facts.diff:
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
        """Return why the call may not run."""
        item = self._calls.current
        denial = item.pending.denial if item is not None and isinstance(key, AnswerKey) and key.runs else None
        return denial_sentence(denial) if denial is not None else ""

    @property
    def is_read(self) -> bool:
        """True if all of the call was on the screen."""
        return (item := self._calls.current) is not None and item.seen

    def perform(self, key: DialogKey) -> None:
        """Do what a key does, with the shown call if it answers that."""
        item = self._calls.current
        if item is None or not isinstance(key, AnswerKey):
            super().perform(key)
        elif key.unknown is not None and key.unknown != item.pending.outcome_unknown:
            self.show_note(_ONLY_UNKNOWN if key.unknown else _IS_UNKNOWN)
        elif item.pending.reason is AskReason.BUDGET and key.act not in ("approve", "deny", "ask_reason"):
            self.show_note(_ONLY_A_PERSON)
        elif key.missing and key.words(self._asked(item)) is None:
            self.show_note(key.missing)
        else:
            getattr(self, f"_{key.act}")(item)

    def _approve(self, item: ListedCall) -> None:
        self._send(item, Approved())

    def _approve_exactly(self, item: ListedCall) -> None:
        self._remember(item, item.exactly)

    def _approve_edits(self, item: ListedCall) -> None:
        self._remember(item, item.edits)

    def _approve_with_extra(self, item: ListedCall) -> None:
        self._send(item, Approved(extra=item.pending.facts.extra))

    def _deny(self, item: ListedCall) -> None:
        self._send(item, Rejected())

    def _mark_done(self, item: ListedCall) -> None:
        self._send(item, MarkedDone())

    def _approve_rest(self, _: ListedCall) -> None:
        unseen = self._calls.unseen()
        if self.body.too_small:
            self.show_note(self.too_small_note)
        elif unseen:
            count = len(unseen)
            self._calls.index = self._calls.items.index(unseen[0])
            others = f", nor {plural(count - 1, 'other')} after it" if count > 1 else ""
            self._show_other(f"This call was not on screen to its end yet{others}. Read it, then press A again.")
        else:
            for item in self._calls.approvable():
                self._approve(item)

    def _send(self, item: ListedCall, decision: Decision) -> None:
        item.mark = CallMark.CHECKING if isinstance(decision, Edited) else CallMark.SENDING
        self.note = ""
        self.show_frame()
        # On the app: a worker of this screen would be cancelled when the dialog closes, before the answer is stored.
        self.app.run_worker(self._decide(item, item.pending, decision), group="decide")

    async def _decide(self, item: ListedCall, asked: PendingCall, decision: Decision) -> None:
        try:
            taken = await self._session.decide(asked.call.id, digest=asked.digest, decision=decision)
        except ChatopsError as error:
            if item.pending is asked:
                item.mark = CallMark.UNDECIDED
            self.not_answered(sanitize(error.full))
            return
        if item.pending.digest == asked.digest and item.mark in (CallMark.SENDING, CallMark.CHECKING):
            item.mark = mark_of(decision) if taken else CallMark.UNDECIDED
            if not taken:
                if self.can_draw:
                    self.not_answered("The call no longer waits for this decision.")
                await self._show_if_second(item)
        if self.is_attached:
            self.refresh_subject()

    def _remember(self, item: ListedCall, pattern: ArgumentPattern | None) -> None:
        """Approve for the session, unless no such rule can be made: then say why, so that `a` can be chosen."""
        if pattern is None:
            self.show_note("This call has no rule for all edits in its folder. Approve once with a.")
            return
        try:
            reason = self._session.rule_offer(item.pending).why_not(pattern, RuleScope.SESSION)
        except ChatopsError as error:
            reason = str(error)
        if reason:
            self.show_note(f"Not for the session: {line(reason)}. Approve once with a.")
        else:
            self._send(item, Approved(remember=pattern))

    def _contain(self, _: ListedCall) -> None:
        self.app.run_worker(self._contain_turn(), group="decide")

    async def _contain_turn(self) -> None:
        """Contain the turn: calls that can run in the copy are inspected again there and run without a question."""
        contained = [item for item in self._calls.undecided if item.offer("c") is not None]
        for item in contained:
            item.mark = CallMark.CONTAINED
        try:
            await owned(self._session, "The turn was not contained").actions.contain()
        except ChatopsError as error:
            for item in contained:
                item.mark = CallMark.UNDECIDED
            self.not_answered(sanitize(error.full))
        if self.is_attached:
            self.refresh_subject()

    def _edit(self, item: ListedCall, problems: Sequence[Problem] = ()) -> None:
        """Open the form for the arguments, with what an earlier attempt has changed."""
        pending = item.pending
        form = arguments_form(
            self._session, pending, kept=self._edits.setdefault(pending.digest, {}), problems=problems
        )
        if form is None:
            self.show_note("The arguments cannot be read, so they cannot be edited. d denies the call.")
        else:
            self._ask(item, form)

    def _edit_outside(self, item: ListedCall) -> None:
        self.app.run_worker(self._edit_in_editor(item), group="edit")

    async def _edit_in_editor(self, item: ListedCall) -> None:
        """Edit the main text of the call in the user's editor. A text with a problem goes into the form."""
        asked = item.pending
        found = await edit_call(self.app, self._session, asked)
        if isinstance(found, str):
            self.show_note_or_notice(found)
            return
        if item.pending is not asked or not item.undecided or not self.can_draw:
            self.show_note_or_notice(f"The call has changed meanwhile. Your text is in {found.edited.path}.")
            return
        found.edited.discard()
        if found.problems:
            self._edits.setdefault(asked.digest, {})[found.argument] = found.edited.text
            self._edit(item, found.problems)
        else:
            self._send(item, Edited(arguments=found.arguments))

    def _ask_rule(self, item: ListedCall) -> None:
        try:
            offer = self._session.rule_offer(item.pending)
        except ChatopsError as error:
            self.show_note(sanitize(error.full))
            return
        patterns = offer.patterns()
        if patterns:
            self._ask(item, RuleDialog(offer, patterns, partial(self._session.recorded_calls, item.pending.call.name)))
        else:
            reason = line(offer.why_not(item.exactly, RuleScope.SESSION))
            self.show_note(f"No rule is possible: {reason or 'the arguments contain invisible characters'}.")

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
                return
            self._edits.setdefault(item.pending.digest, {}).update(self._edits.get(asked.digest, {}))
            self.show_note_or_notice("Nothing was sent: the call has changed or was decided meanwhile.")

        self.app.push_screen(question, done)

    # Drawing

    def show(self) -> None:
        """Draw the shown call."""
        item = self._calls.current
        if item is None or not self.can_draw:
            return
        pending = item.pending
        sides = self.body.side_by_side and not missing_columns(self.size.width)
        self.body.set_class(sides and bool(pending.facts.diff), "-wide")
        self._last_seen.open(item)
        made_from = (pending, item.before, self._details, sides, self.app.theme)
        if self._described is None or self._described[0] != made_from:
            described = describe(
                pending,
                theme=theme_of(self.app),
                before=item.before,
                details=self._details,
                side_by_side=sides,
            )
            self._described = (made_from, described)
        self.show_subject(self._described[1], key=f"{pending.call.id} {pending.digest}", seen=item.seen)

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
            calls=calls(self._calls) if len(self._calls.items) > 1 else None,
            waits=item.undecided,
        )

    def _asked(self, item: ListedCall) -> AskedCall:
        sides = self.body.sides_label if item.pending.facts.diff else None
        return AskedCall(
            item=item, calls=self._calls, details=self._details, sides_label=sides, full_label=self.body.full_label
        )

    @property
    def unread(self) -> str:
        """What approving keys do until all of the call was read."""
        return "" if self.is_read else read_on(self.payload.lines_left, short=self.room is not Room.USUAL)

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend for the shown call."""
        item = self._calls.current
        return call_legend(self._asked(item), room=self.room, unread=unread) if item is not None else KeyLegend(())

    def legend_at_once(self) -> KeyLegend | None:
        """Return the legend for a call that a key of the user has brought up, until the other keys act too."""
        if (item := self._calls.current) is None:
            return None
        # Of an unknown outcome only D denies, with a note.
        deny, all_deny = ("D", "D") if item.pending.outcome_unknown else ("d", "d D")
        keys, then = {
            Room.USUAL: (f"{all_deny} escape", "The other keys act after a short pause."),
            Room.NARROW: (f"{deny} escape", "The others after a pause."),
            Room.LOWEST: (deny, "Others wait."),
        }[self.room]
        return legend_of(self.by_name, keys, state=self._asked(item), room=self.room, then=then)

    def on_resize(self) -> None:
        """Leave side by side where there is no room for it."""
        super().on_resize()
        if self.body.side_by_side:
            self.show()

    def end_read(self, subject: str) -> None:
        """Allow the approval of this call, now that all of it has been on screen."""
        item = self._calls.current
        if item is not None and subject == f"{item.pending.call.id} {item.pending.digest}" and not self.body.too_small:
            item.seen = True
            self._last_seen.add(item)
