"""Opens the dialogs that need a decision: by themselves for new requests, by a key or command for postponed ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.sanitize import sanitize
from chatops.tui.composer import Composer
from chatops.tui.keys import key_of
from chatops.tui.notice import show_notice
from chatops.tui.screens.messages import Changed, PendingChanged
from chatops.tui.screens.open_session import OpenSession

if TYPE_CHECKING:
    from chatops.config.trust import TrustQuestion
    from chatops.domain.decisions import OpenQuestion
    from chatops.domain.events import Event
    from chatops.engine.workflow.state import AwaitingReview
    from chatops.runtime.view import Snapshot
    from chatops.tui.dialogs.approval import ApprovalScreen
    from chatops.tui.dialogs.approval_list import LastSeenCall
    from chatops.tui.dialogs.contained import ContainedScreen
    from chatops.tui.dialogs.review import ReviewScreen
    from chatops.tui.dialogs.server_question import ServerQuestionScreen
    from chatops.tui.dialogs.trust import TrustScreen
    from chatops.tui.screens.run import OwnRunPresenter

SETTLE_S = 0.5
"""Seconds without a key before a dialog may open by itself."""


class DecisionDialogs:
    """Opens at most one dialog at a time. Esc postpones what it showed."""

    def __init__(self, screen: Screen[Any], composer: Composer) -> None:
        """Create it for the chat screen and its message field."""
        self._screen = screen
        self._composer = composer
        self._current: OpenSession | None = None
        self._approval: ApprovalScreen | ContainedScreen | None = None
        self._seen: LastSeenCall | None = None
        """What the user has seen of this session's calls."""
        self._review: ReviewScreen | None = None
        self._question: ServerQuestionScreen | None = None
        self._trust: TrustScreen | None = None
        self._trust_question: TrustQuestion | None = None
        """Question about the folder, to be asked once no other is open; None once it was asked."""
        self._asked_starts: set[str] = set()
        """Digests of the questions about MCP servers that were asked."""
        self._postponed: set[str] = set()
        """Digests of the calls that the user has postponed."""
        self._postponed_questions: set[str] = set()
        self._warned_questions: set[str] = set()
        """Questions whose call the next Esc stops."""
        self._typed: dict[str, dict[str, str]] = {}
        """Texts typed into the form of a question and not sent, by its id and the field."""
        self._postponed_review: AwaitingReview | None = None
        self._settling = False
        self._announced: dict[str, str] = {}

    def show(self, current: OpenSession) -> None:
        """Ask about another session. Dialogs about the previous one are closed, because they can decide nothing."""
        self._current = current
        self._seen = None
        self._postponed.clear()
        self._postponed_review = None
        for dialog in (self.approval, self.review, self.question):
            if dialog is not None:
                dialog.finish()

    @property
    def approval(self) -> "ApprovalScreen | ContainedScreen | None":
        """The approval dialog if it is open, even below a question of its own."""
        return self._approval if self._approval in self._screen.app.screen_stack else None

    @property
    def review(self) -> "ReviewScreen | None":
        """The review dialog if it is open, even below a question of its own."""
        return self._review if self._review in self._screen.app.screen_stack else None

    @property
    def question(self) -> "ServerQuestionScreen | None":
        """The dialog for a question of a server if it is open, even below its form."""
        return self._question if self._question in self._screen.app.screen_stack else None

    @property
    def any_open(self) -> bool:
        """True if one of the dialogs is open."""
        dialogs = (self._approval, self._review, self._question, self._trust)
        return any(dialog in self._screen.app.screen_stack for dialog in dialogs if dialog is not None)

    @property
    def has_pending(self) -> bool:
        """True if something in the session needs the user's decision."""
        current = self._current
        pending = current is not None and bool(current.session.snapshot().pending)
        return pending or self._wanted is not None or bool(self._asked)

    @property
    def _asked(self) -> "Sequence[OpenQuestion]":
        """Questions of servers whose calls run here."""
        current = self._current
        return current.session.snapshot().questions if current is not None and not current.follows else ()

    @property
    def _run(self) -> "OwnRunPresenter | None":
        return self._current.own_run if self._current is not None else None

    @property
    def _wanted(self) -> "AwaitingReview | None":
        return self._run.pending_review if self._run is not None else None

    def offer(self, snapshot: "Snapshot") -> None:
        """Open the dialog for new requests, unless the user is writing or has another screen open."""
        if self._current is None or self._current.follows:
            return  # It opens by itself in the process that owns the session; a follower presses ctrl+g.
        self._announce(snapshot)
        starts = self._current.workspace.trust.about_starts()
        if starts is not None and starts.digest not in self._asked_starts:
            self._asked_starts.add(starts.digest)
            self._trust_question = self._trust_question or starts
        fresh = bool({pending.digest for pending in snapshot.pending} - self._postponed)
        fresh = fresh or (self._wanted is not None and self._wanted != self._postponed_review)
        fresh = fresh or any(asked.question.id not in self._postponed_questions for asked in snapshot.questions)
        if (
            not (fresh or self._trust_question)
            or not self._screen.is_active
            or (self._run is not None and self._run.blocked())
        ):
            return
        if self._composer.idle and fresh:
            self.open()
        elif self._composer.idle and self._trust_question is not None:
            self._ask_trust(self._trust_question)
        elif not self._composer.text and not self._settling:
            self._settling = True
            self._screen.set_timer(SETTLE_S, self._settled)

    def _announce(self, snapshot: "Snapshot") -> None:
        """Tell the app what waits, for a user who is elsewhere."""
        pending = {}
        if snapshot.pending:
            from chatops.tui.transcript.card import pending_verb

            pending = {one.digest: f"Approve {pending_verb(one)}?" for one in snapshot.pending}
        for asked in snapshot.questions:
            pending[asked.question.id] = f"{sanitize(asked.question.server, newlines=False)} asks you"
        if self._wanted is not None:
            pending[f"review {self._wanted}"] = "A step needs a review"
        if pending != self._announced:
            self._announced = pending
            self._screen.post_message(PendingChanged(pending))

    def _settled(self) -> None:
        self._settling = False
        self._screen.post_message(Changed())

    def open(self) -> None:
        """Open the dialog for what is pending, if anything is. A notice tells why that is not possible."""
        if self._current is None or not self._screen.is_active or not self.has_pending:
            return
        if self._run is not None and (blocked := self._run.blocked()):
            show_notice(self._screen.app, blocked)
            return
        if self._asked and not (self._current.session.snapshot().pending and self._put_off()):
            self._open_question(self._current, self._asked[0])
        elif self._run is not None and self._wanted is not None:
            self._open_review(self._run, self._wanted)
        else:
            self._open_approval(self._current)
        self._screen.post_message(Changed())

    def _put_off(self) -> bool:
        """Return True if the user has put off all questions of servers."""
        return self._postponed_questions.issuperset(asked.question.id for asked in self._asked)

    def _open_approval(self, current: OpenSession) -> None:
        from chatops.tui.dialogs.approval import ApprovalScreen
        from chatops.tui.dialogs.approval_list import LastSeenCall
        from chatops.tui.dialogs.contained import ContainedScreen, asks_about_changes

        def closed(_: None) -> None:
            """Postpone what was shown: it stays on the banner and does not open again by itself."""
            if current is self._current:
                self._postponed = {pending.digest for pending in current.session.snapshot().pending}
            self._screen.post_message(Changed())

        if asks_about_changes(current.session.snapshot().pending):
            self._approval = ContainedScreen(current.session, self._composer)
        else:
            self._seen = self._seen or LastSeenCall()
            self._approval = ApprovalScreen(current.session, self._composer, seen=self._seen)
        self._screen.app.push_screen(self._approval, closed)

    def warn_of_stop(self) -> bool:
        """Say that the next Esc stops a call whose question is put off; return False if that was said already."""
        asked = {asked.question.id for asked in self._asked}
        if asked <= self._warned_questions:
            return False
        self._warned_questions |= asked
        show_notice(self._screen.app, f"A call waits for your answer: {key_of('pending')} answers, Esc again stops it.")
        return True

    def _open_question(self, current: OpenSession, asked: "OpenQuestion") -> None:
        from chatops.tui.dialogs.server_question import ServerQuestionScreen

        def closed(_: None) -> None:
            self._postponed_questions.add(asked.question.id)
            self._screen.post_message(Changed())

        self._warned_questions.discard(asked.question.id)
        session = current.owned("The question was not answered")
        kept = self._typed.setdefault(asked.question.id, {})
        self._question = ServerQuestionScreen(session, asked, self._composer, kept=kept)
        self._screen.app.push_screen(self._question, closed)

    def _open_review(self, run: "OwnRunPresenter", wanted: "AwaitingReview") -> None:
        from chatops.tui.dialogs.review import ReviewScreen

        def closed(_: None) -> None:
            if run is self._run:
                self._postponed_review = run.pending_review
            self._screen.post_message(Changed())

        self._review = ReviewScreen(run.run, wanted, self._composer)
        self._screen.app.push_screen(self._review, closed)

    def _ask_trust(self, question: "TrustQuestion") -> None:
        """Ask about what the folder brings. Esc leaves it ignored, and it is not asked again in this process."""
        from chatops.tui.dialogs.trust import TrustScreen

        def closed(_: None) -> None:
            if question.is_answerable and not dialog.answered:
                show_notice(self._screen.app, "Not decided: what you do not trust is ignored. /trust asks.")
            self._screen.post_message(Changed())

        self._trust_question = None
        if self._current is None or not self._screen.is_active:
            return
        workspace = self._current.workspace
        dialog = self._trust = TrustScreen(
            question, lambda trusted: workspace.trust.answer(question, trusted=trusted), self._composer
        )
        self._screen.app.push_screen(dialog, closed)

    def ask_later(self, question: "TrustQuestion | None") -> None:
        """Ask about what the folder brings once no other dialog is open, and the user does not type."""
        self._trust_question = question

    async def ask_trust_again(self) -> None:
        """Ask about what the folder brings now."""
        assert self._current is not None
        question = await self._current.workspace.trust.current()
        if question.listed:
            self._ask_trust(question)
        else:
            show_notice(self._screen.app, "This folder brings nothing that needs your trust.")

    def feed(self, events: "Sequence[Event]") -> None:
        """Update an open dialog after events of the session."""
        if (approval := self.approval) is not None:
            for event in events:
                approval.feed(event)
        for dialog in (self.review, self.question):
            if dialog is not None:
                dialog.follow()

    def refresh(self) -> None:
        """Update an open dialog after the followed session was read again."""
        if (approval := self.approval) is not None:
            approval.follow()
