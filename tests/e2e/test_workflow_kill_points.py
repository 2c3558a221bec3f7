"""`kill -9` where a run of three steps is stored or performed, then `chatops workflow resume` until it has ended.

However it dies: the run goes on in the middle of a step, a gated effect comes about at most once and is started at
most once, no answer is asked for twice that was stored, and every request is one that a strict server takes.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from chatops.config.failpoints import RUN_NAMES, VARIABLE, Failpoint
from chatops.domain.events import AskReason
from chatops.domain.tools import Outcome
from chatops.runtime.workflow import turns_of
from chatops.store.base import JournalRow
from tests.e2e.fork_server import ForkServer
from tests.e2e.installation import Installation, answers_each_call_once, registry
from tests.store.storekit import problems
from tests.support.command_line import Ran
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls
from tests.support.workflows import answer, step

KILLED = -9
COMMAND = "dd if=mark.txt of=count.txt oflag=append conv=notrunc status=none"
RULES = ("--approve", f"shell_exec:{COMMAND}", "--approve", "shell_exec:test -s mark.txt")
ENOUGH = 6
"""Commands after which a user would give up."""

REACHED: dict[Failpoint, int] = {
    "after_commit": 18,
    "before_tool": 3,
    "after_tool": 3,
    "after_model": 5,
    "before_run_commit": 5,
    "in_run_commit": 5,
    "after_run_commit": 5,
}
"""How often a whole run reaches each failpoint. The kill tier strikes at and between all of them."""


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


@dataclass(kw_only=True)
class Operator:
    """Someone at a shell who wants the run to end, and never runs twice what may have run."""

    installation: Installation
    fork_server: ForkServer
    codes: list[int] = field(default_factory=list)

    def command(self, *arguments: str, dying: str = "") -> Ran:
        """One command; `dying`: where it is killed."""
        env = {"CHATOPS_HOME": str(self.installation.home), VARIABLE: dying}
        return self.fork_server.run(*self.installation.flags, *arguments, cwd=self.installation.workspace, env=env)

    def run(self, *, dying: str = "") -> Ran:
        """Begin the run."""
        return self.command("workflow", "run", "release", "release it", *RULES, dying=dying)

    def finish(self) -> Ran:
        """Go on until the run has ended well; AssertionError if that takes too long or a command fails."""
        for _ in range(ENOUGH):
            with self.installation.store() as store:
                begun = [one.id for one in store.runs()]
            ran = self.command("workflow", "resume", begun[0], *RULES) if begun else self.run()
            self.codes.append(ran.code)
            assert ran.code in (0, 3), ran.err
            assert "Traceback" not in ran.err
            if ran.code == 0:
                return ran
            self.leave_unknown()
        raise AssertionError(f"No end after {ENOUGH} commands: {self.codes}")

    def leave_unknown(self) -> None:
        """A call that may have run is not run again."""
        with self.installation.store() as store:
            waiting = [one.pending for one in store.pending_calls() if one.decided is None]
        for one in waiting:
            assert one.reason is AskReason.OUTCOME_UNKNOWN
            assert self.command("approvals", "deny", one.call.id).code == 0

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
def operator(installation: Installation, fork_server: ForkServer, server: FakeOpenAI) -> Operator:
    """An operator with a workspace in which something can be written down."""
    (installation.workspace / "mark.txt").write_text("x")
    installation.use({**registry(server.url), "default_role": "coder", "workflows": {"release": {"steps": steps()}}})
    return Operator(installation=installation, fork_server=fork_server)


def always(name: str, number: int) -> bool:
    """Return True if the default tier strikes there too: at each step of the run, and at every third of its turns."""
    return name == "in_run_commit" or (name == "after_commit" and number % 3 == 0)


POINTS = [
    pytest.param(name, number, id=f"{name}-{number}", marks=[] if always(name, number) else [pytest.mark.kill])
    for name, times in REACHED.items()
    for number in range(1, times + 1)
]


@pytest.mark.some(1)
@pytest.mark.parametrize(("place", "number"), POINTS)
def test_a_run_killed_there_goes_on_and_takes_effect_once(
    place: str, number: int, operator: Operator, server: FakeOpenAI
) -> None:
    assert operator.run(dying=f"{place}:{number}").code == KILLED
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
    ran = operator.run(dying=f"{place}:{REACHED[place] + 1}")
    assert ran.code == 0, f"{place} is reached more often than {REACHED[place]} times"
    assert json.loads(operator.command("workflow", "list", "--output-format", "json").out)["runs"]
