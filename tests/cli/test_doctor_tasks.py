"""``chatops doctor --model NAME --tasks``: plays small tasks with a model, and keeps its score."""

import io
import json
import re

import pytest

from chatops.wiring.tasks import TASKS, Task
from tests.support.command_line import CommandLine, registry_for
from tests.support.fake_openai import Completion, FakeOpenAI, Reply, SeenRequest, call, calls, error, says
from tests.support.no_sandbox import without_sandbox
from tests.tools.running import needs_sandbox


def task_of(request: SeenRequest) -> Task:
    return next(task for task in TASKS if task.prompt == request.last_user)


def able(request: SeenRequest) -> Completion:
    """Do the task: what has to be in files is written, what has to be known is read."""
    task, made = task_of(request), len(request.tool_results)
    if task.reads_only:
        return says(f"It is {task.answer}.") if made else calls(call("file_read", path=next(iter(task.files))))
    if made < len(task.result):
        name, content = [*task.result.items()][made]
        return calls(call("file_write", path=name, content=content))
    return says("Done.")


def idle(request: SeenRequest) -> Completion:
    """Repeat the task, and promise to have done it."""
    return says(f"Sure: {task_of(request).prompt} Done.")


def registry(chatops: CommandLine, server: FakeOpenAI) -> list[str]:
    return ["--registry", registry_for(chatops.workspace, server.url, tools=["scratch_read"])]


def test_there_are_twenty_and_no_task_names_its_answer() -> None:
    assert len(TASKS) == len({task.name for task in TASKS}) == len({task.prompt for task in TASKS}) == 20
    assert not [task.name for task in TASKS if task.answer and task.answer in task.prompt]
    assert not [task.name for task in TASKS if not task.answer and not task.result]
    for task in TASKS:
        assert task.result != {name: task.files.get(name) for name in task.result} or task.reads_only, task.name


@needs_sandbox
def test_a_model_that_does_them_gets_all_points_and_one_that_talks_none(chatops: CommandLine) -> None:
    model, before = able, [path.name for path in chatops.workspace.iterdir()]
    with FakeOpenAI(lambda request: model(request)) as server:
        flags = registry(chatops, server)
        ran = chatops(*flags, "doctor", "--model", "fake", "--tasks", "--yes", "--output-format", "json")
        assert (ran.code, ran.json["done"], ran.json["of"]) == (0, 20, 20), ran.err
        assert "about 80 requests (at most 160)" in ran.err and "its price is unknown" in ran.err
        offered = {tool["function"]["name"] for tool in server.requests[0].body["tools"]}
        assert offered == {"file_read", "file_list", "file_search", "file_write", "file_edit", "shell_exec"}
        model = idle
        talked = chatops(*flags, "doctor", "--model", "fake", "--tasks", "--yes")
        assert talked.out == "fake: 0 of 20 tasks done.\n"
        listed = chatops(*flags, "models", "list")
    assert re.search(r"fake .* 0 of 20 ", listed.out)
    assert not chatops("sessions", "list", "--all").out.count("note.txt")
    assert [path.name for path in chatops.workspace.iterdir()] == before


def test_without_a_sandbox_only_the_reading_tasks_are_played(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with FakeOpenAI(able) as server:
        flags = registry(chatops, server)
        ran = chatops(*flags, "doctor", "--model", "fake", "--tasks")
        assert ran.out == "fake: 11 of 11 tasks done. The 9 others need what is missing here.\n"
        assert "Only the tasks that read are played." in ran.err
        assert {tool["function"]["name"] for tool in server.requests[0].body["tools"]} == {
            "file_read",
            "file_list",
            "file_search",
        }
        listed = chatops(*flags, "models", "list", "--output-format", "json")
    scores = {one["name"]: one["tasks"] for one in json.loads(listed.out)}
    assert scores["fake"] == {"done": 11, "of": 11} and scores["demo"] is None


def test_nothing_is_sent_without_a_yes(chatops: CommandLine) -> None:
    with FakeOpenAI(able) as server:
        flags = registry(chatops, server)
        ran = chatops(*flags, "doctor", "--model", "fake", "--tasks")
        assert (ran.code, ran.out) == (2, "") and "--yes" in ran.err
        assert not server.requests
        unnamed = chatops(*flags, "doctor", "--tasks", "--yes")
        assert unnamed.code == 2 and "--tasks needs --model NAME" in unnamed.err


def test_a_server_that_fails_gives_no_score(chatops: CommandLine) -> None:
    def reply(request: SeenRequest) -> Reply:
        return error(401, "no such key") if len(server.requests) > 3 else able(request)

    with FakeOpenAI(reply) as server:
        flags = registry(chatops, server)
        ran = chatops(*flags, "doctor", "--model", "fake", "--tasks", "--yes")
        assert ran.code == 1 and "refuses the key" in ran.err and "Traceback" not in ran.err
        listed = chatops(*flags, "models", "list", "--output-format", "json")
    assert all(one["tasks"] is None for one in json.loads(listed.out))
