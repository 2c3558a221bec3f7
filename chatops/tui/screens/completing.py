"""Offers completions in the message field, and tips while it is empty."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.tui.composer import Completions, Composer
from chatops.tui.first_screen import FirstScreen

if TYPE_CHECKING:
    from chatops.tui.commands.completion import Completer
    from chatops.tui.commands.replies import Context


class CompletionPresenter:
    """Offers completions for `/` and `@` in the message field."""

    def __init__(self, screen: Screen[Any], composer: Composer, context: "Callable[[], Context]") -> None:
        self._screen = screen
        self._composer = composer
        self._context = context
        self._completer: Completer | None = None

    def handle(self, key: str) -> None:
        """Handle a key pressed while the list is open, or a changed text if `key` is empty.

        Tab in the empty field takes a tip of the first screen, and once more the next one.
        """
        if key == "tab" and (tip := self._screen.query_one(FirstScreen).tip_after(self._composer.text)):
            self._composer.set_text(tip)
            return
        if self._completer is None:
            if not key and not any(sign in self._composer.text for sign in "/@"):
                return
            from chatops.tui.commands.completion import Completer

            self._completer = Completer(self._composer, self._screen.query_one(Completions), self._context)
        self._completer.handle(key)
