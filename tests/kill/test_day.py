"""A day with three jobs of two folders, decided from three surfaces, with `kill -9` of every process in the middle.

    .venv/bin/python -m pytest -m kill -s tests/kill/test_day.py    (a minute a day on a quiet machine)

One job writes three lines, one delegates to a role that may do more, one reaches its budget. One day is told: answers
on a phone (Chromium), in the terminal and by `approvals`, a clock that jumps by days, and a copy of the store in which
the jobs go on. On the others chance decides what is answered; the surface that has decided least answers. Most steps
end with a kill of everything, at a named place or a random while later; what is then interrupted or not started is
resumed. ``CHATOPS_DAYS`` and ``CHATOPS_KILL_SEED`` set how many of these days, and which.
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
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops.config.failpoints import NAMES, VARIABLE
from chatops.store.store import Store
from tests.e2e.installation import ChatTerminal, answers_each_call_once
from tests.serve.browser import CHROMIUM, DRIVER, ENTER, browser
from tests.serve.served import serving
from tests.store.storekit import problems
from tests.support.command_line import CommandLine, program_environment
from tests.support.fake_openai import Call, Completion, FakeOpenAI, SeenRequest, call, calls, says
from tests.support.processes import Process, family
from tests.support.waiting import PATIENCE

DAYS = int(os.environ.get("CHATOPS_DAYS", "3"))
FAKETIME = shutil.which("faketime")
SEED = int(os.environ.get("CHATOPS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
MOST_KILLS = 12
LATEST_S = 2.5
KILLED = -9
NO_PROCESS = 2_147_483_647
PROGRAM = (sys.executable, "-m", "chatops")
DECIDING = ("in_posting", "before_job_start", "job_started")
POINTS = (*NAMES, *DECIDING, "decision_found", "after_spawn", "child_created", "child_started", "after_reconcile")
SURFACES = {"approvals", "serve", "tui"}
ROLES = {"coder": ["file_read", "shell_exec"], "lead": ["file_read", "delegate"], "runner": ["shell_exec"]}
JOBS = (
    (0, ("--role", "coder", "-p", "write three lines")),
    (1, ("--role", "lead", "-p", "let somebody write")),
    (1, ("--role", "coder", "-p", "read twice and write", "--budget", "tokens=30")),
)

Command = tuple[str, ...]

pytestmark = pytest.mark.kill


def writes(line: str) -> Call:
    return call("shell_exec", command=f"echo {line} >> effects.txt")


SCRIPTS: dict[str, tuple[Call, ...]] = {
    "write three lines": (writes("one"), writes("two"), writes("three")),
    "let somebody write": (call("delegate", role="runner", task="write a line"),),
    "write a line": (writes("four"),),
    "read twice and write": (*(call("file_read", path="note.txt", offset=at) for at in (0, 1)), writes("five")),
}


def model(request: SeenRequest) -> Completion:
    """Make the calls of the task that was given, one in each round."""
    task = next(str(m["content"]) for m in request.messages if m["role"] == "user").partition("\n")[0]
    done = len(request.tool_results)
    return calls(SCRIPTS[task][done]) if done < len(SCRIPTS[task]) else says("Done.")


@pytest.fixture(scope="module")
def totals() -> Iterator[Counter[str]]:
    """What was counted on all days, printed at the end. A kill counts if it found a process of chatops."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\nseed {SEED}: {dict(sorted(counted.items()))}")


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


class Day:
    """Three jobs, and who decides, resumes and kills."""

    def __init__(self, chatops: CommandLine, home: Path, chance: random.Random, totals: Counter[str]) -> None:
        self.chatops, self.home, self.chance, self.totals = chatops, home, chance, totals
        self.folders = (chatops.workspace, chatops.workspace.parent / "other")
        self.kills_left = MOST_KILLS
        self.clock = ""  # where the clock is, as faketime takes it
        self.confirmed: Counter[str] = Counter()  # decisions that a surface has said to be stored
        self.given_up: set[str] = set()  # commands that were not repeated, because their outcome was unknown

    def listed(self, *command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.chatops(*command, "list", "--output-format", "json").json
        return found

    def jobs(self, *states: str) -> list[str]:
        return [one["session_id"] for one in self.listed("jobs") if one["state"] in states]

    def left(self) -> list[str]:
        return self.jobs("interrupted", "decided, not started")

    def settled(self) -> list[dict[str, Any]]:
        """Wait until no job runs; the calls that wait for a decision."""
        until(lambda: not self.jobs("running"))
        return [one for one in self.listed("approvals") if one["decision"] is None]

    def lines(self) -> list[str]:
        files = [folder / "effects.txt" for folder in self.folders]
        return [line for file in files if file.exists() for line in file.read_text().split()]

    def alive(self) -> set[Process]:
        return family(NO_PROCESS, mark=f"CHATOPS_HOME={self.home}")

    def run(self, *commands: Command, point: str = "", after: float = 0, home: str = "") -> list[tuple[int, str]]:
        """Run commands side by side, and kill everything `after` so many seconds; code and output of each."""
        environment = program_environment() | {VARIABLE: point, "CHATOPS_HOME": home or str(self.home)}
        clock = ("faketime", "-f", self.clock) if self.clock else ()
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running = [
            subprocess.Popen([*clock, *PROGRAM, *one], cwd=self.folders[0], env=environment, text=True, **pipes)
            for one in commands
        ]
        self.kill_after(after)
        outputs = [one.communicate(timeout=PATIENCE)[0] for one in running]
        return [(one.returncode, out) for one, out in zip(running, outputs, strict=True)]

    def play(self) -> None:
        for _ in range(120):
            waiting = self.settled()
            assert all(one["delegation"]["adds"] == ["+ shell_exec"] for one in waiting if one["tool"] == "delegate")
            unknown = [one for one in waiting if one["reason"] == "outcome_unknown"]
            if left := self.left():
                self.step([("jobs", "resume", job) for job in left])
            elif unknown:
                self.given_up |= {str(one["arguments"].get("command")) for one in unknown}
                self.step([("approvals", "deny", one["id"]) for one in unknown])
            elif not waiting:
                return
            else:
                counts = Counter(row["by"]["via"] for row in self.listed("audit"))
                chosen = [one["id"] for one in waiting[: self.chance.randint(1, len(waiting))]]
                match min(self.chance.sample(sorted(SURFACES), 3), key=lambda name: counts[name]):
                    case "approvals":
                        self.step([("approvals", "approve", one) for one in chosen])
                    case "serve":
                        self.on_the_page(chosen)
                    case _:
                        self.on_the_desk()
        raise AssertionError(f"The day does not end: {self.listed('jobs')}")

    def strike(self, points: tuple[str, ...], most: int = 1) -> tuple[str, float]:
        """Where or when the next kill is: neither if there is none."""
        if self.kills_left <= 0 or self.chance.random() < 0.2:
            return "", 0
        if self.chance.random() < 0.5:
            return f"{self.chance.choice(points)}:{self.chance.randint(1, most)}", 0
        return "", self.chance.uniform(0.01, LATEST_S)

    def step(self, commands: list[Command]) -> None:
        point, after = self.strike(POINTS, most=4)
        ran = self.run(*commands, point=point, after=after)
        assert {code for code, _ in ran} <= {0, KILLED}, ran
        self.confirmed["approvals"] += sum(code == 0 for code, _ in ran if commands[0][0] == "approvals")
        if point:
            self.settled()
            self.kill_all(point, struck=any(code for code, _ in ran) or bool(self.left()))

    def on_the_page(self, asked: list[str]) -> None:
        point, after = self.strike(DECIDING)
        with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
            # Nothing of chatops runs in this process meanwhile: it would be killed.
            patch.setenv(VARIABLE, point)
            served = stack.enter_context(serving(self.home, self.folders[0]))
            cookie = served.log_in(served.links[0])
            for one in asked:
                try:
                    answer = served.decide(one, "approve", cookie)
                except (OSError, http.client.HTTPException):
                    assert point and served.process.wait(PATIENCE) == KILLED
                    break
                assert answer.status == 303, answer.text
                self.confirmed["serve"] += 1
            if point:
                self.kill_all(point, struck=True)
            self.kill_after(after)

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
                    self.confirmed["serve"] += 1
            self.kill_all("the phone")

    def on_the_desk(self) -> None:
        point, after = self.strike(DECIDING)
        path = program_environment()["PYTHONPATH"]
        environment = {"PYTHONPATH": path, VARIABLE: point, "CHATOPS_HOME": str(self.home)}
        with ChatTerminal(PROGRAM, env=environment, cwd=self.folders[0], cols=110, rows=50) as terminal:
            terminal.ready("coder")
            terminal.say("/pending --all")
            terminal.dialog("with a reason")
            if point:
                while terminal.pid in terminal.processes():
                    # After a key that was not taken, each one that follows soon is not taken either.
                    terminal.press("a")
                    terminal.wait_quiet(2.5)
                self.kill_all(point, struck=True)
                return
            terminal.decide("a", offers="with a reason")
            self.confirmed["tui"] += 1
            self.kill_after(after)
            terminal.hang_up()
            terminal.wait_exit()
            # The end of the terminal kills all that it has started.
            self.settled()

    def kill_after(self, seconds: float) -> None:
        if seconds:
            time.sleep(seconds)
            self.kill_all("any moment")

    def kill_all(self, where: str, *, struck: bool = False) -> None:
        """Kill every process of this home. `struck`: one has been killed already."""
        killed: set[Process] = set()
        while found := self.alive():
            for one in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
            killed |= found
            time.sleep(0.01)
        self.totals["processes"] += len(killed)
        if killed or struck:
            self.kills_left -= 1
            self.totals.update(["kills", f"kills at {where.partition(':')[0]}"])

    def copy(self) -> Path:
        """Approve a call, die before its job starts, and resume the job in a copy of the store: nothing runs."""
        asked = next(one for one in self.settled() if one["tool"] == "shell_exec")
        job, copied = asked["session_id"], Path(f"{self.home}-copied")
        ((code, _),) = self.run(("approvals", "approve", asked["id"]), point="before_job_start")
        assert code == KILLED and job in self.jobs("decided, not started")
        before = self.lines()
        shutil.copytree(self.home, copied)
        ((code, out),) = self.run(("jobs", "resume", job, "--foreground"), home=str(copied))
        assert (code, self.lines()) == (3, before), out
        ((_, out),) = self.run(("approvals", "list", "--output-format", "json"), home=str(copied))
        assert (asked["id"], None) in [(one["id"], one["decision"]) for one in json.loads(out)]
        return copied

    def check_the_end(self) -> None:
        """Every job is done, every effect is there once, and the log names who decided what and where."""
        assert [one["state"] for one in self.listed("jobs")] == ["done"] * 3
        until(lambda: not self.alive())
        lines, audit = Counter(self.lines()), self.listed("audit")
        assert set(lines.values()) == {1}, lines
        wanted = {f"echo {line} >> effects.txt" for line in ("one", "two", "three", "four", "five") if not lines[line]}
        assert wanted <= self.given_up
        counts = Counter(row["by"]["via"] for row in audit)
        assert set(counts) == SURFACES and {row["by"]["uid"] for row in audit} == {os.getuid()}
        assert counts >= self.confirmed, "a decision was lost"
        assert {"delegate", "budget_extend", "shell_exec"} == {row["tool"] for row in audit}
        assert "page login 1 from " in json.dumps([row for row in audit if row["by"]["via"] == "serve"])
        with closing(Store(self.home / "data" / "chatops.db")) as store:
            assert problems(store) == []
        decided = [f"decided by {row['by']['via']}" for row in audit]
        self.totals.update(["days", *decided, *("unknown" for _ in self.given_up)])


@pytest.fixture
def day(
    tmp_path: Path,
    chatops_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    totals: Counter[str],
) -> Iterator[Day]:
    """A day whose jobs have been started."""
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
        for where, arguments in JOBS:
            monkeypatch.chdir(day.folders[where])
            assert day.chatops(*arguments, "--background").code == 0
        yield day
        assert server.violations == []
        assert all(answers_each_call_once(one) for one in server.requests)


@pytest.mark.parametrize("number", range(DAYS))
def test_a_day_ends_with_each_effect_at_most_once(number: int, day: Day) -> None:
    day.chance = random.Random(SEED + number)
    day.copy()
    day.play()
    day.check_the_end()


@pytest.mark.skipif(not (CHROMIUM and DRIVER and FAKETIME), reason="no chromium, chromedriver or faketime here")
def test_the_day_goes_on_after_a_kill_when_the_clock_has_jumped_and_in_a_copy_of_the_store(
    day: Day, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {one["tool"]: one["id"] for one in day.settled()}
    day.on_the_phone(
        {asked["delegate"]: ("+ shell_exec", "Approve once"), asked["budget_extend"]: ("36 of 30 tokens", "Go on")}
    )
    day.kills_left = 0
    for day.clock in ("+3d", "-3d", ""):
        until(lambda: not day.jobs("running"))
        if left := day.left():
            day.step([("jobs", "resume", job) for job in left])
        one = next(one for one in day.settled() if one["tool"] == "shell_exec")
        day.step([("approvals", "approve", one["id"])])
        day.kill_all("the jump of the clock")
    day.settled()
    if left := day.left():
        day.step([("jobs", "resume", job) for job in left])
    day.home = day.copy()
    monkeypatch.setenv("CHATOPS_HOME", str(day.home))
    day.play()
    day.check_the_end()
