"""The registry as values: the content of `model_registry.json`, parsed and checked."""

import shlex
from dataclasses import dataclass, field, replace
from enum import StrEnum

from chatops.domain.decisions import RuleScope
from chatops.domain.rights import AccessLevel, Verdict
from chatops.domain.sandbox import NARROWEST, SandboxLevel, SandboxSpec
from chatops.policy.verdicts import Rule
from chatops.policy.workflow import Definition


class ModelType(StrEnum):
    """Type of a model, which selects its adapter."""

    OPENAI = "openai"
    GEMINI = "gemini"
    CLI = "cli"
    DEMO = "demo"
    PACKAGE = "package"
    """An engine of an installed package; `ModelSpec.engine` names it, and so does the type in the registry."""

    @property
    def has_server(self) -> bool:
        """True if models of this type answer chat completions over HTTP."""
        return self in {ModelType.OPENAI, ModelType.GEMINI}


class HostType(StrEnum):
    """Kind of server: base path and quirks."""

    OPENAI = "openai"
    OPENWEBUI = "openwebui"
    OLLAMA = "ollama"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    LITELLM = "litellm"
    OPENROUTER = "openrouter"
    LMSTUDIO = "lmstudio"
    GEMINI = "gemini"
    """Set by the model's type, not by the key `host_type`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in seconds: to connect, to the first token, between two chunks, and for the whole reply."""

    connect: float = 5.0
    first_token: float = 120.0
    idle: float = 60.0
    total: float = 1_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price per million tokens, in a currency of the user's choice."""

    input: float = 0.0
    output: float = 0.0
    cached_input: float | None = None
    """Price of input tokens that the server read from its cache; None: the same as `input`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Source of a model's key; at most one field is set. The key itself is read late and never stored."""

    env: str = ""
    file: str = ""
    command: tuple[str, ...] = ()
    keyring: str = ""
    literal: str = field(default="", repr=False)


class EntryWarning(str):
    """A warning that matters only where the role or model `entry` is in use: its section and its name there."""

    entry: tuple[str, str]

    def __new__(cls, text: str, *, entry: tuple[str, str]) -> "EntryWarning":
        """Make the sentence."""
        made = super().__new__(cls, text)
        made.entry = entry
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model and how to connect to it."""

    name: str
    type: ModelType = ModelType.OPENAI
    engine: str = ""
    """For type package: the name of the engine."""
    host_type: HostType = HostType.OPENAI
    api_url: str = ""
    model_name: str = ""
    label: str = ""
    key: KeySource = KeySource()
    command: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """For type cli: hosts that the program reaches besides those that it is known to need."""
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """For type cli: variables of the program. ``${NAME}`` in a value stands for a variable of chatops."""
    unsandboxed: bool = False
    """For type cli: True if the user permits the program to run where there is no sandbox."""
    tool_format: str = "auto"
    context_window: int | None = None
    """None if it is unknown."""
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str = ""
    max_rounds: int | None = None
    price: Price | None = None
    timeouts: Timeouts = Timeouts()
    extra_body: str = "{}"
    """JSON object text, merged into the request body."""
    headers: tuple[tuple[str, str], ...] = ()
    user: str = ""
    stream: bool = True
    ca_file: str = ""
    max_concurrent: int | None = None
    images: bool | None = None
    """True if the model takes images; None: by its family, see `models.images`."""

    def sibling(self, model_name: str) -> "ModelSpec":
        """Return another model of the same server, without what is known of this one."""
        return replace(
            self,
            name=f"{self.name}/{model_name}",
            model_name=model_name,
            label=model_name,
            tool_format="auto",
            context_window=None,
            max_output_tokens=None,
            price=None,
            images=None,
        )


ROLE_COLOURS = ("blue", "cyan", "purple", "teal", "orange", "pink")
"""Names of colours for roles. A frontend has a shade of each for a dark and for a light background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """A role. `tools` None: all that the access level permits; empty: none."""

    name: str
    models: tuple[str, ...] = ("default",)
    """primary, backup_1 … backup_4; ``default`` is the user's stored choice."""
    system_append: str = ""
    persona: str = ""
    color: str = ""
    """One of `ROLE_COLOURS` or ``#rrggbb``; empty: chosen by the frontend."""
    tools: tuple[str, ...] | None = None
    max_rounds: int | None = None
    rules: tuple[Rule, ...] = ()
    responder: str = ""
    require: SandboxLevel = SandboxLevel.NONE
    """Sandbox level that commands of the role need, on top of what the registry requires."""
    contain: bool = False
    """True if the role's turns are contained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpec:
    """Rights of a login name, an ``@unixgroup`` or ``*``. The strictest match wins."""

    name: str
    access_level: AccessLevel = AccessLevel.USER
    confirm_allow: tuple[str, ...] = ()
    """Rules in the syntax of ``--approve`` that answer an ask."""
    confirm_deny: tuple[str, ...] = ()
    """Tools that are denied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSetting:
    """Settings of a registry for a tool; None keeps the tool's own value."""

    verdict: Verdict | None = None
    min_access: AccessLevel | None = None
    timeout_s: float | None = None
    ports: tuple[int, ...] | None = None
    """For ``web_fetch``: ports besides 80 and 443 that it may connect to."""


SERVER_MARK = "__"
"""Stands between the name of an MCP server and the name of its tool: ``time__get_current_time``."""


class ServerTransport(StrEnum):
    """How to reach an MCP server."""

    STDIO = "stdio"
    """chatops starts it, and talks to it over its standard streams."""
    HTTP = "http"
    """Streamable HTTP; servers that only know SSE are found too."""
    SSE = "sse"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackage:
    """A package that `chatops mcp add` installed for a server."""

    package: str
    """Name and version."""
    folder: str
    digest: str
    """Of everything in `folder`. A server whose package has changed since is not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerSpec:
    """An MCP server: a command that chatops starts, or a URL."""

    name: str
    transport: ServerTransport
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Variables of the command. ``${NAME}`` in a value stands for a variable of chatops."""
    cwd: str = ""
    """Folder that the command starts in, absolute; empty: the workspace."""
    sandbox: SandboxSpec = NARROWEST
    writes_workspace: bool = False
    """True if the command may write in the workspace, which it else only sees."""
    accept_level: SandboxLevel = SandboxLevel.BASIC
    """Lowest level of the sandbox at which the command starts without asking the user."""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent to the host of `url` only. ``${NAME}`` as in `env`."""
    oauth: bool = False
    tool_names: tuple[str, ...] | None = None
    """The tools to use, by the server's names; None: all."""
    tools: tuple[tuple[str, ToolSetting], ...] = ()
    """Verdict and access level of tools, by the server's names."""
    timeout_s: float = 60.0
    """Default limit of a call in seconds."""
    installed: InstalledPackage | None = None

    @property
    def origin(self) -> str:
        """The command as one line, or the URL."""
        return self.url or shlex.join(self.command)


def mcp_source(server: str) -> str:
    """Return the source of the tools of an MCP server, as specs and lists name it."""
    return f"MCP server {server}"


def server_of(tool: str) -> str:
    """Return the name of the MCP server that `tool` names by its form; empty if it names none."""
    server, mark, name = tool.partition(SERVER_MARK)
    return server if mark and name else ""


KNOWLEDGE_TOOL = "knowledge_search"
"""The tool that searches all sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeSource:
    """Folders of documents that a tool of this name searches."""

    name: str
    paths: tuple[str, ...]
    """Absolute, or below ``~``."""
    description: str = ""
    """For the model: what the documents are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """One registry file as values. Mappings are tuples of specs with unique names, in file order."""

    source: str
    """Path, or a word such as ``packaged``."""
    digest: str
    default_role: str = "assistant"
    models: tuple[ModelSpec, ...] = ()
    roles: tuple[RoleSpec, ...] = ()
    users: tuple[UserSpec, ...] | None = None
    """None: the file has no `users` key."""
    tools: tuple[tuple[str, ToolSetting], ...] = ()
    knowledge: tuple[KnowledgeSource, ...] = ()
    may_contain: bool = True
    """False if no turn can be contained."""
    may_accept_level: bool = True
    """False if `McpServerSpec.accept_level` has no effect: below level basic the user is asked."""
    sandbox: SandboxSpec | None = None
    """None: the file has no `sandbox` key. Use `policy.resolve.sandbox_layers`, which combines both registries."""
    max_rounds: int | None = None
    respond_with_final: bool = True
    approve_any_shell: bool = False
    """Only honoured in a site registry: a bare ``--approve shell_exec`` is then accepted."""
    rule_scopes: tuple[RuleScope, ...] = tuple(RuleScope)
    """Scopes of remembered rules that the file leaves on. In the site registry they bind everyone."""
    servers: tuple[McpServerSpec, ...] = ()
    """MCP servers."""
    workflows: tuple[Definition, ...] = ()
    """Workflows of the file itself. Those in files beside it are found by `config.workflow_files`."""
    warnings: tuple[str, ...] = ()
    """Those about a role or a model are each an `EntryWarning`."""

    def model(self, name: str) -> ModelSpec | None:
        """Return the model of that name."""
        return next((model for model in self.models if model.name == name), None)

    def role(self, name: str) -> RoleSpec | None:
        """Return the role of that name."""
        return next((role for role in self.roles if role.name == name), None)


Registries = tuple[Registry | None, Registry]
"""The site registry, if there is one, and the user's."""
