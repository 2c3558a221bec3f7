"""Status of a node in the tree of events."""

from enum import StrEnum


class Status(StrEnum):
    """State of a turn, round, call, step or run."""

    STARTED = "started"
    SUCCESS = "success"
    ERROR = "error"
