"""The demo model in the steps of the workflow `components`.

In `configure` it forgets a property at first, so that users see the validation refuse it and the model correct it.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from chatops.demo.plan import Action, DemoReply
from chatops.demo.steps import Made, Scene, action, ask, finish, give_up, texts
from chatops.domain.canonical import JsonValue
from chatops.models.server_json import as_list, as_object, as_text

MOST_ACTIONS = 3
MOST_TRIES = 3
BY_HAND = "start by hand"
"""The search query if the request names no trigger."""
_PROPERTY = re.compile(r"^\d+\. Property: (\S+)$", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9]+")
_FILLING = frozenset("a an and in into it of on one please that the then this to when which with".split())


def discover(scene: Scene) -> DemoReply:
    """Search, look up the chosen components, answer with their names."""
    searches = scene.made("component_search")
    if not searches:
        return ask(scene, action("component_search", query=scene.request[:200]))
    found = [as_object(one) for call in searches for one in as_list(call.value().get("found"))]
    triggers = [as_text(one.get("component")) for one in found if one.get("kind") == "trigger"]
    actions = [as_text(one.get("component")) for one in found if one.get("kind") == "action"]
    if not actions:
        known = ", ".join(texts(searches[0].value().get("actions")))
        return give_up("the catalogue has no action for this" + (f"; it has {known}" if known else ""))
    if not triggers and len(searches) == 1:
        return ask(scene, action("component_search", query=BY_HAND))
    if not triggers:
        return give_up("the catalogue has no trigger for this")
    words = {word.removesuffix("s") for word in _WORD.findall(scene.request.lower())}
    named = [name for name in dict.fromkeys(actions) if name.split("_")[0] in words]
    chosen = [triggers[0], *(named or actions)[: MOST_ACTIONS if named else 1]]
    seen = {call.arguments.get("component") for call in scene.made("component_details")}
    if unseen := [name for name in chosen if name not in seen]:
        return ask(scene, *(action("component_details", component=name) for name in unseen))
    return finish(
        {"components": [*chosen], "why": f"(demo) {chosen[0]} starts the flow, {' and '.join(chosen[1:])} follows."},
        "found in the catalogue by the words of the request",
    )


def configure(scene: Scene) -> DemoReply:
    """Look up the properties, set them to their examples, validate, set the forgotten one, validate again."""
    names = texts(scene.output("discover").get("components"))
    if not names:
        return give_up("the step before has chosen no components")
    details = {str(call.arguments.get("component")): call for call in scene.made("component_details")}
    if unseen := [name for name in names if name not in details]:
        return ask(scene, *(action("component_details", component=name) for name in unseen))
    if broken := [name for name in names if details[name].failed]:
        return give_up(details[broken[0]].why)
    examples = {name: _examples(details[name].value()) for name in names}
    tries = {
        name: [c for c in scene.made("validate_minimal") if c.arguments.get("component") == name] for name in names
    }
    if not any(tries.values()):
        return ask(scene, *_first_tries(names, examples))
    failed = [name for name in names if not tries[name] or tries[name][-1].failed]
    if not failed:
        properties = {name: _properties(tries[name][-1]) for name in names}
        return finish({"components": [*names], "properties": {**properties}}, "every configuration has passed")
    if hopeless := [name for name in failed if len(tries[name]) >= MOST_TRIES]:
        return give_up(tries[hopeless[0]][-1].why)
    return ask(scene, *(_next_try(name, examples[name], tries[name]) for name in failed))


def assemble(scene: Scene) -> DemoReply:
    """Add a node for each component in order, validate, deploy, and check the deployment."""
    configured = scene.output("configure")
    names = texts(configured.get("components"))
    if not names:
        return give_up("the step before has configured no components")
    if scene.has_failed_with("was not deployed"):
        return give_up("the flow was not deployed, and I do not ask for it again by myself")
    flow = _flow(scene.request, names, as_object(configured.get("properties")))
    name = str(flow["name"])
    validated, deployed, proven = (
        scene.made(tool) for tool in ("validate_full", "component_deploy", "validate_deployed")
    )
    if not validated:
        return ask(scene, action("validate_full", **flow))
    if validated[-1].failed:
        return give_up(validated[-1].why)
    if not deployed:
        return ask(scene, action("component_deploy", **flow))
    # An earlier attempt may have deployed it. Deploying again is refused then, and the proof of deployment counts.
    if deployed[-1].failed and "called once in this step" not in deployed[-1].content:
        return give_up(f"the flow was not deployed: {deployed[-1].why}")
    if not proven:
        return ask(scene, action("validate_deployed", name=name))
    if proven[-1].failed:
        return give_up(proven[-1].why)
    file = as_text(proven[-1].value().get("file"))
    return finish(
        {"name": name, "file": file, "summary": f"(demo) Deployed {file}: {' → '.join(names)}."},
        "the flow has passed, and is deployed",
    )


def _examples(details: Mapping[str, object]) -> dict[str, str]:
    """Return the required properties of a component, each with its example."""
    listed = [as_object(one) for one in as_list(details.get("properties"))]
    return {as_text(one.get("name")): as_text(one.get("example")) for one in listed if one.get("required") is True}


def _first_tries(names: Sequence[str], examples: Mapping[str, Mapping[str, str]]) -> list[Action]:
    """Return calls for all components, with the last property of the last one forgotten."""
    needing = [name for name in names if examples[name]]
    forgetful = needing[-1] if needing else ""
    return [_validation(name, list(examples[name].items())[: -1 if name == forgetful else None]) for name in names]


def _next_try(name: str, examples: Mapping[str, str], tries: Sequence[Made]) -> Action:
    """Return the last call again, with the properties that were reported missing."""
    if not tries:
        return _validation(name, list(examples.items()))
    missing = [one for one in _PROPERTY.findall(tries[-1].content) if one in examples]
    given = _properties(tries[-1])
    return action("validate_minimal", component=name, properties={**given, **{one: examples[one] for one in missing}})


def _validation(name: str, properties: Sequence[tuple[str, str]]) -> Action:
    return action("validate_minimal", component=name, properties=dict(properties))


def _properties(call: Made) -> dict[str, JsonValue]:
    return {key: as_text(value) for key, value in as_object(call.arguments.get("properties")).items()}


def _flow(request: str, names: Sequence[str], properties: Mapping[str, object]) -> dict[str, JsonValue]:
    words = [word for word in _WORD.findall(request.lower()) if word not in _FILLING]
    nodes: list[JsonValue] = [
        {
            "id": name,
            "component": name,
            "properties": {key: as_text(value) for key, value in as_object(properties.get(name)).items()},
        }
        for name in names
    ]
    links: list[JsonValue] = [{"source": one, "target": other} for one, other in pairwise(names)]
    return {"name": "-".join(words[:4])[:48].strip("-") or "demo-flow", "nodes": nodes, "connections": links}
