"""The tools of the workflow components: what is found, what passes, and what a deployment leaves behind."""

import json
from pathlib import Path
from typing import Any

import pytest

from chatops.demo.catalogue import CATALOGUE, FlowConnection, FlowNode, flow_faults, search
from chatops.demo.tools import component_tools
from chatops.domain.errors import ToolFailedError
from chatops.policy.workflow import StepPlace, belongs
from tests.tools.toolkit import context_for, done, inspected

TOOLS = {one.spec.name: one for one in component_tools()}
HOOK = {"id": "in", "component": "webhook_in", "properties": {"path": "/in", "method": "POST"}}
POST = {"id": "out", "component": "chat_post", "properties": {"channel": "#a", "text": "hello"}}
FLOW: dict[str, Any] = {"name": "hello", "nodes": [HOOK, POST], "connections": [{"source": "in", "target": "out"}]}


async def said(tool: str, workspace: Path, /, **arguments: Any) -> Any:
    """The result of a tool as JSON."""
    return json.loads((await done(TOOLS[tool], context_for(workspace), arguments)).content)


async def deployed(workspace: Path, **changes: Any) -> str:
    """Return the result of a deployment."""
    return (await done(TOOLS["component_deploy"], context_for(workspace), {**FLOW, **changes})).content


def faults_of(**changes: Any) -> dict[str, str]:
    """Return the faults of the changed flow, by place."""
    flow = {**FLOW, **changes}
    found = flow_faults(
        flow["name"],
        [FlowNode(**one) for one in flow["nodes"]],
        [FlowConnection(**one) for one in flow["connections"]],
    )
    return {one.path: one.message for one in found}


def test_each_belongs_to_steps_of_its_workflow_and_to_no_chat() -> None:
    assert all(one.spec.steps and not belongs(one.spec, at=None) for one in TOOLS.values())
    assert not any(belongs(one.spec, at=StepPlace(workflow="other", step="assemble")) for one in TOOLS.values())
    at = StepPlace(workflow="components", step="assemble")
    assert [name for name, one in TOOLS.items() if belongs(one.spec, at=at)] == [
        "validate_full",
        "component_deploy",
        "validate_deployed",
    ]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("a webhook", "webhook_in"),
        ("chats", "chat_post"),
        ("EVERY morning", "schedule"),
        ("send an e-mail", "mail_send"),
    ],
)
async def test_what_shares_most_words_is_found_first(query: str, first: str, tmp_path: Path) -> None:
    assert (await said("component_search", tmp_path, query=query))["found"][0]["component"] == first


async def test_where_nothing_is_found_all_names_are_told(tmp_path: Path) -> None:
    result = await said("component_search", tmp_path, query="zzz")
    assert result["found"] == []
    assert set(result["triggers"] + result["actions"]) == {one.name for one in CATALOGUE}


def test_every_component_passes_with_its_own_examples() -> None:
    assert search("") == []
    for one in CATALOGUE:
        mine = {
            "id": "it",
            "component": one.name,
            "properties": {name: schema["examples"][0] for name, schema in one.properties.items()},
        }
        nodes, way = ([mine, POST], ("it", "out")) if one.is_trigger else ([HOOK, mine], ("in", "it"))
        assert faults_of(nodes=nodes, connections=[{"source": way[0], "target": way[1]}]) == {}, one.name


async def test_details_name_the_properties_and_an_unknown_component_the_nearest(tmp_path: Path) -> None:
    result = await said("component_details", tmp_path, component="webhook_in")
    assert {one["name"]: one["required"] for one in result["properties"]} == {
        "path": True,
        "method": True,
        "secret": False,
    }
    with pytest.raises(ToolFailedError, match="did you mean webhook_in"):
        await done(TOOLS["component_details"], context_for(tmp_path), {"component": "webhok_in"})


async def test_the_small_validation_looks_only_for_what_is_missing(tmp_path: Path) -> None:
    result = await said("validate_minimal", tmp_path, component="chat_post", properties={"channel": "", "extra": 1})
    assert result["valid"] is False
    assert [one["property"] for one in result["errors"]] == ["channel", "text"]
    assert "for example: #general" in result["errors"][0]["message"]
    passed = await said("validate_minimal", tmp_path, component="chat_post", properties={"channel": "x", "text": 1})
    assert passed == {"valid": True, "errors": []}
    unknown = await said("validate_minimal", tmp_path, component="\x1b[2J", properties={})
    assert unknown["errors"][0]["property"] == "component"
    assert "\x1b" not in unknown["errors"][0]["message"]


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        ({"name": "../up"}, "name", "small letters"),
        ({"name": "a/b"}, "name", "small letters"),
        ({"name": ""}, "name", "small letters"),
        ({"nodes": [HOOK], "connections": []}, "nodes", "2 to 20 nodes"),
        ({"nodes": [HOOK, {**HOOK, "id": "b"}], "connections": []}, "nodes", "one trigger, this one has 2"),
        ({"nodes": [{**POST, "id": "in"}, POST]}, "nodes", "one trigger, this one has 0"),
        ({"nodes": [HOOK, {**POST, "id": "in"}], "connections": []}, "nodes[1].id", "this id too"),
        ({"nodes": [HOOK, {**POST, "component": "chat"}]}, "nodes[1].component", "there is no component chat"),
        (
            {"nodes": [HOOK, {**POST, "properties": {"channel": "#a"}}]},
            "nodes[1].properties.text",
            "is required but missing",
        ),
        (
            {"nodes": [HOOK, {**POST, "properties": {"channel": "a", "text": "x"}}]},
            "nodes[1].properties.channel",
            "does not match",
        ),
        (
            {"nodes": [HOOK, {**POST, "properties": {"channel": "#a", "text": 1}}]},
            "nodes[1].properties.text",
            "must be string",
        ),
        (
            {"nodes": [HOOK, {**POST, "properties": {"channel": "#a", "text": "x" * 2_001}}]},
            "nodes[1].properties.text",
            "at most 2,000",
        ),
        (
            {"nodes": [HOOK, {**POST, "properties": {"channel": "#a", "text": "x", "colour": "red"}}]},
            "nodes[1].properties.colour",
            "is not a property of chat_post; valid names: channel, text",
        ),
        (
            {"nodes": [{**HOOK, "properties": {"path": "/in", "method": "BREW"}}, POST]},
            "nodes[0].properties.method",
            "must be one of GET, POST, PUT",
        ),
        ({"connections": []}, "nodes[1].id", "nothing leads"),
        ({"connections": [{"source": "in", "target": "gone"}]}, "connections[0].target", "no node gone"),
        ({"connections": [{"source": "out", "target": "in"}]}, "connections[0].target", "nothing leads to a trigger"),
        ({"connections": [{"source": "out", "target": "out"}]}, "nodes[1].id", "nothing leads"),
    ],
)
def test_the_full_validation_finds(changes: dict[str, Any], where: str, what: str) -> None:
    found = faults_of(**changes)
    assert what in found[where], found


async def test_a_deployment_is_a_file_whose_version_says_how_often(tmp_path: Path) -> None:
    before = await said("validate_deployed", tmp_path, name="hello")
    assert before["valid"] is False and "call component_deploy" in before["errors"][0]["message"]
    assert await deployed(tmp_path) == "Deployed flows/hello.json, version 1."
    assert await deployed(tmp_path) == "Deployed flows/hello.json, version 2."
    assert [path.name for path in (tmp_path / "flows").iterdir()] == ["hello.json"]
    value = json.loads((tmp_path / "flows" / "hello.json").read_text())
    assert value == {**FLOW, "version": 2}
    result = await said("validate_deployed", tmp_path, name="hello")
    assert result == {"valid": True, "errors": [], "file": "flows/hello.json", "version": 2}


async def test_a_user_is_shown_the_file_and_the_change_and_asked_about_no_flow_with_faults(tmp_path: Path) -> None:
    tool = TOOLS["component_deploy"]
    facts = await inspected(tool, context_for(tmp_path), FLOW)
    assert facts.paths == (str(tmp_path / "flows" / "hello.json"),)
    assert '+  "version": 1,' in facts.diff
    assert not (tmp_path / "flows").exists()
    broken = await inspected(tool, context_for(tmp_path), {**FLOW, "connections": []})
    assert [one.path for one in broken.problems] == ["nodes[1].id"]


async def test_what_changed_after_the_approval_is_not_deployed_over(tmp_path: Path) -> None:
    context = context_for(tmp_path)
    facts = await inspected(TOOLS["component_deploy"], context, FLOW)
    await deployed(tmp_path)
    with pytest.raises(ToolFailedError, match="has changed since"):
        await TOOLS["component_deploy"].run(facts, context)
    assert json.loads((tmp_path / "flows" / "hello.json").read_text())["version"] == 1


async def test_after_a_crash_the_file_says_whether_it_was_deployed(tmp_path: Path) -> None:
    context = context_for(tmp_path)
    facts = await inspected(TOOLS["component_deploy"], context, FLOW)
    assert (await TOOLS["component_deploy"].reconcile(facts, context)).repeat
    await TOOLS["component_deploy"].run(facts, context)
    found = await TOOLS["component_deploy"].reconcile(facts, context)
    assert found.result is not None and not found.repeat


@pytest.mark.parametrize("content", ["no json", "[]", '{"version": "1"}', '{"version": true}', "{}", "[" * 10_000])
async def test_a_file_that_is_no_flow_is_not_replaced_and_is_no_deployment(content: str, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "hello.json").write_text(content)
    facts = await inspected(TOOLS["component_deploy"], context_for(tmp_path), FLOW)
    assert "is not a flow" in facts.problems[0].message
    assert (await said("validate_deployed", tmp_path, name="hello"))["valid"] is False


async def test_nothing_is_deployed_or_looked_for_outside_of_the_workspace(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "hello.json").write_text(json.dumps({**FLOW, "version": 1}))
    (workspace / "flows").symlink_to(outside)
    for name, arguments in (("component_deploy", FLOW), ("validate_deployed", {"name": "hello"})):
        facts = await inspected(TOOLS[name], context_for(workspace), arguments)
        assert "outside the workspace" in facts.refusal, name
    climbing = await inspected(TOOLS["validate_deployed"], context_for(workspace), {"name": "../outside/hello"})
    assert climbing.problems
