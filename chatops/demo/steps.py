"""The attempt at a workflow step that a request belongs to, as the demo model reads it, and the forms of its answers.

The request is the demo's only source: nothing else says which step it is in.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chatops.demo.chat import OURS
from chatops.demo.plan import Action, DemoReply
from chatops.domain.canonical import JsonValue, canonical
from chatops.engine.feedback import GUIDANCE
from chatops.models.server_json import as_list, as_object, as_text

_STEP = re.compile(r"^You work on step \d+ of \d+, (?P<step>.+), of the workflow (?P<workflow>[\w-]+)\.$", re.MULTILINE)
_REQUEST = re.compile(r"The request:\n(?P<request>.*?)\n\nThis is step \d+ of \d+: ", re.DOTALL)
_OUTPUT = re.compile(
    r"^\[output (?P<n>\w+) of step (?P<step>[^\]\n]+)\]\n(?P<text>.*?)\n\[end of output (?P=n)\]$",
    re.DOTALL | re.MULTILINE,
)
_NOT_DONE = re.compile(r"\s*(?:Not run|Not permitted|Denied|Refused|There is no tool|\w+ was not run)\b")
_PERSON = re.compile(r"^The user (?:has reviewed it and says:|wants this step repeated\.)", re.MULTILINE)
_REASON = 300
"""Number of characters of a tool's result that a reason quotes."""
_SAME = 200
"""Number of characters that identify a call in the list of completed calls, which cuts them there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A call of this attempt, and its result."""

    tool: str
    arguments: Mapping[str, object]
    content: str

    @property
    def failed(self) -> bool:
        """True if the call failed."""
        return GUIDANCE in self.content or _NOT_DONE.match(self.content) is not None

    @property
    def why(self) -> str:
        """The result of the call on one line, as the reason that the demo gives."""
        return " ".join(self.content.replace(GUIDANCE, "").split())[:_REASON]

    def value(self) -> Mapping[str, object]:
        """Return the result as an object; empty if it is not one."""
        return object_in(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The state of an attempt at a step."""

    workflow: str
    step: str
    request: str
    opening: str
    """The message that opened this attempt."""
    outputs: Mapping[str, str]
    """Outputs of earlier steps, by step."""
    calls: tuple[Made, ...]
    refused: bool
    """True if an answer of this attempt was rejected."""
    tools: frozenset[str]
    may_not_call: bool

    def made(self, tool: str) -> list[Made]:
        """Return the calls of one tool, in order."""
        return [call for call in self.calls if call.tool == tool]

    def output(self, step: str) -> Mapping[str, object]:
        """Return the output of an earlier step as an object; empty if there is none."""
        return object_in(self.outputs.get(step, ""))

    def has_failed_with(self, *words: str) -> bool:
        """Return True if the last attempt failed with any of these words and the user has not replied since."""
        return any(one in self.opening for one in words) and _PERSON.search(self.opening) is None

    def is_done(self, wanted: Action) -> bool:
        """Return True if an earlier attempt has made this call, so that it must not be repeated."""
        return f"\n- {wanted.tool} {canonical(dict(wanted.arguments))[:_SAME]}" in self.opening


def read_scene(body: Mapping[str, object]) -> Scene | None:
    """Return the step that a request belongs to; None for a chat."""
    messages = [as_object(message) for message in as_list(body.get("messages"))]
    system = "\n".join(as_text(one.get("content")) for one in messages if one.get("role") == "system")
    place = _STEP.search(system)
    if place is None:
        return None
    requests = {
        index: text
        for index, one in enumerate(messages)
        if one.get("role") == "user" and not (text := as_text(one.get("content"))).startswith(OURS)
    }
    start, opening = max(requests.items(), default=(-1, ""))
    request = _REQUEST.match(opening)
    tools = as_list(body.get("tools"))
    return Scene(
        workflow=place["workflow"],
        step=place["step"],
        request=request["request"] if request else opening,
        opening=opening,
        outputs={one["step"]: one["text"] for text in requests.values() for one in _OUTPUT.finditer(text)},
        calls=_calls(messages[start + 1 :]),
        refused=any(one.get("role") == "user" for one in messages[start + 1 :]),
        tools=frozenset(as_text(as_object(as_object(tool).get("function")).get("name")) for tool in tools),
        may_not_call=body.get("tool_choice") == "none",
    )


def _calls(messages: Sequence[Mapping[str, object]]) -> tuple[Made, ...]:
    results = {as_text(m.get("tool_call_id")): as_text(m.get("content")) for m in messages if m.get("role") == "tool"}
    found: list[Made] = []
    for message in messages:
        for item in as_list(message.get("tool_calls")):
            call = as_object(item)
            function, key = as_object(call.get("function")), as_text(call.get("id"))
            if key in results:
                arguments = object_in(as_text(function.get("arguments")))
                found.append(Made(tool=as_text(function.get("name")), arguments=arguments, content=results[key]))
    return tuple(found)


def object_in(text: str) -> Mapping[str, object]:
    """Return the JSON object in a text; empty if there is none."""
    try:
        return as_object(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def texts(value: object) -> list[str]:
    """Return the texts in a list; empty if `value` is not a list."""
    return [item for item in as_list(value) if isinstance(item, str)]


def action(tool: str, **arguments: JsonValue) -> Action:
    """Return a call to make."""
    return Action(tool=tool, arguments=tuple(arguments.items()))


def ask(scene: Scene, *actions: Action) -> DemoReply:
    """Call tools, or give up if the step does not have them."""
    missing = sorted({one.tool for one in actions} - scene.tools)
    if missing:
        return give_up(f"I would need {' and '.join(missing)}, which this step does not have here")
    if scene.may_not_call:
        return give_up("no calls are left in this attempt")
    names = " and ".join(dict.fromkeys(one.tool for one in actions))
    return DemoReply(text=f"(demo) I will call {names}.", calls=actions)


def finish(result: JsonValue, reasoning: str) -> DemoReply:
    """Return the answer for a step that has been done."""
    return DemoReply(text=_spelled({"success": True, "result": result, "reasoning": f"(demo) {reasoning}"}))


def give_up(reasoning: str) -> DemoReply:
    """Return the answer for a step that the demo cannot do."""
    return DemoReply(text=_spelled({"success": False, "result": None, "reasoning": f"(demo) {reasoning}"}))


def _spelled(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
