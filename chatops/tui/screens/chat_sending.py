"""Sending messages and commands, including those sent before a session is open."""

import asyncio
import contextlib
from importlib import import_module
from typing import TYPE_CHECKING

from textual import on

from chatops.domain.errors import ChatopsError
from chatops.tui.commands.dispatch import is_command, run_command
from chatops.tui.composer.composer import Composer
from chatops.tui.screens import banner_text
from chatops.tui.screens.chat_keys import ChatKeys
from chatops.tui.status.banner import Banner, QueuedMessages
from chatops.tui.status.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from chatops.runtime.view import SessionView

SHOWN_S = 0.2
"""Seconds after which a message sent and not accepted yet is listed. Most are accepted sooner."""
_STORED = "Stored. Sent as soon as the session is open:"
_NOT_STORED = "Not stored yet. Sent as soon as the session is open:"
FIRST_KEYS_S = 0.1
"""Seconds after the first paint before anything else is imported, so that first keys show at once."""
_DRAWING = tuple(f"chatops.tui.transcript.{name}" for name in ("transcript", "projector", "frame_buffer"))


class ChatSending(ChatKeys):
    """Accepts messages at any time. Those sent before a session is open wait for it."""

    def __init__(self, keep_unsent: "Callable[[Sequence[str]], bool]") -> None:
        """Create the screen.

        `keep_unsent` stores the messages sent and in no session yet, replacing those it stored before. It returns False
        if that is not possible.
        """
        super().__init__()
        self._keep_unsent = keep_unsent
        self._hurry = asyncio.Event()
        self._unsent: list[str] = []
        """Messages sent before a session was open, oldest first."""
        self._unsent_stored = False
        self._sends_unsent = False
        """True while `_unsent` is submitted in order."""
        self._failed = False

    @property
    def has_text(self) -> bool:
        """True if something is typed or sent that no session holds."""
        return bool(self.unkept)

    @property
    def unkept(self) -> str:
        """Text typed and messages sent so far, all of which would be lost if no session were ever opened."""
        typed = self.composer.full_text if self.is_attached else ""
        return "\n\n".join(text for text in (*self._unsent, typed) if text)

    async def wait_for_first_keys(self) -> None:
        """Wait `FIRST_KEYS_S` so that first keys show at once. Return at once when a message is sent."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), FIRST_KEYS_S)

    async def furnish(self) -> None:
        """Import the modules that draw a session, in a thread, then mount the transcript."""
        for name in _DRAWING:
            await asyncio.to_thread(import_module, name)
        from chatops.tui.transcript.transcript import Transcript

        if self._transcript is None and self.is_attached:
            transcript = Transcript(id="transcript")
            with self.app.batch_update():
                await self.mount(transcript, before="#empty")
                await self.query("#empty").remove()
            self._transcript = transcript

    def warm_up(self) -> None:
        """Import the Markdown renderer, now that everything else is on screen."""
        if self._transcript is not None:
            self._transcript.start_warm_up()

    def failed_to_open(self, error: ChatopsError) -> None:
        """Show the error and its advice. Messages sent meanwhile go back into the message field, before newer text."""
        self._failed = True
        self.query_one(Banner).say(f"{error} {error.advice}".strip(), tone="error")
        self.query_one(StatusLine).say("no conversation, ctrl+q quits")
        if self._unsent:
            self.composer.put(self.unkept)
        self._unsent.clear()
        self.show_queue()

    @on(Composer.Submitted)
    def submitted(self, message: Composer.Submitted) -> None:
        """Submit a message or a slash command."""
        message.stop()
        self._submit(message.text)

    def _submit(self, text: str) -> None:
        if self._failed:
            self.say("There is no conversation to send it to. ctrl+q quits; the message says why.")
            self._give_back(text)
            return
        if self._host is None or self._sends_unsent:
            self._unsent.append(text)
            self._unsent_stored = self._keep_unsent(self._unsent)
            self.set_timer(SHOWN_S, self.show_queue)
            self._hurry.set()
            return
        self.run_worker(self._work(text), group="submit")

    def _work(self, text: str) -> "Coroutine[None, None, None]":
        self.composer.add_history(text)
        self.host.remember(text)
        return self._command(text) if is_command(text) else self._send(text)

    def send_what_waited(self) -> None:
        """Submit the messages sent before the session was open."""
        if self._unsent:
            self._sends_unsent = True
            self.run_worker(self._send_unsent(), group="submit")

    async def _send_unsent(self) -> None:
        """Submit one message after the other. Messages sent meanwhile are added behind them."""
        try:
            while self._unsent:
                await self._work(self._unsent[0])
                self._unsent.pop(0)
                self._keep_unsent(self._unsent)
        finally:
            self._sends_unsent = False

    def show_queue(self) -> None:
        """Show the messages that are not in the transcript yet."""
        if not self.is_attached:
            return
        queued: tuple[str, ...] = ()
        heading = "" if not self._unsent else _STORED if self._unsent_stored else _NOT_STORED
        if self._session is not None:
            snapshot = self._session.snapshot()
            queued, led = snapshot.queued, self.run is not None and not self.run.over
            heading = banner_text.queue_heading(snapshot, led=led, reading=self.reads_along)
        self.composer.queue_offered = bool(queued) and not self.reads_along
        unsent = self._unsent[1:] if self._sends_unsent else self._unsent
        self.query_one(QueuedMessages).show([*queued, *self.drafts.on_its_way, *unsent], heading=heading)

    async def _command(self, text: str) -> None:
        if not await run_command(self, text):
            self._give_back(text)

    async def _send(self, text: str) -> None:
        self._show_end()
        try:
            with self.drafts.until_stored(text):
                self.set_timer(SHOWN_S, self.show_queue)
                await self.session.owned("The message was not sent").submit(text.strip())
        except ChatopsError as error:
            self.say(f"{error} {error.advice}".strip())
            self._give_back(text)
            return
        finally:
            self.show_queue()
        self.update_now()

    def _show_end(self) -> None:
        """Scroll to the end, because a user who sends a message wants to see the reply."""
        if self._transcript is not None:
            self._transcript.follow()

    def _give_back(self, text: str) -> None:
        """Put text that could not be sent back into the message field, unless the user has typed on."""
        if text and not self.composer.text:
            self.composer.put(text)

    @on(Composer.TakeBack)
    def take_back(self, message: Composer.TakeBack) -> None:
        """Take the newest queued message back into the composer (Up with nothing typed)."""
        message.stop()
        if not self.drafts.taking_back:
            self.drafts.taking_back = True
            self.run_worker(self._take_back(self.session), group="take back")

    async def _take_back(self, session: "SessionView") -> None:
        try:
            text = await self.host.take_queued(session)
        except ChatopsError as error:
            self.say(f"{error} {error.advice}".strip())
            return
        finally:
            self.drafts.taking_back = False
        if session is not self._session:
            self.drafts.leave(text, session)
        elif text:
            self.drafts.put_before(text)
        else:
            self.composer.recall()
        self.update_now()

    @on(Composer.ResumeQueue)
    def resume_queue(self, message: Composer.ResumeQueue) -> None:
        """Resume a queue that is on hold (Enter with nothing typed)."""
        message.stop()
        if self._session is not None and self._session.snapshot().queued and not self.reads_along:
            self.run_worker(self._resume_queue(self._session), group="submit")

    async def _resume_queue(self, session: "SessionView") -> None:
        try:
            await session.owned("The queue was not sent").resume_queue()
        except ChatopsError as error:
            self.say(f"{error} {error.advice}".strip())
        self.update_now()

    @on(Composer.Retry)
    def retry(self, message: Composer.Retry) -> None:
        """Retry a failed turn (R)."""
        message.stop()
        self._show_end()
        self.run_worker(self._command("/retry"), group="submit")

    def update_now(self) -> None:
        """Update status line, banner and dialog from the session's current state."""
        raise NotImplementedError
