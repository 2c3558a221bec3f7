"""Commands whose sandbox could not be set up: the user may allow each of them to run unsandboxed.

There is no automatic fallback. A failure is recorded. The next call of exactly the same command in the same session is
inspected as an unsandboxed one and waits for the user's decision, whatever the rules say. When it runs, the record is
removed.
"""

from dataclasses import dataclass, field
from pathlib import Path

from chatops.domain.tools import CallFacts
from chatops.tools.base import ToolContext
from chatops.tools.sandbox import Level, SandboxMode, ShellSettings, level_for

BY_HAND = "it would run outside the sandbox, which could not be set up for it"

_Command = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Outside:
    """Sandbox failures by session, command and folder, kept while the app runs."""

    settings: ShellSettings
    _failures: dict[_Command, str] = field(default_factory=dict)

    def level(self, command: str, *, cwd: Path, context: ToolContext) -> Level:
        """Return the level that `command` would run at. May run the sandbox's probe: call it in a thread."""
        level = level_for(self.settings, workspace=context.workspace)
        reason = self._failures.get((context.session_id, command, str(cwd)))
        if reason is None or not level.program or not self.offered:
            return level
        return Level(words=f"off (it could not be set up for this command: {reason})", by_hand=BY_HAND)

    @property
    def offered(self) -> bool:
        """True if the user may allow a command outside the sandbox here."""
        return self.settings.sandbox is not SandboxMode.REQUIRE

    def note(self, facts: CallFacts, context: ToolContext, *, reason: str) -> None:
        """Record that the sandbox could not be set up for this call."""
        self._failures[self._key(facts, context)] = reason

    def forget(self, facts: CallFacts, context: ToolContext) -> None:
        """Forget the failure of a call that runs now, so that the next one tries the sandbox again."""
        self._failures.pop(self._key(facts, context), None)

    def _key(self, facts: CallFacts, context: ToolContext) -> _Command:
        return (context.session_id, facts.command, facts.cwd)
