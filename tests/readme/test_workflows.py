"""Workflow examples of the README, executed as written."""

import json
from pathlib import Path

import pytest

from tests.readme.shell import follow
from tests.support import document
from tests.support.command_line import program
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls
from tests.support.workflows import answer


@pytest.mark.more
def test_the_workflow_runs_as_shown(folder: Path, path_with_chatops: str) -> None:
    follow("workflow: run", folder)
    assert "Hello" in (folder / "greet.py").read_text()


def test_the_definition_is_one_that_runs(folder: Path, chatops_home: Path) -> None:
    lines = document.block("workflow: definition")
    assert len(lines) == 12
    workflows = chatops_home / "config" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "changelog.yaml").write_text("\n".join(lines))
    shown = program("workflow", "show", "changelog", "--output-format", "json", cwd=folder).json
    assert (shown["errors"], shown["warnings"]) == ([], [])
    (folder / "a.py").write_text("print()\n")

    def model(request: SeenRequest) -> Completion:
        if "step 1 of 2" not in request.system:
            return answer("- It prints.")
        return answer({"files": ["a.py"]}) if request.tool_results else calls(call("file_read", path="a.py"))

    with FakeOpenAI(model) as server:
        model_entry = {"type": "openai", "api_url": server.url, "model_name": "m"}
        roles = {"coder": {"primary": "fake"}, "assistant": {"primary": "fake", "tools": []}}
        value = {"version": 3, "default_role": "assistant", "models": {"fake": model_entry}, "roles": roles}
        value["users"] = {"*": {"access_level": "operator"}}
        (chatops_home / "config" / "model_registry.json").write_text(json.dumps(value))
        paused = program("workflow", "run", "changelog", "what has changed?", cwd=folder)
        assert paused.code == 3, paused.err
        assert "the answer of step write needs your review" in paused.err and "--accept" in paused.err
        assert server.violations == []
