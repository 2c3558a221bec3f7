"""Wait before a turn until the MCP servers that it needs are connected."""

import asyncio
from collections.abc import Callable

from chatops.runtime.services import ToolServers
from chatops.runtime.settings import SessionSettings

NOTICE_AFTER_S = 0.5
"""Seconds after which the user is told what a turn waits for. Most MCP servers are connected by then."""


class ServerWait:
    """The wait, which the user can end. Turns wait in the order in which they were asked for."""

    def __init__(self, servers: ToolServers, notify: Callable[[str], None]) -> None:
        self._servers = servers
        self._notify = notify
        self._in_order = asyncio.Lock()
        self._skipped: set[str] = set()
        """Servers without which the user continued."""
        self._skip: asyncio.Event | None = None
        """Ends the current wait; None: nothing waits."""

    def start_needed(self, settings: SessionSettings) -> tuple[str, ...]:
        """Start the servers that these settings need. Return those to wait for."""
        return tuple(name for name in self._servers.start_for(settings) if name not in self._skipped)

    async def wait(self, settings: Callable[[], SessionSettings]) -> None:
        """Wait until the servers that the settings need, which may change meanwhile, are connected or cannot be."""
        async with self._in_order:
            while names := self.start_needed(settings()):
                skip = self._skip = asyncio.Event()
                ends = {asyncio.ensure_future(self._servers.settled(names)), asyncio.ensure_future(skip.wait())}
                try:
                    done, _ = await asyncio.wait(ends, timeout=NOTICE_AFTER_S, return_when=asyncio.FIRST_COMPLETED)
                    if not done:
                        which = f"MCP server{'s' if names[1:] else ''} {', '.join(names)}"
                        self._notify(f"Waiting for the {which} to connect. Esc continues without.")
                        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    # What did not connect by now is not waited for again.
                    self._skipped.update(names)
                finally:
                    self._skip = None
                    for end in ends:
                        end.cancel()

    def skip(self) -> bool:
        """Let the turn start now. Return False if none waits."""
        if self._skip is None:
            return False
        self._skip.set()
        return True
