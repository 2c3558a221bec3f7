"""TERM, COLORTERM, NO_COLOR and the locale decide how the terminal is used."""

from chatops.domain.charset import charset_of
from chatops.tui.terminal import TerminalTraits, TerminfoEntry, detect_terminal, terminfo
from tests.support.cases import for_each

KNOWN = {
    "xterm-256color": TerminfoEntry(places_cursor=True, colours=256),
    "vt100": TerminfoEntry(places_cursor=True, colours=-1),
    "vt52": TerminfoEntry(places_cursor=False, colours=-1),
}


def seen(**environ: str) -> TerminalTraits:
    return detect_terminal(environ, is_terminal=True, lookup=KNOWN.get)


@for_each("kind", ["", "dumb", "unknown", "vt52"])
def test_a_terminal_without_cursor_positioning_is_refused_with_advice(kind: str) -> None:
    problem = seen(TERM=kind, COLORTERM="truecolor").problem
    assert "chatops -p" in problem and "Set TERM" in problem


def test_a_pipe_is_refused_as_a_terminal() -> None:
    assert "not a terminal" in detect_terminal({"TERM": "xterm"}, is_terminal=False, lookup=KNOWN.get).problem


def test_a_known_terminal_is_accepted_without_notice() -> None:
    assert seen(TERM="xterm-256color") == TerminalTraits()


def test_an_unknown_terminal_is_accepted_with_a_notice() -> None:
    traits = seen(TERM="brand-new")
    assert not traits.problem and "brand-new" in traits.notice
    assert seen(TERM="brand-new", COLORTERM="truecolor") == TerminalTraits()


def test_colours_are_off_if_unwanted_or_missing() -> None:
    assert not seen(TERM="xterm-256color", NO_COLOR="1").colours
    assert seen(TERM="xterm-256color", NO_COLOR="").colours
    assert not seen(TERM="vt100").colours


def test_terminfo_of_the_system_is_used() -> None:
    found = terminfo("xterm")
    assert found is None or (found.places_cursor and found.colours > 0)


@for_each(
    ("environ", "charset"),
    [
        ({}, "utf-8"),
        ({"LANG": "C"}, "ascii"),
        ({"LANG": "POSIX"}, "ascii"),
        ({"LANG": "C.UTF-8"}, "utf-8"),
        ({"LANG": "de_DE.ISO-8859-1"}, "iso8859-1"),
        ({"LANG": "de_DE.ISO-8859-15@euro"}, "iso8859-15"),
        ({"LANG": "de_DE.UTF-8", "LC_CTYPE": "C"}, "ascii"),
        ({"LANG": "C", "LC_CTYPE": "C", "LC_ALL": "en_US.UTF-8"}, "utf-8"),
        ({"LANG": "en_US"}, "utf-8"),
        ({"LANG": "en_US.no-such-codeset"}, "ascii"),
    ],
)
def test_the_locale_decides_the_charset_of_the_terminal(environ: dict[str, str], charset: str) -> None:
    assert charset_of(environ, stream="utf-8") == charset


def test_pythons_io_encoding_counts_before_the_locale() -> None:
    assert charset_of({"LANG": "C.UTF-8"}, stream="latin-1") == "iso8859-1"
    assert charset_of({}, stream="ANSI_X3.4-1968") == "ascii"
