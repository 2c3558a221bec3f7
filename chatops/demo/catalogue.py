"""Components of the packaged workflow `components`, and the checks of a flow made of them.

The components are made up: a deployed flow runs nowhere. This module has only values and pure functions; the tools are
in `demo.tools`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

MAX_NODES = 20
MAX_VALUE = 2_000
"""Most characters of a property's value."""
_WORD = re.compile(r"[a-z0-9]+")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?")


class ComponentKind(StrEnum):
    """Role of a component in a flow."""

    TRIGGER = "trigger"
    """Starts the flow; no connection leads to it."""
    ACTION = "action"


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One setting of a component; its value is always text."""

    name: str
    about: str
    example: str
    required: bool = True
    pattern: str = ""
    """Regular expression that the entire value has to match; empty: any value."""
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One building block of flows."""

    name: str
    kind: ComponentKind
    about: str
    properties: tuple[Property, ...] = ()
    words: str = ""
    """Further search words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One error in a flow. `property` names its place in the model's own spelling."""

    property: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One node of a flow."""

    id: str
    component: str
    properties: Mapping[str, object]


Link = tuple[str, str]
"""Ids of two connected nodes: source, target."""

_TEXT = Property(name="text", about="What it says; {{body}} stands for what came in.", example="New: {{body}}")
CATALOGUE = (
    Component(
        name="webhook_in",
        kind=ComponentKind.TRIGGER,
        about="Starts the flow when an HTTP request comes in.",
        words="web hook listen receive incoming http call form",
        properties=(
            Property(name="path", about="Where it listens.", example="/incoming", pattern=r"/[a-z0-9/_-]*"),
            Property(name="method", about="HTTP method.", example="POST", allowed=("GET", "POST", "PUT")),
            Property(name="secret", about="Name of the secret that callers sign with.", example="hook", required=False),
        ),
    ),
    Component(
        name="schedule",
        kind=ComponentKind.TRIGGER,
        about="Starts the flow again and again.",
        words="timer cron every daily hourly weekly morning report",
        properties=(Property(name="every", about="How often.", example="1d", pattern=r"[1-9][0-9]*[mhd]"),),
    ),
    Component(
        name="manual_start",
        kind=ComponentKind.TRIGGER,
        about="Starts the flow when a button is pressed.",
        words="button hand click",
    ),
    Component(
        name="chat_post",
        kind=ComponentKind.ACTION,
        about="Posts a message to a chat channel.",
        words="message notify team room",
        properties=(
            Property(name="channel", about="The channel, with its #.", example="#general", pattern=r"#[a-z0-9_-]+"),
            _TEXT,
        ),
    ),
    Component(
        name="mail_send",
        kind=ComponentKind.ACTION,
        about="Sends an e-mail.",
        words="email notify message",
        properties=(
            Property(name="to", about="Address.", example="team@example.org", pattern=r"[^@\s]+@[^@\s]+\.[^@\s]+"),
            Property(name="subject", about="Subject line.", example="News"),
            _TEXT,
        ),
    ),
    Component(
        name="http_request",
        kind=ComponentKind.ACTION,
        about="Sends a request to a URL.",
        words="api fetch web url get put",
        properties=(
            Property(name="url", about="Where to.", example="https://example.org/api", pattern=r"https://\S+"),
            Property(name="method", about="HTTP method.", example="GET", allowed=("GET", "POST", "PUT")),
        ),
    ),
    Component(
        name="filter_rows",
        kind=ComponentKind.ACTION,
        about="Goes on only with what has a given value in a field.",
        words="condition only where if when select",
        properties=(
            Property(name="field", about="Field to look at.", example="status"),
            Property(name="equals", about="Value that it has to have.", example="open"),
        ),
    ),
    Component(
        name="table_append",
        kind=ComponentKind.ACTION,
        about="Appends a row to a table.",
        words="sheet spreadsheet save store log database record",
        properties=(
            Property(name="table", about="Name of the table.", example="log", pattern=r"[a-z0-9_]+"),
            Property(name="row", about="The row; {{body}} stands for what came in.", example="{{body}}"),
        ),
    ),
)
_BY_NAME: Mapping[str, Component] = {one.name: one for one in CATALOGUE}


def component(name: str) -> Component | None:
    """Return the component of that name, or None."""
    return _BY_NAME.get(name)


def nearest(name: str) -> str:
    """Return a hint with the most similar component name, or with all names."""
    near = get_close_matches(name, _BY_NAME, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(_BY_NAME)}"


def search(query: str) -> list[Component]:
    """Return the components that share words with `query`, best match first."""
    wanted = _words(query)
    scored = [(len(wanted & _words(f"{one.name} {one.about} {one.words}")), one) for one in CATALOGUE]
    return [one for score, one in sorted(scored, key=lambda pair: -pair[0]) if score]


def minimal_faults(name: str, properties: Mapping[str, object]) -> list[Fault]:
    """Return the errors of a partial configuration: unknown component, required properties not set."""
    known = component(name)
    if known is None:
        return [Fault(property="component", message=f"there is no component {name}; {nearest(name)}")]
    return [
        Fault(property=one.name, message=f"is required and not set ({one.about} Example: {one.example})")
        for one in known.properties
        if one.required and properties.get(one.name) in (None, "")
    ]


def name_fault(name: str) -> str:
    """Return what is wrong with a flow's name, which is its file name too; empty if it is valid."""
    return "" if _NAME.fullmatch(name) else "has to be small letters, digits and hyphens, at most 48"


def flow_faults(name: str, parts: Sequence[Part], links: Sequence[Link]) -> list[Fault]:
    """Return all errors of a flow."""
    return [
        *([Fault(property="name", message=fault)] if (fault := name_fault(name)) else ()),
        *_node_faults(parts),
        *_link_faults(parts, links),
    ]


def _node_faults(parts: Sequence[Part]) -> Iterator[Fault]:
    if not 2 <= len(parts) <= MAX_NODES:
        yield Fault(property="nodes", message=f"a flow has 2 to {MAX_NODES} nodes, this one has {len(parts)}")
        return
    triggers = [part.id for part in parts if _is_trigger(part)]
    if len(triggers) != 1:
        yield Fault(property="nodes", message=f"a flow has one trigger, this one has {len(triggers)}")
    ids = [part.id for part in parts]
    for place, part in enumerate(parts):
        where = f"nodes[{place}]"
        if part.id in ids[:place]:
            yield Fault(property=f"{where}.id", message="a node before has this id too")
        known = component(part.component)
        for fault in minimal_faults(part.component, part.properties):
            at = "component" if known is None else f"properties.{fault.property}"
            yield Fault(property=f"{where}.{at}", message=fault.message)
        for name, message in _value_faults(known, part.properties) if known is not None else ():
            yield Fault(property=f"{where}.properties.{name}", message=message)


def _value_faults(known: Component, given: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    by_name = {one.name: one for one in known.properties}
    for name, value in given.items():
        wanted = by_name.get(name)
        if wanted is None:
            yield name, f"{known.name} has no such property; it has {', '.join(by_name) or 'none'}"
        elif value in (None, ""):
            continue
        elif not isinstance(value, str):
            yield name, "has to be text"
        elif len(value) > MAX_VALUE:
            yield name, f"has {len(value):,} characters, at most {MAX_VALUE:,} are taken"
        elif wanted.allowed and value not in wanted.allowed:
            yield name, f"has to be one of {', '.join(wanted.allowed)}"
        elif wanted.pattern and not re.fullmatch(wanted.pattern, value):
            yield name, f"is not as it has to be, which is like {wanted.example}"


def _link_faults(parts: Sequence[Part], links: Sequence[Link]) -> Iterator[Fault]:
    ids = {part.id for part in parts}
    for place, link in enumerate(links):
        for end, node in zip(("source", "target"), link, strict=True):
            if node not in ids:
                yield Fault(property=f"connections[{place}].{end}", message=f"there is no node {node}")
    triggers = [part.id for part in parts if _is_trigger(part)]
    for place, (_, target) in enumerate(links):
        if target in triggers:
            yield Fault(property=f"connections[{place}].target", message="nothing leads to a trigger")
    reached = _reached(triggers, links)
    for place, part in enumerate(parts):
        if part.id not in reached and not _is_trigger(part):
            yield Fault(property=f"nodes[{place}].id", message="nothing leads from the trigger to this node")


def _reached(starts: Sequence[str], links: Sequence[Link]) -> set[str]:
    reached: set[str] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += [target for source, target in links if source == node]
    return reached


def _is_trigger(part: Part) -> bool:
    known = component(part.component)
    return known is not None and known.kind is ComponentKind.TRIGGER


def _words(text: str) -> set[str]:
    """Split a text into words in lower case, without the s of a plural or a verb."""
    return {word.removesuffix("s") for word in _WORD.findall(text.lower()) if len(word) > 2}
