"""`delegate`: hand a task to another role, which works on it in a session of its own.

The arguments are read here. The comparison of rights, the child turn and its result are the session's part
(`runtime.delegation`), which gives each call a `Child`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from pydantic import Field

from chatops.domain.canonical import parse_json
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel, CallFacts, ToolCall, ToolResult, ToolSpec, Verdict
from chatops.policy.delegation import DELEGATE_TOOL
from chatops.toolkit.base import Child, Delegated, Reconciled, ToolContext
from chatops.toolkit.confine import with_problem
from chatops.tools.function import FunctionTool, tool

TIMEOUT_S = 30 * 24 * 3_600.0
"""A month: a child waits for the user as long as it takes; its own calls and requests have their limits."""


@tool(
    name=DELEGATE_TOOL,
    min_access=AccessLevel.USER,
    verdict=Verdict.ALLOW,
    timeout_s=TIMEOUT_S,
    capabilities=BUILT_IN_TOOLS[DELEGATE_TOOL],
    reconcile=lambda facts, context: Reconciled(result=None),
)
def _delegate(
    role: Annotated[str, Field(description="Name of the role that works on the task.")],
    task: Annotated[
        str, Field(description="The task, complete: the role sees nothing of this conversation.", max_length=20_000)
    ],
    files: Annotated[
        Sequence[str], Field(description="Files of the workspace that the role gets with the task.", max_length=20)
    ] = (),
) -> None:
    """Hand a task to another role, which has its own tools and model, and wait for its answer. Several calls in one
    reply work side by side. The user is asked where the role may do more than you."""


@frozen_dataclass
class DelegateTool:
    """The tool `delegate`."""

    form: FunctionTool = _delegate
    """Reads and validates the arguments."""

    @property
    def spec(self) -> ToolSpec:
        """The description of the tool for policy and model."""
        return self.form.spec

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Validate the arguments, and compare the role with the rights of the turn."""
        facts = await self.form.inspect(call, context)
        if facts.problems or facts.refusal:
            return facts
        if context.child is None:
            return with_problem(facts, "", "can be called in a session only")
        return await context.child.compare(facts, _read_arguments(facts))

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Have the role work on the task, and return its answer."""
        return await _child(context).run(facts, _read_arguments(facts), context.output)

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Find out from the stored child turn whether it has ended. One that has not continues."""
        return await _child(context).find_or_stop()


def _read_arguments(facts: CallFacts) -> Delegated:
    given = cast("dict[str, Any]", parse_json(facts.arguments))
    return Delegated(role=given["role"], task=given["task"], files=tuple(given.get("files") or ()))


def _child(context: ToolContext) -> Child:
    if context.child is None:
        raise AssertionError("a call was started outside of a session")
    return context.child
