"""A text that arrives in chunks is cut and drawn like the whole text."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.tui.theme import PLAIN
from chatops.tui.transcript.answer import MAX_LINES, AnswerDrawing, MarkdownSegment, MarkdownSegmenter, warm_up
from chatops.tui.transcript.blocks import AnswerBlock
from tests.support.cases import for_each
from tests.support.transcript_blocks import all_strips, render_block

warm_up()

MARKS = ["a", "word ", "\n", "\n\n", "```", "```py\n", "\n```\n", "~~~~\n", "- ", "1. ", "2) ", "    ", "  ", "# "]
BLOCKS = ["> ", "| a | b |\n|---|---|\n", "**", "`", "[x](http://y)", "<b>", "\r", "\r\n", "---\n", "\t", "&#27;", "漢"]
PIECES = st.sampled_from([*MARKS, *BLOCKS, "\x1b[2J"])
TEXTS = st.lists(PIECES, max_size=40).map("".join)


def segments_of(text: str) -> list[MarkdownSegment]:
    segmenter = MarkdownSegmenter()
    segmenter.feed(text)
    segmenter.close()
    return segmenter.closed


def drawn(strips: list[object]) -> list[str]:
    return [str(getattr(strip, "text", "")) for strip in strips]


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 120), max_size=8))
def test_any_chunking_gives_the_same_segments_and_lines(text: str, cuts: list[int]) -> None:
    segmenter = MarkdownSegmenter()
    drawing = AnswerDrawing(width=40, theme=PLAIN)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(places):
        segmenter.feed(text[begin:end])
        drawing.extend(text[begin:end])
        all_strips(drawing)
    segmenter.close()
    drawing.close()
    assert segmenter.closed == segments_of(text)
    assert all_strips(drawing) == render_block(AnswerBlock(id="a", text=text), 40, PLAIN)


WRITTEN = """Here is **bold text** and `some code` to see.

| name | what it does |
|:-----|-----:|
| `a` | **first** thing |
| bb | second |

Text before a list
- one `x`
- **two:** more

```python
x = 1
```
done **now**.
"""


def test_no_sign_of_markdown_is_drawn_while_it_is_written_and_no_line_goes_again() -> None:
    drawing, before = AnswerDrawing(width=60, theme=PLAIN), 0
    for number, char in enumerate(WRITTEN, 1):
        drawing.extend(char)
        lines = [strip.text for strip in all_strips(drawing)]
        assert not [line for line in lines if any(sign in line for sign in ("`", "**", "|"))], WRITTEN[:number]
        assert len(lines) >= before, WRITTEN[:number]
        before = len(lines)


@given(TEXTS)
def test_segments_lose_nothing_but_blank_lines(text: str) -> None:
    joined = "".join(segment.source for segment in segments_of(text))
    assert joined.split() == text.split()


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(1, 60))
def test_no_line_is_wider_than_the_screen_and_none_acts_on_the_terminal(text: str, width: int) -> None:
    for strip in render_block(AnswerBlock(id="a", text=text, open=True), width, PLAIN):
        assert strip.cell_length <= max(width, 2)
        assert "\x1b" not in strip.text
        assert "\n" not in strip.text


@for_each(
    ("text", "pieces"),
    [
        ("one\n\ntwo\n", ["one", "two"]),
        ("- a\n\n- b\n\n  more of b\n\npara\n", ["- a\n\n- b\n\n  more of b", "para"]),
        ("text\n```py\na\n\nb\n```\nafter\n", ["text", "```py\na\n\nb\n```", "after"]),
        ("````\n```\n\nx\n````\ny", ["````\n```\n\nx\n````", "y"]),
        ("- x\n  ```\n  a\n\n  b\n  ```\n- y\n", ["- x\n  ```\n  a\n\n  b\n  ```\n- y"]),
        ("# T\npara\n", ["# T\npara"]),
        ("para\n# T\n", ["para", "# T"]),
    ],
)
def test_a_text_is_cut_between_blocks(text: str, pieces: list[str]) -> None:
    assert [segment.source.strip("\n") for segment in segments_of(text)] == pieces


def test_a_long_list_is_cut_between_items_and_keeps_counting() -> None:
    text = "".join(f"{number}. item\n" for number in range(1, 101))
    assert len(segments_of(text)) > 1
    lines = drawn(list(render_block(AnswerBlock(id="a", text=text), 40, PLAIN)))
    assert [line.split()[0] for line in lines] == [f"{number}." for number in range(1, 101)]


def test_an_open_code_block_is_drawn_by_its_end_only_until_it_is_closed() -> None:
    drawing = AnswerDrawing(width=40, theme=PLAIN)
    drawing.extend("```py\n" + "".join(f"line{number}\n" for number in range(500)))
    lines = drawn(list(all_strips(drawing)))
    assert len(lines) < 70
    assert lines[0].strip() == "py"
    assert lines[-1].strip() == "line499"
    drawing.close()
    assert len(all_strips(drawing)) == 501


@pytest.mark.more
def test_a_very_long_answer_keeps_a_bounded_number_of_lines_and_shows_all() -> None:
    text = "".join(f"paragraph {number}\n\n" for number in range(5_000))
    drawing = AnswerDrawing(width=40, theme=PLAIN)
    for start in range(0, len(text), 1_000):
        drawing.extend(text[start : start + 1_000])
        drawing.finished()
    drawing.close()
    lines = drawing.finished()
    assert len(lines) == 2 * 5_000 - 1
    assert lines.kept <= MAX_LINES
    assert [lines[2 * number].text.split()[-1] for number in (4_999, 0, 2_500)] == ["4999", "0", "2500"]
    assert lines.kept <= MAX_LINES
    lines.drop()
    assert lines.kept == 0
    assert lines[2].text.strip() == "paragraph 1"


def test_a_character_reference_does_not_restore_a_sanitised_character() -> None:
    text = "a &#x202E; b &#10; c &zwj; d\n\n```&#x202E;\n&#27;\n```\n\n| &#x200B; |\n|---|\n| [x](http://e/&#x202E;) |"
    for strip in render_block(AnswerBlock(id="a", text=text), 60, PLAIN):
        assert not set(strip.text) & set("\u202e\u200d\u200b\x1b\n")


def test_all_text_of_the_model_is_shown() -> None:
    text = (
        '<b>html</b> ![alt](http://i.example/x) [text](http://l.example/y "t")\n\n[ref]: http://r.example\n\n<!-- c -->'
    )
    shown = " ".join(drawn(list(render_block(AnswerBlock(id="a", text=text), 200, PLAIN))))
    for part in ("<b>html</b>", "http://i.example/x", "http://l.example/y", "http://r.example", "<!-- c -->"):
        assert part in shown


@for_each(
    "text",
    [
        "> " * 40 + "hidden",
        "- " * 40 + "hidden",
        "| a |\n|---|\n| 1 | hidden |",
        '[x](http://l.example "hidden")',
        "```x hidden\ncode\n```",
        "[//]: # (hidden)",
        "007. hidden",
    ],
)
def test_text_that_markdown_would_drop_is_shown(text: str) -> None:
    shown = "".join(drawn(list(render_block(AnswerBlock(id="a", text=text), 60, PLAIN))))
    assert "hidden" in shown


def test_no_link_is_live() -> None:
    text = "[x](http://e.example) <http://f.example> [y](javascript:alert)"
    strips = render_block(AnswerBlock(id="a", text=text), 80, PLAIN)
    assert all(segment.style is None or segment.style.link is None for strip in strips for segment in strip)
