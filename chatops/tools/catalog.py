"""Catalog of tools by name, and the specs that policy and models get. Imports nothing heavy."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from chatops.config.prompt_files import Memories, Skills
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import SandboxLevel
from chatops.domain.tools import ToolSpec
from chatops.policy.registry import KNOWLEDGE_TOOL, KnowledgeSource
from chatops.policy.verdicts import SKILL_TOOL
from chatops.toolkit.base import Tool
from chatops.tools import service
from chatops.tools.delegation import DelegateTool
from chatops.tools.files import file_edit, file_list, file_read, file_write
from chatops.tools.memory import memory_tools, scratch_tools
from chatops.tools.python import python_tools
from chatops.tools.search import file_search
from chatops.tools.shell import shell_tools
from chatops.tools.skills import NO_SKILLS, skill_tools
from chatops.tools.web import WebSettings, web_tools

NO_FOLDERS = 'no folders are named. In your registry: "knowledge": {"papers": {"paths": ["~/papers"]}}'
"""Reason why knowledge_search is not offered, and the way to enable it."""


@frozen_dataclass
class CatalogSettings:
    """Settings of the built-in tools."""

    scratch_dir: Path
    knowledge_index: Path = Path("knowledge.db")
    best: SandboxLevel = SandboxLevel.HARD
    """Highest sandbox level to use."""
    memories: Memories | None = None
    """None: without the tools for memory."""
    knowledge: tuple[KnowledgeSource, ...] = ()
    skills: Skills = field(default_factory=Skills)
    web: WebSettings = field(default_factory=WebSettings)
    environ: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Environment variables, which may name search services and hold their keys. The catalog does not keep them."""


class Catalog:
    """The tools that exist here. The policy decides which of them a role may use."""

    def __init__(self, tools: Sequence[Tool], *, absent: Mapping[str, str] | None = None) -> None:
        """Build a catalog of `tools`.

        Raises ValueError if two of `tools` have the same name: the second would act under the first one's rights.
        """
        self._tools = {tool.spec.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            names = [tool.spec.name for tool in tools]
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"Two tools have the same name: {', '.join(repeated)}.")
        self.absent: Mapping[str, str] = dict(absent or {})
        """Built-in tools that cannot be offered here: name to the reason and how to enable the tool."""

    def with_tools(self, tools: Sequence[Tool]) -> "Catalog":
        """Return a new catalog with further tools. Raises ValueError if a name is used twice."""
        return Catalog([*self._tools.values(), *tools], absent=self.absent)

    def get(self, name: str) -> Tool | None:
        """Return the tool of exactly that name, or None."""
        return self._tools.get(name)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Specs of all tools in a fixed order."""
        return tuple(tool.spec for tool in self._tools.values())


def builtin_catalog(settings: CatalogSettings) -> Catalog:
    """Build a catalog of the built-in tools that can be used here; `absent` names the others."""
    tools: list[Tool] = [
        file_read,
        file_list,
        file_search,
        file_write,
        file_edit,
        *shell_tools(settings.best),
        *python_tools(settings.best),
        *web_tools(settings.web),
        *scratch_tools(settings.scratch_dir),
        DelegateTool(),
        *(memory_tools(settings.memories) if settings.memories is not None else ()),
    ]
    absent: dict[str, str] = {}
    if backend := service.choose_backend(settings.environ):
        tools += service.search_web_tools(backend)
    else:
        absent["web_search"] = service.NO_BACKEND
    if key := settings.environ.get(service.WOLFRAM_KEY, ""):
        tools += service.wolfram_tools(key)
    else:
        absent["wolfram_alpha"] = service.NO_WOLFRAM_KEY
    if settings.skills.found:
        tools += skill_tools(lambda: settings.skills)
    else:
        absent[SKILL_TOOL] = NO_SKILLS
    if settings.knowledge:
        tools += _document_tools(settings, absent)
    else:
        absent[KNOWLEDGE_TOOL] = NO_FOLDERS
    return Catalog(tools, absent=absent)


def _document_tools(settings: CatalogSettings, absent: dict[str, str]) -> Sequence[Tool]:
    """Return the tools that search the user's documents. Without full-text search, add them to `absent` instead."""
    # Imported late: few users have such folders, and SQLite and the readers of documents take time to import.
    from chatops.tools.knowledge import NO_FTS5, has_full_text_search, knowledge_tools

    if has_full_text_search():
        return knowledge_tools(settings.knowledge, index=settings.knowledge_index)
    absent |= dict.fromkeys([KNOWLEDGE_TOOL, *(source.name for source in settings.knowledge)], NO_FTS5)
    return ()
