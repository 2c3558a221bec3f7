"""chatops from Python: workflows with your own tools.

    from chatops import Step, Workflow, tool

Imported when `chatops` is first asked for one of these names, so that ``import chatops`` stays cheap.
"""

from chatops.api.step import Step, StepReport, WorkflowResult
from chatops.api.tools import ToolRegistry, tool
from chatops.api.workflow import Workflow

__all__ = ["Step", "StepReport", "ToolRegistry", "Workflow", "WorkflowResult", "tool"]
