"""The registry of a trusted workspace: it can take rights away and sets nothing else.

Read are the keys that can only narrow: which tools a role has, its rules that ask or deny, verdicts of tools that ask
or deny, and limits on rounds. Every other key is refused with its line and column, and the rest still narrows: if one
refused key made all of it void, rights would be wider than the file says.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from chatops.config.document import Document, Json, Located, Path, Place, read_document
from chatops.config.registry_model import free_key
from chatops.config.registry_read import read_located
from chatops.config.workspace_files import MAX_REGISTRY_BYTES
from chatops.policy.registry import Registry

_TOP = ("version", "roles", "tools", "max_rounds")
_ROLE = ("tools", "rules", "max_rounds")
_RULE = ("tool", "match", "verdict")
_TOOL = ("verdict",)
_RULE_DEPTH = len(("roles", "NAME", "rules", 0))
_NARROWING = ("ask", "deny")
_ADVICE = "A workspace can only narrow: tools, rules and max_rounds of a role, verdicts of tools, max_rounds."


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowingRegistry:
    """Restrictions that a workspace's registry adds."""

    registry: Registry
    """Holds roles with tools, rules and rounds, verdicts of tools, and rounds. Everything else is as by default."""
    refused: tuple[str, ...] = ()
    """One sentence for each key that a workspace may not set, or that has no effect, with line and column."""


def read_workspace_registry(data: bytes, *, source: str) -> NarrowingRegistry:
    """Read the part of a registry that narrows. Raises ConfigError with line and column if it cannot be read."""
    document = read_document(data, source=source, advice=_ADVICE, most=MAX_REGISTRY_BYTES)
    filtered = _Filter(document)
    located = Located(value=filtered.top(document.located.value), places=filtered.places())
    registry = read_located(replace(document, located=located), data=data)
    return NarrowingRegistry(registry=registry, refused=(*filtered.refused, *registry.warnings))


class _Filter:
    """Copies the permitted part of a document, and notes the keys that it leaves out.

    A value of another type than expected is copied as it is, so that reading it reports the error.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._moved: dict[Path, Path] = {}
        """New paths of rules that come after a refused one."""
        self.refused: list[str] = []

    def top(self, value: Json) -> Json:
        if not isinstance(value, dict):
            return value
        kept: dict[str, Json] = {}
        for key, inner in self._permitted(value, _TOP, ()):
            entries = inner if isinstance(inner, dict) else {}
            match key:
                case "roles" if isinstance(inner, dict):
                    kept[key] = {name: self._role(one, ("roles", name)) for name, one in entries.items()}
                case "tools" if isinstance(inner, dict):
                    kept[key] = {name: self._tool(one, ("tools", name)) for name, one in entries.items()}
                case _:
                    kept[key] = inner
        return kept

    def _role(self, value: Json, path: Path) -> Json:
        if not isinstance(value, dict):
            return value
        kept = dict(self._permitted(value, _ROLE, path))
        rules = kept.get("rules")
        if isinstance(rules, list):
            kept["rules"] = self._rules(rules, (*path, "rules"))
        return kept

    def _rules(self, rules: list[Json], path: Path) -> Json:
        """Return the rules that ask or deny, and note which of them move up."""
        kept: list[Json] = []
        for index, rule in enumerate(rules):
            before: Path = (*path, index)
            if isinstance(rule, dict):
                rule = dict(self._permitted(rule, _RULE, before))
                if isinstance(rule.get("verdict"), str) and rule["verdict"] not in _NARROWING:
                    self._refuse((*before, "verdict"), "a rule of a workspace can only ask or deny")
                    continue
            if index != len(kept):
                self._moved[before] = (*path, len(kept))
            kept.append(rule)
        return kept

    def places(self) -> dict[Path, Place]:
        """Return the positions in the copy. Linear in the size of the document, which may be hostile."""
        found = self._document.located.places
        moved = {
            (*self._moved[path[:_RULE_DEPTH]], *path[_RULE_DEPTH:]): place
            for path, place in found.items()
            if path[:_RULE_DEPTH] in self._moved
        }
        return {**found, **moved}

    def _tool(self, value: Json, path: Path) -> Json:
        if not isinstance(value, dict):
            return value
        kept = dict(self._permitted(value, _TOOL, path))
        if isinstance(kept.get("verdict"), str) and kept["verdict"] not in _NARROWING:
            self._refuse((*path, "verdict"), "a workspace can only ask or deny")
            del kept["verdict"]
        return kept

    def _permitted(self, value: dict[str, Json], keys: tuple[str, ...], path: Path) -> Iterator[tuple[str, Json]]:
        for key, inner in value.items():
            if key in keys:
                yield key, inner
            elif not free_key(key):
                self._refuse((*path, key), "a workspace cannot set this")

    def _refuse(self, path: Path, why: str) -> None:
        self.refused.append(f"{self._document.where(path)}: {why}, so it has no effect.")
