"""The command that lists the skills."""

import asyncio

from chatops.domain.sanitize import sanitize
from chatops.policy.skills import SKILL_TOOL
from chatops.tui.commands.replies import Context, Replies, ShowText


async def skills(context: Context, argument: str) -> Replies:
    """Show each skill with its source, the tools that it permits, and what is wrong with others."""
    return (ShowText("Skills", await asyncio.to_thread(_skills_text, context)),)


def _skills_text(context: Context) -> str:
    known, grant = context.workspace.skills(), context.session.grant()
    lines = []
    for skill in known.found:
        lines += [f"{skill.name} ({skill.source})", f"  {skill.description}"]
        if skill.use is not None:
            allowed = [*skill.use.tools, *(f"{tool} (asks)" for tool in skill.use.asks)]
            lines.append(f"  Permits only, while in use: {', '.join(allowed) or 'no tool'}")
        if skill.files:
            lines.append(f"  Files: {', '.join(name for name, _ in skill.files)}")
        lines.append("")
    if not lines:
        lines += [f"There are no skills. Put one into {context.workspace.skills_folder} as NAME/SKILL.md.", ""]
    elif grant.tool(SKILL_TOOL) is None:
        lines += [f"Role {grant.role} does not see them: its tools do not list {SKILL_TOOL}.", ""]
    return sanitize("\n".join([*lines, *known.warnings]).rstrip())
