"""The app dies while a tool runs: what is left of the tool is stopped, and a user is asked with all that is known.

Whatever the user answers, nothing runs again without a word for that, and the model is told the truth (T9).
"""

import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chatops.config.failpoints import VARIABLE
from chatops.domain.decisions import Approved, Principal
from chatops.domain.ids import CallId, TurnId
from chatops.domain.tools import Outcome
from chatops.engine.inputs import DecideCall
from chatops.store.base import Holder
from chatops.store.process_identity import this_process
from chatops.store.tool_outputs import Outputs
from tests.e2e.installation import EFFECT, ChatTerminal, Installation
from tests.faults.confinement import needs_sandbox, sleeping
from tests.faults.entry_points import FaultyChat, Pipe, Provider, flat, patient_registry
from tests.support.command_line import Ran, program_environment
from tests.support.fake_openai import Reply, SeenRequest, call, calls, says
from tests.support.figures import Count
from tests.support.processes import family
from tests.tools.running import marked, sleepers

UNTOLD = "outcome unknown not told"
DOUBT = "u tell the model it is unknown"
UNKNOWN = "The outcome of this call is unknown"
COPIES = "dd if=mark.txt of=count.txt oflag=append conv=notrunc status=none"
"""Takes effect like `EFFECT`, and is simple enough for a rule to name it."""
KILLED = -9
WITHOUT_SANDBOX = """
import sys
from chatops.sandbox import confinement as sandbox
sandbox.probe = lambda: sandbox.Probed("", "bubblewrap is not installed")
sandbox.landlock_fault = lambda: "this kernel has no Landlock"
from chatops.cli import main
sys.exit(main())
"""
"""The program where there is no sandbox. Not in a namespace of its own, from which it could not look at what an
earlier start of it has left."""


def repeats(request: SeenRequest) -> Reply:
    """Repeats what it was told came of the call."""
    return says(f"I was told: {request.tool_results[-1]}")


@pytest.fixture
def number() -> Iterator[str]:
    """Seconds that only this test's processes sleep for."""
    yield from marked()


class User:
    """Somebody whose chat is killed, and who opens it again."""

    def __init__(self, installation: Installation, provider: Provider, *, sandbox: bool) -> None:
        self.installation = installation
        self.provider = provider
        self._sandbox = sandbox
        installation.use(patient_registry(provider.server.url))

    def open(self, *arguments: str) -> ChatTerminal:
        """The chat on a new terminal, with the sandbox or where there is none."""
        program = ("-m", "chatops") if self._sandbox else ("-c", WITHOUT_SANDBOX)
        return ChatTerminal(
            [sys.executable, *program, *self.installation.flags, *arguments],
            env={"PYTHONPATH": program_environment()["PYTHONPATH"]},
            cwd=self.installation.workspace,
            cols=110,
            rows=40,
        )

    def run(self, terminal: ChatTerminal, number: str) -> None:
        """Have a command run that takes effect, says so and leaves a background process; until all of that is so. With
        a file `go` it ends at once."""
        command = f"echo begun {number}; {EFFECT}; test -e go || (setsid sleep {number} & sleep {number}); echo over"
        terminal.ready("coder")
        chat = FaultyChat(self.installation, self.provider, terminal)
        chat.say("do it", calls(call("shell_exec", command=command, timeout_s=900)), repeats)
        terminal.dialog()
        terminal.press("a")
        terminal.wait_until(
            lambda _: len(sleeping(number)) == 2 and f"begun {number}" in self.kept, what="the command to be under way"
        )
        assert self.installation.count == 1

    @property
    def kept(self) -> str:
        """Return the kept output of running tools."""
        return "".join(file.read_text() for file in (self.installation.home / "data" / "running").glob("*"))


@pytest.mark.more
@pytest.mark.fault("D13", "D07")
@pytest.mark.parametrize(
    ("sandbox", "key", "says_so", "effects", "attempts"),
    [
        pytest.param(True, "u", UNKNOWN, 1, [(1, Outcome.UNKNOWN)], marks=needs_sandbox),
        (False, "R", "the user had it run again", 2, [(1, Outcome.UNKNOWN), (2, Outcome.SUCCESS)]),
    ],
)
def test_killed_with_a_background_child(
    sandbox: bool,
    key: str,
    says_so: str,
    effects: int,
    attempts: list[tuple[int, Outcome]],
    installation: Installation,
    provider: Provider,
    number: str,
    figure: Count,
) -> None:
    user = User(installation, provider, sandbox=sandbox)
    with user.open("--role", "coder") as before:
        user.run(before, number)
        before.kill9()
    (row,) = installation.journal()
    assert row.outcome is None
    with user.open("-c") as after:
        seen = flat(after.wait_for(DOUBT))
        missing = [word for word in ("outcome unknown", f"begun {number}") if word not in seen]
        for pattern in (r"started \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \((just now|\d+ \w+ ago)\)", "processes stopped"):
            missing += [] if re.search(pattern, seen) else [pattern]
        figure(UNTOLD, bad=bool(missing), of=1)
        assert not missing, seen
        assert sleepers(number) == []
        assert "sandbox bubblewrap" in seen if sandbox else "sandbox off" in seen
        assert user.kept == "", "it is in the store by now"
        (installation.workspace / "go").touch()
        after.press(key)
        chat = FaultyChat(installation, provider, after)
        chat.wait_for(f"I was told: .*{says_so}.*begun {number}")
        chat.assert_well()
    assert installation.count == effects
    with installation.store() as store:
        rows = store.journal(TurnId(row.call_id.rsplit(".", 2)[0]))
    assert [(row.attempt, row.outcome) for row in rows] == attempts


@pytest.mark.more
@pytest.mark.fault("D13")
def test_what_nobody_holds_any_more_is_stopped_before_the_dialog_opens(
    installation: Installation, provider: Provider, number: str, figure: Count
) -> None:
    """The app and the process that watches over the command die at the same moment."""
    user = User(installation, provider, sandbox=False)
    with user.open("--role", "coder") as before:
        user.run(before, number)
        os.kill(before.pid, signal.SIGSTOP)
        os.kill(supervisor_below(before.pid), signal.SIGKILL)
        before.kill9()
        assert len(sleeping(number)) == 2
        with user.open("-c") as after:
            seen = flat(after.wait_for(DOUBT))
            found = re.search(r"processes stopped now: \d+ were still running", seen)
            figure(UNTOLD, bad=found is None, of=1)
            assert found, seen
            assert sleepers(number) == []
            after.press("m")
            chat = FaultyChat(installation, provider, after)
            chat.wait_for("Shell .* marked as done")
            chat.wait_for("I was told: .* the user has checked and says that it took effect")
            chat.assert_well()
    assert installation.count == 1


def supervisor_below(pid: int) -> int:
    """The process of a command's own that stands between it and the app."""
    (found,) = (
        one.pid
        for one in family(pid, mark="no such mark")
        if b"supervisor.py" in Path(f"/proc/{one.pid}/cmdline").read_bytes()
    )
    return found


@pytest.mark.more
@pytest.mark.fault("D14")
def test_a_tool_that_the_kernel_kills(chat: FaultyChat) -> None:
    chat.say("eat memory", calls(call("shell_exec", command="echo begun; kill -9 $$")), repeats)
    chat.terminal.dialog()
    chat.terminal.press("a")
    chat.wait_for(r"Shell .* killed \(out of memory\?\)")
    chat.wait_for(r"I was told: begun .*\[killed \(out of memory\?\), exit code 137\]")
    assert [(row.attempt, row.outcome) for row in chat.installation.journal()] == [(1, Outcome.FAILED)]
    chat.assert_well()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Shell commands about a call of unknown outcome, and their results."""

    words: tuple[str, ...]
    says_so: str
    effects: int
    attempts: tuple[tuple[int, Outcome], ...]


ANSWERS = {
    "unknown": Answer(
        words=("deny", "--reason", "look at count.txt"),
        says_so=f"{UNKNOWN}.*look at count.txt",
        effects=1,
        attempts=((1, Outcome.UNKNOWN),),
    ),
    "done": Answer(
        words=("approve", "--done"), says_so="says that it took effect", effects=1, attempts=((1, Outcome.SUCCESS),)
    ),
    "again": Answer(
        words=("approve", "--again"),
        says_so="the user had it run again",
        effects=2,
        attempts=((1, Outcome.UNKNOWN), (2, Outcome.SUCCESS)),
    ),
}


def interrupted(pipe: Pipe, place: str = "after_tool:1") -> str:
    """A session in which the app was killed while a tool ran, asked for and approved by a user; its id."""
    (pipe.installation.workspace / "mark.txt").write_text("x")
    (pipe.installation.workspace / "count.txt").touch()
    asked = calls(call("shell_exec", command=COPIES))
    paused = pipe.ask("write it down", asked, repeats, repeats, repeats, more=("--output-format", "json"))
    assert paused.code == 3, paused.err
    session, waiting = paused.json["session_id"], paused.json["pending"][0]["id"]
    assert pipe.run("approvals", "approve", waiting).code == 0
    assert pipe.run("resume", session, env={VARIABLE: place}).code == KILLED
    return str(session)


def is_told(asked: Ran) -> bool:
    """Check that the user sees which call it is, since when, and the possible answers."""
    said = ("Outcome unknown", "started: 20", "processes: stopped", COPIES, "--done", "--again", "approvals deny")
    return all(part in asked.err for part in said)


@pytest.mark.some(1)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_without_a_screen_the_same_is_said_and_can_be_answered(pipe: Pipe, answer: Answer, figure: Count) -> None:
    session = interrupted(pipe)
    assert pipe.installation.count == 1
    listed = pipe.run("approvals", "list")
    assert f"Session {session} was interrupted while running shell_exec ({COPIES[:50]}" in listed.err
    assert "): outcome unknown" in listed.err
    asked = pipe.run("resume", session, "--output-format", "json")
    assert asked.code == 3, asked.err
    figure(UNTOLD, bad=not is_told(asked), of=1)
    assert is_told(asked), asked.err
    (pending,) = asked.json["pending"]
    assert pending["why"] == "the app stopped while it ran"
    assert pending["interrupted"]["processes"] == "gone"
    assert [one["state"] for one in lines_of(pipe.run("approvals", "list").out)] == ["outcome unknown"]
    shown = pipe.run("approvals", "show", pending["id"])
    assert re.search(r"Started: +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \(.+\)", shown.out)
    assert "Its output until then:\n  none was kept" in shown.out
    bare = pipe.run("approvals", "approve", pending["id"])
    assert bare.code == 1
    assert "may have taken effect; nothing was approved" in bare.err
    assert pipe.installation.count == 1
    action, *words = answer.words
    done = pipe.run("approvals", action, pending["id"], *words)
    assert done.code == 0, done.err
    ended = pipe.run("resume", session)
    assert ended.code == 0, ended.err
    assert re.search(f"I was told: .*{answer.says_so}", flat(ended.out)), ended.out
    assert pipe.installation.count == answer.effects
    assert tuple((row.attempt, row.outcome) for row in pipe.installation.journal()) == answer.attempts
    pipe.assert_well()


def lines_of(listed: str) -> list[dict[str, str]]:
    """The rows of a list, by column."""
    head, *rows = listed.splitlines()
    names = head.split()
    starts = [head.index(name) for name in names]
    ends = [*starts[1:], None]
    return [
        {name.lower(): row[at:end].strip() for name, at, end in zip(names, starts, ends, strict=True)} for row in rows
    ]


@pytest.mark.more
def test_what_has_changed_since_is_asked_about_once_more_and_stays_unknown(pipe: Pipe) -> None:
    session = interrupted(pipe)
    (pending,) = pipe.run("resume", session, "--output-format", "json").json["pending"]
    (pipe.installation.workspace / "count.txt").unlink()
    assert pipe.run("approvals", "approve", pending["id"], "--again").code == 0
    resumed = pipe.run("resume", session)
    assert resumed.code == 3
    assert "changed since it was approved: the files it touches" in resumed.err
    assert is_told(resumed), resumed.err
    assert pipe.run("approvals", "approve", pending["id"]).code == 1
    assert pipe.installation.count == 0
    assert pipe.run("approvals", "approve", pending["id"], "--again").code == 0
    resumed = pipe.run("resume", session)
    assert resumed.code == 0
    assert "the user had it run again" in resumed.out
    assert pipe.installation.count == 1
    assert [(row.attempt, row.outcome) for row in pipe.installation.journal()] == [
        (1, Outcome.UNKNOWN),
        (2, Outcome.SUCCESS),
    ]
    pipe.assert_well()


@pytest.mark.more
def test_an_approval_of_the_first_run_is_none_of_a_second(pipe: Pipe) -> None:
    """Somebody who looked at the call before it was interrupted has not been asked whether it is to run once more."""
    session = interrupted(pipe)
    (row,) = pipe.installation.journal()
    asked = pipe.run("resume", session, "--output-format", "json")
    (pending,) = asked.json["pending"]
    stale = pipe.run("approvals", "approve", pending["id"], "--again", "--digest", row.digest)
    assert stale.code == 1
    assert "not what was shown" in stale.err
    with pipe.installation.store() as store:
        by = Principal(uid=os.getuid(), via="approvals")
        late = DecideCall(call_id=row.call_id, digest=row.digest, decision=Approved(), by=by)
        assert not store.post_decision(late)
    assert pipe.run("resume", session).code == 3
    assert pipe.installation.count == 1


@pytest.mark.more
def test_words_for_an_unknown_outcome_mean_nothing_for_a_call_that_has_not_been_started(pipe: Pipe) -> None:
    asked = calls(call("shell_exec", command=EFFECT))
    (pending,) = pipe.ask("write it down", asked, repeats, more=("--output-format", "json")).json["pending"]
    for word in ("--again", "--done"):
        refused = pipe.run("approvals", "approve", pending["id"], word)
        assert refused.code == 1
        assert "has not been started yet" in refused.err
    assert pipe.run("approvals", "approve", pending["id"], "--again", "--done").code == 2


@pytest.mark.more
def test_killed_before_the_tool_has_begun_is_as_unknown_and_nothing_runs_by_itself(pipe: Pipe, figure: Count) -> None:
    session = interrupted(pipe, place="before_tool:1")
    for _ in range(2):
        asked = pipe.run("resume", session)
        assert asked.code == 3
        figure(UNTOLD, bad=not is_told(asked), of=1)
        assert is_told(asked), asked.err
    assert pipe.installation.count == 0


@pytest.mark.more
def test_the_intent_names_the_process_that_had_it(pipe: Pipe) -> None:
    session = interrupted(pipe)
    (row,) = pipe.installation.journal()
    here = this_process()
    assert row.boot_id == here.boot_id
    assert row.pid not in (0, here.pid)
    assert row.pid_started.isdigit()
    with pipe.installation.store() as store:
        assert store.lease(pipe.installation.session().id) is None
    assert Holder(host=here.host, pid=row.pid, boot_id=row.boot_id, pid_started=row.pid_started) != here
    assert session == pipe.installation.session().id


@pytest.mark.more
def test_what_is_kept_of_an_output_goes_with_its_session(pipe: Pipe) -> None:
    session = interrupted(pipe)
    (row,) = pipe.installation.journal()
    kept = Outputs(pipe.installation.home / "data" / "running")
    kept.keeping(row.call_id, 1, print)("half of it")
    other = CallId("20261121-101512-k3f9.1.1.1")
    kept.keeping(other, 1, print)("of another session")
    assert kept.read(row.call_id, 1) == "half of it"
    assert pipe.run("sessions", "delete", session, "--yes").code == 0
    assert kept.read(row.call_id, 1) == ""
    assert kept.read(other, 1) == "of another session"
