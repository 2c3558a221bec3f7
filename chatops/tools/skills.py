"""`skill_read`: read the instructions of a skill, or one of its files.

That puts the skill in use: for the rest of the turn only the tools that its ``allowed-tools`` names are permitted, of
those that the role has. Nothing that a skill says can permit more.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from chatops.config.prompt_files import SKILL_FILE, Skill, Skills
from chatops.domain.errors import ToolFailedError
from chatops.domain.tools import AccessLevel, CallFacts, Outcome, ResultFacts, ToolResult, Verdict
from chatops.policy.verdicts import SKILL_TOOL
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import with_problem, with_solvable_problem
from chatops.toolkit.output import cap, is_binary, visible
from chatops.tools.function import FunctionTool, tool

NO_SKILLS = "there are no skills. Put one into the folder skills of your config folder, as NAME/SKILL.md"
"""Reason why skill_read is not offered."""
_MAX_FILES = 50
"""Maximum number of files of a skill that its instructions list."""


def skill_tools(skills: Callable[[], Skills]) -> tuple[FunctionTool, ...]:
    """Return `skill_read`. `skills` returns the skills that exist now."""

    def inspect(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
        known = skills()
        skill, path = known.get(arguments["name"]), arguments["path"]
        if skill is None:
            names = ", ".join(skill.name for skill in known.found) or "none"
            return with_solvable_problem(
                facts, f"is not a skill; known: {names}", field="name", given=arguments["name"]
            )
        if path and path != SKILL_FILE and skill.file(path) is None:
            return with_problem(facts, "path", f"is not a file of the skill {skill.name}", given=path)
        return facts

    @tool(
        name=SKILL_TOOL,
        min_access=AccessLevel.VIEWER,
        verdict=Verdict.ALLOW,
        read_only=True,
        timeout_s=10.0,
        inspect=inspect,
    )
    def skill_read(
        name: Annotated[str, Field(description="Name of the skill.")],
        context: ToolContext,
        path: Annotated[str, Field(description="A file of the skill; empty: its instructions.")] = "",
    ) -> ToolResult:
        """Read a skill before you do a task that its description fits. A skill may restrict the tools of this turn."""
        skill = skills().get(name)
        if skill is None:
            raise ToolFailedError(f"The skill {visible(name)} is no longer there.")
        text = _instructions(skill)
        if path and path != SKILL_FILE:
            data = skill.file(path) or b""
            binary = f"[binary file, {len(data):,} bytes, not shown]"
            text = binary if is_binary(data) else data.decode("utf-8", "replace")
        capped = cap(text, limit=context.max_output_chars)
        return ToolResult(
            outcome=Outcome.SUCCESS, content=capped.text, truncated=capped.truncated, facts=ResultFacts(skill=skill.use)
        )

    return (skill_read,)


def _instructions(skill: Skill) -> str:
    lines = [f"Skill {skill.name}", ""]
    if skill.use is not None:
        allowed = ", ".join((SKILL_TOOL, *skill.use.tools, *skill.use.asks))
        lines = [f"Skill {skill.name}. For the rest of this turn only these tools may be used: {allowed}", ""]
    lines.append(skill.text or "[no instructions]")
    names = [name for name, _ in skill.files]
    if names:
        more = [f"[and {len(names) - _MAX_FILES:,} more]"] if len(names) > _MAX_FILES else []
        lines += ["", "Files of the skill (skill_read with path):", *map(visible, names[:_MAX_FILES]), *more]
    return "\n".join(lines)
