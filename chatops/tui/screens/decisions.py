"""Opens the dialogs that need a decision: by themselves for new requests, by a key or command for postponed ones."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.sanitize import sanitize
from chatops.tui.composer import Composer
from chatops.tui.keys import key_of
from chatops.tui.notice import show_notice
from chatops.tui.screens.open_session import OpenSession
from chatops.tui.screens.screen_messages import PendingChanged, RefreshNeeded

if TYPE_CHECKING:
    from chatops.config.trust import TrustQuestion
    from chatops.domain.decisions import OpenQuestion
    from chatops.domain.events import Event
    from chatops.engine.workflow.state import AwaitingReview
    from chatops.runtime.view import Snapshot
    from chatops.tui.dialogs.approval_list import LastSeenCall
    from chatops.tui.dialogs.guarded import GuardedDialog
    from chatops.tui.dialogs.trust import TrustScreen
    from chatops.tui.screens.run import OwnRunPresenter
    from chatops.wiring.workspace import Workspace

SETTLE_S = 0.5
"""Seconds without a key before a dialog may open by itself."""


class FolderTrust:
    """Asks about what the folder brings: settings, tools, servers. Esc leaves it ignored."""

    def __init__(self, screen: Screen[Any], composer: Composer) -> None:
        self._screen = screen
        self._composer = composer
        self._dialog: TrustScreen | None = None
        """The dialog that was opened last."""
        self.question: TrustQuestion | None = None
        """The question that is to be asked once no other dialog is open, and the user does not type."""
        self._asked_starts: set[str] = set()
        """Digests of the questions about MCP servers that were asked."""

    @property
    def is_open(self) -> bool:
        """True if the dialog is open."""
        return self._dialog in self._screen.app.screen_stack

    def look_for_starts(self, workspace: "Workspace") -> None:
        """Ask later about servers that need a yes to start, once about each."""
        starts = workspace.trust.about_starts()
        if starts is not None and starts.digest not in self._asked_starts:
            self._asked_starts.add(starts.digest)
            self.question = self.question or starts

    async def ask_again(self, workspace: "Workspace") -> None:
        """Ask now, also about what was asked before."""
        question = await workspace.trust.current()
        if question.listed:
            self.ask(question, workspace)
        else:
            show_notice(self._screen.app, "This folder brings nothing that needs your trust.")

    def ask(self, question: "TrustQuestion", workspace: "Workspace") -> None:
        """Open the dialog. What is not answered is not asked again by itself in this process."""
        from chatops.tui.dialogs.trust import TrustScreen

        def closed(_: None) -> None:
            if question.is_answerable and not dialog.answered:
                show_notice(self._screen.app, "Not decided: what you do not trust is ignored. /trust asks.")
            self._screen.post_message(RefreshNeeded())

        self.question = None
        if self._screen.is_active:
            dialog = self._dialog = TrustScreen(
                question, lambda trusted: workspace.trust.answer(question, trusted=trusted), self._composer
            )
            self._screen.app.push_screen(dialog, closed)


class DecisionDialogs:
    """Opens at most one dialog at a time. Esc postpones what it showed."""

    def __init__(self, screen: Screen[Any], composer: Composer) -> None:
        """Create it for the chat screen and its message field."""
        self._screen = screen
        self._composer = composer
        self._current: OpenSession | None = None
        self._dialog: GuardedDialog | None = None
        """The dialog about the session that was opened last."""
        self._seen: LastSeenCall | None = None
        """What the user has seen of this session's calls."""
        self._trust = FolderTrust(screen, composer)
        self._postponed: set[str] = set()
        """Digests of the calls that the user has postponed."""
        self._showed_changes = False
        """True if the dialog that was opened last is about changes of a contained turn."""
        self._unticked: set[tuple[str, str]] = set()
        """The files that the user has unticked in changes of contained turns: what was asked, and the path."""
        self._postponed_questions: set[str] = set()
        """Ids of the servers' questions that the user has postponed."""
        self._warned_questions: set[str] = set()
        """Ids of the questions whose call the next Esc stops."""
        self._typed: dict[str, dict[str, str]] = {}
        """Texts typed into the form of a question and not sent, by its id and the field."""
        self._postponed_review: AwaitingReview | None = None
        """The review that the user has postponed; None if none."""
        self._settling = False
        """True while `offer` waits for a pause in typing."""
        self._announced: dict[str, str] = {}
        """The pending calls and questions of the last `PendingChanged`: a sentence by the digest or id of each."""

    def show(self, current: OpenSession) -> None:
        """Ask about another session. Dialogs about the previous one are closed, because they can decide nothing."""
        self._current = current
        self._seen = None
        self._postponed.clear()
        self._postponed_review = None
        if (dialog := self._open_dialog) is not None:
            dialog.finish()

    @property
    def _open_dialog(self) -> "GuardedDialog | None":
        """The dialog about the session if it is open, even below a question of its own."""
        return self._dialog if self._dialog in self._screen.app.screen_stack else None

    @property
    def any_open(self) -> bool:
        """True if one of the dialogs is open."""
        return self._open_dialog is not None or self._trust.is_open

    @property
    def has_pending(self) -> bool:
        """True if something in the session needs the user's decision."""
        current = self._current
        has_calls = current is not None and bool(current.session.snapshot().pending)
        return has_calls or self._pending_review is not None or bool(self._questions)

    @property
    def _questions(self) -> "Sequence[OpenQuestion]":
        """Questions of servers whose calls run here."""
        current = self._current
        return current.session.snapshot().questions if current is not None and not current.follows else ()

    @property
    def _run(self) -> "OwnRunPresenter | None":
        return self._current.own_run if self._current is not None else None

    @property
    def _pending_review(self) -> "AwaitingReview | None":
        """The review that the run waits for, if the session is a run that is executed here."""
        return self._run.pending_review if self._run is not None else None

    def offer(self, snapshot: "Snapshot") -> None:
        """Open the dialog for new requests, unless the user is writing or has another screen open."""
        if self._current is None or self._current.follows:
            return  # It opens by itself in the process that owns the session; a follower presses ctrl+g.
        self._announce(snapshot)
        self._trust.look_for_starts(self._current.workspace)
        has_new, blocked = self._has_new(snapshot), self._run is not None and self._run.blocked()
        if blocked or not self._screen.is_active or not (has_new or self._trust.question):
            return
        if self._composer.idle and has_new:
            self.open()
        elif self._composer.idle and self._trust.question is not None:
            self._trust.ask(self._trust.question, self._current.workspace)
        elif not self._composer.text and not self._settling:
            self._settling = True
            self._screen.set_timer(SETTLE_S, self._end_settling)

    def _has_new(self, snapshot: "Snapshot") -> bool:
        """Return True if something is pending that the user has not postponed."""
        calls = {pending.digest for pending in snapshot.pending} - self._postponed
        questions = {asked.question.id for asked in snapshot.questions} - self._postponed_questions
        review = self._pending_review
        return bool(calls or questions) or (review is not None and review != self._postponed_review)

    def _announce(self, snapshot: "Snapshot") -> None:
        """Tell the app what waits, for a user who is elsewhere."""
        waiting = {}
        if snapshot.pending:
            from chatops.tui.transcript.card import pending_verb

            waiting = {pending.digest: f"Approve {pending_verb(pending)}?" for pending in snapshot.pending}
        for asked in snapshot.questions:
            waiting[asked.question.id] = f"{sanitize(asked.question.server, newlines=False)} asks you"
        if self._pending_review is not None:
            waiting[f"review {self._pending_review}"] = "A step needs a review"
        if waiting != self._announced:
            self._announced = waiting
            self._screen.post_message(PendingChanged(waiting))

    def _end_settling(self) -> None:
        self._settling = False
        self._screen.post_message(RefreshNeeded())

    def open(self) -> None:
        """Open the dialog for what is pending, if anything is. A notice tells why that is not possible."""
        if self._current is None or not self._screen.is_active or not self.has_pending:
            return
        if (run := self._run) is not None and (blocked := run.blocked()):
            show_notice(self._screen.app, blocked, holds=lambda: run.blocked() == blocked)
            return
        if self._questions and not (self._current.session.snapshot().pending and self._all_questions_postponed()):
            self._open_question(self._current, self._questions[0])
        elif self._run is not None and self._pending_review is not None:
            self._open_review(self._run, self._pending_review)
        else:
            self._open_approval(self._current)
        self._screen.post_message(RefreshNeeded())

    def _all_questions_postponed(self) -> bool:
        return self._postponed_questions.issuperset(asked.question.id for asked in self._questions)

    def _open_approval(self, current: OpenSession) -> None:
        from chatops.tui.dialogs.approval import ApprovalScreen
        from chatops.tui.dialogs.contained import ContainedScreen, about_contained

        pending = current.session.snapshot().pending
        new = [call for call in pending if call.digest not in self._postponed]
        offered = new or pending
        changes = about_contained(offered)
        # Of what is new, calls come first. If all was postponed, calls and changes take turns.
        is_turn_of_changes = not new and bool(changes) and not self._showed_changes
        shows_changes = self._showed_changes = len(changes) == len(offered) or is_turn_of_changes

        def closed() -> None:
            """Postpone what was shown: it stays on the banner and does not open again by itself."""
            if current is self._current:
                still_pending = current.session.snapshot().pending
                changes = about_contained(still_pending)
                self._postponed |= {call.digest for call in still_pending if (call in changes) == shows_changes}

        if shows_changes:
            self._push(ContainedScreen(current.session, self._composer, unticked=self._unticked), closed)
        else:
            dialog = ApprovalScreen(current.session, self._composer, seen=self._seen)
            self._seen = dialog.last_seen
            self._push(dialog, closed)

    def _push(self, dialog: "GuardedDialog", closed: Callable[[], None]) -> None:
        """Open a dialog about the session. `closed` is called after it."""

        def done(_: None) -> None:
            closed()
            self._screen.post_message(RefreshNeeded())

        self._dialog = dialog
        self._screen.app.push_screen(dialog, done)

    def warn_of_stop(self) -> bool:
        """Say that the next Esc stops a call whose question is put off; return False if that was said already."""
        asked = {asked.question.id for asked in self._questions}
        if asked <= self._warned_questions:
            return False
        self._warned_questions |= asked
        text = f"A call waits for your answer: {key_of('pending')} answers, Esc again stops it."
        show_notice(self._screen.app, text, holds=lambda: bool(self._questions))
        return True

    def _open_question(self, current: OpenSession, asked: "OpenQuestion") -> None:
        from chatops.tui.dialogs.server_question import ServerQuestionScreen

        def closed() -> None:
            self._postponed_questions.add(asked.question.id)

        self._warned_questions.discard(asked.question.id)
        session = current.owned("The question was not answered")
        kept = self._typed.setdefault(asked.question.id, {})
        self._push(ServerQuestionScreen(session, asked, self._composer, kept=kept), closed)

    def _open_review(self, run: "OwnRunPresenter", wanted: "AwaitingReview") -> None:
        from chatops.tui.dialogs.review import ReviewScreen

        def closed() -> None:
            if run is self._run:
                self._postponed_review = run.pending_review

        self._push(ReviewScreen(run.run, wanted, self._composer), closed)

    def ask_later(self, question: "TrustQuestion | None") -> None:
        """Ask about what the folder brings once no other dialog is open, and the user does not type."""
        self._trust.question = question

    async def ask_trust_again(self) -> None:
        """Ask about what the folder brings now."""
        assert self._current is not None
        await self._trust.ask_again(self._current.workspace)

    def feed(self, events: "Sequence[Event]") -> None:
        """Update an open dialog after events of the session."""
        for event in events:
            if (dialog := self._open_dialog) is not None:
                dialog.feed(event)

    def refresh(self) -> None:
        """Update an open dialog after the followed session was read again."""
        if (dialog := self._open_dialog) is not None:
            dialog.follow()
