"""Keys of the message field that act on the screen: scrolling, cards, completion, stray letters."""

from typing import TYPE_CHECKING

from textual import events, on
from textual.widgets import Static

from chatops.tui.composer.completions import Completions
from chatops.tui.composer.composer import Composer
from chatops.tui.keys import legend
from chatops.tui.screens.chat_face import ChatFace
from chatops.tui.screens.drafts import Drafts

if TYPE_CHECKING:
    from chatops.tui.screens.completing import Completer
    from chatops.tui.transcript.transcript import Transcript
    from chatops.tui.transcript.viewport import Viewport


class ChatKeys(ChatFace):
    """Passes keys on. Does not look at what a message says."""

    def __init__(self) -> None:
        super().__init__()
        self._transcript: Transcript | None = None
        self._completer: Completer | None = None
        self.drafts = Drafts(self)
        """The text typed and not sent yet."""

    @on(Composer.Leave)
    def leave_by_key(self, message: Composer.Leave) -> None:
        """Quit on ctrl+d with nothing typed."""
        message.stop()
        self.leave()

    @on(Composer.Scroll)
    def scroll(self, message: Composer.Scroll) -> None:
        """Scroll the transcript while the message field keeps the focus."""
        message.stop()
        transcript = self._transcript
        if transcript is None:
            return
        match message.key:
            case "pageup":
                transcript.action_page_up()
            case "pagedown":
                transcript.action_page_down()
            case "home":
                transcript.action_scroll_home()
            case _:
                transcript.action_scroll_end()

    def on_viewport_unseen(self, message: "Viewport.Unseen") -> None:
        """Show how many blocks arrived below the view."""
        message.stop()
        line = self.query_one("#unseen", Static)
        line.update(legend(f"↓ {message.count} new   ctrl+End shows the end"))
        line.display = message.count > 0

    def on_click(self, event: events.Click) -> None:
        """Scroll to the end after a click on the line that counts new blocks."""
        if event.widget is not None and event.widget.id == "unseen" and self._transcript is not None:
            self._transcript.follow()

    @on(Composer.Card)
    def card(self, message: Composer.Card) -> None:
        """Select and open tool cards while the message field keeps the focus."""
        message.stop()
        transcript = self._transcript
        if transcript is None:
            return
        match message.key:
            case "ctrl+up":
                transcript.action_select_previous_card()
            case "ctrl+down":
                transcript.action_select_next_card()
            case _:
                transcript.action_toggle_card()

    @on(Composer.Completing)
    def completing(self, message: Composer.Completing) -> None:
        """Offer, choose or close completions."""
        message.stop()
        self.drafts.changed()
        if not message.key:
            self.clear_selection()
        if self._completer is None:
            if not message.key and not any(sign in self.composer.text for sign in "/@"):
                return
            # Import the matcher and the command table only when a sign that needs them is typed.
            from chatops.tui.screens.completing import Completer

            self._completer = Completer(self.composer, self.query_one(Completions), lambda: self.workspace, face=self)
        self._completer.handle(message.key)

    def on_key(self, event: events.Key) -> None:
        """Send a letter or Esc that no field took to the message field.

        It was typed after a click moved the focus away, or before any widget had the focus.
        """
        if event.key == "escape":
            event.stop()
            self.composer.focus()
            self.composer.post_message(Composer.Stop())
        elif event.is_printable and event.character:
            event.stop()
            self.composer.focus()
            self.composer.append_typed(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Insert a paste that no field took into the message field."""
        event.stop()
        self.composer.insert_paste(event.text)
