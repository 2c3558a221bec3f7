"""The limits of calls: the sandbox in force, protected paths, and the context of each call."""

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxLevel, SandboxNote, SandboxSpec
from chatops.policy.resolve import sandbox_layers
from chatops.policy.sandbox import resolve, stricter
from chatops.sandbox.confinement import Confinement, confinement
from chatops.store.session_files import SessionFiles
from chatops.store.tool_outputs import Outputs
from chatops.toolkit.base import Tool, ToolContext
from chatops.wiring.configuration import Configuration

if TYPE_CHECKING:
    from chatops.domain.messages import AttachedFile


class CallLimits:
    """Limits according to the registries in force, and to changed ones where they are stricter."""

    def __init__(
        self,
        configuration: Callable[[], Configuration],
        *,
        workspace: Path,
        command_line: SandboxSpec,
        outputs: Outputs,
        files: Callable[[], SessionFiles],
        kept: Path,
    ) -> None:
        """`command_line` are the folders of ``--add-dir``. `files` opens the store. `kept` is for `/undo`."""
        self._configuration = configuration
        self._workspace = workspace
        self._command_line = command_line
        self._outputs = outputs
        self._files = files
        self._kept = kept

    def sandbox(self) -> SandboxSpec:
        """Return the limits of commands without any role."""
        return self._sandbox(self._configuration())

    def _sandbox(self, now: Configuration) -> SandboxSpec:
        layers = (sandbox_layers(one, command_line=self._command_line) for one in now.both)
        return reduce(stricter, map(resolve, layers))

    def sandbox_note(self) -> SandboxNote:
        """Return how commands are confined here. May run a probe: call it off the event loop."""
        level = self._confinement()
        return SandboxNote(
            off=not level.level,
            text=(f"({level.fault})" if level.fault else level.description)
            + ("; commands are refused" if level.refusal else ""),
        )

    def sandbox_level(self) -> SandboxLevel:
        """Return the level of the sandbox of commands here. May run a probe: call it off the event loop."""
        return self._confinement().level

    def _confinement(self) -> Confinement:
        return confinement(self.sandbox(), workspace=self._workspace, protected=self.protected_paths())

    def protected_paths(self) -> tuple[Path, ...]:
        """Return the paths that no tool may touch, resolved."""
        return self._configuration().protected_paths()

    def context(
        self,
        session_id: SessionId,
        call_id: CallId,
        *,
        attempt: int = 1,
        tool: Tool,
        output: Callable[[str], None] = lambda text: None,
    ) -> ToolContext:
        """Return the context of a call, the same for inspecting, explaining and running it."""
        now = self._configuration()
        return ToolContext(
            workspace=self._workspace,
            session_id=session_id,
            call_id=call_id,
            attempt=attempt,
            timeout_s=now.timeout_of(tool.spec),
            protected=now.protected_paths(),
            sandbox=self._sandbox(now),
            output=self._outputs.keeping(call_id, attempt, output),
            keep_file=partial(self._files().keep, session_id),
            kept=self._kept,
        )

    def attached(self, session_id: SessionId, text: str) -> "tuple[AttachedFile, ...]":
        """Return the files that a message names, read under the same limits as by the file tools."""
        from chatops.tools.attach import attached_files

        context = ToolContext(
            workspace=self._workspace,
            session_id=session_id,
            call_id=CallId(""),
            protected=self.protected_paths(),
            keep_file=partial(self._files().keep, session_id),
        )
        return attached_files(text, context=context, pasted=self._files().pasted)
