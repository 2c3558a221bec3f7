"""The demo model in the steps of workflows: the packaged ones, and the README's `trip`.

In each it makes one mistake that the workflow engine catches. `cannot_play` says before a run what it cannot do.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from chatops.demo.flows import assemble, configure, discover
from chatops.demo.plan import Action, DemoReply, plan
from chatops.demo.steps import Scene, action, ask, finish, give_up, read_scene, texts
from chatops.domain.canonical import JsonValue
from chatops.models.server_json import as_list, as_object, as_text

MOST_SOURCES = 3
MOST_FACTS = 3
"""Maximum number of lines from one source."""
MOST_WORDS = 6
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
    left = [one for one in edits if not scene.is_done(one)]
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
    sources: list[JsonValue] = [*found[:MOST_SOURCES]]
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
            facts += [
                {"fact": line[:200], "source": as_text(call.arguments.get("path"))} for line in lines[:MOST_FACTS]
            ]
    if not facts:
        return give_up("the sources could not be read, or say nothing about it")
    return finish({"facts": facts}, "read the sources")


def _write_notes(scene: Scene) -> DemoReply:
    """Forget the source of the last note, which the gate of the step rejects; then name it."""
    facts = [as_object(one) for one in as_list(scene.output("read").get("facts"))]
    if not facts:
        return give_up("the step before has read no facts")
    notes = [f"- {as_text(one.get('fact'))} [{as_text(one.get('source'))}]" for one in facts]
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
    return [*dict.fromkeys(_argument(one, "path") for one in edits)]


def _summary(edits: list[Action]) -> str:
    parts = [
        f'"{_argument(one, "old")}" becomes "{_argument(one, "new")}" in {_argument(one, "path")}' for one in edits
    ]
    return f"{'; '.join(parts)}."


def _argument(one: Action, name: str) -> str:
    return str(dict(one.arguments).get(name, ""))


def _keywords(request: str) -> list[str]:
    words = dict.fromkeys(word.lower() for word in _WORD.findall(request))
    return [word for word in words if word not in _COMMON][:MOST_WORDS]


def _pattern(words: list[str]) -> str:
    return rf"(?i)\b(?:{'|'.join(re.escape(word) for word in words)})"


_PLAYERS: Mapping[tuple[str, str], Callable[[Scene], DemoReply]] = {
    ("components", "discover"): discover,
    ("components", "configure"): configure,
    ("components", "assemble"): assemble,
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
