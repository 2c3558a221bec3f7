"""Decides when an approval or review dialog opens: by itself for new requests, by ctrl+g for postponed ones."""

from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.tui.screens import windows

if TYPE_CHECKING:
    from chatops.runtime.view import Snapshot
    from chatops.tui.screens.chat import ChatScreen

SETTLE_S = 0.5
"""Seconds without a key before a dialog may open by itself."""
_NOTHING_WHILE_READING = "Nothing waits that can be answered here: you read along. F2 goes on with it here."


class Asking:
    """Opens at most one dialog at a time. Esc postpones what it showed."""

    def __init__(self, chat: "ChatScreen") -> None:
        self._chat = chat
        self._later: set[str] = set()
        self._settling = False

    def forget(self) -> None:
        """Forget what was postponed, for another session."""
        self._later.clear()

    def offer(self, snapshot: "Snapshot") -> None:
        """Open the dialog for new calls, unless the user is writing or has another screen open."""
        chat, desk = self._chat, self._chat.desk
        fresh = bool({pending.digest for pending in snapshot.pending} - self._later)
        fresh = fresh or (desk is not None and desk.asks_anew)
        if chat.reads_along:
            return  # It opens by itself in the process that owns the session; a follower presses ctrl+g.
        if not fresh or not chat.is_active or (desk is not None and desk.hindrance()):
            return
        if chat.composer.idle:
            self.open()
        elif not chat.composer.text and not self._settling:
            self._settling = True
            chat.set_timer(SETTLE_S, self._settled)

    def _settled(self) -> None:
        self._settling = False
        self._chat.update_now()

    @property
    def waits_here(self) -> bool:
        """True if something in the open session needs the user's decision."""
        desk = self._chat.desk
        wanted = desk is not None and desk.wanted is not None
        return wanted or (self._chat.opened and bool(self._chat.session.snapshot().pending))

    def open(self) -> None:
        """Open the dialog for what needs the user's decision."""
        chat, desk = self._chat, self._chat.desk
        if not chat.opened or not chat.is_active:
            return
        if desk is not None and (hindered := desk.hindrance()):
            chat.say(hindered)
        elif not self.waits_here:
            chat.say(_NOTHING_WHILE_READING if chat.reads_along else "Nothing is pending.")
        elif desk is not None and desk.wanted is not None:
            desk.open_review()
            chat.show_banner(chat.session.snapshot(), failed=False)
        else:
            windows.push_approval(chat.app, chat, closed=self._closed)
            chat.show_banner(chat.session.snapshot(), failed=False)

    async def open_elsewhere(self) -> None:
        """Go to the session of this workspace that has something to decide."""
        chat = self._chat
        try:
            waiting = await chat.host.waiting()
            if waiting is None or waiting == chat.session.snapshot().session_id:
                chat.say("Nothing is pending.")
            else:
                await chat.change_session(chat.host.open_session(waiting))
                if self.waits_here:
                    # It does not open by itself over a draft.
                    self.open()
        except ChatopsError as error:
            chat.say(f"{error} {error.advice}".strip())

    def _closed(self, _: None) -> None:
        """Postpone what was shown: it stays on the banner and does not open again by itself."""
        if self._chat.opened:
            self._later = {pending.digest for pending in self._chat.session.snapshot().pending}
            self._chat.update_now()
