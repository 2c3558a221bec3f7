"""Keys, pastes and sequences are told apart, whatever the chunks they arrive in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.tui.input_parser import (
    ESCAPE,
    ESCAPE_S,
    FLOOD_LENGTH,
    FLOOD_PAUSE_S,
    HOLD_SEQUENCE_S,
    SEPARATE_KEY_S,
    EscapeSequence,
    InputParser,
    InputToken,
    Pasted,
    Typed,
)
from tests.support.cases import for_each

ENDLESS = 1e9


def taken(*parts: str, gap: float = 0.0) -> list[InputToken]:
    """Return the tokens of parts that arrive `gap` seconds apart, then of a long silence."""
    parser, now, found = InputParser(), 0.0, []
    for part in parts:
        found += parser.feed(part, now)
        now += gap
        found += parser.flush(now)
    found += parser.flush(ENDLESS)
    return joined(found)


def joined(pieces: list[InputToken]) -> list[InputToken]:
    """The same with neighbouring typed text in one."""
    whole: list[InputToken] = []
    for piece in pieces:
        if isinstance(piece, Typed) and whole and isinstance(before := whole[-1], Typed):
            whole[-1] = Typed(before.text + piece.text)
        else:
            whole.append(piece)
    return whole


SEQUENCES = ["\x1b[A", "\x1b[1;5C", "\x1bOP", "\x1b[<35;20;10M", "\x1b[<0;1;1m", "\x1b[?2026;2$y", "\x1b[97;5u"]
ANSWERS = ["\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\", "\x1bP>|name(1)\x1b\\", "\x1b_Gi=1;OK\x1b\\", "\x1b[?62;22c"]


@for_each("sequence", [*SEQUENCES, *ANSWERS], ids=repr)
def test_a_sequence_is_one_token_wherever_a_slow_line_cuts_it(sequence: str) -> None:
    for cut in range(2, len(sequence)):
        assert taken("x" + sequence[:cut], sequence[cut:] + "y", gap=HOLD_SEQUENCE_S * 0.9) == [
            Typed("x"),
            EscapeSequence(sequence),
            Typed("y"),
        ]


@for_each("answer", [answer for answer in ANSWERS if not answer.startswith("\x1b[")], ids=repr)
def test_an_answer_whose_rest_comes_too_late_is_neither_a_key_nor_text(answer: str) -> None:
    for cut in range(4, len(answer)):
        assert taken("x" + answer[:cut], answer[cut:] + "y", gap=HOLD_SEQUENCE_S * 1.5) == [Typed("xy")]
        assert taken("x" + answer[:cut], "y", "z", gap=HOLD_SEQUENCE_S * 1.5) == [Typed("xyz")], "no rest comes"


def test_a_mouse_report_that_is_cut_after_its_escape_leaves_no_text() -> None:
    assert taken("\x1b", "[<35;20;10M", "x", gap=ESCAPE_S * 2) == [Typed(ESCAPE + "x")]


def test_an_escape_alone_is_the_escape_key_after_a_moment() -> None:
    parser = InputParser()
    assert parser.feed("\x1b", 0.0) == []
    assert parser.waits
    assert parser.flush(ESCAPE_S / 2) == []
    assert parser.flush(ESCAPE_S) == [Typed(ESCAPE)]
    assert not parser.waits


@for_each("text", ["/cost", "hello", "Please", "_x", "read"])
def test_the_escape_key_and_a_text_right_after_it_are_two_things(text: str) -> None:
    assert InputParser().feed(f"x\x1b{text}", 0.0) == [Typed("x"), Typed(ESCAPE), Typed(text)]
    later = InputParser(alt_acts=lambda key: True)
    assert later.feed(ESCAPE, 0.0) == []
    assert later.feed(text, SEPARATE_KEY_S)[0] == Typed(ESCAPE)


def test_a_letter_that_makes_a_key_with_alt_is_that_key() -> None:
    def parser() -> InputParser:
        return InputParser(alt_acts=lambda key: key == "r")

    assert parser().feed("\x1brread", 0.0) == [Typed("\x1br"), Typed("read")]
    assert parser().feed("\x1bx\x1bx", 0.0) == [Typed("\x1bx"), Typed("\x1bx")], "held down, and without a meaning"
    cut = parser()
    assert cut.feed(ESCAPE, 0.0) == []
    assert cut.feed("r", SEPARATE_KEY_S / 2) == [Typed("\x1br")]


def test_a_sequence_that_breaks_off_for_another_one_leaves_no_text() -> None:
    assert taken("a\x1b[<35;2", "\x1b[Ab") == [Typed("a"), EscapeSequence("\x1b[A"), Typed("b")]


def test_a_bracket_typed_after_the_escape_key_is_a_bracket() -> None:
    assert taken("\x1b", "[", "<", "3", gap=ESCAPE_S * 2) == [Typed("\x1b[<3")]


def test_an_escape_at_the_end_of_a_piece_of_a_paste_is_no_key() -> None:
    assert taken("\x1b[200~0\x1b", "0\x1b[201~") == [Pasted("0\x1b0")]


@given(st.text(min_size=0, max_size=60), st.data())
def test_a_paste_is_one_token_with_everything_in_it(text: str, data: st.DataObject) -> None:
    text = text.replace("\x1b[201~", "")
    whole = f"\x1b[200~{text}\x1b[201~"
    if whole.index("\x1b[201~") != len(whole) - len("\x1b[201~"):
        return
    cut = data.draw(st.integers(1, len(whole) - 1))
    assert taken(whole[:cut], whole[cut:]) == [Pasted(text)]


def test_keys_within_a_paste_do_not_act() -> None:
    text = "a\x03\x11\r\x1b\x1b[A\x1b]0;x\x07s"
    assert taken("k", f"\x1b[200~{text}\x1b[201~", "l", gap=1) == [Typed("k"), Pasted(text), Typed("l")]


@pytest.mark.parametrize("pad", ["", "x" * 10_000])
@given(st.data())
def test_text_after_an_end_mark_within_a_paste_does_not_act(pad: str, data: st.DataObject) -> None:
    whole = f"\x1b[200~one\x1b[201~a\r{pad}\x1b[201~"
    again = "\x1b[200~one\x1b[201~a\x1b[200~b\x1b[201~A\x1b[201~"
    for text in (whole, again):
        cut = data.draw(st.integers(1, len(text) - 1))
        assert all(isinstance(piece, Pasted) for piece in taken(text[:cut], text[cut:])), text[:cut]


def test_keys_right_after_a_paste_are_keys() -> None:
    assert taken("\x1b[200~one\x1b[201~\r") == [Pasted("one"), Typed("\r")]
    assert taken("\x1b[200~one\x1b[201~", "\x1b[A", "a") == [Pasted("one"), EscapeSequence("\x1b[A"), Typed("a")]
    assert taken("\x1b[200~one\x1b[201~", "\x1b[200~two\x1b[201~", "b") == [Pasted("one"), Pasted("two"), Typed("b")]


def test_many_lines_after_a_paste_come_before_later_keys() -> None:
    parser, flood = InputParser(), "1\r2\r3\r4\r"
    assert parser.feed(f"\x1b[200~one\x1b[201~{flood}", 0.0) == [Pasted("one")]
    assert parser.feed("x", 2 * FLOOD_PAUSE_S) == [Pasted(flood), Typed("x")]
    assert not parser.waits


def test_mouse_movement_after_a_paste_does_not_delay_keys() -> None:
    parser, moved = InputParser(), "\x1b[<35;1;1M"
    assert parser.feed("\x1b[200~one\x1b[201~", 0.0) == [Pasted("one")]
    assert parser.feed(f"a{moved}", 0.5 * FLOOD_PAUSE_S) == []
    assert parser.feed(moved, 1.4 * FLOOD_PAUSE_S) == []
    assert parser.feed(moved, 1.6 * FLOOD_PAUSE_S) == [
        Typed("a"),
        EscapeSequence(moved),
        EscapeSequence(moved),
        EscapeSequence(moved),
    ]


def test_ctrl_c_alone_ends_a_paste_without_an_end_mark() -> None:
    assert taken("\x1b[200~abc", "def", "\x03", "x", gap=10) == [Pasted("abcdef"), Typed("x")]
    assert taken("\x1b[200~abc", "\x03", "a\x1b[201~") == [Pasted("abc\x03a")], "read alone, and not typed"


@pytest.mark.parametrize("flood", ["x" * FLOOD_LENGTH, "one\rtwo\r", "a\nb\nc"])
def test_more_text_at_once_than_can_be_typed_is_a_paste(flood: str) -> None:
    assert taken(flood) == [Pasted(flood)]


@for_each("cut", [3, 9, 11])
@for_each("answer", ["\x1b[?2004;1$y", "\x1b[200~seen\x1b[201~"])
def test_lines_typed_ahead_are_keys_if_the_terminal_marks_pastes(answer: str, cut: int) -> None:
    parser = InputParser()
    learnt = parser.feed(answer[:cut], 0.0) + parser.feed(answer[cut:], 0.1) + parser.flush(1.0)
    assert not any(isinstance(piece, EscapeSequence | Typed) for piece in learnt)
    for known in (parser, InputParser(marks_pastes=True)):
        assert known.feed("one\rtwo\r", 2.0) == [Typed("one\rtwo\r")]
        assert known.feed("1\r2\r3\r4\r", 3.0) == [], "nobody types four lines in one go"
        assert known.flush(4.0) == [Pasted("1\r2\r3\r4\r")]
    unknown = InputParser()
    assert unknown.feed("\x1b[?2004;0$y", 0.0) == [EscapeSequence("\x1b[?2004;0$y")]
    assert unknown.feed("one\rtwo\r", 2.0) == []


def test_a_sequence_cut_off_by_a_paste_takes_no_letter_after_it() -> None:
    assert taken("\x1b[<35;2\x1b[200~one\x1b[201~", "abc", gap=1) == [Pasted("one"), Typed("abc")]


def test_an_unmarked_paste_lasts_until_there_is_silence() -> None:
    parser = InputParser()
    pause = FLOOD_PAUSE_S / 2
    for number in range(5):
        assert parser.feed("a\rs\rA\r", number * pause) == []
    assert parser.flush(4 * pause) == []
    assert parser.flush(4 * pause + FLOOD_PAUSE_S) == [Pasted("a\rs\rA\r" * 5)]
    assert parser.feed("a", 10.0) == [Typed("a")]


def test_fast_typing_is_not_a_paste() -> None:
    assert taken("hello there\r") == [Typed("hello there\r")]
    assert taken("\x1b[A" * 400) == [EscapeSequence("\x1b[A")] * 400


@given(st.lists(st.sampled_from([*SEQUENCES, *ANSWERS, "a", "word", "\r", "é"]), max_size=12), st.data())
def test_any_chunking_gives_the_same_tokens(parts: list[str], data: st.DataObject) -> None:
    whole = "".join(parts)
    if whole.count("\r") > 1:
        return
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert taken(*[piece for piece in pieces if piece]) == taken(whole) if whole else True
