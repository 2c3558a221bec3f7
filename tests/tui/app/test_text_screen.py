"""The screen that shows a text: as large as its text, scrolled by the usual keys, searched with a slash."""

import asyncio
import math
import re
from unittest.mock import patch

import pytest
from textual import events

from chatops.contained.text import Change
from chatops.domain.progress import Progress
from chatops.toolkit.counting import shown_by
from chatops.tui.commands.help import help_text
from chatops.tui.dialogs.changes import ChangesScreen
from chatops.tui.dialogs.modal import Page
from chatops.tui.dialogs.text import TextScreen, found_in
from chatops.tui.theme import theme_of
from tests.support.cases import for_each
from tests.tui.app.fakes import pending_call
from tests.tui.app.support_app import Stage, stage


async def show(running: Stage, text: str) -> None:
    running.app.push_screen(TextScreen("Title", text=text))
    await running.settle()


async def test_the_help_is_searched_and_esc_ends_first_the_search_then_the_help() -> None:
    async with stage(size=(100, 40)) as running:
        await running.press("f1", "slash", *"take over")
        assert re.search(r"F2 +take over a session", running.text)
        assert "/takeover" in running.text
        assert "Anywhere" in running.text
        assert "PgUp, PgDn" not in running.text
        await running.press("escape")
        assert "PgUp, PgDn" in running.text
        await running.press("escape")
        assert running.app.screen is running.app.chat


@pytest.mark.parametrize("command", ["/help", "/diff", "/policy"])
async def test_what_is_typed_on_a_page_goes_to_the_message_field(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.tui.dialogs.modal._TYPING_GAP_S", math.inf)
    async with stage() as running:
        running.session.changed = (Change(path="a.py", title="change a.py", lines=(), diff=""),)
        for keys, text in (("jump n", "jump n"), ("", "jump npasted")):
            running.app.chat.run_command(command)
            await running.settle()
            page = running.app.screen
            assert isinstance(page, Page)
            await running.type_fast(*("space" if key == " " else key for key in keys))
            if not keys:
                page.post_message(events.Paste("pasted"))
                await running.settle()
            assert running.app.screen is running.app.chat and running.draft == text


async def test_what_is_typed_on_the_help_over_a_dialog_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.tui.dialogs.modal._TYPING_GAP_S", math.inf)
    async with stage() as running:
        running.session.ask(pending_call())
        await running.settle()
        await running.press("f1")
        await running.type_fast(*"wada")
        assert running.draft == "wada" and running.dialog_is_open and not running.session.taken


@pytest.mark.more
async def test_a_window_is_as_large_as_its_text_and_says_how_much_is_below() -> None:
    async with stage(size=(80, 24)) as running:
        await show(running, "one\ntwo")
        assert running.app.screen.query_one("#text").outer_size.height == 7
        assert "more line" not in running.text
        await running.press("escape")
        await show(running, "words " * 40)
        assert running.app.screen.query_one("#text").outer_size.height == 9
        await running.press("escape")
        await show(running, "\n".join(f"line {number}" for number in range(1, 41)))
        assert "↓ 21 more lines" in running.text
        await running.press("j", "j")
        assert "↓ 19 more lines" in running.text
        await running.press("G")
        assert "more lines" not in running.text and "line 40" in running.text
        await running.press("g")
        assert "↓ 21 more lines" in running.text


@pytest.mark.more
async def test_a_search_without_a_match_says_so() -> None:
    async with stage(size=(40, 12)) as running:
        await show(running, "one\ntwo")
        await running.press("slash", *"[b]x")
        assert "Nothing matches." in running.text


@for_each(
    ("wanted", "found"),
    [("", "A\n  b\n    c\nD\n  c"), ("C", "A\n  b\n    c\n\nD\n  c"), ("a", "A"), ("x", "")],
)
def test_matching_lines_stand_under_the_lines_that_they_belong_to(wanted: str, found: str) -> None:
    assert found_in("A\n  b\n    c\nD\n  c", wanted) == found


def test_the_help_names_each_command_once() -> None:
    lines = help_text().split("\n")
    commands = [line.split()[0] for line in lines[lines.index("Commands") :] if line.startswith("  /")]
    assert len(commands) == len(set(commands)) >= 29


@pytest.mark.more
async def test_the_changes_are_gone_through_by_file_and_shown_side_by_side() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old = 1\n+new = 2\n"
    changes = [Change(path=f"{name}.py", title=f"change {name}.py", lines=(), diff=diff) for name in "abcdefgh"]
    async with stage(size=(100, 24)) as running:
        running.app.push_screen(ChangesScreen("Title", changes))
        await running.settle()
        assert "Title: 8 files, +8 −8" in running.text
        tops = []
        for key in ("n", "tab", "p", "shift+tab"):
            await running.press(key)
            tops.append(running.text.splitlines()[2].strip("│ "))
        assert tops[:3] == ["change a.py  +1 −1", "change b.py  +1 −1", "change a.py  +1 −1"]
        assert "see !git diff" in tops[3]
        assert not re.search(r"old = 1.*new = 2", running.text)
        await running.press("|")
        assert re.search(r"old = 1.*new = 2", running.text)
        await running.press("escape")
        assert running.app.screen is running.app.chat


async def test_a_small_diff_leaves_the_transcript_in_view() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old = 1\n+new = 2\n"
    async with stage(size=(100, 40)) as running:
        empty = running.text.splitlines()
        running.app.push_screen(ChangesScreen("Title", [Change(path="x", title="change x", lines=(), diff=diff)]))
        await running.settle()
        lines = running.text.splitlines()
        assert "+ new = 2" in running.text and "Esc back" in running.text
        assert "What commands" in lines[running.app.cursor_position.y], "screen readers follow the cursor"
        assert sum(now != before for now, before in zip(lines, empty, strict=True)) < 15


async def test_the_rows_of_changes_are_made_and_counted_before_the_page_opens() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -0,0 +1,40 @@\n" + "".join(f"+line {number}\n" for number in range(40))
    changes = [Change(path=f"{name}.py", title=f"change {name}.py", lines=(), diff=diff) for name in "abc"]
    shown: list[Progress | None] = []
    async with stage(size=(100, 24)) as running:
        page = ChangesScreen("Title", changes)
        with shown_by(shown.append):
            await asyncio.to_thread(page.prepare, theme_of(running.app))
        assert shown[0] is not None and shown[0].unit == "line" and shown[-1] is None
        with patch("chatops.tui.dialogs.changes.DiffRows") as made:
            running.app.push_screen(page)
            await running.settle()
        assert not made.called and "Title: 3 files, +120 −0" in running.text
        await running.press("G")
        assert "line 39" in running.text


async def test_a_list_keeps_its_size_while_it_is_filtered() -> None:
    async with stage(size=(100, 30)) as running:
        await running.press("ctrl+p")
        size = running.app.screen.query_one("#picker").region
        await running.type_fast(*"zzz")
        assert "No such command." in running.text
        assert running.app.screen.query_one("#picker").region == size
