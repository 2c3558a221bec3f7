"""The demo model's plans: for a message with plain commands, and for the steps of workflows. No randomness, no clock.

`plan` returns the rounds of tool calls for a message. Several commands are joined by "and" (one round, in parallel) or
"then" (the next round).

In a workflow (the packaged ones, and the README's `trip`) the request is the demo's only source: `read_scene` finds the
step and the attempt in it, and `play` answers. In each workflow the demo makes one mistake that the workflow engine
catches. `cannot_play` says before a run what it cannot do.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from chatops.domain.canonical import JsonValue, canonical, json_or_text
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.engine.feedback import GUIDANCE
from chatops.models.server_json import as_list, as_object, as_text

_QUOTED = r"`(?P<{0}_b>[^`]+)`|\"(?P<{0}_d>[^\"]+)\"|'(?P<{0}_s>[^']+)'"
_ONE_WORD = r"(?P<{0}_w>[^\s`\"']+)"
_REST = r"(?P<{0}_r>\S.*?)"


def _target(name: str) -> str:
    return f"(?:{_QUOTED.format(name)}|{_ONE_WORD.format(name)})"


def _text(name: str) -> str:
    return f"(?:{_QUOTED.format(name)}|{_REST.format(name)})"


_FILLER = r"(?:(?:the|this|a|file|files|folder|directory|contents?|of|in|page|url|command)\s+)*"
_FLAGS = re.IGNORECASE | re.DOTALL
_END = r"\s*$"
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "web_search",
        re.compile(rf"search\s+(?:the\s+)?(?:web|internet|online)\s+(?:for\s+)?{_text('query')}{_END}", _FLAGS),
    ),
    (
        "file_edit",
        re.compile(
            rf"replace\s+{_text('old')}\s+(?:with|by)\s+{_text('new')}\s+in\s+{_FILLER}{_target('path')}", _FLAGS
        ),
    ),
    ("file_write", re.compile(rf"write\s+{_text('content')}\s+(?:in)?to\s+{_FILLER}{_target('path')}", _FLAGS)),
    ("file_read", re.compile(rf"(?:read|show|open)\s+{_FILLER}{_target('path')}", _FLAGS)),
    ("file_list", re.compile(rf"list(?:\s+{_FILLER}{_target('path')})?", _FLAGS)),
    (
        "file_search",
        re.compile(
            rf"search\s+(?:for\s+)?{_text('pattern')}(?:\s+in\s+{_FILLER}{_target('path')})?{_END}",
            _FLAGS,
        ),
    ),
    ("shell_exec", re.compile(rf"run\s+{_FILLER}{_text('command')}{_END}", _FLAGS)),
    ("web_fetch", re.compile(rf"fetch\s+{_FILLER}{_target('url')}", _FLAGS)),
    ("memory_write", re.compile(rf"remember\s+(?:that\s+)?{_text('text')}{_END}", _FLAGS)),
)
_USE = re.compile(rf"use\s+(?P<tool>[\w-]+)\s+(?P<arguments>\{{.*\}}){_END}", _FLAGS)
"""Any tool by its name, with its arguments as JSON."""
_VERBS = "use|read|show|open|list|search|run|write|replace|fetch|remember"
_START = re.compile(rf"(?<![\w./-])(?:{_VERBS})\b", re.IGNORECASE)
_JOINT = re.compile(
    rf"(?P<joint>\s*,?\s*\b(?:and\s+then|then|and|after that)\b,?|\s*[;,&\n]|\s*[.!?](?=\s))"
    rf"\s+(?:(?:then|please|also|finally|next|now|afterwards)\s+)*(?={_VERBS}\b)",
    re.IGNORECASE,
)
_FILE = r"[\w./~-]*[./][\w./~-]*\w"
_LISTED = re.compile(
    rf"(?P<verb>read|show|open|list)\s+{_FILE}(?P<joint>\s*,(?:\s*and)?\s+|\s+and\s+)(?={_FILE}(?!\w))", re.IGNORECASE
)
"""A file, and another one after it without a verb."""
_SPAN = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
_NOT_NAMES = frozenset("it them that me my you your about more an and all some what something anything for to".split())
_TRAILING = " \t\r\n.,;:!?"


@frozen_dataclass
class Action:
    """One call that the demo model wants to make."""

    tool: str
    arguments: tuple[tuple[str, JsonValue], ...]


@frozen_dataclass
class DemoReply:
    """The demo's text, and its calls."""

    text: str
    calls: tuple[Action, ...] = ()


def plan(message: str) -> list[list[Action]]:
    """Return the rounds of calls for `message`; empty if it has no command that the demo knows."""
    rounds: list[list[Action]] = []
    for is_next, segment in _segments(message[:20_000]):
        actions = [action for one in _one_by_one(segment) if (action := _action(one)) is not None]
        if (is_next and actions) or not rounds:
            rounds.append([])
        rounds[-1] += actions
    return [actions for actions in rounds if actions]


def _one_by_one(segment: str) -> Iterator[str]:
    """Yield a command for each of its files: "read a.py, b.py" is "read a.py" and "read b.py"."""
    while found := _LISTED.match(_mask_quotes(segment)):
        yield segment[: found.start("joint")]
        segment = f"{found['verb']} {segment[found.end('joint') :]}"
    yield segment


def _mask_quotes(message: str) -> str:
    """Return `message` with what stands in quotes masked, so that no command is found there."""
    return _SPAN.sub(lambda span: "\0" * len(span.group()), message)


def _segments(message: str) -> Iterator[tuple[bool, str]]:
    """Yield commands, each with True if it waits for the ones before. Separators inside quotes are ignored."""
    masked = _mask_quotes(message)
    first = _START.search(masked)
    if first is None:
        return
    is_next, begin = False, first.start()
    for joint in _JOINT.finditer(masked, begin):
        yield is_next, message[begin : joint.start()]
        is_next, begin = _waits(joint["joint"]), joint.end()
    yield is_next, message[begin:]


def _waits(joint: str) -> bool:
    word = joint.strip(" \t,").lower()
    return word not in {"and", "", "&"}


def _action(segment: str) -> Action | None:
    segment = segment.strip()
    masked = segment.rstrip(_TRAILING) if not segment.rstrip(_TRAILING).endswith(("/", " ")) else segment
    # "list ." and "read .." keep their dots.
    text = segment if re.search(r"\s\.{1,2}$", segment) else masked
    used = _USE.match(text)
    if used is not None:
        given = json_or_text(used["arguments"])
        return Action(tool=used["tool"], arguments=tuple(given.items())) if isinstance(given, dict) else None
    for tool, form in _FORMS:
        match = form.match(text)
        if match is not None:
            return _with_values(tool, match)
    return None


def _with_values(tool: str, match: re.Match[str]) -> Action | None:
    values: dict[str, JsonValue] = {}
    for group, value in match.groupdict().items():
        if value is None:
            continue
        name, _, kind = group.rpartition("_")
        if kind == "w":
            value = value if set(value) <= {"."} else value.rstrip(",;:!?").removesuffix(".")
            if value.lower() in _NOT_NAMES:
                return Action(tool=tool, arguments=(("path", "."),)) if tool == "file_list" else None
        values[name] = value
    if tool == "file_list":
        values.setdefault("path", ".")
    if tool == "web_fetch" and "://" not in str(values["url"]):
        values["url"] = f"https://{values['url']}"
    return Action(tool=tool, arguments=tuple(values.items()))


OURS = "[chatops]"
"""Prefix of messages that the program sends in the role of the user."""
MAX_SOURCES = 3
MAX_FACTS = 3
"""Maximum number of lines from one source."""
MAX_WORDS = 6
_FORM = 'I understand one kind of change only, written like: replace "this" with "that" in FILE'
_TESTS = "the tests do not pass"
_NOT_MADE = "the edit was not made"
_NO_WORD = "there is no word in the request that I could search for"
_NO_CITY = "I plan only one kind of trip, requested like this: A weekend in Lisbon"
_NOT_BOOKED = "the trip was not booked"
_DAYS = (4, 2)
"""The days of a trip that the demo tries, in order; the first exceeds the README's budget."""
_CITY = re.compile(r"\bin (?P<city>[A-Z][\w-]+(?: [A-Z][\w-]+)*)")
_MATCH = re.compile(r"^(?P<path>[^:\n]+):\d+: ", re.MULTILINE)
_WORD = re.compile(r"[^\W_]{3,}")
_COMMON = frozenset(
    "about all and any are can could did does find for from has have how into its out please say tell that the there "
    "this was were what when where which who why will with you your".split()
)
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


@frozen_dataclass
class Made:
    """A call that was made, and its result."""

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
        return any(word in self.opening for word in words) and _PERSON.search(self.opening) is None

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
    return Scene(
        workflow=place["workflow"],
        step=place["step"],
        request=request["request"] if request else opening,
        opening=opening,
        outputs={one["step"]: one["text"] for text in requests.values() for one in _OUTPUT.finditer(text)},
        calls=tuple(call for calls in rounds_of(messages[start + 1 :]) for call in calls),
        refused=any(one.get("role") == "user" for one in messages[start + 1 :]),
        tools=offered(body),
        may_not_call=body.get("tool_choice") == "none",
    )


def rounds_of(messages: Sequence[Mapping[str, object]]) -> tuple[tuple[Made, ...], ...]:
    """Return the rounds of calls in messages of a request, each call with its result."""
    results = {as_text(m.get("tool_call_id")): as_text(m.get("content")) for m in messages if m.get("role") == "tool"}
    rounds = ([as_object(call) for call in as_list(message.get("tool_calls"))] for message in messages)
    return tuple(tuple(_made_call(call, results) for call in calls) for calls in rounds if calls)


def _made_call(call: Mapping[str, object], results: Mapping[str, str]) -> Made:
    function = as_object(call.get("function"))
    return Made(
        tool=as_text(function.get("name")),
        arguments=object_in(as_text(function.get("arguments"))),
        content=results.get(as_text(call.get("id")), ""),
    )


def offered(body: Mapping[str, object]) -> frozenset[str]:
    """Return the names of the tools of a request."""
    tools = (as_object(as_object(tool).get("function")) for tool in as_list(body.get("tools")))
    return frozenset(as_text(function.get("name")) for function in tools)


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
            return _FORM
        case "research" if not _keywords(request):
            return _NO_WORD
        case "trip" if _CITY.search(request) is None:
            return _NO_CITY
        case _:
            return ""


def _read_code(scene: Scene) -> DemoReply:
    edits = _edits(scene.request)
    if not edits:
        return give_up(_FORM)
    reads = scene.made("file_read")
    if not reads:
        search = action("file_search", pattern=re.escape(_argument(edits[0], "old")))
        return ask(scene, search, *_reads(edits))
    if unread := [call for call in reads if call.failed]:
        return give_up(unread[0].why)
    return finish(
        {"files": [*_paths(edits)], "plan": f"(demo) {_summary(edits)}"}, "read the files that the request names"
    )


def _edit_code(scene: Scene) -> DemoReply:
    """Edit before reading, which the order of the step forbids; then read, then edit."""
    edits = _edits(scene.request)
    if not edits:
        return give_up(_FORM)
    if scene.has_failed_with("did not pass the gate", _TESTS):
        return give_up(f"{_TESTS}, and I cannot repair code")
    if scene.has_failed_with(_NOT_MADE):
        return give_up(f"{_NOT_MADE}, and I do not ask for it again by myself")
    left = [edit for edit in edits if not scene.is_done(edit)]
    last = scene.made("file_edit")[-len(left) :] if left else []
    if left and not last:
        return ask(scene, *left)
    failed = [call for call in last if call.failed]
    if not failed:
        return finish({"changed": [*_paths(edits)], "what": f"(demo) {_summary(edits)}"}, "edited as planned")
    if not scene.made("file_read"):
        return ask(scene, *_reads(left))
    if scene.calls[-1].tool == "file_read":
        return ask(scene, *left)
    return give_up(f"{_NOT_MADE}: {failed[0].why}")


def _sum_up_code(scene: Scene) -> DemoReply:
    edits = _edits(scene.request)
    result = f"{_summary(edits)} The tests pass." if edits else "The change has been made."
    return finish(f"(demo) {result}", "from the request and from what the steps before gave")


def _search_sources(scene: Scene) -> DemoReply:
    words = _keywords(scene.request)
    if not words:
        return give_up(_NO_WORD)
    searches = scene.made("file_search")
    if not searches:
        return ask(scene, action("file_search", pattern=_pattern(words)))
    found = [*dict.fromkeys(_MATCH.findall(searches[-1].content))]
    if searches[-1].failed or not found:
        return give_up(
            f"nothing in this folder says anything about {', '.join(words)}; I look at files only, where a real model "
            "would search the web too"
        )
    sources: list[JsonValue] = [*found[:MAX_SOURCES]]
    return finish({"sources": sources, "why": f"(demo) They mention {', '.join(words)}."}, "searched the folder")


def _read_sources(scene: Scene) -> DemoReply:
    sources = texts(scene.output("search").get("sources"))
    if not sources:
        return give_up("the step before has found no sources")
    reads = scene.made("file_read")
    if not reads:
        return ask(scene, *(action("file_read", path=source) for source in sources))
    wanted = re.compile(_pattern(_keywords(scene.request)))
    facts: list[JsonValue] = []
    for call in reads:
        lines = [line.strip() for line in call.content.splitlines() if wanted.search(line)]
        if not call.failed:
            facts += [{"fact": line[:200], "source": as_text(call.arguments.get("path"))} for line in lines[:MAX_FACTS]]
    if not facts:
        return give_up("the sources could not be read, or say nothing about it")
    return finish({"facts": facts}, "read the sources")


def _write_notes(scene: Scene) -> DemoReply:
    """Forget the source of the last note, which the gate of the step rejects; then name it."""
    facts = [as_object(one) for one in as_list(scene.output("read").get("facts"))]
    if not facts:
        return give_up("the step before has read no facts")
    notes = [f"- {as_text(fact.get('fact'))} [{as_text(fact.get('source'))}]" for fact in facts]
    head = f"(demo) Notes on: {' '.join(scene.request.split())[:200]}"
    whole = "\n".join([head, *notes])
    text = whole if scene.refused else "\n".join([head, *notes[:-1], f"- {as_text(facts[-1].get('fact'))}"])
    kept = scene.made("scratch_write")
    if not kept or (kept[-1].arguments.get("text") != text and not kept[-1].failed):
        return ask(scene, action("scratch_write", text=text))
    if kept[-1].failed:
        return give_up(kept[-1].why)
    return finish(text, "written from the facts that were read, and kept in the scratchpad")


def _plan_trip(scene: Scene) -> DemoReply:
    """Try too many days, which the validation rejects; then fewer."""
    city = _CITY.search(scene.request)
    if city is None:
        return give_up(_NO_CITY)
    checks = scene.made("check_days")
    if checks and not checks[-1].failed:
        days = checks[-1].arguments.get("days")
        return finish(
            {"city": city["city"], "days": days if isinstance(days, int) else 0}, "as many days as the budget allows"
        )
    if len(checks) == len(_DAYS):
        return give_up(checks[-1].why)
    return ask(scene, action("check_days", days=_DAYS[len(checks)]))


def _book_trip(scene: Scene) -> DemoReply:
    if scene.has_failed_with(_NOT_BOOKED):
        return give_up(f"{_NOT_BOOKED}, and I do not ask for it again by myself")
    trip, booked = scene.output("plan"), scene.made("book")
    if not booked:
        days = trip.get("days")
        return ask(scene, action("book", city=as_text(trip.get("city")), days=days if isinstance(days, int) else 0))
    if booked[-1].failed:
        return give_up(f"{_NOT_BOOKED}: {booked[-1].why}")
    return finish(f"(demo) {booked[-1].content}", "booked as planned")


def _edits(request: str) -> list[Action]:
    return [one for together in plan(request) for one in together if one.tool == "file_edit"]


def _reads(edits: list[Action]) -> list[Action]:
    return [action("file_read", path=path) for path in _paths(edits)]


def _paths(edits: list[Action]) -> list[str]:
    return [*dict.fromkeys(_argument(edit, "path") for edit in edits)]


def _summary(edits: list[Action]) -> str:
    parts = [
        f'"{_argument(edit, "old")}" becomes "{_argument(edit, "new")}" in {_argument(edit, "path")}' for edit in edits
    ]
    return f"{'; '.join(parts)}."


def _argument(one: Action, name: str) -> str:
    return str(dict(one.arguments).get(name, ""))


def _keywords(request: str) -> list[str]:
    words = dict.fromkeys(word.lower() for word in _WORD.findall(request))
    return [word for word in words if word not in _COMMON][:MAX_WORDS]


def _pattern(words: list[str]) -> str:
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
