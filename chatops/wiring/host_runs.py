"""What the terminal app needs of workflows and their runs: the part of its host that is about them."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from chatops.domain.ids import SessionId
from chatops.runtime.conversation import Conversation
from chatops.runtime.workflow import WorkflowRun
from chatops.store.base import SessionInfo
from chatops.tui.host import RunRow, WorkflowRow
from chatops.tui.workflow.clock import kept, recalled
from chatops.wiring.app import App

_TO_REVIEW = "awaiting_review"


class HostRuns:
    """Answers from the registry and the store as they are when asked."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._runs: dict[SessionId, WorkflowRun] = {}

    async def workflows(self) -> Sequence[WorkflowRow]:
        """The workflows of this person here; those that cannot be read with the reason."""
        known = await asyncio.to_thread(lambda: self._app.loaded.workflows())
        rows = [
            WorkflowRow(
                name=one.name, steps=tuple(step.name for step in one.spec.steps), description=one.spec.description
            )
            for one in known.found
        ]
        return (*rows, *(WorkflowRow(name=one.name, problem=str(one.error)) for one in known.unusable))

    async def runs(self) -> Sequence[RunRow]:
        """The runs of this workspace that have not ended."""
        return [
            RunRow(id=info.id, title=info.title, standing=run_standing(info), when=changed_at(info))
            for info in await asyncio.to_thread(self._unfinished)
        ]

    async def new_run(
        self, workflow: str, *, query: str, beside: Conversation, warn: Callable[[str], None]
    ) -> Conversation:
        """A run that has been checked and is not begun."""
        from chatops.wiring.workflows import check_here

        led = self.run_of(beside)
        role = led.state.role if led is not None and not led.over else beside.snapshot().role
        model = led.state.model if led is not None and not led.over else beside.standing.model_pin
        definition = await asyncio.to_thread(lambda: self._app.loaded.workflows().get(workflow))
        checked = await asyncio.to_thread(check_here, self._app, definition, role=role)
        spec = checked.or_raise().spec
        for warning in checked.warnings:
            warn(warning)
        return self.keep(await self._app.new_run(spec, query, attended=True, role=role, model=model))

    def run_of(self, session: Conversation) -> WorkflowRun | None:
        """The run whose conversation this is, if it is one."""
        run = self._runs.get(session.session_id)
        return run if run is not None and run.session is session else None

    def step_times(self, session_id: SessionId) -> Sequence[float]:
        """Seconds that each step of a run has worked, as kept when it was shown last."""
        return recalled(self._app.settings.get(f"step times:{session_id}") or "")

    def keep_step_times(self, session_id: SessionId, seconds: Sequence[float]) -> None:
        """Store how long each step of a run has worked."""
        self._app.settings.set(f"step times:{session_id}", kept(seconds))

    def keep(self, run: WorkflowRun) -> Conversation:
        """Remember a run that was opened; its conversation."""
        self._runs[run.run_id] = run
        return run.session

    def _unfinished(self) -> list[SessionInfo]:
        runs = self._app.store.runs(workspace=str(self._app.workspace))
        return [info for info in runs if info.run is not None and not info.run.result]

    def to_review(self) -> list[SessionInfo]:
        """The runs of this workspace that wait for a person's word, newest activity first."""
        return [info for info in self._unfinished() if info.run is not None and info.run.phase == _TO_REVIEW]


def changed_at(info: SessionInfo) -> str:
    """When something last happened in a conversation, in words for the person."""
    when = datetime.fromtimestamp(info.updated_at).astimezone()
    today = when.date() == datetime.now().astimezone().date()
    return f"today {when:%H:%M}" if today else f"{when:%Y-%m-%d %H:%M}"


def run_standing(info: SessionInfo) -> str:
    """How a run stands, in a few words; nothing for a chat."""
    run = info.run
    if run is None or run.result:
        return run.result if run is not None else ""
    if info.pending:
        return f"{run.step}: {info.pending} call{'s' if info.pending > 1 else ''} to approve"
    return f"{run.step}: {'to review' if run.phase == _TO_REVIEW else 'not finished'}"


def reviews_left(runs: Sequence[SessionInfo]) -> str:
    """What waits for the person's word, in one sentence; empty if nothing does."""
    if not runs:
        return ""
    names = ", ".join(dict.fromkeys(info.run.workflow for info in runs if info.run is not None))
    many = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    return f"{many} of a workflow wait{'' if len(runs) > 1 else 's'} for your word ({names}) – ctrl+g"
