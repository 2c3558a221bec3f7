"""Built-in texts of the system prompt."""

import platform
from datetime import datetime
from pathlib import Path

BASE = (
    "You are the assistant in chatops, a chat app in a terminal. Answer in Markdown that reads well in a narrow "
    "window: short paragraphs, few headings, code in fences. Say plainly what you do not know."
)
SUMMARY = (
    "You run unattended; nobody reads along. When the task is done, report the result in a few plain sentences: "
    "what was found or changed, what failed, what is still open. No greeting and no closing words."
)


def environment(workspace: Path) -> str:
    """Return workspace, system and date. The day and not the hour, so that prompt caches stay valid."""
    day = datetime.now().astimezone().strftime("%A, %d %B %Y")
    return f"Workspace: {workspace}\nSystem: {platform.system()}\nToday: {day}"
