"""A run of a workflow for the screen: moved by hand through the real machines, heard through a scripted session."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from chatops.domain.decisions import Decision
from chatops.domain.errors import ChatopsError, SessionBusyError
from chatops.domain.events import Event
from chatops.domain.ids import CallId
from chatops.domain.messages import Usage
from chatops.engine.effects import ComposerDraft
from chatops.engine.state import TurnState
from chatops.engine.view import pending_calls, turn_status
from chatops.engine.workflow.inputs import Review
from chatops.engine.workflow.state import WorkflowState
from chatops.policy.workflow import WorkflowSpec
from chatops.runtime.view import Snapshot
from chatops.runtime.workflow import WorkflowRun
from tests.support.runs import RUN, Played
from tests.tui.app.fakes import FakeSession


class RunSession(FakeSession):
    """The run's session: what it shows is read off the machines."""

    played: Played
    leads: bool = True

    @property
    def state(self) -> TurnState | None:
        return self.played.turn

    @property
    def turn(self) -> TurnState | None:  # type: ignore[override]
        return self.played.turn

    def snapshot(self) -> Snapshot:
        turn = self.played.turn
        if turn is None:
            return replace(self.now, session_id=RUN, usage=None)
        used = turn.usage or Usage(input_tokens=0, output_tokens=0)
        return replace(
            self.now,
            session_id=RUN,
            title="release: ship it",
            messages=self.played.messages,
            status=turn_status(turn),
            pending=pending_calls(turn),
            usage=used,
        )

    async def submit(self, text: str, *, draft: Callable[[], ComposerDraft | None] | None = None) -> bool:
        self.submitted.append(text)
        if self.played.turn is not None:
            self.change(queued=(*self.now.queued, text))
        return self.played.turn is None

    async def switch_role(self, name: str) -> None:
        raise SessionBusyError("This is a run of workflow release.", advice="/workflow cancel")

    async def cancel(self) -> bool:
        self.cancelled += 1
        self.played.stops()
        return True

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        self.played.approves()
        return True


class FakeRun(WorkflowRun):
    """A run that a test plays."""

    session: RunSession

    def __init__(self, spec: WorkflowSpec, *, query: str = "ship it") -> None:
        self.session = RunSession()
        self.play = Played(spec, query=query, listener=self._told)
        self.session.played = self.play
        self.said: list[Review] = []
        self.stuck: ChatopsError | None = None
        self.retried = 0
        self.gone_on = 0
        self.until: asyncio.Event | None = None
        """Taking up takes until then."""
        self.closed = False
        self.refuse: ChatopsError | None = None
        self.elsewhere = ""
        """Reviews of each attempt by another process."""

    def _told(self, event: Event) -> None:
        self.session.publish(event)

    @property
    def _state(self) -> WorkflowState:  # type: ignore[override]
        return self.play.state

    @property
    def stored(self) -> bool:
        return self.play.turn is not None

    @property
    def blocked_by(self) -> ChatopsError | None:
        return self.stuck

    async def resume(self) -> None:
        self.gone_on += 1
        if self.until is not None:
            await self.until.wait()
        if self.play.turn is None:
            self.play.begin()

    async def review(self, review: Review, *, step: int, attempt: int) -> bool:
        if self.refuse is not None:
            raise self.refuse
        self.said.append(review)
        return self.play.reviews(review)

    def describe_other_review(self, *, step: int, attempt: int) -> str:
        return self.elsewhere

    async def cancel(self) -> bool:
        return self.play.cancels()

    async def retry(self) -> bool:
        self.retried += 1
        self.stuck = None
        return True

    async def aclose(self) -> None:
        self.closed = True
        await self.session.aclose()
