"""Helpers for tool tests: a context, a call, and the attack corpus with its placeholders filled in."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chatops.domain.errors import ToolError
from chatops.domain.ids import CallId, SessionId
from chatops.domain.tools import CallFacts, ToolCall, ToolResult
from chatops.toolkit.base import Tool, ToolContext

CORPUS = Path(__file__).resolve().parents[1] / "data" / "tools" / "attacks.jsonl"
CANARY = "CANARY-7f3a9c51e2"
SECRET = "sk-canary-5d1e8b7740aa"


def context_for(workspace: Path, **more: Any) -> ToolContext:
    """A context of one call in `workspace`."""
    given = {"timeout_s": 30.0, **more}
    return ToolContext(workspace=workspace.resolve(), session_id=SessionId("s1"), call_id=CallId("t1.1.0"), **given)


def call(name: str, arguments: Mapping[str, object] | str) -> ToolCall:
    """A call as a model makes it."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id=CallId("t1.1.0"), name=name, arguments=text)


async def inspected(tool: Tool, context: ToolContext, arguments: Mapping[str, object] | str) -> CallFacts:
    """Return the facts of an inspection."""
    return await tool.inspect(call(tool.spec.name, arguments), context)


async def done(tool: Tool, context: ToolContext, arguments: Mapping[str, object] | str) -> ToolResult:
    """Inspect, find nothing wrong, run."""
    facts = await inspected(tool, context, arguments)
    assert not facts.problems and not facts.refusal, facts
    return await tool.run(facts, context)


@dataclass
class Attempt:
    """Result of a call tried under a policy that allows everything."""

    facts: CallFacts
    ran: bool = False
    text: str = ""
    failed: bool = False


async def attempt(tool: Tool, context: ToolContext, arguments: Mapping[str, object] | str) -> Attempt:
    """Inspect, and run if nothing is wrong: the tool has no other guard here."""
    facts = await inspected(tool, context, arguments)
    if facts.problems or facts.refusal:
        return Attempt(facts=facts, text=facts.refusal + repr(facts.problems))
    try:
        result = await tool.run(facts, context)
    except ToolError as error:
        return Attempt(facts=facts, ran=True, failed=True, text=str(error))
    return Attempt(facts=facts, ran=True, text=result.content)


def cases(wanted: str) -> list[dict[str, Any]]:
    """The cases of one class of the corpus."""
    with CORPUS.open(encoding="utf-8") as handle:
        return [case for line in handle if (case := json.loads(line))["class"] == wanted]


@dataclass
class World:
    """The folders of one attack: workspace, what lies outside of it, a home."""

    base: Path
    port: int = 9
    words: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("ws", "outside", "home"):
            (self.base / name).mkdir()
        self.words = {
            "{WS}": str(self.ws),
            "{WSNAME}": self.ws.name,
            "{OUT}": str(self.out),
            "{HOME}": str(self.base / "home"),
            "{PORT}": str(self.port),
            "{PORT2}": str(self.port),
            "{SECRET}": SECRET,
        }

    @property
    def ws(self) -> Path:
        """The workspace."""
        return self.base / "ws"

    @property
    def out(self) -> Path:
        """Paths that no tool may touch."""
        return self.base / "outside"

    def filled(self, value: Any) -> Any:
        """`value` with placeholders and repetitions filled in."""
        match value:
            case str():
                for word, text in self.words.items():
                    value = value.replace(word, text)
                return re.sub(r"@@REPEAT\|(\d+)\|(.*?)@@", lambda m: m[2] * int(m[1]), value, flags=re.DOTALL)
            case dict():
                return {self.filled(key): self.filled(item) for key, item in value.items()}
            case list():
                return [self.filled(item) for item in value]
            case _:
                return value

    def set_up(self, setup: Mapping[str, Any]) -> None:
        """Make what the case describes."""
        for name, text in self._pairs(setup, "outside"):
            _write(self.out / name, text)
        for key, root in (("files", self.ws), ("outside_extra", self.ws), ("home", self.base / "home")):
            for name, text in self._pairs(setup, key):
                _write(root / name, text)
        for name in setup.get("dirs", []):
            (self.ws / name).mkdir(parents=True, exist_ok=True)
        for name, target in self._pairs(setup, "symlinks"):
            (self.ws / name).parent.mkdir(parents=True, exist_ok=True)
            (self.ws / name).symlink_to(target)
        for name, target in self._pairs(setup, "hardlinks"):
            os.link(target, self.ws / name)
        for name, size in setup.get("sparse", {}).items():
            with (self.ws / name).open("wb") as handle:
                handle.truncate(size)
        for name, count in setup.get("many_files", {}).items():
            (self.ws / name).mkdir()
            for number in range(count):
                (self.ws / name / f"f{number}").touch()

    def arguments(self, case: Mapping[str, Any]) -> str:
        """The arguments as the model writes them."""
        raw = case.get("arguments_raw")
        return str(self.filled(raw)) if raw is not None else json.dumps(self.filled(case["arguments"]))

    def unharmed(self) -> bool:
        """Return True if everything outside is unchanged."""
        names = sorted(str(path.relative_to(self.out)) for path in self.out.rglob("*"))
        return names == ["canary.txt", "victim.sh"] and CANARY in (self.out / "canary.txt").read_text("utf-8")

    def _pairs(self, setup: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
        yield from self.filled(setup.get(key, {})).items()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
