"""Resolve registries, user and role into a grant and a sandbox. Every party can only narrow.

Layers in order: tool defaults, site registry, the user's registry, the steps that tools are bound to, access level,
confirm_deny, tools and rules of the role (the site's and the user's), then those that the caller adds (workflow step,
revoked).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from chatops.domain.decisions import AnyArguments, RuleScope
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.known_keys import HIDDEN
from chatops.domain.model import ModelTarget
from chatops.domain.sandbox import NARROWEST, SandboxLevel, SandboxSpec
from chatops.domain.tools import BUILT_IN_TOOLS, NO_CAPABILITIES, AccessLevel, ToolSpec, Verdict
from chatops.policy.approvers import approvers_phrase
from chatops.policy.budget import strictest
from chatops.policy.grant import Grant
from chatops.policy.registry import KNOWLEDGE_TOOL, KnowledgeSource, Registries, Registry, RoleSpec, UserSpec
from chatops.policy.rule_syntax import parse_rule, reread
from chatops.policy.sandbox import SandboxChange, SandboxLayers, resolve
from chatops.policy.servers import SERVER_MARK, ToolSetting, mcp_source, server_of
from chatops.policy.spelled import MAX_ROUNDS
from chatops.policy.verdicts import ApprovalRule, Key, Layer, Rule
from chatops.policy.workflow import StepPlace, binding_layers

DEFAULT_MAX_ROUNDS = 10
"""Model calls of a turn where nothing sets a limit: enough for some tools in a row, few if a model goes in circles."""


@frozen_dataclass
class User:
    """The user of this process: from its uid, never from the environment."""

    uid: int
    login: str
    groups: frozenset[str] = frozenset()
    """Names of the unix groups of the process."""


@frozen_dataclass
class Entitlement:
    """Rights that the `users` of one registry give to a user."""

    level: AccessLevel
    confirm_allow: tuple[str, ...] = ()
    confirm_deny: tuple[str, ...] = ()
    entry: str = ""
    """The entry that set the level; empty: none did."""
    denying: str = ""
    """The first entry that denies a tool."""


def entitlement(users: Sequence[UserSpec], *, user: User) -> Entitlement:
    """Return the rights from the entries that name the user, else from ``*``, else level user.

    If several entries match, the lowest level counts, every `confirm_deny`, and only the `confirm_allow` that all have.
    """
    named = [spec for spec in users if _names_user(spec.name, user)]
    entries = named or [spec for spec in users if spec.name == "*"]
    if not entries:
        return Entitlement(level=AccessLevel.USER)
    lowest = min(entries, key=lambda spec: spec.access_level)
    allowed = [rule for rule in entries[0].confirm_allow if all(rule in spec.confirm_allow for spec in entries)]
    denied = dict.fromkeys(tool for spec in entries for tool in spec.confirm_deny)
    return Entitlement(
        level=lowest.access_level,
        confirm_allow=tuple(allowed),
        confirm_deny=tuple(denied),
        entry=lowest.name,
        denying=next((spec.name for spec in entries if spec.confirm_deny), ""),
    )


def access_level(*, registries: Registries, user: User, access_cap: AccessLevel | None = None) -> AccessLevel:
    """Return the highest level that the user may have here: the lowest of both registries and `access_cap`."""
    site, own = registries
    levels = [entitlement(own.users or (), user=user).level]
    if site is not None and site.users is not None:
        levels.append(entitlement(site.users, user=user).level)
    if access_cap is not None:
        levels.append(access_cap)
    return min(levels)


def _names_user(entry: str, user: User) -> bool:
    if entry.startswith("@"):
        return entry[1:] in user.groups
    return entry != "*" and entry == user.login


def find_role(name: str, *, registries: Registries) -> RoleSpec:
    """Return the role of that name: the user's, else the site's.

    Raises ConfigError with the nearest names.
    """
    site, own = registries
    role = own.role(name) or (site.role(name) if site is not None else None)
    if role is None:
        names = role_names(registries)
        near = get_close_matches(name, names, n=3)
        raise ConfigError(
            f"There is no role {name!r}.",
            advice=f"Did you mean {' or '.join(near)}?" if near else _roles_here(names),
        )
    return role


def _roles_here(names: Sequence[str]) -> str:
    if names:
        return f"Roles here: {', '.join(names)}."
    return "Your registry names no roles; start it from a copy of the built-in one (chatops connect URL makes one)."


def role_names(registries: Registries) -> tuple[str, ...]:
    """Return the names of all roles, the user's first, each name once."""
    site, own = registries
    names = [role.name for role in own.roles] + [role.name for role in (site.roles if site is not None else ())]
    return tuple(dict.fromkeys(names))


def resolve_grant(
    *,
    registries: Registries,
    role: str,
    user: User,
    access_cap: AccessLevel | None,
    specs: Sequence[ToolSpec],
    models: Sequence[ModelTarget],
    prompt: str,
    approvals: Sequence[str] = (),
    extra_layers: Sequence[Layer] = (),
    at: StepPlace | None = None,
    default_rounds: int = DEFAULT_MAX_ROUNDS,
    command_line: SandboxSpec = NARROWEST,
    session: tuple[SandboxChange, ...] = (),
) -> Grant:
    """Return the grant of `role` for `user`.

    `specs` are all tools that exist here, with their built-in levels and verdicts. `approvals` are rules in the syntax
    of ``--approve``. `at` is the workflow step that the grant is for, None in a chat. `default_rounds` applies if no
    limit is set. `command_line` is what its options let commands see and write, `session` what the user changed for
    this session.

    Raises ConfigError for an unknown role, a bad approval, or a role's rule that its tool cannot have.
    """
    site, _ = registries
    find_role(role, registries=registries)  # Raises for an unknown role.
    roles_by_owner = [
        (whose, spec) for whose, registry in _registries_by_owner(registries) if (spec := registry.role(role))
    ]
    roles = [spec for _, spec in roles_by_owner]
    level = access_level(registries=registries, user=user, access_cap=access_cap)
    of_registry = (
        *_tool_layers(specs, registries=registries),
        *binding_layers(specs, at=at),
        _access_layer(specs, registries=registries, level=level, user=user),
        *_confirm_deny_layers(registries, user=user),
        *(layer for whose, spec in roles_by_owner for layer in _role_layers(spec, whose=whose, specs=specs)),
    )
    layers = [*(replace(layer, of_registry=True) for layer in of_registry), *extra_layers]
    limits = sandbox_layers(registries, role=role, command_line=command_line, session=session)
    grant = Grant(
        role=role,
        level=level,
        models=tuple(models),
        prompt=prompt,
        tools=tuple(_with_timeouts(specs, registries=registries)),
        layers=(),
        answers=(
            *_approval_answers(approvals, specs=specs, site=site),
            *_confirm_allow_answers(registries, user=user, specs=specs),
            *(answer for whose, spec in roles_by_owner for answer in _role_answers(spec, whose=whose, specs=specs)),
        ),
        max_rounds=_max_rounds(registries, roles=roles, models=models, default=default_rounds),
        budget=strictest(*(registry.budget for registry in registries if registry), *(spec.budget for spec in roles)),
        contain=any(spec.contain for spec in roles),
        may_contain=all(registry.may_contain for registry in registries if registry is not None),
        sandbox=resolve(limits),
        ceiling=limits.site,
        registries=tuple(registry.digest for registry in registries if registry is not None),
    )
    # `narrowed` adds the layers, and takes the tools that one of them always denies off the offer.
    return grant.remembering(_rule_scopes(registries)).narrowed(*layers)


_REGISTRY_NAMES = {"site": "the site registry", "own": "your registry"}
"""Words for a registry by the first part of its keys (`Layer.key`), in the order of `Registries`."""


def _registries_by_owner(registries: Registries) -> list[tuple[str, Registry]]:
    """Return the registries that exist, each with the first part of its keys."""
    return [(whose, registry) for whose, registry in zip(_REGISTRY_NAMES, registries, strict=True) if registry]


def _rule_scopes(registries: Registries) -> tuple[RuleScope, ...]:
    """Return the scopes of remembered rules that neither registry switches off."""
    site, own = registries
    return tuple(scope for scope in own.rule_scopes if site is None or scope in site.rule_scopes)


def revoked_layer(tools: Iterable[str]) -> Layer:
    """Return the layer for tools that the user revoked in this session.

    The store keeps a name without a key in it, which a server may have chosen as its token. Then nobody knows any more
    what was revoked, and nothing is permitted.
    """
    rules = tuple(Rule(tool=tool, verdict=Verdict.DENY) for tool in tools)
    if any(HIDDEN in rule.tool for rule in rules):
        return Layer(name="revoked in this session: a tool with the name of a key", rules=(), default=Verdict.DENY)
    return Layer(name="revoked in this session", rules=rules)


def _tool_setting(registry: Registry | None, tool: str) -> ToolSetting:
    settings = registry.tools if registry is not None else ()
    return next((setting for name, setting in settings if name == tool), ToolSetting())


def _tool_layers(specs: Sequence[ToolSpec], *, registries: Registries) -> Iterator[Layer]:
    """Yield the layers of tool verdicts: the tools' own defaults, then the site's settings, then the user's.

    A verdict of the site replaces the default of its tool, even with a looser one. Only the first layer knows all
    tools, so that it denies the unknown ones.
    """
    site, _ = registries
    defaults = tuple(
        Rule(tool=spec.name, verdict=spec.verdict if _tool_setting(site, spec.name).verdict is None else Verdict.ALLOW)
        for spec in specs
    )
    asks = "this tool always asks, unless a rule allows the call"
    yield Layer(name="tool default", rules=defaults, default=Verdict.DENY, asks=asks)
    for whose, registry in _registries_by_owner(registries):
        rules = tuple(
            Rule(tool=spec.name, verdict=verdict, key=(whose, "tools", spec.name, "verdict"))
            for spec in specs
            if (verdict := _tool_setting(registry, spec.name).verdict) is not None
        )
        if rules:
            asks = f"{_REGISTRY_NAMES[whose]} makes this tool ask"
            yield Layer(name=f"tools of {_REGISTRY_NAMES[whose]}", rules=rules, asks=asks)
    yield from _approver_layers(specs, registries=registries)


def _approver_layers(specs: Sequence[ToolSpec], *, registries: Registries) -> Iterator[Layer]:
    """Yield a layer for each tool for which a registry names approvers: its calls always ask."""
    for spec in specs:
        for whose, registry in _registries_by_owner(registries):
            if approver := _tool_setting(registry, spec.name).approver:
                rule = Rule(tool=spec.name, verdict=Verdict.ASK, key=(whose, "tools", spec.name, "approver"))
                name = f"approver of {_REGISTRY_NAMES[whose]}"
                asks = f"{name}: {approvers_phrase(approver)}"
                yield Layer(name=name, rules=(rule,), asks=asks, approver=approver)


def _access_layer(specs: Sequence[ToolSpec], *, registries: Registries, level: AccessLevel, user: User) -> Layer:
    rules = [
        Rule(
            tool=spec.name,
            verdict=Verdict.DENY if level < least_access(spec, registries=registries) else Verdict.ALLOW,
        )
        for spec in specs
    ]
    key: Key = ()
    # The key of the site is named if both registries give this level.
    for whose, registry in reversed(_registries_by_owner(registries)):
        given = entitlement(registry.users or (), user=user)
        if given.entry and given.level is level:
            key = (whose, "users", given.entry, "access_level")
    return Layer(name=f"access level {level.word}", rules=tuple(rules), default=Verdict.DENY, key=key)


def _confirm_deny_layers(registries: Registries, *, user: User) -> list[Layer]:
    layers = []
    for whose, registry in _registries_by_owner(registries):
        rights = entitlement(registry.users or (), user=user)
        if rights.confirm_deny:
            rules = tuple(Rule(tool=tool, verdict=Verdict.DENY) for tool in rights.confirm_deny)
            name = f"confirm_deny in {_REGISTRY_NAMES[whose]}"
            layers.append(Layer(name=name, rules=rules, key=(whose, "users", rights.denying, "confirm_deny")))
    return layers


def _role_rules(role: RoleSpec, *, whose: str, specs: Sequence[ToolSpec]) -> tuple[Rule, ...]:
    """Return the rules of a role in the registry `whose`, with the patterns of the kind that each tool has."""
    known = {spec.name: spec for spec in specs}
    return tuple(
        Rule(
            tool=rule.tool,
            verdict=rule.verdict,
            pattern=reread(known[rule.tool], rule.pattern) if rule.tool in known else rule.pattern,
            workspace_read=rule.workspace == "read",
            key=(whose, "roles", role.name, "rules", index),
        )
        for index, rule in enumerate(role.rules)
    )


def listed_tools(names: Sequence[str], *, specs: Sequence[ToolSpec]) -> tuple[str, ...]:
    """Return the tools that a role lists, each once. ``SERVER__*`` means all tools of that MCP server."""
    tools: dict[str, None] = {}
    for name in names:
        if name.endswith(f"{SERVER_MARK}*"):
            prefix, source = name[:-1], mcp_source(server_of(name))
            tools |= {spec.name: None for spec in specs if spec.name.startswith(prefix) and spec.source == source}
        else:
            tools[name] = None
    return tuple(tools)


def _role_layers(role: RoleSpec, *, whose: str, specs: Sequence[ToolSpec]) -> list[Layer]:
    layers = []
    if role.tools is not None:
        key = (whose, "roles", role.name, "tools")
        rules = tuple(Rule(tool=tool, verdict=Verdict.ALLOW) for tool in listed_tools(role.tools, specs=specs))
        layers.append(Layer(name=f"tools of role {role.name}", rules=rules, default=Verdict.DENY, key=key))
    strict = tuple(rule for rule in _role_rules(role, whose=whose, specs=specs) if rule.verdict is not Verdict.ALLOW)
    if strict:
        asks = f"a rule of role {role.name} makes this call ask"
        layers.append(Layer(name=f"rules of role {role.name}", rules=strict, asks=asks))
    return layers


def _role_answers(role: RoleSpec, *, whose: str, specs: Sequence[ToolSpec]) -> list[ApprovalRule]:
    """Return answers for the role's rules with *allow*. They answer an ask, and only for an argument pattern."""
    return [
        ApprovalRule(
            tool=rule.tool,
            pattern=rule.pattern,
            source=f"rule of role {role.name}",
            workspace_read=rule.workspace_read,
            key=rule.key,
        )
        for rule in _role_rules(role, whose=whose, specs=specs)
        if rule.verdict is Verdict.ALLOW and not isinstance(rule.pattern, AnyArguments)
    ]


def _approval_answers(texts: Sequence[str], *, specs: Sequence[ToolSpec], site: Registry | None) -> list[ApprovalRule]:
    tools = {spec.name: spec.capabilities for spec in specs}
    names = list(tools)
    answers = []
    for text in texts:
        tool, pattern = parse_rule(text, tools=tools)
        if tool not in tools:
            near = get_close_matches(tool, names, n=1)
            raise ConfigError(
                f"--approve {text}: there is no tool {tool!r} here.",
                advice=f"Did you mean {near[0]}?" if near else f"Tools here: {', '.join(names)}.",
            )
        if isinstance(pattern, AnyArguments) and tools[tool].runs_anything and not _permits_any_shell(site):
            raise ConfigError(
                f"--approve {tool} would let the model run anything.",
                advice=f"Name the commands, e.g. --approve '{tool if tools[tool].command else 'shell_exec'}:git status"
                f' *\'. A site registry with "approve_any_shell": true permits a bare {tool}.',
            )
        answers.append(ApprovalRule(tool=tool, pattern=pattern, source=f"--approve {text}"))
    return answers


def _permits_any_shell(site: Registry | None) -> bool:
    return site is not None and site.approve_any_shell


def _confirm_allow_answers(registries: Registries, *, user: User, specs: Sequence[ToolSpec]) -> list[ApprovalRule]:
    """Return answers for `confirm_allow`.

    A rule that cannot be parsed, or that would permit running anything, is left out.
    """
    site, _ = registries
    tools = {spec.name: spec.capabilities for spec in specs}
    answers = []
    for whose, registry in _registries_by_owner(registries):
        rights = entitlement(registry.users or (), user=user)
        for text in rights.confirm_allow:
            try:
                tool, pattern = parse_rule(text, tools=tools)
            except ConfigError:  # `registry_checks` warns about it.
                continue
            if tool not in tools:
                continue
            if isinstance(pattern, AnyArguments) and tools[tool].runs_anything and not _permits_any_shell(site):
                continue
            key = (whose, "users", rights.entry, "confirm_allow")
            answers.append(ApprovalRule(tool=tool, pattern=pattern, source=f"confirm_allow {text}", key=key))
    return answers


def _with_timeouts(specs: Sequence[ToolSpec], *, registries: Registries) -> list[ToolSpec]:
    """Return specs with the time limit that the registries set; the shorter one counts."""
    limited = []
    for spec in specs:
        limits = [_tool_setting(registry, spec.name).timeout_s for registry in registries]
        set_limits = [seconds for seconds in limits if seconds]
        limited.append(replace(spec, timeout_s=min(set_limits)) if set_limits else spec)
    return limited


def _max_rounds(
    registries: Registries, *, roles: Sequence[RoleSpec], models: Sequence[ModelTarget], default: int
) -> int:
    """Return the strictest limit of the registries, the primary model and the role; `default` if none is set."""
    limits: list[int | None] = [role.max_rounds for role in roles]
    for registry in registries:
        if registry is None:
            continue
        limits.append(registry.max_rounds)
        model = registry.model(models[0].name) if models else None
        limits.append(model.max_rounds if model is not None else None)
    set_limits = [limit for limit in limits if limit is not None]
    return max(1, min(*set_limits, MAX_ROUNDS)) if set_limits else default


def least_access(spec: ToolSpec, *, registries: Registries) -> AccessLevel:
    """Return the level that a call of `spec` needs: the tool's own or the site's. The user's registry can raise it."""
    site, own = (_tool_setting(registry, spec.name).min_access for registry in registries)
    base = spec.min_access if site is None else site
    return base if own is None else max(base, own)


def sandbox_layers(
    registries: Registries,
    *,
    role: str | None = None,
    command_line: SandboxSpec = NARROWEST,
    session: tuple[SandboxChange, ...] = (),
) -> SandboxLayers:
    """Return what the registries and `role` say about the sandbox. None, or an unknown role, demands no level.

    A site registry without the key `sandbox` sets no ceiling. With the key, its defaults count too.
    """
    site, own = registries
    roles = [spec for registry in registries if registry and role and (spec := registry.role(role))]
    return SandboxLayers(
        registry=own.sandbox or NARROWEST,
        command_line=command_line,
        session=session,
        role=max((spec.sandbox.require for spec in roles), default=SandboxLevel.NONE),
        site=site.sandbox if site is not None else None,
        keys=frozenset(model.key.env for registry in registries if registry for model in registry.models),
    )


def web_ports(registries: Registries) -> frozenset[int]:
    """Return the user's ports besides 80 and 443 for the tool that fetches URLs, as far as the site permits them."""
    site, own = (_ports(registry) for registry in registries)
    return frozenset(own or ()) if site is None else frozenset(own or ()) & frozenset(site)


def _ports(registry: Registry | None) -> tuple[int, ...] | None:
    settings = registry.tools if registry is not None else ()
    return next((setting.ports for name, setting in settings if BUILT_IN_TOOLS.get(name, NO_CAPABILITIES).url), None)


def knowledge_sources(registries: Registries) -> tuple[KnowledgeSource, ...]:
    """Return the folders of documents that can be searched. The site's source comes before the user's of that name.

    A site that denies ``knowledge_search`` leaves the user's sources out too.
    """
    site, own = registries
    sources = {source.name: source for source in own.knowledge}
    if site is not None:
        denied = any(name == KNOWLEDGE_TOOL and rule.verdict is Verdict.DENY for name, rule in site.tools)
        sources = {**({} if denied else sources), **{source.name: source for source in site.knowledge}}
    return tuple(sources.values())
