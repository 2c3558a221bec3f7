"""Cards show what happened: the change, the end of the output, how much was found, how long it takes."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.cells import cell_len
from rich.style import Style

from chatops import tool
from chatops.domain.tools import Outcome, changed_lines
from chatops.mcp.catalogue import ListedTool, usable_tools
from chatops.policy.servers import McpServerSpec, ServerTransport
from chatops.tui.theme import PLAIN
from chatops.tui.transcript import card as card_module
from chatops.tui.transcript.answer import warm_up
from chatops.tui.transcript.blocks import AnswerBlock, Block, CardStatus, EndDetails, ToolCardBlock
from chatops.tui.transcript.card import card_lines
from chatops.tui.transcript.diff import diff_lines
from chatops.tui.transcript.layout import BlockLayout
from chatops.tui.transcript.lines import cuts
from tests.support.cases import for_each
from tests.support.transcript_blocks import DIFF, card

warm_up()
HIDDEN = set("\x1b\x9b\x07\r\x00\u202e\u2028")
COLOURED = replace(PLAIN, added_words=Style(bgcolor="green"), removed_words=Style(bgcolor="red"))


def read(card_id: str) -> ToolCardBlock:
    arguments = json.dumps({"path": f"{card_id}.py"})
    done = card(card_id, "", outcome=Outcome.SUCCESS, tool="file_read", arguments=arguments)
    return replace(done, output="one\ntwo", count=2, duration_ms=2)


def shown(layout: BlockLayout) -> list[str]:
    lines = (layout.line(y) for y in range(layout.height))
    return ["" if line is None else " ".join(line.text.split()) for line in lines]


def laid_out(*blocks: Block) -> BlockLayout:
    layout = BlockLayout()
    layout.restyle(width=60, theme=PLAIN)
    layout.reset(list(blocks))
    for index in range(len(blocks)):
        layout.ensure(index)
    return layout


def test_reads_in_a_row_take_one_line_until_they_are_unfolded() -> None:
    layout = laid_out(AnswerBlock(id="a", text="I look."), read("x"), read("y"), read("z"), card("s", "ls"))
    assert shown(layout) == ["I look.", "", "✓ Read x.py, y.py, z.py 6 lines 6 ms", "✗ Shell ls no result"]
    layout.unfold(layout.index["x"])
    for index in range(5):
        layout.ensure(index)
    each = [f"✓ Read {name}.py 2 lines 2 ms" for name in "xyz"]
    assert shown(layout) == ["I look.", "", *each, "✗ Shell ls no result"]


def test_lines_of_a_file_that_was_read_again_count_once() -> None:
    again, part = replace(read("x"), id="again"), replace(read("x"), id="part", arguments='{"limit":1,"path":"x.py"}')
    assert shown(laid_out(read("x"), again)) == ["✓ Read x.py 2 reads, 2 lines 4 ms"]
    assert shown(laid_out(read("x"), again, read("y"))) == ["✓ Read x.py, y.py 3 reads, 4 lines 6 ms"]
    assert shown(laid_out(read("x"), replace(part, count=1))) == ["✓ Read x.py 2 reads, 3 lines 4 ms"]


def test_the_result_of_a_server_or_own_tool_shows_its_first_lines() -> None:
    answer = replace(read("x"), tool="notes__find", count=None, output="\n[1] first\n[2] second\n[3] third\n[4] fourth")
    assert shown(laid_out(answer))[1:] == ["[1] first", "[2] second", "… 2 more lines (ctrl+o)"]
    assert shown(laid_out(replace(answer, outcome=Outcome.DENIED)))[1:] == []


def test_a_read_joins_the_others_once_it_has_succeeded() -> None:
    running = replace(read("y"), status=CardStatus.RUNNING, outcome=None, output="", count=None)
    layout = laid_out(read("x"), running)
    assert shown(layout) == ["✓ Read x.py 2 lines 2 ms", "» Read y.py running"]
    failed = replace(read("y"), outcome=Outcome.FAILED, end=EndDetails(error_line="It is gone."), count=None)
    apart = ["✓ Read x.py 2 lines 2 ms", "✗ Read y.py failed · 2 ms", "It is gone."]
    together = ["✓ Read x.py, y.py 4 lines 4 ms"]
    for block, lines in ((read("y"), together), (failed, apart), (read("y"), together)):
        layout.entries[1].block = block
        layout.redraw(1)
        assert shown(layout) == lines
    layout.remove(0)
    layout.ensure(0)
    assert shown(layout) == ["✓ Read y.py 2 lines 2 ms"]


def test_reads_that_come_one_by_one_are_shown_as_those_that_are_loaded() -> None:
    blocks = [read("x"), read("y"), card("s", "ls"), read("z"), read("u")]
    layout = laid_out()
    for at, block in enumerate(blocks):
        layout.insert(block, index=at)
        layout.redraw(at)
    assert shown(layout) == shown(laid_out(*blocks))


def test_a_diff_shows_numbers_signs_and_the_words_that_differ() -> None:
    lines, changed = diff_lines(DIFF, name="hello.py", width=60, theme=COLOURED, most=12, whole=False)
    assert changed == 3
    assert [line.plain.rstrip() for line in lines] == [
        "3   def main():",
        "4",
        '5 −     print("hello")',
        '5 +     print("hello, world")',
        '6 +     print("and goodbye")',
        "7       return 0",
    ]
    marked = {
        line.plain[span.start : span.end]
        for line in lines
        for span in line.spans
        if isinstance(span.style, Style) and span.style.bgcolor is not None and span.style.bgcolor.name == "green"
    }
    assert marked == {", world"}


def test_a_diff_of_several_places_marks_what_is_left_out_and_counts_what_looks_like_a_header() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n--- a\n+++ b\n@@ -90,1 +90,1 @@\n-c\n\\ No newline at end of file\n+d\n"
    assert changed_lines(diff) == (2, 2)
    lines, changed = diff_lines(diff, name="x", width=60, theme=PLAIN, most=12, whole=False)
    assert changed == 4
    assert [line.plain.split() for line in lines] == [
        ["1", "−", "--", "a"],
        ["1", "+", "++", "b"],
        ["…"],
        ["90", "−", "c"],
        ["No", "newline", "at", "end", "of", "file"],
        ["90", "+", "d"],
    ]


@for_each("whole", [True, False])
@for_each("text", ["\x1b[2J", "a\rb", "\u202eabc", "\x00", "\u2028", "[/foo]", "x" * 900])
def test_no_changed_text_acts_or_hides(text: str, whole: bool) -> None:
    diff = f"[replaces {text}]\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n {text}\n-{text}y\n+{text}z\n"
    lines, _ = diff_lines(diff, name=f"x.{text}", width=50, theme=PLAIN, most=200, whole=whole)
    drawn = "".join(line.plain for line in lines)
    assert not set(drawn) & HIDDEN
    assert all(line.cell_len <= 50 for line in lines)
    if whole:
        assert drawn.count("x") >= 3 * text.count("x")


def test_the_change_of_a_file_is_bounded_and_says_how_much_is_left_out() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -0,0 +1,900 @@\n" + "+x\n" * 900
    block = card("c", "", outcome=Outcome.SUCCESS, tool="file_write", arguments='{"path":"x"}', diff=diff, added=900)
    folded = card_lines(block, width=80, theme=PLAIN, expanded=False)
    assert len(folded) == 14
    assert folded[-1].plain.strip() == "… 888 more lines (ctrl+o)"
    opened = card_lines(block, width=80, theme=PLAIN, expanded=True)
    assert any("change (the first 400 lines of 900):" in line.plain for line in opened)


def test_a_change_with_long_lines_says_how_much_is_left_out_too() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -0,0 +1,300 @@\n" + f"+{'x' * 400}\n" * 300
    block = card("c", "", outcome=Outcome.SUCCESS, tool="file_write", arguments='{"path":"x"}', diff=diff, added=300)
    opened = card_lines(block, width=80, theme=PLAIN, expanded=True)
    assert any("change (the first 66 lines of 300):" in line.plain for line in opened)


def test_the_last_output_of_a_running_program_is_shown_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    block = card("c", "npm test", CardStatus.RUNNING, output="1\n2\n3\n4\n5\n6\n10 %\r20 %\n", started_at=100.0)
    monkeypatch.setattr(card_module, "clock", lambda: 100.9)
    assert card_lines(block, width=60, theme=PLAIN, expanded=False)[0].plain.endswith("running")
    monkeypatch.setattr(card_module, "clock", lambda: 112.0)
    first, *rest = (line.plain.strip() for line in card_lines(block, width=60, theme=PLAIN, expanded=False))
    assert first.endswith("12 s · Esc to stop")
    assert rest == ["… 2 earlier lines (ctrl+o)", "3", "4", "5", "6", "20 %"]


def test_an_error_is_wrapped_in_its_paths_and_other_output_is_cut() -> None:
    error = f"cat: /srv/{'deep/' * 12}note.txt: No such file or directory"
    failed = card("c", "cat", outcome=Outcome.FAILED, end=EndDetails(tail=error))
    _, *rest = (line.plain for line in card_lines(failed, width=60, theme=PLAIN, expanded=False))
    assert [line.strip() for line in rest] == [
        "cat:",
        "/srv/deep/deep/deep/deep/deep/deep/deep/deep/deep/deep/",
        "deep/deep/note.txt: No such file or directory",
    ]
    done = replace(failed, outcome=Outcome.SUCCESS)
    assert card_lines(done, width=60, theme=PLAIN, expanded=False)[1].plain.endswith("…")


@pytest.mark.parametrize("before", ["", " "])
def test_a_line_is_cut_after_slashes_and_nothing_of_it_is_lost(before: str) -> None:
    for text in ("a/" * 50, "x" * 95, "/srv/ä/" * 9, "two  spaces in a/path " * 4, "漢字/" * 20):
        parts = [text[at:end] for at, end in pairwise([0, *cuts(text, 20, before=before), len(text)])]
        assert "".join(parts) == text
        assert all(0 < cell_len(part) <= 20 for part in parts)
        if not before and "/" in text:
            assert all(part.endswith("/") for part in parts[:-1] if "/" in part[10:])


def test_an_own_tool_has_a_card_as_good_as_ours() -> None:
    def gauge(station: str, day: str) -> list[int]:
        """Return the levels of a day."""
        return []

    for verb, shown_name in (("Levels", "Levels"), ("Read", "gauge")):
        made = tool(verb=verb, counts="level", path="station", read_only=True)(gauge)
        layout = BlockLayout()
        layout.capabilities = {"gauge": made.spec.capabilities}.__getitem__
        layout.restyle(width=60, theme=PLAIN)
        arguments = json.dumps({"day": "today", "station": "Oban"})
        call = replace(read("a"), tool="gauge", arguments=arguments, count=3, output="")
        layout.reset([call])
        layout.ensure(0)
        assert shown(layout) == [f"✓ {shown_name} Oban day=today 3 levels 2 ms"]
        layout.insert(replace(call, id="b", arguments='{"station": "Brest"}', count=1), index=1)
        layout.redraw(1)
        layout.ensure(0)
        assert shown(layout) == [f"✓ {shown_name} Oban, Brest 4 levels 4 ms"]
        opened = card_lines(call, width=80, theme=PLAIN, expanded=True, capabilities=made.spec.capabilities)
        assert "│ tool: gauge" in [line.plain for line in opened]


@pytest.mark.parametrize("title", ["Find pages", "Read", "Shell\n✓ Read x", "\x1b[2J\u202eabc", "x" * 900, "\ud800"])
def test_the_title_of_a_servers_tool_is_its_name_after_that_of_the_server(title: str) -> None:
    server = McpServerSpec(name="docs", url="https://docs.example/mcp", transport=ServerTransport.HTTP)
    (listed,), _ = usable_tools(server, [ListedTool(name="find", description="", input_schema={}, title=title)])
    block = card("c", "", outcome=Outcome.SUCCESS, tool=listed.spec.name, arguments='{"query": "tides"}')
    known = listed.spec.capabilities
    (line,) = (line.plain for line in card_lines(block, width=98, theme=PLAIN, expanded=False, capabilities=known))
    assert line.startswith("✓ docs: " + (title if title.isalpha() and len(title) < 40 else ""))
    assert "  tides  " in line
    assert not set(line) & HIDDEN


@pytest.mark.parametrize("name", ["Shell", "edit", "Web search"])
def test_no_other_tool_looks_like_one_of_ours(name: str) -> None:
    block = card("c", "ls", outcome=Outcome.SUCCESS, tool=name)
    assert f'"{name}"' in card_lines(block, width=80, theme=PLAIN, expanded=False)[0].plain
