"""Workflows written in Python: the same steps as in a file, with functions as tools and classes as schemas."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path

from chatops.api.assemble import assemble
from chatops.api.running import ApprovalPolicy, resume, start
from chatops.api.step import Step, WorkflowResult
from chatops.api.tools import ToolRegistry
from chatops.policy.workflow import WorkflowSpec
from chatops.wiring.options import Options


class Workflow:
    """A workflow: steps in the order in which they run, with their tools."""

    def __init__(
        self, name: str, steps: Sequence[Step], *, description: str = "", tools: ToolRegistry | None = None
    ) -> None:
        """Check and assemble the workflow. `tools` adds to each step those that belong to it.

        Raises ConfigError for errors that do not depend on where it runs.
        """
        self._assembled = assemble(name, steps, description=description, registry=tools)

    @property
    def spec(self) -> WorkflowSpec:
        """The workflow as a definition in a file would say it."""
        return self._assembled.spec

    def run(
        self,
        query: str,
        *,
        model: str = "",
        role: str = "",
        registry: str | Path | None = None,
        workspace: str | Path | None = None,
        approve: Sequence[str] = (),
        on_approval: ApprovalPolicy = "pause",
    ) -> WorkflowResult:
        """Run the workflow for `query` and wait. Rights, approvals and storage are the same as on the command line.

        Without a `role`, the run has one that lists no tools, with the models of the default role. The `tools` of any
        other role have to name the functions too. `approve` are rules as of ``--approve``. `on_approval` says what
        happens to a call that no rule answers: ``pause`` (the run stops there, `resume` continues it), ``deny``, or a
        function that gets the `PendingCall` and returns True, False, a reason for the model, or None to leave it
        pending.

        Raises ChatopsError.
        """
        options = _options(registry, workspace, role=role, model=model, approve=approve)
        return _waited(start(self._assembled, query, options=options, on_approval=on_approval))

    def resume(
        self,
        session_id: str,
        *,
        registry: str | Path | None = None,
        workspace: str | Path | None = None,
        approve: Sequence[str] = (),
        on_approval: ApprovalPolicy = "pause",
    ) -> WorkflowResult:
        """Resume a run that paused or crashed, with the decisions made in the meantime (``chatops approvals``).

        Its steps are as they were when it started. Raises ChatopsError.
        """
        options = _options(registry, workspace, approve=approve)
        return _waited(resume(self._assembled, session_id, options=options, on_approval=on_approval))


def _options(
    registry: str | Path | None,
    workspace: str | Path | None,
    *,
    role: str = "",
    model: str = "",
    approve: Sequence[str] = (),
) -> Options:
    return Options(
        registry=None if registry is None else Path(registry).expanduser(),
        workspace=None if workspace is None else Path(workspace).expanduser(),
        role=role or None,
        model=model or None,
        approvals=tuple(approve),
        via="python",
    )


def _waited(work: Coroutine[None, None, WorkflowResult]) -> WorkflowResult:
    if not _in_a_loop():
        return asyncio.run(work)
    work.close()
    raise RuntimeError("An event loop runs here already: await asyncio.to_thread(workflow.run, …) instead.")


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
