"""Read the bytes of a registry file into values, or raise an error that names file, line, column and key."""

import hashlib
import json
from collections.abc import Iterator
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError

from chatops.config.document import Document, Json, Path, nearest, read_document
from chatops.config.registry_model import (
    BUILT_IN_TYPES,
    KnowledgeEntry,
    Lenient,
    ModelEntry,
    RegistryFile,
    RoleEntry,
    RoleSandboxEntry,
    RuleEntry,
    RulesEntry,
    SandboxEntry,
    Strict,
    ToolEntry,
    UserEntry,
    free_key,
    required_level,
    variable_fault,
)
from chatops.domain.decisions import AnyArguments, RuleScope
from chatops.domain.errors import ConfigError
from chatops.domain.rights import AccessLevel, Verdict
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import ALIASES, BUILT_IN_TOOLS, NO_CAPABILITIES, tool_name
from chatops.policy.patterns import parse_rule, pattern_from_list
from chatops.policy.registry import (
    SERVER_MARK,
    EntryWarning,
    HostType,
    KeySource,
    KnowledgeSource,
    McpServerSpec,
    ModelSpec,
    ModelType,
    Price,
    Registry,
    RoleSpec,
    Timeouts,
    ToolSetting,
    UserSpec,
    server_of,
)
from chatops.policy.verdicts import Rule
from chatops.policy.workflow import Definition

MAX_BYTES = 4_000_000
KNOWN_TOOLS = (*BUILT_IN_TOOLS, *ALIASES)
"""Names of built-in tools. A near miss of one of them, in a setting that decides rights, is an error."""

ALWAYS_THERE = ("env", "demo", "claude_cli")
"""Models that exist unless the file defines one of that name."""
BUILT_IN_MODELS = ("default", *ALWAYS_THERE)
FREE_FORMATS = frozenset({"auto", "native"})
"""Values of tool_format that do not name a format."""
FORMAT_ALIASES = {"json": "llama3_json", "function_tag": "llama3_function_tag", "python_list": "pythonic"}
"""Names from Llama Stack's `ToolPromptFormat`, which older registries use."""
GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai"
"""Google's OpenAI-compatible endpoint: https://ai.google.dev/gemini-api/docs/openai"""
GEMINI_KEY = "GEMINI_API_KEY"
_CHECK = "Correct it there; chatops registry check PATH shows whether the file can be read."


def read_registry(data: bytes, *, source: str, site: bool = False) -> Registry:
    """Read a registry from `data`.

    `site`: it is the site registry, in which other keys have an effect than in a user's.

    Raises ConfigError naming `source`, line, column and key.
    """
    document = read_document(data, source=source, advice=_CHECK, most=MAX_BYTES)
    return read_located(document, data=data, site=site)


def read_located(document: Document, *, data: bytes, site: bool = False) -> Registry:
    """Read a registry from a parsed document; `data` are its bytes, and `site` is as in `read_registry`.

    Raises ConfigError.
    """
    return _Reader(document, site=site).registry(digest=hashlib.sha256(data).hexdigest())


class _Reader:
    """Validates one document and converts it to values, collecting warnings."""

    def __init__(self, document: Document, *, site: bool) -> None:
        self.document = document
        self.error = document.error
        self._where = document.where
        self.site = site
        self.warnings: list[str] = []

    def registry(self, *, digest: str) -> Registry:
        value = self.document.located.value
        if not isinstance(value, dict):
            raise self.error((), "the file has to contain one JSON object")
        self._version(value)
        try:
            file = RegistryFile.model_validate(value)
        except ValidationError as error:
            detail = error.errors(include_url=False, include_input=False)[0]
            raise self.document.invalid(detail, keys=_siblings) from None
        except RecursionError:
            raise self.error((), "it is nested too deeply") from None
        self._unknown_keys(file, ())
        return self._values(file, digest=digest)

    def _version(self, value: dict[str, Json]) -> None:
        version = value.get("version", 3)
        if isinstance(version, int) and not isinstance(version, bool) and version in (1, 2):
            raise self.error(
                ("version",),
                f"this is a registry of version {version}, and this chatops reads version 3",
                advice="chatops registry migrate PATH --output FILE writes it as version 3.",
            )
        if isinstance(version, int) and version > 3:
            raise self.error(
                ("version",),
                f"this is a registry of version {version}, newer than this chatops",
                advice="Upgrade chatops.",
            )

    def _warn(self, path: Path, why: str) -> None:
        text = f"{self._where(path)}: {why}."
        about_entry = path[0] in ("roles", "models") and len(path) > 1
        self.warnings.append(EntryWarning(text, entry=(str(path[0]), str(path[1]))) if about_entry else text)

    def _unknown_keys(self, model: BaseModel, path: Path) -> None:
        """Warn about unknown keys. A near miss of a key that decides rights is an error."""
        known = list(type(model).model_fields)
        for key in model.model_extra or {}:
            if free_key(key):
                continue
            rights = sorted(model.rights_keys) if isinstance(model, Lenient) else []
            if near := get_close_matches(key.casefold(), rights, n=1, cutoff=0.7):
                raise self.error((*path, key), f"there is no such key; {near[0]!r} is meant, and it decides rights")
            self._warn((*path, key), f"this key is not known{nearest(key, known)}")
        for part, inner in _inner(model):
            self._unknown_keys(inner, (*path, *part))

    def _values(self, file: RegistryFile, *, digest: str) -> Registry:
        models = tuple(self._model(name, entry) for name, entry in file.models.items())
        roles = tuple(self._role(name, entry, file) for name, entry in file.roles.items())
        users = None if file.users is None else tuple(self._user(name, entry) for name, entry in file.users.items())
        for path, why in _ignored(file, site=self.site):
            self._warn(path, why)
        default_role = file.default_role
        if "default_role" not in file.model_fields_set and file.roles and default_role not in file.roles:
            default_role = next(iter(file.roles))
        if file.roles and not self.site and default_role not in file.roles:
            near = nearest(file.default_role, list(file.roles))
            self._warn(("default_role",), f"there is no role {file.default_role!r}{near}")
        return Registry(
            source=self.document.source,
            digest=digest,
            default_role=default_role,
            models=models,
            roles=roles,
            users=users,
            tools=tuple(self._tool(name, entry, file) for name, entry in file.tools.items()),
            knowledge=tuple(self._knowledge(name, entry) for name, entry in file.knowledge.items()),
            may_contain=file.sandbox.contain,
            may_accept_level=file.sandbox.accept_level,
            sandbox=_sandbox(file.sandbox) if "sandbox" in file.model_fields_set else None,
            max_rounds=file.max_rounds,
            respond_with_final=file.respond_with_final,
            approve_any_shell=file.approve_any_shell,
            rule_scopes=tuple(scope for scope in RuleScope if scope.value in file.rules.remember),
            servers=self._servers(file),
            workflows=self._workflows(file),
            warnings=tuple(self.warnings),
        )

    def _servers(self, file: RegistryFile) -> tuple[McpServerSpec, ...]:
        if not (file.mcp_servers or file.mcpServers):
            return ()
        from chatops.config.server_read import servers_in  # few registries name servers

        found, warnings = servers_in(self.document, file.mcp_servers, file.mcpServers)
        self.warnings += warnings
        return found

    def _knowledge(self, name: str, entry: KnowledgeEntry) -> KnowledgeSource:
        if name in KNOWN_TOOLS or SERVER_MARK in name:
            raise self.error(("knowledge", name), "a tool may have this name already, so give the source another")
        return KnowledgeSource(name=name, paths=tuple(entry.paths), description=entry.description)

    def _workflows(self, file: RegistryFile) -> tuple[Definition, ...]:
        if not file.workflows:
            return ()
        from chatops.config.workflow_read import definition_in  # slow to import, and few registries need it

        return tuple(
            definition_in(self.document, value, name=name, prefix=("workflows", name))
            for name, value in file.workflows.items()
        )

    def _model(self, name: str, entry: ModelEntry) -> ModelSpec:
        path: Path = ("models", name)
        key = KeySource(
            env=entry.api_key_env,
            file=entry.api_key_file,
            command=tuple(entry.api_key_command),
            keyring=entry.api_key_keyring,
            literal=entry.api_key,
        )
        given = [word for word in (key.env, key.file, key.command, key.keyring, key.literal) if word]
        if len(given) > 1:
            raise self.error(path, "more than one source of a key is given, and only one can count")
        if entry.api_key and entry.api_key.casefold() != "none":
            why = "a key in the file can be read by whoever reads the file; api_key_env or api_key_file is safer"
            self._warn((*path, "api_key"), why)
        if fault := variable_fault(entry.env):
            raise self.error((*path, "env", fault), "this is not a valid variable")
        for header, text in entry.headers.items():
            if not header.isascii() or any(char in "\r\n\0" for char in header + text):
                raise self.error((*path, "headers", header), "this is not a valid header value")
        gemini = entry.type == "gemini"
        return ModelSpec(
            name=name,
            type=ModelType(entry.type) if entry.type in BUILT_IN_TYPES else ModelType.PACKAGE,
            engine="" if entry.type in BUILT_IN_TYPES else entry.type,
            host_type=HostType.GEMINI if gemini else HostType(entry.host_type),
            api_url=entry.api_url or (GEMINI_URL if gemini else ""),
            model_name=entry.model_name,
            label=entry.label,
            key=KeySource(env=GEMINI_KEY) if gemini and not given else key,
            command=tuple(entry.command),
            hosts=tuple(host.lower() for host in entry.hosts),
            env=tuple(entry.env.items()),
            unsandboxed=entry.unsandboxed,
            tool_format=FORMAT_ALIASES.get(entry.tool_format, entry.tool_format),
            context_window=entry.context_window,
            max_output_tokens=entry.max_output_tokens,
            temperature=entry.temperature,
            top_p=entry.top_p,
            stop=(entry.stop,) if isinstance(entry.stop, str) else tuple(entry.stop),
            reasoning_effort=entry.reasoning_effort,
            max_rounds=entry.max_rounds,
            price=None
            if entry.price is None
            else Price(input=entry.price.input, output=entry.price.output, cached_input=entry.price.cached_input),
            timeouts=Timeouts(
                connect=entry.timeout_s.connect,
                first_token=entry.timeout_s.first_token,
                idle=entry.timeout_s.idle,
                total=entry.timeout_s.total,
            ),
            extra_body=json.dumps(entry.extra_body, sort_keys=True),
            headers=tuple(entry.headers.items()),
            user=entry.user,
            stream=entry.stream,
            ca_file=entry.ca_file,
            max_concurrent=entry.max_concurrent,
            images=entry.images,
        )

    def _role(self, name: str, entry: RoleEntry, file: RegistryFile) -> RoleSpec:
        path: Path = ("roles", name)
        known = [*file.models, *BUILT_IN_MODELS]
        models = []
        for key in ("primary", "backup_1", "backup_2", "backup_3", "backup_4", "responder"):
            model = str(getattr(entry, key) or "")
            if model and model not in known and model.partition("/")[0] not in known:
                self._warn((*path, key), f"there is no model {model!r}{nearest(model, known)}")
            if model and key != "responder" and model not in models:
                models.append(model)
        return RoleSpec(
            name=name,
            models=tuple(models),
            system_append=entry.system_append,
            persona=entry.persona,
            color=entry.color,
            tools=None if entry.tools is None else self._listed(entry.tools, (*path, "tools")),
            max_rounds=entry.max_rounds,
            rules=tuple(self._rule(rule, (*path, "rules", index)) for index, rule in enumerate(entry.rules)),
            responder=entry.responder,
            require=required_level(entry.sandbox.require),
            contain=entry.contain,
        )

    def _listed(self, tools: list[str], path: Path) -> tuple[str, ...]:
        return tuple(self._meant(tool, (*path, index)) for index, tool in enumerate(tools))

    def _rule(self, entry: RuleEntry, path: Path) -> Rule:
        tool = self._tool_name(entry.tool, (*path, "tool"))
        try:
            pattern = pattern_from_list(tool, tuple(entry.match))
        except ConfigError as error:
            raise self.error((*path, "match"), str(error).rstrip("."), advice=error.advice) from None
        if entry.verdict == "allow" and not entry.match:
            self._warn(path, "an allow rule without match answers nothing")
        if "*" in entry.match[:-1]:
            self._warn((*path, "match"), "only a * at the end matches further words")
        if entry.workspace and (not BUILT_IN_TOOLS.get(tool, NO_CAPABILITIES).command or entry.verdict != "allow"):
            self._warn((*path, "workspace"), "this counts only in a rule that allows shell_exec")
        return Rule(
            tool=tool, verdict=Verdict(entry.verdict), pattern=pattern, workspace_read=entry.workspace == "read"
        )

    def _user(self, name: str, entry: UserEntry) -> UserSpec:
        path: Path = ("users", name)
        for index, text in enumerate(entry.confirm_allow):
            where: Path = (*path, "confirm_allow", index)
            try:
                tool, pattern = parse_rule(text)
            except ConfigError as error:
                raise self.error(where, str(error).rstrip("."), advice=error.advice) from None
            if isinstance(pattern, AnyArguments) and BUILT_IN_TOOLS.get(tool, NO_CAPABILITIES).runs_anything:
                self._warn(where, f"a bare {tool} would let the model run anything, so it answers nothing")
        denied = [
            self._tool_name(tool, (*path, "confirm_deny", index)) for index, tool in enumerate(entry.confirm_deny)
        ]
        return UserSpec(
            name=name,
            access_level=_level(entry.access_level),
            confirm_allow=tuple(entry.confirm_allow),
            confirm_deny=tuple(denied),
        )

    def _tool(self, name: str, entry: ToolEntry, file: RegistryFile) -> tuple[str, ToolSetting]:
        meant = self._tool_name(name, ("tools", name))
        if meant != name and meant in file.tools:
            raise self.error(("tools", name), f"this is another name of {meant}, which has settings of its own")
        setting = ToolSetting(
            verdict=None if entry.verdict is None else Verdict(entry.verdict),
            min_access=None if entry.min_access is None else _level(entry.min_access),
            timeout_s=entry.timeout_s,
            ports=None if entry.ports is None else tuple(entry.ports),
        )
        if entry.ports and not BUILT_IN_TOOLS.get(meant, NO_CAPABILITIES).url:
            self._warn(("tools", name, "ports"), "this counts only for web_fetch")
        return meant, setting

    def _tool_name(self, name: str, path: Path) -> str:
        """Return the tool that `name` means. A near miss is an error: a restriction on it would restrict nothing."""
        if (
            name not in KNOWN_TOOLS
            and not server_of(name)
            and (near := get_close_matches(name.casefold(), KNOWN_TOOLS, n=1, cutoff=0.8))
        ):
            raise self.error(path, f"there is no tool {name!r}; {near[0]!r} may be meant")
        return self._meant(name, path)

    def _meant(self, name: str, path: Path) -> str:
        """Return the tool that `name` is an alias of, with a warning, or `name` itself."""
        meant = tool_name(name)
        if meant != name:
            self._warn(path, f"{name} is another name of {meant}, so that is what it means")
        return meant


def _inner(model: BaseModel) -> Iterator[tuple[Path, BaseModel]]:
    """Yield the models inside a model, each with its path."""
    for field in type(model).model_fields:
        value = getattr(model, field)
        if isinstance(value, BaseModel):
            yield (field,), value
        elif isinstance(value, dict):
            yield from (((field, key), inner) for key, inner in value.items() if isinstance(inner, BaseModel))


def _siblings(path: Path) -> list[str]:
    """Return the keys that are valid beside the last one of `path`."""
    parts = [part for part in path if isinstance(part, str)]
    model: type[Strict] = ToolEntry
    if "sandbox" in parts[:1]:
        model = SandboxEntry
    elif "roles" in parts[:1] and "sandbox" in parts[2:3]:
        model = RoleSandboxEntry
    elif "users" in parts[:1]:
        model = UserEntry
    elif "rules" in parts[:1]:
        model = RulesEntry
    elif "rules" in parts:
        model = RuleEntry
    return list(model.model_fields)


def _sandbox(entry: SandboxEntry) -> SandboxSpec:
    return SandboxSpec(
        require=required_level(entry.require),
        network=entry.network,
        hosts=tuple(host.lower() for host in entry.hosts),
        git=entry.git,
        read=tuple(entry.read),
        write=tuple(entry.write),
        env=tuple(entry.env),
    )


def _level(word: str) -> AccessLevel:
    return AccessLevel[word.upper()]


def _ignored(file: RegistryFile, *, site: bool) -> Iterator[tuple[Path, str]]:
    """Yield path and reason of each key without effect. `site`: the file is the site registry."""
    for name, model in file.models.items():
        if reason := _format(model.tool_format):
            yield ("models", name, "tool_format"), reason
    if site:
        yield from _only_for_users(file)
    elif file.approve_any_shell:
        yield ("approve_any_shell",), "only the site registry can permit this, so it has no effect here"


def _only_for_users(file: RegistryFile) -> Iterator[tuple[Path, str]]:
    for key in ("default_role", "respond_with_final"):
        if getattr(file, key) != RegistryFile.model_fields[key].default:
            yield (key,), "only a user's registry sets this, so it has no effect in the site's"


def _format(name: str) -> str:
    """Return what is wrong with a `tool_format`; empty if nothing is."""
    if name in FREE_FORMATS or name in FORMAT_ALIASES:
        return ""
    from chatops.dialects.writing import WRITABLE  # slow to import, and few registries name a format

    if name in WRITABLE:
        return ""
    near = get_close_matches(name.casefold(), [*FREE_FORMATS, *WRITABLE], n=1)
    hint = f"{near[0]!r} may be meant" if near else f"there are auto, native, {', '.join(sorted(WRITABLE))}"
    return f"there is no format {name!r} to ask a model for, so auto is used; {hint}"
