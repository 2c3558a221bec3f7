"""Tools of the packaged workflow `components`: search components, check a flow made of them, deploy it.

Each tool is bound to the steps that use it, so a chat never sees one. Deploying writes ``flows/NAME.json`` in the
workspace; the version in that file counts the deployments.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from chatops.demo.catalogue import (
    CATALOGUE,
    COMPONENTS,
    Component,
    FlowConnection,
    FlowNode,
    flow_faults,
    minimal_faults,
    name_fault,
    nearest,
    search,
)
from chatops.domain.errors import ToolFailedError
from chatops.domain.rights import AccessLevel, Verdict
from chatops.domain.tools import CallFacts, Capabilities, Problem
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, with_place, world_problem
from chatops.toolkit.output import visible
from chatops.tools.files import content_of, inspect_content, reconcile_replace, replace_file
from chatops.tools.function import FunctionTool, tool

FOLDER = "flows"
SOURCE = "workflow components"
MAX_FLOW = 200_000
"""Maximum number of bytes of a deployed flow that are read back."""
_DISCOVER, _CONFIGURE, _ASSEMBLE = "components.discover", "components.configure", "components.assemble"
_SHOWN = 300


ComponentName = Annotated[str, Field(max_length=60, description="Name of a component, as component_search gives it.")]
FlowName = Annotated[str, Field(max_length=60, description="Name of the flow: small letters, digits, hyphens.")]
Nodes = Annotated[list[FlowNode], Field(max_length=100, description="The nodes; the first one is the trigger.")]
Connections = Annotated[list[FlowConnection], Field(max_length=400, description="What follows what.")]


_reader = partial(
    tool, min_access=AccessLevel.VIEWER, verdict=Verdict.ALLOW, read_only=True, timeout_s=10.0, source=SOURCE
)
"""Makes a tool that only reads the catalogue, or checks what it is given."""


@_reader(steps=(_DISCOVER,))
def component_search(
    query: Annotated[str, Field(max_length=500, description="Words for what the flow is to do.")],
) -> dict[str, Any]:
    """Search the catalogue of components; the best matches come first. Triggers start a flow, actions follow."""
    found = search(query)
    if found:
        return {"found": [_listed(one) for one in found]}
    triggers = [one.name for one in CATALOGUE if one.is_trigger]
    return {"found": [], "triggers": triggers, "actions": [name for name in COMPONENTS if name not in triggers]}


@_reader(steps=(_DISCOVER, _CONFIGURE))
def component_details(component: ComponentName) -> dict[str, Any]:
    """Look up a component: what it does, and its properties with examples."""
    known = COMPONENTS.get(component)
    if known is None:
        raise ToolFailedError(f"There is no component {visible(component)}; {nearest(component)}")
    return {
        **_listed(known),
        "properties": [
            {
                "name": name,
                "required": name in known.required,
                "about": schema["description"],
                "example": schema["examples"][0],
                **({"allowed": schema["enum"]} if "enum" in schema else {}),
            }
            for name, schema in known.properties.items()
        ],
    }


@_reader(steps=(_CONFIGURE,))
def validate_minimal(
    component: ComponentName,
    properties: Annotated[dict[str, Any], Field(description="The values that are set so far, by property.")],
) -> dict[str, Any]:
    """Check the configuration of one component: is every required property set?"""
    return _said(minimal_faults(visible(component), properties))


@_reader(steps=(_ASSEMBLE,))
def validate_full(name: FlowName, nodes: Nodes, connections: Connections) -> dict[str, Any]:
    """Check a whole flow: its name, every property of every node, and that its connections lead somewhere."""
    return _said(flow_faults(name, nodes, connections))


def _inspect_deploy(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    """Report a flow with faults as problems of the call, so that no one is asked to approve it."""
    name, nodes, connections = arguments["name"], arguments["nodes"], arguments["connections"]
    found = flow_faults(name, nodes, connections)
    if found:
        problems = tuple(Problem(path=visible(one.path), message=visible(one.message)) for one in found[:20])
        return replace(facts, problems=problems)
    place = locate(_path(name), context=context, write=True, field="name")
    if not place.usable:
        return with_place(facts, place)
    version = _version(place.path, context=context)
    if version is None:
        message = f"{_path(name)} exists and is not a flow; give yours another name"
        return world_problem(facts, message, field="name", given=name)
    return inspect_content(_path(name), _content(name, nodes, connections, version=version + 1), facts, context)


@tool(
    inspect=_inspect_deploy,
    reconcile=reconcile_replace,
    capabilities=Capabilities(writes=f"{FOLDER}/{{name}}.json", reads_workspace=True),
    timeout_s=20.0,
    source=SOURCE,
    steps=(_ASSEMBLE,),
)
def component_deploy(
    name: FlowName, nodes: Nodes, connections: Connections, context: ToolContext, facts: CallFacts
) -> str:
    """Deploy a flow that has been validated: writes it into the workspace, as flows/NAME.json."""
    path = Path(facts.paths[0])
    version = (_version(path, context=context) or 0) + 1
    replace_file(
        path, _content(name, nodes, connections, version=version).encode("utf-8"), facts=facts, context=context
    )
    return f"Deployed {_path(name)}, version {version}."


def _inspect_deployed(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    if fault := name_fault(arguments["name"]):
        return replace(facts, problems=(Problem(path="name", message=fault, given=visible(arguments["name"])),))
    return with_place(facts, locate(_path(arguments["name"]), context=context, field="name"))


@tool(
    capabilities=Capabilities(reads_workspace=True),
    min_access=AccessLevel.VIEWER,
    verdict=Verdict.ALLOW,
    read_only=True,
    timeout_s=10.0,
    source=SOURCE,
    steps=(_ASSEMBLE,),
    inspect=_inspect_deployed,
)
def validate_deployed(name: FlowName, context: ToolContext, facts: CallFacts) -> dict[str, Any]:
    """Check that a flow has been deployed: is its file there, and is it a flow?"""
    version = _version(Path(facts.paths[0]), context=context)
    if version is None:
        return _said([Problem(path="name", message=f"{_path(name)} holds no flow")])
    if not version:
        return _said([Problem(path="name", message=f"{_path(name)} is not there; call component_deploy")])
    return {**_said([]), "file": _path(name), "version": version}


def component_tools() -> tuple[FunctionTool, ...]:
    """Return the tools of this module."""
    return (
        component_search,
        component_details,
        validate_minimal,
        validate_full,
        component_deploy,
        validate_deployed,
    )


def _listed(one: Component) -> dict[str, str]:
    return {"component": one.name, "kind": "trigger" if one.is_trigger else "action", "about": one.about}


def _said(found: Sequence[Problem]) -> dict[str, Any]:
    """Return the result of a validation in the form that workflows expect of a validator."""
    return {
        "valid": not found,
        "errors": [{"property": visible(one.path), "message": visible(one.message, limit=_SHOWN)} for one in found],
    }


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def _content(name: str, nodes: Sequence[FlowNode], connections: Sequence[FlowConnection], *, version: int) -> str:
    value = {
        "name": name,
        "version": version,
        "nodes": [one.model_dump() for one in nodes],
        "connections": [one.model_dump() for one in connections],
    }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _version(path: Path, *, context: ToolContext) -> int | None:
    """Return how often the flow at `path` was deployed: 0 if there is no file, None if it is not a flow."""
    try:
        data = content_of(path, context=context, limit=MAX_FLOW)
        value = json.loads(data) if data is not None else {"version": 0}
    except (ToolFailedError, ValueError, RecursionError):
        return None
    version = value.get("version") if isinstance(value, dict) else None
    return version if isinstance(version, int) and not isinstance(version, bool) and version >= 0 else None
