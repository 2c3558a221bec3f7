"""The terminal: if it can show screens, with colours or without; and notifications for a user who looks elsewhere.

A notification holds words of ours and names of tools and steps in plain ASCII, nothing else: no text of a model can
reach the terminal this way.
"""

import os
import re
from collections.abc import Callable, Mapping

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import plural

_NO_SCREENS = frozenset({"", "dumb", "unknown"})
_KNOWN_TERMINALS = frozenset(
    {"xterm-256color", "screen-256color", "tmux-256color", "xterm-kitty", "xterm-ghostty", "alacritty"}
)
"""Terminals that place the cursor and have colours. Looking them up would make the start 2 ms longer."""
_ESCAPE_START = b"\x1b["
_MAX_TEXT = 60
"""Maximum number of characters in a notification."""
_UNSAFE_CHARACTER = r"[^ A-Za-z0-9_.?:,'\"-]"
"""All characters except plain ones. No terminal obeys those, and no notification takes one for a separator."""
_PUSH_TITLE, _POP_TITLE = "\x1b[22;2t", "\x1b[23;2t"
"""Keep the window's title, and put it back."""


@frozen_dataclass
class TerminfoEntry:
    """A terminal type's entry in the system's terminfo. `colours` is -1 if it has none."""

    places_cursor: bool
    colours: int


Lookup = Callable[[str], TerminfoEntry | None]
"""Returns the entry of a terminal type; None if it is unknown."""


@frozen_dataclass
class TerminalTraits:
    """Properties of the terminal."""

    problem: str = ""
    """Why it can show no screen, and what to do instead; empty if it can."""
    notice: str = ""
    """Notice for the user about a limit of the terminal; empty if it has none."""
    colours: bool = True


def terminfo(kind: str) -> TerminfoEntry | None:
    """Return terminfo's entry for `kind`, or None if it is unknown or there is no terminfo."""
    if kind in _KNOWN_TERMINALS:
        return TerminfoEntry(places_cursor=True, colours=256)
    try:
        # Imported here: that takes two milliseconds, which --help and -p need not spend. Some Pythons lack it.
        import curses
    except ImportError:
        return None
    try:
        curses.setupterm(kind, 1)
    except (curses.error, ValueError):
        return None
    places = curses.tigetstr("cup") or b""
    return TerminfoEntry(places_cursor=_ESCAPE_START in places, colours=curses.tigetnum("colors"))


def detect_terminal(environ: Mapping[str, str], *, is_terminal: bool, lookup: Lookup = terminfo) -> TerminalTraits:
    """Return the capabilities of the terminal that `environ` describes.

    NO_COLOR counts if it is not empty (no-color.org).
    """
    if not is_terminal:
        return TerminalTraits(problem='This is not a terminal. Use chatops -p "PROMPT" for a single answer.')
    kind = environ.get("TERM", "")
    known = None if kind in _NO_SCREENS else lookup(kind)
    if kind in _NO_SCREENS or (known is not None and not known.places_cursor):
        return TerminalTraits(
            problem=f"The terminal {kind or '(TERM is not set)'} cannot show screens. "
            'Set TERM (xterm-256color fits most), or use chatops -p "PROMPT" for a single answer.'
        )
    colours = not environ.get("NO_COLOR") and (known is None or known.colours > 0)
    # Terminals newer than this system's terminfo state their colours in COLORTERM.
    doubtful = known is None and not environ.get("COLORTERM")
    notice = f"This system does not know the terminal {kind}. It is treated like an xterm." if doubtful else ""
    return TerminalTraits(notice=notice, colours=colours)


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
        return re.sub(_UNSAFE_CHARACTER, "_", text)[:_MAX_TEXT]

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
