"""chatops from Python: workflows with your own tools.

    from chatops import Step, Workflow, tool

Imported when `chatops` is first asked for one of these names, so that ``import chatops`` stays cheap.
"""

from chatops.api.registry import ToolRegistry
from chatops.api.results import StepReport, WorkflowResult
from chatops.api.step import Step
from chatops.api.tools import tool
from chatops.api.workflow import Workflow

__all__ = ["Step", "StepReport", "ToolRegistry", "Workflow", "WorkflowResult", "tool"]
