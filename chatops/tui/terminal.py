"""What the terminal at hand can do: show screens at all, with colours or without."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

_NO_SCREENS = frozenset({"", "dumb", "unknown"})
_ESCAPES = b"\x1b["


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the system's terminfo says of a kind of terminal. `colours`: -1 if it has none."""

    places_cursor: bool
    colours: int


Lookup = Callable[[str], Capabilities | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What can be shown. `problem`: why nothing can, and what to do instead; `notice`: what the person should know."""

    problem: str = ""
    notice: str = ""
    colours: bool = True


def terminfo(kind: str) -> Capabilities | None:
    """What terminfo says of `kind`; None if it is not known here, or nothing is."""
    try:
        # Two milliseconds, which --help and -p do not wait for; and some Pythons are built without it.
        import curses
    except ImportError:
        return None
    try:
        curses.setupterm(kind, 1)
    except (curses.error, ValueError):
        return None
    places = curses.tigetstr("cup") or b""
    return Capabilities(places_cursor=_ESCAPES in places, colours=curses.tigetnum("colors"))


def look(environ: Mapping[str, str], *, is_terminal: bool, lookup: Lookup = terminfo) -> Traits:
    """What the terminal that `environ` tells of can do; NO_COLOR counts when it is not empty (no-color.org)."""
    if not is_terminal:
        return Traits(problem='This is not a terminal. Use chatops -p "PROMPT" for a single answer.')
    kind = environ.get("TERM", "")
    known = None if kind in _NO_SCREENS else lookup(kind)
    if kind in _NO_SCREENS or (known is not None and not known.places_cursor):
        return Traits(
            problem=f"The terminal {kind or '(TERM is not set)'} cannot show screens. "
            'Set TERM (xterm-256color fits most), or use chatops -p "PROMPT" for a single answer.'
        )
    colours = not environ.get("NO_COLOR") and (known is None or known.colours > 0)
    # Terminals that are newer than this system's terminfo say in COLORTERM what they can do.
    doubtful = known is None and not environ.get("COLORTERM")
    notice = f"The terminal {kind} is not known on this system; it is taken for one like xterm." if doubtful else ""
    return Traits(notice=notice, colours=colours)
