"""No untrusted text acts on the terminal or hides, whatever its code points."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.sanitize import reveal, sanitize, show_path
from tests.support.cases import for_each

VISIBLE_FORMATS = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Arabic, Syriac and Kaithi number signs: of category Cf, and yet drawn."""
FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u180b\u180e\ufe00\U000e0100"


def leaks(text: str, *, newlines: bool = True) -> list[str]:
    kept = "\n" if newlines else ""
    return [
        hex(ord(character))
        for character in text
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and character not in kept
        and ord(character) not in VISIBLE_FORMATS
    ]


@pytest.mark.some(1)
@pytest.mark.parametrize("clean", [sanitize, reveal])
def test_no_code_point_of_unicode_passes_as_a_control_or_invisible_one(clean: object) -> None:
    assert callable(clean)
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert leaks(clean(everything)) == []
    assert leaks(clean(everything, newlines=False), newlines=False) == []


@pytest.mark.more
def test_each_code_point_by_itself_is_shown_as_itself_or_as_something_visible() -> None:
    for code in range(sys.maxunicode + 1):
        if not sanitize(chr(code)).strip():
            assert unicodedata.category(chr(code)) == "Zs" or chr(code) in "\t\n", hex(code)


@for_each("character", FILLERS)
def test_fillers_and_data_carrying_selectors_are_shown(character: str) -> None:
    assert sanitize(f"a{character}b") == f"a<U+{ord(character):04X}>b"


@for_each(
    ("text", "shown"),
    [
        ("rm -rf /\rls", "rm -rf /␍ls"),
        ("a\r\nb", "a\nb"),
        ("\x1b]52;c;eA==\x07", "␛]52;c;eA==␇"),
        ("\x9b2J\x7f", "<U+009B>2J␡"),
        ("a\u202eb", "a<U+202E>b"),
        ("\ud800", "<U+D800>"),
        ("\U000e0041", "<U+E0041>"),
        ("1\t2", "1   2"),
        ("☂\ufe0f", "☂\ufe0f"),
        ("☂\ufe0f\ufe0f\ufe0e", "☂\ufe0f<U+FE0F><U+FE0E>"),
        ("grüß 漢字", "grüß 漢字"),
        ("e" + "\u0301" * 8, "e" + "\u0301" * 8),
        ("e" + "\u0301" * 10, "e" + "\u0301" * 8 + "<U+0301><U+0301>"),
        ("・" * 20, "・" * 20),
    ],
)
def test_each_text_is_shown_as_expected(text: str, shown: str) -> None:
    assert sanitize(text) == shown


@for_each(
    ("text", "shown"),
    [
        (
            "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 👩🏽\u200d💻 ❤\ufe0f\u200d🔥",
            "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 👩🏽\u200d💻 ❤\ufe0f\u200d🔥",
        ),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क्\u200dष", "क्ष"),
        ("a\u200db pay\u200cpal", "a<U+200D>b pay<U+200C>pal"),
        ("👩\u200d \u200d👩 👩\u200d\u200d👩", "👩<U+200D> <U+200D>👩 👩<U+200D><U+200D>👩"),
        ("👩" + "\u200d👩" * 7, "👩" + "\u200d👩" * 6 + "<U+200D>👩"),
        ("👩\u200d👧\u202e\u200b", "👩\u200d👧<U+202E><U+200B>"),
    ],
)
def test_joiners_stay_in_prose_where_people_write_them(text: str, shown: str) -> None:
    assert sanitize(text, prose=True) == shown
    for strict in (sanitize, reveal):
        assert leaks(strict(text)) == [], "and nowhere else"


def test_without_newlines_the_result_is_one_line() -> None:
    assert sanitize("a\nb\r\nc", newlines=False) == "a␊b␍␊c"


@for_each(
    ("text", "shown"),
    [
        ("ls \r\n", "ls ␍\n"),
        ("ls  ", "ls··"),
        ("a\tb", "a␉  b"),
        ("a\u00a0b", "a<U+00A0>b"),
        ("p\u0430ypal.com", "p\u0430<U+0430>ypal.com"),
        ("привет мир", "привет мир"),
        ("А у него есть сахар, с ухом и рос хор.", "А у него есть сахар, с ухом и рос хор."),
        ("use \u0441\u043e\u0440\u0443 now", "use с<U+0441>о<U+043E>р<U+0440>у<U+0443> now"),
        ("α = 0.05", "α = 0.05"),
        ("cafe\u0301 e\u0323\u0302", "cafe\u0301 e\u0323\u0302"),
        ("a" + "\u0301" * 3, "a\u0301\u0301<U+0301>"),
        ("rm /\u0338tmp \u0336x", "rm /<U+0338>tmp <U+0336>x"),
        ("1\ufe0f\u20e3 ❤\ufe0f", "1\ufe0f\u20e3 ❤\ufe0f"),
    ],
)
def test_a_dialog_shows_more(text: str, shown: str) -> None:
    assert reveal(text) == shown


SHAPES = "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u03bf\u03bd\u0585"
"""Letters that look like Latin ones."""


@given(
    st.text(SHAPES, min_size=2, max_size=8),
    st.lists(st.text("abcz", min_size=1, max_size=6), max_size=3),
    st.lists(st.text("abcz09./:", max_size=6), max_size=3),
    st.sampled_from([" ", "/", ".", " -", ": ", "="]),
)
def test_a_word_that_only_looks_latin_is_marked_among_latin_ones(
    word: str, before: list[str], after: list[str], between: str
) -> None:
    text = between.join([*before, word, *after])
    assert word not in reveal(text) and word[0] in reveal(text)


@given(st.text(SHAPES, min_size=1, max_size=8), st.text("бгджзий", min_size=1, max_size=8))
def test_a_command_shows_it_beside_words_of_its_alphabet_too_and_prose_stays_as_it_is(word: str, plain: str) -> None:
    for text in (f"{word} {plain}", f"{plain} {word}", f"{plain}, {word}"):
        assert reveal(text) == text
        assert "<U+" in reveal(text, strict=True) and plain in reveal(text, strict=True)
    assert "<U+" in show_path(f"/home/{plain} {word}")


@given(st.text(st.characters(codec=None, categories=None), max_size=40))
def test_sanitised_text_is_clean_and_stays_as_it_is(text: str) -> None:
    once = sanitize(text)
    assert leaks(once) == []
    assert sanitize(once) == once


@given(st.text("ab \n\x1b\u202e\u200b", max_size=30), st.text("ab \n\x1b\u202e", max_size=30))
def test_different_texts_of_hostile_signs_look_different(one: str, other: str) -> None:
    assert (reveal(one) == reveal(other)) == (one == other)
