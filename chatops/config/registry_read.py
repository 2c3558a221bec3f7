"""Read the bytes of a registry file into values, or raise an error that names file, line, column and key."""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import astuple, field, replace
from difflib import get_close_matches
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import JsonValue, TypeAdapter

from chatops.config.document import Document, Json, Path, read_document, suggestion
from chatops.config.entries import EntryReader, KeySchema, adapter_of, first_unfit_variable, free_key
from chatops.config.extras import ENGINES, installed_entries
from chatops.config.server_read import servers_in
from chatops.domain.decisions import AnyArguments, RuleScope
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import ALIASES, BUILT_IN_TOOLS, NO_CAPABILITIES, Verdict, tool_name
from chatops.policy.registry import (
    ApprovalsSection,
    AuditSection,
    BudgetKeys,
    HostType,
    KnowledgeSource,
    ModelSpec,
    ModelType,
    NotifySection,
    Registry,
    RegistryWarning,
    RoleRule,
    RoleSpec,
    RulesSection,
    SandboxSection,
    UserSpec,
)
from chatops.policy.rule_syntax import parse_rule
from chatops.policy.servers import SERVER_MARK, McpServerSpec, ToolSetting, server_of
from chatops.policy.spelled import LENIENT, Matches, Name, Rounds, Spelled, items, members
from chatops.policy.workflow import Definition

MAX_BYTES = 4_000_000
"""Of a file. It is read and checked at each start, which a larger one would delay."""
KNOWN_TOOLS = (*BUILT_IN_TOOLS, *ALIASES)
"""Names of built-in tools. A near miss of one of them, in a setting that decides rights, is an error."""

ALWAYS_THERE = ("env", "demo", "claude_cli")
"""Models that exist unless the file defines one of that name."""
BUILT_IN_MODELS = ("default", *ALWAYS_THERE)
"""Names that a role may use without an entry. ``default`` means the user's default model."""
FREE_FORMATS = frozenset({"auto", "native"})
"""Values of tool_format that name no format of calls in text."""
GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai"
"""Google's OpenAI-compatible endpoint: https://ai.google.dev/gemini-api/docs/openai"""
GEMINI_KEY = "GEMINI_API_KEY"
_ADVICE = "Correct it there; chatops registry check PATH shows whether the file can be read."


@frozen_dataclass
class RegistryFile:
    """A whole ``model_registry.json``, version 3."""

    __pydantic_config__ = LENIENT
    rights_keys: ClassVar[frozenset[str]] = frozenset(
        "users tools roles rules approvals audit sandbox max_rounds budget mcp_servers mcpServers store".split()
    )
    """Keys that decide rights. A near miss of one of them is an error."""

    version: Literal[3] = 3
    """Version of the format."""
    default_role: Name = "assistant"
    """The role of a new session."""
    models: Annotated[tuple[ModelSpec, ...], Spelled(dict[Name, ModelSpec], members)] = ()
    """Models by name. `env`, `demo` and `claude_cli` always exist."""
    roles: Annotated[tuple[RoleSpec, ...], Spelled(dict[Name, RoleSpec], members)] = ()
    """Roles by name."""
    users: Annotated[tuple[UserSpec, ...], Spelled(dict[Name, UserSpec], members)] | None = None
    """Login names and ``@unixgroup`` with their rights; ``*`` is everyone else."""
    tools: Annotated[tuple[tuple[str, ToolSetting], ...], Spelled(dict[Name, ToolSetting], items)] = ()
    """Settings of tools by name."""
    sandbox: SandboxSection = field(default_factory=SandboxSection)
    """Limits of commands."""
    rules: RulesSection = field(default_factory=RulesSection)
    """Limits of remembered rules."""
    approvals: ApprovalsSection = field(default_factory=ApprovalsSection)
    """For the site registry: limits of decisions on calls."""
    audit: AuditSection = field(default_factory=AuditSection)
    """For the site registry: where the decision log is proven."""
    mcp_servers: dict[str, JsonValue] = field(default_factory=dict)
    """MCP servers by name."""
    mcpServers: dict[str, JsonValue] = field(default_factory=dict)
    """The same, as other programs write it."""
    knowledge: Annotated[
        tuple[KnowledgeSource, ...],
        Spelled(dict[Annotated[str, Matches(r"^[A-Za-z0-9_-]{1,64}$")], KnowledgeSource], members),
    ] = ()
    """Folders of documents, each a tool of its own."""
    workflows: dict[str, JsonValue] = field(default_factory=dict)
    """Workflows by name. `config.workflow_read` reads them."""
    max_rounds: Rounds | None = None
    """Maximum number of model calls of any turn; left out: 10."""
    budget: BudgetKeys = field(default_factory=BudgetKeys)
    """The most that a turn may spend before it asks. The site's, yours and the role's hold together."""
    notify: NotifySection = field(default_factory=NotifySection)
    """A program to tell about jobs, such as one that sends a message to a phone."""
    respond_with_final: bool = True
    """False: a short result without the persona, as `--summary`."""
    store: Annotated[str, Matches(r"^(postgres(ql)?://.*)?$")] = ""
    """Address of the [database](team.md) that holds sessions and decisions, such as ``postgresql://host/name``; left
    out: a file does. The site's counts before yours, and `CHATOPS_STORE` before both.
    """
    approve_any_shell: bool = False
    """For the site registry: let `--approve` name shell_exec and python_exec without a pattern."""


def read_registry(data: bytes, *, source: str, site: bool = False) -> Registry:
    """Read a registry from `data`.

    `site`: it is the site registry, in which other keys have an effect than in a user's.

    Raises ConfigError naming `source`, line, column and key.
    """
    document = read_document(data, source=source, advice=_ADVICE, most=MAX_BYTES)
    return _RegistryReader(document, site=site).registry(digest=hashlib.sha256(data).hexdigest())


class _RegistryReader:
    """Validates one document and converts it to values, collecting warnings.

    `_resolve_…` returns an entry as it counts: aliases of tools replaced, and what was left out filled in. It raises
    ConfigError for an entry that could mean two things.
    """

    def __init__(self, document: Document, *, site: bool) -> None:
        self.document = document
        self._error = document.error
        self._where = document.where
        self.site = site
        self.warnings: list[RegistryWarning] = []

    def registry(self, *, digest: str) -> Registry:
        value = self.document.located.value
        if not isinstance(value, dict):
            raise self._error((), "the file has to contain one JSON object")
        self._check_version(value)
        file = EntryReader(self.document, self._warn).read(RegistryFile, value)
        return self._to_registry(file, value, digest=digest)

    def _check_version(self, value: dict[str, Json]) -> None:
        version = value.get("version", 3)
        if isinstance(version, int) and not isinstance(version, bool) and version in (1, 2):
            raise self._error(
                ("version",),
                f"this is a registry of version {version}, and this chatops reads version 3",
                advice="chatops registry migrate PATH --output FILE writes it as version 3.",
            )
        if isinstance(version, int) and version > 3:
            raise self._error(
                ("version",),
                f"this is a registry of version {version}, newer than this chatops",
                advice="Upgrade chatops.",
            )

    def _warn(self, path: Path, why: str) -> None:
        text = f"{self._where(path)}: {why}."
        about_entry = path[0] in ("roles", "models") and len(path) > 1
        self.warnings.append(RegistryWarning(text, (str(path[0]), str(path[1])) if about_entry else None))

    def _to_registry(self, file: RegistryFile, value: dict[str, Json], *, digest: str) -> Registry:
        models = tuple(self._without_half_price(self._resolve_model(spec), value["models"]) for spec in file.models)
        names = [role.name for role in file.roles]
        roles = tuple(self._resolve_role(role, [spec.name for spec in models]) for role in file.roles)
        users = None if file.users is None else tuple(self._resolve_user(user) for user in file.users)
        for path, why in _ignored_keys(file, value, site=self.site):
            self._warn(path, why)
        for source in file.knowledge:
            if source.name in KNOWN_TOOLS or SERVER_MARK in source.name:
                why = "a tool may have this name already, so give the source another"
                raise self._error(("knowledge", source.name), why)
        default_role = file.default_role
        if "default_role" not in value and names and default_role not in names:
            default_role = names[0]
        if names and not self.site and default_role not in names:
            self._warn(("default_role",), f"there is no role {default_role!r}{suggestion(default_role, names)}")
        if "password" in file.store or urlsplit(file.store).password:
            self._warn(("store",), "a password in the file can be read by whoever reads the file; ~/.pgpass is safer")
        return Registry(
            source=self.document.source,
            digest=digest,
            default_role=default_role,
            models=models,
            roles=roles,
            users=users,
            tools=tuple(self._resolve_tool(name, setting, dict(file.tools)) for name, setting in file.tools),
            knowledge=file.knowledge,
            may_contain=file.sandbox.contain,
            may_accept_level=file.sandbox.accept_level,
            sandbox=file.sandbox.spec if "sandbox" in value else None,
            max_rounds=file.max_rounds,
            budget=file.budget,
            notify=file.notify.command,
            respond_with_final=file.respond_with_final,
            store=file.store,
            approve_any_shell=file.approve_any_shell,
            rule_scopes=tuple(scope for scope in RuleScope if scope.value in file.rules.remember),
            surfaces=file.approvals.surfaces,
            sink=file.audit.sink,
            servers=self._read_servers(file),
            workflows=self._read_workflows(file),
            # After the fields above: reading some of them adds warnings.
            warnings=tuple(self.warnings),
        )

    def _read_servers(self, file: RegistryFile) -> tuple[McpServerSpec, ...]:
        servers = {"mcp_servers": file.mcp_servers, "mcpServers": file.mcpServers}
        if not any(servers.values()):
            return ()
        entries = {key: _without_notes(value) for key, value in servers.items()}
        return servers_in(EntryReader(self.document, self._warn), entries)

    def _read_workflows(self, file: RegistryFile) -> tuple[Definition, ...]:
        if not file.workflows:
            return ()
        from chatops.config.workflow_read import definition_in  # slow to import, and few registries need it

        return tuple(
            definition_in(self.document, value, name=name, prefix=("workflows", name))
            for name, value in _without_notes(file.workflows).items()
        )

    def _without_half_price(self, spec: ModelSpec, models: Json) -> ModelSpec:
        """Return the model without a price of which one half is missing: what is unknown does not count as zero."""
        model = models[spec.name] if isinstance(models, dict) else None
        price = model.get("price") if isinstance(model, dict) else None
        if not isinstance(price, dict) or {"input", "output"} <= price.keys():
            return spec
        self._warn(("models", spec.name, "price"), "a price needs input and output; this one is left out")
        return replace(spec, price=None)

    def _resolve_model(self, spec: ModelSpec) -> ModelSpec:
        path: Path = ("models", spec.name)
        if not isinstance(spec.type, ModelType) and not any(
            entry.name == spec.type for entry in installed_entries(ENGINES)
        ):
            types = ", ".join(ModelType)
            raise self._error((*path, "type"), f"is not a model type: expected {types}, or an engine of a package")
        if "\0" in spec.key.file:
            raise self._error((*path, "api_key_file"), "a NUL character cannot be part of a path")
        key_sources = [source for source in astuple(spec.key) if source]
        if len(key_sources) > 1:
            raise self._error(path, "more than one source of a key is given, and only one can count")
        if spec.api_key and spec.api_key.casefold() != "none":
            why = "a key in the file can be read by whoever reads the file; api_key_env or api_key_file is safer"
            self._warn((*path, "api_key"), why)
        if variable := first_unfit_variable(spec.env):
            raise self._error((*path, "env", variable), "this is not a valid variable")
        for header, text in spec.headers:
            if not header.isascii() or any(char in "\r\n\0" for char in header + text):
                raise self._error((*path, "headers", header), "this is not a valid header value")
        if spec.type is not ModelType.GEMINI:
            return spec
        key_env = spec.api_key_env if key_sources else GEMINI_KEY
        return replace(spec, host_type=HostType.GEMINI, api_url=spec.api_url or GEMINI_URL, api_key_env=key_env)

    def _resolve_role(self, role: RoleSpec, models: Collection[str]) -> RoleSpec:
        path: Path = ("roles", role.name)
        known = [*models, *BUILT_IN_MODELS]
        for key in ("primary", "backup_1", "backup_2", "backup_3", "backup_4", "responder"):
            model = str(getattr(role, key) or "")
            if model and model not in known and model.partition("/")[0] not in known:
                self._warn((*path, key), f"there is no model {model!r}{suggestion(model, known)}")
        tools = role.tools and tuple(
            self._resolve_alias(tool, (*path, "tools", index)) for index, tool in enumerate(role.tools)
        )
        rules = tuple(self._resolve_rule(rule, (*path, "rules", index)) for index, rule in enumerate(role.rules))
        return replace(role, tools=tools, rules=rules)

    def _resolve_rule(self, rule: RoleRule, path: Path) -> RoleRule:
        rule = replace(rule, tool=self._resolve_name(rule.tool, (*path, "tool")))
        try:
            _ = rule.pattern  # It is parsed when it is first asked for.
        except ConfigError as error:
            raise self._error((*path, "match"), str(error).rstrip("."), advice=error.advice) from None
        if rule.verdict is Verdict.ALLOW and not rule.match:
            self._warn(path, "an allow rule without match answers nothing")
        if "*" in rule.match[:-1]:
            self._warn((*path, "match"), "only a * at the end matches further words")
        runs_command = BUILT_IN_TOOLS.get(rule.tool, NO_CAPABILITIES).command
        if rule.workspace and (not runs_command or rule.verdict is not Verdict.ALLOW):
            self._warn((*path, "workspace"), "this counts only in a rule that allows shell_exec")
        return rule

    def _resolve_user(self, user: UserSpec) -> UserSpec:
        path: Path = ("users", user.name)
        for index, text in enumerate(user.confirm_allow):
            where: Path = (*path, "confirm_allow", index)
            try:
                tool, pattern = parse_rule(text)
            except ConfigError as error:
                raise self._error(where, str(error).rstrip("."), advice=error.advice) from None
            if isinstance(pattern, AnyArguments) and BUILT_IN_TOOLS.get(tool, NO_CAPABILITIES).runs_anything:
                self._warn(where, f"a bare {tool} would let the model run anything, so it answers nothing")
        denied = tuple(
            self._resolve_name(tool, (*path, "confirm_deny", index)) for index, tool in enumerate(user.confirm_deny)
        )
        return replace(user, confirm_deny=denied)

    def _resolve_tool(self, name: str, setting: ToolSetting, tools: Collection[str]) -> tuple[str, ToolSetting]:
        tool = self._resolve_name(name, ("tools", name))
        if tool != name and tool in tools:
            raise self._error(("tools", name), f"this is another name of {tool}, which has settings of its own")
        if setting.ports and not BUILT_IN_TOOLS.get(tool, NO_CAPABILITIES).url:
            self._warn(("tools", name, "ports"), "this counts only for web_fetch")
        return tool, setting

    def _resolve_name(self, name: str, path: Path) -> str:
        """Return the tool that `name` means. A near miss is an error: a restriction on it would restrict nothing."""
        is_certain = name in KNOWN_TOOLS or server_of(name)
        near = [] if is_certain else get_close_matches(name.casefold(), KNOWN_TOOLS, n=1, cutoff=0.8)
        if near:
            raise self._error(path, f"there is no tool {name!r}; {near[0]!r} may be meant")
        return self._resolve_alias(name, path)

    def _resolve_alias(self, name: str, path: Path) -> str:
        """Return the tool that `name` is an alias of, with a warning, or `name` itself."""
        tool = tool_name(name)
        if tool != name:
            self._warn(path, f"{name} is another name of {tool}, so that is what it means")
        return tool


def _without_notes(entries: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {key: inner for key, inner in entries.items() if isinstance(inner, dict) or not free_key(key)}


def _ignored_keys(file: RegistryFile, value: dict[str, Json], *, site: bool) -> Iterator[tuple[Path, str]]:
    """Yield path and reason of each key without effect. `site`: the file is the site registry."""
    for model in file.models:
        if reason := _format_fault(model.tool_format):
            yield ("models", model.name, "tool_format"), reason
    if not site and file.approve_any_shell:
        yield ("approve_any_shell",), "only the site registry can permit this, so it has no effect here"
    for key in ("approvals", "audit"):
        if not site and key in value:
            yield (key,), "only the site registry can limit this, so it has no effect here"
    for key, default in (("default_role", "assistant"), ("respond_with_final", True)):
        if site and value.get(key, default) != default:
            yield (key,), "only a user's registry sets this, so it has no effect in the site's"


def _format_fault(name: str) -> str:
    """Return what is wrong with a `tool_format`; empty if nothing is."""
    if name in FREE_FORMATS:
        return ""
    from chatops.dialects.writing import WRITABLE  # slow to import, and few registries name a format

    if name in WRITABLE:
        return ""
    near = get_close_matches(name.casefold(), [*FREE_FORMATS, *WRITABLE], n=1)
    hint = f"{near[0]!r} may be meant" if near else f"there are auto, native, {', '.join(sorted(WRITABLE))}"
    return f"there is no format {name!r} to ask a model for, so auto is used; {hint}"


def json_schema() -> dict[str, object]:
    """Return the schema that ``chatops registry schema`` prints."""
    from chatops.config.workflow_read import WorkflowEntry

    entries: tuple[type, ...] = (RegistryFile, WorkflowEntry, McpServerSpec)
    _, schema = TypeAdapter.json_schemas(
        [(entry, "validation", adapter_of(entry)) for entry in entries], schema_generator=KeySchema
    )
    definitions = schema["$defs"]
    file = definitions.pop(RegistryFile.__name__)
    for key, entry in (("workflows", WorkflowEntry), ("mcp_servers", McpServerSpec), ("mcpServers", McpServerSpec)):
        file["properties"][key]["additionalProperties"] = {"$ref": f"#/$defs/{entry.__name__}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **file,
        "$defs": definitions,
        "title": "chatops model_registry.json",
    }
