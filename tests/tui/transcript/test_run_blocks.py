"""A workflow run looks the same in the transcript, followed live or read from the store."""

from collections.abc import Iterable

import pytest

from chatops.domain.events import Event, Notice, Published, TextDelta
from chatops.domain.model import FailureKind, ModelFailure
from chatops.domain.tools import Outcome
from chatops.engine.inputs import ModelFailureInput
from chatops.engine.replay import replay
from chatops.engine.state import AwaitingModel
from chatops.engine.view import pending_calls
from chatops.engine.workflow.inputs import Accept, Skip, StopRun, TryAgain
from chatops.policy.workflow import CommandGate, OnFail, Validation
from chatops.tui.theme import PLAIN
from chatops.tui.transcript.block_lines import can_open
from chatops.tui.transcript.blocks import (
    Block,
    Extend,
    NoticeBlock,
    Op,
    Put,
    Remove,
    StepBlock,
    UserBlock,
)
from chatops.tui.transcript.projector import Projector, json_as_fields
from tests.support.runs import RUN, Played, flow, step
from tests.support.transcript_blocks import render_block

TESTS = CommandGate(name="tests", command="pytest -q")


class Watched(Played):
    """A run with a projector listening."""

    def __init__(self, *steps: object, **more: object) -> None:
        self.projector = Projector()
        self.blocks: list[Block] = []
        super().__init__(flow(*steps), listener=self._told)  # type: ignore[arg-type]
        self.begin()

    def _told(self, event: Event) -> None:
        for op in self.projector.feed(Published(at=0.0, event=event)):
            self._apply(op)

    def _apply(self, op: Op) -> None:
        place = {block.id: index for index, block in enumerate(self.blocks)}
        match op:
            case Put(block=block) if block.id in place:
                self.blocks[place[block.id]] = block
            case Put(block=block, before=before):
                self.blocks.insert(place.get(before, len(self.blocks)), block)
            case Remove(id=key):
                del self.blocks[place[key]]
            case Extend():
                raise AssertionError("nothing streams here")

    def shown(self) -> list[str]:
        return pictures(self.blocks)

    def stored(self, *, copied: bool = False) -> list[str]:
        turn = self.turn
        assert turn is not None
        events = replay(
            self.messages,
            turn,
            session_id=RUN,
            role="coder",
            model="m1",
            pending=pending_calls(turn),
            run=None if copied else self.state,
        )
        return pictures(Projector().load(events))


def pictures(blocks: Iterable[Block]) -> list[str]:
    return [
        "\n".join(strip.text.rstrip() for strip in render_block(block, 80, PLAIN, expanded=expanded))
        for block in blocks
        for expanded in (False, True)
    ]


def same(run: Watched) -> None:
    assert run.shown() == run.stored()


def test_each_turn_of_a_step_starts_with_a_step_line() -> None:
    run = Watched(step("find"), step("make"))
    run.answers("a db")
    same(run)
    steps = [block for block in run.blocks if isinstance(block, StepBlock)]
    assert [block.title for block in steps] == ["Step 1: find", "Step 2: make"]
    assert [block.text for block in run.blocks if isinstance(block, UserBlock)] == ["ship it"]
    assert "a db" not in "\n".join(pictures(steps)[2:3]), "what the model was told is folded"
    assert "ship it" in pictures(steps)[3]


def test_a_run_starts_with_the_request_and_the_names_of_its_steps() -> None:
    run = Watched(step("find"), step("make"))
    same(run)
    request, started, first_step = run.blocks
    assert isinstance(request, UserBlock) and request.text == "ship it"
    assert isinstance(started, NoticeBlock) and isinstance(first_step, StepBlock)
    assert started.text == "Run of workflow release started. Steps: find, make."


def test_an_attempt_shows_why_the_one_before_failed() -> None:
    run = Watched(step("find", max_attempts=2))
    run.gives_up("no key")
    same(run)
    assert "! Note: Attempt failed. no key" in run.shown()
    assert any("Step 1: find, attempt 2 of 2" in one for one in run.shown())
    run.gives_up("still no key")
    same(run)
    assert any("Run ended: failed. Step find failed: still no key" in one for one in run.shown())


def test_a_refused_answer_and_the_end_of_its_attempt_are_shown_once() -> None:
    run = Watched(step("find", validations=(Validation(tool="validate_full"),), max_iterations=2, max_attempts=1))
    run.answers("found")
    same(run)
    assert sum("Answer not accepted." in one for one in run.shown()) == 2, "folded and open"
    run.answers("found")
    same(run)
    run.answers("found")
    same(run)
    assert sum("Answer not accepted." in one for one in run.shown()) == 4
    assert any("Attempt failed. Reached the tool iteration limit" in one for one in run.shown())


def test_a_gate_is_a_turn_of_its_own_with_its_name() -> None:
    run = Watched(step("make", gates=(TESTS,)))
    run.answers("made")
    same(run)
    run.approves()
    run.returns("1 failed", Outcome.FAILED)
    same(run)
    titles = [block.title for block in run.blocks if isinstance(block, StepBlock)]
    assert titles == ["Step 1: make", "Gate tests", "Step 1: make, attempt 2 of 3"]
    gate = next(block for block in run.blocks if isinstance(block, StepBlock) and block.title.startswith("Gate"))
    assert not can_open(gate)


@pytest.mark.parametrize("word", [TryAgain(told="use the other key"), Skip(), StopRun()])
def test_a_run_looks_the_same_when_it_is_opened_again(word: TryAgain | Skip | StopRun) -> None:
    run = Watched(step("find", on_fail=OnFail.ASK, max_attempts=1, may_skip=True), step("make"))
    run.gives_up("no key")
    same(run)
    assert run.reviews(word)
    same(run)


def test_a_reviewed_answer_and_a_stopped_turn_look_the_same_again() -> None:
    run = Watched(step("find", review=True), step("make"))
    run.answers({"found": [1, 2]})
    same(run)
    run.reviews(Accept())
    run.stops()
    same(run)
    assert any("Stopped by the user." in one for one in run.shown())


def test_a_copied_run_shows_no_message_as_the_users() -> None:
    run = Watched(step("find", validations=(Validation(tool="validate_full"),)), step("make", gates=(TESTS,)))
    run.answers("found")
    run.calls("validate_full")
    run.answers("found")
    run.answers("made")
    shown = run.stored(copied=True)
    assert not any("▌" in one for one in shown), "the sign of the user's words"
    assert sum("Workflow step" in one for one in shown) == 4
    assert any("Gate tests" in one for one in shown)
    assert any("Answer not accepted." in one for one in shown)


def test_a_run_cancelled_halfway_shows_all_its_turns_as_steps() -> None:
    run = Watched(step("find"), step("make"))
    run.answers("x")
    run.cancels()
    assert any("Run ended: cancelled." in one for one in run.shown())
    assert any("Run ended: cancelled." in one for one in run.stored())
    assert sum("Step 2: make" in one for one in run.stored()) == 2


def test_a_json_answer_is_laid_out_and_other_text_is_not() -> None:
    assert json_as_fields('{"success":true,"result":{"a":1}}') == "```\nsuccess: true\nresult:\n  a: 1\n```"
    for text in ("plain words", "{not json", '"text"', "[" * 100_000, '{"a": "' + "x" * 100_000 + '"}'):
        assert json_as_fields(text) == text
    assert json_as_fields('{"a": "x\\n```\\nb"}') == "````\na:\n  x\n  ```\n  b\n````"


def test_a_failure_with_a_notice_is_not_shown_again() -> None:
    run = Watched(step("find"))
    assert run.turn is not None and isinstance(run.turn.phase, AwaitingModel)
    failure = ModelFailure(kind=FailureKind.BROKEN_STREAM, message="no key", started=True)
    run._turn_took(ModelFailureInput(round_id=run.turn.phase.round_id, failure=failure))
    assert [one.text for one in run.blocks if isinstance(one, NoticeBlock)].count("no key") == 1
    assert "\n".join(run.stored()).count("no key") == "\n".join(run.shown()).count("no key")


def test_a_failure_is_shown_even_if_an_earlier_notice_has_the_same_words() -> None:
    run = Watched(step("find"))
    assert run.turn is not None
    turn_id = run.turn.turn_id
    run._told(Notice(id=f"{turn_id}.m2", parent_id=turn_id, text="no key", level="error"))
    run.gives_up("no key")
    assert "Attempt failed. no key" in [one.text for one in run.blocks if isinstance(one, NoticeBlock)]


def test_text_streamed_in_a_step_becomes_the_laid_out_answer() -> None:
    projector = Projector()
    blocks: list[Op] = []
    played = Played(flow(step("find")), listener=lambda e: blocks.extend(projector.feed(Published(at=0, event=e))))
    played.begin()
    assert played.turn is not None
    thought = f"{played.turn.turn_id}.1.thought"
    delta = TextDelta(id=thought, parent_id=played.turn.phase.round_id, text='{"success": tr')  # type: ignore[union-attr]
    blocks.extend(projector.feed(Published(at=0, event=delta)))
    played.answers("done")
    final = projector.blocks[thought]
    assert getattr(final, "text", "").startswith("```\nsuccess: true\n")
