"""Selecting, copying and finding what was said; sessions; what it cost."""

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.events import Status, TextDelta, TurnFinished, TurnStatus
from chatops.domain.ids import MessageId, RoundId, SessionId
from chatops.domain.messages import AssistantMessage, Message, Usage, UserMessage
from chatops.domain.tools import Outcome
from chatops.tui.commands.cost import cost_text
from chatops.tui.dialogs.choices import SessionPicker
from chatops.tui.dialogs.question import LateText, Question
from chatops.tui.notice import program
from chatops.tui.transcript.blocks import CardStatus, EndDetails, ToolCardBlock
from chatops.tui.transcript.finding import TextSearch
from chatops.wiring.rows import HitRow, SessionRow
from tests.support.waiting import until
from tests.tui.app.fakes import SESSION, TURN, FakeSession, FakeUser, FakeWorkspace
from tests.tui.app.support_app import Stage, stage
from tests.tui.transcript.test_transcript_widget import Host, screen, users

CODE = "First:\n\n```python\na = 1\n```\n\nThen:\n\n~~~sh\nls -l\n~~~\n"


def said(*texts: str) -> FakeSession:
    """A session in which the user and the model take turns."""
    session = FakeSession()
    messages: list[Message] = []
    for number, text in enumerate(texts):
        key = MessageId(f"20261121-101512-k3f9.{number // 2 + 1}.m{number}")
        messages.append(AssistantMessage(id=key, text=text) if number % 2 else UserMessage(id=key, text=text))
    session.change(messages=tuple(messages))
    return session


def shell_card(output: str) -> ToolCardBlock:
    """A command that has run."""
    return ToolCardBlock(
        id="shell",
        tool="shell_exec",
        arguments='{"command": "seq"}',
        status=CardStatus.SETTLED,
        outcome=Outcome.SUCCESS,
        output=output,
        end=EndDetails(tail=output),
    )


def read_card(number: int, output: str) -> ToolCardBlock:
    """A file that was read, which is folded together with others."""
    return ToolCardBlock(
        id=f"read{number}",
        tool="file_read",
        arguments='{"path": "a.txt"}',
        status=CardStatus.SETTLED,
        outcome=Outcome.SUCCESS,
        output=output,
    )


async def test_y_copies_the_selected_block_and_types_a_letter_without_one() -> None:
    async with stage(said("What is it?", "An *answer*.")) as running:
        await running.press("y")
        assert running.draft == "y"
        await running.press("backspace", "ctrl+up", "ctrl+up")
        assert "y copy" in running.text
        await running.press("y")
        assert running.app.clipboard == "What is it?"
        await running.press("ctrl+down")
        await running.type_fast("y", "escape")
        assert running.app.clipboard == "An *answer*."
        await running.press("ctrl+up")
        await running.type_fast("y", "e", "s")
        assert running.draft == "yes"
        assert "y copy" not in running.text
        assert running.app.clipboard == "An *answer*.", "a text that starts with y copies nothing"
        await running.press("ctrl+u", "y")
        assert "y copy" not in running.text
        assert running.draft == "y"


@pytest.mark.more
async def test_y_copies_nothing_in_a_dialog() -> None:
    from tests.tui.app.fakes import pending_call

    async with stage(said("What is it?", "An answer.")) as running:
        await running.press("ctrl+up")
        running.session.ask(pending_call())
        await running.settle()
        assert running.dialog_is_open
        await running.press("y")
        assert running.dialog_is_open
        assert not running.app.clipboard
        assert not running.session.taken


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("command", "copied"), [("/copy", CODE), ("/copy 2", "An answer."), ("/copy 3", ""), ("/copy x", "")]
)
async def test_copy_counts_answers_from_the_end(command: str, copied: str) -> None:
    async with stage(said("one", "An answer.", "two", CODE)) as running:
        running.app.chat.run_command(command)
        await running.settle()
        assert running.app.clipboard == copied


@pytest.mark.more
async def test_copy_code_lets_the_user_choose_a_code_block() -> None:
    async with stage(said("one", CODE, "two", "No code here.")) as running:
        running.app.chat.run_command("/copy code")
        await running.settle()
        await running.press("down", "enter")
        assert running.app.clipboard == "ls -l"
    async with stage(said("one", "It gave:\n\n    a\n\n      b\n\nand so on.")) as running:
        running.app.chat.run_command("/copy code")
        await running.settle()
        assert running.app.clipboard == "a\n\n  b"


@pytest.mark.more
async def test_what_is_copied_is_the_code_that_is_shown_without_control_characters() -> None:
    code = "```sh\nls\x1b[201~\u2028```\u2028rm\n```"
    async with stage(said("one", code)) as running:
        running.app.chat.run_command("/copy code")
        await running.settle()
        assert running.app.clipboard == "ls[201~\u2028```\u2028rm"


def test_a_program_of_the_workspace_never_gets_what_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "xclip"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    relative = {"DISPLAY": ":0", "PATH": f".{os.pathsep}{os.pathsep}"}
    assert program(relative) is None
    assert program({**relative, "PATH": str(tmp_path)}) == (str(fake), "-selection", "clipboard")
    assert program({"PATH": str(tmp_path)}) is None


async def find(running: Stage, text: str) -> None:
    """Press ctrl+f and type."""
    await running.press("ctrl+f")
    await running.type_fast(*text)


async def test_ctrl_f_finds_from_the_newest_place_up_and_leaves_the_message_alone() -> None:
    session = said("needle one", "no\n\n" * 30, "two", "a Needle\n\nand a needle", "three", "no\n\n" * 30)
    async with stage(session) as running:
        await running.press("d", "r", "a", "f", "t")
        await find(running, "needle")
        assert "3 of 3 places" in running.text
        assert "\n❯ and a needle" in running.text, "the line is marked without colours too"
        await running.press("enter", "n")
        assert "2 of 3" in running.text
        await running.press("n")
        assert "1 of 3" in running.text
        assert "needle one" in running.text
        await running.press("n")
        assert "3 of 3" in running.text
        await running.press("N")
        assert "1 of 3" in running.text
        await running.press("escape")
        assert "find" not in running.text
        assert "needle one" in running.text, "the view stays where it is"
        assert running.draft == "draft"
        assert not running.session.cancelled


async def test_only_what_comes_below_the_view_is_counted_as_new() -> None:
    session = said("needle", "no")
    async with stage(session) as running:
        await find(running, "needle")
        await running.press("escape")
        session.publish(TextDelta(id=f"{TURN}.1.t", parent_id=RoundId(f"{TURN}.1"), text="And more."))
        await until(lambda: "And more." in running.text)
        await running.settle()
        assert "↓" not in running.text
        session.publish(TextDelta(id=f"{TURN}.1.t", parent_id=RoundId(f"{TURN}.1"), text="line\n\n" * 30))
        await until(lambda: "↓ more below" in running.text)
        session.publish(TextDelta(id=f"{TURN}.2.t", parent_id=RoundId(f"{TURN}.2"), text="line\n\n" * 30))
        await until(lambda: "↓ 1 new message" in running.text)
        session.publish(TextDelta(id=f"{TURN}.2.t", parent_id=RoundId(f"{TURN}.2"), text="line\n\n" * 30))
        await running.settle()
        assert "↓ 1 new message" in running.text, "a new message that grows stays one"


async def test_a_view_that_is_scrolled_up_says_so_and_a_queued_message_does_not_move_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, sent = said("first", "no\n\n" * 40), FakeSession.submit
    async with stage(session) as running:
        assert "↓" not in running.text
        await running.press("ctrl+home")
        assert "↓ more below   ctrl+End shows the end" in running.text
        monkeypatch.setattr(FakeSession, "submit", queue)
        await running.type_fast(*"later", "enter")
        assert "first" in running.text and "↓ more below" in running.text
        monkeypatch.setattr(FakeSession, "submit", sent)
        await running.type_fast(*"now", "enter")
        assert "first" not in running.text and "↓" not in running.text


async def queue(session: FakeSession, text: str, *, draft: object = None) -> bool:
    session.submitted.append(text)
    return False


@pytest.mark.more
async def test_a_letter_that_is_no_key_of_the_search_starts_a_message() -> None:
    async with stage(said("needle", "no")) as running:
        await find(running, "needle")
        await running.press("enter", "h", "i")
        assert running.draft == "hi"
        await running.press("ctrl+u")
        await find(running, "needle")
        await running.press("enter", "n")
        await running.type_fast(*"now")
        assert running.draft == "now", "an n that another letter follows at once starts a message"
        await running.press("ctrl+u", *"hi")
        await find(running, "zz")
        assert "not found" in running.text
        await running.press("escape")
        assert running.draft == "hi"


async def test_a_place_in_a_folded_card_is_shown_open_and_folded_again() -> None:
    app = Host()
    async with app.run_test(size=(80, 20)) as pilot:
        output = "\n".join(f"line {number}" for number in range(60)) + "\nend"
        reads = [read_card(number, f"text {number}") for number in range(3)]
        app.transcript.set_blocks([shell_card(output), *users(30), *reads, *users(0)])
        await pilot.pause()
        search = TextSearch("line 7")
        for index, block in enumerate(app.transcript.blocks):
            search.add(block, index=index)
        app.transcript.show_places(search)
        app.transcript.show_place(*search.place(0))
        await pilot.pause()
        assert any("line 7" in line for line in screen(app))
        search = TextSearch("text 2")
        for index, block in enumerate(app.transcript.blocks):
            search.add(block, index=index)
        app.transcript.show_places(search)
        app.transcript.show_place(*search.place(0))
        await pilot.pause()
        assert any("text 2" in line for line in screen(app))
        assert not any("line 7" in line for line in screen(app))


@pytest.mark.more
async def test_keys_are_handled_while_ten_thousand_messages_are_searched() -> None:
    texts = [f"message {number} " + "words and more words " * 20 for number in range(10_000)]
    async with stage(said("start needle", *texts)) as running:
        await find(running, "needle")
        assert "1 of 1" in running.text
        assert "start needle" in running.text
        await running.press("escape")
        await find(running, "message")
        assert "of 10,000" in running.text


OTHER = SessionId("20261120-091000-a1b2")


async def sessions(running: Stage) -> None:
    """Open the session picker."""
    running.app.chat.run_command("/sessions")
    await running.settle()


async def test_the_session_picker_shows_what_waits_and_what_was_said_last() -> None:
    async with stage() as running:
        await sessions(running)
        assert "? Fix the parser   ? shell_exec (git push)" in running.text
        await running.press("down")
        assert "pending: shell_exec (git push); shell_exec (make)" in running.text
        assert f"You: question of {OTHER}" in running.text
        assert "52 messages" in running.text
        await running.press("escape")
        running.app.chat.run_command("/sessions  parser")
        await running.settle()
        assert "Fix the parser" in running.text and "Release notes" not in running.text
        await running.press("@")
        assert "In all folders: /search --all WORDS" in running.text


@pytest.mark.more
async def test_the_session_picker_also_filters_by_what_was_said() -> None:
    hit = HitRow(session_id=OTHER, title="Fix the parser", when="yesterday", text="the comma is eaten by quux()")
    async with stage(workspace=FakeWorkspace(hits=[hit])) as running:
        await sessions(running)
        await running.type_fast(*"quux")
        while "found: " not in running.text:
            await running.pilot.pause(0.05)
        assert "Release notes" not in running.text.split("found: ")[0]
        assert "eaten by quux()" in running.text


@pytest.mark.more
async def test_search_shows_a_message_of_a_session_and_its_copies_once_and_marks_the_copy() -> None:
    text = f"{'before ' * 40}quux{' after' * 400}"
    hits = [
        HitRow(session_id=session, title=title, when="today", text=text, message_id="m1", is_copy=is_copy)
        for session, title, is_copy in ((OTHER, "Later", True), (SessionId("first"), "Earlier", False))
    ]
    async with stage(workspace=FakeWorkspace(hits=hits)) as running:
        running.app.chat.run_command("/search quux")
        await running.settle()
        row = next(line for line in running.text.splitlines() if "↳ Later" in line)
        assert "…before quux after" in row.replace("… before", "…before"), row
        assert "Earlier" not in running.text


async def test_search_shows_a_message_in_the_current_session_also_if_a_copy_was_used_later() -> None:
    hits = [
        HitRow(session_id=session, title=title, when="today", text="the quux", message_id="m1")
        for session, title in ((OTHER, "Later"), (SESSION, "Current"))
    ]
    async with stage(workspace=FakeWorkspace(hits=hits)) as running:
        running.app.chat.run_command("/search quux")
        await running.settle()
        assert "Current  " in running.text and "Later" not in running.text


async def test_search_cuts_no_title_while_the_texts_leave_room() -> None:
    for text, whole in (("quux", True), (f"quux{' after' * 30}", False)):
        hits = [HitRow(session_id=OTHER, title="The plan of the next release", when="today", text=text)]
        async with stage(workspace=FakeWorkspace(hits=hits), size=(120, 40)) as running:
            running.app.chat.run_command("/search quux")
            await running.settle()
            assert ("The plan of the next release  today" in running.text) is whole


@pytest.mark.more
async def test_search_counts_messages_and_titles_and_shows_few_of_each_session_until_they_are_filtered() -> None:
    hits = [HitRow(session_id=OTHER, title="Long", when="today", text=f"quux number {n}") for n in range(8)]
    hits.append(HitRow(session_id=SessionId("first"), title="Short", when="today", text="quux once"))
    hits = [replace(hit, message_id=f"m{n}") for n, hit in enumerate(hits)]
    hits.append(HitRow(session_id=SessionId("second"), title="quux", when="today", text="quux"))
    async with stage(workspace=FakeWorkspace(hits=hits)) as running:
        running.app.chat.run_command("/search quux")
        await running.settle()
        assert "Sessions with 'quux': 9 messages and 1 title in 3 sessions" in running.text
        assert "number 2" in running.text and "number 3" not in running.text
        titles = [line for line in running.text.splitlines() if "Long" in line]
        assert len(titles) == 2 and "number 0" in titles[0] and "Long:" in titles[1], "once in the list, once below it"
        assert "… 5 more in this session" in running.text and "quux once" in running.text
        await running.type_fast(*"number 7")
        await running.settle()
        assert "number 7" in running.text and "more in this session" not in running.text
        assert running.app.screen.highlighted_choice.key == "7"  # type: ignore[attr-defined]


async def test_search_goes_on_in_all_folders_and_a_session_of_another_one_opens_as_a_copy() -> None:
    hits = [HitRow(session_id=OTHER, title="Parser", when="today", text="the invoice parser", folder="/home/ana/old")]
    workspace = FakeWorkspace(hits=hits, others={"fork": said("the invoice parser")})
    async with stage(workspace=workspace) as running:
        running.app.chat.run_command("/search invoice parser")
        await running.settle()
        assert "In all folders: /search --all invoice parser" in " ".join(running.text.split())
        running.app.chat.run_command("/search --all invoice parser")
        await running.settle()
        assert "Parser in /home/ana/old:" in running.text
        await running.press("enter")
        assert running.app.chat.session is workspace.others["fork"]
        told = " ".join(running.text.split())
        assert "You are in 'Parser' now. /resume" in told
        assert "copy of a session held in /home/ana/old. Its tools work in this folder." in told


async def test_a_title_is_found_among_thousands_without_those_that_are_only_like_it() -> None:
    async with stage() as running:
        rows = [
            SessionRow(id=SessionId(f"s{n}"), title=f"Net leaks, part {n}", when="today", messages=1)
            for n in range(5_000)
        ]
        rows.append(SessionRow(id=SessionId("last"), title="A needle", when="in May", messages=1))
        picker = SessionPicker(rows, session=running.session, sessions=running.workspace.sessions)
        assert [choice.key for choice in picker.matching("needle")] == ["last"]
        assert picker.matching("netleaks"), "a blank that was left out"


@pytest.mark.more
@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_the_keys_of_the_session_picker_stay_on_screen_below_many_sessions(size: tuple[int, int]) -> None:
    async with stage(size=size) as running:
        rows = [SessionRow(id=SessionId(f"s{n}"), title=f"Session {n}", when="today", messages=n) for n in range(20)]
        running.app.push_screen(SessionPicker(rows, session=running.session, sessions=running.workspace.sessions))
        await running.settle()
        assert "Session 5" in running.text and "ctrl+d delete" in running.text
        await running.press("ctrl+d")
        assert "Esc keeps it" in running.text


async def test_a_session_is_renamed_and_deleted_in_the_picker_and_the_open_one_only_renamed() -> None:
    async with stage() as running:
        await sessions(running)
        await running.press("ctrl+d")
        assert "is open" in running.text
        await running.press("ctrl+n")
        await running.answer("Notes of May", "enter")
        assert running.session.titles == ["Notes of May"]
        await running.press("down", "ctrl+n")
        await running.answer("Parser", "enter")
        assert running.workspace.renamed == [(OTHER, "Parser")]
        assert "Parser" in running.text
        await running.press("ctrl+d")
        assert "2 pending calls" in running.text
        assert not running.workspace.deleted
        assert "Esc keeps it" in running.text and "Enter chooses" not in running.text
        await running.press("enter", "escape")
        assert "Enter chooses" in running.text and "2 pending calls" not in running.text
        await running.press("ctrl+d", "up", "down", "ctrl+d")
        assert not running.workspace.deleted, "another key takes the question back"
        await running.press("ctrl+d")
        assert running.workspace.deleted == [OTHER]
        assert "Parser" not in running.text


def test_the_cost_is_told_by_turn() -> None:
    small, large = Usage(input_tokens=900, output_tokens=10, cost=0.001), Usage(input_tokens=12_000, output_tokens=500)
    messages: list[Message] = [UserMessage(id=MessageId("1"), text="first\nquestion")]
    messages += [AssistantMessage(id=MessageId(f"a{number}"), text="", usage=small) for number in range(2)]
    messages += [UserMessage(id=MessageId("2"), text="second")]
    messages += [AssistantMessage(id=MessageId("b"), text="", usage=large)]
    rows = [line.split() for line in cost_text(large, messages).splitlines()]
    assert ["1", "1,800", "20", "$0.0020", "first", "question"] in rows
    assert ["2", "12,000", "500", "second"] in rows
    assert "cost       <$0.0001, not all priced" in cost_text(replace(small, cost=0.00001), messages)
    copied = [*messages[:3], UserMessage(id=MessageId("s.1.m1"), text="third")]
    before = "Before this copy, not counted above: 1,800 tokens in, 20 out, cost $0.0020"
    lines = cost_text(None, copied[:3], session_id="s").splitlines()
    counted = "They count in the session they were used in, as do those of turns that were taken back."
    assert lines == ["Nothing was sent to a model in this session yet.", "", before, counted]
    copied.append(AssistantMessage(id=MessageId("s.1.m2"), text="", usage=large))
    text = cost_text(large, copied, session_id="s")
    assert before in text and "first question" not in text, "the rows add up to what this session has used"
    assert ["1", "12,000", "500", "third"] in [line.split() for line in text.splitlines()]


async def test_a_summary_that_is_written_has_the_moving_sign_and_counts_its_tokens() -> None:
    async def load() -> str:
        await asyncio.Event().wait()
        return ""

    async with stage() as running:
        late = LateText(load=load, waiting="Wait.", received=lambda: 12)
        question = Question[str]("Compact", explain="", text="", check=str, done="", lines=True, late=late)
        running.app.push_screen(question)
        shown = re.compile("(⠋|⠙|⠹|⠸|⠼|⠴|⠦|⠧|⠇|⠏) Wait. \\d+ s · 12 tokens")
        await until(lambda: shown.search(running.text))
        before = shown.findall(running.text)
        await until(lambda: shown.findall(running.text) not in ([], before))
        assert "Wait." in running.text.splitlines()[running.app.cursor_position.y], "screen readers follow the cursor"


async def test_compact_is_offered_once_and_not_while_something_runs() -> None:
    session = said("one", "two")
    session.change(context_used=27_000, context_window=32_768, status=TurnStatus.RUNNING)
    async with stage(session) as running:
        assert "/compact" not in running.text
        session.end_turn(TurnStatus.ANSWERED)
        await running.settle()
        assert "82 % full" in running.text
        session.start_turn("three")
        await running.settle()
        assert "/compact" not in running.text
        session.end_turn(TurnStatus.ANSWERED)
        await running.settle()
        assert "/compact" not in running.text, "once"


@pytest.mark.parametrize("wanted", [True, False])
async def test_the_cost_of_a_turn_is_told_if_the_user_wants_that(wanted: bool) -> None:
    end = TurnFinished(
        id=TURN,
        parent_id=SESSION,
        status=Status.SUCCESS,
        result=TurnStatus.ANSWERED,
        answer="",
        usage=Usage(input_tokens=1_200, output_tokens=30, cost=0.5),
    )
    async with stage(workspace=FakeWorkspace(user=FakeUser(turn_cost=wanted))) as running:
        running.session.start_turn("one")
        running.session.publish(end)
        await running.settle()
        assert ("1,200 tokens in, 30 out, cost $0.5000" in running.text) is wanted


@pytest.mark.parametrize(
    ("size", "keys"), [((60, 20), "n older  N newer  Esc back"), ((40, 12), "n N  Esc back"), ((30, 8), "n N Esc")]
)
async def test_a_narrow_window_names_the_keys_and_keeps_the_message_field(size: tuple[int, int], keys: str) -> None:
    async with stage(said("find me", "Found."), size=size) as running:
        await running.press("ctrl+f", *"me", "enter")
        line = next(line for line in running.text.split("\n") if "find me" in line and "1 of 1" in line)
        assert line.endswith(keys)
        await running.press("escape", "slash")
        assert "> /" in running.text
        assert any(line.startswith(("│/", "│ /")) for line in running.text.split("\n"))
