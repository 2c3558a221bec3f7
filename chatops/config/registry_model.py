"""The registry file as pydantic models. Unknown keys are errors in objects that decide rights.

Values are validated strictly, so that a damaged file is not misread: ``"10"`` is not a number and ``1`` is not a
boolean.
"""

import re
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from chatops.config.packages import ENGINES, installed
from chatops.domain.rights import LevelWord, VerdictWord
from chatops.domain.sandbox import GitAccess, SandboxLevel
from chatops.policy.registry import ROLE_COLOURS
from chatops.policy.sandbox import host_problem

RequiredLevel = Literal["none", "landlock", "basic", "bubblewrap", "hard"]
"""Names of `domain.sandbox.SandboxLevel`; ``bubblewrap`` is another name of ``basic``."""


def required_level(word: RequiredLevel) -> SandboxLevel:
    """Return the level that `word` names."""
    return SandboxLevel.BASIC if word == "bubblewrap" else SandboxLevel[word.upper()]


ScopeWord = Literal["session", "folder", "role"]
Name = Annotated[str, Field(min_length=1, max_length=200)]
_HEX = re.compile("#[0-9a-fA-F]{6}")
Rounds = Annotated[int, Field(ge=1, le=99)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Tokens = Annotated[int, Field(ge=1)]


FREE_IN_SCHEMA: JsonDict = {"patternProperties": {r"^(\$schema$|x-)": True}}
"""JSON Schema for the keys that are free."""


def free_key(key: str) -> bool:
    """Return True if a key is for other programs or for notes: ``$schema`` and ``x-…``."""
    return key == "$schema" or key.startswith("x-")


class Strict(BaseModel):
    """Base of objects that decide rights: an unknown key is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=FREE_IN_SCHEMA)

    @model_validator(mode="before")
    @classmethod
    def _without_free_keys(cls, value: object) -> object:
        if isinstance(value, dict):
            return {key: inner for key, inner in value.items() if not free_key(str(key))}
        return value


class Lenient(BaseModel):
    """Base of objects that decide no rights: an unknown key is a warning."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())
    rights_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that would widen rights if misspelled, so a near miss is an error."""


def _reachable(value: list[str]) -> list[str]:
    for entry in value:
        if problem := host_problem(entry):
            raise ValueError(f"{entry!r} is not a valid entry of hosts: {problem}")
    return value


Hosts = Annotated[list[Name], AfterValidator(_reachable)]
"""Hosts that a program reaches through the proxy."""


class PriceEntry(Lenient):
    """Per million tokens."""

    input: Annotated[float, Field(ge=0)] = 0.0
    output: Annotated[float, Field(ge=0)] = 0.0
    cached_input: Annotated[float, Field(ge=0)] | None = None


class TimeoutEntry(Lenient):
    """Seconds."""

    connect: Seconds = 5.0
    first_token: Seconds = 120.0
    idle: Seconds = 60.0
    total: Seconds = 3_600.0


def _known_type(word: str) -> str:
    if word in BUILT_IN_TYPES or any(entry.name == word for entry in installed(ENGINES)):
        return word
    raise ValueError(f"is no type of models: expected {', '.join(BUILT_IN_TYPES)}, or an engine of a package")


BUILT_IN_TYPES = ("openai", "gemini", "cli", "demo")
ModelTypeWord = Annotated[
    str,
    AfterValidator(_known_type),
    WithJsonSchema({"anyOf": [{"enum": list(BUILT_IN_TYPES)}, {"type": "string"}]}),
]
"""A built-in type, or the name of an engine of an installed package."""


class ModelEntry(Lenient):
    """A model and how to talk to it."""

    type: ModelTypeWord = "openai"
    host_type: Literal["openai", "openwebui", "ollama", "vllm", "llamacpp", "litellm", "openrouter", "lmstudio"] = (
        "openai"
    )
    api_url: str = ""
    model_name: str = ""
    label: str = ""
    api_key: str = Field(default="", repr=False)
    api_key_env: str = ""
    api_key_file: str = ""
    api_key_command: list[str] = Field(default_factory=list)
    api_key_keyring: str = ""
    command: list[str] = Field(default_factory=list)
    hosts: Hosts = Field(default_factory=list)
    """For type cli: hosts that the program reaches besides its own."""
    unsandboxed: bool = False
    """For type cli: run the program where there is no sandbox, with your files and your network."""
    tool_format: str = "auto"
    context_window: Tokens = 32_768
    max_output_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: str | list[str] = Field(default_factory=list)
    reasoning_effort: str = ""
    max_rounds: Rounds | None = None
    price: PriceEntry | None = None
    timeout_s: TimeoutEntry = Field(default_factory=TimeoutEntry)
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    user: str = ""
    stream: bool = True
    ca_file: str = ""
    max_concurrent: Annotated[int, Field(ge=1)] | None = None
    images: bool | None = None
    """True if the model takes images; left out: known for common families."""


class RuleEntry(Strict):
    """A verdict on the calls of one tool that match."""

    tool: Name
    verdict: VerdictWord
    match: list[str] = Field(default_factory=list)
    workspace: Literal["read"] | None = None
    """``read``: a command that the rule allows gets the workspace read-only in the sandbox."""


class RoleSandboxEntry(Strict):
    """The sandbox level that a role needs. It can only raise what the registry requires."""

    require: RequiredLevel = "none"


def _colour(text: str) -> str:
    if text and text not in ROLE_COLOURS and not _HEX.fullmatch(text):
        raise ValueError(f"is no colour: expected {', '.join(ROLE_COLOURS)} or #rrggbb")
    return text


RoleColour = Annotated[
    str,
    AfterValidator(_colour),
    WithJsonSchema({"anyOf": [{"enum": list(ROLE_COLOURS)}, {"type": "string", "pattern": f"^{_HEX.pattern}$"}]}),
]


class RoleEntry(Lenient):
    """A role; without an optional key it behaves as if the key did not exist."""

    rights_keys: ClassVar[frozenset[str]] = frozenset({"tools", "rules", "max_rounds", "sandbox", "contain"})

    primary: Name = "default"
    backup_1: Name | None = None
    backup_2: Name | None = None
    backup_3: Name | None = None
    backup_4: Name | None = None
    system_append: str = ""
    persona: str = ""
    color: RoleColour = ""
    """Colour of the role on the screen: a name, or ``#rrggbb``."""
    tools: list[str] | None = None
    max_rounds: Rounds | None = None
    rules: list[RuleEntry] = Field(default_factory=list)
    responder: str = ""
    sandbox: RoleSandboxEntry = Field(default_factory=RoleSandboxEntry)
    contain: bool = False
    """True if the role's turns work on a copy of the workspace, and ask once about all changes at the end."""


class UserEntry(Strict):
    """Rights of a user or a group."""

    access_level: LevelWord = "user"
    confirm_allow: list[str] = Field(default_factory=list)
    confirm_deny: list[str] = Field(default_factory=list)


class ToolEntry(Strict):
    """Settings of a tool."""

    verdict: VerdictWord | None = None
    min_access: LevelWord | None = None
    timeout_s: Seconds | None = None
    ports: list[Annotated[int, Field(ge=1, le=65_535)]] | None = None
    """For ``web_fetch``: ports that it may connect to besides 80 and 443."""


class SandboxEntry(Strict):
    """Limits of what commands may see, write and reach."""

    require: RequiredLevel = "none"
    network: bool = False
    hosts: Hosts = Field(default_factory=list)
    """Hosts that commands reach through the proxy: ``NAME``, ``*.NAME`` or ``NAME:PORT``."""
    read: list[str] = Field(default_factory=list)
    write: list[str] = Field(default_factory=list)
    git: GitAccess = "protect"
    env: list[Name] = Field(default_factory=list)
    contain: bool = True
    """False: no turn can be contained."""


class KnowledgeEntry(Strict):
    """Folders of documents that a tool of this name searches."""

    paths: list[Annotated[str, Field(pattern=r"^(/|~(/|$))")]] = Field(min_length=1)
    """Absolute, or below ``~``."""
    description: Annotated[str, Field(max_length=1_000)] = ""
    """For the model: what the documents are about."""


class RulesEntry(Strict):
    """Limits of the rules that users make with a decision on a call."""

    remember: list[ScopeWord] = Field(default_factory=lambda: list(get_args(ScopeWord)))
    """Scopes that rules may have; a scope that is not listed is off, also for rules stored already."""


class RegistryFile(Lenient):
    """A whole ``model_registry.json``, version 3."""

    rights_keys: ClassVar[frozenset[str]] = frozenset(
        {"users", "tools", "roles", "rules", "sandbox", "max_rounds", "mcp_servers", "mcpServers"}
    )

    version: Literal[3] = 3
    default_role: Name = "assistant"
    models: dict[Name, ModelEntry] = Field(default_factory=dict)
    roles: dict[Name, RoleEntry] = Field(default_factory=dict)
    users: dict[Name, UserEntry] | None = None
    tools: dict[Name, ToolEntry] = Field(default_factory=dict)
    sandbox: SandboxEntry = Field(default_factory=SandboxEntry)
    rules: RulesEntry = Field(default_factory=RulesEntry)
    mcp_servers: dict[str, JsonValue] = Field(default_factory=dict)
    """Validated by `config.server_read`."""
    mcpServers: dict[str, JsonValue] = Field(default_factory=dict)
    """The same, as other programs write it."""
    knowledge: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")], KnowledgeEntry] = Field(
        default_factory=dict
    )
    workflows: dict[str, JsonValue] = Field(default_factory=dict)
    """Validated one by one by `config.workflow_read`."""
    max_rounds: Rounds | None = None
    respond_with_final: bool = True
    approve_any_shell: bool = False

    @field_validator(
        "models", "roles", "users", "tools", "knowledge", "workflows", "mcp_servers", "mcpServers", mode="before"
    )
    @classmethod
    def _without_notes(cls, value: object) -> object:
        """Drop notes between the entries (``"x-note": "…"``). An object stays an entry, whatever its name.

        A user or role may be called x-ray, and a restriction on it must not be dropped as a note.
        """
        if isinstance(value, dict):
            return {key: inner for key, inner in value.items() if isinstance(inner, dict) or not free_key(str(key))}
        return value


def json_schema() -> dict[str, object]:
    """Return the schema that ``chatops registry schema`` prints."""
    from pydantic.json_schema import models_json_schema

    from chatops.config.server_read import ServerEntry
    from chatops.config.workflow_read import WorkflowEntry

    entries = (WorkflowEntry, ServerEntry)
    _, schema = models_json_schema([(entry, "validation") for entry in (RegistryFile, *entries)])
    definitions = schema["$defs"]
    file = definitions.pop(RegistryFile.__name__)
    for key, entry in (("workflows", WorkflowEntry), ("mcp_servers", ServerEntry), ("mcpServers", ServerEntry)):
        file["properties"][key]["additionalProperties"] = {"$ref": f"#/$defs/{entry.__name__}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **file,
        "$defs": definitions,
        "title": "chatops model_registry.json",
    }
