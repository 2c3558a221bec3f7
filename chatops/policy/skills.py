"""Tools that a skill permits while it is in use. A skill can only take tools away from the role that uses it."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from chatops.domain.rights import Verdict
from chatops.domain.tools import SkillUse, tool_name
from chatops.policy.verdicts import Layer, Rule

SKILL_TOOL = "skill_read"
"""The tool that reads skills. A skill in use never takes it away, because its files may be needed."""
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "Read": "file_read",
        "Write": "file_write",
        "Edit": "file_edit",
        "MultiEdit": "file_edit",
        "Bash": "shell_exec",
        "Grep": "file_search",
        "Glob": "file_list",
        "LS": "file_list",
        "WebFetch": "web_fetch",
        "WebSearch": "web_search",
    }
)
"""Names of tools in skills that were written for other programs."""
_ENTRY = re.compile(r"([^\s,()]+)(\([^)]*\))?")
_LIST = re.compile(rf"[\s,]*(?:{_ENTRY.pattern}(?:[\s,]+|\Z))*")


def skill_use(name: str, allowed: str) -> SkillUse | None:
    """Read ``allowed-tools``: names separated by spaces or commas, each perhaps with a pattern.

    Patterns of other programs are not applied. A tool with one asks before each call instead. None: it holds something
    else, which may be half of a pattern.
    """
    if not _LIST.fullmatch(allowed):
        return None
    tools: dict[str, bool] = {}
    for word, pattern in _ENTRY.findall(allowed):
        tool = OTHER_NAMES.get(word, tool_name(word))
        tools[tool] = bool(pattern) and tools.get(tool, True)
    return SkillUse(
        name=name,
        tools=tuple(tool for tool, asks in tools.items() if not asks),
        asks=tuple(tool for tool, asks in tools.items() if asks),
    )


def skill_layer(use: SkillUse) -> Layer:
    """Return the layer that a skill in use adds to the grant of its turn."""
    rules = [Rule(tool=tool, verdict=Verdict.ALLOW) for tool in dict.fromkeys((SKILL_TOOL, *use.tools))]
    rules += [Rule(tool=tool, verdict=Verdict.ASK) for tool in use.asks if tool != SKILL_TOOL]
    return Layer(name=f"allowed-tools of the skill {use.name}", rules=tuple(rules), default=Verdict.DENY)
