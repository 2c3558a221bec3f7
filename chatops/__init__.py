"""chatops: a terminal chat app that people trust with real tools.

In Python, ``from chatops import Chat, Workflow, Step, tool``: `chatops.api`, loaded when a name of it is first used.
"""

# First of all: every import below could come out of the current folder otherwise.
from chatops.safe_path import is_program, leave_out_current_folder

if is_program():
    leave_out_current_folder()

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chatops.domain import __version__

if TYPE_CHECKING:
    from chatops.api import (
        Asked,
        Chat,
        ChatopsError,
        ConfigError,
        File,
        PendingCall,
        Reply,
        Step,
        StepReport,
        ToolFailed,
        ToolRegistry,
        ToolRetry,
        Workflow,
        WorkflowResult,
        tool,
    )

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
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("chatops.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
