"""Presenter of a session that another process owns: what it shows, and taking the session over."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.engine.workflow.state import RunFinished
from chatops.runtime.ownership import LeaseRequestState
from chatops.tui.screens.messages import FollowedChanged
from chatops.tui.screens.run import RunPresenter, RunState
from chatops.tui.transcript.blocks import changes
from chatops.tui.transcript.projector import Projector
from chatops.tui.transcript.stored_blocks import run_turns_of

if TYPE_CHECKING:
    from chatops.runtime.follower import SessionFollower
    from chatops.tui.transcript.blocks import Block, Op
    from chatops.wiring.user_state import UserState


class FollowerPresenter:
    """Presents one session while it is followed."""

    def __init__(
        self, screen: Screen[Any], user: "UserState", reader: "SessionFollower", *, clock: Callable[[], float]
    ) -> None:
        """Create the presenter. It posts `FollowedChanged` to `screen`."""
        self.reader = reader
        """The followed session."""
        self._blocks: dict[str, Block] = {}
        self._claimed = False
        self.run = RunPresenter(screen, user, self._run_state, clock=clock) if reader.run is not None else None
        """The presenter of the session's workflow run, or None."""
        self._screen = screen
        reader.on_change(self._changed)

    def blocks(self) -> "list[Block]":
        """Return the session's blocks, for a transcript that shows nothing of it yet."""
        run = self.reader.run
        found = Projector().load(self.reader.snapshot(), run_turns_of(run) if run is not None else None)
        self._blocks = {block.id: block for block in found}
        return found

    def changes(self) -> "list[Op]":
        """Return what has changed since the blocks were shown last."""
        before = self._blocks
        return changes(before, self.blocks())

    def _run_state(self) -> RunState:
        run = self.reader.run
        assert run is not None
        left = self.reader.lease is None and not isinstance(run.phase, RunFinished)
        problem = "No process has it open. F2 takes it over." if left else ""
        return RunState(run=run, turn=self.reader.state, problem=problem)

    async def show(self) -> None:
        """Show the panel of a run."""
        if self.run is not None:
            await self.run.show()

    def _changed(self) -> None:
        self._screen.post_message(FollowedChanged(self.reader))

    async def take_over(self) -> None:
        """Request the lease; a second time, seize it. Raises ChatopsError if the store cannot be read."""
        try:
            await self.reader.take_over()
        finally:
            self._changed()

    def claim(self) -> bool:
        """Return True once after this process has obtained the lease: the caller opens the session here."""
        if self._claimed or self.reader.request_state is not LeaseRequestState.GRANTED:
            return False
        self._claimed = True
        return True

    def opening_failed(self) -> None:
        """Let the session be claimed again."""
        self._claimed = False

    async def leave(self) -> None:
        """Stop following. Keep the lease if the session is now owned here."""
        if self.run is not None:
            await self.run.remove()
        if self._claimed:
            self.reader.stop()
        else:
            await self.reader.aclose()
