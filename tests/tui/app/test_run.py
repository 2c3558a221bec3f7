"""A run of a workflow on screen: its panel, its dialog key by key, `/workflow`, and what a run does not let one do."""

import asyncio

import pytest
from textual.events import Paste

from chatops.domain.errors import AlreadyDecidedError, ChatopsError, ConfigError
from chatops.domain.ids import SessionId
from chatops.engine.workflow.inputs import Accept, Review, Skip, StopRun, TryAgain
from chatops.policy.workflow import OnFail
from chatops.tui.dialogs.picker import Picker
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.review import ReviewScreen
from chatops.tui.dialogs.text import TextScreen
from chatops.tui.screens import chat
from chatops.tui.workflow import PanelShape, WorkflowPanel, shape_for
from chatops.wiring.rows import RunRow, WorkflowRow
from tests.support.cases import for_each
from tests.support.runs import RUN, flow, step
from tests.tui.app.fake_run import FakeRun, RunSession
from tests.tui.app.fakes import SESSION, FakeSession, FakeWorkspace
from tests.tui.app.scenes import assembly, busy, discovered, failed, gated, on_stage, to_review, worked
from tests.tui.app.support_app import Stage, stage


def panel(running: Stage) -> WorkflowPanel:
    return running.app.chat.query_one(WorkflowPanel)


def asks(running: Stage) -> bool:
    return isinstance(running.app.screen, ReviewScreen)


def notifications(running: Stage) -> str:
    """Return the notices shown."""
    return " ".join(one.message for one in running.app._notifications)


async def send(running: Stage, text: str) -> None:
    running.app.chat.composer.set_text(text)
    await running.settle()
    await running.press("enter")


# the panel


async def test_the_run_goes_on_once_the_screen_listens_and_every_turn_is_shown() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, discovered) as running:
        assert run.gone_on == 1
        assert "▸ 2 configure" in running.text
        await running.pilot.resize_terminal(80, 60)
        await running.settle()
        assert "▸ Step 1: discover" in running.text
        assert "▸ Step 2: configure" in running.text


async def test_a_session_that_is_no_run_has_no_panel() -> None:
    async with stage() as running:
        assert not running.app.chat.query(WorkflowPanel)
        await running.press("ctrl+t", "ctrl+l")
        assert running.app.screen is running.app.chat


@pytest.mark.more
async def test_the_clock_ticks_only_while_the_run_works() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, discovered) as running:
        await worked(running, 30)
        assert "0:42" in running.text
        gated_run = run.play
        gated_run.gives_up("no")
        await running.settle()
        gated_run.replies("", ("shell_exec", {"command": "make"}))
        await running.settle()
        await running.press("escape")
        await worked(running, 500)
        assert "0:4" in running.text.splitlines()[0], "a user who thinks costs the run no time"
        gated_run.approves()
        await running.settle()
        await worked(running, 20)
        assert "1:0" in running.text.splitlines()[0]


async def test_pieces_of_text_do_not_draw_the_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkflowPanel, "tick", lambda self, *, second: None)
    run = FakeRun(assembly())
    async with on_stage(run, discovered) as running:
        drawn = 0
        draw = panel(running).draw

        def counted() -> None:
            nonlocal drawn
            drawn += 1
            draw()

        panel(running).draw = counted  # type: ignore[method-assign]
        # A timer draws everything once more after the screen has opened. It is due before this wait ends.
        await asyncio.sleep(3 * chat._RESULT_HANDLED_S)
        await running.settle()
        drawn = 0
        for number in range(50):
            run.session.say(f"word {number} ")
        await running.settle()
        assert drawn == 0
        run.play.gives_up("no")
        await running.settle()
        assert 0 < drawn <= 2, "many events of one moment are drawn together, and once more if the panel has grown"


async def test_ctrl_t_folds_the_panel_to_one_line_and_opens_it_again() -> None:
    async with on_stage(FakeRun(assembly()), busy) as running:
        assert panel(running).size.height > 4
        await running.press("ctrl+t")
        assert panel(running).size.height == 1
        await running.press("ctrl+t")
        assert panel(running).size.height > 4


@for_each(
    ("size", "opened", "shape"),
    [
        ((120, 40), None, PanelShape.BESIDE),
        ((120, 20), None, PanelShape.ABOVE),
        ((80, 24), None, PanelShape.ABOVE),
        ((40, 12), None, PanelShape.LINE),
        ((40, 12), True, PanelShape.ABOVE),
        ((120, 40), False, PanelShape.LINE),
    ],
)
def test_the_panel_stands_where_there_is_room(size: tuple[int, int], opened: bool | None, shape: PanelShape) -> None:
    assert shape_for(*size, opened=opened) is shape


@pytest.mark.more
async def test_another_size_puts_the_panel_elsewhere() -> None:
    async with on_stage(FakeRun(assembly()), busy, size=(80, 24)) as running:
        assert panel(running).size.width > 70
        await running.pilot.resize_terminal(140, 40)
        await running.settle()
        assert panel(running).has_class("-beside")
        assert panel(running).size.width < 50
        await running.pilot.resize_terminal(40, 12)
        await running.settle()
        assert panel(running).size.height == 1


@pytest.mark.more
async def test_a_click_on_a_step_shows_what_it_gave_and_one_beside_folds() -> None:
    async with on_stage(FakeRun(assembly()), busy) as running:
        await running.pilot.click(WorkflowPanel, offset=(5, 1))
        await running.settle()
        assert isinstance(running.app.screen, TextScreen)
        assert "components:" in running.text
        await running.press("escape")
        await running.pilot.click(WorkflowPanel, offset=(2, 0))
        await running.settle()
        assert panel(running).size.height == 1


# what steps gave


@pytest.mark.more
async def test_outputs_open_by_key_and_by_name_and_nothing_in_them_acts() -> None:
    run = FakeRun(flow(step("find"), step("make")))
    async with on_stage(run) as running:
        run.play.answers({"found": "\x1b]0;owned\x07[b]bold[/b]"})
        await running.settle()
        await running.press("ctrl+l", "up", "enter")
        assert isinstance(running.app.screen, TextScreen)
        assert "[b]bold[/b]" in running.text
        assert "\x1b" not in running.text
        await running.press("escape")
        await send(running, "/workflow show find")
        assert "Step 1: find" in running.text
        await running.press("escape")
        await send(running, "/workflow show 2")
        assert "Step 2: make" in running.text
        await running.press("escape")
        await send(running, "/workflow show")
        assert isinstance(running.app.screen, Picker)


# the review dialog


@pytest.mark.more
async def test_what_waits_for_a_word_asks_by_itself_and_no_key_acts_in_the_first_half_second() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, failed) as running:
        assert asks(running)
        await running.type_fast("r", "s", "X")
        assert run.said == []
        assert running.draft == "rsX", "typed ahead belongs to the message"
        running.clock.pass_(0.45)
        await running.pilot.press("r")
        assert run.said == []
        running.clock.pass_(1.0)
        await running.press("r")
        assert run.said == [TryAgain()]
        assert not asks(running)


@pytest.mark.some(1)
@pytest.mark.parametrize(("key", "word"), [("r", TryAgain()), ("s", Skip()), ("X", StopRun())])
async def test_one_key_says_one_word_about_a_failed_step(key: str, word: Review) -> None:
    run = FakeRun(assembly())
    async with on_stage(run, failed) as running:
        await running.press(key)
        assert run.said == [word]
        assert not asks(running)


@pytest.mark.more
async def test_other_keys_say_nothing_and_a_paste_goes_to_the_message() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, failed) as running:
        for key in ("enter", "space", "tab", "x", "R", "S", "a", "A", "y", "k", "ctrl+s"):
            await running.press(key)
            assert run.said == [], key
        running.app.post_message(Paste("r\nX\n"))
        await running.settle()
        assert run.said == []
        assert running.draft.endswith("r\nX\n")
        await running.press("r")
        assert run.said == [TryAgain()], "and the dialog was taking keys all the time"


@pytest.mark.more
async def test_a_step_that_may_not_be_skipped_is_not() -> None:
    run = FakeRun(flow(step("only", on_fail=OnFail.ASK, max_attempts=1), step("next")))
    async with on_stage(run) as running:
        run.play.gives_up("no key")
        await running.settle()
        await running.press("s")
        assert run.said == []
        assert "does not let this step be skipped" in running.text
        assert "s skip" not in running.text


@pytest.mark.more
async def test_an_edited_input_is_told_to_the_next_attempt() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, failed) as running:
        await running.press("e")
        assert isinstance(running.app.screen, Question)
        await running.answer("  The stage is free now.\nTry it.  ", "ctrl+s")
        assert run.said == [TryAgain(told="The stage is free now.\nTry it.")]
        assert "The stage is free now." in run.state.told
        await running.settle()
        assert "attempt 3" in running.text


@pytest.mark.more
async def test_a_question_that_is_left_says_nothing() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, failed) as running:
        await running.press("e", "escape")
        assert asks(running)
        assert run.said == []


@pytest.mark.more
async def test_an_answer_is_accepted_only_when_its_end_has_been_on_screen() -> None:
    run = FakeRun(flow(step("write", review=True), step("tell")))
    async with on_stage(run) as running:
        run.play.answers({"lines": [f"line {number}" for number in range(60)]})
        await running.settle()
        assert asks(running)
        await running.press("home")
        presses = 0
        while not run.said:
            assert "more line" in running.text or presses > 1
            await running.press("a")
            presses += 1
            assert presses < 20
        assert presses > 2
        assert run.said == [Accept()]


@pytest.mark.more
async def test_a_refused_answer_goes_back_with_the_reason() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, to_review) as running:
        await running.press("s")
        assert run.said == [], "what is under review cannot be skipped"
        await running.press("r")
        await running.answer("Say it shorter.", "ctrl+s")
        assert run.said == [TryAgain(told="Say it shorter.")]


@pytest.mark.more
async def test_later_leaves_it_waiting_with_a_banner_and_ctrl_g_brings_it_back() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, to_review) as running:
        await running.press("escape")
        assert not asks(running)
        assert "Step report to review – ctrl+g" in running.text
        await worked(running, 5)
        assert not asks(running), "it does not open again by itself"
        await running.press("ctrl+g")
        assert asks(running)
        await running.press("end", "a")
        assert run.said == [Accept()]
        assert "ctrl+g" not in running.text


@pytest.mark.more
async def test_a_word_said_elsewhere_closes_the_dialog_with_its_question() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, failed) as running:
        await running.press("e")
        run.elsewhere = "skipped by uid 7 (ben)"
        run.play.reviews(Skip())
        await running.settle()
        assert "Decided elsewhere" in running.text
        assert "(ben)" in running.text
        await running.press("escape")
        assert running.app.screen is running.app.chat
        assert run.said == []


async def test_the_first_decider_is_shown_after_the_dialog_has_closed() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, failed) as running:
        run.refuse = AlreadyDecidedError("Step discover was skipped by uid 7 (ben); the first review counts.")
        # Nobody has heard of it here yet.
        run.play.listener = lambda event: None
        run.play.reviews(Skip())
        await running.press("r")
        assert running.app.screen is running.app.chat
        assert "(ben)" in running.text


async def test_a_word_that_cannot_be_kept_is_told_and_can_be_said_again() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, failed) as running:
        run.refuse = ChatopsError("The disk is full.", advice="Free some space.")
        await running.press("r")
        assert asks(running)
        assert "The disk is full. Free some space." in running.text
        run.refuse = None
        await running.press("r")
        assert run.said == [TryAgain()]


@pytest.mark.more
async def test_escape_stops_the_answer_and_asks_how_it_goes_on() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, discovered) as running:
        await running.press("escape")
        assert run.session.cancelled == 1
        assert asks(running)
        assert "Step configure was stopped" in running.text
        await running.press("r")
        assert run.said == [TryAgain()]


async def test_an_approval_inside_a_step_is_the_ordinary_dialog() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, gated) as running:
        assert running.dialog_is_open
        await running.press("v", "end")
        assert "without a model" in running.text
        await running.press("a")
        assert not running.dialog_is_open
        assert "▸ 2 configure" in running.text


# what a run does not let one do


@pytest.mark.some(1)
@pytest.mark.parametrize("text", ["/role", "/model", "/persona"])
async def test_role_model_and_persona_are_the_steps_own(text: str) -> None:
    async with on_stage(FakeRun(assembly()), discovered, size=(120, 30)) as running:
        await send(running, text)
        assert running.app.screen is running.app.chat
        assert "The steps of workflow assembly set" in running.text


async def test_leaving_a_turn_after_the_run_has_ended_speaks_of_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(assembly())
    async with on_stage(run, discovered) as running:
        await run.cancel()
        await running.settle()
        assert run.over
        monkeypatch.setattr(RunSession, "snapshot", FakeSession.snapshot)
        run.session.start_turn("and then?")
        await running.press("ctrl+q")
        assert "A turn is running. ctrl+q again" in " ".join(running.text.split()) and not run.session.closed


async def test_a_session_whose_run_has_ended_is_not_called_a_run_while_it_is_resumed() -> None:
    run = FakeRun(assembly())
    run.play.begin()
    discovered(run)
    await run.cancel()
    run.until = asyncio.Event()
    workspace = FakeWorkspace(led=[run], others={RUN: run.session})
    async with stage(workspace=workspace, size=(100, 30)) as running:
        running.app.chat.composer.set_text(f"/resume {RUN}")
        await running.app._press_keys(["enter"])
        while not run.gone_on:
            await running.pilot.pause()
        await running.app._press_keys(["ctrl+g"])
        await running.pilot.pause()
        assert "The session is being resumed." in running.text
        run.until.set()
        await running.settle()


async def test_ctrl_r_is_refused_with_the_sentence_until_the_run_is_over() -> None:
    run = FakeRun(flow(step("only")))
    async with on_stage(run, size=(120, 30)) as running:
        await running.press("ctrl+r")
        assert running.app.screen is running.app.chat
        assert "The steps of workflow release set" in running.text
        run.play.answers("done")
        await running.settle()
        assert len(panel(running)._lines) == 1, "a run that is over folds"
        await running.press("ctrl+t")
        assert len(panel(running)._lines) > 1
        await running.press("ctrl+r")
        assert isinstance(running.app.screen, Picker)


async def test_what_is_typed_while_a_run_leads_is_kept() -> None:
    async with on_stage(FakeRun(assembly()), discovered) as running:
        await send(running, "and then?")
        assert "Queued until this run ends. Up takes back the last:\n ❯ and then?" in running.text


async def test_a_failed_attempt_is_not_tried_again_as_a_turn_of_a_chat() -> None:
    run = FakeRun(flow(step("only", max_attempts=1)))
    async with on_stage(run) as running:
        run.play.gives_up("no key")
        await running.settle()
        await running.press("R")
        assert running.draft == "R"
        assert "Press R" not in running.text
        assert (run.session.retried, run.retried) == (0, 0)


async def test_what_keeps_the_run_from_going_on_is_shown_and_r_tries_again() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, discovered) as running:
        run.stuck = ConfigError("There is no role coder.", advice="Roles: reader.")
        await worked(running, 0)
        assert "blocked" in running.text
        assert "There is no role coder. Roles: reader. Press R to try again." in running.text
        await running.press("R")
        assert (run.retried, run.session.retried) == (1, 0)


@pytest.mark.more
async def test_no_dialog_opens_before_the_run_is_resumed_or_while_it_is_blocked() -> None:
    run = FakeRun(assembly())
    run.play.begin()
    gated(run)
    run.until = asyncio.Event()
    workspace = FakeWorkspace(led=[run], others={RUN: run.session})
    async with stage(workspace=workspace, size=(100, 30)) as running:
        running.app.chat.composer.set_text(f"/resume {RUN}")
        await running.app._press_keys(["enter"])
        while not run.gone_on:
            await running.pilot.pause()
        running.clock.pass_(5)
        await running.app._press_keys(["ctrl+g"])
        await running.pilot.pause()
        assert not running.dialog_is_open
        assert "The run is being resumed." in running.text
        run.stuck = ConfigError("There is no role coder.", advice="Roles: reader.")
        run.until.set()
        await running.settle()
        assert not running.dialog_is_open, "approved now, the call would be judged by rights that are not there"
        assert "blocked" in running.text
        await running.press("ctrl+g")
        assert not running.dialog_is_open
        await running.press("R")
        assert run.retried == 1
        await worked(running, 1)
        assert running.dialog_is_open


# /workflow


async def test_a_workflow_is_chosen_from_a_list_and_its_command_is_written() -> None:
    workspace = FakeWorkspace(
        known=[
            WorkflowRow(name="release", steps=("find", "make"), description="Ship it"),
            WorkflowRow(name="broken", problem="flow.yaml, line 3: no steps"),
        ]
    )
    async with stage(workspace=workspace) as running:
        await send(running, "/workflow")
        assert isinstance(running.app.screen, Picker)
        assert "release  find → make" in running.text and "Ship it" in running.text
        assert "broken   cannot be used" in running.text
        await running.press("enter")
        assert running.draft == "/workflow run release "
        await send(running, "/workflow")
        await running.press("down", "enter")
        assert isinstance(running.app.screen, TextScreen)
        assert "Workflow broken cannot run" in running.text and "flow.yaml, line 3: no steps" in running.text
        assert not workspace.begun


async def test_a_run_that_was_left_is_chosen_from_the_same_list() -> None:
    run = FakeRun(assembly())
    left = [RunRow(id=RUN, title="release: ship it", state="make: to review", when="today 10:15")]
    async with stage(workspace=FakeWorkspace(led=[run], others={RUN: run.session}, left=left)) as running:
        await send(running, "/workflow")
        assert "resume  release: ship it" in running.text and "make: to review, today 10:15" in running.text
        await running.press("enter")
        assert run.gone_on == 1


async def test_a_new_run_starts_and_shows_what_was_asked() -> None:
    run = FakeRun(assembly())
    run.until = asyncio.Event()
    workspace = FakeWorkspace(led=[run], others={"run": run.session})
    async with stage(workspace=workspace, size=(120, 30)) as running:
        running.app.chat.composer.set_text("/workflow run assembly ship it")
        await running.app._press_keys(["enter"])
        while not run.gone_on:
            await running.pilot.pause()
        running.app.chat.update_now()
        await running.pilot.pause()
        assert "The run is starting." in running.text and "resumed" not in running.text
        run.until.set()
        await running.settle()
        assert "The run is starting." not in running.text
        assert "▌ ship it" in running.text
        assert "· Run of workflow assembly started. Steps: discover, configure, deploy," in running.text


async def test_workflow_run_opens_a_session_of_its_own_and_keeps_the_previous_one() -> None:
    run, before = FakeRun(assembly()), FakeSession()
    workspace = FakeWorkspace(led=[run], others={"run": run.session})
    async with stage(before, workspace=workspace, size=(120, 30)) as running:
        await send(running, "/workflow run assembly ship it\nto the stage")
        assert workspace.begun == [("assembly", "ship it\nto the stage")]
        assert run.gone_on == 1
        assert before.closed
        assert "Step 1: discover" in running.text
        assert f"/resume {SESSION}" in notifications(running)
        assert "assembly" in running.text


@pytest.mark.more
async def test_leaving_a_run_lets_go_of_it_and_keeps_its_times_and_coming_back_shows_them() -> None:
    run = FakeRun(assembly())
    workspace = FakeWorkspace(led=[run], others={"new": FakeSession(), RUN: run.session})
    async with stage(run.session, workspace=workspace) as running:
        await running.settle()
        await worked(running, 12)
        await send(running, "/new")
        assert run.closed
        assert workspace.begun_in == [""], "the step's role stays with the run"
        assert not running.app.chat.query(WorkflowPanel)
        assert workspace.user.step_times(RUN)[0] == pytest.approx(12, abs=3)
        await send(running, f"/resume {RUN}")
        assert len(running.app.chat.query(WorkflowPanel)) == 1
        assert "0:1" in running.text.splitlines()[0]


@pytest.mark.more
async def test_workflow_resume_opens_the_run_that_was_left_last() -> None:
    run = FakeRun(assembly())
    left = [RunRow(id=RUN, title="", state="", when=""), RunRow(id=SessionId("x"), title="", state="", when="")]
    workspace = FakeWorkspace(led=[run], others={RUN: run.session}, left=left)
    async with stage(workspace=workspace) as running:
        await send(running, "/workflow resume")
        assert run.gone_on == 1
        await send(running, "/workflow resume")
        assert "The run is already in progress." in running.text


@pytest.mark.more
async def test_workflow_resume_in_a_run_that_waits_brings_the_question_back() -> None:
    async with on_stage(FakeRun(assembly()), to_review) as running:
        await running.press("escape")
        await send(running, "/workflow resume")
        assert asks(running)


@pytest.mark.more
async def test_workflow_cancel_ends_the_run_and_says_so() -> None:
    run = FakeRun(assembly())
    async with on_stage(run, discovered) as running:
        await send(running, "/workflow cancel")
        assert run.over
        assert "Run ended: cancelled." in running.text
        await send(running, "/workflow cancel")
        assert "This run has already ended." in running.text


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/workflow run", "/workflow run NAME QUERY"),
        ("/workflow run assembly", "/workflow run NAME QUERY"),
        ("/workflow dance", "/workflow knows run, show, resume, cancel"),
        ("/workflow show 1", "This session is not a workflow run"),
        ("/workflow cancel", "This session is not a workflow run"),
        ("/workflow resume", "This workspace has no unfinished run"),
        ("/workflow resume nobody", "There is no session nobody"),
    ],
)
async def test_a_command_that_does_nothing_says_why_and_gives_the_text_back(text: str, said: str) -> None:
    async with stage(size=(120, 30)) as running:
        await send(running, text)
        assert said in notifications(running)
        assert running.draft == text


@pytest.mark.more
async def test_errors_of_a_definition_are_shown_with_their_places_and_the_words_come_back() -> None:
    problems = "flow.yaml, line 3, column 5 (steps.0.tools): unknown tool.\nflow.yaml, line 9, column 1: no role."
    workspace = FakeWorkspace(refuse=ConfigError(problems, advice="Correct the workflow; nothing of it was run."))
    async with stage(workspace=workspace, size=(120, 30)) as running:
        await send(running, "/workflow run flow precious words")
        assert isinstance(running.app.screen, TextScreen)
        assert "flow.yaml, line 3, column 5 (steps.0.tools): unknown tool." in running.text
        assert notifications(running) == "", "nothing lies on top of it"
        await running.press("escape")
        assert running.draft == "/workflow run flow precious words"


@pytest.mark.more
async def test_a_step_that_the_run_does_not_have_is_not_shown() -> None:
    async with on_stage(FakeRun(assembly()), discovered, size=(120, 30)) as running:
        for name in ("nobody", "0", "5"):
            await send(running, f"/workflow show {name}")
            missing = f"This run has no step '{name}'. Its steps: discover, configure, deploy, report."
            assert missing in notifications(running)
            assert running.app.screen is running.app.chat
            running.app.chat.composer.take_text()


@pytest.mark.more
async def test_names_complete_after_the_command() -> None:
    workspace = FakeWorkspace(
        known=[
            WorkflowRow(name="release", steps=("a",), description="Ship\u202eit"),
            WorkflowRow(name="broken", problem="no steps"),
            WorkflowRow(name="research", steps=("b",)),
        ]
    )
    async with stage(workspace=workspace) as running:
        await running.type_fast(*"/workflow r")
        assert "start a workflow" in running.text
        await running.type_fast(*"un re")
        assert "> release" in running.text
        assert "research" in running.text
        assert "broken" not in running.text
        assert "\u202e" not in running.text
        await running.press("down", "tab")
        assert running.draft == "/workflow run research "
        await running.type_fast(*"find it")
        assert running.draft == "/workflow run research find it"


@pytest.mark.more
async def test_a_command_that_is_written_out_runs_at_once_though_more_is_offered() -> None:
    workspace = FakeWorkspace(known=[WorkflowRow(name="release", steps=("a",))])
    async with stage(workspace=workspace) as running:
        await running.type_fast(*"/workflow ")
        await running.press("enter")
        assert isinstance(running.app.screen, Picker)
        await running.press("escape")
        await running.type_fast(*"/workflow cancel")
        await running.press("enter")
        assert "This session is not a workflow run" in running.text


@pytest.mark.more
async def test_the_session_picker_opens_a_run_with_its_panel() -> None:
    run = FakeRun(assembly())
    workspace = FakeWorkspace(led=[run], others={SESSION: run.session})
    async with stage(FakeSession(), workspace=workspace) as running:
        running.session.change(session_id=SessionId("other"))
        await running.app.chat.open_sessions()
        await running.settle()
        await running.press("enter")
        assert len(running.app.chat.query(WorkflowPanel)) == 1
