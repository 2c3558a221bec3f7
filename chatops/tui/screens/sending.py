"""Sends messages: before a session is open, to it, and from its queue back into the message field."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.tui.composer import Composer
from chatops.tui.keys import key_of
from chatops.tui.notice import show_notice
from chatops.tui.screens.drafts import Drafts, append_to_draft
from chatops.tui.screens.drawing import TranscriptPresenter
from chatops.tui.screens.open_session import OpenSession
from chatops.tui.status import Banner, QueuedMessages, StatusLine
from chatops.tui.textual_internals import remove_untrue

if TYPE_CHECKING:
    from chatops.engine.effects import ComposerDraft
    from chatops.runtime.session import Session
    from chatops.runtime.view import SessionView, Snapshot

FRAME_LIMIT_S = 0.03
"""Seconds after sending a message until the next frame at the latest. With less, drawing would delay more requests."""
LIST_AFTER_S = 0.2
"""Seconds after which a message sent and not accepted yet is listed. Most are accepted sooner."""
_MARKED_HEADING = "Delete removes it; shift+Up, shift+Down mark another:"
_NEARLY_FULL_SHARE, _LARGE_SHARE = 0.8, 0.1
"""Shares of the context. A message of the second size that fills the first one is announced before it is sent."""
_MIN_ANNOUNCED = 1000
"""Characters of a message without files that may be announced: less than a tenth of a context of 4,096 tokens."""
_CORRECTING_HEADING = "Interrupted. Sent once the running call has stopped:"

_STORED_HEADING = "Stored. Sent as soon as the session is open:"
_NOT_STORED_HEADING = "Not stored yet. Sent as soon as the session is open:"


class Outbox:
    """Messages to send once a session is open, oldest first."""

    def __init__(self, keep_unsent: Callable[[Sequence[str]], bool]) -> None:
        """Create an empty outbox.

        `keep_unsent` stores its messages, replacing those it stored before. It returns False if that is not possible.
        """
        self._keep_unsent = keep_unsent
        self._stored = False
        self.texts: list[str] = []
        """All messages, including the one that is being submitted."""
        self.submitting = False
        """True while messages are submitted. One sent meanwhile has to wait for its turn."""
        self.used = asyncio.Event()
        """Set with the first message."""

    @property
    def queued(self) -> list[str]:
        """The messages that are not being submitted yet."""
        return self.texts[1:] if self.submitting else self.texts

    @property
    def heading(self) -> str:
        """Heading for the list of messages; empty if there are none."""
        return (_STORED_HEADING if self._stored else _NOT_STORED_HEADING) if self.texts else ""

    def add(self, text: str) -> None:
        """Add a message and store all of them."""
        self.texts.append(text)
        self._stored = self._keep_unsent(self.texts)
        self.used.set()

    async def submit_all(self, submit: Callable[[str], Callable[[], Awaitable[None]]]) -> None:
        """Submit one message after the other. Messages added meanwhile come last."""
        self.submitting = True
        try:
            while self.texts:
                await submit(self.texts[0])()
                self.texts.pop(0)
                self._keep_unsent(self.texts)
        finally:
            self.submitting = False


class Interrupted(NamedTuple):
    """Effect of one ctrl+c."""

    done: str = ""
    """A sentence; empty if there was nothing to do."""
    runs_on: bool = False
    """True if a turn runs, which the next ctrl+c stops."""


class SendingPresenter:
    """Sends what was typed, and lists what is not in the transcript yet."""

    def __init__(
        self,
        screen: Screen[Any],
        composer: Composer,
        *,
        drawing: TranscriptPresenter,
        run_command: Callable[[str], Awaitable[None]],
        keep_unsent: Callable[[Sequence[str]], bool],
    ) -> None:
        """Create the presenter. `run_command` runs a slash command. For `keep_unsent` see `Outbox`."""
        self._screen = screen
        self._composer = composer
        self._drawing = drawing
        self._run_command = run_command
        self._current: OpenSession | None = None
        self._newer: int | None = None
        """Number of queued messages newer than the marked one, which Delete removes; None: none is marked."""
        self.cleared_text = ""
        """The text that ctrl+c has cleared from the message field."""
        self.runs_typed = False
        """True while a command runs that was typed: a text in the message field was begun after it."""
        self._failed = False
        """True if no session could be opened."""
        self.ready = asyncio.Event()
        """Set once a session is open, or could not be opened."""
        self.outbox = Outbox(keep_unsent)
        """The messages sent before a session was open."""
        self._announced = ""
        """The text whose size was announced. It is sent if Enter is pressed again."""
        self.drafts = Drafts(composer)
        """The text typed and not sent yet."""

    def show(self, current: OpenSession) -> None:
        """Send to this session from now on."""
        self._current = current
        self.ready.set()
        self.drafts.show(current.workspace.user, current.session, followed=current.follows)

    @property
    def unsaved_text(self) -> str:
        """Text typed and messages sent so far, all of which would be lost if no session were ever opened."""
        return "\n\n".join(text for text in (*self.outbox.texts, self._composer.full_text) if text)

    async def typing_paused(self, *, since: float) -> None:
        """Wait for a pause in what has been typed after `since`, before a late screen takes the keyboard."""
        while (self._composer.typed_at or 0.0) > since and not self._composer.paused:  # noqa: ASYNC110
            await asyncio.sleep(FRAME_LIMIT_S)

    def submit(self, text: str, *, correcting: bool = False) -> Callable[[], Awaitable[None]] | None:
        """Return what sends a message or runs a slash command. Before a session is open, keep it and return None.

        `correcting`: interrupt the turn, which continues with the message.
        """
        if self._failed:
            show_notice(self._screen.app, f"No session is open, so nothing was sent. {key_of('quit')} quits.")
            self.give_back(text)
            return None
        if self._current is not None and not self.outbox.submitting:
            return self.work(text, correcting=correcting)
        self.outbox.add(text)
        self._screen.set_timer(LIST_AFTER_S, self.list_sent)
        return None

    def may_send(self, text: str) -> bool:
        """Return False, and say why, the first time that a text is sent which the model cannot take as it is.

        This is a text with an image that the model does not see, or one that nearly fills the context.
        """
        announced, self._announced = self._announced, ""
        if self._current is None or text == announced or text.startswith("!") or is_command(text):
            return True
        current, session = self._current, self._current.session
        if not (problem := _unseen_image(current, text) or _nearly_full(session, text)):
            return True
        self._announced, model = text, session.snapshot().model

        def is_unsent() -> bool:
            shown = self._current is current and session.snapshot().model == model
            return shown and self._composer.full_text == text

        show_notice(self._screen.app, f"Not sent yet: {problem}", holds=is_unsent)
        return False

    def typed(self) -> None:
        """Store the draft soon, and say when a queue that is on hold is sent."""
        self.drafts.changed()
        remove_untrue(self._screen.app)
        if self._composer.queue_offered:
            self.list_sent()

    def work(self, text: str, *, correcting: bool = False) -> Callable[[], Awaitable[None]]:
        """Add a text to the history and return what sends it or runs it."""
        assert self._current is not None
        self.cleared_text = ""
        self._composer.add_history(text)
        if not is_command(text):
            return partial(self._send_between_frames, text, correcting=correcting)
        self._current.workspace.user.remember(text)
        return partial(self._run_typed, text)

    async def _run_typed(self, text: str) -> None:
        self.runs_typed = True
        try:
            await self._run_command(text)
        finally:
            self.runs_typed = False

    async def _send_between_frames(self, text: str, *, correcting: bool) -> None:
        # The request comes before the next frame, unless storing the message takes longer than a user would notice.
        frames = ExitStack()
        frames.enter_context(self._screen.app.batch_update())
        frames.callback(self._screen.check_idle)
        frames.enter_context(self._drawing.hold())

        def draw_frames() -> None:
            frames.close()
            self._screen.set_timer(LIST_AFTER_S - FRAME_LIMIT_S, self.list_sent)

        # Not a timer of Textual, which is a task that would run before the request.
        timer = asyncio.get_running_loop().call_later(FRAME_LIMIT_S, draw_frames)
        is_sent = False
        try:
            is_sent = await self._send(text, correcting=correcting)
            # A request leaves in several parts. Drawing or storing anything between them would delay the last one.
            await asyncio.sleep(FRAME_LIMIT_S / 4)
        except ChatopsError as error:
            show_notice(self._screen.app, error.full)
        finally:
            timer.cancel()
            # First, because an error in drawing must not stop all later frames.
            frames.close()
            # A user who sends a message wants to see the reply. One who queues it may read on.
            if is_sent:
                self._drawing.follow_end()
            if self._current is not None:
                self._current.workspace.user.remember(text)

    async def _send(self, text: str, *, correcting: bool) -> bool:
        """Send a message, or run a command of the user (``!``, or ``!!`` so that no model gets it).

        It is part of the draft until the session stores it. Returns False if it is queued.

        Raises ChatopsError if it was not sent. The text is then in the message field again, or in the draft of the
        session if another one is shown now.
        """
        sending, self._newer = self._current, None
        assert sending is not None
        try:
            with self.drafts.until_stored(text) as take_draft:
                session = sending.owned("The message was not sent")
                if text.startswith("!"):
                    await _run_shell_command(
                        session, text[1:], seen=text == self._composer.sent_in_view, draft=take_draft
                    )
                elif not (correcting and await session.actions.correct(text.strip(), draft=take_draft)):
                    return await session.submit(text.strip(), draft=take_draft)
                return True
        except ChatopsError:
            if sending is self._current:
                self.give_back(text, refused=text.startswith("!"))
            else:
                append_to_draft(text, sending.workspace.user, sending.session)
            raise

    def fail(self, error: ChatopsError) -> None:
        """Show why no session could be opened. Messages sent so far go back into the field, before newer text."""
        self._failed = True
        self.ready.set()
        self._screen.query_one(Banner).show(error.full, tone="error")
        self._screen.query_one(StatusLine).say(f"no session, {key_of('quit')} quits")
        if self.outbox.texts:
            self._composer.set_text(self.unsaved_text)
            self.outbox.texts.clear()
        self.list_sent()

    def give_back(self, text: str, *, refused: bool = False) -> None:
        """Put text that could not be sent back into the message field, unless the user has typed on.

        `refused`: it is a command that cannot be run now. What is typed next, such as `/role`, replaces it.
        """
        if text and not self._composer.text:
            put_back = self._composer.put_back_refused if refused else self._composer.set_text
            put_back(text)

    def write(self, text: str) -> None:
        """Put a text into the message field. What is typed there moves to the history."""
        self.set_aside()
        self._composer.offer_text(text)

    def set_aside(self) -> bool:
        """Move the typed text to the history. Return False if there is none."""
        text = self.cleared_text = self._composer.take_text() if self._composer.text else ""
        if text:
            self._composer.add_history(text)
            if self._current is not None:
                self._current.workspace.user.remember(text)
        return bool(text)

    def restore(self) -> None:
        """Put the text that was set aside back into the message field, unless something else is typed."""
        if self.cleared_text and not self._composer.text:
            self._composer.set_text(self.cleared_text)

    async def interrupt(self) -> Interrupted:
        """Move the text to the history, else stop the turn that runs here."""
        current = self._current
        runs = current is not None and not current.follows and current.session.snapshot().runs
        if self._composer.text:
            self.set_aside()
            key = key_of("history") if self._composer.queue_offered else "Up"
            return Interrupted(f"The text is in the history ({key}).", runs_on=runs)
        if current is not None and runs and await current.session.cancel():
            # A text that was cleared just before is restored if the next ctrl+c quits.
            return Interrupted("Stopped.")
        self.cleared_text = ""
        return Interrupted()

    async def press_queue_key(self, key: str) -> None:
        """Handle a key of the queue: up, shift+up, shift+down, delete or enter. Raises ChatopsError."""
        match key:
            case "up":
                await self._take_back()
            case "delete":
                await self._remove_marked()
            case "enter":
                await self._resume_queue()
            case "shift+down":
                self._mark_newer()
            case _:
                self._mark_older()

    async def _take_back(self) -> None:
        """Take the newest queued message back into the message field. With none, recall the last message sent."""
        owner = self._current
        if owner is None or self.drafts.taking_back:
            return
        self.drafts.taking_back = True
        try:
            text = await owner.workspace.user.take_queued(owner.session)
        finally:
            self.drafts.taking_back = False
        if owner is not self._current:
            append_to_draft(text, owner.workspace.user, owner.session)
        elif text:
            self.drafts.put_before(text)
        else:
            self._composer.recall()

    @property
    def _queued(self) -> Sequence[str]:
        return self._current.session.snapshot().queued if self._current is not None else ()

    def _mark_older(self) -> None:
        """Mark the queued message before the marked one, the newest if none is marked."""
        if queued := self._queued:
            self._newer = 0 if self._newer is None else min(self._newer + 1, len(queued) - 1)
        self.list_sent()

    def _mark_newer(self) -> None:
        """Mark the queued message after the marked one; none after the newest."""
        newer = min(self._newer or 0, len(self._queued))
        self._newer = newer - 1 if newer else None
        self.list_sent()

    def unmark(self) -> None:
        """Mark no queued message any more."""
        self._newer = None

    async def _remove_marked(self) -> None:
        """Remove the marked message from the queue, not from the history. Mark the newest if none is marked."""
        current, queued, newer = self._current, self._queued, self._newer
        if current is None or not queued:
            return
        if newer is None or newer >= len(queued):
            self._mark_older()
            return
        text = queued[-1 - newer]
        session = current.owned("The queue was not changed")
        self._composer.add_history(text)
        current.workspace.user.remember(text)
        if await session.queue.take(later=newer, only=text):
            self._newer = min(newer, len(queued) - 2) if len(queued) > 1 else None

    async def _resume_queue(self) -> None:
        current = self._current
        if current is not None and current.session.snapshot().queued and not current.follows:
            await current.owned("The queue was not sent").queue.resume()

    def list_sent(self, snapshot: "Snapshot | None" = None) -> None:
        """Show the messages that are not in the transcript yet. `snapshot` if the caller has taken it."""
        if not self._screen.is_attached:
            return
        queued: Sequence[str] = ()
        heading, self._composer.queue_offered = self.outbox.heading, False
        if (current := self._current) is not None:
            snapshot = snapshot or current.session.snapshot()
            self._composer.queue_offered = bool(snapshot.queued) and not current.follows
            queued, heading = self._listed_queue(current, snapshot)
        if not self._composer.queue_offered or self._composer.text:
            self._newer = None
        marked = len(queued) - 1 - self._newer if self._newer is not None and self._newer < len(queued) else None
        heading = _MARKED_HEADING if marked is not None else heading
        sent = self._screen.query_one(QueuedMessages)
        sent.show([*queued, *self.drafts.being_stored, *self.outbox.queued], heading=heading, marked=marked)

    def _listed_queue(self, current: OpenSession, snapshot: "Snapshot") -> tuple[Sequence[str], str]:
        """Return the queue as it is listed, a correction first, and its heading."""
        queued: Sequence[str] = snapshot.queued
        if queued and snapshot.contained and snapshot.queue_held:
            queued = (f"contained · {queued[0]}", *queued[1:])
        if snapshot.correction:
            return (snapshot.correction, *queued), _CORRECTING_HEADING
        running, typed = current.run is not None and not current.run.over, bool(self._composer.text)
        return queued, queue_heading(snapshot, running=running, followed=current.follows, typed=typed)


def _unseen_image(current: OpenSession, text: str) -> str:
    """Return that the model does not see an image that `text` attaches; empty if it has none or the model sees it."""
    if "@" not in text:
        return ""
    from chatops.tools.attach import named_image

    if not (image := named_image(text)) or current.session.grant().models[0].sees_images:
        return ""
    snapshot = current.session.snapshot()
    unseen = f"{snapshot.model_label or snapshot.model} does not see images, only the name {image}"
    place = current.workspace.images_key(snapshot.model)
    sees = f" If the model can see them, say so: {place}." if place else ""
    return f"{unseen}. Enter sends it; /model chooses another model.{sees}"


def _nearly_full(session: "SessionView", text: str) -> str:
    """Return that a large message nearly fills the context; empty if it does not."""
    if len(text) < _MIN_ANNOUNCED and "@" not in text:
        return ""
    from chatops.domain.model import ASSUMED_WINDOW
    from chatops.engine.transcript import tokens

    snapshot, length = session.snapshot(), len(text)
    if "@" in text:
        from chatops.tools.attach import estimated_size

        length += estimated_size(text, Path(snapshot.workspace))
    size, model = tokens(length), snapshot.model_label or snapshot.model
    # Some models state no window: the assumed one is what requests are cut to.
    window, total = snapshot.context_window or ASSUMED_WINDOW, snapshot.context_used + size
    if size < window * _LARGE_SHARE or total < window * _NEARLY_FULL_SHARE:
        return ""
    if total > window:
        return f"about {total:,} tokens would be sent, and {model} takes {window:,}. Enter sends it."
    used = 100 * total // window
    return f"with its {size:,} tokens or so, {used} % of the context of {model} is used. Enter sends it."


async def _run_shell_command(
    session: "Session", text: str, *, seen: bool, draft: "Callable[[], ComposerDraft | None]"
) -> None:
    private = text.startswith("!")
    command = text.removeprefix("!").strip()
    if not command:
        raise ChatopsError("Write a command after the !: !git status")
    await session.actions.run_command(command, private=private, shown=seen, draft=draft)


def queue_heading(snapshot: "Snapshot", *, running: bool, followed: bool, typed: bool = False) -> str:
    """Return the heading of the queued messages: when they are sent and how to change that.

    `running` is True while a workflow run is in progress, `typed` if a new message stands in the message field.
    """
    if not snapshot.queued:
        return ""
    if followed:
        return "Queued in the other window:"
    if snapshot.queue_held and typed:
        return "Queue on hold. Enter sends it, then the new message:"
    if snapshot.queue_held:
        return "Queue on hold. Enter sends it, Up takes back the last:"
    return f"Queued until this {'run' if running else 'turn'} ends. Up takes back the last:"


def is_command(text: str) -> bool:
    """Return True if a text is for the app and not for the model. A leading space makes it a message."""
    return text.startswith("/")
