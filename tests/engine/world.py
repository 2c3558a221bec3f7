"""A world for the turn machine: scripted models, four kinds of tools, a user, crashes, and a strict observer.

The observer knows the rules from the contract's words, not from the engine: who may run what, how often, and
what a strict server accepts.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from chatops.domain.canonical import canonical, parse_json
from chatops.domain.decisions import Approved, Decision, Principal, RememberedRule
from chatops.domain.endings import Ending
from chatops.domain.ids import CallId, MessageId, RoundId, SessionId, TurnId
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.model import ModelReply, ModelRequest, ModelTarget
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
    ToolCall,
    ToolResult,
    ToolSpec,
    Verdict,
)
from chatops.domain.usage import Usage
from chatops.engine.calls import call_digest
from chatops.engine.contract import AnswerFacts, StepContract
from chatops.engine.draft import StepDraft
from chatops.engine.effects import (
    CallModel,
    CheckAnswer,
    Effect,
    InspectCall,
    ReconcileTool,
    RunTool,
    TurnStep,
    joined,
    only_inspects,
)
from chatops.engine.inputs import (
    AnswerCheckInput,
    DecideCall,
    Input,
    InspectionInput,
    ModelReplyInput,
    ReconcileInput,
    Recover,
    SpentBeside,
    ToolResultInput,
)
from chatops.engine.state import AwaitingModel, Finished, Permitted, Rechecking, RoundRecord, TurnState, new_turn
from chatops.engine.turn import TRANSITIONS, advance, start
from chatops.engine.view import pending_calls
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer, Rule

_WAITS = Permitted | Rechecking
ANA = Principal(uid=1000, login="ana", host="here", tty="pts/1", via="test")


def spec(name: str, verdict: Verdict) -> ToolSpec:
    """A tool without arguments worth a schema."""
    return ToolSpec(
        name=name,
        capabilities=BUILT_IN_TOOLS.get(name, NO_CAPABILITIES),
        description=name,
        schema='{"type":"object"}',
        verdict=verdict,
    )


READ = replace(spec("read", Verdict.ALLOW), read_only=True)
WRITE = replace(spec("write", Verdict.ASK), reconcilable=True)
RUN = spec("run", Verdict.ASK)
FREE = spec("free", Verdict.ALLOW)
HIDDEN = spec("hidden", Verdict.ALLOW)
MOVES = {(before, after) for before, _, after in TRANSITIONS} | {
    ("in_round", "in_round"),
    ("stopping", "stopping"),
    ("awaiting_model", "awaiting_model"),
    ("checking_answer", "checking_answer"),
}
"""The documented moves between phases, and staying in one."""
TOOLS = (READ, WRITE, RUN, FREE)
MAX_REQUESTS = 500
REPEATABLE = {"read", "info", "validate", "validate_full"}
GATED = {"write", "run", "deploy", "shell_exec"}
CHANGING = {"write", "run", "free", "configure", "deploy", "shell_exec"}


def grant(role: str = "coder", tools: tuple[ToolSpec, ...] = TOOLS, max_rounds: int = 4) -> Grant:
    """A role with these tools for an operator; `hidden` exists and is above the level."""
    everything = (*TOOLS, HIDDEN)
    verdicts = tuple(Rule(tool=one.name, verdict=Verdict.DENY if one is HIDDEN else one.verdict) for one in everything)
    access = Layer(name="access level operator", rules=verdicts, default=Verdict.DENY)
    allowed = tuple(Rule(tool=one.name, verdict=Verdict.ALLOW) for one in tools)
    listed = Layer(name=f"tools of role {role}", rules=allowed, default=Verdict.DENY)
    return Grant(
        role=role,
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="m1"), ModelTarget(name="m2")),
        prompt=f"You are {role}.",
        tools=tools,
        layers=(access, listed),
        max_rounds=max_rounds,
    )


def raw(name: str, arguments: str = "{}", problem: str = "", repairs: tuple[str, ...] = ()) -> RawCall:
    """A call as a model writes it."""
    return RawCall(name=name, arguments=arguments, problem=problem, repairs=repairs)


def reply(*calls: RawCall, text: str = "") -> ModelReply:
    """A reply with calls, or an answer."""
    return ModelReply(text=text or ("" if calls else "done"), calls=calls, finish_reason="stop")


def facts_of(arguments: str, *, version: int = 0, definition: str = "") -> CallFacts:
    """Return the facts of an inspection: ``bad`` in the arguments is invalid, ``mended`` was repaired."""
    if "bad" in arguments:
        return CallFacts(arguments=arguments, problems=(Problem(path="x", message="is bad", given="bad"),))
    repairs = ("inspection closed a brace",) if "mended" in arguments else ()
    return CallFacts(
        arguments=arguments, cwd="/ws", hashes=(f"file v{version}",), repairs=repairs, definition=definition
    )


def read_answer(text: str, schema: str) -> AnswerFacts:
    """Perform CheckAnswer: only an answer that is JSON as a whole passes."""
    try:
        value = parse_json(text)
    except ValueError:
        return AnswerFacts(problems=(Problem(path="", message="it is not JSON"),))
    if not isinstance(value, dict):
        return AnswerFacts(problems=(Problem(path="", message="it has to be one JSON object"),))
    if not schema:
        return AnswerFacts(value=canonical(value))
    validator = Draft202012Validator(json.loads(schema))
    result = validator.iter_errors(value["result"]) if "result" in value else ()
    return AnswerFacts(
        value=canonical(value),
        bare_problems=tuple(_problem(error) for error in validator.iter_errors(value)),
        result_problems=tuple(_problem(error, "result") for error in result),
    )


def _problem(error: ValidationError, *root: str) -> Problem:
    return Problem(path=".".join([*root, *map(str, error.path)]), message=error.message)


@dataclass
class World:
    """Holds the turn, what is in flight, and what really happened."""

    state: TurnState
    flying: list[Effect] = field(default_factory=list)
    effects_done: Counter[CallId] = field(default_factory=Counter)
    """Return how often a call took effect."""
    starts: Counter[tuple[CallId, int]] = field(default_factory=Counter)
    retries_wanted: Counter[CallId] = field(default_factory=Counter)
    approved: set[tuple[CallId, str]] = field(default_factory=set)
    requests: list[ModelRequest] = field(default_factory=list)
    steps: list[TurnStep] = field(default_factory=list)
    version: int = 0
    definition: str = ""
    """Of every tool."""
    rules: list[RememberedRule] = field(default_factory=list)
    """Rules that steps have made, as the store would hold them."""
    tool_says: Callable[[ToolCall], ToolResult | None] = lambda call: None
    """Return a tool's result other than plain success."""
    joins: Callable[[], bool] = lambda: False
    """Return True if a reply is stored with the first inspection of its calls."""
    tokens: float | None = None
    """The most that replies may have used before a request: the budget, and what the user has added."""
    used: int = 0
    beside: int = 0
    """Tokens that other children have used, if the turn is one of a child."""
    rounds: set[RoundId] = field(default_factory=set)
    """Those in which a model was asked."""
    unmeasured: set[str] = field(default_factory=set)
    """Models of which a reply did not say what it used."""
    let_go: set[str] = field(default_factory=set)
    """Those of them that the user has let go on."""

    @classmethod
    def begin(
        cls,
        first: Grant | None = None,
        text: str = "go",
        *,
        contract: StepContract | None = None,
        history: tuple[Message, ...] = (),
        tool_says: Callable[[ToolCall], ToolResult | None] = lambda call: None,
        turn_id: str = "s.1",
    ) -> "World":
        """A world with a turn just started."""
        step = start(
            new_turn(TurnId(turn_id), SessionId("s"), grant=first or grant(), history=history),
            text,
            contract=contract,
        )
        return cls.after(step, tool_says)

    @classmethod
    def after(cls, step: TurnStep, tool_says: Callable[[ToolCall], ToolResult | None] = lambda call: None) -> "World":
        """A world in which a turn's first step has just been made."""
        world = cls(state=step.state, tool_says=tool_says)
        world.accept(step)
        return world

    def feed(self, event: Input) -> TurnStep:
        """Advance by `event`; then the very same input again must change nothing that matters."""
        before = self.state
        step = advance(before, event)
        if step.state is not before:
            if isinstance(event, ModelReplyInput) and only_inspects(step) and self.joins():
                step = self._with_inspection(step)
            assert step.state.seq == before.seq + 1
            self.accept(step)
        else:
            assert not (step.effects or step.events or step.messages or step.results or step.decisions)
        return step

    def _with_inspection(self, step: TurnStep) -> TurnStep:
        first, *others = step.effects
        assert isinstance(first, InspectCall)
        found = InspectionInput(call_id=first.call.id, facts=self._facts(first.call.arguments), rules=tuple(self.rules))
        return joined(replace(step, effects=tuple(others)), advance(step.state, found))

    def accept(self, step: TurnStep) -> None:
        """Take a step as the runtime would: note it, hold its effects."""
        self._check_log(step)
        if self.steps:
            moved = (self.state.phase.kind, step.state.phase.kind)
            assert moved in MOVES, f"not among the transitions that ARCHITECTURE.md shows: {moved}"
        self.state = step.state
        self.steps.append(step)
        stored = {message.id for each in self.steps for message in each.messages}
        assert stored >= {message.id for message in step.state.messages}, "a state names a message that is not stored"
        self.rules += [replace(rule, id=str(len(self.rules) + n)) for n, rule in enumerate(step.rules, 1)]
        for effect in step.effects:
            self._check(effect)
            if isinstance(effect, CallModel | CheckAnswer | InspectCall | RunTool | ReconcileTool):
                self.flying.append(effect)

    def _check_log(self, step: TurnStep) -> None:
        """No call runs, and no permission ends, without its verdict; who asked and who answered is there too."""
        verdicts = {(row.call.id, row.verdict, row.digest) for each in (*self.steps, step) for row in each.verdicts}
        here = {row.call.id for row in step.verdicts}
        said = {(row.call_id, row.digest) for each in (*self.steps, step) for row in each.decisions}
        for effect in step.effects:
            if isinstance(effect, RunTool) and effect.call.id not in here:
                asked = {row for row in verdicts if row[:2] == (effect.call.id, Verdict.ASK)}
                assert any((call, digest) in said for call, _, digest in asked), "a call runs without its rows"
        for one in StepDraft(self.state).calls() if self.steps else ():
            if isinstance(one.status, Permitted | Rechecking) and one.status.verdict is Verdict.ALLOW:
                waits = {kept.call.id for kept in StepDraft(step.state).calls() if isinstance(kept.status, _WAITS)}
                assert one.call.id in here | waits, "an allowed call ends without its row"

    def perform(self, index: int, *, model: ModelReply | None = None, lose: bool = False) -> TurnStep | None:
        """Carry out the `index`-th thing in flight; `lose` its result (the app dies before it is stored)."""
        effect = self.flying.pop(index)
        if isinstance(effect, CallModel):
            said, phase = model or reply(), self.state.phase
            answer: Input = ModelReplyInput(round_id=effect.round_id, reply=said)
            if not lose and isinstance(phase, AwaitingModel) and phase.round_id == effect.round_id:
                self._note_usage(effect.request.model, said)
        else:
            answer = self._carry_out(effect)
        return None if lose else self.feed(answer)

    def perform_together(self, *effects: Effect) -> None:
        """Carry out things in flight, and take their ends as one step."""
        step = TurnStep(state=self.state)
        for effect in effects:
            self.flying.remove(effect)
            following = advance(step.state, self._carry_out(effect))
            if following.state is not step.state:
                step = following if step.state is self.state else joined(step, following)
        if step.state is not self.state:
            assert step.state.seq == self.state.seq + 1
            self.accept(step)

    def _carry_out(self, effect: Effect) -> Input:
        match effect:
            case CheckAnswer():
                return AnswerCheckInput(round_id=effect.round_id, facts=read_answer(effect.text, effect.schema))
            case InspectCall(call=call):
                return InspectionInput(call_id=call.id, facts=self._facts(call.arguments), rules=tuple(self.rules))
            case RunTool(call=call, attempt=attempt):
                self.effects_done[call.id] += 1
                if call.name in CHANGING:
                    self.version += 1
                content = '{"valid": true}' if call.name.startswith("validate") else f"ran {call.id}"
                facts = ResultFacts(ending=Ending()) if call.name == "shell_exec" else NO_FACTS
                done = ToolResult(outcome=Outcome.SUCCESS, content=content, facts=facts)
                result = self.tool_says(call) or done
                return ToolResultInput(call_id=call.id, attempt=attempt, result=result)
            case ReconcileTool(call=call, attempt=attempt):
                if self.effects_done[call.id]:
                    found = ToolResult(outcome=Outcome.SUCCESS, content="it did")
                    return ReconcileInput(call_id=call.id, attempt=attempt, result=found)
                return ReconcileInput(call_id=call.id, attempt=attempt, result=None, repeat=True)
            case _:
                raise AssertionError(effect)

    def spend_beside(self, tokens: int) -> None:
        """Report what other children have used, which may be an older report."""
        record = RoundRecord(model="role reader", finish_reason="", usage=Usage(input_tokens=tokens))
        self.beside = max(self.beside, tokens)
        self.feed(SpentBeside(children=(record,)))

    def _note_usage(self, model: str, said: ModelReply) -> None:
        if said.usage is None:
            self.unmeasured.add(model)
        else:
            self.used += said.usage.input_tokens + said.usage.output_tokens

    def _facts(self, arguments: str) -> CallFacts:
        return facts_of(arguments, version=self.version, definition=self.definition)

    def crash(self, now: Grant | None = None, *, copied: bool = False) -> None:
        """The process dies: nothing in flight survives; the stored state is recovered, perhaps in a copy."""
        self.flying.clear()
        self.feed(Recover(grant=now or self.state.grant, copied=copied))

    def decide(self, index: int, decision: Decision) -> TurnStep:
        """Answer the `index`-th pending call as shown."""
        pending = pending_calls(self.state)[index]
        if isinstance(decision, Approved):
            self.approved.add((pending.call.id, pending.digest))
            if pending.outcome_unknown:
                # The question was whether it runs once more, which is bound to more than what runs.
                self.approved.add((pending.call.id, call_digest(StepDraft(self.state), pending.call, pending.facts)))
            if pending.reason.value == "budget" and self.tokens is not None:
                asked = json.loads(pending.facts.arguments)
                if "more" in asked:
                    self.tokens = asked["spent"] + asked["more"]
                self.let_go.add(asked.get("model", ""))
            if pending.reason.value == "outcome_unknown":
                self.retries_wanted[pending.call.id] += 1
        return self.feed(DecideCall(call_id=pending.call.id, digest=pending.digest, decision=decision, by=ANA))

    def drain(self, *replies: ModelReply) -> None:
        """Perform everything in order until nothing flies; models say `replies`, then an answer."""
        script = list(replies)
        while self.flying:
            model = script.pop(0) if script and isinstance(self.flying[0], CallModel) else None
            self.perform(0, model=model)

    def results(self) -> list[ToolMessage]:
        """The tool messages of the turn so far."""
        return [m for m in self.state.messages if isinstance(m, ToolMessage)]

    @property
    def finished(self) -> Finished:
        """The end of the turn."""
        assert isinstance(self.state.phase, Finished)
        return self.state.phase

    def _check(self, effect: Effect) -> None:
        match effect:
            case CallModel(request=request, round_id=number):
                self.requests.append(request)
                assert len(self.requests) <= MAX_REQUESTS, "the turn does not end"
                # A request that is sent again is still the one reply that a child may take beyond the limit.
                beside = self.beside if number not in self.rounds else 0
                self.rounds.add(number)
                if self.tokens is not None:
                    assert self.used + beside < self.tokens, "a request beyond the budget"
                    assert request.model not in self.unmeasured - self.let_go, "what is not known was taken for nothing"
                check_request(request)
            case RunTool(call=call, facts=facts, attempt=attempt, digest=bound):
                self.starts[call.id, attempt] += 1
                assert self.starts[call.id, attempt] == 1, "the same attempt was started twice"
                assert call.name != "hidden", "a tool above the level was started"
                if call.name in GATED or call.repairs or facts.repairs:
                    by_rule = any(rule.tool == call.name for rule in self.rules) and not call.repairs + facts.repairs
                    assert by_rule or (call.id, bound) in self.approved, "started without an approval of these bytes"
                if call.name not in REPEATABLE:
                    already = self.effects_done[call.id]
                    assert already <= self.retries_wanted[call.id], "a call took effect twice"
            case _:
                pass


def check_request(request: ModelRequest) -> None:
    """Check like a strict server: each call has exactly one result, in order, right after its message."""
    messages = list(request.messages)
    assert not any(isinstance(m, RoleSwitchMessage | NoticeMessage) for m in messages)
    seen: set[CallId] = set()
    while messages:
        message = messages.pop(0)
        match message:
            case AssistantMessage(calls=calls):
                for call in calls:
                    assert call.id not in seen
                    seen.add(call.id)
                    answer = messages.pop(0)
                    assert isinstance(answer, ToolMessage)
                    assert answer.call_id == call.id
                    assert answer.content
            case UserMessage():
                pass
            case _:
                raise AssertionError(f"a result without its call: {message}")


def switch(before: str, after: str) -> RoleSwitchMessage:
    """A divider."""
    return RoleSwitchMessage(id=MessageId("x"), before=before, after=after, model="m1")
