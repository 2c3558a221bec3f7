"""A world for the machine of runs: turns that end as they are told to, and a strict observer of what is asked for."""

from collections import Counter
from dataclasses import dataclass, field, replace

from chatops.domain.events import (
    Event,
    ReviewRequested,
    StepFinished,
    StepStarted,
    TurnStatus,
    WorkflowFinished,
    WorkflowStarted,
)
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import Usage
from chatops.domain.tools import Outcome
from chatops.engine.contract import DoneCall
from chatops.engine.workflow.effects import StartAttempt, StartGate, StopTurn, WorkflowStep
from chatops.engine.workflow.inputs import CancelRun, Review, ReviewStep, TryAgain, TurnEndInput, WorkflowInput
from chatops.engine.workflow.machine import TRANSITIONS, advance_run, start_run
from chatops.engine.workflow.progress import awaited_turn
from chatops.engine.workflow.state import AwaitingReview, CheckingGate, RunFinished, RunningStep, WorkflowState
from chatops.policy.workflow import CommandGate, StepSpec, WorkflowSpec
from tests.engine.world import ANA

MOVES = {(before, after) for before, _, after in TRANSITIONS}
TESTS = CommandGate(name="tests", command="pytest -q")
LINT = CommandGate(name="lint", command="ruff check")
USAGE = Usage(input_tokens=10, output_tokens=1, cost=0.5)


def a_step(name: str, **more: object) -> StepSpec:
    """A step of which only what matters is said."""
    return replace(StepSpec(name=name, system_prompt=f"You {name}."), **more)  # type: ignore[arg-type]


def a_workflow(*steps: StepSpec) -> WorkflowSpec:
    """A workflow of these steps."""
    return WorkflowSpec(name="site", steps=steps)


@dataclass
class RunWorld:
    """Holds the run, the turn that is under way, and what was told."""

    state: WorkflowState
    under_way: StartAttempt | StartGate | None = None
    asked: list[StartAttempt | StartGate] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    extra: Counter[int] = field(default_factory=Counter)
    """Attempts at a step that a user asked for."""

    @classmethod
    def begin(cls, *steps: StepSpec, query: str = "a site", model: str = "") -> "RunWorld":
        """A run just started."""
        spec = a_workflow(*(steps or (a_step("discover"), a_step("build"))))
        step = start_run(session_id=SessionId("s"), spec=spec, query=query, role="coder", model=model)
        world = cls(state=step.state)
        world._accept(step)
        return world

    def feed(self, event: WorkflowInput) -> WorkflowStep:
        """Advance by `event`."""
        before = self.state
        step = advance_run(before, event)
        if step.state is before:
            assert not (step.effects or step.events)
            return step
        assert step.state.seq == before.seq + 1
        moved = (before.phase.kind, step.state.phase.kind)
        assert moved in MOVES, f"not among the transitions that ARCHITECTURE.md shows: {moved}"
        if isinstance(event, ReviewStep) and isinstance(event.review, TryAgain):
            self.extra[event.step] += 1
        self._accept(step)
        return step

    def end(self, status: TurnStatus = TurnStatus.ANSWERED, answer: str = "", **more: object) -> WorkflowStep:
        """The turn under way ends so."""
        assert self.under_way is not None
        ended = TurnEndInput(turn_id=self.under_way.turn_id, status=status, answer=answer, rounds=2, usage=USAGE)
        return self.feed(replace(ended, **more))  # type: ignore[arg-type]

    def fail(self, detail: str = "it went wrong", *, done: tuple[DoneCall, ...] = ()) -> WorkflowStep:
        """The turn under way fails."""
        return self.end(TurnStatus.FAILED, detail=detail, done=done)

    def gate(self, *, passes: bool, detail: str = "1 failed", outcome: Outcome = Outcome.FAILED) -> WorkflowStep:
        """The command of the gate under way ends."""
        assert isinstance(self.under_way, StartGate)
        if passes:
            return self.end(TurnStatus.ANSWERED, "12 passed", outcome=Outcome.SUCCESS)
        return self.end(TurnStatus.FAILED, detail=detail, outcome=outcome)

    def review(self, review: Review) -> WorkflowStep:
        """A user's word on what is shown."""
        phase = self.waiting
        return self.feed(ReviewStep(step=phase.step, attempt=phase.attempt, review=review, by=ANA))

    def cancel(self) -> WorkflowStep:
        """A user ends the run."""
        return self.feed(CancelRun(by=ANA))

    @property
    def attempt(self) -> StartAttempt:
        """The attempt under way."""
        assert isinstance(self.under_way, StartAttempt)
        return self.under_way

    @property
    def waiting(self) -> AwaitingReview:
        """Return what waits for the user."""
        assert isinstance(self.state.phase, AwaitingReview)
        return self.state.phase

    @property
    def finished(self) -> RunFinished:
        """The end of the run."""
        assert isinstance(self.state.phase, RunFinished)
        return self.state.phase

    def _accept(self, step: WorkflowStep) -> None:
        self.state = step.state
        self.events += step.events
        for effect in step.effects:
            match effect:
                case StopTurn(turn_id=turn_id):
                    assert self.under_way is not None
                    assert self.under_way.turn_id == turn_id
                case StartAttempt() | StartGate():
                    self._asked(effect)
        if not isinstance(self.state.phase, RunningStep | CheckingGate):
            self.under_way = None
        self._observe()

    def _asked(self, effect: StartAttempt | StartGate) -> None:
        assert effect.turn_id == TurnId(f"s.{len(self.asked) + 1}"), "turn ids follow one another"
        earlier = [one.turn_id for one in self.asked if isinstance(one, StartAttempt) and one.step == effect.step]
        self.asked.append(effect)
        self.under_way = effect
        assert awaited_turn(self.state) == effect, "a loaded run asks for the very same turn"
        if isinstance(effect, StartAttempt):
            assert effect.after == (earlier[-1] if earlier else None)
            place = self.state.spec.steps.index(effect.step)
            assert len(earlier) < effect.step.max_attempts + self.extra[place], "more attempts than allowed"
            assert self.state.query in effect.text

    def _observe(self) -> None:
        state = self.state
        assert [output.step for output in state.outputs] == list(range(len(state.outputs))), "results in order"
        if not isinstance(state.phase, RunFinished):
            assert state.phase.step == len(state.outputs)
        opened = [event.id for event in self.events if isinstance(event, StepStarted)]
        closed = [event.id for event in self.events if isinstance(event, StepFinished)]
        assert len(set(opened)) == len(opened)
        over = isinstance(state.phase, RunFinished)
        assert closed == (opened if over else opened[:-1]), "each attempt is closed once, in order"
        assert sum(isinstance(event, WorkflowStarted) for event in self.events) == 1
        assert sum(isinstance(event, WorkflowFinished) for event in self.events) == over
        if isinstance(state.phase, AwaitingReview):
            assert isinstance(self.events[-1], ReviewRequested)
