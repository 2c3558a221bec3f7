"""Components of the packaged workflow `components`, and the checks of a flow made of them.

The components are made up: a deployed flow runs nowhere. This module has only values and pure functions; the tools are
in `demo.tools`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from chatops.domain.tools import Problem
from chatops.tools.schema import problems_in_process

MAX_NODES = 20
_WORD = re.compile(r"[a-z0-9]+")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?")


class FlowNode(BaseModel):
    """A node as a model writes it."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(max_length=60, description="A name for this node within the flow.")]
    component: Annotated[str, Field(max_length=60, description="Name of a component.")]
    properties: Annotated[dict[str, Any], Field(description="Values by the names of the component's properties.")]


class FlowConnection(BaseModel):
    """A connection between two nodes, as the model gives it."""

    model_config = ConfigDict(extra="forbid")

    source: Annotated[str, Field(max_length=60, description="Id of the node that comes first.")]
    target: Annotated[str, Field(max_length=60, description="Id of the node that follows it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One building block of flows."""

    name: str
    about: str
    is_trigger: bool = False
    """True if it starts the flow; no connection leads to it."""
    properties: Mapping[str, Mapping[str, Any]]
    """JSON Schemas of its settings, each a text with an example."""
    optional: tuple[str, ...] = ()
    words: str = ""
    """Further search words."""

    @property
    def required(self) -> list[str]:
        """Names of the properties that have to be set."""
        return [name for name in self.properties if name not in self.optional]

    @property
    def schema(self) -> str:
        """The JSON Schema of all properties together."""
        return json.dumps(
            {"properties": self.properties, "required": self.required, "additionalProperties": False},
        )


def _text(about: str, example: str, **limits: object) -> dict[str, Any]:
    return {"type": "string", "maxLength": 2_000, "description": about, "examples": [example], **limits}


_SAID = _text("What it says; {{body}} stands for what came in.", "New: {{body}}")
_METHOD = ["GET", "POST", "PUT"]
CATALOGUE = (
    Component(
        name="webhook_in",
        is_trigger=True,
        about="Starts the flow when an HTTP request comes in.",
        words="web hook listen receive incoming http call form",
        properties={
            "path": _text("Where it listens.", "/incoming", pattern=r"^/[a-z0-9/_-]*\Z"),
            "method": _text("HTTP method.", "POST", enum=_METHOD),
            "secret": _text("Name of the secret that callers sign with.", "hook"),
        },
        optional=("secret",),
    ),
    Component(
        name="schedule",
        is_trigger=True,
        about="Starts the flow again and again.",
        words="timer cron every daily hourly weekly morning report",
        properties={"every": _text("How often.", "1d", pattern=r"^[1-9][0-9]*[mhd]\Z")},
    ),
    Component(
        name="manual_start",
        is_trigger=True,
        about="Starts the flow when a button is pressed.",
        words="button hand click",
        properties={},
    ),
    Component(
        name="chat_post",
        about="Posts a message to a chat channel.",
        words="message notify team room",
        properties={
            "channel": _text("The channel, with its #.", "#general", pattern=r"^#[a-z0-9_-]+\Z"),
            "text": _SAID,
        },
    ),
    Component(
        name="mail_send",
        about="Sends an e-mail.",
        words="email notify message",
        properties={
            "to": _text("Address.", "team@example.org", pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+\Z"),
            "subject": _text("Subject line.", "News"),
            "text": _SAID,
        },
    ),
    Component(
        name="http_request",
        about="Sends a request to a URL.",
        words="api fetch web url get put",
        properties={
            "url": _text("Where to.", "https://example.org/api", pattern=r"^https://\S+\Z"),
            "method": _text("HTTP method.", "GET", enum=_METHOD),
        },
    ),
    Component(
        name="filter_rows",
        about="Goes on only with what has a given value in a field.",
        words="condition only where if when select",
        properties={
            "field": _text("Field to look at.", "status"),
            "equals": _text("Value that it has to have.", "open"),
        },
    ),
    Component(
        name="table_append",
        about="Appends a row to a table.",
        words="sheet spreadsheet save store log database record",
        properties={
            "table": _text("Name of the table.", "log", pattern=r"^[a-z0-9_]+\Z"),
            "row": _text("The row; {{body}} stands for what came in.", "{{body}}"),
        },
    ),
)
COMPONENTS: Mapping[str, Component] = {one.name: one for one in CATALOGUE}


def nearest(name: str) -> str:
    """Return a hint with the most similar component name, or with all names."""
    near = get_close_matches(name, COMPONENTS, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(COMPONENTS)}"


def search(query: str) -> list[Component]:
    """Return the components that share words with `query`, best match first."""
    wanted = _words(query)
    scored = [(len(wanted & _words(f"{one.name} {one.about} {one.words}")), one) for one in CATALOGUE]
    return [one for score, one in sorted(scored, key=lambda pair: -pair[0]) if score]


def minimal_faults(name: str, properties: Mapping[str, object]) -> list[Problem]:
    """Return the errors of a partial configuration: unknown component, required properties not set."""
    known = COMPONENTS.get(name)
    if known is None:
        return [Problem(path="component", message=f"there is no component {name}; {nearest(name)}")]
    return [
        Problem(path=one, message=f"is required and not set, for example: {known.properties[one]['examples'][0]}")
        for one in known.required
        if properties.get(one) in (None, "")
    ]


def name_fault(name: str) -> str:
    """Return what is wrong with a flow's name, which is its file name too; empty if it is valid."""
    return "" if _NAME.fullmatch(name) else "has to be small letters, digits and hyphens, at most 48"


def flow_faults(name: str, nodes: Sequence[FlowNode], links: Sequence[FlowConnection]) -> list[Problem]:
    """Return all errors of a flow."""
    named = [Problem(path="name", message=fault)] if (fault := name_fault(name)) else []
    return [*named, *_node_faults(nodes), *_link_faults(nodes, links)]


def _node_faults(nodes: Sequence[FlowNode]) -> Iterator[Problem]:
    if not 2 <= len(nodes) <= MAX_NODES:
        yield Problem(path="nodes", message=f"a flow has 2 to {MAX_NODES} nodes, this one has {len(nodes)}")
        return
    if (triggers := len(_triggers(nodes))) != 1:
        yield Problem(path="nodes", message=f"a flow has one trigger, this one has {triggers}")
    ids = [node.id for node in nodes]
    for place, node in enumerate(nodes):
        if node.id in ids[:place]:
            yield Problem(path=f"nodes[{place}].id", message="a node before has this id too")
        known = COMPONENTS.get(node.component)
        if known is None:
            yield Problem(path=f"nodes[{place}].component", message=minimal_faults(node.component, {})[0].message)
            continue
        values: dict[str, Any] = {key: value for key, value in node.properties.items() if value not in (None, "")}
        for fault in problems_in_process(values, schema=known.schema, noun=f"property of {known.name}"):
            yield Problem(path=f"nodes[{place}].properties.{fault.path}", message=fault.message)


def _link_faults(nodes: Sequence[FlowNode], links: Sequence[FlowConnection]) -> Iterator[Problem]:
    ids, triggers = {node.id for node in nodes}, _triggers(nodes)
    for place, link in enumerate(links):
        for end, node in (("source", link.source), ("target", link.target)):
            if node not in ids:
                yield Problem(path=f"connections[{place}].{end}", message=f"there is no node {node}")
        if link.target in triggers:
            yield Problem(path=f"connections[{place}].target", message="nothing leads to a trigger")
    reached = _reached(triggers, links)
    for place, one in enumerate(nodes):
        if one.id not in reached:
            yield Problem(path=f"nodes[{place}].id", message="nothing leads from the trigger to this node")


def _reached(starts: Iterable[str], links: Sequence[FlowConnection]) -> set[str]:
    reached = set(starts)
    while more := {link.target for link in links if link.source in reached} - reached:
        reached |= more
    return reached


def _triggers(nodes: Sequence[FlowNode]) -> list[str]:
    return [one.id for one in nodes if one.component in COMPONENTS and COMPONENTS[one.component].is_trigger]


def _words(text: str) -> set[str]:
    """Split a text into words in lower case, without the s of a plural or a verb."""
    return {word.removesuffix("s") for word in _WORD.findall(text.lower()) if len(word) > 2}
