"""The host's part for workflows and their runs."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from chatops.domain.ids import SessionId
from chatops.domain.wording import plural
from chatops.runtime.view import SessionView
from chatops.runtime.workflow import WorkflowRun
from chatops.store.base import SessionInfo
from chatops.tui.host import RunRow, WorkflowRow
from chatops.tui.workflow.view import kept, recalled
from chatops.wiring.app import App
from chatops.wiring.words import TO_REVIEW, run_state


class HostRuns:
    """Answers from the current registry and store."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._runs: dict[SessionId, WorkflowRun] = {}

    async def workflows(self) -> Sequence[WorkflowRow]:
        known = await asyncio.to_thread(lambda: self._app.workflows())
        rows = [
            WorkflowRow(
                name=one.name, steps=tuple(step.name for step in one.spec.steps), description=one.spec.description
            )
            for one in known.found
        ]
        return (*rows, *(WorkflowRow(name=one.name, problem=str(one.error)) for one in known.unusable))

    async def runs(self) -> Sequence[RunRow]:
        return [
            RunRow(id=info.id, title=info.title, state=run_state(info), when=changed_at(info))
            for info in await asyncio.to_thread(self._unfinished)
        ]

    async def new_run(
        self, workflow: str, *, query: str, beside: SessionView, warn: Callable[[str], None]
    ) -> SessionView:
        from chatops.wiring.checks import check_to_run

        led = self.run_of(beside)
        role = led.state.role if led is not None and not led.over else beside.snapshot().role
        model = led.state.model if led is not None and not led.over else beside.settings.model_pin
        definition = await asyncio.to_thread(lambda: self._app.workflows().get(workflow))
        checked = await check_to_run(self._app, definition, role=role)
        spec = checked.or_raise().spec
        for warning in checked.warnings:
            warn(warning)
        return self.keep(await self._app.new_run(spec, query, attended=True, role=role, model=model))

    def run_of(self, session: SessionView) -> WorkflowRun | None:
        run = self._runs.get(session.session_id)
        return run if run is not None and run.session is session else None

    def step_times(self, session_id: SessionId) -> Sequence[float]:
        return recalled(self._app.settings.get(f"step times:{session_id}") or "")

    def save_step_times(self, session_id: SessionId, seconds: Sequence[float]) -> None:
        self._app.settings.set(f"step times:{session_id}", kept(seconds))

    def keep(self, run: WorkflowRun) -> SessionView:
        """Remember a run that was opened, and return its session."""
        self._runs[run.run_id] = run
        return run.session

    def _unfinished(self) -> list[SessionInfo]:
        runs = self._app.store.runs(workspace=str(self._app.workspace))
        return [info for info in runs if info.run is not None and not info.run.result]

    def to_review(self) -> list[SessionInfo]:
        """Return the runs of this workspace that wait for a review, newest activity first."""
        return [info for info in self._unfinished() if info.run is not None and info.run.phase == TO_REVIEW]


def changed_at(info: SessionInfo) -> str:
    """Return when a session last changed, in words."""
    when = datetime.fromtimestamp(info.updated_at).astimezone()
    today = when.date() == datetime.now().astimezone().date()
    return f"today {when:%H:%M}" if today else f"{when:%Y-%m-%d %H:%M}"


def reviews_left(runs: Sequence[SessionInfo]) -> str:
    """Return one sentence about the runs that wait for a review; empty if there are none."""
    if not runs:
        return ""
    names = ", ".join(dict.fromkeys(info.run.workflow for info in runs if info.run is not None))
    many = plural(len(runs), "run")
    return f"{many} of a workflow need{'' if len(runs) > 1 else 's'} your review ({names}) – ctrl+g"
