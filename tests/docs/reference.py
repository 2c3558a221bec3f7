"""Write docs/configuration.md from the models of the configuration: ``python -m tests.docs.reference``.

Keys, types and defaults come from the JSON Schema, and what a key is for from the docstring below its field.
"""

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chatops.config import settings, workflow_read
from chatops.config.entries import KeySchema, adapter_of
from chatops.config.registry_read import RegistryFile
from chatops.policy import registry, servers

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
Schema = Mapping[str, Any]

HEAD = """\
# Configuration

This page is written from the code: `python -m tests.docs.reference`.

## Where files are

| file | holds |
|---|---|
| `~/.config/chatops/model_registry.json` | the registry; `--registry` or `CHATOPS_REGISTRY` names another |
| `/etc/chatops/model_registry.json` | the site registry, the ceiling for everyone on the machine |
| `~/.config/chatops/settings.yaml` | theme, keys, favourite roles, notifications |
| `~/.config/chatops/themes/NAME.yaml` | themes of your own |
| `~/.config/chatops/workflows/NAME.yaml` | workflows of your own |
| `~/.config/chatops/tools/NAME.py` | tools of your own |
| `~/.config/chatops/skills/NAME/SKILL.md` | skills |
| `~/.config/chatops/personas/NAME.md` | personas of your own |
| `~/.local/share/chatops/` | sessions, approvals, rules, the decision log, memory, indexes |

`CHATOPS_HOME` moves all of it into one folder, and the key `store`, or `CHATOPS_STORE`, names a [database](team.md)
for sessions and what belongs to them. Comments (`// …`) are read in the registry. Keys that begin with `x-`
are yours. `chatops registry check` reports mistakes with line and column, and `chatops registry schema` prints the JSON
Schema for your editor.
"""
SECTIONS: tuple[tuple[str, type], ...] = (
    ("The registry", RegistryFile),
    ("`models.NAME`", registry.ModelSpec),
    ("`models.NAME.price`", registry.Price),
    ("`models.NAME.timeout_s`", registry.Timeouts),
    ("`roles.NAME`", registry.RoleSpec),
    ("`roles.NAME.rules[]`", registry.RoleRule),
    ("`roles.NAME.sandbox`", registry.RoleSandbox),
    ("`budget` and `roles.NAME.budget`", registry.BudgetKeys),
    ("`notify`", registry.NotifySection),
    ("`users.NAME`", registry.UserSpec),
    ("`tools.NAME`", servers.ToolSetting),
    ("`sandbox`", registry.SandboxSection),
    ("`rules`", registry.RulesSection),
    ("`knowledge.NAME`", registry.KnowledgeSource),
    ("`mcp_servers.NAME`", servers.McpServerSpec),
    ("`mcp_servers.NAME.tools.TOOL`", servers.ServerToolSetting),
    ("`mcp_servers.NAME.sandbox`", servers.ServerSandbox),
    ("`mcp_servers.NAME.installed`", servers.InstalledPackage),
    ("`workflows.NAME`", workflow_read.WorkflowEntry),
    ("`workflows.NAME.steps[]`", workflow_read.StepEntry),
    ("`workflows.NAME.steps[].validation_tools[]`", workflow_read.ValidationEntry),
    ("`workflows.NAME.steps[].gates[]`", workflow_read.GateEntry),
)


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(line for title, model in SECTIONS for line in _section(title, model)), *_settings()])


def _section(title: str, model: type) -> Iterator[str]:
    schema = adapter_of(model).json_schema(schema_generator=KeySchema)
    about = _docstrings(model)
    yield f"## {title}\n"
    yield f"{_plain(inspect.getdoc(model) or '')}\n"
    yield "| key | value | left out | |"
    yield "|---|---|---|---|"
    for name, field in schema["properties"].items():
        default = "required" if name in schema.get("required", ()) else _default(field)
        yield f"| `{name}` | {_type(field, schema)} | {default} | {_plain(about.get(name, ''))} |"
    yield ""


def _settings() -> Iterator[str]:
    about = _docstrings(settings.UserSettings)
    yield "## `settings.yaml`\n"
    yield "| key | |"
    yield "|---|---|"
    for name, text in about.items():
        if name != "problem":
            yield f"| `{name}` | {_plain(text)} |"
    yield ""


def _docstrings(model: type) -> dict[str, str]:
    """Return the docstring below each field of a class and of its bases."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not one.__module__.startswith("chatops"):
            continue
        (body,) = ast.parse(inspect.getsource(one).lstrip()).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, [*body.body[1:], ast.Pass()], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = below.value if isinstance(below, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[field.target.id] = inspect.cleandoc(text.value)
    return found


def _type(field: Schema, schema: Schema) -> str:
    if "$ref" in field:
        return _type(schema["$defs"][field["$ref"].rpartition("/")[2]], schema)
    options = field.get("anyOf", field.get("oneOf"))
    if options:
        return " or ".join(dict.fromkeys(_type(one, schema) for one in options if one.get("type") != "null"))
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    match field.get("type"):
        case "array":
            return f"list of {_type(field.get('items', {}), schema)}"
        case "object":
            inner = field.get("additionalProperties")
            named = isinstance(inner, dict) and ("type" in inner or "$ref" in inner)
            return f"{_type(inner, schema)} by name" if named and isinstance(inner, dict) else "object"
        case "string":
            return "text"
        case "integer" | "number":
            return "number" + _range(field)
        case "boolean":
            return "true or false"
        case _:
            return "any value"


def _range(field: Schema) -> str:
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum")
    if low is not None and high is not None:
        return f", {low:g} to {high:g}"
    return f" from {low:g}" if low else ""


def _default(field: Schema) -> str:
    default = field.get("default")
    return "" if default in (None, "", [], {}) or isinstance(default, dict) else f"`{json.dumps(default)}`"


def _plain(text: str) -> str:
    """Return a docstring as a cell: one line, code in single backticks, no cell marks."""
    return re.sub(r"\s+", " ", text.replace("``", "`")).replace("|", "\\|").strip()


if __name__ == "__main__":
    PAGE.write_text(page())
