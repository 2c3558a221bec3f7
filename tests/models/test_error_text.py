"""A server's error as one line, whatever it sends."""

import pytest

from chatops.models.error_text import LINE_LIMIT, plain_line
from chatops.models.retry import retry_after
from tests.support.cases import for_each


@for_each(
    ("page", "line"),
    [
        ("<html><title> </title><body>No room</body>", "No room"),
        ("<html><head>x</head><SCRIPT>evil()</script ><p>No <b>room</b>", "No"),
        ("<html><style>a<script>b</style>No room", "No room"),
        ("<html><script>a</style>No room", "a"),
        ("<html><title lang=en>Bad &amp; worse</title>", "Bad & worse"),
        ("<html><title no end", "<title no end"),
    ],
)
def test_a_page_is_its_title_or_its_first_line(page: str, line: str) -> None:
    assert plain_line(page) == line


@pytest.mark.some(1)
@pytest.mark.parametrize("part", ["<script ", "<title", "<title>", "<style></styl", "<head><", "</script "])
def test_a_page_of_nothing_but_beginnings_takes_no_longer_than_its_length(part: str) -> None:
    """One of these held up everything for 25 s."""
    for _ in range(10):
        assert len(plain_line("<html>" + part * 25_000)) <= LINE_LIMIT + 1


@for_each("asked", ["inf", "1e999", "nan", "-inf"])
def test_a_pause_that_is_no_duration_is_ignored(asked: str) -> None:
    assert retry_after(asked) is None
    assert retry_after("", milliseconds=asked) is None
