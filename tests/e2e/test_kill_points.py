"""`kill -9` at every place of a gated turn where the program can die, then on to the end as a user would.

Faults D01 to D12: however and wherever it dies, an approved effect comes about at most once, nothing is started
a second time without a user asking for it, and the next request is one that a strict server takes.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from chatops.config.failpoints import NAMES, VARIABLE, Failpoint
from chatops.domain.events import AskReason
from chatops.domain.tools import Outcome
from tests.e2e.installation import Installation, answers_each_call_once, registry
from tests.store.storekit import problems
from tests.support.command_line import Ran, program
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says

KILLED = -9
COMMAND = "dd if=mark.txt of=count.txt oflag=append conv=notrunc status=none"
EDITED = COMMAND.replace("mark.txt", "./mark.txt")
PROMPT = "write it down"
ANSWER = "Written down."
ENOUGH = 6
"""Commands after which a user would give up."""

# How often a run of each kind gets to each place: at least, and at most. A reply is stored with the first inspection of
# its calls or before it, and two inspections of a round may end together or one after the other. A reply comes in more
# or fewer pieces: its first one counts here.
REACHED: dict[str, dict[Failpoint, tuple[int, int]]] = {
    # -p with a rule that answers the question: the whole turn in one process.
    "ruled": {
        "before_commit": (5, 8),
        "in_commit": (5, 8),
        "after_commit": (5, 8),
        "after_publish": (5, 8),
        "after_inspect": (2, 2),
        "before_tool": (2, 2),
        "after_tool": (2, 2),
        "before_model": (2, 2),
        "in_stream": (1, 1),
        "after_model": (2, 2),
    },
    # -p up to the question.
    "asked": {
        "before_commit": (4, 5),
        "in_commit": (4, 5),
        "after_commit": (4, 5),
        "after_publish": (4, 5),
        "after_inspect": (2, 2),
        "before_tool": (1, 1),
        "after_tool": (1, 1),
        "before_model": (1, 1),
        "in_stream": (1, 1),
        "after_model": (1, 1),
    },
    # `approvals approve --edit`, which checks the edit and asks again.
    "edited": {
        "before_commit": (3, 3),
        "in_commit": (3, 3),
        "after_commit": (3, 3),
        "after_publish": (3, 3),
        "after_inspect": (1, 1),
    },
    # `resume` after the call was approved in another terminal.
    "resumed": {
        "before_commit": (5, 5),
        "in_commit": (5, 5),
        "after_commit": (5, 5),
        "after_publish": (5, 5),
        "after_inspect": (1, 1),
        "before_tool": (1, 1),
        "after_tool": (1, 1),
        "before_model": (1, 1),
        "in_stream": (1, 1),
        "after_model": (1, 1),
    },
}


def model(request: SeenRequest) -> Completion:
    """Looks and writes, side by side, and then says so."""
    if request.tool_results:
        return says(ANSWER)
    return calls(call("file_read", path="note.txt"), call("shell_exec", command=COMMAND), text="I look and write.")


@dataclass(kw_only=True)
class User:
    """Someone at a shell who wants the turn to end, and never runs twice what may have run."""

    installation: Installation
    codes: list[int] = field(default_factory=list)

    def run(self, *arguments: str, dying: str = "") -> Ran:
        """One command; `dying`: where it is killed."""
        env = {"CHATOPS_HOME": str(self.installation.home), VARIABLE: dying}
        return program(*self.installation.flags, *arguments, cwd=self.installation.workspace, env=env)

    def ask(self, *arguments: str, dying: str = "") -> Ran:
        """Send the prompt, as coder."""
        return self.run("-p", PROMPT, "--role", "coder", *arguments, dying=dying)

    def answer(self) -> None:
        """Approve what is asked about; what may have run already is not run again."""
        with self.installation.store() as store:
            waiting = [one.pending for one in store.pending_calls() if one.decided is None]
        for one in waiting:
            word = "deny" if one.reason is AskReason.OUTCOME_UNKNOWN else "approve"
            done = self.run("approvals", word, one.call.id)
            assert done.code == 0, done.err

    def go_on(self) -> Ran:
        """Resume what has begun, or begin."""
        with self.installation.store() as store:
            begun = [one.id for one in store.sessions() if one.messages]
        return self.run("resume", begun[0]) if begun else self.ask()

    def finish(self) -> Ran:
        """Go on until it has ended well; AssertionError if that takes too long or a command fails."""
        for _ in range(ENOUGH):
            ran = self.go_on()
            self.codes.append(ran.code)
            assert ran.code in (0, 3), ran.err
            assert "Traceback" not in ran.err
            if ran.code == 0:
                return ran
            self.answer()
        raise AssertionError(f"No end after {ENOUGH} attempts: {self.codes}")


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    """A strict server."""
    with FakeOpenAI(model) as running:
        yield running


@pytest.fixture
def owner(installation: Installation, server: FakeOpenAI) -> User:
    """A user with a workspace in which something can be written down."""
    (installation.workspace / "mark.txt").write_text("x")
    installation.use(registry(server.url))
    return User(installation=installation)


def begin(owner: User, kind: str, dying: str) -> Ran:
    """The command of that kind, killed at `dying`, after what has to come before it."""
    if kind == "ruled":
        return owner.ask("--approve", f"shell_exec:{COMMAND}", dying=dying)
    if kind == "asked":
        return owner.ask(dying=dying)
    paused = owner.ask("--output-format", "json")
    assert paused.code == 3, paused.err
    (pending,) = json.loads(paused.out)["pending"]
    if kind == "edited":
        return owner.run("approvals", "approve", pending["id"], "--edit", json.dumps({"command": EDITED}), dying=dying)
    owner.answer()
    return owner.run("resume", json.loads(paused.out)["session_id"], dying=dying)


ALWAYS = {"ruled": "after_commit", "edited": "in_commit"}
"""The places that are tried in the default tier; all of them in the tier of kills."""
POINTS = [
    pytest.param(
        kind,
        name,
        number,
        number <= certain,
        id=f"{kind}-{name}-{number}",
        marks=[] if ALWAYS.get(kind) == name else [pytest.mark.kill],
    )
    for kind, places in REACHED.items()
    for name, (certain, possible) in places.items()
    for number in range(1, possible + 1)
]


@pytest.mark.some(1)
@pytest.mark.parametrize(("kind", "place", "number", "certain"), POINTS)
def test_killed_there_it_comes_about_once(
    kind: str, place: str, number: int, certain: bool, owner: User, server: FakeOpenAI
) -> None:
    ran = begin(owner, kind, f"{place}:{number}")
    assert ran.code == KILLED or not certain, ran
    ended = owner.finish()
    assert ANSWER in ended.out
    outcomes = assert_at_most_once(owner.installation)
    assert owner.installation.count == 1 or outcomes == [Outcome.UNKNOWN]
    assert server.violations == []
    assert len(server.requests[-1].tool_results) == 2
    assert answers_each_call_once(server.requests[-1])
    with owner.installation.store() as store:
        assert problems(store) == []
        assert store.pending_calls() == []


def assert_at_most_once(installation: Installation) -> list[Outcome | None]:
    """The one attempt that may change anything, or none; how it ended."""
    assert installation.count <= 1
    attempts = [row for row in installation.journal() if row.tool == "shell_exec"]
    assert len(attempts) <= 1, attempts
    return [row.outcome for row in attempts]


def test_the_table_knows_every_place() -> None:
    assert set(REACHED["ruled"]) == set(NAMES)


@pytest.mark.parametrize("place", ["before_commit", "before_tool", "before_model"])
@pytest.mark.parametrize(
    "kind", ["ruled", *(pytest.param(kind, marks=pytest.mark.kill) for kind in REACHED if kind != "ruled")]
)
def test_there_is_no_later_place_to_die(kind: str, place: Failpoint, owner: User) -> None:
    """The failpoints before and after an effect are reached equally often, so one of each pair is enough."""
    _, last = REACHED[kind].get(place, (0, 0))
    ran = begin(owner, kind, f"{place}:{last + 1}")
    assert ran.code == (3 if kind == "asked" else 0), f"{place} is reached more often than {last} times"
