"""Session in the test's process, with a real store, the real tools and the demo model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chatops.domain.events import Event, TurnStatus
from chatops.domain.messages import UserMessage
from chatops.runtime.session import Session
from chatops.wiring.app import App
from chatops.wiring.stored import Options


@asynccontextmanager
async def demo_session(workspace: Path, role: str = "coder") -> AsyncIterator[tuple[App, Session, list[Event]]]:
    app = App(Options(workspace=workspace, role=role))
    events: list[Event] = []
    session = await app.open_session(None, attended=True)
    session.subscribe(lambda published: events.append(published.event))
    try:
        yield app, session, events
    finally:
        await app.aclose()


def users(session: Session) -> list[str]:
    return [m.text for m in session.snapshot().messages if isinstance(m, UserMessage)]


async def settled(session: Session) -> TurnStatus | None:
    await session.settle()
    return session.snapshot().status
