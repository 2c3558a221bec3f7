"""A registry file as a whole, and its JSON Schema. What stands below its sections are dataclasses of `policy`.

Values are validated strictly, so that a damaged file is not misread: ``"10"`` is not a number and ``1`` is not a
boolean.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, model_validator
from pydantic.config import JsonDict
from pydantic.json_schema import GenerateJsonSchema

from chatops.config.entries import adapter_of, free_key, keys_of
from chatops.policy.registry import KnowledgeSource, ModelSpec, RoleSpec, RulesSection, SandboxSection, UserSpec
from chatops.policy.servers import McpServerSpec, ToolSetting
from chatops.policy.spelled import LENIENT, Matches, Name, Rounds, Spelled, items, members

FREE_IN_SCHEMA: JsonDict = {"patternProperties": {r"^(\$schema$|x-)": True}}
"""JSON Schema of objects with free keys."""


class Strict(BaseModel):
    """Base of objects that decide rights: an unknown key is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=FREE_IN_SCHEMA, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_free_keys(cls, value: object) -> object:
        if isinstance(value, dict):
            return {key: inner for key, inner in value.items() if not free_key(str(key))}
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryFile:
    """A whole ``model_registry.json``, version 3."""

    __pydantic_config__ = LENIENT
    rights_keys: ClassVar[frozenset[str]] = frozenset(
        {"users", "tools", "roles", "rules", "sandbox", "max_rounds", "mcp_servers", "mcpServers"}
    )

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
    mcp_servers: dict[str, JsonValue] = field(default_factory=dict)
    """MCP servers by name. `config.server_read` reads them."""
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
    respond_with_final: bool = True
    """False: a short result without the persona, as `--summary`."""
    approve_any_shell: bool = False
    """For the site registry: let `--approve` name shell_exec and python_exec without a pattern."""


class KeySchema(GenerateJsonSchema):
    """JSON Schema of keys as a file spells them."""

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """Leave out the fields that are no keys."""
        found = super().dataclass_schema(schema)
        keys = keys_of(schema["cls"])
        found["properties"] = {key: inner for key, inner in found["properties"].items() if key in keys}
        required = [key for key in found.pop("required", ()) if key in keys]
        return {**found, **({"required": required} if required else {})}

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Leave out defaults that are lists or objects: nearly all are empty."""
        found = super().default_schema(schema)
        default = found.get("default")
        if isinstance(default, list | dict) or default == "{}":
            del found["default"]
        return found

    def encode_default(self, dft: Any) -> Any:
        """Spell a level by its word."""
        return super().encode_default(getattr(dft, "word", dft))


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
