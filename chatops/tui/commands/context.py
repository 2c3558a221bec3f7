"""The commands about what the model is given: /context, /memory, /compact."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from chatops.config.prompt_files import MAX_MEMORY_BYTES, MemoryScope
from chatops.domain.errors import ChatopsError
from chatops.domain.ids import MessageId
from chatops.domain.messages import Message, SummaryMessage, ToolMessage, UserMessage
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import one_line, plural
from chatops.engine.transcript import size, start_at_summary, tokens, tools_tokens, without_private
from chatops.runtime.session import owned
from chatops.tui.commands.replies import Choose, Context, EditText, Notify, Replies, ShowText
from chatops.tui.composer import Completion
from chatops.tui.dialogs.picker import Choice, Picker
from chatops.tui.dialogs.question import LateText, Question
from chatops.tui.dialogs.text import Share
from chatops.tui.transcript.lines import with_joined_paragraphs

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

_NOTE_LAYERS = ("project notes", "memory", "skills")
"""Layers of the prompt that are not chatops' own."""
_MESSAGES_AT = 3
"""Place of the messages among the shares: after system prompt, notes and tools, as in a request."""
_MAX_TITLE = 40
"""Characters of the message that is named for the summary."""
_EXPLAIN_COMPACT = (
    "From the next message on, the model gets this text instead of what was said before. Edit it as you like. The"
    " transcript stays as it is, and /compact undo takes it back."
)
_NOT_COMPACTED = "Nothing was compacted"
_USAGE = "Usage: /memory [edit|clear [workspace|user]]"


async def show_context(context: Context, argument: str) -> Replies:
    """Show the source of each part of the prompt, and how full the context window is."""
    shares = _shares(context.session)
    return (ShowText("Context", _context_text(context.session, shares), shares),)


def _context_text(session: "SessionView", shares: Sequence[Share]) -> str:
    """Return the shares, then the layers of the system prompt in order, each with its source and size."""
    lines = [*_meter_lines(session, shares), ""]
    lines += _summary_lines(session.snapshot().messages)
    for layer in session.prompt_layers():
        text = layer.text.strip()
        size = f", {plural(len(text), 'character')}" if text else ""
        lines.append(f"--- {layer.name} ({layer.source}{size})")
        # A persona file has line breaks for an editor; the screen wraps for its own width.
        if text:
            lines.append(with_joined_paragraphs(text) if layer.name == "persona" else text)
        lines.append("")
    return "\n".join(lines).rstrip()


def _summary_lines(messages: Sequence[Message]) -> list[str]:
    """Return the lines about the summary in force, which replaces earlier messages; empty if there is none."""
    title, last_replaced, summary = "", "", None
    for message in messages:
        if isinstance(message, SummaryMessage):
            last_replaced, summary = title, message
        elif isinstance(message, UserMessage):
            title = one_line(message.text, most=_MAX_TITLE)
    if summary is None or not summary.text:
        return []
    return [f'--- summary (sent instead of all up to "{last_replaced}" and its answer)', summary.text, ""]


def _shares(session: "SessionView") -> list[Share]:
    """Return what fills the context window, in the order of a request, and what is free if its size is known."""
    snapshot, grant = session.snapshot(), session.grant()
    layers = session.prompt_layers()
    notes = sum(tokens(len(layer.text.strip())) for layer in layers if layer.name in _NOTE_LAYERS)
    sent = without_private(start_at_summary(tuple(snapshot.messages)))
    asked = [message for message in sent if isinstance(message, UserMessage)]
    sees_images = grant.models[0].sees_images
    parts = {
        "system": max(0, tokens(len(grant.prompt)) - notes),
        "notes": notes,
        "tools": tools_tokens(grant.tools),
        "results": sum(size(message, sees_images=sees_images) for message in sent if isinstance(message, ToolMessage)),
        "files": sum(tokens(len(file.text)) for message in asked for file in message.files),
    }
    messages = max(0, snapshot.context_used - sum(parts.values()))
    shares = [Share(name[0], name, count) for name, count in parts.items()]
    shares.insert(_MESSAGES_AT, Share("m", "messages", messages))
    if snapshot.context_window is not None:
        free = max(0, snapshot.context_window - snapshot.context_used)
        shares.append(Share("-", "free", free, free=True))
    return shares


def _meter_lines(session: "SessionView", shares: Sequence[Share]) -> list[str]:
    """Return how full the context window is, and one line for each share of it."""
    snapshot = session.snapshot()
    window, used = snapshot.context_window, snapshot.context_used
    if window is None:
        head = f"About {used:,} tokens are used. How many the model takes is unknown: context_window in the registry."
    else:
        head = f"About {used:,} of {window:,} tokens are used ({used * 100 // max(1, window)} %)."
    whole = max(1, sum(share.size for share in shares))
    figures = (
        f"{share.letter} {share.name:<9}{share.size:>10,}{round(share.size * 100 / whole):>5} %" for share in shares
    )
    return [head, "", *figures]


async def compact(context: Context, argument: str) -> Replies:
    """Ask the model for a summary, which the user may edit. ``undo`` sends all messages again.

    Any other argument says what to keep in particular.
    """
    session = owned(context.session, _NOT_COMPACTED)
    if argument == "undo":
        messages = context.session.snapshot().messages
        last = next((message for message in reversed(messages) if isinstance(message, SummaryMessage)), None)
        if last is None or not last.text:
            return (Notify("The session is not compacted."),)
        await session.actions.compact(SummaryMessage(id=MessageId(""), text="", replaces=0))
        return ()
    sizes: list[int] = []
    request = session.actions.summary_request(argument, received=sizes.append)
    summaries: list[SummaryMessage] = []

    async def load() -> str:
        summaries.append(await request())
        return summaries[-1].text

    async def taken(then: Context, text: str) -> Replies:
        await owned(then.session, _NOT_COMPACTED).actions.compact(replace(summaries[-1], text=text))
        return ()

    waiting = "The model writes a summary. You see it before it counts."
    question = Question(
        "Compact the session",
        explain=_EXPLAIN_COMPACT,
        text="",
        check=_check_summary,
        done="compacts",
        lines=True,
        late=LateText(load=load, waiting=waiting, received=lambda: tokens(sum(sizes))),
    )
    return (Choose(question, taken),)


def _check_summary(text: str) -> str:
    if not text.strip():
        raise ValueError("An empty summary would leave the model without anything. Esc goes back.")
    return text.strip()


async def memory(context: Context, argument: str) -> Replies:
    """Show both memories, edit one, or clear one after a question."""
    verb, _, scope_name = argument.partition(" ")
    try:
        scope = MemoryScope(scope_name.strip() or "workspace")
    except ValueError:
        return (Notify(_USAGE),)
    match verb:
        case "":
            return (ShowText("Memory", await asyncio.to_thread(_memories_text, context)),)
        case "edit":
            return await _edit_memory(context, scope)
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


async def _edit_memory(context: Context, scope: MemoryScope) -> Replies:
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
        check=_check_size,
        done="saves",
        lines=True,
    )
    return (EditText(text=before, file_name="memory.md", question=question, done=save),)


def _check_size(text: str) -> str:
    if len(text.encode("utf-8", "replace")) > MAX_MEMORY_BYTES:
        raise ValueError(f"A memory may have {MAX_MEMORY_BYTES:,} bytes.")
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


async def memory_offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the memory after the verb."""
    return [] if before[2:] else [Completion(insert=scope.value, text=scope.value) for scope in MemoryScope]
