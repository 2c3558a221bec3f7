"""The approval dialog: each pending call, exactly what would run, and one key per answer.

The dialog holds no rights and no session state. Answers go to `Session.decide` with the digest of what was shown,
and the list follows what the session publishes.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
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
from chatops.runtime.denials import denial_sentence
from chatops.runtime.session import owned
from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.approval_frame import LegendRoom, calls, heading, keys, keys_at_once
from chatops.tui.dialogs.approval_list import ApprovalList, CallMark, LastSeenCall, ListedCall, mark_after_edit, mark_of
from chatops.tui.dialogs.approval_text import answered_elsewhere, describe, reason_question
from chatops.tui.dialogs.arguments import arguments_form
from chatops.tui.dialogs.diff_rows import missing_columns
from chatops.tui.dialogs.external_editor import edit_call
from chatops.tui.dialogs.framed import DialogFrame
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.key_guard import KeyKind
from chatops.tui.dialogs.payload import PayloadView, dialog_theme
from chatops.tui.dialogs.rows import Description, line
from chatops.tui.dialogs.rule import RuleDialog
from chatops.tui.notice import show_notice

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

_APPROVING = frozenset("asS+rRA")
_RUNNING = frozenset("asS+rcR")
"""Keys that let the shown call run. `A` concerns the other calls too."""


class ApprovalScreen(GuardedDialog):
    """Asks about the pending calls until none is left or the user postpones them with Esc."""

    DECIDING: ClassVar[frozenset[str]] = frozenset("asS+rceEdDARum")
    DENYING: ClassVar[frozenset[str]] = frozenset("dD")
    AT_ONCE: ClassVar[frozenset[str]] = GuardedDialog.AT_ONCE | frozenset("vf|")

    def __init__(self, session: "SessionView", composer: Composer, *, seen: LastSeenCall) -> None:
        """Ask about the calls of `session`; `seen` is what the user has seen of it in earlier dialogs."""
        super().__init__(composer)
        self._session = session
        self._last_seen = seen
        self._calls = ApprovalList()
        self._details = False
        self._side_by_side = False
        self._described: tuple[object, Description] | None = None
        """The description drawn last, and what it was made from."""
        self._edits: dict[str, dict[str, str]] = {}
        """Changed arguments that were not sent, by the digest of the call and the argument's name."""

    def on_mount(self) -> None:
        """Start the pause, because a user who is typing has not read the dialog yet."""
        self._drawn = True
        self.fit()
        self._calls.refresh(self._session.snapshot().pending)
        self._calls.show_first_undecided()
        if not self._calls.open:
            self._close()
            return
        self.start_pause()
        self._show()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._show())

    def feed(self, event: Event) -> None:
        """Handle an event of the session. Called for every event while the dialog is open."""
        if not self.can_draw:
            # Earlier events are in the snapshot that the first drawing reads.
            return
        match event:
            case ApprovalRequested() | CallDecided():
                self._refresh()
            case ToolStarted() | ToolFinished():
                item = self._calls.find(event.id)
                if item is not None and item.mark is CallMark.CHECKING:
                    item.mark = mark_after_edit(event)
                self._refresh()
            case TurnFinished():
                self._close()

    def follow(self) -> None:
        """Refresh after the followed session was read again."""
        if self.can_draw:
            self._refresh()

    def _refresh(self) -> None:
        shown = self._calls.current
        waited = shown is not None and shown.undecided
        if changed := self._calls.refresh(self._session.snapshot().pending):
            # The description of an edited call begins with that.
            others = [item for item in changed if item.pending.reason is not AskReason.EDITED]
            which = "This call" if shown in others else "Another call"
            self._note = f"{which} has changed since it was shown. Look again." if others else ""
            # The next key would answer what was shown before.
            self._typing = False
            self.pause()
        elif not (self._guard.acts(KeyKind.VIEW) or (shown and shown.checked)) and self._calls.show_first_undecided():
            # Calls arrive as their checks end. Until a key acts, the user has not started on a later one.
            self.pause()
        if shown is not None and waited and shown.mark is CallMark.ELSEWHERE and self._calls.open:
            self._note = f"{line(shown.pending.call.name)} was decided elsewhere."
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
            own = self._guard.taken_just_now and shown is not None and shown.mark is not CallMark.ELSEWHERE
            self.pause(KeyKind.DECIDE if own else KeyKind.VIEW)
        self._show()

    def _close(self) -> None:
        if not self.is_attached or self._finished:
            return
        for item in self._calls.items:
            if item.mark is CallMark.ELSEWHERE:
                self.app.run_worker(self._show_decider(item), group="who decided")
        self.finish()

    # Keys

    def answer(self, key: str, *, typed: bool) -> None:
        """Handle one key."""
        match key:
            case "tab" | "right" | "shift+tab" | "left":
                self._calls.step(1 if key in ("tab", "right") else -1)
                self._show_other()
            case "v":
                self._details = not self._details
                self._show()
                self.call_after_refresh(self._show_details)
            case "f":
                self.toggle_full()
            case "|":
                self._toggle_sides()
            case _ if key in self.DECIDING:
                self._answer(key)
            case _ if typed:
                self.pause_again()

    def _show_other(self, note: str = "") -> None:
        """Show the call that a key has brought up. It cannot have been read yet."""
        self._note = note
        self.pause(KeyKind.DECIDE)
        self._show()

    def _show_details(self) -> None:
        """Scroll to the details, if the end of the call has been on screen. Otherwise they wait below it."""
        item = self._calls.current
        if self._details and item is not None and item.seen and self._described is not None:
            self.payload.show_row(self._described[1].payload)
        self.show_frame()

    def _toggle_sides(self) -> None:
        item = self._calls.current
        if item is None or not item.pending.facts.diff:
            self.show_note("This call has no diff to show side by side.")
        elif not self._side_by_side and (missing := missing_columns(self.size.width)):
            show_notice(self.app, missing)
        else:
            self._side_by_side = not self._side_by_side
            self._note = ""
            self._show()

    # Answers

    def _answer(self, key: str) -> None:
        item = self._calls.current
        if item is None or not item.undecided:
            self.not_taken("this call is decided. Tab shows the next")
        elif item.pending.denial is not None and key in _RUNNING:
            self.show_note(denial_sentence(item.pending.denial))
        elif self.too_small and key in _APPROVING:
            self.show_note("Make the window larger: what is not shown cannot be approved.")
        elif key == "A":
            self._approve_rest()
        elif key in _APPROVING and not item.seen:
            self.payload.read_on()
            self.call_after_refresh(self.show_frame)
        elif item.pending.outcome_unknown:
            self._answer_unknown(item, key)
        else:
            self._answer_asked(item, key)

    def _answer_asked(self, item: ListedCall, key: str) -> None:
        match key:
            case "a":
                self._send(item, Approved())
            case "s" | "S":
                self._remember(item, item.exactly if key == "s" else item.edits)
            case "+" if item.offer("+") is None:
                self.show_note("Nothing is known that this call lacks in its sandbox.")
            case "+":
                self._send(item, Approved(extra=item.pending.facts.extra))
            case "r":
                self._ask_rule(item)
            case "c" if item.offer("c") is None:
                self.show_note("This call cannot be contained.")
            case "c":
                self.app.run_worker(self._contain(), group="decide")
            case "e":
                self._edit(item)
            case "E":
                self.app.run_worker(self._edit_outside(item), group="edit")
            case "d":
                self._send(item, Rejected())
            case "D":
                self._ask(item, reason_question(item.pending))
            case _:
                self.show_note("This key only applies to calls whose outcome is unknown.")

    def _answer_unknown(self, item: ListedCall, key: str) -> None:
        match key:
            case "R":
                self._send(item, Approved())
            case "u" | "d":
                self._send(item, Rejected())
            case "D":
                self._ask(item, reason_question(item.pending))
            case "m":
                self._send(item, MarkedDone())
            case _:
                self.show_note("It may have taken effect already: R runs it again, u says unknown, m marks it done.")

    def _approve_rest(self) -> None:
        unseen = self._calls.unseen()
        if unseen:
            count = len(unseen)
            self._calls.index = self._calls.items.index(unseen[0])
            others = f", nor {plural(count - 1, 'other')} after it" if count > 1 else ""
            self._show_other(f"This call was not on screen to its end yet{others}. Read it, then press A again.")
            return
        for item in self._calls.approvable():
            self._send(item, Approved())

    def _send(self, item: ListedCall, decision: Decision) -> None:
        item.mark = CallMark.CHECKING if isinstance(decision, Edited) else CallMark.SENDING
        self._note = ""
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
            self._refresh()

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

    async def _contain(self) -> None:
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
            self._refresh()

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

    async def _edit_outside(self, item: ListedCall) -> None:
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

    def _show(self) -> None:
        item = self._calls.current
        if item is None or not self.can_draw:
            return
        pending = item.pending
        sides = self._side_by_side and not missing_columns(self.size.width)
        self.set_class(sides and bool(pending.facts.diff), "-wide")
        self._last_seen.open(item)
        made_from = (pending, item.before, self._details, sides, self.app.theme)
        if self._described is None or self._described[0] != made_from:
            described = describe(
                pending,
                theme=dialog_theme(self.app),
                before=item.before,
                details=self._details,
                side_by_side=sides,
            )
            self._described = (made_from, described)
        self.payload.show(self._described[1], key=f"{pending.call.id} {pending.digest}", seen=item.seen)
        self.show_frame()
        self.call_after_refresh(self.show_frame)

    def frame(self) -> DialogFrame | None:
        """Return heading, list of calls and keys for the shown call."""
        if (item := self._calls.current) is None:
            return None
        narrow = self.has_class("-narrow")
        room: LegendRoom = "lowest" if self.has_class("-lowest") else "narrow" if narrow else "usual"
        views = self.view_keys(sides=bool(item.pending.facts.diff), beside=self._side_by_side)
        said = " and the model's words" if item.pending.said.strip() else ""
        views = f"{'v hide details' if self._details else f'v details{said}'}{views}"
        legend = partial(keys, self._calls, left=self.payload.lines_left, views=views, room=room)
        return DialogFrame(
            title=heading(self._calls, width=self.line_width, narrow=narrow),
            calls=calls(self._calls) if len(self._calls.items) > 1 else None,
            keys=legend(item),
            keys_when_read=legend(replace(item, seen=True)),
            keys_at_once=keys_at_once(item, room=room),
            waits=item.undecided,
        )

    def on_resize(self) -> None:
        """Leave side by side where there is no room for it."""
        super().on_resize()
        if self._side_by_side:
            self._show()

    @on(PayloadView.EndSeen)
    def end_seen(self, event: PayloadView.EndSeen) -> None:
        """Allow the approval of this call, now that all of it has been on screen."""
        event.stop()
        item = self._calls.current
        if item is not None and event.key == f"{item.pending.call.id} {item.pending.digest}" and not self.too_small:
            item.seen = True
            self._last_seen.add(item)
        self.show_frame()
