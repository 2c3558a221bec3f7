"""The event stream reader gives the same events however the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.models.assemble import SurrogateJoiner
from chatops.models.byte_feed import EventTooLargeError, ServerEvent, SseReader

LINE = st.one_of(
    st.binary(max_size=12).map(lambda data: b"data:" + data.replace(b"\r", b"").replace(b"\n", b"")),
    st.sampled_from([b"", b"", b": comment", b"event: error", b"data", b"id: 7", b"data: a", b"\xef\xbb\xbfdata: x"]),
)


def read(pieces: list[bytes]) -> list[ServerEvent]:
    reader = SseReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return [*events, *reader.close()]


@pytest.mark.more
@given(lines=st.lists(LINE, max_size=12), ends=st.sampled_from([b"\n", b"\r\n", b"\r"]), data=st.data())
def test_cuts_and_line_ends_do_not_matter(lines: list[bytes], ends: bytes, data: st.DataObject) -> None:
    whole = ends.join([*lines, b"", b""])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert read(pieces) == read([b"\n".join([*lines, b"", b""])])


def test_what_an_event_is() -> None:
    body = b"\xef\xbb\xbfevent: error\ndata:a\ndata:  b\nretry: 3\n\n: x\n\ndata\n\ndata: end"
    assert read([body]) == [
        ServerEvent(data=b"a\n b", name="error"),
        ServerEvent(data=b"", name=""),
        ServerEvent(data=b"end", name=""),
    ]


def test_crlf_cut_in_the_middle_is_one_line_end() -> None:
    body = b"data: a\r\ndata: b\r\n\r\n"
    assert read([body[place : place + 1] for place in range(len(body))]) == [ServerEvent(data=b"a\nb")]


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 60, b"data: x\n", b"x" * 60])
def test_size_is_bounded(piece: bytes) -> None:
    reader = SseReader(limit=100)
    with pytest.raises(EventTooLargeError):
        for _ in range(200):
            reader.feed(piece)


@given(st.lists(st.text(st.characters(codec=None, exclude_categories=()), max_size=3), max_size=6))
def test_surrogates_are_joined_across_pieces(pieces: list[str]) -> None:
    joiner = SurrogateJoiner()
    out = "".join(joiner.feed(piece) for piece in pieces) + joiner.close()
    expected = "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert out == expected
