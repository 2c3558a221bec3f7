"""A step of a workflow to play with: its tools, its grant, contracts and what its tools say."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.events import AnswerRefused
from chatops.domain.messages import UserMessage
from chatops.domain.model import ModelReply, ModelTarget
from chatops.domain.tools import AccessLevel, Outcome, RawCall, ToolCall, ToolResult, ToolSpec, Verdict
from chatops.engine.contract import StepContract
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer, Rule
from chatops.policy.workflow import Subject, Validation
from tests.engine.world import World, raw, spec

INFO = replace(spec("info", Verdict.ALLOW), read_only=True)
CONFIGURE = spec("configure", Verdict.ALLOW)
NOTE = replace(spec("note", Verdict.ALLOW), idempotent=True)
VALIDATE = replace(spec("validate", Verdict.ALLOW), read_only=True)
VALIDATE_FULL = replace(spec("validate_full", Verdict.ALLOW), read_only=True)
DEPLOY = spec("deploy", Verdict.ASK)
SHELL = spec("shell_exec", Verdict.ASK)
OTHER_STEPS = spec("discover", Verdict.ALLOW)
STEP_TOOLS = (INFO, CONFIGURE, NOTE, VALIDATE, VALIDATE_FULL, DEPLOY)

NAMED = Subject(argument="component", pointer="/component")
BY_COMPONENT = Validation(tool="validate", subject=(NAMED,))
CLAIM_A: JsonValue = {"component": "a"}
SCHEMA = canonical(
    {
        "type": "object",
        "properties": {"component": {"type": ["string", "array"]}, "port": {"type": "integer"}},
        "required": ["component"],
        "additionalProperties": False,
    }
)


def step_grant(tools: Sequence[ToolSpec] = STEP_TOOLS, *, max_rounds: int = 9) -> Grant:
    """Grant of a step: its own tools. Tools of another step exist."""
    everything = (*STEP_TOOLS, SHELL, OTHER_STEPS)
    access = Layer(
        name="access level operator",
        rules=tuple(Rule(tool=one.name, verdict=one.verdict) for one in everything),
        default=Verdict.DENY,
    )
    listed = Layer(
        name="step build of workflow site",
        rules=tuple(Rule(tool=one.name, verdict=Verdict.ALLOW) for one in tools),
        default=Verdict.DENY,
    )
    return Grant(
        role="coder",
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="m1"),),
        prompt="You build.",
        tools=tuple(tools),
        layers=(access, listed),
        responder=ModelTarget(name="speaker"),
        max_rounds=max_rounds,
    )


def says(result: JsonValue, *, success: bool = True, reasoning: str = "") -> ModelReply:
    """A final answer in the envelope."""
    answer: dict[str, JsonValue] = {"success": success, "result": result, "reasoning": reasoning}
    return text(canonical(answer))


def text(words: str, *, finish_reason: str = "stop") -> ModelReply:
    """A reply without calls."""
    return ModelReply(text=words, finish_reason=finish_reason)


def calls(*made: RawCall) -> ModelReply:
    """A reply with calls."""
    return ModelReply(calls=made, finish_reason="tool_calls")


def validate(component: str, tool: str = "validate") -> RawCall:
    """A validation of one component."""
    return raw(tool, canonical({"component": component}))


def validating(*contracted: Validation, **more: object) -> StepContract:
    """A contract with these validations."""
    return replace(StepContract(validations=contracted or (BY_COMPONENT,)), **more)  # type: ignore[arg-type]


def result(value: JsonValue | str, outcome: Outcome = Outcome.SUCCESS) -> ToolResult:
    """Return a tool's result: JSON, or text unchanged."""
    return ToolResult(outcome=outcome, content=value if isinstance(value, str) else canonical(value))


def errors(*found: tuple[str, str]) -> JsonValue:
    """Return the result of a failed validation."""
    return {"valid": False, "errors": [{"property": name, "message": message} for name, message in found]}


def saying(by_component: Mapping[str, JsonValue | str]) -> Callable[[ToolCall], ToolResult | None]:
    """Tools whose validations say this of each component, and that they are valid of all others."""

    def say(call: ToolCall) -> ToolResult | None:
        if not call.name.startswith("validate"):
            return None
        component = json.loads(call.arguments).get("component", "")
        return result(by_component.get(component, {"valid": True}))

    return say


def play(*replies: ModelReply, contract: StepContract | None = None, max_rounds: int = 9, **more: object) -> World:
    """A turn of a step in which a model says these things, one after the other."""
    world = World.begin(step_grant(max_rounds=max_rounds), contract=contract or StepContract(), **more)  # type: ignore[arg-type]
    world.drain(*replies)
    return world


def feedback(world: World) -> list[str]:
    """Return the machine's messages to the model."""
    return [m.text for m in world.state.messages if isinstance(m, UserMessage)][1:]


def refusals(world: World) -> list[AnswerRefused]:
    """Return the events about refused answers."""
    return [event for step in world.steps for event in step.events if isinstance(event, AnswerRefused)]


def last_words(world: World) -> str:
    """Return the last message of the last request."""
    last = world.requests[-1].messages[-1]
    assert isinstance(last, UserMessage)
    return last.text
