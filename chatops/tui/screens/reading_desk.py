"""A conversation that is open elsewhere, on the screen: what the banner says, how it is redrawn and taken over."""

from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.engine.workflow.state import AwaitingReview, RunFinished
from chatops.runtime.request import Handing
from chatops.tui.blocks.changes import changes
from chatops.tui.blocks.steps import TurnHead, heads_of
from chatops.tui.projector import Projector
from chatops.tui.screens import windows
from chatops.tui.screens.banner_text import Said, calls_waiting
from chatops.tui.screens.run_board import RunBoard, Stand

if TYPE_CHECKING:
    from chatops.runtime.reading import ReadAlong
    from chatops.runtime.snapshot import Snapshot
    from chatops.tui.blocks.model import Block
    from chatops.tui.screens.chat import ChatScreen


class ReadingDesk:
    """One conversation while it is read along with."""

    def __init__(self, chat: "ChatScreen", reader: "ReadAlong") -> None:
        """`reader` is the chat's conversation."""
        self._chat = chat
        self.reader = reader
        """What is read."""
        self._shown: dict[str, Block] = {}
        self._getting = False
        self.board = RunBoard(chat, self._stand, clock=chat.clock) if reader.run is not None else None
        """What can be seen of the run that it is, if it is one."""
        reader.on_change(self._changed)

    def blocks(self) -> "list[Block]":
        """The conversation as it stands, for a transcript that shows nothing of it yet."""
        found = self._blocks()
        self._shown = {block.id: block for block in found}
        return found

    def _blocks(self) -> "list[Block]":
        return Projector().load(self.reader.snapshot(), self._heads())

    def _heads(self) -> "dict[str, TurnHead] | None":
        return heads_of(self.reader.run) if self.reader.run is not None else None

    def _stand(self) -> Stand:
        run = self.reader.run
        assert run is not None
        left = self.reader.hold is None and not isinstance(run.phase, RunFinished)
        trouble = "It is open nowhere: F2 goes on with it here." if left else ""
        return Stand(run=run, turn=self.reader.state, trouble=trouble)

    async def show(self) -> None:
        """Put what can be seen of a run on the screen."""
        if self.board is not None:
            await self.board.show()

    def _changed(self) -> None:
        """The store has something else to show, or the conversation changes hands."""
        found = self._blocks()
        self._chat.redraw(changes(self._shown, found))
        self._shown = {block.id: block for block in found}
        dialog = windows.open_approval(self._chat.app)
        if dialog is not None:
            dialog.follow()
        if self.reader.handing is Handing.OURS:
            self.open_here()
        self._chat.refresh_soon()

    # Taking it over

    def take_over(self) -> None:
        """F2: ask for it; a second time, take it all the same."""
        self._chat.run_worker(self._get(), group="take over", exclusive=True)

    async def _get(self) -> None:
        try:
            await self.reader.get()
        except ChatopsError as error:
            self._chat.say(f"{error} {error.advice}".strip())
        if self.reader.handing is Handing.OURS:
            self.open_here()
        self._chat.refresh_soon()

    def open_here(self) -> None:
        """It is ours: go on with it, with what is typed where it is."""
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
        """Another conversation is shown now. If it is this one, gone on with here, it is kept."""
        if self.board is not None:
            await self.board.remove()
        if self._getting:
            self.reader.stop()
        else:
            await self.reader.aclose()

    # Words

    def banner(self, snapshot: "Snapshot") -> Said:
        """Where it is open, what can be done about it, and what waits in it."""
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
        match self.reader.handing:
            case Handing.HELD:
                return f"Open elsewhere ({who}, since {self.reader.since()}): you read along. F2 takes over.", "quiet"
            case Handing.ASKED:
                return f"Asked {who} to hand over …", "quiet"
            case Handing.COMING:
                return (
                    f"{who} hands over when what runs there is done. F2 stops it now; whether it took effect is "
                    "unknown then.",
                    "waiting",
                )
            case Handing.SILENT:
                return (
                    f"{who} does not answer. F2 takes over all the same; if a tool runs there, nobody knows then "
                    "whether it took effect.",
                    "waiting",
                )
            case _:
                return "Going on here …", "quiet"
