"""Text for terminals that cannot show every character keeps its width and fits their charset."""

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from chatops.domain.charset import ONE_CELL, register_spelling, to_ascii, with_code_points
from chatops.tui.output_writer import ascii_substitute, encoder_for
from chatops.tui.theme import UNICODE
from tests.support.cases import for_each

SIGNS = [getattr(UNICODE, each.name) for each in fields(UNICODE)]


@for_each("sign", sorted({*ONE_CELL, *SIGNS}))
def test_every_sign_of_ours_has_an_ascii_one_of_its_width(sign: str) -> None:
    shown = ascii_substitute(sign)
    assert shown.isascii() and len(shown) == cell_len(sign) == 1
    assert shown != "?" or sign == "?"


@for_each(
    ("text", "shown"),
    [
        ("Grüße", b"Gru?e"),
        ("日本", b"????"),
        ("ＡＢ", b"A B "),
        ("→ “quoted” – done…", b'> "quoted" - done~'),
        ("\x1b[1mé\x1b[0m", b"\x1b[1me\x1b[0m"),
        ("😀!", b"??!"),
        ("\ud800", b"?"),
    ],
)
def test_a_character_that_cannot_be_shown_gets_a_substitute(text: str, shown: bytes) -> None:
    assert encoder_for("ascii")(text) == shown


def test_a_payload_shows_the_number_of_a_character_that_cannot_be_shown() -> None:
    assert with_code_points("rm é␉日␡", "ascii") == "rm <U+00E9><U+0009><U+65E5><U+007F>"
    assert with_code_points("rm é日", "iso8859-1") == "rm é<U+65E5>"
    assert with_code_points("rm é日", "utf-8") == "rm é日"


def test_another_charset_keeps_its_own_characters() -> None:
    assert encoder_for("iso8859-1")("Grüße → x") == "Grüße > x".encode("latin-1")
    assert encoder_for("utf-8")("Grüße\ud800") == "Grüße?".encode()


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Mn", "Me", "Cf"]), max_size=20))
def test_substitutes_keep_the_width_of_any_text(text: str) -> None:
    assert cell_len(ascii_substitute(text)) == cell_len(text)
    assert len(encoder_for("ascii")(text)) == cell_len(text) or not text.isprintable()


@given(st.text(max_size=20))
def test_a_stream_in_ascii_never_fails_and_letters_can_be_told_from_each_other(text: str) -> None:
    register_spelling()
    assert text.encode("ascii", "chatops.spelled").decode("ascii") == "".join(
        char if char.isascii() else to_ascii(char) for char in text
    )


def test_signs_are_spelled_and_letters_are_numbered() -> None:
    register_spelling()
    assert "é → x… 日".encode("ascii", "chatops.spelled") == b"\\xe9 -> x... \\u65e5"
