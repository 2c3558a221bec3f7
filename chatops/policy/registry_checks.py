"""Warnings about registries: entries without effect here, or with a doubtful one. None of them grants anything."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from chatops.domain.decisions import ArgumentPattern
from chatops.domain.errors import ConfigError
from chatops.domain.tools import ToolSpec
from chatops.policy.grant import Grant
from chatops.policy.registry import ModelSpec, ModelType, Registries, Registry, RegistryWarning, RoleSpec, UserSpec
from chatops.policy.resolve import least_access, listed_tools
from chatops.policy.rule_syntax import never_matches, parse_rule, reread, show_rule
from chatops.policy.servers import SERVER_MARK, mcp_source, server_of

MAX_TOOLS = 8
"""Maximum number of tools of a role without a warning. Models choose badly among more."""
DEFAULT_MODEL = "default"
"""The word in a role for the user's stored choice."""


def registry_warnings(
    registries: Registries,
    *,
    specs: Sequence[ToolSpec],
    absent: Collection[str] = (),
    personas: Sequence[str] | None = None,
) -> tuple[RegistryWarning, ...]:
    """Return a warning for each unknown name and each model that cannot answer.

    `absent` are tools that exist but lack what they need here; naming them is no mistake. Without `personas` they are
    not checked.
    """
    tools = [*(spec.name for spec in specs), *absent, *_names_of_servers(registries, specs=specs)]
    warnings: list[RegistryWarning] = []
    if not any(registry.roles for registry in registries if registry is not None):
        text = "The registry names no roles, so no role can chat: it replaces the whole built-in file."
        advice = "Start from a copy of that file, which chatops connect URL makes."
        warnings.append(RegistryWarning(f"{text} {advice}"))
    for registry in registries:
        if registry is None:
            continue
        for role in registry.roles:
            of_role = [
                *_tool_warnings(role, tools=tools),
                *_rule_warnings(role, specs=specs),
                *_model_warnings(role, registries=registries),
            ]
            if personas is not None and role.persona and role.persona not in personas:
                of_role.append(
                    f"Role {role.name} names the persona {role.persona!r}, which does not exist here; "
                    f"the default one speaks.{_suggest_nearest(role.persona, personas)}"
                )
            warnings += [RegistryWarning(text, entry=("roles", role.name)) for text in of_role]
        general = [text for user in registry.users or () for text in _user_warnings(user, tools=tools, specs=specs)]
        general += [_unknown_tool(tool, tools=tools, where="tools") for tool, _ in registry.tools if tool not in tools]
        warnings += map(RegistryWarning, general)
    return tuple(dict.fromkeys(warnings))


def warnings_in_use(warnings: Iterable[RegistryWarning], *, grant: Grant | None) -> tuple[str, ...]:
    """Return the texts, without those about roles and models that `grant` does not use; None: it uses none."""
    used: set[tuple[str, str]] = set()
    if grant is not None:
        models = (*grant.models, *([grant.responder] if grant.responder is not None else []))
        used = {("roles", grant.role), *(("models", model.name.partition("/")[0]) for model in models)}
    return tuple(warning.text for warning in warnings if warning.entry is None or warning.entry in used)


def crowded_roles(registries: Registries, *, specs: Sequence[ToolSpec]) -> Iterator[str]:
    """Yield a sentence for each role that lists more tools than models choose well among."""
    known = {spec.name for spec in specs}
    for role in (role for registry in registries if registry is not None for role in registry.roles):
        if (count := len(known.intersection(listed_tools(role.tools or (), specs=specs)))) > MAX_TOOLS:
            yield f"Role {role.name} lists {count} tools; models choose badly among more than {MAX_TOOLS}. List fewer."


def withheld_tools(
    role: RoleSpec, *, grant: Grant, registries: Registries, specs: Sequence[ToolSpec], absent: Mapping[str, str]
) -> tuple[str, ...]:
    """Name the tools that `role` lists and its resolved `grant` does not offer, in a sentence for each reason.

    `absent` maps tools that cannot be offered here to the reason. Tools of workflow steps are left out, and so are
    unknown names, which `registry_warnings` reports.
    """
    known = {spec.name: spec for spec in specs}
    sources = {spec.source for spec in specs}
    servers = {server.name for registry in registries if registry is not None for server in registry.servers}
    by_reason: dict[str, list[str]] = {}
    for tool in dict.fromkeys(role.tools or ()):
        server = server_of(tool)
        if tool in absent:
            reason = absent[tool]
        elif server in servers and mcp_source(server) not in sources:
            reason = f"the MCP server {server} is not connected yet; chatops mcp check {server} connects to it"
        elif tool not in known or known[tool].steps or grant.tool(tool) is not None:
            continue
        elif grant.level < (least := least_access(known[tool], registries=registries)):
            reason = f'access level {least.word} is needed, and yours is {grant.level.word} ("users" gives levels)'
        else:
            reason = f"denied by {grant.permits(tool).reason}"
        by_reason.setdefault(reason, []).append(tool)
    return tuple(
        f"Role {role.name} does not get {', '.join(tools)}: {reason.rstrip('.')}."
        for reason, tools in by_reason.items()
    )


def model_named(name: str, *, registries: Registries) -> ModelSpec | None:
    """Return a model by name. The site's definition comes before the user's, so that the user cannot redirect it.

    ``gateway/qwen3`` is the model qwen3 of the server of the model ``gateway``, unless a model has that whole name.
    """
    whole = _find_model(name, registries)
    entry, _, served_name = name.partition("/")
    if whole is not None or not served_name:
        return whole
    model = _find_model(entry, registries)
    return model.sibling(served_name) if model is not None and model.has_server else None


def _find_model(name: str, registries: Registries) -> ModelSpec | None:
    models = (registry.model(name) for registry in registries if registry is not None)
    return next((model for model in models if model is not None), None)


def _names_of_servers(registries: Registries, *, specs: Sequence[ToolSpec]) -> Iterator[str]:
    """Yield names that may stand for tools of MCP servers.

    These are ``SERVER__*`` of each server and, where its tools are not known yet, every such name in its registry.
    """
    known = {spec.source for spec in specs}
    for registry in filter(None, registries):
        for server in registry.servers:
            yield f"{server.name}{SERVER_MARK}*"
            if mcp_source(server.name) not in known:
                yield from (name for name in _named_tools(registry) if server_of(name) == server.name)


def _named_tools(registry: Registry) -> Iterator[str]:
    """Yield each name of a tool in a registry, wherever one may stand."""
    for role in registry.roles:
        yield from (*(role.tools or ()), *(rule.tool for rule in role.rules))
    yield from (tool for tool, _ in registry.tools)
    for user in registry.users or ():
        yield from (*user.confirm_deny, *(text.partition(":")[0].strip() for text in user.confirm_allow))


def _tool_warnings(role: RoleSpec, *, tools: Sequence[str]) -> Iterator[str]:
    for tool in role.tools or ():
        if tool not in tools:
            yield _unknown_tool(tool, tools=tools, where=f"Role {role.name}")
    for rule in role.rules:
        if rule.tool not in tools:
            yield _unknown_tool(rule.tool, tools=tools, where=f"A rule of role {role.name}")


def _rule_warnings(role: RoleSpec, *, specs: Sequence[ToolSpec]) -> Iterator[str]:
    """Yield a warning for each rule of the role that no call can match."""
    for rule in role.rules:
        if role.tools is not None and rule.tool not in listed_tools(role.tools, specs=specs):
            if f"{server_of(rule.tool)}{SERVER_MARK}*" in role.tools:
                continue
            yield f"A rule of role {role.name} can never match: the role does not list the tool {rule.tool}."
        elif why := _why_rule_never_matches(rule.tool, rule.pattern, specs=specs):
            yield f"The rule {show_rule(rule.tool, rule.pattern)} of role {role.name} can never match: {why}."


def _why_rule_never_matches(tool: str, pattern: ArgumentPattern, *, specs: Sequence[ToolSpec]) -> str:
    spec = next((spec for spec in specs if spec.name == tool), None)
    try:
        return never_matches(spec, pattern if spec is None else reread(spec, pattern))
    except ConfigError as error:
        return str(error)


def model_problem(model: ModelSpec) -> str:
    """Return why a model can never answer, whatever its server does; empty if it may."""
    if model.type is ModelType.CLI:
        return "" if model.command else "has no command"
    if model.type is ModelType.DEMO or model.engine:
        return ""
    lacking = [key for key in ("api_url", "model_name") if not getattr(model, key).strip()]
    return f"has no {' and no '.join(lacking)}" if lacking else ""


def _model_warnings(role: RoleSpec, *, registries: Registries) -> Iterator[str]:
    """Yield a warning for each model of the role that cannot answer, with the model that answers instead."""
    missing = {name: why for name in role.models if (why := named_model_problem(name, registries=registries))}
    for name, why in missing.items():
        known = (other for other in role.models if other == DEFAULT_MODEL or model_named(other, registries=registries))
        others = [other for other in known if other not in missing]
        instead = f"{others[0]} answers instead" if others else "no other model answers in this role"
        yield f"Role {role.name}: {name} {why}; {instead}."
    if role.responder and (why := named_model_problem(role.responder, registries=registries)):
        yield f"Role {role.name}: its responder {role.responder} {why}; the role's model answers itself."


def named_model_problem(name: str, *, registries: Registries) -> str:
    """Return the same as `model_problem` for a model by name; empty if there is none of that name."""
    model = model_named(name, registries=registries)
    return model_problem(model) if model is not None else ""


def _user_warnings(user: UserSpec, *, tools: Sequence[str], specs: Sequence[ToolSpec]) -> Iterator[str]:
    for text in user.confirm_allow:
        try:
            tool, pattern = parse_rule(text, tools={spec.name: spec.capabilities for spec in specs})
        except ConfigError:
            continue  # A file with such a rule is not read in the first place.
        if tool not in tools:
            yield _unknown_tool(tool, tools=tools, where=f"confirm_allow of {user.name}")
        elif why := _why_rule_never_matches(tool, pattern, specs=specs):
            yield f"The rule {text} in confirm_allow of {user.name} can never match: {why}."
    for tool in user.confirm_deny:
        if tool not in tools:
            yield _unknown_tool(tool, tools=tools, where=f"confirm_deny of {user.name}", effect="it denies nothing")


def _unknown_tool(tool: str, *, tools: Sequence[str], where: str, effect: str = "it grants nothing") -> str:
    hint = _suggest_nearest(tool, tools)
    if not hint and (server := server_of(tool)):
        hint = f" Its MCP server is added with: chatops mcp add {server} COMMAND|URL"
    return f"{where} names the tool {tool!r}, which does not exist here; {effect}.{hint}"


def _suggest_nearest(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""
