"""The registry as values: the content of `model_registry.json`, parsed and checked.

Each class with a `__pydantic_config__` is an object of the file. Its fields are the keys of that object, and their
docstrings are the reference of the registry in the documentation. An unknown key is an error in a `STRICT` object and a
warning in a `LENIENT` one, whose `rights_keys` are those that would widen rights if misspelled. `spelled.py` says how a
file spells the values: `Spelled(form, meaning)`.

`Registry`, at the end, is a whole file: what the sections mean, without their keys.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Interval, Len, MaxLen

from chatops.domain.decisions import ArgumentPattern, RuleScope
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import Credential, SandboxLevel, SandboxSpec
from chatops.domain.tools import AccessLevel, Verdict
from chatops.policy.budget import MAX_LIMITS, NO_BUDGET, Budget
from chatops.policy.rule_syntax import pattern_from_list
from chatops.policy.sandbox import host_problem
from chatops.policy.servers import McpServerSpec, SandboxLimits, ToolSetting
from chatops.policy.spelled import (
    LENIENT,
    STRICT,
    Access,
    EntryName,
    Hosts,
    Matches,
    Name,
    OneOrMore,
    Required,
    Rounds,
    Seconds,
    Spelled,
    Texts,
    Tokens,
)
from chatops.policy.workflow import Definition


class ModelType(StrEnum):
    """Built-in type of a model, which selects its adapter."""

    OPENAI = "openai"
    GEMINI = "gemini"
    CLI = "cli"
    DEMO = "demo"


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


@frozen_dataclass
class Timeouts:
    """Seconds."""

    __pydantic_config__ = LENIENT
    rights_keys: ClassVar[frozenset[str]] = frozenset()

    connect: Seconds = 5.0
    """Until the connection is open."""
    first_token: Seconds = 120.0
    """Until the first token of a reply."""
    idle: Seconds = 60.0
    """Between two tokens."""
    total: Seconds = 1_800.0
    """For a whole reply."""


@frozen_dataclass
class Price:
    """Per million tokens."""

    __pydantic_config__ = LENIENT
    rights_keys: ClassVar[frozenset[str]] = frozenset()

    input: Annotated[float, Ge(0)] = 0.0
    """Input tokens. A price without it or without `output` is left out."""
    output: Annotated[float, Ge(0)] = 0.0
    """Output tokens."""
    cached_input: Annotated[float, Ge(0)] | None = None
    """Input tokens that come from the prompt cache; left out: as `input`."""


@frozen_dataclass
class KeySource:
    """Source of a model's key; at most one field is set. The key itself is read late and never stored."""

    env: str = ""
    file: str = ""
    command: tuple[str, ...] = ()
    keyring: str = ""
    literal: str = field(default="", repr=False)


@frozen_dataclass(kw_only=False)
class RegistryWarning:
    """Something in a registry that has no effect, or a doubtful one."""

    text: str
    """A sentence, with its position where it is about a key."""
    entry: tuple[str, str] | None = None
    """Section and name of the role or model outside of which it does not matter; None: it always does."""


FORMAT_ALIASES = {"json": "llama3_json", "function_tag": "llama3_function_tag", "python_list": "pythonic"}
"""Names from Llama Stack's `ToolPromptFormat`, which older registries use."""
_TYPES = {kind.value: kind for kind in ModelType}
_TypeWord = Spelled(str, lambda word: _TYPES.get(word, word), {"anyOf": [{"enum": [*_TYPES]}, {"type": "string"}]})
"""The word of a built-in type, or the name of an engine of a package."""
_HostWord = Literal["openai", "openwebui", "ollama", "vllm", "llamacpp", "litellm", "openrouter", "lmstudio"]


_SEES_IMAGES = (
    r"gpt-(4o|4\.1|4-turbo|[5-9])|(^|/)o[134](-|$)|claude|gemini|gemma-?3|llava|pixtral|llama-?4|vision|[-_.0-9]vl\b"
    r"|internvl|minicpm-v|kimi-k2\.[5-9]|glm-4\.\dv|mistral-(small|medium)-3"
)
"""Families of models that are known to take images, by their `model_name`. Not compiled before it is needed."""


@frozen_dataclass
class ModelSpec:
    """A model and how to talk to it."""

    __pydantic_config__ = LENIENT
    rights_keys: ClassVar[frozenset[str]] = frozenset()

    name: EntryName
    type: Annotated[ModelType | str, _TypeWord] = ModelType.OPENAI
    """The engine: ``openai`` (any OpenAI-compatible server), ``gemini``, ``cli``, ``demo``, or one of a package."""
    host_type: Annotated[HostType, Spelled(_HostWord, HostType)] = HostType.OPENAI
    """Kind of the server: its base path and quirks."""
    api_url: str = ""
    """Address of the server."""
    model_name: str = ""
    """Name of the model at the server."""
    label: str = ""
    """Name of the model on the screen; left out: the name of the entry."""
    api_key: str = field(default="", repr=False)
    """The key itself. Prefer one of the next four."""
    api_key_env: str = ""
    """Environment variable that holds the key."""
    api_key_file: str = ""
    """File that holds the key, with mode 0600."""
    api_key_command: tuple[str, ...] = ()
    """Command that prints the key."""
    api_key_keyring: str = ""
    """Entry of the system's keyring, as ``SERVICE/NAME``."""
    command: tuple[str, ...] = ()
    """For type cli: the program and its options."""
    hosts: Hosts = ()
    """For type cli: hosts that the program reaches besides its own."""
    env: Texts = field(default=(), repr=False)
    """For type cli: variables of the program. ``${NAME}`` in a value is a variable of chatops."""
    unsandboxed: bool = False
    """For type cli: run the program where there is no sandbox, with your files and your network."""
    tool_format: Annotated[str, Spelled(str, lambda word: FORMAT_ALIASES.get(word, word))] = "auto"
    """``auto``, ``native`` (only the calls of the API), or the text format to ask the model for, such as ``hermes``."""
    context_window: Tokens | None = None
    """Tokens that the server takes in all; left out: unknown."""
    max_output_tokens: Tokens | None = None
    """Maximum number of tokens of a reply; left out: the server's own limit."""
    temperature: Annotated[float, Interval(ge=0, le=10)] | None = None
    """Left out: the server's own."""
    top_p: Annotated[float, Interval(ge=0, le=1)] | None = None
    """Left out: the server's own."""
    stop: OneOrMore = ()
    """Texts that end a reply."""
    reasoning_effort: str = ""
    """Sent as it is, to servers that know it."""
    max_rounds: Rounds | None = None
    """Maximum number of model calls of a turn. The strictest of registry, model and role counts."""
    price: Price | None = None
    """Price of tokens; if left out, the known price of public providers."""
    timeout_s: Timeouts = Timeouts()
    """Time limits in seconds."""
    extra_body: Annotated[str, Spelled(dict[str, Any], lambda given: json.dumps(given, sort_keys=True))] = "{}"
    """Further keys of each request."""
    headers: Texts = ()
    """Further headers of each request."""
    user: str = ""
    """Name of the user for the server."""
    stream: bool = True
    """False: ask for whole replies."""
    ca_file: str = ""
    """File with the certificates to trust instead of the usual ones."""
    max_concurrent: Tokens | None = None
    """Maximum number of requests at the same time."""
    images: bool | None = None
    """True if the model takes images; left out: known for common families."""

    @property
    def has_server(self) -> bool:
        """True if it answers chat completions over HTTP."""
        return self.type in (ModelType.OPENAI, ModelType.GEMINI)

    @property
    def engine(self) -> str:
        """Name of the engine of an installed package; empty for a built-in type."""
        return "" if isinstance(self.type, ModelType) else self.type

    @property
    def key(self) -> KeySource:
        """The source of its key."""
        return KeySource(
            env=self.api_key_env,
            file=self.api_key_file,
            command=self.api_key_command,
            keyring=self.api_key_keyring,
            literal=self.api_key,
        )

    @property
    def takes_images(self) -> bool:
        """True if the model takes images: the registry's key `images`, else by its family."""
        if self.images is not None:
            return self.images
        return self.type is ModelType.GEMINI or re.search(_SEES_IMAGES, self.model_name.lower()) is not None

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


@frozen_dataclass
class RoleRule:
    """A verdict on the calls of one tool that match."""

    __pydantic_config__ = STRICT

    tool: Name
    """Name of the tool."""
    verdict: Verdict
    """Verdict on matching calls. ``allow`` needs a `match`."""
    match: tuple[str, ...] = ()
    """For shell_exec: the words of the command, the last of which may be ``*``. For files: one path glob. For the web:
    one host pattern. Left out: all calls.
    """
    workspace: Literal["read"] | None = None
    """``read``: a command that the rule allows gets the workspace read-only in the sandbox."""

    @property
    def pattern(self) -> ArgumentPattern:
        """The pattern that `match` means. Raises ConfigError if it is none for the tool."""
        return pattern_from_list(self.tool, self.match)


@frozen_dataclass
class RoleSandbox:
    """The sandbox level that a role needs. It can only raise what the registry requires."""

    __pydantic_config__ = STRICT

    require: Required = SandboxLevel.NONE
    """As in `sandbox`."""


@frozen_dataclass
class BudgetKeys(Budget):
    """The most that a turn may spend. Where a limit is reached, it asks you whether to go on for the same again."""

    __pydantic_config__ = STRICT

    cost: Annotated[float, Interval(gt=0, le=MAX_LIMITS["cost"])] | None = None
    """Cost of the replies, in the unit of `price`. A model without a known price asks before its first request."""
    tokens: Annotated[int, Interval(ge=1, le=MAX_LIMITS["tokens"])] | None = None
    """Tokens of the requests and replies together."""
    minutes: Annotated[float, Interval(gt=0, le=MAX_LIMITS["minutes"])] | None = None
    """Minutes of models and tools at work. The time in which the turn waits for you does not count."""


ROLE_COLOURS = ("blue", "cyan", "purple", "teal", "orange", "pink")
"""Names of colours for roles. A frontend has a shade of each for a dark and for a light background."""
_HEX_COLOUR = "#[0-9a-fA-F]{6}"


def _checked_colour(text: str) -> str:
    if text and text not in ROLE_COLOURS and not re.fullmatch(_HEX_COLOUR, text):
        raise ValueError(f"is not a colour: expected {', '.join(ROLE_COLOURS)} or #rrggbb")
    return text


_Colour = Spelled(
    str, _checked_colour, {"anyOf": [{"enum": [*ROLE_COLOURS]}, {"type": "string", "pattern": f"^{_HEX_COLOUR}$"}]}
)


@frozen_dataclass
class RoleSpec:
    """A role; without an optional key it behaves as if the key did not exist."""

    __pydantic_config__ = LENIENT
    rights_keys: ClassVar[frozenset[str]] = frozenset({"tools", "rules", "max_rounds", "budget", "sandbox", "contain"})

    name: EntryName
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
    color: Annotated[str, _Colour] = ""
    """Colour of the role on the screen: a name, or ``#rrggbb``."""
    tools: tuple[str, ...] | None = None
    """Tools of the role, of those that the user may have; ``[]`` for none, left out for all. ``SERVER__*`` means all
    tools of an MCP server.
    """
    max_rounds: Rounds | None = None
    """Maximum number of model calls of a turn."""
    budget: BudgetKeys = field(default_factory=BudgetKeys)
    """The most that a turn may spend before it asks. It can only narrow what the registry sets."""
    rules: tuple[RoleRule, ...] = ()
    """Verdicts on calls by their arguments."""
    responder: str = ""
    """The model that writes the final answer from what the first one gathered."""
    sandbox: RoleSandbox = RoleSandbox()
    """The sandbox level that the role needs."""
    contain: bool = False
    """True if the role's turns work on a copy of the workspace, and ask once about all changes at the end."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models in the order in which they are tried, each once."""
        named = (self.primary, self.backup_1, self.backup_2, self.backup_3, self.backup_4)
        return tuple(dict.fromkeys(model for model in named if model))

    def with_models_of(self, other: "RoleSpec") -> "RoleSpec":
        """Return this role with the models of another one."""
        backups = {key: getattr(other, key) for key in ("backup_1", "backup_2", "backup_3", "backup_4")}
        return replace(self, primary=other.primary, **backups)


@frozen_dataclass
class UserSpec:
    """Rights of a user or a group."""

    __pydantic_config__ = STRICT

    name: EntryName
    """A login name, an ``@unixgroup`` or ``*``. The strictest match wins."""
    access_level: Access = AccessLevel.USER
    """The most that the user may have."""
    confirm_allow: tuple[str, ...] = ()
    """Rules that answer calls which would ask, such as ``file_edit:src/**``."""
    confirm_deny: tuple[str, ...] = ()
    """Tools that never run."""


@frozen_dataclass
class CredentialSection:
    """A secret that commands use without seeing it. The key is its host: ``NAME`` or ``NAME:PORT``."""

    __pydantic_config__ = STRICT

    env: Annotated[str, Matches(r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
    """The environment variable of chatops that holds the value. Commands get a placeholder in it."""
    header: Annotated[str, Matches(r"^[A-Za-z][A-Za-z0-9-]{0,99}: [^{}\x00-\x1f\x7f-\U0010ffff]{0,200}\{\}$")]
    """The header that the value goes into, with ``{}`` in its place: ``Authorization: Bearer {}``."""
    methods: tuple[Annotated[str, Matches(r"^[A-Z]{1,20}$")], ...] = ()
    """Methods that it is for. Empty: all."""
    paths: tuple[Annotated[str, Matches(r"^(/([A-Za-z0-9._~-]+|\*))*(/|/\*\*)?$")], ...] = ()
    """Paths that it is for: ``*`` is one segment, ``/**`` at the end everything below. Empty: all."""


_NO_CREDENTIAL_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect"}
)
"""Headers that say where a request ends or goes: a value in one could change what the proxy forwards."""


def _read_credentials(given: Mapping[str, CredentialSection]) -> tuple[Credential, ...]:
    for name, section in given.items():
        problem = "it has a wildcard" if "*" in name else host_problem(name)
        header, _, _ = section.header.partition(":")
        if header.lower() in _NO_CREDENTIAL_HEADERS:
            problem = f"its header is {header}"
        if problem:
            raise ValueError(f"{name!r} is not a valid credential: {problem}")
    if len({section.env for section in given.values()}) < len(given):
        raise ValueError("two credentials have the same variable")
    # Commands send their requests without TLS to the proxy, so that no port means 80.
    if len({name.lower().removesuffix(":80") for name in given}) < len(given):
        raise ValueError("two credentials have the same address")
    return tuple(
        Credential(
            name=name.lower(), env=section.env, header=section.header, methods=section.methods, paths=section.paths
        )
        for name, section in given.items()
    )


@frozen_dataclass
class SandboxSection(SandboxLimits):
    """Limits of what commands may see, write and reach."""

    credentials: Annotated[tuple[Credential, ...], Spelled(dict[Name, CredentialSection], _read_credentials)] = ()
    """Secrets that commands use without seeing them, by host."""
    contain: bool = True
    """False: no turn can be contained."""
    accept_level: bool = True
    """False: `accept_level` of MCP servers has no effect, so the user is asked about each start below level basic."""

    @property
    def spec(self) -> SandboxSpec:
        """The limits of a command."""
        # A dataclass with slots is a new class, which super() without arguments does not know.
        return replace(super(SandboxSection, self).spec, credentials=self.credentials)  # noqa: UP008


@frozen_dataclass
class RulesSection:
    """Limits of the rules that users make with a decision on a call."""

    __pydantic_config__ = STRICT

    remember: tuple[Literal["session", "folder", "role"], ...] = ("session", "folder", "role")
    """Scopes that rules may have; a scope that is not listed is off, also for rules stored already."""


@frozen_dataclass
class NotifySection:
    """A program that is told when a job waits for you or is over, and nobody has it on a screen."""

    __pydantic_config__ = LENIENT

    command: tuple[str, ...] = ()
    """The program with its arguments. It gets one JSON object on standard input: `event` (`waits`, `ended`, `failed`),
    `session_id`, `title`, and for a call that waits `call` with `id`, `tool`, `summary`. It is stopped after 10 s.
    """


_Surface = Literal["terminal", "cli", "serve", "acp", "python"]
SURFACES = {"tui": "terminal", "approvals": "cli", "serve": "serve", "acp": "acp", "python": "python"}
"""The surfaces on which users decide, by `Principal.via`. `UNATTENDED` is none: it may only deny."""


@frozen_dataclass
class ApprovalsSection:
    """Limits of decisions on calls. Only those of the site registry count."""

    __pydantic_config__ = STRICT

    surfaces: tuple[_Surface, ...] = ("terminal", "cli", "serve", "acp", "python")
    """Where calls may be decided: the chat, `chatops approvals`, the page, editors, Python programs."""


@frozen_dataclass
class AuditSection:
    """Settings of the decision log. Only those of the site registry count."""

    __pydantic_config__ = STRICT

    sink: Literal["journald", "syslog"] | None = None
    """No call starts before this service took the head of its session's decision log."""


KNOWLEDGE_TOOL = "knowledge_search"
"""The tool that searches all sources."""


@frozen_dataclass
class KnowledgeSource:
    """Folders of documents that a tool of this name searches."""

    __pydantic_config__ = STRICT

    name: EntryName
    paths: Annotated[tuple[Annotated[str, Matches(r"^(/|~(/|$))")], ...], Len(1)]
    """Absolute, or below ``~``."""
    description: Annotated[str, MaxLen(1_000)] = ""
    """For the model: what the documents are about."""


@frozen_dataclass
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
    budget: Budget = NO_BUDGET
    notify: tuple[str, ...] = ()
    """The program to tell about jobs. That of the user counts, else that of the site."""
    respond_with_final: bool = True
    store: str = ""
    """Address of the database that holds the sessions; empty: a file does."""
    approve_any_shell: bool = False
    """Only honoured in a site registry: a bare ``--approve shell_exec`` is then accepted."""
    rule_scopes: tuple[RuleScope, ...] = tuple(RuleScope)
    """Scopes of remembered rules that the file leaves on. In the site registry they bind everyone."""
    surfaces: tuple[str, ...] = tuple(SURFACES.values())
    """Only honoured in a site registry: where calls may be decided."""
    sink: Literal["journald", "syslog"] | None = None
    """Only honoured in a site registry: the service that takes the heads of the decision log before a call starts."""
    servers: tuple[McpServerSpec, ...] = ()
    """MCP servers."""
    workflows: tuple[Definition, ...] = ()
    """Workflows of the file itself. Those in files beside it are found by `config.workflow_files`."""
    warnings: tuple[RegistryWarning, ...] = ()

    def model(self, name: str) -> ModelSpec | None:
        """Return the model of that name."""
        return next((model for model in self.models if model.name == name), None)

    def role(self, name: str) -> RoleSpec | None:
        """Return the role of that name."""
        return next((role for role in self.roles if role.name == name), None)


Registries = tuple[Registry | None, Registry]
"""The site registry, if there is one, and the user's."""
