"""The approval dialog: each pending call, exactly what would run, and one key per answer.

The dialog holds no rights and no session state. Answers go to `Session.decide` with the digest of what was shown,
and the list follows what the session publishes.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from chatops.domain.decisions import Approved, ArgumentPattern, Decision, Edited, RuleScope
from chatops.domain.errors import ChatopsError
from chatops.domain.events import (
    ApprovalRequested,
    CallDecided,
    Event,
    PendingCall,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CONTAINED_APPLY, Problem
from chatops.domain.wording import plural
from chatops.policy.remembered import SCOPE_NAMES
from chatops.policy.rule_syntax import rule_text
from chatops.runtime.session import owned
from chatops.tui.composer import Composer
from chatops.tui.dialogs.approval_frame import describe
from chatops.tui.dialogs.approval_keys import KEYS, call_legend
from chatops.tui.dialogs.approval_list import CallMark, LastSeenCall, ListedCall, mark_after_edit
from chatops.tui.dialogs.arguments import arguments_form
from chatops.tui.dialogs.calls import CallsDialog
from chatops.tui.dialogs.external_editor import edit_call
from chatops.tui.dialogs.rows import Description, line
from chatops.tui.dialogs.rule import RuleDialog
from chatops.tui.keys import KeyLegend
from chatops.tui.notice import show_notice
from chatops.tui.theme import theme_of

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView
    from chatops.store.base import DecisionRow


class ApprovalScreen(CallsDialog):
    """Asks about the pending calls of one session."""

    KEYS = KEYS

    def __init__(self, session: "SessionView", composer: Composer, *, seen: LastSeenCall | None = None) -> None:
        """Ask about the calls of `session`; `seen` is what the user has seen of it in earlier dialogs."""
        super().__init__(composer)
        self._session = session
        self.last_seen = seen or LastSeenCall()
        """What the user has seen of the session's calls."""
        self._edits: dict[str, dict[str, str]] = {}
        """Changed arguments that were not sent, by the digest of the call and the argument's name."""

    def waiting(self) -> Sequence[PendingCall]:
        """Return the calls of the session that wait now. Changes of contained turns have a dialog of their own."""
        return [asked for asked in self._session.snapshot().pending if asked.call.name != CONTAINED_APPLY]

    async def decide(self, asked: PendingCall, decision: Decision) -> bool:
        """Decide through the session."""
        taken = await self._session.decide(asked.call.id, digest=asked.digest, decision=decision)
        if taken and isinstance(decision, Approved) and decision.remember is not None:
            rule = line(rule_text(asked.call.name, decision.remember))
            show_notice(self.app, f"Rule made, for {SCOPE_NAMES[decision.scope]}: {rule} (/permissions lists it)")
        return taken

    async def decision_on(self, asked: PendingCall) -> "DecisionRow | None":
        """Return the decision on a call, or None."""
        return await self._session.decision_on(asked.call.id)

    def feed(self, event: Event) -> None:
        """Follow an event of the session that can change the list of calls."""
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

    def _approve_exactly(self, item: ListedCall) -> None:
        self._approve_for_session(item, item.exact_pattern)

    def _approve_edits(self, item: ListedCall) -> None:
        self._approve_for_session(item, item.edits_pattern)

    def _approve_with_extra(self, item: ListedCall) -> None:
        self._send(item, Approved(extra=item.pending.facts.extra))

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

    def _approve_for_session(self, item: ListedCall, pattern: ArgumentPattern | None) -> None:
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
        result = await edit_call(self.app, self._session, asked)
        if isinstance(result, str):
            self.show_note_or_notice(result)
            return
        if item.pending is not asked or not item.undecided or not self.can_draw:
            self.show_note_or_notice(f"The call has changed meanwhile. Your text is in {result.edited.path}.")
            return
        result.edited.discard()
        if result.problems:
            self._edits.setdefault(asked.digest, {})[result.argument] = result.edited.text
            self._edit(item, result.problems)
        else:
            self._send(item, Edited(arguments=result.arguments))

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
            reason = line(offer.why_not(item.exact_pattern, RuleScope.SESSION))
            self.show_note(f"No rule is possible: {reason or 'the arguments contain invisible characters'}.")

    def drop(self, item: ListedCall, asked: PendingCall) -> None:
        """Say that a decision on `asked` was not sent. Changed arguments stay in the form for what is asked now."""
        self._edits.setdefault(item.pending.digest, {}).update(self._edits.get(asked.digest, {}))
        super().drop(item, asked)

    # Drawing

    def show(self) -> None:
        """Draw the shown call."""
        if (item := self._calls.current) is not None and self.can_draw:
            self.last_seen.set_before(item)
        super().show()

    def description(self, item: ListedCall, *, details: bool, side_by_side: bool) -> Description:
        """Return the call's sheet. Settings that are as in the call that the user has seen before fold into one row."""
        return describe(
            item.pending, theme=theme_of(self.app), before=item.before, details=details, side_by_side=side_by_side
        )

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend for the shown call."""
        item = self._calls.current
        return call_legend(self._asked(item), room=self.room, unread=unread) if item is not None else KeyLegend(())

    def end_read(self, subject: str) -> None:
        """Allow the approval of this call, and note what the user has seen."""
        super().end_read(subject)
        if (item := self._calls.current) is not None and item.seen:
            self.last_seen.add(item)
