"""The demo model in workflows: the packaged ones, and the README's `trip`. No randomness, no clock.

The request is the demo's only source: `read_scene` finds the step and the attempt in it, and `play` answers. In each
workflow the demo makes one mistake that the workflow engine catches. `cannot_play` says before a run what the demo
cannot do.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence

from chatops.demo.plan import Action, plan
from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.engine.feedback import GUIDANCE
from chatops.models.server_json import as_list, as_object, as_text

OURS = "[chatops]"
"""Prefix of messages that the program sends in the role of the user."""
MAX_SOURCES = 3
"""Files that the demo reads."""
MAX_FACTS = 3
"""Lines that it quotes from one of them."""
MAX_WORDS = 6
"""Words of the request that it searches for. These three keep what it writes as short as a screen."""
_ONLY_REPLACES = 'I understand one kind of change only, written like: replace "this" with "that" in FILE'
_TESTS_FAIL = "the tests do not pass"
_NOT_MADE = "the edit was not made"
_NO_WORD = "there is no word in the request that I could search for"
_NO_CITY = "I plan only one kind of trip, requested like this: A weekend in Lisbon"
_NOT_BOOKED = "the trip was not booked"
_DAYS_TRIED = (4, 2)
"""The days of a trip that the demo tries, in order; the first exceeds the README's budget."""
_TRIP_CITY = re.compile(r"\bin (?P<city>[A-Z][\w-]+(?: [A-Z][\w-]+)*)")
_MATCHED_FILE = re.compile(r"^(?P<path>[^:\n]+):\d+: ", re.MULTILINE)
_README = re.compile(r"^README[\w.]*", re.MULTILINE)
_WORD = re.compile(r"[^\W_]{3,}")
_COMMON_WORDS = frozenset(
    "about all and any are can could did does find for from has have how into its out please say tell that the there "
    "this was were what when where which who why will with you your".split()
)
# The next five patterns read sentences of the engine, most of them from `engine.workflow.texts`, as any model would.
_STEP_LINE = re.compile(
    r"^You work on step \d+ of \d+, (?P<step>.+), of the workflow (?P<workflow>[\w-]+)\.$", re.MULTILINE
)
_REQUEST_PART = re.compile(r"The request:\n(?P<request>.*?)\n\nThis is step \d+ of \d+: ", re.DOTALL)
_STEP_OUTPUT = re.compile(
    r"^\[output (?P<n>\w+) of step (?P<step>[^\]\n]+)\]\n(?P<text>.*?)\n\[end of output (?P=n)\]$",
    re.DOTALL | re.MULTILINE,
)
_CALL_NOT_RUN = re.compile(r"\s*(?:Not run|Not permitted|Denied|Refused|There is no tool|\w+ was not run)\b")
_USER_REPLIED = re.compile(r"^The user (?:has reviewed it and says:|wants this step repeated\.)", re.MULTILINE)
_MAX_REASON = 300
"""Characters of a tool's result that a reason quotes."""
_MAX_LISTED_CALL = 200
"""Characters of a call in the engine's list of completed calls, which cuts them there."""
_MAX_QUOTE = 200
"""Characters of a line of a file, or of the request, that notes quote."""


@frozen_dataclass
class DemoReply:
    """The demo's text, and its calls."""

    text: str
    calls: tuple[Action, ...] = ()


@frozen_dataclass
class CallMade:
    """A call that was made, and its result."""

    tool: str
    arguments: Mapping[str, object]
    content: str

    @property
    def failed(self) -> bool:
        """True if the call failed."""
        return GUIDANCE in self.content or _CALL_NOT_RUN.match(self.content) is not None

    @property
    def failure_reason(self) -> str:
        """The result of the call on one line, as the reason that the demo gives."""
        return " ".join(self.content.replace(GUIDANCE, "").split())[:_MAX_REASON]


@frozen_dataclass
class Scene:
    """The state of an attempt at a step."""

    workflow: str
    step: str
    request: str
    opening: str
    """The message that opened this attempt."""
    outputs: Mapping[str, str]
    """Outputs of earlier steps, by step."""
    calls: tuple[CallMade, ...]
    has_rejected_answer: bool
    """True if an answer of this attempt was rejected."""
    tools: frozenset[str]
    may_not_call: bool

    def calls_of(self, tool: str) -> list[CallMade]:
        """Return the calls of one tool, in order."""
        return [call for call in self.calls if call.tool == tool]

    def output(self, step: str) -> Mapping[str, object]:
        """Return the output of an earlier step as an object; empty if there is none."""
        return parse_object(self.outputs.get(step, ""))

    def has_failed_with(self, *words: str) -> bool:
        """Return True if the last attempt failed with any of these words and the user has not replied since."""
        return any(word in self.opening for word in words) and _USER_REPLIED.search(self.opening) is None

    def is_done(self, wanted: Action) -> bool:
        """Return True if an earlier attempt has made this call, so that it must not be repeated."""
        return f"\n- {wanted.tool} {canonical(dict(wanted.arguments))[:_MAX_LISTED_CALL]}" in self.opening


def read_scene(body: Mapping[str, object]) -> Scene | None:
    """Return the step that a request belongs to; None for a chat."""
    messages = [as_object(message) for message in as_list(body.get("messages"))]
    system = "\n".join(as_text(message.get("content")) for message in messages if message.get("role") == "system")
    step_line = _STEP_LINE.search(system)
    if step_line is None:
        return None
    requests = {
        index: text
        for index, message in enumerate(messages)
        if message.get("role") == "user" and not (text := as_text(message.get("content"))).startswith(OURS)
    }
    # The last request opened the attempt.
    last = max(requests, default=None)
    opening, since = (requests[last], messages[last + 1 :]) if last is not None else ("", messages)
    request = _REQUEST_PART.match(opening)
    return Scene(
        workflow=step_line["workflow"],
        step=step_line["step"],
        request=request["request"] if request else opening,
        opening=opening,
        outputs={part["step"]: part["text"] for text in requests.values() for part in _STEP_OUTPUT.finditer(text)},
        calls=tuple(call for calls in rounds_of(since) for call in calls),
        has_rejected_answer=any(message.get("role") == "user" for message in since),
        tools=offered_tools(body),
        may_not_call=body.get("tool_choice") == "none",
    )


def rounds_of(messages: Sequence[Mapping[str, object]]) -> tuple[tuple[CallMade, ...], ...]:
    """Return the rounds of calls in messages of a request, each call with its result."""
    results = {
        as_text(message.get("tool_call_id")): as_text(message.get("content"))
        for message in messages
        if message.get("role") == "tool"
    }
    rounds = ([as_object(call) for call in as_list(message.get("tool_calls"))] for message in messages)
    return tuple(tuple(_made_call(call, results) for call in calls) for calls in rounds if calls)


def _made_call(call: Mapping[str, object], results: Mapping[str, str]) -> CallMade:
    function = as_object(call.get("function"))
    return CallMade(
        tool=as_text(function.get("name")),
        arguments=parse_object(as_text(function.get("arguments"))),
        content=results.get(as_text(call.get("id")), ""),
    )


def offered_tools(body: Mapping[str, object]) -> frozenset[str]:
    """Return the names of the tools of a request."""
    tools = (as_object(as_object(tool).get("function")) for tool in as_list(body.get("tools")))
    return frozenset(as_text(function.get("name")) for function in tools)


def parse_object(text: str) -> Mapping[str, object]:
    """Return the JSON object in a text; empty if there is none."""
    try:
        return as_object(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def make_action(tool: str, **arguments: JsonValue) -> Action:
    """Return a call to make."""
    return Action(tool=tool, arguments=tuple(arguments.items()))


def call_tools(scene: Scene, *actions: Action) -> DemoReply:
    """Call tools, or give up if the step does not have them."""
    missing = sorted({action.tool for action in actions} - scene.tools)
    if missing:
        return give_up(f"I would need {' and '.join(missing)}, which this step does not have here")
    if scene.may_not_call:
        return give_up("no calls are left in this attempt")
    names = " and ".join(dict.fromkeys(action.tool for action in actions))
    return DemoReply(text=f"(demo) I will call {names}.", calls=actions)


def finish(result: JsonValue, reasoning: str) -> DemoReply:
    """Return the answer for a step that has been done."""
    return DemoReply(text=_json_text({"success": True, "result": result, "reasoning": f"(demo) {reasoning}"}))


def give_up(reasoning: str) -> DemoReply:
    """Return the answer for a step that the demo cannot do."""
    return DemoReply(text=_json_text({"success": False, "result": None, "reasoning": f"(demo) {reasoning}"}))


def _json_text(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def play(body: Mapping[str, object]) -> DemoReply | None:
    """Return the demo's next answer in the step that a request belongs to; None if it belongs to none."""
    scene = read_scene(body)
    if scene is None:
        return None
    player = _PLAYERS.get((scene.workflow, scene.step))
    return player(scene) if player is not None else give_up(_CANNOT)


def cannot_play(workflow: str, steps: Sequence[str], request: str) -> str:
    """Return the reason why the demo cannot play these steps for a request; empty if none is known."""
    if any((workflow, step) not in _PLAYERS for step in steps):
        return _CANNOT
    match workflow:
        case "code-change" if not _edits(request):
            return _ONLY_REPLACES
        case "research" if not _keywords(request):
            return _NO_WORD
        case "trip" if _TRIP_CITY.search(request) is None:
            return _NO_CITY
        case _:
            return ""


def _read_code(scene: Scene) -> DemoReply:
    edits = _edits(scene.request)
    if not edits:
        return give_up(_ONLY_REPLACES)
    reads = scene.calls_of("file_read")
    if not reads:
        search = make_action("file_search", pattern=re.escape(_argument_of(edits[0], "old")))
        return call_tools(scene, search, *_read_actions(edits))
    if unread := [call for call in reads if call.failed]:
        return give_up(unread[0].failure_reason)
    return finish(
        {"files": [*_paths(edits)], "plan": f"(demo) {_summary(edits)}"}, "read the files that the request names"
    )


def _edit_code(scene: Scene) -> DemoReply:
    """Edit before reading, which the order of the step forbids; then read, then edit.

    Each request continues where the calls so far have led: first the failures of earlier attempts, which nothing mends,
    then no edit yet, all edits made, a refused edit without a read, the read made, and an edit refused after it.
    """
    edits = _edits(scene.request)
    if not edits:
        return give_up(_ONLY_REPLACES)
    if scene.has_failed_with("did not pass the gate", _TESTS_FAIL):
        return give_up(f"{_TESTS_FAIL}, and I cannot repair code")
    if scene.has_failed_with(_NOT_MADE):
        return give_up(f"{_NOT_MADE}, and I do not ask for it again by myself")
    left = [edit for edit in edits if not scene.is_done(edit)]
    last = scene.calls_of("file_edit")[-len(left) :] if left else []
    if left and not last:
        return call_tools(scene, *left)
    failed = [call for call in last if call.failed]
    if not failed:
        return finish({"changed": [*_paths(edits)], "what": f"(demo) {_summary(edits)}"}, "edited as planned")
    if not scene.calls_of("file_read"):
        return call_tools(scene, *_read_actions(left))
    if scene.calls[-1].tool == "file_read":
        return call_tools(scene, *left)
    return give_up(f"{_NOT_MADE}: {failed[0].failure_reason}")


def _sum_up_code(scene: Scene) -> DemoReply:
    edits = _edits(scene.request)
    result = f"{_summary(edits)} The tests pass." if edits else "The change has been made."
    return finish(f"(demo) {result}", "from the request and from what the steps before gave")


def _search_sources(scene: Scene) -> DemoReply:
    words = _keywords(scene.request)
    if not words:
        return give_up(_NO_WORD)
    searches, lists = scene.calls_of("file_search"), scene.calls_of("file_list")
    if not searches:
        return call_tools(scene, make_action("file_search", pattern=_search_pattern(words)))
    found = [*dict.fromkeys(_MATCHED_FILE.findall(searches[-1].content))]
    if not found and not lists:
        return call_tools(scene, make_action("file_list", path="."))
    # A README may say something about it in other words.
    found = found or [*dict.fromkeys(_README.findall(lists[-1].content))]
    if not found:
        return give_up(
            f"nothing in this folder says anything about {', '.join(words)}; I look at files only, where a real model "
            "would search the web too"
        )
    sources: list[JsonValue] = [*found[:MAX_SOURCES]]
    return finish({"sources": sources, "why": "(demo) They are the nearest to the request."}, "searched the folder")


def _read_sources(scene: Scene) -> DemoReply:
    sources = [source for source in as_list(scene.output("search").get("sources")) if isinstance(source, str)]
    if not sources:
        return give_up("the step before has found no sources")
    reads = scene.calls_of("file_read")
    if not reads:
        return call_tools(scene, *(make_action("file_read", path=source) for source in sources))
    wanted = re.compile(_search_pattern(_keywords(scene.request)))
    facts: list[JsonValue] = []
    for call in reads:
        lines = [line.strip() for line in call.content.splitlines() if line.strip()]
        # Of a README in which none of the words is, the first lines.
        lines = [line for line in lines if wanted.search(line)] or lines
        if not call.failed:
            facts += [
                {"fact": line[:_MAX_QUOTE], "source": as_text(call.arguments.get("path"))} for line in lines[:MAX_FACTS]
            ]
    if not facts:
        return give_up("the sources could not be read, or say nothing about it")
    return finish({"facts": facts}, "read the sources")


def _write_notes(scene: Scene) -> DemoReply:
    """Forget the source of the last note, which the gate of the step rejects; then name it."""
    facts = [as_object(fact) for fact in as_list(scene.output("read").get("facts"))]
    if not facts:
        return give_up("the step before has read no facts")
    notes = [f"- {as_text(fact.get('fact'))} [{as_text(fact.get('source'))}]" for fact in facts]
    head = f"(demo) Notes on: {' '.join(scene.request.split())[:_MAX_QUOTE]}"
    whole = "\n".join([head, *notes])
    text = whole if scene.has_rejected_answer else "\n".join([head, *notes[:-1], f"- {as_text(facts[-1].get('fact'))}"])
    writes = scene.calls_of("scratch_write")
    if not writes or (writes[-1].arguments.get("text") != text and not writes[-1].failed):
        return call_tools(scene, make_action("scratch_write", text=text))
    if writes[-1].failed:
        return give_up(writes[-1].failure_reason)
    return finish(text, "written from the facts that were read, and kept in the scratchpad")


def _plan_trip(scene: Scene) -> DemoReply:
    """Try too many days, which the validation rejects; then fewer."""
    city = _TRIP_CITY.search(scene.request)
    if city is None:
        return give_up(_NO_CITY)
    checks = scene.calls_of("check_days")
    if checks and not checks[-1].failed:
        days = checks[-1].arguments.get("days")
        return finish(
            {"city": city["city"], "days": days if isinstance(days, int) else 0}, "as many days as the budget allows"
        )
    if len(checks) == len(_DAYS_TRIED):
        return give_up(checks[-1].failure_reason)
    return call_tools(scene, make_action("check_days", days=_DAYS_TRIED[len(checks)]))


def _book_trip(scene: Scene) -> DemoReply:
    if scene.has_failed_with(_NOT_BOOKED):
        return give_up(f"{_NOT_BOOKED}, and I do not ask for it again by myself")
    trip, booked = scene.output("plan"), scene.calls_of("book")
    if not booked:
        days = trip.get("days")
        return call_tools(
            scene, make_action("book", city=as_text(trip.get("city")), days=days if isinstance(days, int) else 0)
        )
    if booked[-1].failed:
        return give_up(f"{_NOT_BOOKED}: {booked[-1].failure_reason}")
    return finish(f"(demo) {booked[-1].content}", "booked as planned")


def _edits(request: str) -> list[Action]:
    return [action for actions in plan(request) for action in actions if action.tool == "file_edit"]


def _read_actions(edits: list[Action]) -> list[Action]:
    return [make_action("file_read", path=path) for path in _paths(edits)]


def _paths(edits: list[Action]) -> list[str]:
    return [*dict.fromkeys(_argument_of(edit, "path") for edit in edits)]


def _summary(edits: list[Action]) -> str:
    parts = [
        f'"{_argument_of(edit, "old")}" becomes "{_argument_of(edit, "new")}" in {_argument_of(edit, "path")}'
        for edit in edits
    ]
    return f"{'; '.join(parts)}."


def _argument_of(action: Action, name: str) -> str:
    return str(dict(action.arguments).get(name, ""))


def _keywords(request: str) -> list[str]:
    words = dict.fromkeys(word.lower() for word in _WORD.findall(request))
    return [word for word in words if word not in _COMMON_WORDS][:MAX_WORDS]


def _search_pattern(words: list[str]) -> str:
    return rf"(?i)\b(?:{'|'.join(re.escape(word) for word in words)})"


_PLAYERS: Mapping[tuple[str, str], Callable[[Scene], DemoReply]] = {
    ("code-change", "read"): _read_code,
    ("code-change", "edit"): _edit_code,
    ("code-change", "summary"): _sum_up_code,
    ("research", "search"): _search_sources,
    ("research", "read"): _read_sources,
    ("research", "note"): _write_notes,
    ("trip", "plan"): _plan_trip,
    ("trip", "book"): _book_trip,
}
_CANNOT = (
    "I am the built-in demo and no language model: of workflows I play only those that come with chatops, "
    f"{', '.join(dict.fromkeys(workflow for workflow, _ in _PLAYERS if workflow != 'trip'))}, and the README's trip. "
    "To run this one, connect a model: chatops connect URL"
)
