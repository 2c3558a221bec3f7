"""`kill -9` where a run of three steps is stored or performed, then `chatops workflow resume` until it has ended.

However it dies: the run goes on in the middle of a step, a gated effect comes about at most once and is started at
most once, no answer is asked for twice that was stored, and every request is one that a strict server takes.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chatops.config.failpoints import RUN_NAMES, Failpoint
from chatops.domain.events import AskReason
from chatops.domain.tools import Outcome
from chatops.runtime.workflow import turns_of
from chatops.store.base import JournalRow
from tests.e2e.installation import Installation, answers_each_call_once, registry
from tests.e2e.test_kill_points import COMMAND, KILLED, User
from tests.store.storekit import problems
from tests.support.command_line import Ran
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls
from tests.support.workflows import answer, step

RULES = ("--approve", f"shell_exec:{COMMAND}", "--approve", "shell_exec:test -s mark.txt")

REACHED: dict[Failpoint, tuple[int, int]] = {
    "after_commit": (16, 18),
    "before_tool": (3, 3),
    "after_tool": (3, 3),
    "after_model": (5, 5),
    "before_run_commit": (5, 5),
    "in_run_commit": (5, 5),
    "after_run_commit": (5, 5),
}
"""How often a whole run reaches each failpoint, at least and at most: a reply may be stored with the inspection of its
call. The kill tier strikes at and between all of them."""


def steps() -> list[dict[str, Any]]:
    """Look, write (once, then a gate), tell."""
    gate = {"name": "marked", "command": "test -s mark.txt"}
    return [
        step("look", tools=["file_read"]),
        step("write", tools=["shell_exec"], once=["shell_exec"], gates=[gate]),
        step("tell"),
    ]


def model(request: SeenRequest) -> Completion:
    """Does what the step is there for, and then says so."""
    if "Do look." in request.system:
        return answer("seen") if request.tool_results else calls(call("file_read", path="note.txt"))
    if "Do write." in request.system:
        return answer("written") if request.tool_results else calls(call("shell_exec", command=COMMAND))
    return answer("told")


class Operator(User):
    """Someone at a shell who wants the run to end, and never runs twice what may have run."""

    def begin(self, *, dying: str = "") -> Ran:
        """Begin the run."""
        return self.run("workflow", "run", "release", "release it", *RULES, dying=dying)

    def go_on(self) -> Ran:
        """Resume the run, or begin it."""
        with self.installation.store() as store:
            begun = [one.id for one in store.runs()]
        return self.run("workflow", "resume", begun[0], *RULES) if begun else self.begin()

    def answer(self) -> None:
        """A call that may have run is not run again. Nothing else is asked about."""
        with self.installation.store() as store:
            assert {one.pending.reason for one in store.pending_calls()} <= {AskReason.OUTCOME_UNKNOWN}
        super().answer()

    def journal(self) -> list[JournalRow]:
        """Every attempt at a call of the run."""
        with self.installation.store() as store:
            (info,) = store.runs()
            return [row for turn in turns_of(store, store.load_run(info.id)) for row in store.journal(turn.turn_id)]


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    """A strict server."""
    with FakeOpenAI(model) as running:
        yield running


@pytest.fixture
def operator(installation: Installation, server: FakeOpenAI) -> Operator:
    """An operator with a workspace in which something can be written down."""
    (installation.workspace / "mark.txt").write_text("x")
    installation.use({**registry(server.url), "default_role": "coder", "workflows": {"release": {"steps": steps()}}})
    return Operator(installation=installation)


def always(name: str, number: int) -> bool:
    """Return True if the default tier strikes there too: at each step of the run, and at every third of its turns."""
    return name == "in_run_commit" or (name == "after_commit" and number % 3 == 0)


POINTS = [
    pytest.param(name, number, id=f"{name}-{number}", marks=[] if always(name, number) else [pytest.mark.kill])
    for name, (certain, _) in REACHED.items()
    for number in range(1, certain + 1)
]


@pytest.mark.some(1)
@pytest.mark.parametrize(("place", "number"), POINTS)
def test_a_run_killed_there_goes_on_and_takes_effect_once(
    place: str, number: int, operator: Operator, server: FakeOpenAI
) -> None:
    assert operator.begin(dying=f"{place}:{number}").code == KILLED
    assert operator.finish().out == "told\n"
    attempts = [row for row in operator.journal() if "count.txt" in row.arguments and "dd " in row.arguments]
    assert len(attempts) == 1, attempts
    assert operator.installation.count == 1 or attempts[0].outcome is Outcome.UNKNOWN
    assert operator.installation.count <= 1
    assert server.violations == []
    assert all(answers_each_call_once(request) for request in server.requests)
    # At most the reply that was under way is asked for again.
    assert len(server.requests) <= 6
    with operator.installation.store() as store:
        assert problems(store) == []
        assert store.pending_calls() == []


def test_the_table_knows_every_place_of_a_run() -> None:
    assert set(RUN_NAMES) <= set(REACHED)


@pytest.mark.more
@pytest.mark.parametrize(
    "place",
    ["after_commit", *(pytest.param(name, marks=pytest.mark.kill) for name in REACHED if name != "after_commit")],
)
def test_there_is_no_later_place_for_a_run_to_die(place: Failpoint, operator: Operator) -> None:
    _, last = REACHED[place]
    ran = operator.begin(dying=f"{place}:{last + 1}")
    assert ran.code == 0, f"{place} is reached more often than {last} times"
    assert json.loads(operator.run("workflow", "list", "--output-format", "json").out)["runs"]
