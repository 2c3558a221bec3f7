"""Capabilities of the terminal: if it can show screens at all, with colours or without."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

_NO_SCREENS = frozenset({"", "dumb", "unknown"})
_ESCAPES = b"\x1b["


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminfoEntry:
    """A terminal type's entry in the system's terminfo. `colours` is -1 if it has none."""

    places_cursor: bool
    colours: int


Lookup = Callable[[str], TerminfoEntry | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalTraits:
    """Properties of the terminal.

    `problem` says why it can show no screen and what to do instead. `notice` is for the user.
    """

    problem: str = ""
    notice: str = ""
    colours: bool = True


def terminfo(kind: str) -> TerminfoEntry | None:
    """Return terminfo's entry for `kind`, or None if it is unknown or there is no terminfo."""
    try:
        # Takes two milliseconds, which --help and -p need not spend. Some Pythons are built without it.
        import curses
    except ImportError:
        return None
    try:
        curses.setupterm(kind, 1)
    except (curses.error, ValueError):
        return None
    places = curses.tigetstr("cup") or b""
    return TerminfoEntry(places_cursor=_ESCAPES in places, colours=curses.tigetnum("colors"))


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
