"""The command for the memory: show it, edit it, clear it."""

import asyncio
from collections.abc import Sequence

from chatops.config.memory import MAX_READ, MemoryScope
from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.tui.commands.replies import Choose, Context, EditText, Notify, Replies, ShowText
from chatops.tui.composer.completions import Completion
from chatops.tui.dialogs.picker import Choice, Picker
from chatops.tui.dialogs.question import Question

_VERBS = {"edit": "in $EDITOR", "clear": "asks first"}
_USAGE = "Usage: /memory [edit|clear [workspace|user]]"


async def memory(context: Context, argument: str) -> Replies:
    """Show both memories, edit one, or clear one after a question."""
    verb, _, name = argument.partition(" ")
    try:
        scope = MemoryScope(name.strip() or "workspace")
    except ValueError:
        return (Notify(_USAGE),)
    match verb:
        case "":
            return (ShowText("Memory", await asyncio.to_thread(_memories_text, context)),)
        case "edit":
            return await _edit(context, scope)
        case "clear":
            return await _ask_clear(context, scope)
        case _:
            return (Notify(_USAGE),)


def _memories_text(context: Context) -> str:
    memories = context.workspace.memories
    lines = ["Notes for later sessions, which are part of the prompt as data.", ""]
    for scope in (MemoryScope.WORKSPACE, MemoryScope.USER):
        try:
            text = sanitize(memories.read(scope)).strip() or "(empty)"
        except ChatopsError as error:
            text = error.full
        lines += [f"--- {scope.label} ({memories.path(scope)})", text, ""]
    return "\n".join([*lines, "/memory edit, /memory edit user, /memory clear, /memory clear user"])


async def _edit(context: Context, scope: MemoryScope) -> Replies:
    memories = context.workspace.memories
    before = await asyncio.to_thread(memories.read, scope)

    async def save(then: Context, text: str) -> Replies:
        if await asyncio.to_thread(memories.read, scope) != before:
            raise ChatopsError(
                f"The {scope.label} was changed meanwhile, so yours was not saved.", advice="Edit it again."
            )
        await asyncio.to_thread(memories.write, scope, text)
        return (Notify(f"Saved the {scope.label}. It counts from your next message on."),)

    question = Question[str](
        f"Edit the {scope.label}",
        explain="Notes for later sessions. They are part of the prompt as data.",
        text=before,
        check=_checked,
        done="saves",
        lines=True,
    )
    return (EditText(text=before, file_name="memory.md", question=question, done=save),)


def _checked(text: str) -> str:
    if len(text.encode("utf-8", "replace")) > MAX_READ:
        raise ValueError(f"A memory may have {MAX_READ:,} bytes.")
    return text


async def _ask_clear(context: Context, scope: MemoryScope) -> Replies:
    memories = context.workspace.memories
    text = await asyncio.to_thread(memories.read, scope)
    if not text.strip():
        return (Notify(f"The {scope.label} is empty."),)

    async def chosen(_: Context, key: str) -> Replies:
        await asyncio.to_thread(memories.write, scope, "")
        return (Notify(f"Cleared the {scope.label}."),)

    choices = [
        Choice(key="keep", text="Keep it", find="keep", preview=sanitize(text), current=True),
        Choice(key="clear", text="Clear it", find="clear", preview=sanitize(text)),
    ]
    return (Choose(Picker(f"Clear the {scope.label}?", choices=choices), chosen, "keep"),)


async def offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the verb and the memory."""
    match before[1:]:
        case ():
            return [Completion(insert=f"{verb} ", text=verb, note=note) for verb, note in _VERBS.items()]
        case (verb,) if verb in _VERBS:
            return [Completion(insert=scope.value, text=scope.value) for scope in MemoryScope]
        case _:
            return []
