"""What the pages show and what their forms do, over the store. Everything here blocks, in one thread.

A decision is posted as ``chatops approvals`` posts it, with the same checks. No session is opened.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from chatops.config.paths import show_folder
from chatops.domain.decisions import Approved, Decision, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError, NoSuchSessionError, ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, session_of
from chatops.domain.tools import CONTAINED_APPLY, shown_verb
from chatops.domain.wording import cut
from chatops.runtime.call_facts import asked_by
from chatops.runtime.call_sheet import call_sheet, subject_line
from chatops.runtime.descriptions import describe_time
from chatops.runtime.services import changes
from chatops.serve.pages import CallPage, call_page
from chatops.store.base import CALLS, PendingCallRow, SessionInfo
from chatops.wiring.app import App
from chatops.wiring.job_binding import why_not_here
from chatops.wiring.jobs import Job, JobState, job_of, start_if_job
from chatops.wiring.pending import PendingCalls, state_in_words

log = logging.getLogger(__name__)

VIA = "serve"
MAX_REMEMBERED = 100
"""Decisions whose pages still say what followed. Older ones say how to continue instead."""
LONGEST_REASON, LONGEST_ABOUT = 4_000, 300
"""Characters. The list shows the beginning of a call; its page shows all of it."""


@frozen_dataclass
class ListedCall:
    """One line of the list."""

    id: str
    verb: str
    about: str
    role: str
    model: str
    """In brackets, after a space; empty if no model is asked."""
    session: str
    folder: str
    since: str
    state_in_words: str
    open: bool
    """True if it waits for a decision."""
    cautions: Sequence[str]


@frozen_dataclass
class Overview:
    """The list of what waits."""

    calls: Sequence[ListedCall]
    interrupted: Sequence[tuple[str, str]]
    """Sessions with a call that a crash interrupted: id and state."""
    reviews: Sequence[SessionInfo]
    """Workflow runs with a step to review."""
    jobs: Sequence[Job]
    """Those that are not over, and not among the interrupted sessions."""
    notices: Sequence[str]
    version: str

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a decision."""
        return sum(call.open for call in self.calls)


@frozen_dataclass
class ShownCall:
    """One call, or what became of it."""

    id: str
    digest: str
    state: str
    """Changes whenever the answers to the call do, or the changes that it would apply."""
    listed: ListedCall | None
    """None: it does not wait any more."""
    page: CallPage | None
    decided: str
    """What was decided, as a sentence; empty if nothing was."""
    then: str
    """What continues its session after the decision."""
    blocked: str
    """Why nothing is decided here; empty if it may be."""


class Desk:
    """The pending calls of this user. Not for several threads at a time."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._calls = PendingCalls(app.store, rights=lambda: app.rights, data=app.paths.data)
        self._then: dict[str, str] = {}
        """What followed the latest decisions made here, by call."""

    def version(self) -> str:
        """Return a value that changes with what waits, and tells nothing of it."""
        rows = self._app.store.pending_calls()
        waiting = [
            *((row.pending.call.id, row.pending.digest, row.decided is not None) for row in rows),
            *((job.id, job.state.value, job.why) for job in self._jobs()),
            *((info.id, info.run) for info in self._calls.reviews()),
        ]
        return hashlib.sha256(repr(waiting).encode()).hexdigest()[:16]

    def changes(self) -> AbstractContextManager[Callable[..., Awaitable[None]]]:
        """Return how to pause until what waits may have changed, see `runtime.services.changes`."""
        return changes(self._app.store, CALLS)

    def data_version(self) -> int:
        """Return a number that changes whenever another process writes to the store. Fast."""
        return self._app.store.data_version()

    def _apply_changed_registry(self) -> None:
        """Put what a changed registry adds in force: a page has no turn with which that would begin to count."""
        now = self._app.configuration.now()
        if now.changed is not None and not now.broken:
            self._app.reload_registry()

    def overview(self) -> Overview:
        """Return what waits in all sessions, first what can be decided. Raises StoreError."""
        self._apply_changed_registry()
        version = self.version()
        calls = [self._list_call(row) for row in self._calls.all()]
        interrupted = dict(self._calls.interrupted())
        return Overview(
            calls=[*(call for call in calls if call.open), *(call for call in calls if not call.open)],
            interrupted=tuple(interrupted.items()),
            reviews=self._calls.reviews(),
            jobs=[job for job in self._jobs() if job.id not in interrupted],
            notices=tuple(filter(None, (self._app.configuration.now().broken, *self._app.store.notices))),
            version=version,
        )

    def start_decided_jobs(self) -> None:
        """Start jobs that were decided and not started: the program that decided died, or lacked what this one has."""
        store = self._app.store
        for job in self._jobs():
            is_unowned = job.state is JobState.NOT_STARTED and job.lease is None
            if is_unowned and why_not_here(store, job.row) is None:
                log.info("a decided job is started: %s", start_if_job(store, job.id))

    def _jobs(self) -> list[Job]:
        """Return the jobs that are not over. Of those, only the session has to be read."""
        store = self._app.store
        return [job_of(store, row) for row in store.jobs() if row.session.active_turn == row.turn_id]

    def call(self, call_id: str) -> ShownCall | None:
        """Return a call that waits, or was decided; None if there is no such call. Raises StoreError."""
        self._apply_changed_registry()
        row = self._find_pending(call_id)
        if row is None:
            return self._decided_call(call_id)
        row = self._calls.judge_again(row)
        pending, blocked = row.pending, self._why_blocked()
        review = None
        if pending.call.name == CONTAINED_APPLY:
            try:
                review = self._app.contained.review(pending.facts.arguments)
            except (ToolFailedError, OSError) as error:
                blocked = blocked or f"The changes cannot be shown: {error}"
        page = call_page(pending, review, may_decide=not blocked and row.decided is None)
        shown = (pending.digest, pending.denial, row.decided, blocked, review)
        decided = self._calls.decided(row.session_id, pending.call.id) if row.decided is not None else ""
        then = self._then.get(call_id, "") or f"To continue it: {self._calls.way_to_continue(row)}"
        return ShownCall(
            id=call_id,
            digest=pending.digest,
            state=hashlib.sha256(repr(shown).encode()).hexdigest()[:16],
            listed=self._list_call(row),
            page=page,
            decided=decided,
            then=then if decided else "",
            blocked=blocked,
        )

    def decide(
        self, call_id: str, answer: str, *, digest: str, state: str, ticked: str, reason: str, place: str
    ) -> None:
        """Decide on a call as it was shown. `answer` is the name of a button of `serve.pages`.

        `ticked` are the boxes of the call's changes, with spaces between them. `place` goes into the log of decisions.

        Raises ChatopsError if nothing was decided.
        """
        decision = _read_decision(answer, reason)
        self._apply_changed_registry()
        if blocked := self._why_blocked():
            raise ChatopsError(blocked)
        row = self._find_pending(call_id)
        if row is None:
            if (decided := self._decided_call(call_id)) is not None:
                raise ChatopsError(f"{decided.decided} The first decision counts.")
            raise ChatopsError("There is no such call; nothing was decided.")
        if row.pending.digest != digest:
            raise ChatopsError("The call has changed since you opened it. Nothing was decided: read it again.")
        applies_changes = row.pending.call.name == CONTAINED_APPLY and isinstance(decision, Approved)
        if applies_changes and row.decided is None:
            decision = self._approval_of_ticked(call_id, state=state, ticked=ticked)
        if not self._calls.decide(row, decision, by=replace(self._app.principal, via=VIA, tty=place), digest=digest):
            first = self._calls.decided(row.session_id, row.pending.call.id) or "It has been decided already."
            raise ChatopsError(f"{first} The first decision counts.")
        try:
            self._then[call_id] = self._calls.continue_session(row)
        except ChatopsError as error:
            # The decision is stored all the same.
            self._then[call_id] = f"{error} To continue: {self._calls.way_to_continue(row)}"
        for old in list(self._then)[:-MAX_REMEMBERED]:
            del self._then[old]

    def _approval_of_ticked(self, call_id: str, *, state: str, ticked: str) -> Approved:
        """Return the approval of the ticked changes, if they still are as they were shown. Raises ChatopsError."""
        now = self.call(call_id)
        if now is not None and now.blocked:
            raise ChatopsError(f"Nothing was decided. {now.blocked}")
        # A conflict with the folder comes and goes without a change of the digest.
        if now is None or now.page is None or now.state != state:
            raise ChatopsError("The changes are not those that you have read. Nothing was decided: read them again.")
        boxes, chosen = now.page.boxes, set(ticked.split())
        only = tuple(path for box, path in boxes.items() if box in chosen)
        if boxes and not only:
            raise ChatopsError("Nothing was decided: no file is ticked.")
        return Approved(only=None if len(only) == len(boxes) else only)

    def _find_pending(self, call_id: str) -> PendingCallRow | None:
        rows = self._app.store.pending_calls()
        return next((row for row in rows if row.pending.call.id == call_id), None)

    def _decided_call(self, call_id: str) -> ShownCall | None:
        """Return what was decided on a call that does not wait any more."""
        decided = self._calls.decided(session_of(call_id), CallId(call_id)) if "." in call_id else ""
        if not decided:
            return None
        then = self._then.get(call_id, "")
        return ShownCall(
            id=call_id, digest="", state=decided, listed=None, page=None, decided=decided, then=then, blocked=""
        )

    def _why_blocked(self) -> str:
        try:
            self._app.rights.check_surface(VIA)
        except ChatopsError as error:
            return f"{error} {error.advice}"
        return self._app.store.unsaved and f"Nothing can be decided for now: {self._app.store.unsaved}."

    def _list_call(self, row: PendingCallRow) -> ListedCall:
        pending = row.pending
        try:
            info = self._app.store.session(row.session_id)
            title, folder = info.title, show_folder(info.workspace)
        except NoSuchSessionError:
            title, folder = "", ""
        sheet = call_sheet(pending, now=0)
        return ListedCall(
            id=pending.call.id,
            verb=shown_verb(pending.call.name, pending.capabilities, pending.call.arguments),
            about=cut(subject_line(pending), most=LONGEST_ABOUT),
            role=asked_by(pending),
            model=f" ({pending.model})" if pending.model else "",
            session=title or row.session_id,
            folder=folder,
            since=describe_time(row.requested_at),
            state_in_words=state_in_words(row),
            open=row.decided is None,
            cautions=[f"{fact.label}: {fact.value}" for fact in sheet.warnings],
        )


def _read_decision(answer: str, reason: str) -> Decision:
    """Return the decision that a form names. Raises ChatopsError."""
    reason = reason[:LONGEST_REASON].replace("\r\n", "\n").strip()
    match answer:
        case "approve":
            return Approved()
        case "deny":
            return Rejected()
        case "reason" | "send_back" if not reason:
            raise ChatopsError("Nothing was decided: write the reason first.")
        case "reason":
            return Rejected(reason=reason)
        case "send_back":
            return Rejected(reason=reason, send_back=True)
        case "done":
            return MarkedDone()
        case _:
            raise ChatopsError("Nothing was decided: that is no answer that this page has.")
