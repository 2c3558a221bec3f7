"""Names to tools, and the specs that policy and models are told. Nothing heavy is imported for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chatops.domain.tools import ToolSpec
from chatops.tools.base import Tool
from chatops.tools.components import component_tools
from chatops.tools.python import python_tools
from chatops.tools.read_files import read_tools
from chatops.tools.sandbox import ShellSettings
from chatops.tools.scratch import scratch_tools
from chatops.tools.search import NO_BACKEND, choose_backend, search_web_tools
from chatops.tools.search_files import search_tools
from chatops.tools.shell import shell_tools
from chatops.tools.web import WebSettings, web_tools
from chatops.tools.write_files import write_tools


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """What the built-in tools have to know. `environ` is searched for search backends and is not kept."""

    scratch_dir: Path
    shell: ShellSettings = field(default_factory=ShellSettings)
    web: WebSettings = field(default_factory=WebSettings)
    environ: Mapping[str, str] = field(default_factory=dict)


class Catalog:
    """The tools that exist here. Which of them a role may use is the policy's matter."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        absent: Mapping[str, str] | None = None,
        brought: Sequence[Tool] = (),
    ) -> None:
        """`brought` are tools that packaged workflows bring: they exist only there, and give way to one of their name.

        Raises ValueError if two of `tools` have one name: the second would act under the first one's rights.
        """
        self._tools = {tool.spec.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            names = [tool.spec.name for tool in tools]
            double = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"Two tools have the same name: {', '.join(double)}.")
        self.absent: Mapping[str, str] = dict(absent or {})
        """Built-in tools that cannot be offered here, each with the reason and the way to get it."""
        self._brought = {tool.spec.name: tool for tool in brought if tool.spec.name not in self._tools}

    def with_tools(self, tools: Sequence[Tool]) -> "Catalog":
        """This catalog with further tools. Raises ValueError as above."""
        return Catalog([*self._tools.values(), *tools], absent=self.absent, brought=[*self._brought.values()])

    def get(self, name: str) -> Tool | None:
        """The tool of exactly that name."""
        return self._tools.get(name) or self._brought.get(name)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """All tools, in a fixed order, without those that a workflow brings."""
        return tuple(tool.spec for tool in self._tools.values())

    def specs_for(self, workflow: str) -> tuple[ToolSpec, ...]:
        """All tools, and those that the packaged `workflow` brings; empty: in a chat."""
        bound = (tool.spec for tool in self._brought.values())
        return (*self.specs, *(spec for spec in bound if any(step.startswith(f"{workflow}.") for step in spec.steps)))


def builtin_catalog(settings: CatalogSettings) -> Catalog:
    """The built-in tools, without those that lack what they need; `absent` has them."""
    tools: list[Tool] = [
        *read_tools(),
        *search_tools(),
        *write_tools(),
        *shell_tools(settings.shell),
        *python_tools(settings.shell),
        *web_tools(settings.web),
        *scratch_tools(settings.scratch_dir),
    ]
    backend = choose_backend(settings.environ)
    if backend is None:
        return Catalog(tools, absent={"web_search": NO_BACKEND}, brought=component_tools())
    return Catalog([*tools, *search_web_tools(backend)], brought=component_tools())
