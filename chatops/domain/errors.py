"""What can go wrong, as a tree. Every message is a sentence for the person, `advice` is the next step.

ChatopsError
├── ConfigError          a file, flag or setting is wrong; exit code 2
├── ToolError
│   ├── ToolRetry        the model can do better: its text goes back to the model as an invalid call
│   └── ToolFailed       it ran and failed: its text is the result
├── StoreError
│   ├── Conflict         another process advanced the turn first
│   ├── AlreadyDecided   another answer to the call was left first
│   ├── SessionHeld      the session is open elsewhere
│   ├── NoSuchSession
│   ├── NotSaved         it could not be written now (disk full, read-only, locked): trying again may help
│   └── Unreadable       damaged, or written by a newer version
└── Busy                 the conversation cannot take this now
"""


class ChatopsError(Exception):
    """Base of all that chatops raises on purpose."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class ConfigError(ChatopsError):
    """A file, flag or setting is wrong."""


class ToolError(ChatopsError):
    """Base of what a tool may raise."""


class ToolRetry(ToolError):
    """The call as written cannot work; the text tells the model what to correct."""


class ToolFailed(ToolError):
    """The tool ran and failed; the text is the result."""


class StoreError(ChatopsError):
    """The store could not do it."""


class Conflict(StoreError):
    """Another process has advanced this turn."""


class AlreadyDecided(StoreError):
    """Another answer to the same question was left first, and is the one that counts."""


class SessionHeld(StoreError):
    """The session is open in another process or on another host."""


class NoSuchSession(StoreError):
    """There is no such session."""


class NotSaved(StoreError):
    """It could not be written now, and nothing that was stored is lost by that: trying again may help."""

    def __init__(self, message: str, *, advice: str = "", reason: str = "") -> None:
        super().__init__(message, advice=advice)
        self.reason = reason or message
        """Why, in a few words: ``disk full``."""


class Unreadable(StoreError):
    """The stored form is damaged or from a newer version."""


class Busy(ChatopsError):
    """The conversation cannot take this now (a turn runs, a call waits)."""
