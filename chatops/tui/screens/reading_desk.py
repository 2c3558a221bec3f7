"""Viewer of a session that another process owns: its banner, redrawing, and taking it over."""

from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.engine.workflow.state import AwaitingReview, RunFinished
from chatops.runtime.ownership import RequestState
from chatops.tui.screens import windows
from chatops.tui.screens.banner_text import Said, calls_waiting
from chatops.tui.screens.run_board import RunBoard, Stand
from chatops.tui.transcript.blocks import changes
from chatops.tui.transcript.projector import Projector
from chatops.tui.transcript.run_blocks import RunTurn, run_turns_of

if TYPE_CHECKING:
    from chatops.runtime.follower import SessionFollower
    from chatops.runtime.view import Snapshot
    from chatops.tui.screens.chat import ChatScreen
    from chatops.tui.transcript.blocks import Block


class ReadingDesk:
    """Shows one session while it is followed."""

    def __init__(self, chat: "ChatScreen", reader: "SessionFollower") -> None:
        """Create the viewer. `reader` is the chat's session."""
        self._chat = chat
        self.reader = reader
        """The followed session."""
        self._shown: dict[str, Block] = {}
        self._getting = False
        self.board = RunBoard(chat, self._stand, clock=chat.clock) if reader.run is not None else None
        """The display of its workflow run, or None."""
        reader.on_change(self._changed)

    def blocks(self) -> "list[Block]":
        """Return the session's blocks, for a transcript that shows nothing of it yet."""
        found = self._blocks()
        self._shown = {block.id: block for block in found}
        return found

    def _blocks(self) -> "list[Block]":
        return Projector().load(self.reader.snapshot(), self._run_turns())

    def _run_turns(self) -> "dict[str, RunTurn] | None":
        return run_turns_of(self.reader.run) if self.reader.run is not None else None

    def _stand(self) -> Stand:
        run = self.reader.run
        assert run is not None
        left = self.reader.hold is None and not isinstance(run.phase, RunFinished)
        trouble = "It is open nowhere: F2 goes on with it here." if left else ""
        return Stand(run=run, turn=self.reader.state, trouble=trouble)

    async def show(self) -> None:
        """Show the panel of a run."""
        if self.board is not None:
            await self.board.show()

    def _changed(self) -> None:
        """Redraw after the store or the owner of the session changed."""
        found = self._blocks()
        self._chat.redraw(changes(self._shown, found))
        self._shown = {block.id: block for block in found}
        dialog = windows.open_approval(self._chat.app)
        if dialog is not None:
            dialog.follow()
        if self.reader.request_state is RequestState.GRANTED:
            self.open_here()
        self._chat.refresh_soon()

    # Taking it over

    def take_over(self) -> None:
        """Ask the owner for the session (F2). A second time, seize it."""
        self._chat.run_worker(self._get(), group="take over", exclusive=True)

    async def _get(self) -> None:
        try:
            await self.reader.take_over()
        except ChatopsError as error:
            self._chat.say(f"{error} {error.advice}".strip())
        if self.reader.request_state is RequestState.GRANTED:
            self.open_here()
        self._chat.refresh_soon()

    def open_here(self) -> None:
        """Open the session here after its lease was obtained. Typed text stays in the message field."""
        if not self._getting:
            self._getting = True
            self._chat.run_worker(self._open(), group="open here")

    async def _open(self) -> None:
        chat = self._chat
        try:
            await chat.exchange(chat.host.open_session(self.reader.session_id))
        except ChatopsError as error:
            self._getting = False
            chat.say(f"{error} {error.advice}".strip())

    async def leave(self) -> None:
        """Close the viewer because another session is shown. If it is the same one, now owned here, keep the lease."""
        if self.board is not None:
            await self.board.remove()
        if self._getting:
            self.reader.stop()
        else:
            await self.reader.aclose()

    # Texts

    def banner(self, snapshot: "Snapshot") -> Said:
        """Return the banner: where the session is open, what the user can do, and what is pending in it."""
        said, tone = self._standing()
        if self.reader.run is not None and isinstance(self.reader.run.phase, AwaitingReview):
            said, tone = f"{said}\nA step waits for a review there.", "waiting"
        if snapshot.pending and windows.open_approval(self._chat.app) is None:
            return f"{said}\n{calls_waiting(snapshot.pending)[0]}", "waiting"
        return said, tone

    def _standing(self) -> Said:
        hold = self.reader.hold
        if hold is None:
            return "Open elsewhere no longer. You read along: F2 goes on with it here.", "waiting"
        who = sanitize(f"pid {hold.holder.pid} on {hold.holder.host}", newlines=False)
        match self.reader.request_state:
            case RequestState.HELD:
                return f"Open elsewhere ({who}, since {self.reader.since()}): you read along. F2 takes over.", "quiet"
            case RequestState.REQUESTED:
                return f"Asked {who} to hand over …", "quiet"
            case RequestState.ACCEPTED:
                return (
                    f"{who} hands over when what runs there is done. F2 stops it now; whether it took effect is "
                    "unknown then.",
                    "waiting",
                )
            case RequestState.UNANSWERED:
                return (
                    f"{who} does not answer. F2 takes over all the same; if a tool runs there, nobody knows then "
                    "whether it took effect.",
                    "waiting",
                )
            case _:
                return "Going on here …", "quiet"
