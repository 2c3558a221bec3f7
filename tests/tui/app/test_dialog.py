"""The dialog, key by key: what reaches the session, and what never does."""

import asyncio
import re
from dataclasses import replace

import pytest
from textual.events import Key, Paste

from chatops.domain.decisions import Approved, ArgvPattern, MarkedDone, Rejected, RuleScope
from chatops.domain.errors import ChatopsError
from chatops.domain.events import ApprovalRequested, AskReason, Denial, Status, StepGate, ToolFinished, TurnStatus
from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import ToolMessage
from chatops.domain.sandbox import Lack, SandboxSpec
from chatops.domain.tools import CallFacts, Outcome, ResultFacts, ResultSource
from chatops.runtime.rule_offer import RecordedCall
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.rule import RuleDialog
from chatops.tui.key_order import KEYS_WAIT
from chatops.tui.notice import show_notice
from tests.tui.app.dialog_scenes import budget
from tests.tui.app.fakes import ROUND, FakeSession, edit_facts, fetch_facts, long_facts, pending_call, shell_facts
from tests.tui.app.support_app import Stage, stage


async def asked(running: Stage, *calls: object) -> None:
    running.session.ask(*calls)  # type: ignore[arg-type]
    await running.settle()
    assert running.dialog_is_open


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("key", "decision"),
    [
        ("a", Approved()),
        ("s", Approved(remember=ArgvPattern(words=("git", "status")))),
        ("d", Rejected()),
    ],
)
async def test_one_key_sends_one_answer_with_the_digest_shown_and_closes(key: str, decision: object) -> None:
    async with stage() as running:
        await asked(running, pending_call(digest="d-1"))
        await running.press(key)
        assert [(taken.digest, taken.decision) for taken in running.session.taken] == [("d-1", decision)]
        assert not running.dialog_is_open


@pytest.mark.more
async def test_no_key_acts_in_the_first_half_second_and_it_goes_to_the_message() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        await running.type_fast("a", "d", "s")
        assert running.session.taken == []
        assert running.draft == "ads"
        running.clock.pass_(0.45)
        await running.pilot.press("a")
        await running.settle()
        assert running.session.taken == [], "each key typed ahead begins the pause anew"
        running.clock.pass_(2.05)
        await running.pilot.press("a")
        await running.settle()
        assert [taken.decision for taken in running.session.taken] == [Approved()]


async def test_a_word_begun_over_the_dialog_does_not_answer_and_goes_to_the_message() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        running.clock.pass_(5)
        for character in "hold on, a and d":
            await running.type_fast("space" if character == " " else character)
        assert running.session.taken == []
        assert running.draft == "hold on, a and d"
        running.clock.pass_(5)
        await running.press("d")
        assert [taken.decision for taken in running.session.taken] == [Rejected()], "after a pause keys act again"
        assert running.draft == "hold on, a and d"


@pytest.mark.more
async def test_typing_begun_before_the_dialog_opened_goes_on_in_the_message() -> None:
    async with stage() as running:
        await running.type_fast(*"we")
        running.session.ask(pending_call())
        await running.type_fast("ctrl+g")
        assert running.dialog_is_open
        for character in "dad":
            await running.type_fast(character)
        assert running.session.taken == []
        assert running.draft == "wedad"
        assert "What you typed is in the message field." in running.text
        assert " after a pause" not in running.text and running.text.count("Keys act") == 1
        await running.press("x", "d")
        assert [taken.decision for taken in running.session.taken] == [Rejected()]
        assert running.draft == "wedadx", "after a pause no key with a meaning types"


@pytest.mark.more
async def test_it_opens_on_the_first_undecided_call_in_whatever_order_their_checks_end() -> None:
    first, second, third = (pending_call(number) for number in (1, 2, 3))
    async with stage() as running:
        for waiting in ([third], [second, third], [first, second, third]):
            running.session.change(pending=())
            running.session.ask(*waiting)
            await running.settle()
        assert "1 of 3" in running.text
        await running.press("d")
        assert [taken.call_id for taken in running.session.taken] == [first.call.id]


async def test_a_call_that_comes_while_another_is_being_read_does_not_take_its_place() -> None:
    async with stage() as running:
        await asked(running, pending_call(2))
        await running.press("down")
        running.session.change(pending=())
        running.session.ask(pending_call(1), pending_call(2))
        await running.settle()
        assert "2 of 2" in running.text


@pytest.mark.more
async def test_other_keys_never_answer() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        for key in ("enter", "space", "tab", "y", "u", "m", "x", "1", "ctrl+s", "ctrl+j"):
            await running.press(key)
            assert running.session.taken == [], key
        await running.press("a")
        assert len(running.session.taken) == 1, "and the dialog was taking keys all the time"


@pytest.mark.more
@pytest.mark.parametrize("key", ["f1", "?"])
async def test_the_help_opens_over_a_dialog_and_what_closes_it_answers_nothing(key: str) -> None:
    async with stage() as running:
        await asked(running, pending_call())
        await running.press(key)
        assert "approve once" in running.text and "deny this call" in running.text
        await running.press("q")
        assert running.dialog_is_open
        await running.app._press_keys(["a"])
        await running.settle()
        assert running.session.taken == [], "the pause begins when the dialog is seen again"


@pytest.mark.more
async def test_a_click_anywhere_never_answers() -> None:
    async with stage() as running:
        await asked(running, pending_call(), pending_call(2))
        running.clock.pass_(5)
        for y in range(0, 24, 2):
            await running.pilot.click(offset=(20, y))
        await running.settle()
        assert running.session.taken == []
        assert running.dialog_is_open


async def test_a_paste_over_the_dialog_goes_to_the_message() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        running.clock.pass_(5)
        running.app.post_message(Paste("a\nA\nd\n"))
        await running.settle()
        assert running.session.taken == []
        assert running.draft == "a\nA\nd\n"


async def test_letters_are_taken_for_text_only_where_none_of_them_decides() -> None:
    async with stage() as running:
        assert running.app.takes_text()
        running.app.chat.composer.retry_offered = True
        assert not running.app.takes_text()
        running.app.chat.composer.retry_offered = False
        await asked(running, pending_call())
        assert running.dialog_is_open
        assert not running.app.takes_text()


@pytest.mark.more
async def test_a_long_payload_is_approved_only_after_its_end_was_on_screen() -> None:
    async with stage() as running:
        await asked(running, pending_call(facts=long_facts(40)))
        view = running.dialog.query_one(PayloadView)
        await running.press("home")
        assert "read on first: " in running.text
        presses = 0
        while not running.session.taken:
            left = view.lines_below
            await running.press("a")
            presses += 1
            assert left > 0 or running.session.taken, "a must act once the end has been seen"
            assert presses < 20
        assert presses > 2


@pytest.mark.more
async def test_no_way_of_approving_gets_around_the_end_of_the_payload() -> None:
    async with stage() as running:
        await asked(running, pending_call(facts=long_facts(200)))
        for key in ("s", "r", "A", "a"):
            await running.press(key)
            assert running.session.taken == [], key
            assert running.dialog_is_open


@pytest.mark.more
async def test_deny_works_before_the_end_has_been_seen() -> None:
    async with stage() as running:
        await asked(running, pending_call(facts=long_facts(60)))
        await running.press("d")
        assert [taken.decision for taken in running.session.taken] == [Rejected()]


async def test_model_words_after_the_payload_do_not_delay_an_answer_and_are_folded() -> None:
    async with stage() as running:
        await asked(running, pending_call(said="please\n" * 200))
        await running.press("down")
        assert "v details and the model's words" in running.text
        assert "please" not in running.text
        await running.press("v")
        assert "The model says" in running.text and "│ please" in running.text
        await running.press("v")
        await running.press("a")
        assert len(running.session.taken) == 1


@pytest.mark.more
async def test_three_calls_are_decided_each_on_its_own() -> None:
    async with stage() as running:
        calls = (
            pending_call(1),
            pending_call(2, tool="file_edit", facts=edit_facts()),
            pending_call(3, tool="web_fetch", facts=fetch_facts()),
        )
        await asked(running, *calls)
        assert "1 of 3" in running.text
        await running.press("a")
        assert "2 of 3" in running.text
        assert "approved" in running.text
        await running.press("d")
        assert "3 of 3" in running.text
        assert "denied" in running.text
        await running.press("D")
        assert str(running.app.screen.query_one("#question-explain").render()).startswith("example.org")
        await running.answer("no need", "enter")
        answers = [(taken.call_id, taken.decision) for taken in running.session.taken]
        assert answers == [
            (calls[0].call.id, Approved()),
            (calls[1].call.id, Rejected()),
            (calls[2].call.id, Rejected(reason="no need")),
        ]
        assert not running.dialog_is_open


@pytest.mark.more
async def test_a_held_key_answers_one_call_only() -> None:
    async with stage() as running:
        await asked(running, pending_call(1), pending_call(2), pending_call(3))
        await running.press("a")
        await running.type_fast("a", "a", "a", "a")
        assert len(running.session.taken) == 1
        assert running.draft == ""


@pytest.mark.more
async def test_text_that_comes_at_once_is_text_whatever_it_begins_with() -> None:
    async with stage() as running:
        await asked(running, pending_call(), pending_call(2))
        running.clock.pass_(5)
        for key in "a d":
            running.app.post_message(Key({" ": "space"}.get(key, key), key))
        while running.draft != "a d":
            assert running.session.taken == []
            await running.pilot.pause(0.01)


async def test_text_that_comes_at_once_and_is_delivered_slowly_is_text_too() -> None:
    async with stage() as running:
        await asked(running, pending_call(), pending_call(2))
        running.clock.pass_(5)
        opened = asyncio.Event()
        running.app.run_worker(opened.wait(), name=KEYS_WAIT)
        for key in "art":
            running.app.post_message(Key(key, key))
        while not (running.draft or running.session.taken):
            await running.pilot.pause(0.01)
        assert running.session.taken == []
        opened.set()
        while running.draft != "art":
            await running.pilot.pause(0.01)


@pytest.mark.more
async def test_keys_that_delete_reach_the_text_that_was_typed_over_a_dialog() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        running.app.chat.composer.set_text("kept\n")
        await running.press("ctrl+u")
        assert running.draft == "kept\n", "nothing was typed here"
        running.clock.pass_(1.0)
        running.app.post_message(Key("x", "x"))
        running.app.post_message(Key("y", "y"))
        await running.settle()
        await running.type_fast("backspace")
        assert running.draft == "kept\nx"
        await running.type_fast("enter", "z")
        assert running.draft == "kept\nx\nz", "two lines stay two lines"
        await running.type_fast("backspace", "backspace")
        running.clock.pass_(5)
        await running.press("ctrl+u")
        assert running.draft == "kept\n"
        assert running.session.taken == []


@pytest.mark.more
async def test_approve_the_rest_needs_each_to_have_been_on_screen() -> None:
    async with stage() as running:
        await asked(running, pending_call(1), pending_call(2), pending_call(3))
        await running.press("A")
        assert running.session.taken == []
        assert "This call was not on screen to its end yet, nor 1 other after it." in running.text
        await running.press("tab", "tab", "A")
        assert [taken.decision for taken in running.session.taken] == [Approved()] * 3


async def test_pages_begin_with_a_row_and_leave_out_no_line() -> None:
    lengths = (3, 70, 40, 1, 300, 20, 61, 0, 25, 90)
    command = "\n".join(f"{number}".rjust(length, "#") for number, length in enumerate(lengths))
    async with stage(size=(30, 8)) as running:
        await asked(running, pending_call(facts=shell_facts(command, argv=())))
        seen, first = set[str](), list[str]()
        while not running.dialog.payload.end_seen:
            page = [running.dialog.payload.render_line(y).text for y in range(running.dialog.payload.size.height)]
            seen |= {part.strip() for part in page}
            first.append(page[0][0])
            await running.press("a")
        assert running.session.taken == []
        payload = running.dialog.payload
        payload.scroll_to(y=0, animate=False, force=True, immediate=True)
        everything = [payload.render_line(y).text.strip() for y in range(payload.lines_below)]
        assert set(everything) <= seen
        assert first.count("»") <= len(first) // 2, first


@pytest.mark.more
async def test_later_leaves_it_pending_with_a_banner_and_ctrl_g_brings_it_back() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        await running.press("escape")
        assert not running.dialog_is_open
        assert "1 approval pending – ctrl+g" in running.text
        assert running.session.now.pending
        await running.press("ctrl+g")
        assert running.dialog_is_open
        await running.press("a")
        assert len(running.session.taken) == 1
        assert "ctrl+g" not in running.text


@pytest.mark.more
async def test_it_never_opens_while_the_user_is_writing() -> None:
    async with stage() as running:
        await running.type_fast(*"hello")
        running.session.ask(pending_call())
        await running.settle()
        assert not running.dialog_is_open
        assert "1 approval pending – ctrl+g" in running.text
        await running.type_fast(*" a")
        assert running.draft == "hello a"


async def test_a_pending_call_of_a_stored_session_is_asked_at_once_on_opening() -> None:
    session = FakeSession(pending=[pending_call()], status=TurnStatus.PAUSED)
    async with stage(session) as running:
        assert running.dialog_is_open
        assert "git status" in running.text


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("outcome", "source", "mark"),
    [
        (Outcome.INTERRUPTED, ResultSource.STOPPED, "not run"),
        (Outcome.SUCCESS, ResultSource.EARLIER_ATTEMPT, "done before"),
        (Outcome.SUCCESS, ResultSource.CALL, "approved"),
    ],
)
async def test_an_edited_call_that_ends_while_it_is_checked_is_not_called_marked_done(
    outcome: Outcome, source: ResultSource, mark: str
) -> None:
    async with stage() as running:
        edited, other = pending_call(1), pending_call(2)
        await asked(running, edited, other)
        await running.press("e")
        await running.fill(command="git status -s")
        running.session.change(pending=(other,))
        ended = ToolFinished(
            id=edited.call.id, parent_id=ROUND, status=Status.SUCCESS, tool="shell_exec", arguments="{}",
            outcome=outcome, content="", facts=ResultFacts(source=source),
        )  # fmt: skip
        running.session.publish(ended)
        await running.settle()
        (line,) = (line for line in running.text.splitlines() if "1  " in line and "shell" in line.lower())
        assert mark in line and "marked done" not in running.text


def recorded(command: str, outcome: Outcome = Outcome.SUCCESS) -> RecordedCall:
    facts = shell_facts(command)
    message = ToolMessage(
        id=MessageId(command), call_id=CallId("s.1.1.9"), tool="shell_exec", arguments=facts.arguments,
        outcome=outcome, content="",
    )  # fmt: skip
    return RecordedCall(message=message, facts=facts)


def edges(running: Stage, title: str) -> tuple[int, int]:
    """Return the columns of the frame that has this title."""
    found = re.search(rf"(?:│|╭─) {re.escape(title)}.*[│╮]", running.text)
    assert found is not None, running.text
    start = found.start() - running.text.rfind("\n", 0, found.start())
    return start, start + len(found[0])


async def test_dialogs_over_each_other_have_one_width() -> None:
    async with stage(size=(130, 40)) as running:
        await asked(running, pending_call())
        below = edges(running, "Approve Shell?")
        await running.press("r")
        assert edges(running, "Make a rule") == below
        await running.press("e")
        assert edges(running, "Edit the pattern") == below
        await running.press("escape", "escape", "e")
        assert edges(running, "Edit") == below


async def test_a_rule_that_ends_with_a_full_stop_is_followed_by_none() -> None:
    async with stage(size=(110, 40)) as running:
        await asked(running, pending_call(facts=shell_facts("ls -a .")))
        await running.press("r", "ctrl+s")
        assert "Rule made, for this session: shell_exec:ls -a . (/permissions lists it)" in running.text


async def test_a_gate_is_named_with_its_step_and_the_text_that_it_runs_has_one_sign() -> None:
    command = "python3 -B -c '\nimport sys\nsys.exit(0)\n'"
    async with stage(size=(100, 40)) as running:
        gate = StepGate(name="tests", step="edit")
        await asked(running, replace(pending_call(facts=shell_facts(command, argv=())), gate=gate))
        assert "Approve gate tests of step edit?" in running.text
        assert "tests of step edit, which passes if this succeeds" in running.text
        view = running.dialog.payload
        assert [view.render_line(y).text[:1] for y in range(4)] == ["▲", " ", " ", " "]
        inner = "f() {\n  true\n  rm -rf build\n}\nf"
        await running.press("d")
        await asked(running, pending_call(2, facts=shell_facts(inner, argv=())))
        assert [view.text[:1] for view in map(running.dialog.payload.render_line, range(4))] == ["▲", " ", "▲", " "]


async def test_a_rule_gets_its_pattern_and_scope_and_shows_what_it_would_have_allowed() -> None:
    async with stage() as running:
        await asked(running, pending_call(facts=shell_facts("git status -s")))
        running.session.recorded = (
            recorded("git status --short"),
            recorded("git status -s src", Outcome.DENIED),
            recorded("rm -r x"),
        )
        await running.press("r")
        assert isinstance(running.app.screen, RuleDialog)
        assert "> shell_exec:git status -s   (exactly this)" in running.text
        assert "The rule covers the words." not in running.text
        assert "shell_exec:git status -s *" in running.text and "shell_exec:git *" not in running.text
        assert "It would have allowed none of 3 earlier calls in this session." in running.text
        await running.press("down", "down", "enter", "y", "n", "space", "a")
        assert running.session.taken == [], "only ctrl+s decides"
        assert "> shell_exec:git status *" in running.text
        assert (
            "It would have allowed 2 of 3 earlier calls" in running.text
            and "git status -s src  (it was denied)" in running.text
        )
        await running.press("tab", "tab")
        assert "> everywhere" in running.text
        await running.press("ctrl+s")
        pattern = ArgvPattern(words=("git", "status", "*"))
        (taken,) = running.session.taken
        assert taken.decision == Approved(remember=pattern, scope=RuleScope.ROLE)


async def test_a_rule_names_the_keys_of_a_choice_only_where_there_is_one() -> None:
    async with stage() as running:
        await asked(running, pending_call(facts=shell_facts("make build")))
        await running.press("r")
        assert "without asking:" in running.text and "Where (Tab):" in running.text
        await running.press("e")
        await running.answer("shell_exec:make build", "enter")
        assert "(Up, Down)" not in running.text


async def test_a_rule_for_one_call_shows_the_call_that_the_dialog_covers() -> None:
    async with stage() as running:
        await asked(running, pending_call(facts=replace(shell_facts("make build; make check"), argv=())))
        await running.press("r")
        dialog = running.text.partition("Make a rule")[2]
        assert "> exactly this call of shell_exec" in dialog and "make build; make check" in dialog


@pytest.mark.more
async def test_a_key_that_was_pressed_before_the_rule_was_shown_makes_none() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        early = Key("ctrl+s", None)
        await running.press("r")
        running.app.post_message(early)
        await running.settle()
        assert isinstance(running.app.screen, RuleDialog) and running.session.taken == []
        assert "not taken: ctrl+s, too early" in running.text
        await running.press("enter")
        assert "not taken: Enter; ctrl+s approves" in running.text
        await running.press("ctrl+s")
        assert len(running.session.taken) == 1


@pytest.mark.more
async def test_a_scope_that_a_call_cannot_have_is_shown_with_the_reason_and_is_never_chosen() -> None:
    async with stage() as running:
        await asked(running, pending_call(facts=shell_facts("pytest -q")))
        await running.press("r")
        assert "everywhere is not possible: pytest may run code of the folder" in running.text
        assert "The rule covers the words." in running.text
        await running.press("tab", "tab", "tab", "ctrl+s")
        (taken,) = running.session.taken
        assert taken.decision == Approved(remember=ArgvPattern(words=("pytest", "-q")), scope=RuleScope.FOLDER)


@pytest.mark.more
async def test_where_no_rule_can_be_made_s_and_r_say_why_and_approve_nothing() -> None:
    async with stage() as running:
        running.session.rule_scopes = ()
        await asked(running, pending_call())
        await running.press("s")
        assert "Not for the session: the registry switches off rules for this session." in running.text
        await running.press("r")
        assert "No rule is possible: the registry switches off rules for this session." in running.text
        assert running.session.taken == []


@pytest.mark.more
async def test_the_pattern_of_a_rule_can_be_edited_and_has_to_cover_the_call() -> None:
    async with stage() as running:
        await asked(running, pending_call(facts=shell_facts("git status -s")))
        await running.press("r", "e")
        await running.answer("shell_exec:git push *", "ctrl+s")
        assert "would not cover" in running.text
        await running.answer("shell_exec:git *", "ctrl+s")
        assert "> shell_exec:git *" in running.text and running.session.taken == []
        await running.press("ctrl+s")
        assert [taken.decision for taken in running.session.taken] == [
            Approved(remember=ArgvPattern(words=("git", "*")))
        ]


@pytest.mark.more
async def test_a_field_of_a_dialog_draws_no_hidden_character_and_keeps_it() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        await running.press("D")
        await running.answer("no\u202e, \u200bnot that", "end")
        assert "no\ufffd, \ufffdnot that" in running.text
        await running.press("enter")
        assert [taken.decision for taken in running.session.taken] == [Rejected(reason="no\u202e, \u200bnot that")]


@pytest.mark.more
async def test_leaving_a_question_leaves_the_call_undecided() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        for key in ("e", "r", "D"):
            await running.press(key, "escape")
            assert running.dialog_is_open
        assert running.session.taken == []


@pytest.mark.some(1)
@pytest.mark.parametrize(("key", "decision"), [("R", Approved()), ("u", Rejected()), ("m", MarkedDone())])
async def test_an_unknown_outcome_has_keys_of_its_own(key: str, decision: object) -> None:
    async with stage() as running:
        await asked(running, pending_call(reason=AskReason.OUTCOME_UNKNOWN, why="the app stopped"))
        assert "it may have" in running.text
        assert "the app stopped" in running.text
        await running.press("a", "s", "r", "A", "d")
        assert running.session.taken == [] and "It may have taken effect already" in running.text
        await running.press(key)
        assert [taken.decision for taken in running.session.taken] == [decision]


async def test_a_budget_takes_only_a_plain_yes_or_no() -> None:
    async with stage() as running:
        await asked(running, budget())
        for key in ("s", "S", "r", "+", "e", "E", "c", "A", "R", "u", "m"):
            await running.press(key)
            assert running.session.taken == [] and running.dialog_is_open, key
        assert "a go on" in running.text and "d end the turn" in running.text
        await running.press("a")
        assert [taken.decision for taken in running.session.taken] == [Approved()]
    async with stage() as running:
        await asked(running, budget())
        await running.press("d")
        assert [taken.decision for taken in running.session.taken] == [Rejected()]


@pytest.mark.more
async def test_decided_elsewhere_closes_the_dialog_and_says_so() -> None:
    async with stage() as running:
        call = pending_call()
        await asked(running, call)
        running.session.decided_elsewhere(call.call.id, Approved())
        await running.settle()
        assert not running.dialog_is_open
        assert "Decided elsewhere" in running.text


async def test_one_of_two_decided_elsewhere_is_marked_and_the_other_is_shown() -> None:
    async with stage() as running:
        first, second = pending_call(1), pending_call(2, facts=shell_facts("git log"))
        await asked(running, first, second)
        running.session.decided_elsewhere(first.call.id, Rejected())
        await running.settle()
        assert "decided elsewhere" in running.text
        assert "2 of 2" in running.text


@pytest.mark.more
async def test_decided_elsewhere_leaves_the_keyboard_to_a_form_about_it() -> None:
    async with stage() as running:
        call = pending_call()
        await asked(running, call)
        await running.press("e")
        running.session.decided_elsewhere(call.call.id, Approved())
        await running.settle()
        await running.fill(command="git log")
        assert "Nothing was sent: the call has changed or was decided meanwhile." in running.text
        assert (running.app.screen, running.draft, running.session.taken) == (running.app.chat, "", [])


@pytest.mark.more
async def test_what_was_typed_about_a_call_that_changes_meanwhile_is_there_again() -> None:
    async with stage() as running:
        await asked(running, pending_call(digest="old"))
        await running.press("e")
        changed = pending_call(digest="new", reason=AskReason.CHANGED)
        running.session.change(pending=(changed,))
        running.session.publish(ApprovalRequested(id=changed.call.id, parent_id=ROUND, pending=changed))
        await running.settle()
        await running.fill(command="git log --typed")
        assert running.session.taken == []
        assert "Nothing was sent: the call has changed" in running.text
        await running.press("e")
        assert "git log --typed" in running.text


async def test_a_call_that_changes_while_shown_has_to_be_seen_again() -> None:
    async with stage() as running:
        await asked(running, pending_call(digest="old"))
        changed = pending_call(facts=long_facts(60), digest="new", reason=AskReason.CHANGED)
        running.session.change(pending=(changed,))
        running.session.publish(ApprovalRequested(id=changed.call.id, parent_id=ROUND, pending=changed))
        await running.settle()
        running.clock.pass_(0.1)
        await running.pilot.press("a")
        await running.settle()
        await running.press("a")
        assert running.session.taken == []
        assert "has changed" in running.text


async def test_an_answer_that_comes_too_late_is_said_to() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        running.session.stale = True
        await running.press("a")
        assert "no longer waits for this decision" in running.text
        assert running.dialog_is_open


async def test_an_error_is_a_sentence_and_the_call_stays_undecided() -> None:
    async with stage() as running:
        await asked(running, pending_call())
        running.session.refuse = ChatopsError("The session is open elsewhere.", advice="Close it there.")
        await running.press("a")
        assert "The session is open elsewhere. Close it there." in running.text
        running.session.refuse = None
        await running.press("a")
        assert len(running.session.taken) == 1


@pytest.mark.more
async def test_it_is_usable_by_scrolling_at_20x6_and_useless_below() -> None:
    async with stage(size=(20, 6)) as running:
        await asked(running, pending_call())
        for _ in range(40):
            if running.session.taken:
                break
            await running.press("a")
        assert [taken.decision for taken in running.session.taken] == [Approved()]
    async with stage(size=(19, 5)) as running:
        await asked(running, pending_call())
        assert "larger" in running.text
        await running.press("a", "s", "r", "A", "e", "a")
        assert running.session.taken == []


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12), (20, 6)])
async def test_a_notice_covers_no_line_of_a_dialog(size: tuple[int, int]) -> None:
    session = FakeSession()
    command = " && ".join(f"make target-{number}" for number in range(60))
    async with stage(session, size=size) as running:
        session.ask(pending_call(facts=shell_facts(command)))
        await running.settle()
        await running.press("up")
        before = running.text.splitlines()
        running.app.notify("All is well.", markup=False)
        await running.settle()
        lines = running.text.splitlines()
        assert "All is well." in lines[0]
        for part in ("Approve Shell?", "d deny"):
            parts = ([piece for line in text for piece in re.split("[│╭╮]", line)] for text in (before, lines))
            (was,), (now,) = ([piece for piece in text if part in piece] for text in parts)
            # How many lines of the call are below is another number now.
            assert re.sub(r"\d+", "", now) == re.sub(r"\d+", "", was)
        assert sum("make target" in line for line in lines) >= sum("make target" in line for line in before) - 1


async def test_a_notice_is_shown_once_and_covers_nothing_below_a_dialog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.tui.notice.NOTICE_S", 600)
    async with stage() as running:
        running.session.start_turn("\n".join(f"line {number} " + "x" * 60 for number in range(12)))
        await running.settle()
        before = [line for line in running.text.splitlines() if "xxx" in line]
        assert len(before) == 12
        show_notice(running.app, "All is well.")
        await running.settle()
        assert [line for line in running.text.splitlines() if "xxx" in line] == before
        assert running.text.count("All is well.") == 1
        await asked(running, pending_call())
        assert next(line for line in running.text.splitlines() if "xxx" in line) == before[0], "it covers no row"
        await running.press("escape")
        assert running.text.count("All is well.") == 1


@pytest.mark.more
async def test_after_a_resize_the_end_has_still_to_be_seen() -> None:
    async with stage(size=(120, 40)) as running:
        await asked(running, pending_call(facts=long_facts(45)))
        await running.pilot.resize_terminal(40, 12)
        await running.settle()
        await running.press("a")
        assert running.session.taken == []
        await running.pilot.resize_terminal(120, 100)
        await running.settle()
        await running.press("a")
        assert len(running.session.taken) == 1


@pytest.mark.more
async def test_a_megabyte_is_shown_whole_and_its_end_can_be_reached() -> None:
    command = "\n".join("x" * 99 for _ in range(10_000)) + "\nthe end"
    async with stage() as running:
        await asked(running, pending_call(facts=shell_facts(command, argv=())))
        await running.press("end")
        await running.press("a")
        assert len(running.session.taken) == 1


@pytest.mark.more
async def test_a_rule_written_about_a_call_does_not_approve_what_it_has_become() -> None:
    async with stage() as running:
        await asked(running, pending_call(digest="old"))
        await running.press("r")
        changed = pending_call(facts=shell_facts("git status -s"), digest="new", reason=AskReason.CHANGED)
        running.session.change(pending=(changed,))
        running.session.publish(ApprovalRequested(id=changed.call.id, parent_id=ROUND, pending=changed))
        await running.settle()
        await running.press("ctrl+s")
        assert running.session.taken == []
        assert running.dialog_is_open


@pytest.mark.more
async def test_the_keys_stand_out_from_the_words_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bold, which a terminal without colours shows too."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with stage() as running:
        running.session.ask(pending_call())
        await running.settle()
        assert "A" not in bold(running, "Keys act"), "no key acts yet"
        running.clock.pass_(1.0)
        await running.press("down")
        assert bold(running, "approve once") == ["a", "s", "r"]
        assert bold(running, "deny with a reason") == ["e", "E", "d", "D", "Esc"]
        await running.press("D")
        assert bold(running, "Esc back") == ["Enter", "Esc"]
        await running.press("escape", "escape", "ctrl+r")
        assert bold(running, "Esc back") == ["Enter", "Esc"]


def bold(running: Stage, words: str) -> list[str]:
    """Return the bold text on the screen line with these words."""
    for strip in running.app.screen._compositor.render_strips():
        if words in strip.text:
            return [one.text.strip() for one in strip if one.style is not None and one.style.bold and one.text.strip()]
    raise AssertionError(f"{words!r} is not on the screen")


@pytest.mark.more
async def test_an_open_dialog_takes_the_colours_of_another_theme() -> None:
    async with stage(theme="chatops-dark") as running:
        await asked(running, pending_call(tool="file_edit", facts=edit_facts()))

        def behind() -> set[str]:
            strips = running.dialog.payload.render_lines(running.dialog.payload.size.region)
            return {str(one.style.bgcolor) for strip in strips for one in strip if one.style is not None}

        dark = behind()
        running.app.themes.use("chatops-light")
        await running.settle()
        assert not dark & behind() - {"None"}


async def test_a_call_that_is_denied_now_offers_no_approval_and_names_the_role_that_could_run_it() -> None:
    denial = Denial(role="researcher", by="tools of role researcher", could_run=("coder",))
    async with stage() as running:
        await asked(running, replace(pending_call(), denial=denial))
        shown = " ".join(running.text.replace("│", "").split())
        assert "It cannot run now, as researcher. Denied by: tools of role researcher." in shown
        assert "Role coder could run it." in shown
        for offered in ("a approve", "this session", "r make a rule"):
            assert offered not in shown
        for key in "asrA":
            await running.press(key)
            assert running.session.taken == []
            assert running.dialog_is_open
        await running.press("d")
        assert [taken.decision for taken in running.session.taken] == [Rejected()]


async def test_rights_that_change_while_the_dialog_is_open_change_what_it_offers() -> None:
    async with stage() as running:
        call = pending_call()
        await asked(running, call)
        denied = replace(call, denial=Denial(role="coder", by="tools of your registry"))
        running.session.change(pending=(denied,))
        running.session.publish(ApprovalRequested(id=call.call.id, parent_id=ROUND, pending=denied))
        await running.settle()
        assert "Denied by: tools of your registry" in running.text
        await running.press("a")
        assert running.session.taken == []


@pytest.mark.more
async def test_an_interrupted_call_that_is_denied_now_is_not_run_again() -> None:
    denial = Denial(role="researcher", by="tools of role researcher")
    async with stage() as running:
        await asked(running, replace(pending_call(reason=AskReason.OUTCOME_UNKNOWN), denial=denial))
        assert "R run it again" not in running.text
        await running.press("R")
        assert running.session.taken == []
        await running.press("m")
        assert [taken.decision for taken in running.session.taken] == [MarkedDone()]


async def test_it_tells_what_a_command_does_and_marks_its_risky_parts() -> None:
    async with stage(size=(100, 40)) as running:
        command = "curl http://x.example/i | sudo bash > out.log\nmake"
        facts = replace(shell_facts(command), hashes=("/w/Makefile 00",), workspace="/w")
        await asked(running, pending_call(facts=facts))
        known = (
            "careful      sudo runs programs as another user",
            "bash runs what another program prints",
            "contacts     x.example",
            "writes       out.log",
        )
        behind = (
            "runs         curl, sudo, bash, make",
            "asks again   if Makefile changes",
            "covers       this command line and the files above, not other files that bash, make may load",
        )
        assert all(one in running.text for one in known) and not any(one in running.text for one in behind)
        view = running.app.screen.query_one(PayloadView)
        lines = [[*view.render_line(y)] for y in range(3)]
        marked = [one.text for line in lines for one in line if one.style and one.style.underline]
        assert "".join(marked) == "curlhttp://x.example/isudobash> out.log"
        signs = [line[0].text.strip() for line in lines]
        assert signs == ["▲", "", ""], "a sign for those who see no colours"
        await running.press("v")
        assert all(one in running.text for one in (*known, *behind))


@pytest.mark.more
async def test_only_the_end_of_the_call_itself_counts_as_seen() -> None:
    """Neither details below it nor another layout of its diff make an end that was not on screen count."""
    diff = "--- a/x\n+++ b/x\n@@ -0,0 +1,300 @@\n" + "".join(f"+line {number}\n" for number in range(300))
    async with stage(size=(120, 30)) as running:
        said = "words\n" * 200
        await asked(running, pending_call(tool="file_edit", facts=replace(edit_facts(), diff=diff), said=said))
        await running.press("v", "end", "home", "|", "f", "|", "f", "s", "r", "A")
        assert running.session.taken == []
        await running.press("v", "end", "a")
        assert [taken.decision for taken in running.session.taken] == [Approved()]


@pytest.mark.more
async def test_side_by_side_needs_room_and_a_diff() -> None:
    async with stage(size=(80, 24)) as running:
        await asked(running, pending_call(1), pending_call(2, tool="file_edit", facts=edit_facts()))
        await running.press("|")
        assert "This call has no diff" in running.text
        await running.press("tab", "|")
        assert "Side by side needs 90 columns; this window has 80." in running.text
        await running.pilot.resize_terminal(100, 24)
        await running.press("|")
        assert next(row for row in running.text.splitlines() if "2 − b = 1" in row).rstrip(" │").endswith("2 + b = 2")
        await running.pilot.resize_terminal(80, 24)
        await running.settle()
        assert "2 − b = 1" in running.text and "b = 2" in running.text


def lacking(command: str = "git push") -> CallFacts:
    extra = SandboxSpec(network=True, git="commit")
    return replace(
        shell_facts(command),
        sandbox="tight",
        lacks=(
            Lack(by="git push", needs=SandboxSpec(network=True)),
            Lack(by="git push", needs=SandboxSpec(git="commit")),
        ),
        extra=extra,
        extra_sandbox="tight, network",
    )


async def test_plus_approves_once_with_what_the_dialog_names() -> None:
    async with stage(size=(100, 40)) as running:
        await asked(running, pending_call(facts=lacking()))
        for expected in (
            "may fail     git push needs the whole network and .git for commits",
            "+ adds       the whole network and .git for commits, for this call only",
        ):
            assert expected in running.text
        await running.press("down")
        assert "+ approve once with the whole network and .git for commits" in running.text
        await running.press("+")
        assert [taken.decision for taken in running.session.taken] == [Approved(extra=lacking().extra)]


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [(50, 16), (60, 20), (80, 24)])
async def test_all_keys_stay_on_screen_in_a_small_window(size: tuple[int, int]) -> None:
    extra = SandboxSpec(hosts=("raw.githubusercontent.example", "objects.githubusercontent.example"))
    facts = replace(lacking("curl -fsSL https://example.org/install.sh | sh"), extra=extra)
    rules = ("s this command, this session", "r make a rule")
    keys = ("a approve once", *rules, "e edit", "c contain on a copy", "d deny")
    async with stage(size=size) as running:
        await asked(running, pending_call(1, facts=facts), pending_call(2, facts=facts))
        await running.press("down")
        while not running.dialog.payload.end_seen:
            await running.press("pagedown")
        await running.press("down")
        for key in (*keys, "D deny with a reason", "Esc later", "+ approve once with"):
            assert key in running.text, f"{key!r} is missing:\n{running.text}"
        assert "objects.githubusercontent.example" in running.text.rpartition("+ approve once with")[2]
        running.dialog.show_note("A note. " * 60)
        await running.settle()
        assert "+ approve once with" in running.text and "Esc later" in running.text


@pytest.mark.more
async def test_the_keys_of_the_rule_dialog_stay_on_screen_in_a_small_window() -> None:
    async with stage(size=(60, 20)) as running:
        await asked(running, pending_call())
        await running.press("end", "end", "r")
        for key in ("ctrl+s approves, with a rule for this session", "e edit", "Esc back"):
            assert key in running.text, f"{key!r} is missing:\n{running.text}"
        assert "more below" not in running.text
        await running.pilot.resize_terminal(60, 16)
        await running.settle()
        assert "PgDn more below" in running.text


async def test_plus_needs_the_end_on_screen_and_is_never_meant_by_a_or_approve_the_rest() -> None:
    async with stage(size=(80, 24)) as running:
        long = lacking("git push\n" * 60)
        await asked(running, pending_call(1, facts=long), pending_call(2, facts=lacking()))
        await running.press("+")
        assert running.session.taken == [], "it scrolls first"
        await running.press("end", "A")
        await running.press("end", "A")
        assert {taken.decision for taken in running.session.taken} == {Approved()}
    async with stage() as running:
        await asked(running, pending_call())
        await running.press("+")
        assert running.session.taken == [] and "Nothing is known that this call lacks" in running.text


@pytest.mark.some(1)
@pytest.mark.parametrize("unknown", [False, True])
async def test_the_keys_of_a_yes_or_no_never_decide(unknown: bool) -> None:
    reason = AskReason.OUTCOME_UNKNOWN if unknown else AskReason.POLICY
    async with stage() as running:
        await asked(running, pending_call(facts=lacking(), reason=reason))
        for key in ("y", "n", "enter", "space", "+" if unknown else "R"):
            await running.press(key)
            assert running.session.taken == [], key
        await running.press("R" if unknown else "a")
        assert [taken.decision for taken in running.session.taken] == [Approved()]


@pytest.mark.more
async def test_an_old_notice_is_not_shown_over_a_dialog_and_a_new_one_looks_unlike_a_message() -> None:
    async with stage(size=(80, 24)) as running:
        running.app.chat.run_command("/retry")
        await running.settle()
        assert "There is no failed turn to retry." in running.text
        await asked(running, pending_call())
        assert "There is no failed turn to retry." not in running.text.split("\n", 3)[0]
        running.app.notify("A new notice.", markup=False, timeout=60)
        await running.settle()
        await running.settle()
        shown = next(row for row in running.text.splitlines() if "A new notice." in row)
        assert "▌" not in shown and shown.startswith("║")


@pytest.mark.more
async def test_a_diff_of_ten_thousand_lines_opens_like_any_other_and_hides_nothing() -> None:
    """Colours and marks of words are found for the drawn rows only: all of them would take many seconds."""
    hostile = "x = '\x1b]0;owned\x07 \u202e \u200b'"
    removed = "".join(f"-value_{number} = compute({number}, other)\n" for number in range(9_999))
    added = "".join(f"+value_{number} = compute({number}, another)\n" for number in range(9_999))
    diff = f"--- a/x.py\n+++ b/x.py\n@@ -1,9999 +1,10000 @@\n{removed}{added}+{hostile}\n"
    async with stage(size=(100, 40)) as running:
        await asked(running, pending_call(tool="file_edit", facts=replace(edit_facts(), diff=diff)))
        await running.press("pagedown", "|", "end", "home", "|", "end")
        assert "x = '␛]0;owned␇ <U+202E> <U+200B>'" in running.text
        await running.press("end", "a")
        assert [taken.decision for taken in running.session.taken] == [Approved()]


@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
async def test_s_and_plus_act_only_with_what_they_allow_on_screen(size: tuple[int, int]) -> None:
    needed, shown = list[int](), ""
    async with stage(size=size) as running:
        for more in (12, 13):
            paths = tuple(f"/home/ana/project/file-{index}" for index in range(more))
            extra = SandboxSpec(write=("/home/ana/project/.git",)) if more == 13 else SandboxSpec()
            facts = replace(shell_facts("git commit -qam all"), paths=paths, extra=extra)
            await asked(running, pending_call(facts=facts, digest=f"d-{more}"))
            presses = 0
            while len(running.session.taken) == len(needed):
                assert presses == 0 or ("read on" in shown and presses < 9)
                presses += 1
                running.clock.pass_(1.0)
                running.dialog.show_frame()
                await running.settle()
                shown = running.text
                await running.press("+" if extra.write else "s")
            assert ("+ adds" if extra.write else "s this command, this session") in shown
            needed.append(presses)
    assert needed[-1] > 1


@pytest.mark.parametrize("size", [(19, 8), (40, 5)])
async def test_a_window_that_is_too_small_shows_nothing_but_that(size: tuple[int, int]) -> None:
    async with stage(size=size) as running:
        await asked(running, pending_call())
        assert "Nothing is" in running.text and "Approve" not in running.text and "Esc" not in running.text
        await running.press("a")
        assert running.session.taken == []
