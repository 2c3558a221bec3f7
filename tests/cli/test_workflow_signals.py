"""A run in a process of its own that gets signals: it stops, nothing is lost, and it goes on."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, program_environment
from tests.support.fake_openai import FakeOpenAI, Hang, Raw, Reply, SeenRequest
from tests.support.waiting import PATIENCE
from tests.support.workflows import WorkflowInstallation, answer, step

RUN = ("workflow", "run", "flow", "x", "--output-format")


class Silence:
    """A model that says nothing to the second request, and answers all others."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.count = 0

    def __call__(self, request: SeenRequest) -> Reply:
        self.count += 1
        if self.count != 2:
            return answer(self.count)
        self.reached.set()
        return Raw(steps=(Hang(),))


def interrupted(
    at: WorkflowInstallation, model: Silence, number: signal.Signals, output: str = "json"
) -> tuple[int, str, str]:
    """Run the workflow and send the signal while the second step's model is silent."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chatops", "--registry", str(at.file), *RUN, output],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=at.workspace, env=program_environment(),
    )  # fmt: skip
    assert model.reached.wait(timeout=PATIENCE)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@pytest.mark.more
def test_an_interrupt_stops_the_step_and_resume_makes_it_again(chatops: CommandLine) -> None:
    model = Silence()
    with FakeOpenAI(model) as server:
        at = WorkflowInstallation(chatops, server.url)
        at.define(step("a"), step("b"))
        code, out, err = interrupted(at, model, signal.SIGINT)
        assert code == 130
        assert "Traceback" not in err
        stopped = json.loads(out)
        assert (stopped["status"], stopped["review"]["reason"]) == ("paused", "stopped")
        assert f"chatops workflow resume {stopped['session_id']}" in err
        ended = at.resume(stopped["session_id"])
        assert ended.code == 0, ended.err
        assert [one["attempts"] for one in ended.json["steps"]] == [1, 2]
        assert [one["output"] for one in ended.json["steps"]] == ["1", "3"]


@pytest.mark.more
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_any_other_signal_leaves_the_run_as_it_is_stored(number: signal.Signals, chatops: CommandLine) -> None:
    model = Silence()
    with FakeOpenAI(model) as server:
        at = WorkflowInstallation(chatops, server.url)
        at.define(step("a"), step("b"))
        code, out, err = interrupted(at, model, number)
        assert code == (-9 if number is signal.SIGKILL else 130)
        assert "Traceback" not in err
        (run,) = at("workflow", "list", "--output-format", "json").json["runs"]
        if out:
            assert (json.loads(out)["status"], json.loads(out)["error"]["reason"]) == ("cancelled", "stopped")
        ended = at.resume(run["id"])
        assert ended.code == 0, ended.err
        # The same attempt: nothing was lost but the reply that never came.
        assert [one["attempts"] for one in ended.json["steps"]] == [1, 1]


@pytest.mark.more
def test_a_stream_that_is_interrupted_leaves_nothing_open(chatops: CommandLine, tmp_path: Path) -> None:
    model = Silence()
    with FakeOpenAI(model) as server:
        at = WorkflowInstallation(chatops, server.url)
        at.define(step("a"), step("b"))
        code, out, _ = interrupted(at, model, signal.SIGTERM, "stream-json")
        assert code == 130
        lines = [json.loads(line) for line in out.splitlines()]
        opened = {line["id"] for line in lines if line.get("status") == "started"}
        closed = {line["id"] for line in lines if "started_at" in line}
        assert opened == closed
        assert lines[-1]["type"] == "workflow_finished"
        assert lines[-1]["status"] == "error"
