"""Notify a user whose terminal is not focused: desktop notification, bell, window title.

What is written holds words of ours and names of tools and steps in plain ASCII, nothing else: no text of a model can
reach the terminal this way.
"""

import os
import re
from collections.abc import Callable, Mapping

from chatops.domain.wording import plural

_MOST = 60
"""Maximum number of characters of a text."""
_OTHER = re.compile(r"[^ A-Za-z0-9_.?:,'\"-]")
"""All but plain characters, of which a terminal obeys none, and no notification reads one as a separator."""
_PUSH_TITLE, _POP_TITLE = "\x1b[22;2t", "\x1b[23;2t"
"""Keep the window's title, and put it back."""


class Attention:
    """The notifications of one terminal. A terminal that reports no focus counts as focused."""

    def __init__(self, write: Callable[[str], None], *, enabled: bool, in_tmux: bool | None = None) -> None:
        """Create it. `write` writes to the terminal. Without `enabled`, nothing is ever written."""
        self._write = write
        self._enabled = enabled
        self._in_tmux = "TMUX" in os.environ if in_tmux is None else in_tmux
        self._focused = True
        self._pending: Mapping[str, str] = {}
        self._title = ""

    def set_pending(self, pending: Mapping[str, str]) -> None:
        """Set the pending questions, a text for each by its key. Notify if one is new and the terminal not focused."""
        new = pending.keys() - self._pending.keys()
        self._pending = dict(pending)
        if new and not self._focused and self._enabled:
            self._notify()
        self._update_title()

    def focus(self, focused: bool) -> None:
        """Handle a focus report of the terminal."""
        self._focused = focused
        self._update_title()

    def close(self) -> None:
        """Put the window's title back before the terminal is given back."""
        self.focus(True)

    @property
    def _text(self) -> str:
        texts = list(self._pending.values())
        text = texts[0] if len(texts) == 1 else f"{plural(len(texts), 'decision')} pending"
        return _OTHER.sub("_", text)[:_MOST]

    def _notify(self) -> None:
        for sequence in (f"\x1b]9;chatops: {self._text}\x1b\\", f"\x1b]777;notify;chatops;{self._text}\x1b\\"):
            self._write(_through_tmux(sequence) if self._in_tmux else sequence)
        self._write("\x07")

    def _update_title(self) -> None:
        wanted = f"? {self._text} chatops" if self._pending and not self._focused and self._enabled else ""
        if wanted == self._title:
            return
        if wanted:
            self._write(f"{'' if self._title else _PUSH_TITLE}\x1b]2;{wanted}\x1b\\")
        else:
            self._write(_POP_TITLE)
        self._title = wanted


def _through_tmux(sequence: str) -> str:
    """Return the sequence wrapped for tmux, which passes it on if its option allow-passthrough is on."""
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"
