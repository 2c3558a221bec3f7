"""Twenty small tasks that show if a model can use tools: ``chatops doctor --model NAME --tasks``.

A task is an ordinary turn in a scratch folder, in a session of a store of its own, under a role made for it: built-in
tools for files and commands, no rules, no MCP servers, no notes, no skills. It is a contained turn at sandbox level
hard, so no command sees more than a copy of the scratch folder. What is in the copy at the end counts: only a user may
apply it, and no one has to. Where turns cannot be contained, only the tasks that read are played.

A task counts as done by what is in the files, or by a word in the answer that neither the task nor a name contains.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path

from chatops.config.paths import Paths
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.events import PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind
from chatops.domain.tools import CONTAINED_APPLY, AccessLevel, Outcome
from chatops.engine.state import TurnState
from chatops.engine.transcript import tokens, tools_tokens
from chatops.engine.view import failure_of, pending_calls
from chatops.headless.report import report
from chatops.headless.run import deny_all
from chatops.models.memory import TaskScore, memory_of
from chatops.policy.grant import Grant
from chatops.policy.registry import ModelSpec, Price, RoleSpec
from chatops.runtime.session import Session
from chatops.store.store import Store
from chatops.wiring.app import App
from chatops.wiring.stored import Options

ROLE = "tasks"
READING_TOOLS = ("file_read", "file_list", "file_search")
WRITING_TOOLS = ("file_write", "file_edit", "shell_exec")
MAX_TASK_ROUNDS = 8
"""Rounds of a task. Those that know how need two to five."""
_TYPICAL_ROUNDS = 4
_ANSWER_TOKENS = 120
"""Tokens of a usual reply: one call, or one sentence."""
_RESULT_TOKENS = 400
"""Tokens that results and earlier calls add to a usual request."""
_SERVER_FAILURES = frozenset(
    {
        FailureKind.UNREACHABLE,
        FailureKind.UNAUTHORIZED,
        FailureKind.NOT_FOUND,
        FailureKind.RATE_LIMITED,
        FailureKind.QUOTA,
        FailureKind.SERVER_ERROR,
        FailureKind.CONFIGURATION,
    }
)
"""Failures that say nothing about the model."""


@frozen_dataclass
class Task:
    """A task, and how to see that it is done."""

    name: str
    prompt: str
    files: Mapping[str, str]
    """The content of the scratch folder, by path."""
    answer: str = ""
    """A text that the answer has to contain, in any case; empty if the files decide."""
    result: Mapping[str, str] = field(default_factory=dict)
    """What files have to contain afterwards, but for line ends at the end."""

    @property
    def reads_only(self) -> bool:
        """True if the task needs no tool that writes or runs something."""
        return not self.result

    def is_done(self, folder: Path, answer: str) -> bool:
        """Return True if the task is done."""
        if self.answer.casefold() not in answer.casefold():
            return False
        return all(_read_content(folder / name) == content.rstrip("\n") for name, content in self.result.items())


def _read_content(path: Path) -> str | None:
    try:
        # A command may have put a pipe there.
        return path.read_text(errors="replace").rstrip("\n") if path.is_file() else None
    except OSError:
        return None


def _log_lines(count: int, *, at: int, word: str) -> str:
    """Return numbered entries of a log, one of which holds a word."""
    return "".join(f"entry {number} {word if number == at else 'idle'}\n" for number in range(1, count + 1))


_CHECK = 'grep -qx "mode = safe" config.ini || { echo "config.ini: mode has to be safe"; exit 1; }\n'
TASKS = (
    Task(
        name="read a file",
        prompt="Read note.txt. On which day is the invoice due?",
        files={"note.txt": "The invoice is due on Thursday.\n"},
        answer="Thursday",
    ),
    Task(
        name="find a file whose path is wrong",
        prompt="What does the file notes.txt say about the colour of the door?",
        files={"docs/old/notes.txt": "The door is turquoise.\n"},
        answer="turquoise",
    ),
    Task(
        name="list a folder",
        prompt="Which file in the folder reports ends in .csv? Give its whole name.",
        files={"reports/a.txt": "x\n", "reports/harvest-2031.csv": "1\n", "reports/b.md": "x\n"},
        answer="harvest-2031.csv",
    ),
    Task(
        name="search for a definition",
        prompt="In which file is the function parse_header defined?",
        files={
            "src/wire.py": "def parse_header(line):\n    return line.split(':')\n",
            "src/main.py": "from wire import parse_header\n\nprint(parse_header('a:b'))\n",
            "src/text.py": "def parse_footer(line):\n    return line\n",
        },
        answer="wire.py",
    ),
    Task(
        name="search for text that is no valid pattern",
        prompt="Which file contains the text f(x exactly as written here?",
        files={"one.py": "g(y)\n", "two-heron.py": "f(x, 1)\n", "three.py": "f[x]\n"},
        answer="two-heron.py",
    ),
    Task(
        name="read the middle of a file",
        prompt="Which word stands at the end of entry 140 in log.txt?",
        files={"log.txt": _log_lines(200, at=140, word="kestrel")},
        answer="kestrel",
    ),
    Task(
        name="read a file in parts",
        prompt="The last line of big.txt is a sentence about a key. What is the key?",
        files={"big.txt": "".join(f"row {n} {'x' * 90}\n" for n in range(1, 700)) + "the key is 73195\n"},
        answer="73195",
    ),
    Task(
        name="read a folder that was taken for a file",
        prompt="Read settings and tell me the port number that is configured.",
        files={"settings/server.ini": "host = localhost\nport = 47113\n"},
        answer="47113",
    ),
    Task(
        name="read two files",
        prompt="north.txt and south.txt hold one number each. What is their sum?",
        files={"north.txt": "1708\n", "south.txt": "2613\n"},
        answer="4321",
    ),
    Task(
        name="follow a reference",
        prompt="start.txt says where to go on reading. What is the word at the end?",
        files={"start.txt": "Go on in a/next.txt\n", "a/next.txt": "Go on in ../b.txt\n", "b.txt": "juniper\n"},
        answer="juniper",
    ),
    Task(
        name="stay in the folder",
        prompt="Read /etc/hostname. If that is not permitted, read fallback.txt instead and tell me its word.",
        files={"fallback.txt": "marigold\n"},
        answer="marigold",
    ),
    Task(
        name="write a file",
        prompt="Create the file made.txt with exactly one line: ready",
        files={},
        result={"made.txt": "ready\n"},
    ),
    Task(
        name="write into a folder that is missing",
        prompt="Create the file out/today/list.txt with the two lines first and second.",
        files={"readme.md": "x\n"},
        result={"out/today/list.txt": "first\nsecond\n"},
    ),
    Task(
        name="edit with tabs",
        prompt="In hello.py, let it print bye instead of hello. Change nothing else.",
        files={"hello.py": "def main():\n\tif True:\n\t\tprint('hello')\n"},
        result={"hello.py": "def main():\n\tif True:\n\t\tprint('bye')\n"},
    ),
    Task(
        name="edit what occurs twice",
        prompt="In a.py, change the second x = 1 into x = 3. The first one stays.",
        files={"a.py": "x = 1\ny = 2\nx = 1\n"},
        result={"a.py": "x = 1\ny = 2\nx = 3\n"},
    ),
    Task(
        name="edit a line by its number",
        prompt="Change line 4 of table.txt into: 4 pears",
        files={"table.txt": "1 apples\n2 plums\n3 figs\n4 nuts\n5 dates\n"},
        result={"table.txt": "1 apples\n2 plums\n3 figs\n4 pears\n5 dates\n"},
    ),
    Task(
        name="rename in two files",
        prompt="Rename the function total to amount in all files.",
        files={"lib.py": "def total(a):\n    return a\n", "use.py": "from lib import total\n\nprint(total(2))\n"},
        result={"lib.py": "def amount(a):\n    return a\n", "use.py": "from lib import amount\n\nprint(amount(2))\n"},
    ),
    Task(
        name="run a command that fails",
        prompt="Run the command `cp seed.txt store/seed.txt`. If it fails, do what is needed so that it works.",
        files={"seed.txt": "seed\n"},
        result={"store/seed.txt": "seed\n"},
    ),
    Task(
        name="count with a command",
        prompt="Count the lines of data.txt with a command, and write only the number into count.txt.",
        files={"data.txt": "row\n" * 257},
        result={"count.txt": "257\n"},
    ),
    Task(
        name="mend what a check reports",
        prompt="Run `sh check.sh`. Correct config.ini until the check passes. Do not change check.sh.",
        files={"check.sh": _CHECK, "config.ini": "name = demo\nmode = fast\n"},
        result={"check.sh": _CHECK, "config.ini": "name = demo\nmode = safe\n"},
    ),
)


@frozen_dataclass
class TaskResult:
    """How a model did a task."""

    task: Task
    done: bool
    rounds: int
    """Requests to the model."""
    errors: int
    """Calls that did not run as written, or failed."""
    seconds: float


@frozen_dataclass
class Plan:
    """What will be played, and what that takes."""

    spec: ModelSpec
    tasks: tuple[Task, ...]
    left_out: str
    """Why tasks that write are left out, as a sentence; empty if they are played."""
    requests: int
    """A usual number of requests. `MAX_TASK_ROUNDS` times the tasks is the most."""
    input_tokens: int
    output_tokens: int
    price: Price | None

    @property
    def cost(self) -> float | None:
        """The usual cost; None if the model's price is unknown."""
        if self.price is None:
            return None
        return (self.input_tokens * self.price.input + self.output_tokens * self.price.output) / 1e6


async def plan(app: App, name: str) -> Plan:
    """Return what would be played with a model. Raises ConfigError if there is no such model, or a broken registry."""
    if app.loaded.broken is not None:
        raise app.loaded.broken
    spec = app.rights.model(name)
    if spec is None:
        known = ", ".join(one.name for one in app.rights.models())
        raise ConfigError(f"There is no model {name!r}.", advice=f"Known: {known}.")
    async with _open_scratch(app, spec, contained=True) as trial:
        grant = trial.grant_for(ROLE)
        why = await asyncio.to_thread(_why_not_contained, trial, grant)
    tasks = tuple(task for task in TASKS if not why or task.reads_only)
    request_tokens = tokens(len(grant.prompt)) + tools_tokens(grant.tools) + _RESULT_TOKENS
    requests = _TYPICAL_ROUNDS * len(tasks)
    memory = memory_of(spec, app.settings)
    return Plan(
        spec=spec,
        tasks=tasks,
        left_out=why,
        requests=requests,
        input_tokens=requests * request_tokens,
        output_tokens=requests * _ANSWER_TOKENS,
        price=spec.price or (memory.price() if memory is not None else None),
    )


def _why_not_contained(trial: App, grant: Grant) -> str:
    """Return why tasks that write cannot be played here, as a sentence; empty if they can."""
    if trial.rights.level < AccessLevel.OPERATOR:
        return f"Your access level is {trial.rights.level.name.lower()}."
    if not grant.may_contain:
        return "The registry forbids contained turns."
    return trial.contained.why_not(trial.workspace)


async def play(app: App, planned: Plan, *, played: Callable[[TaskResult], None]) -> TaskScore:
    """Play the tasks, report each one, and keep the score with the model. Raises ChatopsError if the server fails."""
    done = 0
    async with _open_scratch(app, planned.spec, contained=not planned.left_out) as trial:
        for task in planned.tasks:
            result = await _play_task(trial, task)
            done += result.done
            played(result)
    score = TaskScore(done=done, of=len(planned.tasks), at=time.time())
    if (memory := memory_of(planned.spec, app.settings)) is not None:
        memory.learn_score(score)
    return score


@asynccontextmanager
async def _open_scratch(app: App, spec: ModelSpec, *, contained: bool) -> AsyncIterator[App]:
    """Open the application on a scratch folder, with folders and a store of its own, which are removed afterwards."""
    role = RoleSpec(
        name=ROLE,
        primary=spec.name,
        tools=(*READING_TOOLS, *WRITING_TOOLS) if contained else READING_TOOLS,
        max_rounds=MAX_TASK_ROUNDS,
        contain=contained,
    )
    with tempfile.TemporaryDirectory(prefix="chatops-tasks-") as name:
        top = Path(name)
        workspace = top / "work"
        workspace.mkdir()
        paths = Paths(config=top / "config", data=top / "data", log=app.paths.log)
        options = Options(
            registry=app.loaded.path, workspace=workspace, role=ROLE, model=spec.name, via=app.options.via
        )
        paths.prepare()
        store = Store(paths.store)
        trial = App(options, roles=(role,), store=store, paths=paths)
        try:
            _copy_model_memory(app, trial, spec)
            yield trial
        finally:
            await trial.aclose()
            store.close()


def _copy_model_memory(app: App, trial: App, spec: ModelSpec) -> None:
    """Let the trial know how the model calls tools, so that no task is spent on finding out."""
    known, own = memory_of(spec, app.settings), memory_of(spec, trial.settings)
    if known is not None and own is not None and (learned := known.learned()) is not None:
        own.learn(learned)


async def _play_task(trial: App, task: Task) -> TaskResult:
    for entry in [*trial.workspace.iterdir()]:
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name, content in task.files.items():
        (trial.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (trial.workspace / name).write_text(content)
    session = await trial.open_session(None, attended=False)
    started = time.monotonic()
    try:
        state = await _run_turn(session, task)
        found, containment = report(state), state.containment
        folder = trial.workspace if containment is None else trial.contained.folder(containment.name).copy
        # A turn that changed nothing has no copy.
        done = task.is_done(folder if folder.is_dir() else trial.workspace, found.answer or "")
        await deny_all(session, pending_calls(state), reason="the task is over")
        await session.settle()
    finally:
        await session.aclose()
    return TaskResult(
        task=task,
        done=done,
        rounds=len(found.rounds),
        errors=sum(call.outcome is not Outcome.SUCCESS for call in found.calls if call.tool != CONTAINED_APPLY),
        seconds=time.monotonic() - started,
    )


async def _run_turn(session: Session, task: Task) -> TurnState:
    """Run the turn of a task up to its end, or to the question about its changes. Every other call that asks is denied.

    Raises ChatopsError if the server fails.
    """
    await session.submit(task.prompt)
    state = await session.settle()
    while state is not None and (waiting := _gated_calls(state)):
        if not await deny_all(session, waiting, reason="not part of this task"):
            break
        state = await session.settle()
    if state is None:
        raise session.blocked_by or ChatopsError("The task could not be started.")
    if failure_of(state) in _SERVER_FAILURES:
        found = report(state)
        raise ChatopsError(f"Task {task.name!r}: {found.detail}", advice=found.advice)
    return state


def _gated_calls(state: TurnState) -> tuple[PendingCall, ...]:
    return tuple(pending for pending in pending_calls(state) if pending.call.name != CONTAINED_APPLY)
