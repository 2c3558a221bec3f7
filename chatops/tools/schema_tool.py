"""A tool made of a function and a foreign JSON Schema instead of its signature."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chatops.domain.canonical import canonical
from chatops.domain.errors import ToolFailedError
from chatops.domain.tools import CallFacts, ToolCall, ToolResult, ToolSpec
from chatops.tools.arguments import fit_schema, parse
from chatops.tools.base import Reconciled, ToolContext
from chatops.tools.function import called
from chatops.tools.threads import in_thread

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def tool_name_fault(name: str) -> str:
    """Return what is wrong with the name of a tool; empty if it is valid. Model servers accept no other names."""
    if _NAME.fullmatch(name):
        return ""
    return f"{name!r} is not a valid tool name: use at most 64 letters, digits, - and _"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTool:
    """A tool over a function, sync (it runs in a thread) or async, that takes its arguments as keywords.

    The schema is kept unchanged, and arguments are validated against it without any coercion.
    """

    spec: ToolSpec
    function: Callable[..., Any]

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Parse and validate `call`. Never raises for what a model wrote."""
        read = await in_thread(fit_schema, parse(call), schema=self.spec.schema)
        return CallFacts(arguments=read.text, problems=read.problems, repairs=read.repairs)

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Call the function with the inspected arguments.

        Raises ToolRetryError, ToolFailedError or CancelledError.
        """
        if facts.problems or facts.refusal:
            raise ToolFailedError("The call is invalid and cannot run.")
        read = parse(ToolCall(id=context.call_id, name=self.spec.name, arguments=facts.arguments))
        return await called(self.function, read.value, spec=self.spec, limit=context.max_output_chars)

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Report that the outcome of a started call is unknown."""
        return Reconciled(result=None)


def schema_text(parameters: dict[str, Any]) -> str:
    """Return a schema as a spec stores it. Its type is ``object`` unless it says otherwise.

    Raises ValueError for values that are not JSON.
    """
    return canonical({"type": "object", **parameters})
