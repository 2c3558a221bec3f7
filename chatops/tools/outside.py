"""Commands that the sandbox could not be set up for: asked for once more, a person says whether they run without it.

Nothing falls back by itself. A failure is noted; the next call of the very same command in the same conversation is
shown as one outside the sandbox, waits for a person whatever rules say, and takes the note with it when it runs.
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
    """What is noted, for as long as the app runs."""

    settings: ShellSettings
    _failures: dict[_Command, str] = field(default_factory=dict)

    def level(self, command: str, *, cwd: Path, context: ToolContext) -> Level:
        """The level that `command` would run at. May run the sandbox's probe: call it in a thread."""
        level = level_for(self.settings, workspace=context.workspace)
        reason = self._failures.get((context.session_id, command, str(cwd)))
        if reason is None or not level.program or not self.offered:
            return level
        return Level(words=f"off (it could not be set up for this command: {reason})", by_hand=BY_HAND)

    @property
    def offered(self) -> bool:
        """Whether a person may permit a command outside the sandbox here."""
        return self.settings.sandbox is not SandboxMode.REQUIRE

    def note(self, facts: CallFacts, context: ToolContext, *, reason: str) -> None:
        """The sandbox could not be set up for this call."""
        self._failures[self._key(facts, context)] = reason

    def forget(self, facts: CallFacts, context: ToolContext) -> None:
        """It runs now: the next one tries the sandbox again."""
        self._failures.pop(self._key(facts, context), None)

    def _key(self, facts: CallFacts, context: ToolContext) -> _Command:
        return (context.session_id, facts.command, facts.cwd)
