"""State of a run, as values and as lines, from runs of the real machines."""

from chatops.domain.tools import Outcome
from chatops.domain.wording import readable
from chatops.engine.workflow.inputs import Accept, Skip, TryAgain
from chatops.engine.workflow.view import RunView, StepCheck, StepMark, StepView, run_view
from chatops.policy.workflow import CommandGate, OnFail, PatternGate, Subject, Validation
from chatops.tui.screens.run import StepClock
from chatops.tui.status import count
from chatops.tui.step_text import step_text
from chatops.tui.workflow import PanelLine, above, beside, clock, folded_line
from chatops.wiring.rows import RunRow, WorkflowRow, workflow_list
from tests.support.runs import RUN, Played, flow, step

BY_ID = Validation(tool="validate_full", subject=(Subject(argument="id", pointer="/id"),))
MINIMAL = Validation(tool="validate_minimal")
TESTS = CommandGate(name="tests", command="pytest -q")
TIDY = PatternGate(name="tidy", pattern="DRAFT", negated=True)
BAD = '{"valid": false, "errors": ["port: is missing"]}'


def three() -> Played:
    made = step("configure", validations=(MINIMAL, BY_ID), gates=(TIDY, TESTS), max_iterations=4, may_skip=True)
    return Played(flow(step("discover"), made, step("deploy"))).begin()


def seen(played: Played, *, seconds: tuple[float, ...] = (), problem: str = "") -> RunView:
    return run_view(played.state, [played.turn] if played.turn is not None else [], seconds=seconds, problem=problem)


def marks(view: RunView) -> list[str]:
    return [one.mark.value for one in view.steps]


def at_configure() -> Played:
    played = three()
    played.answers("a db")
    return played


# how it stands


def test_a_run_begins_at_its_first_step_and_the_others_wait() -> None:
    view = seen(three())
    assert marks(view) == ["running", "waiting", "waiting"]
    assert (view.workflow, view.word, view.at, view.working) == ("release", "running", 0, True)
    first = view.steps[0]
    assert (first.attempt, first.attempts, first.iteration, first.iterations) == (1, 3, 1, 10)
    assert first.tokens is None


def test_iterations_count_up_to_the_closing_call() -> None:
    played = at_configure()
    rounds = []
    for number in range(4):
        now = seen(played).steps[1]
        rounds.append((now.iteration, now.iterations, now.closing))
        played.calls("look", at=number)
    assert rounds == [(1, 4, False), (2, 4, False), (3, 4, False), (4, 4, False)]
    assert seen(played).steps[1].closing


def test_validations_are_named_with_how_they_stand() -> None:
    played = at_configure()
    assert seen(played).steps[1].validations == (
        StepCheck(name="validate_minimal", mark=StepMark.WAITING),
        StepCheck(name="validate_full", mark=StepMark.WAITING),
    )
    played.calls("validate_minimal")
    played.calls("validate_full", BAD, id="a")
    now = seen(played).steps[1]
    assert (now.passed, len(now.validations)) == (1, 2)
    assert now.failing == (StepCheck(name="validate_full", mark=StepMark.FAILED, about='id="a"'),)
    played.calls("configure")
    stale = seen(played).steps[1].failing
    assert [one.name for one in stale] == ["validate_minimal", "validate_full"]
    assert stale[0].about == "stale after configure"


def accepted_up_to_the_gate() -> Played:
    played = at_configure()
    played.calls("validate_minimal")
    played.calls("validate_full", id="a")
    played.answers({"id": "a"})
    return played


def test_a_gate_s_command_that_waits_for_a_user_is_asked_about() -> None:
    view = seen(accepted_up_to_the_gate())
    now = view.steps[1]
    assert (view.word, view.working, now.mark, now.word) == (
        "decision pending",
        False,
        StepMark.ASKING,
        "decision pending",
    )
    assert [(one.name, one.mark) for one in now.gates] == [("tidy", StepMark.DONE), ("tests", StepMark.ASKING)]
    assert now.passed == 2
    assert now.iteration == 0, "no model is at work"


def test_a_gate_that_does_not_pass_costs_an_attempt_and_the_next_one_begins_anew() -> None:
    played = accepted_up_to_the_gate()
    played.approves()
    assert [one.mark for one in seen(played).steps[1].gates] == [StepMark.DONE, StepMark.RUNNING]
    played.returns("1 failed", Outcome.FAILED)
    now = seen(played).steps[1]
    assert (now.attempt, now.attempts, now.mark) == (2, 3, StepMark.RUNNING)
    assert [one.mark for one in now.gates] == [StepMark.WAITING, StepMark.WAITING]
    assert now.refusal.startswith("attempt 1: ")
    assert "1 failed" in now.detail


def test_an_accepted_step_is_done_with_all_that_it_had_to_pass() -> None:
    played = accepted_up_to_the_gate()
    played.approves()
    played.returns("2 passed")
    view = seen(played)
    assert marks(view) == ["done", "done", "running"]
    done = view.steps[1]
    assert {one.mark for one in (*done.validations, *done.gates)} == {StepMark.DONE}
    assert done.detail == ""
    assert done.tokens == 3 * 1_234
    assert view.tokens == 4 * 1_234


def test_tokens_of_the_turn_under_way_count_and_are_not_counted_twice() -> None:
    played = three()
    played.calls("look")
    assert seen(played).tokens == seen(played).steps[0].tokens == 1_234
    played.answers("found")
    assert seen(played).tokens == 2 * 1_234


def test_the_turn_before_says_nothing_about_the_step_that_begins() -> None:
    played = three()
    played.calls("look")
    before = played.turn
    played.gives_up("no")
    view = run_view(played.state, [before] if before is not None else [])
    assert view.tokens == 2 * 1_234
    assert (view.steps[0].iteration, view.steps[0].attempt) == (1, 2)


def test_a_server_that_does_not_count_is_not_shown_as_nothing() -> None:
    played = three()
    played.replies("", ("look", {}), usage=None)
    assert seen(played).tokens is None


def test_what_waits_for_a_review_says_so_and_no_time_passes() -> None:
    played = Played(flow(step("write", review=True, gates=(TIDY,)), step("tell"))).begin()
    played.answers("a text")
    view = seen(played)
    assert (view.word, view.working, view.steps[0].word) == ("to review", False, "to review")
    assert [one.mark for one in view.steps[0].gates] == [StepMark.DONE]
    played.reviews(TryAgain(told="shorter"))
    assert marks(seen(played)) == ["running", "waiting"]
    played.answers("text")
    played.reviews(Accept())
    assert marks(seen(played)) == ["done", "running"]


def test_a_failed_step_says_why_and_a_skipped_one_too() -> None:
    asks = step("fail", on_fail=OnFail.ASK, max_attempts=1, may_skip=True)
    played = Played(flow(asks, step("tell"))).begin()
    played.gives_up("no key")
    view = seen(played)
    assert (view.steps[0].mark, view.steps[0].word, view.steps[0].detail) == (StepMark.FAILED, "failed", "no key")
    played.reviews(Skip())
    view = seen(played)
    assert (view.steps[0].mark, view.steps[0].detail) == (StepMark.SKIPPED, "no key")
    assert view.at == 1


def test_a_stopped_step_waits_for_a_word() -> None:
    played = three()
    played.stops()
    assert (seen(played).word, seen(played).steps[0].mark) == ("stopped", StepMark.ASKING)


def test_a_run_that_is_over_is_at_no_step() -> None:
    played = Played(flow(step("only", max_attempts=1))).begin()
    played.gives_up("no key")
    view = seen(played)
    assert (view.at, view.word, view.mark, marks(view)) == (None, "failed", StepMark.FAILED, ["failed"])
    ended = Played(flow(step("only"))).begin()
    ended.answers("good")
    assert (seen(ended).word, seen(ended).mark) == ("answered", StepMark.DONE)
    stopped = three()
    stopped.cancels()
    view = seen(stopped)
    assert (view.word, marks(view)) == ("cancelled", ["failed", "waiting", "waiting"])
    assert view.steps[0].word == "cancelled"


def test_trouble_is_shown_and_no_time_passes() -> None:
    view = seen(three(), problem="There is no role coder.")
    assert (view.word, view.working, view.problem) == ("blocked", False, "There is no role coder.")
    assert seen(accepted_up_to_the_gate(), problem="There is no role coder.").word == "blocked"
    over = three()
    over.cancels()
    assert seen(over, problem="There is no role coder.").word == "cancelled"


# its times


def test_only_the_step_at_work_collects_time() -> None:
    watch = StepClock(3)
    assert watch.follow(0, now=10)
    assert not watch.follow(0, now=12)
    assert watch.seconds(now=15) == (5, 0, 0)
    assert watch.follow(None, now=16)
    assert watch.seconds(now=99) == (6, 0, 0)
    watch.follow(1, now=100)
    assert watch.seconds(now=102.5) == (6, 2.5, 0)


def test_times_of_steps_that_are_gone_do_not_count() -> None:
    assert StepClock(2, (1.0, 2.0, 9.0)).seconds(now=0) == (1, 2)


def test_times_and_counts_in_words() -> None:
    assert [clock(one) for one in (0, 42.9, 725, 3723)] == ["0:00", "0:42", "12:05", "1:02:03"]
    assert [count(one) for one in (830, 12_400)] == ["830", "12.4k"]


# its lines


def text(lines: list[PanelLine]) -> str:
    return "\n".join(line.text.plain.rstrip() for line in lines)


def shapes(view: RunView, *, width: int, height: int) -> dict[str, list[PanelLine]]:
    return {
        "folded": [PanelLine(folded_line(view, width=width))],
        "above": above(view, width=width, height=height),
        "beside": beside(view, width=width, height=height),
    }


def busy() -> Played:
    played = at_configure()
    played.gives_up("The key is unknown.")
    played.calls("validate_minimal")
    played.calls("validate_full", BAD, id="a")
    return played


def test_one_line_says_where_the_run_is() -> None:
    view = seen(busy(), seconds=(12, 30, 0))
    line = folded_line(view, width=100).plain
    assert line.startswith("▸ release 2/3 configure · iteration 3/4 · 1/2 validated, 1 failing · 4.9k tokens")
    assert line.endswith(" 0:42")
    short = folded_line(view, width=36).plain
    assert short == "▸ release 2/3 configure         0:42"


def test_above_the_conversation_the_present_step_says_everything() -> None:
    shown = text(above(seen(busy(), seconds=(12, 30, 0)), width=80, height=12))
    assert shown == (
        "release  running · step 2 of 3 · 4.9k tokens · 0:42                 ctrl+t folds\n"
        "✓ 1 discover                                                        1.2k    0:12\n"
        "▸ 2 configure  attempt 2 of 3 · iteration 3/4                       3.7k    0:30\n"
        '    validations  ✓ validate_minimal  ✗ validate_full id="a"\n'
        "    gates  · tidy  · tests\n"
        "    attempt 1: The key is unknown.\n"
        "· 3 deploy"
    )


def test_no_line_is_wider_than_its_room_and_there_are_not_more_than_fit() -> None:
    many = Played(
        flow(*(step(f"a step with a rather long name {n}", validations=(MINIMAL,)) for n in range(30)))
    ).begin()
    for _ in range(12):
        many.calls("validate_minimal")
        many.answers("x" * 500)
    for played in (busy(), three(), many, accepted_up_to_the_gate()):
        for width in (20, 38, 60, 120):
            for height in (4, 8, 30):
                for name, lines in shapes(seen(played), width=width, height=height).items():
                    assert all(line.text.cell_length <= width for line in lines), (name, width)
                    assert len(lines) <= max(height, 7), (name, height)
    assert "▸ 13 a step" in text(beside(seen(many), width=38, height=14))
    assert "more steps" in text(beside(seen(many), width=38, height=14))


def test_nothing_in_a_name_or_a_reason_acts_or_hides() -> None:
    played = Played(flow(step("a\x1b[2Jb", on_fail=OnFail.ASK, max_attempts=1), name="x\u202ey")).begin()
    played.gives_up("no\x1b]0;owned\x07\nkey [b]bold[/b]")
    for lines in shapes(seen(played), width=70, height=20).values():
        shown = text(lines)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\x07" not in shown
    assert "[b]bold[/b]" in text(above(seen(played), width=90, height=20))


def test_a_click_on_a_step_knows_which_one() -> None:
    lines = beside(seen(busy()), width=38, height=30)
    steps = [line.step for line in lines if line.step is not None]
    assert sorted(set(steps)) == [0, 1, 2]


# its texts


def test_the_output_of_a_step_is_readable_and_all_its_attempts_are_told() -> None:
    played = at_configure()
    played.gives_up("no key")
    played.calls("validate_minimal")
    played.calls("validate_full", id="a")
    played.answers({"id": "a"})
    shown = step_text(played.state, seen(played).steps[1])
    assert "\n  id: a\n" in shown, "also while its gates are checked"
    assert "  attempt 1: failed, 1,234 tokens\n      no key" in shown
    assert "gates:       tidy (pattern), tests (pytest -q)" in shown


def test_a_skipped_last_step_has_no_output_although_the_run_has_an_answer() -> None:
    asks = step("tell", on_fail=OnFail.ASK, max_attempts=1, may_skip=True)
    played = Played(flow(step("discover"), asks)).begin()
    played.answers("a db")
    played.gives_up("no key")
    played.reviews(Skip())
    assert seen(played).word == "answered"
    first, last = (step_text(played.state, one) for one in seen(played).steps)
    assert "a db" in first
    assert "Output" not in last


def test_what_is_no_json_is_shown_as_it_is() -> None:
    assert readable("{oops") == "{oops"
    assert readable('"text"') == '"text"'
    assert readable('{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'


def test_the_list_names_workflows_runs_and_what_cannot_be_used() -> None:
    rows = [
        WorkflowRow(name="release", steps=("find", "make"), description="Ship it"),
        WorkflowRow(name="broken", problem="broken.json, line 3, column 5: no steps."),
    ]
    runs = [RunRow(id=RUN, title="release: ship it", state="make: to review", when="today 10:15")]
    shown = workflow_list(rows, runs, resumes="")
    assert "release: find → make\n  Ship it" in shown
    assert "broken\n  cannot be used: broken.json, line 3, column 5: no steps." in shown
    assert f"{RUN}   make: to review, today 10:15" in shown
    assert "None is defined." in workflow_list([], [], resumes="")


def test_a_step_view_without_validations_fails_none() -> None:
    assert StepView(number=1, name="x", mark=StepMark.WAITING).failing == ()
