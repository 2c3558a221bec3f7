"""Rights that change while a call waits: the answer is judged by what holds when it is given, and when it would run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chatops.api import Step, Workflow, tool
from chatops.domain.events import PendingCall
from tests.e2e.installation import EFFECT
from tests.faults.entry_points import Pipe, patient_registry
from tests.support.fake_openai import Completion, FakeOpenAI, Reply, SeenRequest, call, calls, says

ASKED = calls(call("shell_exec", command=EFFECT), text="I will write it down.")
COUNT = "effects of calls whose right was gone"


def repeats(request: SeenRequest) -> Reply:
    """Repeats what it was told came of the call."""
    return says(f"I was told: {request.tool_results[-1]}")


def without_shell(registry: dict[str, Any]) -> dict[str, Any]:
    registry["roles"]["coder"]["tools"] = ["file_read", "scratch_write"]
    return registry


def without_role(registry: dict[str, Any]) -> dict[str, Any]:
    registry["default_role"] = "operator"
    del registry["roles"]["coder"]
    return registry


def as_viewer(registry: dict[str, Any]) -> dict[str, Any]:
    registry["users"] = {"*": {"access_level": "viewer"}}
    return registry


Change = Callable[[dict[str, Any]], dict[str, Any]]
CHANGES = [without_shell, without_role, as_viewer]


@pytest.mark.some(1)
@pytest.mark.fault("G08")
@pytest.mark.parametrize("change", CHANGES)
def test_approved_elsewhere_and_resumed_under_a_narrower_registry(
    pipe: Pipe, change: Change, figure: Callable[..., None]
) -> None:
    paused = pipe.ask("write it down", ASKED, repeats, more=("--output-format", "json"))
    assert paused.code == 3, paused.err
    session, waiting = paused.json["session_id"], paused.json["pending"][0]["id"]
    assert pipe.run("approvals", "approve", waiting).code == 0
    pipe.installation.use(change(patient_registry(pipe.provider.server.url)))
    resumed = pipe.run("resume", session, "--output-format", "json")
    assert resumed.code == 0, resumed.err
    (refused,) = resumed.json["calls"]
    assert refused["outcome"] == "denied"
    assert "I was told: Not permitted: shell_exec" in resumed.json["answer"]
    figure(COUNT, bad=pipe.installation.count, of=1)
    assert pipe.installation.count == 0
    pipe.assert_well()


def test_a_tool_without_an_inspection_of_its_own_is_judged_by_the_registry_as_it_is_then(
    tmp_path: Path, chatops_home: Path
) -> None:
    """Nothing is waited for between the answer and the start of such a tool."""
    ran: list[str] = []

    @tool
    def note(text: str) -> str:
        """Write something down."""
        ran.append(text)
        return "noted"

    def model(request: SeenRequest) -> Completion:
        return says("over") if request.tool_results else calls(call("note", text="a"))

    workspace = tmp_path / "project"
    workspace.mkdir()
    file = tmp_path / "registry.json"
    with FakeOpenAI(model) as server:
        value = patient_registry(server.url)
        file.write_text(json.dumps(value))

        def narrowed(pending: PendingCall) -> bool:
            value["tools"] = {"note": {"verdict": "deny"}}
            file.write_text(json.dumps(value))
            return True

        flow = Workflow("notes", [Step(name="write", system_prompt="Write.", tools=[note])])
        flow.run("go", registry=file, workspace=workspace, model="local", on_approval=narrowed)
    assert ran == []
