"""A run of a workflow played by hand: both real machines, and nothing else. What happens is told to `listener`."""

import json
from collections.abc import Callable
from typing import Any

from chatops.domain.canonical import canonical, parse_json
from chatops.domain.decisions import Approved, Principal
from chatops.domain.endings import Ending
from chatops.domain.events import Event
from chatops.domain.ids import SessionId
from chatops.domain.messages import Message, Usage
from chatops.domain.model import ModelReply, ModelTarget
from chatops.domain.tools import (
    BUILT_IN_TOOLS,
    NO_CAPABILITIES,
    NO_FACTS,
    AccessLevel,
    CallFacts,
    Outcome,
    Problem,
    RawCall,
    ResultFacts,
    ToolResult,
    ToolSpec,
    Verdict,
)
from chatops.engine.contract import AnswerFacts
from chatops.engine.effects import CheckAnswer, Effect, InspectCall, RunTool, TurnStep
from chatops.engine.inputs import (
    AnswerCheckInput,
    CancelTurn,
    DecideCall,
    InspectionInput,
    ModelReplyInput,
    ToolResultInput,
)
from chatops.engine.inputs import Input as TurnInput
from chatops.engine.state import AwaitingModel, TurnState, new_turn
from chatops.engine.turn import advance, start
from chatops.engine.view import pending_calls
from chatops.engine.without_model import start_gate
from chatops.engine.workflow.effects import StartAttempt, StartGate, StopTurn, WorkflowStep
from chatops.engine.workflow.inputs import CancelRun, Review, ReviewStep, WorkflowInput
from chatops.engine.workflow.machine import advance_run, start_run, turn_end_input
from chatops.engine.workflow.progress import awaited_turn
from chatops.engine.workflow.state import AwaitingReview, WorkflowState
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer, Rule
from chatops.policy.workflow import StepSpec, WorkflowSpec

RUN = SessionId("20261121-101512-k3f9")
ANA = Principal(uid=1000, login="ana", via="tui")
COST = Usage(input_tokens=1_200, output_tokens=34)


def tool(name: str, verdict: Verdict = Verdict.ALLOW, *, read_only: bool = True) -> ToolSpec:
    """A tool without arguments worth a schema."""
    return ToolSpec(
        name=name,
        capabilities=BUILT_IN_TOOLS.get(name, NO_CAPABILITIES),
        description=name,
        schema='{"type":"object"}',
        verdict=verdict,
        read_only=read_only,
    )


TOOLS = (
    tool("look"),
    tool("configure", read_only=False),
    tool("validate_minimal"),
    tool("validate_full"),
    tool("shell_exec", Verdict.ASK, read_only=False),
)


def step(name: str, **more: Any) -> StepSpec:
    """A step that may use all tools."""
    return StepSpec(name=name, system_prompt=f"Do {name}.", **more)


def flow(*steps: StepSpec, name: str = "release") -> WorkflowSpec:
    """A workflow."""
    return WorkflowSpec(name=name, steps=steps, description="A test", source="a test")


def grant_of(spec: StepSpec) -> Grant:
    """Return the grant of a step."""
    rules = tuple(Rule(tool=one.name, verdict=one.verdict) for one in TOOLS)
    return Grant(
        role="coder",
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="m1"),),
        prompt="",
        tools=TOOLS,
        layers=(Layer(name="access level operator", rules=rules, default=Verdict.DENY),),
        max_rounds=spec.max_iterations,
    )


class Played:
    """The run as it stands, and hands to move it with."""

    def __init__(
        self, spec: WorkflowSpec, *, query: str = "ship it", listener: Callable[[Event], None] = lambda event: None
    ) -> None:
        self.listener = listener
        self.turn: TurnState | None = None
        self.earlier: tuple[Message, ...] = ()
        """Messages of the turns before the present one."""
        self._flying: list[Effect] = []
        self.first = start_run(session_id=RUN, spec=spec, query=query, role="coder")
        self.state: WorkflowState = self.first.state

    def begin(self) -> "Played":
        """Begin the run."""
        self._ran(self.first)
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that was said."""
        return (*self.earlier, *(self.turn.messages if self.turn is not None else ()))

    # What a model, tools and people do

    def replies(self, text: str = "", *calls: tuple[str, dict[str, Any]], usage: Usage | None = COST) -> None:
        """The model answers, with calls of tools or without."""
        assert self.turn is not None and isinstance(self.turn.phase, AwaitingModel), self.turn
        raw = tuple(RawCall(name=name, arguments=json.dumps(arguments)) for name, arguments in calls)
        reply = ModelReply(text=text, calls=raw, finish_reason="stop", usage=usage)
        self._turn_took(ModelReplyInput(round_id=self.turn.phase.round_id, reply=reply))

    def answers(self, result: Any, **more: Any) -> None:
        """The model gives a final answer that claims success."""
        self.replies(json.dumps({"success": True, "result": result, **more}))

    def gives_up(self, reason: str) -> None:
        """The model says that it has not succeeded."""
        self.replies(json.dumps({"success": False, "result": None, "reasoning": reason}))

    def returns(self, content: str = "done", outcome: Outcome = Outcome.SUCCESS) -> None:
        """The tool that runs is through."""
        running = next(one for one in self._flying if isinstance(one, RunTool))
        self._flying.remove(running)
        ending = Ending(exit_code=0 if outcome is Outcome.SUCCESS else 1)
        facts = ResultFacts(ending=ending) if running.call.name == "shell_exec" else NO_FACTS
        result = ToolResult(outcome=outcome, content=content, duration_ms=12, facts=facts)
        self._turn_took(ToolResultInput(call_id=running.call.id, attempt=running.attempt, result=result))

    def calls(self, name: str, content: str = "", outcome: Outcome = Outcome.SUCCESS, **arguments: Any) -> None:
        """The model calls a tool that needs no approval, and gets its result; by itself a validation passes."""
        self.replies("", (name, arguments))
        self.returns(content or ('{"valid": true}' if name.startswith("validate") else "done"), outcome)

    def approves(self) -> None:
        """A user approves the one call that waits."""
        assert self.turn is not None
        (pending,) = pending_calls(self.turn)
        decided = DecideCall(call_id=pending.call.id, digest=pending.digest, decision=Approved(), by=ANA)
        self._turn_took(decided)

    def stops(self) -> None:
        """A user stops the turn."""
        self._turn_took(CancelTurn())

    def reviews(self, review: Review) -> bool:
        """A user says how it goes on. False: the run does not take that."""
        wanted = self.state.phase
        assert isinstance(wanted, AwaitingReview), wanted
        return self.took(ReviewStep(step=wanted.step, attempt=wanted.attempt, review=review, by=ANA))

    def cancels(self) -> bool:
        """A user ends the run."""
        return self.took(CancelRun(by=ANA))

    def took(self, event: WorkflowInput) -> bool:
        """Something happens to the run."""
        step = advance_run(self.state, event)
        if step.state is self.state:
            return False
        self._ran(step)
        return True

    # inside

    def _ran(self, step: WorkflowStep) -> None:
        self.state = step.state
        for event in step.events:
            self.listener(event)
        for effect in step.effects:
            match effect:
                case StartAttempt():
                    self._begin(self._started(effect))
                case StartGate():
                    turn = new_turn(effect.turn_id, RUN, grant=grant_of(effect.step))
                    self._begin(start_gate(turn, effect.gate, step=effect.step.name))
                case StopTurn():
                    self._turn_took(CancelTurn())

    def _started(self, asked: StartAttempt) -> TurnStep:
        history = self.messages if asked.after is not None else ()
        turn = new_turn(asked.turn_id, RUN, grant=grant_of(asked.step), history=history)
        return start(turn, asked.text, contract=asked.contract)

    def _begin(self, step: TurnStep) -> None:
        self.earlier = self.messages
        self._took(step)

    def _turn_took(self, event: TurnInput) -> None:
        assert self.turn is not None
        self._took(advance(self.turn, event))

    def _took(self, step: TurnStep) -> None:
        self.turn = step.state
        for event in step.events:
            self.listener(event)
        for effect in step.effects:
            self._perform(effect)
        ended = turn_end_input(self.turn)
        asked = awaited_turn(self.state)
        if ended is not None and asked is not None and asked.turn_id == ended.turn_id:
            self.took(ended)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case InspectCall(call=call):
                shell = parse_json(call.arguments) if call.name == "shell_exec" else {}
                command = str(shell["command"]) if isinstance(shell, dict) and "command" in shell else ""
                facts = CallFacts(arguments=call.arguments, cwd="/home/ana/project", command=command, sandbox="none")
                self._turn_took(InspectionInput(call_id=call.id, facts=facts))
            case CheckAnswer(round_id=number, text=text):
                self._turn_took(AnswerCheckInput(round_id=number, facts=_facts(text)))
            case RunTool():
                self._flying.append(effect)
            case _:
                pass


def _facts(text: str) -> AnswerFacts:
    try:
        value = parse_json(text)
    except ValueError:
        return AnswerFacts(problems=(Problem(path="", message="it is not JSON"),))
    if not isinstance(value, dict):
        return AnswerFacts(problems=(Problem(path="", message="it has to be one JSON object"),))
    return AnswerFacts(value=canonical(value))
