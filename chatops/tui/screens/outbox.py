"""Messages sent before a session is open."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

_STORED = "Stored. Sent as soon as the session is open:"
_NOT_STORED = "Not stored yet. Sent as soon as the session is open:"


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
        return (_STORED if self._stored else _NOT_STORED) if self.texts else ""

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
