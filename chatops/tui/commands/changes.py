"""``/diff``: what the session's file tools have changed."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from chatops.domain.messages import Message, ToolMessage
from chatops.domain.tools import NOT_RUN_HERE, ResultSource
from chatops.runtime.user_actions import messages_from
from chatops.tui.commands.replies import Context, Notify, Replies, ShowChanges
from chatops.tui.commands.revision import openers
from chatops.tui.composer.completions import Completion

_NOTHING = "{whose} file tools have changed no file. What commands changed: !git diff."


async def diff(context: Context, argument: str) -> Replies:
    """Show what the session has changed in files, or the ``last`` turn, or the changes of one file or folder."""
    messages: Sequence[Message] = context.session.snapshot().messages
    title, whose = "Changed in this session", "This session's"
    if argument == "last":
        title, whose = "Changed in the last turn", "The last turn's"
        turns = openers(context)
        messages = messages_from(turns[0].id, messages) if turns else ()
    changes = await asyncio.to_thread(context.session.changed_files, messages)
    if argument not in ("", "last"):
        changes = tuple(one for one in changes if _is_in(one.path, argument, context.session.workspace))
        if not changes:
            return (Notify(f"No file tool of this session has changed {argument}. /diff shows all changes."),)
    if changes:
        return (ShowChanges(title, changes),)
    results = (one.facts.source for one in messages if isinstance(one, ToolMessage))
    imported = f" Its calls were {NOT_RUN_HERE}." if ResultSource.IMPORTED in results else ""
    return (Notify(f"{_NOTHING.format(whose=whose)}{imported}"),)


def _is_in(path: str, named: str, workspace: Path) -> bool:
    """Return True if `path`, relative to the workspace, is the named file or lies in the named folder."""
    wanted = os.path.relpath(os.path.join(workspace, named), workspace)
    return wanted == "." or f"{path}/".startswith(f"{wanted}/")


async def offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete ``last``, and the files that calls of the session have written."""
    if before[1:]:
        return []
    results = (one for one in context.session.snapshot().messages if isinstance(one, ToolMessage))
    written = dict.fromkeys(one.facts.wrote for one in results if one.facts.wrote)
    last = Completion(insert="last", text="last", note="only what the last turn changed")
    return [last, *(Completion(insert=path, text=path) for path in written)]
