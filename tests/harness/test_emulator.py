from tests.support.cases import for_each
from tests.support.emulator import Emulator


def _emulator(*, columns: int = 20, rows: int = 4) -> Emulator:
    return Emulator(columns=columns, rows=rows)


QUERIES = {
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b[>0c": b"\x1b[>1;10;0c",
    b"\x1b[>q": b"\x1bP>|pytest(1)\x1b\\",
    b"\x1b[5n": b"\x1b[0n",
    b"\x1b[2;3H\x1b[6n": b"\x1b[2;3R",
    b"\x1b[2;3H\x1b[?6n": b"\x1b[?2;3R",
    b"\x1b]11;?\x07": b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\",
    b"\x1b]10;?\x1b\\": b"\x1b]10;rgb:dddd/dddd/dddd\x1b\\",
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",
    b"\x1b[?2048$p": b"\x1b[?2048;0$y",
    b"\x1b[18t": b"\x1b[8;4;20t",
    b"\x1bP+q544e\x1b\\": b"\x1bP0+r\x1b\\",
    b"\x1b[?u": b"",
}


@for_each("query", QUERIES, ids=repr)
def test_a_query_is_answered_and_leaves_nothing_on_the_screen(query: bytes) -> None:
    emulator = _emulator()
    assert emulator.feed(query) == QUERIES[query]
    assert "".join(emulator.lines()) == ""


@for_each("query", QUERIES, ids=repr)
def test_a_query_cut_anywhere_is_answered_once(query: bytes) -> None:
    for cut in range(1, len(query)):
        emulator = _emulator()
        answers = emulator.feed(query[:cut]) + emulator.feed(query[cut:])
        assert answers == QUERIES[query]
        assert "".join(emulator.lines()) == ""


DROPPED = [
    b"\x1b[>1u",
    b"\x1b[<u",
    b"\x1b[=1;2u",
    b"\x1b[>4;1m",
    b"\x1b[4:3m",
    b"\x1b[?1000;1006h",
    b"\x1b]52;c;aGk=\x07",
    b"\x1b]8;;http://example.invalid\x1b\\",
    b"\x1bP1$r0m\x1b\\",
    b"\x1b_payload\x1b\\",
    b"\x1b[ q",
    b"\x1b[2 q",
]


@for_each("sequence", DROPPED, ids=repr)
def test_a_sequence_that_draws_nothing_is_dropped_whole(sequence: bytes) -> None:
    emulator = _emulator()
    emulator.feed(b"a" + sequence + b"b")
    assert emulator.lines()[0] == "ab"


def test_text_is_drawn_where_the_program_puts_it() -> None:
    emulator = _emulator()
    emulator.feed(b"\x1b[2J\x1b[3;5H\x1b[1;31mred\x1b[0m \xe2\x9c\x93")
    assert emulator.lines() == ["", "", "    red ✓", ""]
    assert emulator.cursor() == (2, 9)


def test_a_character_cut_in_two_is_drawn_as_one() -> None:
    emulator = _emulator()
    for byte in "né漢🙂".encode():
        emulator.feed(bytes([byte]))
    assert emulator.lines()[0] == "né漢🙂"


def test_leaving_the_full_screen_clears_it() -> None:
    emulator = _emulator()
    emulator.feed(b"\x1b[?1049happ\x1b[?1049lshell")
    assert emulator.lines()[0] == "shell"


def test_the_window_title_is_kept() -> None:
    emulator = _emulator()
    emulator.feed(b"\x1b]0;first\x07\x1b]2;second\x1b\\")
    assert emulator.title == "second"


def test_a_frame_is_on_screen_only_once_it_is_whole() -> None:
    emulator = Emulator(columns=10, rows=2)
    emulator.feed(b"old frame")
    emulator.feed(b"\x1b[?2026h\x1b[2J\x1b[Hnew ")
    assert emulator.lines()[0] == "old frame"
    emulator.feed(b"frame\x1b[?2026l")
    assert emulator.lines()[0] == "new frame"
