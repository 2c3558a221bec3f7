"""Tool calls as text: reading and writing them in every format that models use. Only needs the standard library.

>>> from chatops.dialects import read_calls
>>> text = '<tool_call>{"name": "file_read", "arguments": {"path": "a.txt"}}</tool_call>'
>>> read_calls(text, {"file_read": {"type": "object"}}).calls[0].arguments
'{"path": "a.txt"}'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chatops.dialects.reading import (
    Confidence,
    ContentSegment,
    Diagnostic,
    DiagnosticKind,
    ReadCall,
    Reading,
    ReasoningSegment,
    ReclassifiedSegment,
    Schema,
    Segment,
    Tools,
)

if TYPE_CHECKING:
    from chatops.dialects.formats.marked import FORMATS
    from chatops.dialects.reader import CallReader, read_calls

__all__ = [
    "FORMATS",
    "CallReader",
    "Confidence",
    "ContentSegment",
    "Diagnostic",
    "DiagnosticKind",
    "ReadCall",
    "Reading",
    "ReasoningSegment",
    "ReclassifiedSegment",
    "Schema",
    "Segment",
    "Tools",
    "read_calls",
]

# Imported on first use: the readers of all formats are slow to import, and a caller that reads only JSON does not need
# them.
_LATE = {
    "FORMATS": "chatops.dialects.formats.marked",
    "CallReader": "chatops.dialects.reader",
    "read_calls": "chatops.dialects.reader",
}


if not TYPE_CHECKING:  # A type checker would accept any name otherwise.

    def __getattr__(name: str) -> Any:
        if name in _LATE:
            return getattr(import_module(_LATE[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
