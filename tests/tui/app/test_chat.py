"""The chat screen: sending, stopping, retrying, roles, commands, leaving. Typed text is never lost."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from textual.events import Key, Paste

from chatops.commands import chat
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.events import TurnStarted, TurnStatus
from chatops.domain.files import FileRef
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.model import ModelTarget
from chatops.policy.grant import Grant
from chatops.runtime.view import SessionView
from chatops.tui.app import ChatopsApp
from chatops.tui.dialogs.approval import ApprovalScreen
from chatops.tui.dialogs.choices import SESSION_KEYS
from chatops.tui.dialogs.picker import Picker, _Filter
from chatops.tui.dialogs.text import TextScreen
from chatops.tui.graphics import MAX_IMAGES
from chatops.tui.notice import show_notice
from chatops.tui.transcript.blocks import Remove
from chatops.tui.transcript.transcript import Transcript
from chatops.wiring.first_session import FirstSession, Opener
from chatops.wiring.rows import ModelRow, SessionRow
from tests.support.waiting import until
from tests.tui.app.fakes import (
    SESSION,
    Clock,
    FakeSession,
    FakeSessions,
    FakeUser,
    FakeWorkspace,
    _said,
    opener,
    pending_call,
    shell_facts,
)
from tests.tui.app.support_app import Stage, screen_text, stage


async def send(running: Stage, text: str) -> None:
    running.app.chat.composer.set_text(text)
    await running.settle()
    await running.press("enter")


@pytest.mark.more
async def test_enter_sends_and_ctrl_j_or_a_backslash_make_a_new_line() -> None:
    async with stage() as running:
        await running.type_fast(*"one", "ctrl+j", *"two\\", "enter", *"three", "enter")
        assert running.session.submitted == ["one\ntwo\nthree"]
        assert running.draft == ""
        await running.press("enter")
        assert running.session.submitted == ["one\ntwo\nthree"], "nothing typed, nothing sent"


async def test_what_is_typed_is_kept_while_it_is_typed_and_forgotten_once_it_is_stored() -> None:
    async with stage() as running:
        await running.type_fast(*"draft")
        await until(lambda: running.workspace.user.drafts() == {SESSION: "draft"})
        await running.press("enter")
        await until(lambda: running.workspace.user.drafts() == {SESSION: ""})
        assert running.session.submitted == ["draft"]


async def test_what_could_not_be_sent_stays_a_draft() -> None:
    async with stage() as running:
        running.session.refuse = ChatopsError("the disk is full")
        await running.type_fast(*"draft", "enter")
        await until(lambda: running.workspace.user.drafts() == {SESSION: "draft"})
        assert running.draft == "draft"


@pytest.mark.more
async def test_history_comes_back_at_the_edges_and_the_draft_with_it() -> None:
    async with stage(workspace=FakeWorkspace(user=FakeUser(sent=["older", "first\nsecond"]))) as running:
        await running.type_fast(*"draft", "up")
        assert running.draft == "first\nsecond"
        await running.press("up")
        assert running.draft == "first\nsecond", "inside a text Up moves the cursor"
        await running.press("up")
        assert running.draft == "older"
        await running.press("down", "down", "down")
        assert running.draft == "draft"


async def test_a_long_paste_is_one_item_and_is_sent_in_full() -> None:
    pasted = "\n".join(f"line {number}" for number in range(1_234))
    async with stage() as running:
        await running.type_fast(*"see ")
        running.app.post_message(Paste(pasted))
        await running.settle()
        assert running.draft.startswith("see [pasted 1234 lines, ")
        assert "line 7" not in running.text
        await running.press("enter")
        assert running.session.submitted == [f"see {pasted}"]


async def test_a_megabyte_of_paste_and_its_escape_sequences_do_no_harm() -> None:
    async with stage() as running:
        running.app.post_message(Paste("x" * 1_000_000 + "\x1b]0;owned\x07"))
        await running.settle()
        assert "1.0 MB" in running.draft
        running.app.post_message(Paste(" a\x1b[31mred"))
        await running.settle()
        assert "\x1b" not in running.draft
        await running.press("enter")
        assert not running.session.submitted
        assert "Not sent yet: about 25" in running.text
        assert "1.0 MB" in running.draft
        await running.press("enter")
        assert len(running.session.submitted[0]) == 1_000_000 + len("]0;owned") + len(" a[31mred")


async def test_a_command_of_the_history_is_not_completed_until_tab() -> None:
    async with stage() as running:
        running.app.chat.composer.set_history(["first", "/comp"])
        await running.press("up", "up")
        assert running.draft == "first", "the first Up has not opened a list, which would take the second"
        await running.press("down", "tab")
        assert "> /compact" in running.text


async def test_what_is_typed_like_a_folded_paste_is_sent_as_typed() -> None:
    async with stage() as running:
        await send(running, "[pasted 12 lines, 3 kB #1]")
        assert running.session.submitted == ["[pasted 12 lines, 3 kB #1]"]


async def test_a_message_that_cannot_be_sent_comes_back() -> None:
    async with stage() as running:
        running.session.refuse = ChatopsError("The disk is full.", advice="Free some space.")
        await send(running, "precious words")
        assert running.draft == "precious words"
        assert "The disk is full. Free some space." in running.text


@pytest.mark.more
async def test_escape_stops_the_answer() -> None:
    async with stage() as running:
        running.session.start_turn("go")
        await running.settle()
        await running.press("escape")
        assert running.session.cancelled == 1


async def test_r_retries_only_after_a_failure_and_only_with_nothing_typed() -> None:
    async with stage() as running:
        await running.press("R")
        assert (running.session.retried, running.draft) == (0, "R")
        await running.press("backspace")
        running.session.start_turn("go")
        running.session.end_turn(
            TurnStatus.FAILED, detail="The server refused the connection.", advice="Start it: ollama serve."
        )
        await running.settle()
        # Once, at the error; the line above the message field only points to it.
        shown = " ".join(running.text.split())
        assert "→ Start it: ollama serve. Press R to retry." in shown
        assert shown.count("Press R") == shown.count("The last turn failed.") == 1
        await running.press("R")
        assert (running.session.retried, running.draft) == (1, "")
        running.session.start_turn("go again")
        await running.settle()
        assert "Press R" not in running.text, "nothing of this turn failed"
        await running.press("x", "R")
        assert (running.session.retried, running.draft) == (1, "xR")


async def test_the_role_picker_says_what_each_role_can_do_and_prefers_the_start_of_its_name() -> None:
    async with stage() as running:
        await running.press("ctrl+r")
        for able in ("reads files · no network", "asks before edits and commands", "searches the web · asks before"):
            assert able in running.text
        await running.press("c", "o")
        assert running.app.screen.highlighted_choice.key == "coder"  # type: ignore[attr-defined]
        running.session.pinned.append("demo")
        await running.press("escape", "ctrl+r")
        assert "in force · model demo" in running.text, "/model applies to all roles"


async def test_the_cursor_of_the_terminal_is_where_the_keys_act() -> None:
    """Screen readers and magnifiers follow it, also while it is hidden."""
    async with stage(size=(100, 60)) as running:

        def line() -> str:
            return running.text.splitlines()[running.app.cursor_position.y].strip("│ ")

        await running.press("h", "i")
        assert line() == "hi"
        await running.press("ctrl+r", "up")
        assert line().startswith(">  assistant")
        await running.press("x", "y", "z")
        assert line() == "xyz", "without a row, the filter"
        await running.press("escape")
        assert line() == "hi"
        running.session.ask(pending_call(facts=shell_facts("git status -s")))
        await running.press("ctrl+g")
        assert "git status" in line()
        await running.press("v")
        assert line() == "sandbox      bubblewrap" and running.text.count(line()) == 2
        assert line() in "\n".join(running.text.splitlines()[: running.app.cursor_position.y]), "it is the details' own"
        await running.press("v", "r")
        assert line().startswith("> exactly") or line().startswith("> shell_exec:")
        first = line()
        await running.press("down")
        assert line().startswith("> ") and line() != first
        await running.press("tab")
        assert line().startswith("> this folder")


async def test_the_cursor_of_the_terminal_is_at_the_selected_message() -> None:
    async with stage() as running:
        running.session.start_turn("hello there")
        running.session.say("Good day.")
        running.session.end_turn(TurnStatus.ANSWERED)
        await running.settle()
        await running.press("ctrl+up")
        assert "Good day." in running.text.splitlines()[running.app.cursor_position.y]


async def test_a_part_of_a_models_name_filters_the_models() -> None:
    async with stage() as running:
        await send(running, "/model de")
        await until(lambda: "de" in running.text and ">  demo" in running.text and "  local " not in running.text)
        await running.press("enter")
        assert running.session.pinned == ["demo"]


async def test_an_enter_typed_before_a_list_is_drawn_chooses_no_row_unless_its_name_was_typed() -> None:
    async with stage() as running:
        early, early_too = Key("enter", "\r"), Key("enter", "\r")
        await running.press("ctrl+r", "down")
        running.app.post_message(early)
        await running.settle()
        assert "not taken: Enter, too early" in running.text
        assert running.session.roles_asked == []
        await running.press(*"researcher")
        running.app.post_message(early_too)
        await running.settle()
        assert running.session.roles_asked == ["researcher"]


async def test_a_click_made_before_a_list_is_drawn_chooses_no_row() -> None:
    async with stage() as running:
        await running.press("ctrl+r")
        at = next(y for y, row in enumerate(running.text.splitlines()) if "researcher" in row)
        picker = running.app.screen
        assert isinstance(picker, Picker)
        drawn_at = picker.query_one(_Filter).drawn_at
        picker.query_one(_Filter).drawn_at = running.clock() + 1
        await running.pilot.click(offset=(20, at))
        await running.settle()
        assert "not taken: click, too early" in running.text and running.session.roles_asked == []
        picker.query_one(_Filter).drawn_at = drawn_at
        await running.pilot.click(offset=(20, at))
        await running.settle()
        assert running.session.roles_asked == ["researcher"]


async def test_a_filter_leaves_only_the_rows_that_have_its_words() -> None:
    async with stage() as running:
        await running.press("ctrl+r", *"rese")
        assert ">  researcher" in running.text and "assistant" not in running.text and "coder  " not in running.text
        await running.press("x")
        assert "No role of that name." in running.text


async def test_the_model_picker_says_what_becomes_the_default_and_keeps_a_choice_to_this_session() -> None:
    workspace = FakeWorkspace()
    async with stage(workspace=workspace) as running:
        for key, as_default in (("enter", True), ("ctrl+s", False)):
            await send(running, "/model de")
            await until(lambda: ">  demo" in running.text)
            assert "Enter makes it the default of your other sessions too." in running.text
            assert "ctrl+s chooses, not as default" in running.text
            await running.press(key)
            assert running.session.pinned_as_default == as_default
            assert ("is your default model" in running.text) is as_default
            assert ("Your default model is the same as before." in running.text) is not as_default
        await send(running, "/model demo")
        assert "demo is your default model already." in running.text


class LateServers(FakeWorkspace):
    """A workspace whose servers answer when the test says so: one of the user's is gone, another has a second model."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()

    def models(self) -> Sequence[ModelRow]:
        gateway, ollama = (ModelRow(name=name, label="", is_set_up=False) for name in ("gateway", "ollama"))
        return (gateway, ModelRow(name="mine", label=""), ollama, *super().models())

    async def models_of_servers(self) -> Sequence[ModelRow]:
        await self.answer.wait()
        gateway, mine, *others = self.models()
        silent = (replace(row, missing=f"{row.name} does not answer.") for row in (gateway, mine))
        return (*silent, *others, ModelRow(name="local/big", label=""))


async def test_no_model_moves_when_servers_answer_and_those_nobody_set_up_come_after_what_works() -> None:
    workspace = LateServers()
    async with stage(workspace=workspace, size=(100, 40)) as running:

        def rows() -> list[str]:
            lines = [line.strip(" │>*▎") for line in running.text.splitlines()]
            names = ("chosen by", "mine", "local", "demo", "gateway", "ollama", "1 more", "2 more")
            return [" ".join(line.split()) for line in lines if line.startswith(names)]

        running.app.chat.composer.set_text("/model")
        await running.app._press_keys(["enter"])
        await until(lambda: "asking the servers" in running.text)
        before = ["chosen by the role", "mine", "local Qwen 3 (local)", "demo DEMO no AI"]
        assert rows() == [*before, "2 more models: gateway, ollama"]
        workspace.answer.set()
        await until(lambda: "asking the servers" not in running.text)
        before[1] = "mine not usable now"
        await until(lambda: rows() == [*before, "ollama", "local/big", "1 more model: gateway"])
        await running.press("up")
        assert "mine does not answer." in running.text
        await running.press(*["down"] * 5, "enter")
        assert rows() == [*before, "ollama", "local/big", "gateway not usable now", "gateway does not answer."]


class Blind(FakeSession):
    """A session whose model takes no images."""

    def grant(self) -> Grant:
        return replace(super().grant(), models=(ModelTarget(name="local", sees_images=False),))


async def test_an_image_that_the_model_does_not_see_is_told_before_it_is_sent() -> None:
    async with stage(Blind()) as running:
        for text in ("what is in @shot.PNG?", "and @notes.txt?"):
            running.app.chat.composer.set_text(text)
            await running.press("enter")
        assert running.session.submitted == ["and @notes.txt?"]
        running.app.chat.composer.set_text("what is in @shot.PNG?")
        await running.press("enter")
        assert "Not sent yet: Qwen 3 (local) does not see images, only the name shot.PNG." in " ".join(
            running.text.split()
        )
        await running.press("enter")
        assert running.session.submitted[1:] == ["what is in @shot.PNG?"]
        assert "Not sent yet" not in running.text


async def test_the_notice_about_an_unseen_image_names_the_setting_and_goes_with_its_reason() -> None:
    async with stage(Blind()) as running:
        for ends in ("the text", "the model"):
            running.app.chat.composer.set_text(f"what is in @shot.PNG? This ends with {ends}.")
            await running.press("enter")
            assert '"images": true in models.local of registry.json' in " ".join(running.text.split())
            if ends == "the text":
                await running.type_fast("x")
            else:
                running.session.change(model="gemini")
                running.app.chat.refresh_soon()
            await running.settle()
            assert "Not sent yet" not in running.text, ends
        assert not running.session.submitted


async def test_a_queued_message_whose_turn_will_be_contained_says_so() -> None:
    async with stage() as running:
        running.session.change(queued=("first", "second"), queue_held=True, messages=(_said("before"),))
        running.app.chat.refresh_soon()
        await running.settle()
        assert "❯ first" in running.text
        running.session.change(contained=True)
        running.app.chat.refresh_soon()
        await running.settle()
        assert "❯ contained · first" in running.text and "❯ second" in running.text
        running.session.change(queued=())
        running.app.chat.refresh_soon()
        await running.settle()
        assert "contained · " not in running.text and "Internal error" not in running.text


async def test_the_frame_names_the_keys_for_a_text_that_is_typed_during_a_turn() -> None:
    async with stage() as running:
        running.session.start_turn("run the tests")
        await running.settle()
        assert "ctrl+s" not in running.text
        await running.type_fast("x")
        assert "Enter queues, ctrl+s interrupts" in running.text
        for text, does in (
            ("!ls", "not while the turn runs, Esc stops it"),
            ("/undo", "not while the turn runs, Esc stops it"),
            ("/co", "Enter runs it"),
        ):
            running.app.chat.composer.set_text(text)
            await running.settle()
            assert does in running.text and "queues" not in running.text
        running.app.chat.composer.set_text("x")
        await running.type_fast("backspace")
        assert "ctrl+s" not in running.text


@pytest.mark.more
async def test_the_newest_notice_is_shown_whatever_else_is() -> None:
    async with stage(size=(60, 24)) as running:
        show_notice(running.app, "What the old one says is long. " * 20)
        await running.press("ctrl+c")
        assert "ctrl+c again quits" in running.text


async def test_with_reduced_motion_a_notice_stays_until_the_next_key() -> None:
    async with stage() as running:
        running.app.moves = False
        show_notice(running.app, "Saved.", seconds=0.01)
        await running.pilot.pause(0.1)
        assert "Saved." in running.text
        await running.press("x")
        assert "Saved." not in running.text


async def test_help_about_a_word_shows_its_keys_and_commands() -> None:
    async with stage() as running:
        running.app.chat.run_command("/help persona")
        await running.settle()
        assert "Help on persona" in running.text and "/persona [NAME]" in running.text
        assert "/undo" not in running.text
        await running.press("escape")
        running.app.chat.run_command("/help screen reader")
        await running.settle()
        assert {"reduced_motion: true", "LC_ALL=C chatops", "chatops -p"} <= set(re.split(r"  +|, ", running.text))
        await running.press("escape")
        running.app.chat.run_command("/help xyzzy")
        await running.settle()
        assert "No key or command is about 'xyzzy'" in running.text


async def test_the_persona_picker_describes_each() -> None:
    async with stage() as running:
        running.app.chat.run_command("/persona")
        await running.settle()
        assert "terse    As short as it can be." in running.text


@pytest.mark.more
async def test_completions_leave_the_message_field_on_a_low_screen() -> None:
    async with stage(size=(40, 12)) as running:
        await running.type_fast("/")
        assert "Down for more" in running.text
        assert running.text.splitlines()[-2].startswith("│/")


@pytest.mark.more
async def test_ctrl_r_switches_the_role_and_shows_the_difference_first() -> None:
    async with stage() as running:
        await running.press("ctrl+r")
        await running.press(*"resea")
        assert "+ web_search + web_fetch − file_edit − shell_exec" in running.text
        await running.press("enter")
        assert running.session.roles_asked == ["researcher"]
        assert running.text.splitlines()[-1].strip().startswith("researcher · level operator")
        await running.press("ctrl+r", "escape")
        assert running.session.roles_asked == ["researcher"]


@pytest.mark.more
async def test_shift_tab_goes_through_the_favourite_roles_and_shows_the_difference() -> None:
    async with stage(workspace=FakeWorkspace(user=FakeUser(favourites=("researcher", "gone", "assistant")))) as running:
        await running.press("shift+tab")
        assert running.session.roles_asked == ["researcher"]
        assert "+ web_search" in running.text
        assert "no role gone" in running.text
        await running.press("shift+tab", "shift+tab")
        assert running.session.roles_asked == ["researcher", "assistant", "researcher"]
    async with stage() as running:
        await running.press("shift+tab")
        assert running.session.roles_asked == ["researcher"], "after coder, in the registry's order"


async def test_slash_commands_reach_the_session() -> None:
    async with stage() as running:
        for text in ("/role researcher", "/model demo", "/model role", "/persona terse", "/rename New   name"):
            await send(running, text)
        assert running.session.roles_asked == ["researcher"]
        assert running.session.pinned == ["demo", None]
        assert running.session.personas == ["terse"]
        assert running.session.titles == ["New name"]
        assert running.session.submitted == [], "a command never reaches a model"


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/rolle coder", "Did you mean /role"),
        ("/tokens it", "Did you mean /cost?"),
        ("!", "Write a command after the !"),
        ("/role nobody", "There is no role nobody. /role lists them."),
    ],
)
async def test_a_command_that_does_nothing_says_why_and_gives_the_text_back(text: str, said: str) -> None:
    async with stage(size=(120, 40)) as running:
        await send(running, text)
        assert said in running.text
        assert running.draft == text
        assert running.session.submitted == []


class Commands:
    """Stands for the user's actions on a session; keeps whether each command was on screen."""

    def __init__(self) -> None:
        self.shown: list[bool] = []

    async def run_command(self, command: str, *, private: bool, shown: bool, draft: object) -> None:
        self.shown.append(shown)


async def test_a_command_counts_as_read_only_if_all_of_it_was_on_screen() -> None:
    async with stage() as running:
        commands = Commands()
        running.session.actions = commands  # type: ignore[assignment]
        for text in ("!ls", "!touch one;" + " a" * 194, "!touch one;" + "\n" * 12 + "ls", "!" + "a" * 3_000):
            await send(running, text)
        await running.pilot.resize_terminal(40, 12)
        await send(running, "!touch one;" + " a" * 100)
        assert commands.shown == [True, True, False, False, False]


async def test_a_leading_space_sends_a_slash_as_a_message() -> None:
    async with stage() as running:
        await send(running, " /etc/hosts is what?")
        assert running.session.submitted == ["/etc/hosts is what?"]


@pytest.mark.more
async def test_text_commands_show_a_text() -> None:
    async with stage() as running:
        for text, shown in (("/context", "code-specialist"), ("/tools", "tools of coder"), ("/help", "approve once")):
            await send(running, text)
            assert isinstance(running.app.screen, TextScreen)
            for _ in range(4):
                if shown not in running.text:
                    await running.press("pagedown")
            assert shown in running.text, text
            await running.press("escape")


async def test_a_line_of_a_text_that_is_too_long_goes_on_beneath_its_last_column() -> None:
    async with stage(size=(60, 24)) as running:
        found = "ok    store          24.1 GB free on its disk, which is enough for what is kept here"
        running.app.push_screen(TextScreen("Doctor", text=f"ok    python         3.11.7\n{found}"))
        await running.settle()
        shown = [line[2:-2].rstrip() for line in running.text.splitlines()]
        at = next(index for index, line in enumerate(shown) if "ok    store" in line)
        first, second = shown[at : at + 2]
        assert second.lstrip().startswith("enough for")
        assert first.index("24.1 GB") == second.index("enough for")


@pytest.mark.more
async def test_a_second_column_without_room_follows_the_first_one() -> None:
    async with stage(size=(40, 24)) as running:
        await running.press("f1")
        shown = [line[2:-2].rstrip() for line in running.text.splitlines()]
        at = shown.index("  ctrl+s  while a turn runs:")
        assert shown[at + 1] == "      interrupt it and continue"


async def test_the_keys_of_a_picker_are_whole_in_a_narrow_window() -> None:
    async with stage(size=(40, 12)) as running:
        running.app.push_screen(Picker("Sessions", choices=[], hint=SESSION_KEYS))
        await running.settle()
        assert running.text.endswith("Enter chooses   Esc back   ctrl+n rename\nctrl+d delete")


async def test_the_first_screen_and_the_line_below_it_do_not_say_the_same() -> None:
    async with stage() as running:
        assert "/help shows keys and commands" in running.text
        assert "Ask for something in this folder" not in running.text
        await running.pilot.resize_terminal(40, 12)
        await running.settle()
        assert "chatops" in running.text
        assert "Ask for something in this folder" not in running.text


@pytest.mark.more
async def test_enter_runs_a_command_that_no_other_begins_like_and_completes_others() -> None:
    async with stage() as running:
        await running.type_fast(*"/per")
        assert "/permissions" in running.text
        assert "/persona" in running.text
        await running.type_fast("down", "tab")
        assert running.draft in ("/persona ", "/permissions ")
        await running.press("ctrl+c")
        # Other commands begin with /co, too, and /rename needs a title.
        for written, completed in (("/co", "/contain "), ("/ren", "/rename ")):
            await running.type_fast(*written)
            await running.press("enter")
            assert running.draft == completed
            await running.press("ctrl+c")
        await running.type_fast(*"/pend", "enter")
        await running.settle()
        assert "Nothing is pending" in running.text


@pytest.mark.more
async def test_a_command_that_is_complete_without_an_argument_highlights_none_until_down() -> None:
    async with stage() as running:
        await running.type_fast(*"/contain ")
        await running.settle()
        assert "  off" in running.text and "> off" not in running.text
        await running.press("down")
        assert "> off" in running.text
        await running.press("down", "up", "up")
        assert "> undo" in running.text
        await running.press("enter")
        assert running.draft == "/contain undo"
        await running.press("ctrl+c")
        await running.type_fast(*"/contain ")
        await running.settle()
        await running.press("tab")
        assert running.draft == "/contain off"
        await running.press("ctrl+c")
        await running.type_fast(*"/pending", "enter")
        await running.settle()
        await running.type_fast(*"/role ")
        await running.settle()
        await running.press("enter")
        assert isinstance(running.app.screen, Picker), "Enter runs what is written"


@pytest.mark.more
async def test_roles_and_rules_are_completed() -> None:
    async with stage() as running:
        await running.type_fast(*"/role ")
        await running.settle()
        assert "  researcher  reads files and searches the web" in running.text, running.text
        await running.type_fast(*"res", "enter")
        assert running.draft == "/role researcher"
        await running.type_fast("enter")
        await running.settle()
        assert running.session.roles_asked == ["researcher"]
        await running.type_fast(*"/permissions revoke ")
        await running.settle()
        assert "  3   shell_exec:git status *" in running.text, running.text
        # A number is no abbreviation of another one.
        await running.type_fast(*"2", "enter")
        await running.settle()
        assert running.workspace.revoked == ["2"]
        assert "Revoked rule 2" in running.text
        await running.type_fast(*"hello", "enter")
        await running.settle()
        assert "Revoked rule 2" not in running.text


@pytest.mark.more
async def test_a_rule_to_revoke_is_named_or_chosen() -> None:
    async with stage() as running:
        await running.type_fast(*"/permissions revoke", "enter")
        await running.settle()
        assert "shell_exec:git status *" in running.text and "this folder, as coder (/w)" in running.text
        await running.press("down", "enter")
        assert running.workspace.revoked == ["12"]
        assert "Revoked rule 12" in running.text
        await running.type_fast(*"/permissions revoke 3", "enter")
        await running.settle()
        assert running.workspace.revoked == ["12", "3"]


async def test_another_session_is_opened_and_each_keeps_its_draft() -> None:
    other = FakeSession()
    other.change(session_id=SessionId("20261120-091000-a1b2"), role="assistant")
    user = FakeUser(drafts={"20261120-091000-a1b2": "begun there"})
    workspace = FakeWorkspace(others={"20261120-091000-a1b2": other}, user=user)
    async with stage(workspace=workspace) as running:
        running.app.chat.composer.set_text("begun here")
        await running.app.chat.change_session(workspace.sessions.open(SessionId("20261120-091000-a1b2")))
        await running.settle()
        assert running.session.closed
        assert workspace.user.drafts()[SESSION] == "begun here"
        assert running.draft == "begun there"
        assert "assistant" in running.text.splitlines()[-1]
        running.session.start_turn("an event of the session that was left")
        await running.settle()
        assert "an event of" not in running.text


@pytest.mark.more
async def test_ctrl_c_stops_or_clears_first_and_quits_the_second_time() -> None:
    async with stage() as running:
        await running.type_fast(*"half a thought", "ctrl+c")
        assert running.draft == ""
        assert "ctrl+c again quits" in running.text
        await running.type_fast("up")
        assert running.draft == "half a thought"
        running.clock.pass_(5)
        await running.type_fast("ctrl+c")
        assert not running.session.closed, "more than two seconds later it is a first one again"
        await running.type_fast("ctrl+c")
        assert running.session.closed
        assert running.workspace.user.drafts()[SESSION] == "half a thought", "leaving this way loses nothing either"


async def test_while_a_turn_runs_ctrl_c_clears_the_text_then_stops_the_turn_then_quits() -> None:
    async with stage() as running:
        running.session.start_turn("run the tests")
        await running.type_fast(*"half a thought", "ctrl+c")
        assert running.draft == "" and not running.session.cancelled
        assert "The text is in the history (Up). ctrl+c again stops the turn." in running.text
        await running.type_fast("ctrl+c")
        assert running.session.cancelled and not running.session.closed
        assert "Stopped. ctrl+c again quits." in running.text
        await running.type_fast("ctrl+c")
        assert running.session.closed
        assert running.workspace.user.drafts()[SESSION] == "half a thought"


@pytest.mark.some(1)
@pytest.mark.parametrize("leave", ["ctrl+q", "ctrl+d", "/quit"])
async def test_leaving_closes_the_session_and_decides_nothing(leave: str) -> None:
    session = FakeSession()
    async with stage(session) as running:
        session.ask(pending_call())
        await running.settle()
        await running.press("escape")
        if leave == "/quit":
            await send(running, leave)
        else:
            await running.press(leave)
        assert session.closed
        assert session.taken == []
        assert session.now.pending


@pytest.mark.parametrize("leave", ["ctrl+q", "ctrl+d", "/quit"])
async def test_leaving_a_running_turn_says_first_what_becomes_of_it(leave: str) -> None:
    session = FakeSession()
    async with stage(session) as running:

        async def leaves() -> None:
            await (send(running, leave) if leave == "/quit" else running.press(leave))

        session.start_turn("run the tests")
        await leaves()
        said = " ".join(running.text.split())
        assert "A turn is running. ctrl+q again stops it and quits, and chatops -c continues it." in said
        assert "/background lets it continue" in said and not session.closed
        running.clock.pass_(60)
        await leaves()
        assert not session.closed, "that was long ago"
        await running.press("ctrl+q")
        assert session.closed


async def test_what_is_said_of_a_running_turn_goes_when_that_ends() -> None:
    async with stage() as running:
        running.session.start_turn("run the tests")
        await running.press("ctrl+q")
        assert "A turn is running." in running.text
        running.session.change(status=TurnStatus.ANSWERED)
        running.app.chat.refresh_soon()
        await running.settle()
        assert "A turn is running." not in running.text


async def test_leaving_in_the_dialog_is_not_asked_about() -> None:
    session = FakeSession()
    async with stage(session) as running:
        session.start_turn("run the tests")
        session.ask(pending_call())
        session.change(status=TurnStatus.RUNNING)
        await running.settle()
        assert running.dialog_is_open
        await running.press("ctrl+q")
        assert session.closed


@pytest.mark.more
async def test_leaving_keeps_what_was_typed_as_a_draft() -> None:
    async with stage() as running:
        await running.type_fast(*"to be continued", "ctrl+d")
        assert not running.session.closed, "ctrl+d quits only with nothing typed"
        await running.press("ctrl+q")
        assert running.workspace.user.drafts()[SESSION] == "to be continued"


async def test_a_letter_that_was_typed_before_anything_had_the_focus_is_in_the_message() -> None:
    async with stage() as running:
        # It went to the screen, and the message got the focus before the screen looked at it.
        running.app.screen.post_message(Key("x", "x"))
        await running.settle()
        assert running.draft == "x"


async def test_keys_from_before_the_first_frame_are_keys_of_the_message_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, workspace = FakeSession(), FakeWorkspace()

    def type_ahead(app: ChatopsApp) -> None:
        for key in (("x", "x"), ("backspace", "\x7f"), ("h", "h"), ("i", "i"), ("enter", "\r"), ("z", "z")):
            app.post_message(Key(*key))

    # What the terminal has before the app is there.
    monkeypatch.setattr(ChatopsApp, "on_load", type_ahead, raising=False)
    app = ChatopsApp(cast(Opener, opener(session, workspace)))
    async with app.run_test(size=(80, 24)):
        await until(lambda: session.submitted and app.chat.composer.text)
        assert (session.submitted, app.chat.composer.text) == (["hi"], "z")


async def test_what_is_typed_and_sent_before_the_session_is_open_is_kept_and_can_be_seen() -> None:
    session, workspace, gate = FakeSession(), FakeWorkspace(), asyncio.Event()

    async def slowly() -> FirstSession:
        await gate.wait()
        return FirstSession(session=session, workspace=workspace)

    app = ChatopsApp(slowly)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Message" in screen_text(app)
        await pilot.press(*"first", "enter", *"second")
        while "❯ first" not in screen_text(app):
            await pilot.pause()
        assert app.chat.sending.unsaved_text == "first\n\nsecond", "a user who quits now finds it as a draft"
        gate.set()
        while not session.submitted:
            await pilot.pause()
        assert session.submitted == ["first"]
        assert app.chat.composer.text == "second"
        while "❯ first" in screen_text(app):
            await pilot.pause()


async def test_a_session_that_is_being_opened_for_long_shows_the_moving_sign_and_its_time() -> None:
    clock, gate = Clock(), asyncio.Event()

    async def slowly() -> FirstSession:
        await gate.wait()
        return FirstSession(session=FakeSession(), workspace=FakeWorkspace())

    app = ChatopsApp(slowly, clock=clock)
    async with app.run_test(size=(80, 24)):
        await until(lambda: screen_text(app).endswith("\n opening the session"))
        clock.pass_(3.0)
        await until(lambda: re.search(r"\n (⠋|⠙|⠹|⠸|⠼|⠴|⠦|⠧|⠇|⠏) opening the session 3 s$", screen_text(app)))
        before = screen_text(app)
        clock.pass_(0.125)
        await until(lambda: screen_text(app) != before)
        assert screen_text(app).endswith(" opening the session 3 s")
        gate.set()
        await until(lambda: "opening" not in screen_text(app))


async def test_leaving_before_the_session_is_open_keeps_what_was_typed_and_sent_as_its_draft() -> None:
    session, workspace, never = FakeSession(), FakeWorkspace(user=FakeUser(drafts={SESSION: "before"})), asyncio.Event()

    async def opened() -> FirstSession:
        return FirstSession(session=session, workspace=workspace)

    async def slowly() -> FirstSession:
        await never.wait()
        return await opened()

    app = ChatopsApp(slowly)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"first", "enter", *"second", "ctrl+q")
    assert app.chat.unsent_text == "first\n\nsecond"
    assert await chat.keep_as_draft(app.chat.unsent_text, opened)
    assert workspace.user.drafts()[SESSION] == "before\n\nfirst\n\nsecond"
    for _ in range(2):
        assert await chat.keep_as_draft("for", opened)
    assert workspace.user.drafts()[SESSION] == "before\n\nfirst\n\nsecond\n\nfor", (
        "once, and not because other words have it"
    )


@pytest.mark.more
async def test_a_start_that_fails_is_a_sentence_with_the_next_step() -> None:
    gate = asyncio.Event()

    async def broken() -> FirstSession:
        await gate.wait()
        raise ConfigError("model_registry.json, line 3: a comma is missing.", advice="Run chatops registry check.")

    app = ChatopsApp(cast(Opener, broken))
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.press(*"first", "enter", *"second")
        gate.set()
        while "ctrl+q quits" not in screen_text(app):
            await pilot.pause()
        await pilot.pause()
        assert "line 3: a comma is missing. Run chatops registry check." in screen_text(app)
        assert app.chat.composer.text == "first\n\nsecond", "what was sent is not lost because more was typed"


async def test_hostile_text_is_never_markup_on_status_banner_or_notice() -> None:
    session = FakeSession()
    session.change(role="[red]coder[/red]", model_label="\x1b[2J[@click=app.quit]x[/]")
    async with stage(session) as running:
        show_notice(running.app, "[bold]not bold[/bold] [/unclosed")
        running.session.end_turn(TurnStatus.FAILED, advice="[b]advice[/b] \x1b]0;x\x07")
        await running.settle()
        for shown in ("[red]coder[/red]", "[@click=app.quit]x[/]", "[bold]not bold[/bold]", "[b]advice[/b]"):
            assert shown in running.text
        assert "\x1b" not in running.text


@pytest.mark.more
async def test_the_palette_offers_the_commands() -> None:
    async with stage() as running:
        await running.press("ctrl+p")
        await running.type_fast(*"context")
        assert ">  /context" in running.text and "where each part is from" in running.text
        await running.press("enter")
        assert "code-specialist" in running.text


@pytest.mark.more
async def test_a_call_that_comes_while_another_screen_is_open_asks_when_it_is_closed() -> None:
    async with stage() as running:
        await running.press("ctrl+r")
        running.session.ask(pending_call())
        await running.settle()
        assert not running.dialog_is_open
        await running.press("escape")
        for _ in range(40):
            if running.dialog_is_open:
                break
            await running.pilot.pause(0.05)
        assert running.dialog_is_open
        await running.press("escape")
        await running.pilot.pause(0.3)
        assert not running.dialog_is_open, "later means later"


@pytest.mark.more
async def test_ctrl_g_opens_the_calls_of_an_earlier_session() -> None:
    other = FakeSession()
    other.change(session_id=SessionId("20261120-091000-a1b2"))
    other.ask(pending_call())
    workspace = FakeWorkspace(others={"20261120-091000-a1b2": other}, waits=SessionId("20261120-091000-a1b2"))
    async with stage(workspace=workspace) as running:
        await running.press("ctrl+g")
        assert running.dialog_is_open
        assert running.session.closed
        assert running.app.chat.session is cast(object, other)


@pytest.mark.more
async def test_ctrl_g_pressed_before_the_session_is_open_acts_then_and_later_letters_decide_nothing() -> None:
    session, other, gate = FakeSession(), FakeSession(), asyncio.Event()
    other.change(session_id=SessionId("20261120-091000-a1b2"))
    other.ask(pending_call())
    workspace = FakeWorkspace(
        others={"20261120-091000-a1b2": other},
        user=FakeUser(drafts={"20261120-091000-a1b2": "begun there"}),
        waits=SessionId("20261120-091000-a1b2"),
    )

    async def slowly() -> FirstSession:
        await gate.wait()
        return FirstSession(session=session, workspace=workspace)

    app = ChatopsApp(slowly)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+g", *"aad")
        gate.set()
        await until(lambda: isinstance(app.screen, ApprovalScreen))
        assert other.taken == []
        assert workspace.user.drafts()[SESSION] == "aad"
        assert app.chat.composer.text == "begun there"


@pytest.mark.more
async def test_ctrl_g_pressed_while_another_session_is_being_opened_is_for_that_one() -> None:
    other, begun, gate = FakeSession(), asyncio.Event(), asyncio.Event()
    other.change(session_id=SessionId("20261120-091000-a1b2"))
    other.ask(pending_call())
    workspace = FakeWorkspace(user=FakeUser(drafts={"20261120-091000-a1b2": "begun there"}))

    async def slowly() -> SessionView:
        begun.set()
        await gate.wait()
        return other

    async with stage(workspace=workspace) as running:
        running.session.change(pending=(pending_call(2),))
        opening = asyncio.create_task(running.app.chat.change_session(slowly()))
        await begun.wait()
        await running.app._press_keys(["ctrl+g"])
        assert not running.dialog_is_open
        gate.set()
        await opening
        await until(lambda: running.dialog_is_open)
        assert running.app.chat.session is cast(object, other)
        assert (running.session.taken, other.taken) == ([], [])


@pytest.mark.more
async def test_pending_lists_the_sessions_and_opens_the_dialog_of_the_chosen_one() -> None:
    other = FakeSession()
    other.change(session_id=SessionId("20261120-091000-a1b2"))
    other.ask(pending_call())
    rows = [
        SessionRow(id=SESSION, title="Release notes", when="today 10:15", messages=2, pending=1),
        SessionRow(id=other.session_id, title="Fix the parser", when="today 9:10", messages=2, pending=1),
    ]
    workspace = FakeWorkspace(others={other.session_id: other}, undecided=rows)
    for keys, shown in (((), None), (("down",), other)):
        session = FakeSession()
        async with stage(session, workspace=workspace) as running:
            session.ask(pending_call())
            await running.settle()
            await running.press("escape")
            await send(running, "/pending")
            assert [running.text.index(row.title) for row in rows] == sorted(
                running.text.index(row.title) for row in rows
            )
            await running.press(*keys, "enter")
            assert running.dialog_is_open
            assert running.app.chat.session is cast(object, shown or session)


async def test_enter_never_takes_an_offer_for_what_was_written_before() -> None:
    async with stage() as running:
        composer = running.app.chat.composer
        await running.press("/", "p")
        assert composer.popup_open
        # The rest arrives before the list could follow: a key that was typed ahead.
        with running.app.batch_update():
            composer.load_text("/approve")
            composer.move_cursor((0, len("/approve")))
            running.app.chat._completer.handle("enter")
        await running.settle()
        assert "There is no command /approve" in running.text


async def test_an_unknown_command_that_is_the_name_of_a_key_names_the_key() -> None:
    async with stage() as running:
        await send(running, "/find")
        assert "There is no command /find: the key ctrl+f does that." in running.text


async def test_ctrl_c_clears_a_refused_command_and_copies_what_the_user_selects_of_it() -> None:
    async with stage() as running:
        running.app.chat.run_command("/role nobody")
        await running.settle()
        assert running.draft == running.app.chat.composer.selected_text == "/role nobody"
        await running.press("ctrl+c")
        assert running.draft == running.app.clipboard == ""
        running.app.chat.run_command("/role nobody")
        await running.settle()
        await running.press("end", "shift+left", "ctrl+c")
        assert (running.draft, running.app.clipboard) == ("/role nobody", "y")


@pytest.mark.more
async def test_a_screen_that_comes_late_waits_for_a_pause_in_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    found, listed = asyncio.Event(), FakeSessions.listed

    async def slowly(sessions: FakeSessions) -> Sequence[SessionRow]:
        await found.wait()
        return await listed(sessions)

    async with stage() as running:
        monkeypatch.setattr(FakeSessions, "listed", slowly)
        monkeypatch.setattr("chatops.tui.key_order.MAX_WAIT_S", 0.05)
        await running.app._press_keys([*"/sessions", "enter"])
        await running.pilot.pause(0.01)
        running.clock.pass_(0.1)
        await running.app._press_keys([*"abc"])
        while running.draft != "abc":
            await running.pilot.pause(0.01)
        found.set()
        await running.pilot.pause(0.1)
        assert not isinstance(running.app.screen, Picker)
        running.clock.pass_(1.0)
        await running.settle()
        assert isinstance(running.app.screen, Picker)
        assert running.draft == "abc"


IMAGE = FileRef(path="plot.png", size=1_200, digest="ab" * 32, type="image/png")


@pytest.mark.parametrize("colours", [True, False])
async def test_an_image_is_shown_once_it_was_looked_at_if_the_terminal_has_colours_for_it(colours: bool) -> None:
    async with stage() as running:
        running.app.themes.colours = colours
        running.session.start_turn("what is this", IMAGE, replace(IMAGE, path="again.png"))
        await running.settle()
        assert running.workspace.looked_at == [(IMAGE.digest, colours)]
        assert "640 × 480 pixels" in running.text
        assert ("▀▀▀▀" in running.text) is colours


async def test_a_terminal_keeps_a_bounded_number_of_images_and_none_that_left_the_transcript() -> None:
    async with stage() as running:
        graphics, written = running.app.graphics, list[str]()
        graphics._write, graphics.works = written.append, True
        images = [replace(IMAGE, path=f"{number}.png", digest=f"{number:064x}") for number in range(MAX_IMAGES + 2)]
        for number, image in enumerate(images):
            turn = TurnId(f"{SESSION}.{number}")
            said = TurnStarted(id=turn, parent_id=SESSION, text="look", files=(image,), role="coder", model="local")
            running.session.publish(said)
            await running.settle()
        assert set(graphics.keys) == {image.digest for image in images[2:]}
        assert len([one for one in written if "a=T,U=1" in one]) == MAX_IMAGES + 2
        assert len([one for one in written if "a=d,d=I" in one]) == 2
        transcript = running.app.chat.query_one(Transcript)
        drawn = ["".join(strip.text for strip in one.strips or ()) for one in transcript._blocks_layout.entries]
        assert ["\U0010eeee" in text for text in drawn] == [False] * 2 + [True] * MAX_IMAGES
        assert ["▀" in text for text in drawn] == [True] * 2 + [False] * MAX_IMAGES
        running.app.chat._drawing.apply([Remove(id=f"{SESSION}.{number}.user") for number in range(MAX_IMAGES)])
        assert set(graphics.keys) == {image.digest for image in images[MAX_IMAGES:]}


async def test_ctrl_v_attaches_the_image_on_the_clipboard_before_what_is_typed_after_it() -> None:
    async with stage() as running:
        running.workspace.clipboard_image = "pasted-0123456789abcdef.png"
        await running.type_fast(*"see", "ctrl+v", *"now", "enter")
        await running.settle()
        assert running.session.submitted == ["see @pasted-0123456789abcdef.png now"]
        running.app.chat.composer.post_message(Paste(""))
        await running.settle()
        assert running.draft == "@pasted-0123456789abcdef.png "


async def test_without_an_image_ctrl_v_inserts_what_was_copied_here_and_says_what_to_do() -> None:
    async with stage() as running:
        await running.press("ctrl+v")
        assert running.draft == "" and "There is no image on the clipboard. Copy one." in " ".join(running.text.split())
        running.app.copy_to_clipboard("copied")
        await running.press("ctrl+v")
        assert running.draft == "copied"
