"""The tree of exceptions. Every message is a sentence for the user; `advice` is the next step.

ChatopsError
├── ConfigError               a file, flag or setting is wrong; exit code 2
├── ToolError
│   ├── ToolRetryError        the model can correct the call: the text says how
│   └── ToolFailedError       it ran and failed: the text is the result
├── StoreError
│   ├── ConflictError         another process advanced the turn first
│   ├── AlreadyDecidedError   another decision on the call was posted first
│   ├── SessionHeldError      the session is open elsewhere
│   ├── AlreadyStoredError    a message with this id is stored already
│   ├── NoSuchSessionError
│   ├── NotSavedError         writing failed for now (disk full, read-only, locked): trying again may help
│   └── UnreadableError       damaged, or written by a newer version
└── SessionBusyError          the session cannot take this now
"""

from chatops.domain.ids import SessionId


class ChatopsError(Exception):
    """Base of all exceptions that chatops raises on purpose."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice

    @property
    def full(self) -> str:
        """The message with the next step, for one line."""
        return f"{self} {self.advice}".strip()


class ConfigError(ChatopsError):
    """A file, flag or setting is wrong."""


class ToolError(ChatopsError):
    """Base of the exceptions that a tool may raise."""


class ToolRetryError(ToolError):
    """The tool ran, and the call cannot work as written. The text tells the model what to correct."""


class ToolFailedError(ToolError):
    """The tool ran and failed. The text is the result."""


class StoreError(ChatopsError):
    """The store could not complete an operation."""


class ConflictError(StoreError):
    """Another process has advanced this turn."""


class AlreadyDecidedError(StoreError):
    """Another decision on the same call was posted first and counts."""


class SessionHeldError(StoreError):
    """The session is open in another process or on another host."""


class AlreadyStoredError(StoreError):
    """A message with this id is stored already."""

    def __init__(self, message: str, *, advice: str = "", session_id: SessionId) -> None:
        super().__init__(message, advice=advice)
        self.session_id = session_id
        """The session that it was stored for, which may have been deleted since."""


class NoSuchSessionError(StoreError):
    """There is no such session."""


class NotSavedError(StoreError):
    """Writing failed for now. Stored data is not affected, and trying again may help."""

    def __init__(self, message: str, *, advice: str = "", reason: str = "", says_so: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.reason = reason or message
        """The reason in a few words: ``disk full``."""
        self.says_so = says_so
        """True if the message itself says that nothing is saved."""


def unsaved_sentence(error: ChatopsError) -> str:
    """Return the error's message as a sentence that says, once, that something is not saved."""
    return str(error) if isinstance(error, NotSavedError) and error.says_so else f"Not saved: {error}"


class UnreadableError(StoreError):
    """The stored data is damaged or from a newer version."""


class SessionBusyError(ChatopsError):
    """The session cannot take this now (a turn runs, or a call waits)."""
