"""Delivers keys and pastes in their order: each one once what the keys before it have opened or closed is ready.

Textual passes a key to the widget that has the focus when the key arrives. A key that opens a screen does so several
messages later, or in a worker that first asks the store. What was typed after it, in the same write of a script or by
fast fingers, would go to the widget that is about to lose the focus. So the key after one that may move the focus waits
for all that this one has caused. It is posted again after that, and later keys follow one by one.

Letters typed into a text field cannot move the focus. Keys after them are delivered at once and cost nothing. A dialog
that decides something compares the time of a key with the time at which it was shown, and a key that waited keeps its
time.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from textual import events
from textual.app import App
from textual.widgets import Input, TextArea

from chatops.tui.textual_internals import wait_until_mounted

KEYS_WAIT = "keys wait for it"
"""The name of workers that a key has started and that may open a screen or change where later keys go."""
WAIT_AFTER_S = 0.02
"""Seconds after a key until the wait begins, unless another key comes sooner. A request that Enter sends goes first."""
MAX_WAIT_S = 2.0
"""Seconds after which keys are delivered even if something is still being opened, so that the keyboard stays usable."""
_POLL_S = 0.002
"""Seconds between looks at the workers that a key has started."""


class KeyOrder:
    """The keys that wait. `app` asks `must_wait` about each one that arrives."""

    def __init__(self, app: App[Any], *, held: bool = False) -> None:
        """Create it. `held`: no key is delivered until `release`."""
        self._app = app
        self._may_deliver = asyncio.Event()
        if not held:
            self._may_deliver.set()
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._may_have_moved = held
        """True after a key that may have moved the focus, until all that it has caused is done. Later keys wait."""
        self._posted: deque[events.Event] = deque()
        """The keys that were posted again and are on their way: they have waited."""
        self._task: asyncio.Task[None] | None = None

    @property
    def settled(self) -> bool:
        """True if no key waits."""
        return self._task is None

    @property
    def keys_wait(self) -> bool:
        """True if keys that were read already have not been delivered yet."""
        return bool(self._waiting or self._posted)

    def may_pass(self, event: events.Key | events.Paste) -> bool:
        """Return True unless the key would quit while text waits, which would be lost. Pressed again, it does quit."""
        if any(event is posted for posted in self._posted):
            # It has waited already, and `must_wait` lets it pass.
            return False
        last = self._waiting[-1] if self._waiting else None
        return last is None or getattr(event, "key", "") != "ctrl+q" or getattr(last, "key", "") == "ctrl+q"

    def release(self) -> None:
        """Deliver the keys that were held from the start."""
        self._may_deliver.set()

    async def typed(self) -> None:
        """Wait until the focused field has what was typed into it. Also the app may wait here."""
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT_S):
                if (field := self._app.focused) is not None:
                    await _wait_until_handled(field)

    def must_wait(self, event: events.Key | events.Paste) -> bool:
        """Return True if the key is delivered later. False: now."""
        if self._posted and event is self._posted[0]:
            self._posted.popleft()
            return False
        if self._task is None and not self._may_have_moved and not self._posted:
            if not self._only_types(event):
                self._may_have_moved = True
                asyncio.get_running_loop().call_later(WAIT_AFTER_S, self._start)
            return False
        self._waiting.append(event)
        self._start()
        return True

    def _start(self) -> None:
        if self._task is None and self._app.is_running:
            self._task = asyncio.create_task(self._deliver())

    def _only_types(self, event: events.Key | events.Paste) -> bool:
        """Return True for a letter or a paste into a field, after which the focus stays where it is."""
        typed = isinstance(event, events.Paste) or (event.is_printable and not event.key.startswith("alt+"))
        return typed and isinstance(self._app.focused, Input | TextArea)

    async def _deliver(self) -> None:
        try:
            await self._settle()
            while self._waiting and self._app.is_running:
                event = self._waiting.popleft()
                typed = self._only_types(event)
                self._posted.append(event)
                self._app.post_message(event)
                if not typed:
                    await self._settle()
        finally:
            self._task, self._may_have_moved = None, False

    async def _settle(self) -> None:
        """Wait until what was delivered has been handled, and what it opened can be typed into."""
        await self._may_deliver.wait()
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                before = None
                while self._app.screen_stack and before != (self._app.screen, self._app.focused):
                    before = self._app.screen, self._app.focused
                    # A field posts to itself first, then to the widgets around it, and the app moves the focus.
                    for node in 2 * (self._app.focused or self._app.screen).ancestors_with_self:
                        await _wait_until_handled(node)
                    # Polled, because a worker that was cancelled sets no event.
                    while any(worker.name == KEYS_WAIT and not worker.is_finished for worker in self._app.workers):  # noqa: ASYNC110
                        await asyncio.sleep(_POLL_S)
                    if self._app.screen_stack:
                        await wait_until_mounted(self._app.screen)
        except TimeoutError:
            pass


async def _wait_until_handled(node: Any) -> None:
    """Wait until a widget, or the app, has handled the messages that it has got so far."""
    handled = asyncio.Event()
    if node.is_running and node.call_later(handled.set):
        await handled.wait()
