"""Warnings for registry keys that are valid but have no effect."""

from collections.abc import Iterator
from difflib import get_close_matches

from chatops.config.locate import Path
from chatops.config.registry_model import RegistryFile

FREE_FORMATS = frozenset({"auto", "native"})
"""Values of tool_format that do not name a format."""
FORMAT_ALIASES = {"json": "llama3_json", "function_tag": "llama3_function_tag", "python_list": "pythonic"}
"""Names from Llama Stack's `ToolPromptFormat`, which older registries use."""


def ignored(file: RegistryFile, *, site: bool) -> Iterator[tuple[Path, str]]:
    """Yield path and reason of each key without effect. `site`: the file is the site registry."""
    for name, model in file.models.items():
        if doubt := _format(model.tool_format):
            yield ("models", name, "tool_format"), doubt
    if file.mcp_servers:
        yield ("mcp_servers",), "MCP servers are not in this version, so none is used"
    if site:
        yield from _only_for_a_person(file)
    elif file.approve_any_shell:
        yield ("approve_any_shell",), "only the site registry can permit this, so it has no effect here"


def _only_for_a_person(file: RegistryFile) -> Iterator[tuple[Path, str]]:
    for key in ("default_role", "respond_with_final"):
        if getattr(file, key) != RegistryFile.model_fields[key].default:
            yield (key,), "only a person's registry sets this, so it has no effect in the site's"


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
