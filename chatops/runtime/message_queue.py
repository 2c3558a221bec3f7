"""The messages that were submitted while a turn or a workflow run was in progress.

They are stored, and sent one at a time when the turn ends, in the order of typing. A message leaves the queue in the
commit that starts its turn, so it is sent exactly once. After a turn that failed or was stopped the queue is held: what
is left was written for another situation, so the user sends it, or takes it back.
"""

from contextlib import suppress
from functools import partial

from chatops.config.failpoints import reach
from chatops.domain.errors import ChatopsError, NotSavedError, UnreadableError
from chatops.domain.events import Notice, Published, TurnFinished, TurnStarted, TurnStatus
from chatops.engine.view import turn_status
from chatops.runtime.services import EventBus, Services
from chatops.runtime.turns import TakeDraft, Turns
from chatops.store.base import SessionInfo
from chatops.store.store import Store

_HOLDING_RESULTS = (TurnStatus.FAILED, TurnStatus.CANCELLED)
"""Turn results that hold the queue until the user continues."""


class MessageQueue:
    """The queue of one session. The caller of `submit` holds `Turns.submitting`; the other methods take it."""

    def __init__(self, turns: Turns, services: Services, bus: EventBus) -> None:
        """Create an empty queue that follows the session's turns."""
        self._turns = turns
        self._services = services
        self._bus = bus
        self.messages: tuple[str, ...] = ()
        """The messages as stored, oldest first."""
        self.held = False
        """True after an interrupted or failed turn: nothing is sent until the user sends, resumes or retries."""
        self._waits_for_store = False
        """True if the next message is sent as soon as the store can be written again."""
        bus.subscribe(self._on_event)

    async def load(self, info: SessionInfo) -> None:
        """Load what an earlier process left. It is held if the last turn held it."""
        await self._reload(info)
        store, worker = self._services.store, self._services.worker
        self.held = bool(self.messages) and await worker(_last_turn_holds, store, info)

    async def submit(self, info: SessionInfo, text: str, draft: TakeDraft) -> bool:
        """Start a turn with a message, or queue it and return False. Raises NotSavedError, StoreError."""
        blocked = bool(self._turns.workflow) or self._turns.unfinished
        if blocked or self.messages:
            with suppress(NotSavedError):
                await self._reload(info)
        if not blocked and not (self.messages and self._services.attended):
            await self._turns.start(info, text, draft=draft)
            return True
        await self._services.worker(self._services.store.queue_message, info.id, text, draft=draft())
        self.messages = (*self.messages, text)
        if not blocked:
            self.held = False
            await self._start_next()
        return False

    async def take(self, *, later: int = 0, only: str | None = None, into: str = "") -> str:
        """Remove the message that has `later` newer ones and return it, storing it as setting `into`, if any.

        Returns an empty string if there is none or it is not `only`. Raises ConflictError once another process owns the
        session, and StoreError.
        """
        self._turns.check_owned()
        async with self._turns.submitting:
            info = self._turns.info
            if info is None:
                return ""
            take = partial(self._services.store.take_queued_message, info.id, later=later, only=only, into=into)
            text = await self._services.worker(take)
            await self._reload(info)
            return text or ""

    async def resume(self) -> None:
        """Send the messages, even after a turn that failed or was interrupted."""
        self.held = False
        await self.send()

    async def send(self) -> None:
        """Start the next turn with the oldest message, unless the queue is held."""
        async with self._turns.submitting:
            await self._start_next()

    async def send_for_worker(self) -> bool:
        """Start a turn with the oldest message, with no user at the screen. Return False if there is none to start.

        Raises ConfigError, StoreError.
        """
        turns = self._turns
        await turns.server_wait.wait(lambda: turns.settings)
        async with turns.submitting:
            if turns.info is None or turns.unfinished:
                return False
            await self._reload(turns.info)
            if not self.messages:
                return False
            await turns.start(turns.info, self.messages[0], draft=no_draft, queued=True)
            self.messages = self.messages[1:]
            return True

    async def _send_when_connected(self) -> None:
        await self._turns.server_wait.wait(lambda: self._turns.settings)
        await self.send()

    async def _start_next(self) -> None:
        """Start the next turn. A message that cannot be sent stays queued, with a notice."""
        self._waits_for_store = False
        turns = self._turns
        if turns.workflow or not self._services.attended or turns.info is None or turns.unfinished:
            return
        try:
            await self._reload(turns.info)
            if self.messages and not self.held:
                if turns.server_wait.start_needed(turns.settings):
                    # Not here: `submitting` is held.
                    turns.spawn(self._send_when_connected())
                    return
                reach("sending_kept")
                await turns.start(turns.info, self.messages[0], draft=no_draft, queued=True)
                self.messages = self.messages[1:]
        except NotSavedError as error:
            self._waits_for_store = True
            turns.runner.report_unsaved(error)
        except ChatopsError as error:
            self.held = True
            text = f"A queued message could not be sent: {error}"
            self._bus.notify(text, advice=error.advice, parent_id=turns.session_id)

    async def _reload(self, info: SessionInfo) -> None:
        self.messages = await self._services.worker(self._services.store.queued_messages, info.id)

    def _on_event(self, published: Published) -> None:
        match published.event:
            case TurnStarted() if (state := self._turns.runner.state) is not None:
                # A command of the user does not send what was queued before it.
                self.held = self.held and state.command is not None and bool(self.messages)
            case TurnFinished(result=result) if result in _HOLDING_RESULTS:
                self.held = True
            case TurnFinished():
                self._turns.spawn(self.send())
            case Notice() if self._waits_for_store and self._turns.runner.blocked_by is None:
                self._turns.spawn(self.send())
            case _:
                pass


def _last_turn_holds(store: Store, info: SessionInfo) -> bool:
    if info.last_turn is None:
        return False
    try:
        last = store.load_turn(info.last_turn)
        # A command of the user sends nothing, so the queue is as it was before it, which is not known any more.
        return last.command is not None or turn_status(last) in _HOLDING_RESULTS
    except UnreadableError:
        # Not known how it ended, so the user decides.
        return True


def no_draft() -> None:
    """Leave the stored draft as it is."""
