"""`kill -9` of runs of a three-step workflow, hundreds of times, at random moments; prints figures.

    .venv/bin/python -m pytest -m kill -s tests/kill/test_workflow_kills.py    (about 1 s a kill)

Half of the kills strike a random while after the start, half at a random one of the places where a turn or the run
is stored or performed. After each the run is resumed as a user would: what asks is approved, what may have run
already is never run again. ``CHATOPS_WORKFLOW_KILLS`` and ``CHATOPS_KILL_SEED`` set how many, and which.
"""

import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from chatops.config.failpoints import NAMES, RUN_NAMES, VARIABLE
from chatops.domain.events import AskReason
from chatops.domain.ids import SessionId
from chatops.domain.tools import Outcome
from chatops.engine.workflow.state import RunResult
from chatops.runtime.workflow import turns_of
from chatops.store.base import JournalRow
from tests.e2e.installation import Installation, answers_each_call_once, registry
from tests.store.storekit import problems
from tests.support.command_line import Ran, program
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls
from tests.support.waiting import PATIENCE
from tests.support.workflows import answer, gave_up, step

KILLS = int(os.environ.get("CHATOPS_WORKFLOW_KILLS", "200"))
SEED = int(os.environ.get("CHATOPS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
BATCH = 20
KILLED = -9
LATEST_S = 1.0
"""Maximum time from the start to a kill."""
ENOUGH = 60
"""Commands for one run, after which it is stuck."""

pytestmark = pytest.mark.kill


def steps() -> list[dict[str, Any]]:
    """Look; write one line, once, with a gate behind it; tell."""
    gate = {"name": "there", "command": "test -e note.txt && true"}
    return [
        step("look", tools=["file_read"]),
        step("write", tools=["file_read", "shell_exec"], gates=[gate], max_step_retries=6),
        step("tell", max_step_retries=6),
    ]


def model(request: SeenRequest) -> Completion:
    """Does what the step is there for; the first attempt to write gives up after it has written."""
    asked = [str(m["content"]) for m in request.messages if m["role"] == "user" and "The request:" in str(m["content"])]
    found = re.search(r"release (\d+)", asked[-1])
    assert found is not None
    if "Do look." in request.system:
        return answer("seen") if request.tool_results else calls(call("file_read", path="note.txt"))
    if "Do tell." in request.system:
        return answer(f"told {found[1]}")
    here = request.messages[max(i for i, m in enumerate(request.messages) if m["role"] == "user") :]
    if not any(m["role"] == "tool" for m in here):
        return calls(call("shell_exec", command=f"echo {found[1]} >> effects.txt"))
    return gave_up("not sure") if len(asked) == 1 else answer("written")


@dataclass(slots=True, kw_only=True)
class Figures:
    """Result of a run."""

    kills: int = 0
    runs: int = 0
    unknown: int = 0
    where: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    """All that must not be: an effect twice or missing, a second attempt, a crash, a run that does not end."""

    def __str__(self) -> str:
        where = ", ".join(f"{name} {count}" for name, count in sorted(self.where.items()))
        head = f"{self.kills} kills ({where}) over {self.runs} runs; outcome unknown: {self.unknown}"
        return "\n".join([f"{head}; faults: {len(self.faults)}", *self.faults])

    def add(self, other: "Figures") -> None:
        """Add another batch's figures."""
        self.kills += other.kills
        self.runs += other.runs
        self.unknown += other.unknown
        self.where += other.where
        self.faults += other.faults


class Operator:
    """Goes on with one run after the other, and is interrupted."""

    def __init__(self, installation: Installation, chance: random.Random, figures: Figures) -> None:
        self.installation = installation
        self.chance = chance
        self.figures = figures

    def finish(self, number: int, *, most: int) -> None:
        """Run the workflow for `number` to its end, with at most so many kills."""
        before = {info.id for info in self._runs()}
        for _ in range(ENOUGH):
            begun = [info.id for info in self._runs() if info.id not in before]
            words = ("workflow", "resume", begun[0]) if begun else ("workflow", "run", "release", f"release {number}")
            ran = self._command(*words, mild=self.figures.kills >= most)
            if ran.code == 0:
                if ran.out != f"told {number}\n":
                    self.figures.faults.append(f"run {number} ended with {ran.out!r}")
                return
            if ran.code == 3:
                self._answer()
            elif ran.code != KILLED:
                self.figures.faults.append(f"exit {ran.code} for {number}:\n{ran.err}")
                return
        self.figures.faults.append(f"run {number} does not end")

    def _command(self, *words: str, mild: bool) -> Ran:
        """One command, killed as chance will have it unless `mild`."""
        point, after = "", 0.0
        if not mild and self.chance.random() < 0.5:
            point = f"{self.chance.choice((*NAMES, *RUN_NAMES))}:{self.chance.randint(1, 8)}"
        elif not mild:
            after = self.chance.uniform(0.01, LATEST_S)
        env = {"CHATOPS_HOME": str(self.installation.home), VARIABLE: point}
        ran = program(
            *self.installation.flags, *words, cwd=self.installation.workspace, env=env, timeout=after or PATIENCE
        )
        if ran.code == KILLED:
            self.figures.kills += 1
            self.figures.where[point.partition(":")[0] or "any moment"] += 1
        return ran

    def _answer(self) -> None:
        with self.installation.store() as store:
            waiting = [one.pending for one in store.pending_calls() if one.decided is None]
        for one in waiting:
            word = "deny" if one.reason is AskReason.OUTCOME_UNKNOWN else "approve"
            env = {"CHATOPS_HOME": str(self.installation.home), VARIABLE: ""}
            flags = self.installation.flags
            ran = program(*flags, "approvals", word, one.call.id, cwd=self.installation.workspace, env=env)
            if ran.code != 0:
                self.figures.faults.append(ran.err)

    def _runs(self) -> list[Any]:
        with self.installation.store() as store:
            return store.runs()


@pytest.fixture(scope="module")
def totals() -> Iterator[Figures]:
    """The figures of all batches, printed at the end."""
    figures = Figures()
    yield figures
    print(f"\nseed {SEED}: {figures}")


@pytest.mark.parametrize("batch", range(-(-KILLS // BATCH)))
def test_a_run_ends_and_writes_at_most_once_whenever_it_is_killed(
    batch: int, installation: Installation, totals: Figures
) -> None:
    figures = Figures()
    operator = Operator(installation, random.Random(SEED + batch), figures)
    most = min(BATCH, KILLS - batch * BATCH)
    with FakeOpenAI(model) as server:
        installation.use(
            {**registry(server.url), "default_role": "coder", "workflows": {"release": {"steps": steps()}}}
        )
        while figures.kills < most and not figures.faults:
            figures.runs += 1
            operator.finish(figures.runs, most=most)
        figures.faults += server.violations
        figures.faults += ["a call without its answer" for one in server.requests if not answers_each_call_once(one)]
    judge(installation, figures)
    totals.add(figures)
    assert figures.faults == [], f"seed {SEED}, batch {batch}: {figures}"


def judge(installation: Installation, figures: Figures) -> None:
    """Compare what was written with what the journal says."""
    file = installation.workspace / "effects.txt"
    written = Counter(file.read_text().split() if file.exists() else [])
    rows = journal(installation)
    unknown = [row for row in rows if row.outcome is Outcome.UNKNOWN]
    figures.unknown += len(unknown)
    figures.faults += [f"{line} was written {count} times" for line, count in written.items() if count > 1]
    figures.faults += [f"attempted again: {row}" for row in rows if row.attempt > 1 and row.tool == "shell_exec"]
    for number in range(1, figures.runs + 1):
        excused = any(f"echo {number} >>" in row.arguments for row in unknown)
        if str(number) not in written and not excused:
            figures.faults.append(f"{number} was never written")
    with installation.store() as store:
        figures.faults += problems(store)
        for info in store.runs():
            if info.run is None or info.run.result != RunResult.ANSWERED:
                figures.faults.append(f"{info.id}: {info.run}")


def journal(installation: Installation) -> list[JournalRow]:
    """Every attempt at a call of any run."""
    with installation.store() as store:
        turns = [turn for info in store.runs() for turn in turns_of(store, store.load_run(SessionId(info.id)))]
        return [row for turn in turns for row in store.journal(turn.turn_id)]
