"""Days of jobs in two folders, decided from three surfaces, with `kill -9` of processes at random moments.

    .venv/bin/python -m pytest -m kill -s tests/kill/test_day.py    (about 4 s a kill on a quiet machine)

Some jobs write, some delegate to a role that may do more, some reach their budget; while kills are left, a new one is
started for each that has ended. Chance decides what is started, answered and resumed, by how many at once, and where:
the surface that has decided least answers. Most steps end with a kill, at a named place or a random while later, of
everything or of one process. After each step the day is judged: no call ran twice or undecided, no decision that a
surface has confirmed is lost, no process is left, and the audit log is whole. What is then interrupted or not started
is resumed. One more day is told: answers on a phone (Chromium), a clock that jumps by days, and a copy of the store in
which the jobs go on. ``CHATOPS_DAY_KILLS`` and ``CHATOPS_KILL_SEED`` set how many kills, and which.
"""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops.config.failpoints import NAMES, VARIABLE
from chatops.domain.ids import TurnId
from chatops.domain.tools import Outcome
from chatops.store.store import Store
from tests.e2e.installation import ChatTerminal, answers_each_call_once
from tests.serve.browser import CHROMIUM, DRIVER, ENTER, browser
from tests.serve.served import serving
from tests.store.storekit import problems
from tests.support.command_line import CommandLine, program_environment
from tests.support.fake_openai import Call, Completion, FakeOpenAI, SeenRequest, call, calls, says
from tests.support.processes import Process, family
from tests.support.waiting import PATIENCE

KILLS = int(os.environ.get("CHATOPS_DAY_KILLS", "60"))
A_DAY = 50
"""Most kills of a day."""
FAKETIME = shutil.which("faketime")
SEED = int(os.environ.get("CHATOPS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
LATEST_S = 2.5
KILLED = -9
MARK = f"day-{os.getpid()}."
"""In each command, so that what is left of one is found."""
NO_PROCESS = 2_147_483_647
PROGRAM = (sys.executable, "-m", "chatops")
DECIDING = ("in_posting", "before_job_start", "job_started")
POINTS = (*NAMES, *DECIDING, "decision_found", "after_spawn", "child_created", "child_started", "after_reconcile")
START_POINTS = ("after_create", "before_commit", "in_commit", "after_commit", "job_started")
SURFACES = {"approvals", "serve", "tui"}
ROLES = {"coder": ["file_read", "shell_exec"], "lead": ["file_read", "delegate"], "runner": ["shell_exec"]}
JOBS = {
    "write three lines": ("coder",),
    "let somebody write": ("lead",),
    "read twice and write": ("coder", "--budget", "tokens=30"),
}
LINES = {"write three lines": 3, "let somebody write": 4, "read twice and write": 1}
"""What the jobs write in the end, by their children if they let them."""
AT_ONCE = 3

Command = tuple[str, ...]

pytestmark = pytest.mark.kill


def writes(task: str, number: int) -> Call:
    """Write a line that no other call writes, take a while, and leave a process behind."""
    line = f"{task.rpartition(' ')[2]}-{number}"
    left = f"sh -c 'sleep 600; : {MARK}' >/dev/null 2>&1 & " if number == 1 else ""
    return call("shell_exec", command=f": {MARK}; {left}sleep 0.1; echo {line} >> effects.txt; sleep 0.1")


def script(task: str) -> tuple[Call, ...]:
    """Return the calls of a task, one in each round."""
    what, _, number = task.rpartition(" ")
    match what:
        case "write three lines":
            return tuple(writes(task, line) for line in range(3))
        case "let somebody write":
            return tuple(call("delegate", role="runner", task=f"write two lines {number}.{part}") for part in "ab")
        case "write two lines":
            return tuple(writes(task, line) for line in range(2))
        case _:
            return (*(call("file_read", path="note.txt", offset=at) for at in (0, 1)), writes(task, 0))


def lines_of(task: str) -> set[str]:
    """Return the lines that a job writes."""
    what, _, number = task.rpartition(" ")
    if what == "let somebody write":
        return {f"{number}.{part}-{line}" for part in "ab" for line in range(2)}
    return {f"{number}-{line}" for line in range(LINES[what])}


def model(request: SeenRequest) -> Completion:
    """Make the calls of the task that was given, one in each round."""
    task = next(str(m["content"]) for m in request.messages if m["role"] == "user").partition("\n")[0]
    done, wanted = len(request.tool_results), script(task)
    return calls(wanted[done]) if done < len(wanted) else says("Done.")


@pytest.fixture(scope="module")
def totals() -> Iterator[Counter[str]]:
    """What was counted on all days, printed at the end. A kill counts if it found a process of chatops."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\nseed {SEED}: {counted['kills']} kills in {counted['rounds']} rounds: {dict(sorted(counted.items()))}")


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


class Day:
    """Jobs, and who starts, decides, resumes and kills them."""

    def __init__(self, chatops: CommandLine, home: Path, chance: random.Random, totals: Counter[str]) -> None:
        self.chatops, self.home, self.chance, self.totals = chatops, home, chance, totals
        self.folders = (chatops.workspace, chatops.workspace.parent / "other")
        self.kills_left = 0
        self.tasks = 0
        self.clock = ""  # where the clock is, as faketime takes it
        self.started: set[str] = set()  # jobs whose start was confirmed
        self.confirmed: dict[str, str] = {}  # who has said that the decision of a call is stored, if it is known
        self.counted: Counter[str] = Counter()  # decisions that a surface has said to be stored
        self.given_up: set[str] = set()  # commands that were not repeated, because their outcome was unknown

    def listed(self, *command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.chatops(*command, "list", "--output-format", "json").json
        return found

    def jobs(self, *states: str) -> list[str]:
        return [one["session_id"] for one in self.listed("jobs") if one["state"] in states]

    def left(self) -> list[str]:
        return self.jobs("interrupted", "decided, not started")

    def settled(self) -> list[dict[str, Any]]:
        """Wait until no job runs and no process is left; the calls that wait for a decision."""
        until(lambda: not self.jobs("running"))
        until(lambda: not self.alive())
        return [one for one in self.listed("approvals") if one["decision"] is None]

    def lines(self) -> list[str]:
        files = [folder / "effects.txt" for folder in self.folders]
        return [line for file in files if file.exists() for line in file.read_text().split()]

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.chatops("audit", "export").out.splitlines()]

    def alive(self) -> set[Process]:
        """The processes of this home, and what their calls have left."""
        return family(NO_PROCESS, mark=f"CHATOPS_HOME={self.home}", argument=MARK)

    def run(
        self, *commands: Command, point: str = "", after: float = 0, home: str = "", where: int = 0
    ) -> list[tuple[int, str]]:
        """Run commands side by side, and kill `after` so many seconds; code and output of each."""
        environment = program_environment() | {VARIABLE: point, "CHATOPS_HOME": home or str(self.home)}
        clock = ("faketime", "-f", self.clock) if self.clock else ()
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running = [
            subprocess.Popen([*clock, *PROGRAM, *one], cwd=self.folders[where], env=environment, text=True, **pipes)
            for one in commands
        ]
        self.kill_after(after)
        outputs = [one.communicate(timeout=PATIENCE)[0] for one in running]
        return [(one.returncode, out) for one, out in zip(running, outputs, strict=True)]

    def play(self, kills: int) -> None:
        """Start jobs while kills are left, and go on with them until each has ended."""
        self.kills_left = kills
        for _ in range(20 * (kills + 10)):
            waiting = self.settled()
            self.judge()
            assert all(one["delegation"]["adds"] == ["+ shell_exec"] for one in waiting if one["tool"] == "delegate")
            unknown = [one for one in waiting if one["reason"] == "outcome_unknown"]
            left = self.left()
            if self.kills_left > 0 and len({one["session_id"] for one in waiting} | {*left}) < AT_ONCE:
                self.begin(self.chance.choice([*JOBS]), self.strike(START_POINTS))
            elif left:
                self.step([("jobs", "resume", job) for job in left])
            elif unknown:
                self.given_up |= {str(one["arguments"].get("command")) for one in unknown}
                self.step([("approvals", "deny", one["id"]) for one in unknown])
            elif not waiting:
                return
            else:
                counts = Counter(row["by"]["via"] for row in self.log() if row["kind"] == "decision")
                chosen = [one["id"] for one in waiting[: self.chance.randint(1, len(waiting))]]
                match min(self.chance.sample(sorted(SURFACES), 3), key=lambda name: counts[name]):
                    case "approvals":
                        self.step([("approvals", "approve", one) for one in chosen])
                    case "serve":
                        self.on_the_page(chosen)
                    case _:
                        self.on_the_desk()
        raise AssertionError(f"The day does not end: {self.listed('jobs')}")

    def begin(self, what: str, strike: tuple[str, float] = ("", 0)) -> None:
        """Start another job, which may be killed before it is one."""
        self.tasks += 1
        role, *options = JOBS[what]
        command = ("--role", role, "-p", f"{what} {self.tasks}", *options, "--background")
        point, after = strike
        ((code, out),) = self.run(command, point=point, after=after, where=self.tasks % 2)
        assert code in (0, KILLED), out
        if code == 0:
            self.started.add(out.strip())
        self.count_struck(point, [code])

    def strike(self, points: tuple[str, ...], most: int = 1) -> tuple[str, float]:
        """Where or when the next kill is: neither if there is none."""
        if self.kills_left <= 0 or self.chance.random() < 0.1:
            return "", 0
        if self.chance.random() < 0.5:
            return f"{self.chance.choice(points)}:{self.chance.randint(1, most)}", 0
        return "", self.chance.uniform(0.01, LATEST_S)

    def step(self, commands: list[Command]) -> None:
        """Decide or resume, some of it twice at the same time: the first one counts."""
        point, after = self.strike(POINTS, most=4)
        twice = [one for one in commands if self.kills_left > 0 and self.chance.random() < 0.3]
        ran = list(zip((*commands, *twice), self.run(*commands, *twice, point=point, after=after), strict=True))
        for command in commands:
            results = [result for one, result in ran if one == command]
            stored = sum(code == 0 for code, _ in results)
            assert {code for code, _ in results} <= {0, KILLED, *((1, 3) if len(results) > 1 else ())}, results
            if command[0] == "approvals":
                killed = any(code == KILLED for code, _ in results)
                assert stored == 1 or (killed and stored == 0), results
                if stored:
                    self.confirm(command[2], "approvals")
        self.count_struck(point, [code for _, (code, _) in ran])

    def confirm(self, call: str, surface: str) -> None:
        self.counted[surface] += 1
        self.confirmed[call] = surface

    def count_struck(self, point: str, codes: list[int]) -> None:
        """Count the processes that a failpoint has killed."""
        if point:
            self.settled()
            self.count(point, codes.count(KILLED) + len(self.jobs("interrupted")))

    def on_the_page(self, asked: list[str]) -> None:
        point, after = self.strike(DECIDING)
        with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
            # Nothing of chatops runs in this process meanwhile: it would be killed.
            patch.setenv(VARIABLE, point)
            served = stack.enter_context(serving(self.home, self.folders[0]))
            cookie = served.log_in(served.links[0])
            killing = self.killing_meanwhile(after)
            for one in asked:
                try:
                    answer = served.decide(one, "approve", cookie)
                except (OSError, http.client.HTTPException):
                    assert (point or after) and served.process.wait(PATIENCE) == KILLED
                    break
                assert answer.status == 303, answer.text
                self.confirm(one, "serve")
            killing.join()
            if point:
                self.count(point, served.process.poll() == KILLED)
                self.kill("the page")

    def on_the_phone(self, told: dict[str, tuple[str, str]]) -> None:
        """Approve calls on the page in a browser of 320 px, where `told` has a text and a button of each."""
        with serving(self.home, self.folders[0]) as served:
            with browser() as phone:
                phone.look(width=320, dark=False)
                phone.open(served.links[0])
                phone.tab_to("Log in")
                phone.type(ENTER)
                phone.until("return location.pathname === '/'")
                for one, (text, button) in told.items():
                    phone.open(f"{served.origin}/call/{one}")
                    assert text in phone.run("return document.body.innerText")
                    assert not phone.run("return document.documentElement.scrollWidth > 320")
                    phone.tab_to(button)
                    phone.type(ENTER)
                    phone.until("return document.body.innerText.includes('was approved by uid')")
                    self.confirm(one, "serve")
            self.kill("the phone")

    def on_the_desk(self) -> None:
        point, after = self.strike(DECIDING)
        path = program_environment()["PYTHONPATH"]
        environment = {"PYTHONPATH": path, VARIABLE: point, "CHATOPS_HOME": str(self.home)}
        with ChatTerminal(PROGRAM, env=environment, cwd=self.folders[0], cols=110, rows=50) as terminal:
            terminal.ready("coder")
            terminal.say("/pending --all")
            terminal.dialog("with a reason")
            if point or self.chance.random() < 0.5:
                killing = self.killing_meanwhile(after)
                while (point or killing.is_alive()) and terminal.pid in terminal.processes():
                    # After a key that was not taken, each one that follows soon is not taken either.
                    terminal.press("a")
                    terminal.wait_quiet(1.5)
                killing.join()
                self.count(point, bool(point))
                if point:
                    self.kill("the desk")
            else:
                terminal.decide("a", offers="with a reason")
                self.counted["tui"] += 1
                self.kill_after(after)
            if terminal.pid in terminal.processes():
                terminal.hang_up()
                terminal.wait_exit()
            # The end of the terminal kills all that it has started.
            self.settled()

    def kill_after(self, seconds: float) -> None:
        """Kill a while later, all or one, and sometimes what is left a while after that."""
        if seconds:
            time.sleep(seconds)
            one = self.chance.random() < 0.4
            self.kill("any moment", one=one)
            if one and self.chance.random() < 0.5:
                time.sleep(self.chance.uniform(0.01, LATEST_S))
                self.kill("any moment")

    def killing_meanwhile(self, seconds: float) -> threading.Thread:
        killing = threading.Thread(target=self.kill_after, args=(seconds,))
        killing.start()
        return killing

    def kill(self, where: str, *, one: bool = False) -> None:
        """Kill every process of this home, or `one` of them."""
        killed: set[Process] = set()
        while found := self.alive():
            if one:
                found = {self.chance.choice(sorted(found, key=lambda process: process.pid))}
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            killed |= found
            if one:
                break
            time.sleep(0.01)
        self.totals["processes killed"] += len(killed)
        self.count(f"{where}, one process" if one else where, bool(killed))

    def count(self, where: str, kills: int) -> None:
        if kills:
            self.kills_left -= kills
            self.totals.update({"kills": kills, f"kills at {where.partition(':')[0]}": kills})

    def copy(self) -> Path:
        """Approve a call, die before its job starts, and resume the job in a copy of the store: nothing runs."""
        asked = next(one for one in self.settled() if one["tool"] == "shell_exec")
        job, copied = asked["session_id"], Path(f"{self.home}-copied")
        ((code, _),) = self.run(("approvals", "approve", asked["id"]), point="before_job_start")
        assert code == KILLED and job in self.jobs("decided, not started")
        self.count("before_job_start", 1)
        before = self.lines()
        shutil.copytree(self.home, copied)
        ((code, out),) = self.run(("jobs", "resume", job, "--foreground"), home=str(copied))
        assert (code, self.lines()) == (3, before), out
        ((_, out),) = self.run(("approvals", "list", "--output-format", "json"), home=str(copied))
        assert (asked["id"], None) in [(one["id"], one["decision"]) for one in json.loads(out)]
        return copied

    def judge(self) -> list[dict[str, Any]]:
        """Find no second effect, no lost job or decision and no fault of the log; the decisions of the log."""
        self.totals["rounds"] += 1
        log, counts = self.log(), Counter(self.lines())
        assert {*counts.values()} <= {1}, counts
        assert self.chatops("audit", "verify").code == 0
        assert self.started <= {one["session_id"] for one in self.listed("jobs")}, "a job was lost"
        decided = [row for row in log if row["kind"] == "decision"]
        via = {(row["call_id"], row["by"]["via"]) for row in decided}
        posted = [one for one in self.listed("approvals") if one["decision"] is not None]
        via |= {(one["id"], surface) for one in posted for surface in SURFACES if surface in one["decided_by"]}
        assert via >= {*self.confirmed.items()}, "a decision was lost"
        approved, starts = set[str](), Counter[str]()
        for row in log:
            if row["kind"] == "decision" and row["decision"]["kind"] == "approved":
                approved.add(row["call_id"])
            if row["kind"] == "start":
                starts[row["call_id"]] += 1
        commands = {row["call_id"] for row in log if row.get("tool") == "shell_exec"}
        assert commands & {*starts} <= approved, "a command was started that nobody has approved"
        assert all(starts[one] <= 1 for one in commands), "a command was started twice"
        assert len(self.lines()) <= len(commands & {*starts})
        with closing(Store(self.home / "data" / "chatops.db")) as store:
            assert problems(store) == []
        return decided

    def unfinished(self) -> set[str]:
        """Return the commands that did not succeed, such as one whose process was killed."""
        calls = {row["call_id"] for row in self.log() if row["kind"] == "start"}
        with closing(Store(self.home / "data" / "chatops.db")) as store:
            rows = [row for turn in {one.rsplit(".", 2)[0] for one in calls} for row in store.journal(TurnId(turn))]
        return {
            str(json.loads(row.arguments).get("command")) for row in rows if row.outcome is not Outcome.SUCCESS
        } | self.given_up

    def check_the_end(self) -> None:
        """Every job is done, every effect is there once, and the log names who decided what and where."""
        self.settled()
        decided, jobs = self.judge(), self.listed("jobs")
        assert {one["state"] for one in jobs} == {"done"}, jobs
        lines, unfinished = {*self.lines()}, self.unfinished()
        missing = {line for one in jobs for line in lines_of(one["title"])} - lines
        assert all(any(f"echo {line} >>" in one for one in unfinished) for line in missing), missing
        counts = Counter(row["by"]["via"] for row in decided)
        assert set(counts) == SURFACES and {row["by"]["uid"] for row in decided} == {os.getuid()}
        assert counts >= self.counted, "a decision was lost"
        assert {row["tool"] for row in decided} == {"delegate", "budget_extend", "shell_exec"}
        assert "login 1 from " in json.dumps([row for row in decided if row["by"]["via"] == "serve"])
        who = [f"decided by {row['by']['via']}" for row in decided]
        self.totals.update(["days", *who, *("jobs" for _ in jobs), *("not repeated" for _ in missing)])


@pytest.fixture
def day(tmp_path: Path, chatops_home: Path, capsys: pytest.CaptureFixture[str], totals: Counter[str]) -> Iterator[Day]:
    """A day on which a job of each kind has been started."""
    day = Day(CommandLine(tmp_path / "project", capsys), chatops_home, random.Random(SEED), totals)
    for folder in day.folders:
        folder.mkdir()
        (folder / "note.txt").write_text("The invoice is due on Friday.\nIt is not paid.\n")
    with FakeOpenAI(model) as server:
        fake = {"type": "openai", "api_url": server.url, "model_name": "m"}
        roles = {name: {"primary": "fake", "tools": tools} for name, tools in ROLES.items()}
        users = {"*": {"access_level": "operator"}}
        registry = {"version": 3, "default_role": "coder", "models": {"fake": fake}, "roles": roles, "users": users}
        (chatops_home / "config").mkdir()
        (chatops_home / "config" / "model_registry.json").write_text(json.dumps(registry))
        for what in JOBS:
            day.begin(what)
        yield day
        assert server.violations == []
        assert all(answers_each_call_once(one) for one in server.requests)


@pytest.mark.parametrize("number", range(-(-KILLS // A_DAY)))
def test_a_day_ends_with_each_effect_at_most_once(number: int, day: Day) -> None:
    day.chance = random.Random(SEED + number)
    day.copy()
    day.play(min(A_DAY, KILLS - number * A_DAY))
    day.check_the_end()


@pytest.mark.skipif(not (CHROMIUM and DRIVER and FAKETIME), reason="no chromium, chromedriver or faketime here")
def test_the_day_goes_on_after_a_kill_when_the_clock_has_jumped_and_in_a_copy_of_the_store(
    day: Day, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {one["tool"]: one["id"] for one in day.settled()}
    day.on_the_phone(
        {asked["delegate"]: ("+ shell_exec", "Approve once"), asked["budget_extend"]: ("36 of 30 tokens", "Go on")}
    )
    for day.clock in ("+3d", "-3d", ""):
        until(lambda: not day.jobs("running"))
        if left := day.left():
            day.step([("jobs", "resume", job) for job in left])
        one = next(one for one in day.settled() if one["tool"] == "shell_exec")
        day.step([("approvals", "approve", one["id"])])
        day.kill("the jump of the clock")
    day.settled()
    if left := day.left():
        day.step([("jobs", "resume", job) for job in left])
    day.home = day.copy()
    monkeypatch.setenv("CHATOPS_HOME", str(day.home))
    day.play(0)
    day.check_the_end()
