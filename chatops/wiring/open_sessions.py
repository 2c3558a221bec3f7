"""The sessions and workflow runs that are open in this process, and the notices that go to all of them."""

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakSet

from chatops.runtime.session import Session
from chatops.runtime.settings import SessionSettings
from chatops.runtime.workflow import WorkflowRun

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView


class OpenSessions:
    """Open sessions and workflow runs. Notices may come from any thread."""

    def __init__(self) -> None:
        self._open: set[SessionView] = set()
        """May hold closed sessions: they are removed when the next one is opened."""
        self._runs: WeakSet[WorkflowRun] = WeakSet()
        self._lock = Lock()
        """Guards `_open`: the thread that watches files iterates over it."""

    def add(self, session: "SessionView") -> None:
        """Keep a session alive until it is closed: only then is its lease released."""
        with self._lock:
            self._open = {known for known in self._open if not known.is_closed} | {session}

    def add_run(self, run: WorkflowRun) -> None:
        """Keep the session of a run. `aclose` closes the run before its session."""
        self._runs.add(run)
        self.add(run.session)

    def _sessions(self) -> "tuple[SessionView, ...]":
        with self._lock:
            return tuple(self._open)

    @property
    def is_idle(self) -> bool:
        """True if no session here has a turn that runs. A turn that waits for a decision does not run."""
        owned = (session for session in self._sessions() if isinstance(session, Session))
        return all(session.pending or not session.unfinished for session in owned)

    @property
    def settings(self) -> list[SessionSettings]:
        """The settings of the sessions that this process owns."""
        return [
            session.settings for session in self._sessions() if isinstance(session, Session) and not session.is_closed
        ]

    def notify(self, text: str) -> None:
        """Show a notice in each session."""
        for session in self._sessions():
            session.notify_soon(text)

    def registry_changed(self, notices: Sequence[str] = ()) -> None:
        """Apply the changed registry in the sessions that this process owns. Others follow their owner's registry."""
        for session in self._sessions():
            if isinstance(session, Session):
                session.registry_changed_soon(notices)

    async def aclose(self) -> None:
        """Close all runs and sessions."""
        for run in tuple(self._runs):
            await run.aclose()
        for session in self._sessions():
            await session.aclose()
