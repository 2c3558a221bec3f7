"""chatops from Python: chats, and workflows, with your own tools.

    from chatops import Chat, Step, Workflow, tool

Imported when `chatops` is first asked for one of these names, so that ``import chatops`` stays cheap.
"""

from chatops.api.chat import Asked, Chat, Reply
from chatops.api.tools import ToolRegistry, tool
from chatops.api.workflow import Step, StepReport, Workflow, WorkflowResult
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.errors import ToolFailedError as ToolFailed
from chatops.domain.errors import ToolRetryError as ToolRetry
from chatops.domain.events import PendingCall
from chatops.domain.files import File

__all__ = [
    "Asked",
    "Chat",
    "ChatopsError",
    "ConfigError",
    "File",
    "PendingCall",
    "Reply",
    "Step",
    "StepReport",
    "ToolFailed",
    "ToolRegistry",
    "ToolRetry",
    "Workflow",
    "WorkflowResult",
    "tool",
]
