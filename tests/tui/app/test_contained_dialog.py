"""The dialog at the end of a contained turn, key by key: what is shown, and what reaches the session."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from chatops.contained.text import Change, ContainedReview
from chatops.domain.canonical import canonical
from chatops.domain.decisions import Approved, Rejected
from chatops.domain.tools import CONTAINED_APPLY, CallFacts
from chatops.tui.dialogs import contained
from chatops.tui.dialogs.approval import ApprovalScreen
from chatops.tui.dialogs.contained import ContainedScreen
from tests.support.waiting import until
from tests.tui.app.fakes import FakeSession, pending_call
from tests.tui.app.support_app import Stage, stage


def added(text: str) -> str:
    return f"--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+{text}\n"


DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n \n-a = 1\n+a = 2 \u202e\n"
CHANGES = (
    Change(path="Makefile", title="add Makefile  [runs later: make]", lines=(), diff=added("all:")),
    Change(path="a.py", title="change a.py", lines=("  mode 644 becomes 755",), diff=DIFF),
    Change(path="b.py", title="change b.py", lines=(), diff=added("b"), conflict="changed in the workspace"),
)


class ContainedSession(FakeSession):
    """A session whose turn waits for the decision on its changes."""

    changes = ContainedReview(
        head="3 changed", notes=("Ran in the copy:", "  shell_exec make: success"), changes=CHANGES
    )
    contained = 0

    def __init__(self) -> None:
        super().__init__()
        self.actions = self  # type: ignore[assignment]

    def contained_changes(self, arguments: str) -> ContainedReview:
        return self.changes

    async def contain(self, *, on: bool = True) -> bool:
        self.contained += 1
        self.change(pending=())
        return True


@asynccontextmanager
async def asked(size: tuple[int, int] = (80, 40), **arguments: str | bool) -> AsyncIterator[Stage]:
    session = ContainedSession()
    async with stage(session, size=size) as running:
        given = canonical({**arguments} if arguments else {"turn": "t.c0", "list": 1})
        facts = CallFacts(arguments=given, workspace="/ws", paths=("/ws/a.py", "/ws/src/b.py"))
        session.ask(pending_call(tool=CONTAINED_APPLY, facts=facts, digest="d-1"))
        while not isinstance(running.app.screen, ContainedScreen) or "3 changed" not in running.text:
            await asyncio.sleep(0.01)
            await running.settle()
        yield running


def taken(running: Stage) -> list[object]:
    return [one.decision for one in running.session.taken]


async def test_all_of_it_is_shown_and_a_applies_what_is_not_in_conflict() -> None:
    async with asked() as running:
        assert "2 + a = 2 <U+202E>" in running.text
        lines = [row.strip("│ ").strip() for row in running.text.splitlines()]
        assert lines[lines.index("shell_exec make: success") + 1] == "", "the first diff stands apart"
        assert "2 − a = 1" in running.text and "mode 644 becomes 755" in running.text
        await running.press("a")
        assert [(one.digest, one.decision) for one in running.session.taken] == [("d-1", Approved())]


async def test_a_single_file_is_named_once_and_can_be_ticked(monkeypatch: pytest.MonkeyPatch) -> None:
    one = ContainedReview(head="3 changed", notes=("Ran in the copy:",), changes=CHANGES[1:2])
    monkeypatch.setattr(ContainedSession, "changes", one)
    async with asked() as running:
        assert pointed(running).startswith("│ > [x] change a.py")
        assert running.text.count("change a.py") == 1 and "> [x] change a.py" in running.text
        await running.press("space")
        assert "> [ ] change a.py" in running.text and "apply 0 of 1" in running.text


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_all_keys_stay_on_screen_in_a_small_window(size: tuple[int, int]) -> None:
    async with asked(size) as running:
        await running.press("end", "end")
        for key in ("Space ticks", "Tab next file", "d discard all", "D send back with a reason", "Esc later"):
            assert key in running.text, f"{key!r} is missing:\n{running.text}"
        assert "a apply 2 of 2" in running.text


@pytest.mark.parametrize("given", [{}, {"turn": "t.c0", "undo": True}])
async def test_it_begins_with_the_list_of_files(given: dict[str, Any]) -> None:
    async with asked(**given) as running:
        lines = [row.strip("│ ").strip() for row in running.text.splitlines()]
        start = lines.index("> [x] add Makefile  [runs later: make]  +1")
        assert lines[start + 1 : start + 4] == [
            "[x] change a.py  +1 −1",
            "[!] change b.py  +1  stays as it is: changed in the workspace",
            "",
        ]


async def test_what_is_in_conflict_meanwhile_is_marked_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task has changed the same file: its changes were applied while these are on the screen."""
    monkeypatch.setattr(contained, "_REREAD_S", 0.01)
    async with asked() as running:
        await running.press("space")
        conflict = replace(CHANGES[1], conflict="changed in the workspace since")
        seen = ContainedSession.changes
        monkeypatch.setattr(running.session, "changes", replace(seen, changes=(conflict, CHANGES[0])))
        await until(lambda: "[!] change a.py" in running.text)
        await running.settle()
        assert "The changes differ from those that were shown. Look again." in running.text
        await running.type_fast("a")
        assert taken(running) == [] and "[ ] add Makefile" in running.text, "what was unticked stays so"
        running.clock.pass_(3.0)
        await running.press("tab", "space", "a")
        assert taken(running) == [Approved(only=None)]


async def test_changes_that_came_below_the_help_are_applied_once_they_were_on_the_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contained, "_REREAD_S", 0.01)
    async with asked() as running:
        await running.press("f1")
        dialog = running.app.screen_stack[-2]
        assert isinstance(dialog, ContainedScreen)
        # As high as before: no new layout would make the dialog look at its lines again.
        other = (CHANGES[0], replace(CHANGES[1], diff=DIFF.replace("a = 2", "a = 3")), CHANGES[2])
        monkeypatch.setattr(running.session, "changes", replace(ContainedSession.changes, changes=other))
        await until(lambda: tuple(dialog._changes) == other)
        await running.settle()
        await running.press("escape")
        await until(lambda: dialog.is_read)
        await running.press("a")
        assert taken(running) == [Approved()]


async def test_an_undo_acts_after_the_pause_however_long_its_diffs_are() -> None:
    async with asked(size=(80, 24), turn="t.c0", undo=True) as running:
        await running.press("down")
        assert "a undo 2 of 2" in running.text and "2 + a = 2" not in running.text
        assert "Enter opens its diff" in running.text
        await running.press("enter")
        assert "2 + a = 2 <U+202E>" in running.text and "The undo: 1 file, +1 −1" in running.text
        await running.press("escape", "space")
        assert "> [ ] change a.py  +1 −1" in running.text and "a undo 1 of 2" in running.text
        await running.press("a")
        assert taken(running) == [Approved(only=("Makefile",))]


async def test_space_ticks_and_never_decides() -> None:
    async with asked() as running:
        await running.press("tab", "space")
        assert "[ ] change a.py" in running.text and not running.session.taken
        assert "Enter goes to its diff" in running.text
        await running.press("a")
        assert taken(running) == [Approved(only=("Makefile",))]


async def test_arrows_choose_a_file_in_the_list_and_scroll_from_its_end() -> None:
    async with asked((80, 18)) as running:
        await running.press("down")
        assert "> [x] change a.py" in running.text and pointed(running).startswith("│ > [x] change a.py")
        await running.press("space", "down")
        assert "[ ] change a.py" in running.text and "> [!] change b.py" in running.text
        assert "Role coder: 3 changed" in running.text
        await running.press("down", "down")
        assert "Role coder: 3 changed" not in running.text, "it has scrolled"
        await running.press("up")
        assert "> [ ] change a.py" in running.text
        await running.press("tab", "end")
        assert pointed(running).startswith("│ > [!] change b.py"), "above its diff"


def pointed(running: Stage) -> str:
    """The line of the screen in which the terminal's cursor is."""
    return running.text.splitlines()[running.app.cursor_position.y]


async def test_what_was_unticked_stays_so_when_the_dialog_is_opened_again() -> None:
    async with asked() as running:
        await running.press("space", "escape", "ctrl+g")
        await until(lambda: "[ ] add Makefile" in running.text)
        await running.press("a")
        assert taken(running) == [Approved(only=("a.py",))]


async def test_another_list_of_changes_begins_with_all_ticked() -> None:
    async with asked() as running:
        await running.press("space", "escape")
        facts = CallFacts(arguments=canonical({"turn": "t.c0", "list": 2}))
        running.session.change(pending=(pending_call(tool=CONTAINED_APPLY, facts=facts, digest="d-2"),))
        await running.press("ctrl+g")
        await until(lambda: "[x] add Makefile" in running.text and "[ ] " not in running.text)


@pytest.mark.more
async def test_nothing_ticked_applies_nothing() -> None:
    async with asked() as running:
        await running.press("space", "tab", "space", "a")
        assert not running.session.taken and "Nothing is ticked" in running.text


@pytest.mark.more
@pytest.mark.parametrize("key", ["y", "n", "enter", "A", "s", "r", "plus", "c"])
async def test_other_keys_decide_nothing(key: str) -> None:
    async with asked() as running:
        await running.press(key)
        assert not running.session.taken


@pytest.mark.more
async def test_d_discards_and_capital_d_sends_back_with_a_reason() -> None:
    async with asked() as running:
        await running.press("D")
        await running.answer("use tabs", "enter")
        assert taken(running) == [Rejected(reason="use tabs", send_back=True)]
    async with asked() as running:
        await running.press("d")
        assert taken(running) == [Rejected()]


async def test_nothing_is_applied_before_its_end_was_on_the_screen() -> None:
    async with asked(size=(80, 16)) as running:
        await running.press("a")
        assert not running.session.taken
        await running.press("end", "a")
        assert taken(running) == [Approved()]


async def test_what_tab_skips_is_shown_before_anything_is_applied() -> None:
    async with asked(size=(80, 18)) as running:
        long = "".join(f"+line {number} of the file\n" for number in range(40))
        diff = f"--- a/a.py\n+++ b/a.py\n@@ -0,0 +1,40 @@\n{long}"
        changes = (replace(CHANGES[0], diff=diff), CHANGES[1])
        assert isinstance(running.session, ContainedSession)
        running.session.changes = replace(ContainedSession.changes, changes=changes)
        facts = CallFacts(arguments=canonical({"turn": "t.c0", "list": 2}))
        running.session.change(pending=(pending_call(tool=CONTAINED_APPLY, facts=facts, digest="d-2"),))
        running.app.screen.follow()  # type: ignore[attr-defined]
        while "Makefile  [runs later: make]  +40" not in running.text:
            await running.settle()
        seen = {number for number in range(40) if f"line {number} of" in running.text}
        await running.press("tab")
        seen |= {number for number in range(40) if f"line {number} of" in running.text}
        await running.press("enter")
        assert "lines above not shown" in running.text and "a.py" in running.text
        seen |= {number for number in range(40) if f"line {number} of" in running.text}
        while not running.session.taken:
            await running.press("a")
            seen |= {number for number in range(40) if f"line {number} of" in running.text}
        assert len(seen) == 40


async def test_an_undo_has_its_own_words_and_is_not_sent_back() -> None:
    async with asked(turn="t.c0", undo=True) as running:
        assert "Undo these changes?" in running.text and "? Undo  a.py, src/b.py" in running.text
        await running.press("D")
        assert "Space ticks   Tab next file" in running.text
        assert "cannot be sent back" in running.text and isinstance(running.app.screen, ContainedScreen)
        await running.press("d")
        assert taken(running) == [Rejected()]


async def test_a_second_undo_leads_to_the_files_of_the_first() -> None:
    async with asked(turn="t.c0", undo=True) as running:
        await running.press("escape")
        running.app.chat.run_command("/undo")
        while "the files of the last undo wait for your answer" not in " ".join(running.text.split()):
            await running.settle()
        assert isinstance(running.app.screen, ContainedScreen) and taken(running) == []


async def test_an_undo_takes_back_the_ticked_files() -> None:
    async with asked(turn="t.c0", undo=True) as running:
        await running.press("space", "a")
        assert taken(running) == [Approved(only=("a.py",))]


async def test_the_answer_goes_to_what_was_shown_when_the_key_was_pressed() -> None:
    async with asked() as running:
        screen = running.app.screen
        assert isinstance(screen, ContainedScreen)
        screen.answer(screen.by_name["a"])
        # Before the answer is sent, another list replaces the one that was shown.
        facts = CallFacts(arguments=canonical({"turn": "t.c0", "list": 2}))
        running.session.change(pending=(pending_call(tool=CONTAINED_APPLY, facts=facts, digest="d-2"),))
        screen.follow()
        await running.settle()
        assert [one.digest for one in running.session.taken] == ["d-1"]


async def test_c_contains_the_turn_and_closes_the_dialog_without_a_decision() -> None:
    session = ContainedSession()
    async with stage(session) as running:
        session.ask(pending_call())
        await running.settle()
        assert isinstance(running.app.screen, ApprovalScreen)
        await running.press("c")
        assert session.contained == 1 and not session.taken
        assert "elsewhere" not in running.text


async def test_the_changes_of_several_tasks_are_asked_one_after_the_other_and_never_beside_calls() -> None:
    async with asked() as running:

        def front() -> object:
            return running.app.screen

        facts = CallFacts(arguments='{"list":1,"turn":"k.c0"}', workspace="/ws")
        kid = pending_call(2, tool=CONTAINED_APPLY, facts=facts, digest="d-2")
        running.session.ask(replace(kid, caller="coder", role="boxed"))
        running.session.ask(pending_call(3))
        await running.settle()
        assert isinstance(front(), ContainedScreen) and "Role coder: 3 changed" in running.text
        await running.press("a")
        await running.settle()
        assert isinstance(front(), ContainedScreen) and "Role boxed, for coder: 3 changed" in running.text
        assert "These changes are of another task." in running.text and "2 + a = 2 <U+202E>" in running.text
        # What was put off waits until it is asked for, and the call comes by itself, alone.
        await running.press("escape")
        assert isinstance(front(), ApprovalScreen) and "git status" in running.text
        assert "undecided" not in running.text, "the changes are not listed beside it"
        await running.press("escape")
        assert not isinstance(front(), ApprovalScreen | ContainedScreen)
        for dialog in (ContainedScreen, ApprovalScreen, ContainedScreen):
            await running.press("ctrl+g")
            assert isinstance(front(), dialog)
            await running.press("escape")
        await running.press("ctrl+g", "d", "ctrl+g", "down", "a")
        await running.settle()
        assert [(one.digest, type(one.decision)) for one in running.session.taken] == [
            ("d-1", Approved), ("digest-3", Rejected), ("d-2", Approved),
        ]  # fmt: skip
