"""Facts about tools that stand far from the tools: each list is tied to the specs of the catalog.

A new tool that is forgotten in one of them fails here, and so does a name that no tool has.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from chatops.config.prompt_files import Memories, Skill, Skills
from chatops.config.registry_read import KNOWN_TOOLS
from chatops.domain.ids import CallId, SessionId
from chatops.domain.tools import ALIASES, BUILT_IN_TOOLS, CallFacts, Capabilities, ToolCall
from chatops.policy.registry import KnowledgeSource
from chatops.toolkit.base import Tool, ToolContext
from chatops.tools.catalog import CatalogSettings, builtin_catalog

"""Names of tools that may be written in a registry and that this version does not have."""
PAPERS = "papers"
"""A source of knowledge."""
EXAMPLES: dict[str, object] = {
    "path": "made.txt", "content": "x", "old": "here", "new": "there", "command": "true", "code": "pass", "url": "http://example.org/",
    "query": "x", "text": "x", "pattern": "x", "component": "schedule", "properties": {"every": "1d"}, "name": "made",
    "role": "r", "task": "x",
    "nodes": [
        {"id": "a", "component": "schedule", "properties": {"every": "1d"}},
        {"id": "b", "component": "table_append", "properties": {"table": "log", "row": "x"}},
    ],
    "connections": [{"source": "a", "target": "b"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> list[Tool]:
    """All tools, with the key that the search needs."""
    data = tmp_path_factory.mktemp("data")
    settings = CatalogSettings(
        scratch_dir=data / "scratch",
        environ={"BRAVE_API_KEY": "k", "WOLFRAM_APP_ID": "k"},
        knowledge=(KnowledgeSource(name=PAPERS, paths=("/nonexistent",)),),
        knowledge_index=data / "index.db",
        skills=Skills(found=(Skill(name="made", description="x", text="x", source="/nonexistent"),)),
        memories=Memories(tmp_path_factory.mktemp("memory"), workspace=Path()),
    )
    catalog = builtin_catalog(settings)
    assert not catalog.absent
    found = [catalog.get(spec.name) for spec in catalog.specs]
    return [tool for tool in found if tool is not None]


@pytest.fixture
def facts(tools: list[Tool], tmp_path: Path) -> dict[str, CallFacts]:
    """Return the facts of a valid call of each tool."""
    (tmp_path / "made.txt").write_text("here")
    found = {}
    for tool in tools:
        wanted = json.loads(tool.spec.schema)
        arguments = {key: EXAMPLES[key] for key in wanted.get("required", [])}
        context = ToolContext(workspace=tmp_path, session_id=SessionId("s"), call_id=CallId("c.1.1"))
        call = ToolCall(id=CallId("c.1.1"), name=tool.spec.name, arguments=json.dumps(arguments))
        found[tool.spec.name] = asyncio.run(tool.inspect(call, context))
    return found


def test_every_tool_is_known_to_the_registry_and_nothing_else_is(tools: list[Tool]) -> None:
    names = {tool.spec.name for tool in tools}
    assert set(KNOWN_TOOLS) == (names - {PAPERS}) | set(ALIASES)
    assert not names & set(ALIASES)
    assert set(ALIASES.values()) <= names


def test_the_readers_of_the_workspace_are_those_that_reach_into_it(
    tools: list[Tool], facts: dict[str, CallFacts]
) -> None:
    reaching = {name for name, found in facts.items() if found.paths or found.command}
    reading = {tool.spec.name for tool in tools if tool.spec.capabilities.reads_workspace}
    # The user's documents may lie in the workspace, and are as private.
    assert reaching | {PAPERS, "knowledge_search"} == reading | {"memory_write"}
    assert {tool.spec.name for tool in tools if tool.spec.capabilities.path} <= reaching
    assert {tool.spec.name for tool in tools if tool.spec.capabilities.returns_content} <= reaching


def test_the_writers_of_files_are_those_that_show_a_difference(tools: list[Tool], facts: dict[str, CallFacts]) -> None:
    differing = {name for name, found in facts.items() if found.diff}
    assert differing == _with(tools, lambda known: known.writes) | {"memory_write"}


def test_the_tools_with_an_argv_are_those_that_run_a_command(tools: list[Tool], facts: dict[str, CallFacts]) -> None:
    assert {name for name, found in facts.items() if found.command} == _with(tools, lambda known: known.runs_anything)
    assert {name for name, found in facts.items() if found.argv} == _with(tools, lambda known: known.command)
    assert {name for name, found in facts.items() if found.interpreter} == _with(tools, lambda known: known.code)


def test_the_tools_with_a_host_pattern_are_those_whose_arguments_name_a_host(
    tools: list[Tool], facts: dict[str, CallFacts]
) -> None:
    named = {name for name, found in facts.items() if "example.org" in " ".join(found.hosts)}
    assert named == _with(tools, lambda known: known.url)


def test_the_built_in_tools_have_the_capabilities_that_rules_are_read_with(tools: list[Tool]) -> None:
    built_in = {tool.spec.name: tool.spec.capabilities for tool in tools if tool.spec.name != PAPERS}
    assert built_in == BUILT_IN_TOOLS


def _with(tools: list[Tool], wanted: Callable[[Capabilities], object]) -> set[str]:
    return {tool.spec.name for tool in tools if wanted(tool.spec.capabilities)}
