"""The registry file as pydantic models. Unknown keys are errors in objects that decide rights.

Values are validated strictly, so that a damaged file is not misread: ``"10"`` is not a number and ``1`` is not a
boolean.
"""

import re
from collections.abc import Mapping
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
"""JSON Schema of objects with free keys."""


def free_key(key: str) -> bool:
    """Return True if a key is for other programs or for notes: ``$schema`` and ``x-…``."""
    return key == "$schema" or key.startswith("x-")


class Strict(BaseModel):
    """Base of objects that decide rights: an unknown key is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=FREE_IN_SCHEMA, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_free_keys(cls, value: object) -> object:
        if isinstance(value, dict):
            return {key: inner for key, inner in value.items() if not free_key(str(key))}
        return value


class Lenient(BaseModel):
    """Base of objects that decide no rights: an unknown key is a warning."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=(), defer_build=True)
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
    """Input tokens."""
    output: Annotated[float, Field(ge=0)] = 0.0
    """Output tokens."""
    cached_input: Annotated[float, Field(ge=0)] | None = None
    """Input tokens that come from the prompt cache; left out: as `input`."""


class TimeoutEntry(Lenient):
    """Seconds."""

    connect: Seconds = 5.0
    """Until the connection is open."""
    first_token: Seconds = 120.0
    """Until the first token of a reply."""
    idle: Seconds = 60.0
    """Between two tokens."""
    total: Seconds = 1_800.0
    """For a whole reply."""


def _known_type(word: str) -> str:
    if word in BUILT_IN_TYPES or any(entry.name == word for entry in installed(ENGINES)):
        return word
    raise ValueError(f"is not a model type: expected {', '.join(BUILT_IN_TYPES)}, or an engine of a package")


BUILT_IN_TYPES = ("openai", "gemini", "cli", "demo")
ModelTypeWord = Annotated[
    str,
    AfterValidator(_known_type),
    WithJsonSchema({"anyOf": [{"enum": list(BUILT_IN_TYPES)}, {"type": "string"}]}),
]
"""A built-in type, or the name of an engine of an installed package."""


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variable_fault(variables: Mapping[str, str]) -> str:
    """Return the name of the first variable that cannot be one of a program; empty if all can."""
    return next((name for name, value in variables.items() if not _VARIABLE.fullmatch(name) or "\0" in value), "")


class ModelEntry(Lenient):
    """A model and how to talk to it."""

    type: ModelTypeWord = "openai"
    """The engine: ``openai`` (any OpenAI-compatible server), ``gemini``, ``cli``, ``demo``, or one of a package."""
    host_type: Literal["openai", "openwebui", "ollama", "vllm", "llamacpp", "litellm", "openrouter", "lmstudio"] = (
        "openai"
    )
    """Kind of the server: its base path and quirks."""
    api_url: str = ""
    """Address of the server."""
    model_name: str = ""
    """Name of the model at the server."""
    label: str = ""
    """Name of the model on the screen; left out: the name of the entry."""
    api_key: str = Field(default="", repr=False)
    """The key itself. Prefer one of the next four."""
    api_key_env: str = ""
    """Environment variable that holds the key."""
    api_key_file: str = ""
    """File that holds the key, with mode 0600."""
    api_key_command: list[str] = Field(default_factory=list)
    """Command that prints the key."""
    api_key_keyring: str = ""
    """Entry of the system's keyring, as ``SERVICE/NAME``."""
    command: list[str] = Field(default_factory=list)
    """For type cli: the program and its options."""
    hosts: Hosts = Field(default_factory=list)
    """For type cli: hosts that the program reaches besides its own."""
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """For type cli: variables of the program. ``${NAME}`` in a value is a variable of chatops."""
    unsandboxed: bool = False
    """For type cli: run the program where there is no sandbox, with your files and your network."""
    tool_format: str = "auto"
    """``auto``, ``native`` (only the calls of the API), or the text format to ask the model for, such as ``hermes``."""
    context_window: Tokens | None = None
    """Tokens that the server takes in all; left out: unknown."""
    max_output_tokens: Tokens | None = None
    """Maximum number of tokens of a reply; left out: the server's own limit."""
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    """Left out: the server's own."""
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Left out: the server's own."""
    stop: str | list[str] = Field(default_factory=list)
    """Texts that end a reply."""
    reasoning_effort: str = ""
    """Sent as it is, to servers that know it."""
    max_rounds: Rounds | None = None
    """Maximum number of model calls of a turn. The strictest of registry, model and role counts."""
    price: PriceEntry | None = None
    """Price of tokens; if left out, the known price of public providers."""
    timeout_s: TimeoutEntry = Field(default_factory=TimeoutEntry)
    """Time limits in seconds."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further keys of each request."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Further headers of each request."""
    user: str = ""
    """Name of the user for the server."""
    stream: bool = True
    """False: ask for whole replies."""
    ca_file: str = ""
    """File with the certificates to trust instead of the usual ones."""
    max_concurrent: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of requests at the same time."""
    images: bool | None = None
    """True if the model takes images; left out: known for common families."""


class RuleEntry(Strict):
    """A verdict on the calls of one tool that match."""

    tool: Name
    """Name of the tool."""
    verdict: VerdictWord
    """Verdict on matching calls. ``allow`` needs a `match`."""
    match: list[str] = Field(default_factory=list)
    """For shell_exec: the words of the command, the last of which may be ``*``. For files: one path glob. For the web:
    one host pattern. Left out: all calls.
    """
    workspace: Literal["read"] | None = None
    """``read``: a command that the rule allows gets the workspace read-only in the sandbox."""


class RoleSandboxEntry(Strict):
    """The sandbox level that a role needs. It can only raise what the registry requires."""

    require: RequiredLevel = "none"
    """As in `sandbox`."""


def _colour(text: str) -> str:
    if text and text not in ROLE_COLOURS and not _HEX.fullmatch(text):
        raise ValueError(f"is not a colour: expected {', '.join(ROLE_COLOURS)} or #rrggbb")
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
    """The model that answers; ``default`` is the user's own choice."""
    backup_1: Name | None = None
    """Tried only before the first token, when the models before it cannot be reached."""
    backup_2: Name | None = None
    backup_3: Name | None = None
    backup_4: Name | None = None
    system_append: str = ""
    """Added to the prompt, closest to the turn."""
    persona: str = ""
    """Name of a file in `personas`, without ``.md``."""
    color: RoleColour = ""
    """Colour of the role on the screen: a name, or ``#rrggbb``."""
    tools: list[str] | None = None
    """Tools of the role, of those that the user may have; ``[]`` for none, left out for all. ``SERVER__*`` means all
    tools of an MCP server.
    """
    max_rounds: Rounds | None = None
    """Maximum number of model calls of a turn."""
    rules: list[RuleEntry] = Field(default_factory=list)
    """Verdicts on calls by their arguments."""
    responder: str = ""
    """The model that writes the final answer from what the first one gathered."""
    sandbox: RoleSandboxEntry = Field(default_factory=RoleSandboxEntry)
    """The sandbox level that the role needs."""
    contain: bool = False
    """True if the role's turns work on a copy of the workspace, and ask once about all changes at the end."""


class UserEntry(Strict):
    """Rights of a user or a group."""

    access_level: LevelWord = "user"
    """The most that the user may have."""
    confirm_allow: list[str] = Field(default_factory=list)
    """Rules that answer calls which would ask, such as ``file_edit:src/**``."""
    confirm_deny: list[str] = Field(default_factory=list)
    """Tools that never run."""


class ToolEntry(Strict):
    """Settings of a tool."""

    verdict: VerdictWord | None = None
    """Default verdict on the calls of the tool. Only the site registry can make it milder."""
    min_access: LevelWord | None = None
    """The lowest access level that has the tool. Only the site registry can lower it."""
    timeout_s: Seconds | None = None
    """Maximum number of seconds of a call."""
    ports: list[Annotated[int, Field(ge=1, le=65_535)]] | None = None
    """For ``web_fetch``: ports that it may connect to besides 80 and 443."""


class SandboxEntry(Strict):
    """Limits of what commands may see, write and reach."""

    require: RequiredLevel = "none"
    """The lowest level at which commands run."""
    network: bool = False
    """True: commands reach the whole network."""
    hosts: Hosts = Field(default_factory=list)
    """Hosts that commands reach through the proxy: ``NAME``, ``*.NAME`` or ``NAME:PORT``."""
    read: list[str] = Field(default_factory=list)
    """Absolute paths that commands may read besides the usual ones."""
    write: list[str] = Field(default_factory=list)
    """Absolute paths that commands may write besides the workspace."""
    git: GitAccess = "protect"
    """Access of commands to `.git`: none, to what a commit changes, or to all of it."""
    env: list[Name] = Field(default_factory=list)
    """Names of environment variables that commands get."""
    contain: bool = True
    """False: no turn can be contained."""
    accept_level: bool = True
    """False: `accept_level` of MCP servers has no effect, so the user is asked about each start below level basic."""


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
    """Version of the format."""
    default_role: Name = "assistant"
    """The role of a new session."""
    models: dict[Name, ModelEntry] = Field(default_factory=dict)
    """Models by name. `env`, `demo` and `claude_cli` always exist."""
    roles: dict[Name, RoleEntry] = Field(default_factory=dict)
    """Roles by name."""
    users: dict[Name, UserEntry] | None = None
    """Login names and ``@unixgroup`` with their rights; ``*`` is everyone else."""
    tools: dict[Name, ToolEntry] = Field(default_factory=dict)
    """Settings of tools by name."""
    sandbox: SandboxEntry = Field(default_factory=SandboxEntry)
    """Limits of commands."""
    rules: RulesEntry = Field(default_factory=RulesEntry)
    """Limits of remembered rules."""
    mcp_servers: dict[str, JsonValue] = Field(default_factory=dict)
    """MCP servers by name. `config.server_read` reads them."""
    mcpServers: dict[str, JsonValue] = Field(default_factory=dict)
    """The same, as other programs write it."""
    knowledge: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")], KnowledgeEntry] = Field(
        default_factory=dict
    )
    """Folders of documents, each a tool of its own."""
    workflows: dict[str, JsonValue] = Field(default_factory=dict)
    """Workflows by name. `config.workflow_read` reads them."""
    max_rounds: Rounds | None = None
    """Maximum number of model calls of any turn; left out: 10."""
    respond_with_final: bool = True
    """False: a short result without the persona, as `--summary`."""
    approve_any_shell: bool = False
    """For the site registry: let `--approve` name shell_exec and python_exec without a pattern."""

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
