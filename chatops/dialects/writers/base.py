"""The tools, calls and results to write, independent of any format."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    """A tool as described to the model. `schema` is the JSON Schema of its arguments, as JSON text."""

    name: str
    description: str
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call of the history. `arguments` is text as the model wrote it, usually a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenResult:
    """The result of a call. `outcome` is one word, `content` is untrusted text."""

    name: str
    content: str
    outcome: str


class CallSpelling(Protocol):
    """The spelling of the calls of one message in one format."""

    def calls(self, calls: Sequence[WrittenCall]) -> str:
        """Return the calls, in order, as the model would write them. Never raises, whatever their arguments are."""
        ...
