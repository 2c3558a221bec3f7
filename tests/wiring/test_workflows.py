"""Workflows against what exists here for this user: tools, roles, models, rights; and what registry check says."""

import json
import shutil

import pytest

from chatops.config.paths import packaged_registry
from chatops.config.workflow_files import packaged_workflows
from chatops.domain.errors import ConfigError
from chatops.wiring.app import App
from chatops.wiring.checks import check_here
from chatops.wiring.stored import Options
from tests.support.command_line import CommandLine
from tests.wiring.conftest import Bench

STEP = {"name": "only", "system_prompt": "p"}
READ, LIST = ({"tool": tool, "passes_when": "success"} for tool in ("file_read", "file_list"))


def test_rights_are_those_of_the_steps_role_for_this_user(bench: Bench) -> None:
    steps = [
        {**STEP, "name": "a", "tools": ["file_read"], "validation_tools": [READ]},
        {**STEP, "name": "b", "role": "reader", "tools": ["file_list"], "validation_tools": [LIST]},
        {**STEP, "name": "c", "role": "reader", "tools": [], "gates": [{"name": "g", "command": "true"}]},
        {**STEP, "name": "d", "tools": [], "model": "demo", "gates": [{"name": "g", "command": "true"}]},
    ]
    bench.write(
        roles={"assistant": {}, "reader": {"tools": ["file_read"]}},
        users={"*": {"access_level": "operator"}},
        workflows={"make": {"steps": steps}},
    )
    app = bench.app()
    definition = app.workflows().get("make")
    found = check_here(app, definition, role="assistant")
    tool, gate = found.errors
    assert "steps[1].validation_tools[0]" in tool and "steps[2].gates[0].command" in gate
    assert all("denied by tools of role reader" in error for error in found.errors)
    assert tool.startswith(f"{bench.own.name}, line 1, column")
    (warning,) = found.warnings
    assert "steps[1].tools[0]: the step may not call file_list" in warning


def test_a_viewer_is_told_before_the_run_that_a_gate_cannot_run(bench: Bench) -> None:
    step = {**STEP, "tools": [], "gates": [{"name": "g", "command": "true"}]}
    bench.write(users={"*": {"access_level": "viewer"}}, workflows={"make": {"steps": [step]}})
    app = bench.app()
    (error,) = check_here(app, app.workflows().get("make"), role="assistant").errors
    assert "denied by access level viewer" in error


def test_an_unknown_role_of_the_run_is_an_error_and_one_of_a_step_is_told_in_its_place(bench: Bench) -> None:
    bench.write(workflows={"make": {"steps": [{**STEP, "tools": [], "role": "asistant", "model": "dem"}]}})
    app = bench.app()
    definition = app.workflows().get("make")
    with pytest.raises(ConfigError, match="no role 'coder'"):
        check_here(app, definition, role="coder")
    role, model = check_here(app, definition, role="assistant").errors
    assert "did you mean 'assistant'?" in role and "did you mean 'demo'?" in model


def test_workflow_files_beside_a_registry_are_out_of_the_tools_reach(bench: Bench) -> None:
    bench.write()
    named = bench.workspace / "team.json"
    named.write_text(bench.own.read_text())
    app = App(Options(workspace=bench.workspace, registry=named))
    bench.apps.append(app)
    assert bench.workspace / "workflows" in app.limits.protected_paths()


def test_registry_check_tells_what_is_wrong_with_workflows_of_the_registry_and_beside_it(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(workflows={"make": {"steps": [{**STEP, "tools": ["file_red"]}]}, "good": {"steps": [STEP]}})
    folder = bench.own.parent / "workflows"
    folder.mkdir()
    (folder / "mend.yaml").write_text("steps:\n  - name: a\n    system_prompt: p\n    tool: []\n")
    (folder / "ship.yaml").write_text("steps:\n  - name: a\n    system_prompt: p\n    once: [file_red]\n")
    (folder / "good.json").write_text(json.dumps({"steps": [STEP]}))
    ran = CommandLine(bench.workspace, capsys)("registry", "check", str(bench.own))
    assert ran.code == 0
    assert "key workflows.make.steps[0].tools[0]: there is no tool 'file_red'; did you mean 'file_read'?" in ran.out
    assert f"{folder}/mend.yaml, line 4, column 5, key steps[0].tool: there is no such key" in ran.out
    assert f"{folder}/ship.yaml, line 4, column 12, key steps[0].once[0]: there is no tool" in ran.out
    assert ran.out.count("This workflow cannot run as it is.") == 3
    assert "good.json has no effect" in ran.out


def test_registry_check_finds_nothing_wrong_with_what_comes_with_chatops_where_a_tool_of_it_lacks_something(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an installed chatops has it: the registry, and the workflows beside it."""
    # Whatever is installed here, and whatever another test has imported.
    monkeypatch.setattr("chatops.tools.service.choose_backend", lambda environ: None)
    shutil.copy(packaged_registry(), bench.own)
    shutil.copytree(packaged_workflows(), bench.own.parent / "workflows")
    ran = CommandLine(bench.workspace, capsys)("registry", "check", str(bench.own))
    warnings = [line for line in ran.out.splitlines() if line.startswith("warning")]
    assert ran.code == 0
    assert [line.split(":")[1] for line in warnings] == [
        " Role assistant does not get web_search",
        " Role researcher does not get web_search",
    ]
    app = bench.app()
    assert set(app.catalog.absent) == {
        "web_search",
        "wolfram_alpha",
        "knowledge_search",
        "skill_read",
    }
    # Its step has the tools of its role, whichever of them are there.
    assert not check_here(app, app.workflows().get("research"), role="assistant").warnings


def test_registry_schema_describes_workflows(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    schema = CommandLine(bench.workspace, capsys)("registry", "schema").json
    assert schema["properties"]["workflows"]["additionalProperties"] == {"$ref": "#/$defs/WorkflowEntry"}
    assert "validation_tools" in schema["$defs"]["StepEntry"]["properties"]
