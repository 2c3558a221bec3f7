"""Commands that send something again: a text typed before, an edited message, a question to another model or role.

What was said is never changed. An edited or repeated message continues in a copy of the session that ends right before
it, so that both versions stay.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId, turn_of
from chatops.domain.messages import Message, Speaker, ToolMessage, UserMessage
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.domain.wording import plural
from chatops.runtime.session import owned
from chatops.tui.commands.replies import Choose, Context, Notify, Replies, ScreenAction, Send, ShowSession, Then, Write
from chatops.tui.composer.completions import Completion
from chatops.tui.dialogs.picker import Choice, Picker, columns

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

_KEPT = "The session as it was is in /sessions. What was approved for it asks again."
_EDITED = f"Edit the message and send it, in a copy that ends before it. {_KEPT}"
_UNDONE = f"Undone in a copy: your message is in the field again. {_KEPT}"
_ASKED_AGAIN = f"Your message is asked again, in a copy. {_KEPT}"
_WIDTH = 70
_NARROW, _FILES = 40, 30
"""Columns of the list of turns: the message, and the files that its turn has changed."""
_MOST_NAMED = 3
_ASKED_TRIES, _ASKED_EVERY_S = 100, 0.05


async def history(context: Context, argument: str) -> Replies:
    """Let the user choose among the texts sent from this workspace, newest first."""
    texts = [text for text in dict.fromkeys(reversed(context.workspace.user.history())) if text != "/history"]
    if not texts:
        return (Notify("Nothing was sent from this workspace yet."),)

    async def chosen(_: Context, key: str) -> Replies:
        return (Write(texts[int(key)]),)

    return (Choose(_texts_picker("Sent before", texts), chosen),)


async def edit(context: Context, argument: str) -> Replies:
    """Let the user choose a message of the session, and put it into the message field of a copy."""
    messages = _asked(context)
    if not messages:
        return (Notify("There is no message to edit yet."),)
    if not argument:
        picker = _texts_picker("Edit a message and send it again", [message.text for message in messages])
        return (Choose(picker, edit),)
    if not argument.isdigit() or int(argument) >= len(messages):
        return (Notify("/edit lists the messages to choose from."),)
    message = messages[int(argument)]
    opened, deleted = _before(context, message)
    return (opened, Write(message.text), Notify(_EDITED), deleted)


async def retry(context: Context, argument: str) -> Replies:
    """Retry a failed turn. With a model or role, ask the last message again with it, in a copy of the session.

    In a run, retry what could not be started or saved.
    """
    if context.run is not None and not context.run.over:
        nothing = "Nothing in this run can be retried. For a failed step press ctrl+g."
        return () if await context.run.retry() else (Notify(nothing),)
    session = owned(context.session, "Nothing was retried")
    if not argument:
        nothing = "There is no failed turn to retry. /retry MODEL or /retry ROLE asks your last message again."
        return () if await session.retry() else (Notify(nothing),)
    workspace = context.workspace
    models, roles = [row.name for row in workspace.models()], [row.name for row in workspace.roles()]
    messages = _asked(context)
    if argument not in (*models, *roles):
        return (Notify(f"There is no model and no role {argument}. /model and /role list them."),)
    asked = next((message for message in messages if message.by is not Speaker.COMMAND), None)
    if asked is None:
        return (Notify("There is no message to ask again yet."),)

    async def choose(copy: Context, name: str) -> Replies:
        copied = owned(copy.session, "Nothing was asked")
        await (copied.switch_role(name) if name in roles else copied.pin_model(name, as_default=False))
        return (Send(asked.text),)

    opened, deleted = _before(context, asked)
    return (opened, Then(choose, argument), Notify(_ASKED_AGAIN), deleted)


async def retry_offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the models and roles that may be asked again."""
    if before[1:]:
        return []
    workspace = context.workspace
    roles = await asyncio.to_thread(workspace.roles)
    return [
        *(Completion(insert=row.name, text=row.name, note="role") for row in roles),
        *(Completion(insert=row.name, text=row.name, note="model") for row in workspace.models()),
    ]


async def undo(context: Context, argument: str) -> Replies:
    """Take back the last turn of a model, or all from a chosen message on, in a copy; ask about files to put back."""
    if any(
        one.call.name == CONTAINED_APPLY and is_undo(one.facts.arguments) for one in context.session.snapshot().pending
    ):
        return (
            Notify("Nothing more was undone: the files of the last undo wait for your answer."),
            ScreenAction.DECIDE,
        )
    turns = openers(context)
    if not turns:
        return (Notify("There is no turn to undo yet."),)
    if argument == "list":
        messages = context.session.snapshot().messages
        return (Choose(await asyncio.to_thread(_undo_picker, turns, messages, context.session), undo),)
    if argument and not (argument.isdigit() and int(argument) < len(turns)):
        return (Notify("Usage: /undo, or /undo list to choose how far"),)
    # What commands of the user did cannot be taken back: by itself, none is chosen while there is another turn.
    last = next((one for one in turns if one.by is not Speaker.COMMAND), turns[0])
    message, sessions = turns[int(argument)] if argument else last, context.workspace.sessions
    done = await owned(context.session, "Nothing was undone").actions.undo(message.id)
    opened, deleted = _instead(context, lambda: sessions.open(done.session_id))
    # With a question about files, its dialog names them.
    texts = [f"Not taken back: {'; '.join(done.cannot[:_MOST_NAMED])}."] if done.cannot and not done.asks else []
    write = Then(_write_below_dialog, message.text) if done.asks else Write(message.text)
    return (opened, write, *map(Notify, texts), Notify(_UNDONE), deleted)


async def _write_below_dialog(context: Context, text: str) -> Replies:
    """Write a text once the question has its dialog, which does not open by itself over a text."""
    for _ in range(_ASKED_TRIES):
        if context.session.snapshot().pending:
            return (ScreenAction.DECIDE, Write(text))
        await asyncio.sleep(_ASKED_EVERY_S)
    return ()


async def undo_offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the one argument of /undo."""
    return [] if before[1:] else [Completion(insert="list", text="list", note="choose a message to go back to")]


def openers(context: Context) -> list[UserMessage]:
    """Return the messages that the user has opened turns with, newest first."""
    found: dict[str, UserMessage] = {}
    for message in reversed(_asked(context)):
        if message.by is not Speaker.MACHINE:
            found.setdefault(turn_of(message.id), message)
    return list(reversed(found.values()))


def _asked(context: Context) -> list[UserMessage]:
    """Return the user's messages of the session, newest first."""
    messages = context.session.snapshot().messages
    return [message for message in reversed(messages) if isinstance(message, UserMessage)]


def _before(context: Context, message: UserMessage) -> tuple[ShowSession, Then]:
    session_id, sessions = SessionId(context.session.session_id), context.workspace.sessions
    return _instead(context, lambda: sessions.fork(session_id, before=message.id))


def _instead(context: Context, open_copy: "Callable[[], Awaitable[SessionView]]") -> tuple[ShowSession, Then]:
    """Show a copy instead of the session, and delete that if it is a copy too in which nothing was said."""

    async def delete(copy: Context, left: str) -> Replies:
        # A failure only leaves an unused copy behind.
        with suppress(ChatopsError):
            await copy.workspace.sessions.delete_replaced(SessionId(left), made=copy.session.session_id)
        return ()

    return ShowSession(open_copy), Then(delete, context.session.session_id)


def _undo_picker(turns: Sequence[UserMessage], messages: Sequence[Message], session: "SessionView") -> Picker:
    """Return the picker for a message to go back to. It names the files that each turn has changed. Reads files."""
    said: dict[str, list[Message]] = {}
    for one in messages:
        said.setdefault(turn_of(one.id), []).append(one)
    choices = []
    for index, message in enumerate(turns):
        changed = _changed(said[turn_of(message.id)], session)
        files = f"{plural(len(changed), 'file')}: {', '.join(changed)}" if changed else ""
        text = columns((" ".join(message.text.split()), _NARROW), (files, _FILES))
        choices.append(Choice(key=str(index), text=text, find=f"{message.text} {files}", preview=message.text))
    return Picker("Undo back to a message", choices=choices, empty="No text matches.")


def _changed(turn: Sequence[Message], session: "SessionView") -> list[str]:
    """Return the files that a turn has changed. Of a contained turn, those that differ from before it."""
    results = [one for one in turn if isinstance(one, ToolMessage)]
    if any(one.tool == CONTAINED_APPLY for one in results):
        with suppress(ChatopsError):
            return [one.path for one in session.changed_files(turn)]
        return []
    return list(dict.fromkeys(one.facts.wrote for one in results if one.facts.wrote))


def _texts_picker(title: str, texts: Sequence[str]) -> Picker:
    choices = [
        Choice(key=str(index), text=columns((" ".join(text.split()), _WIDTH)), find=text, preview=text)
        for index, text in enumerate(texts)
    ]
    return Picker(title, choices=choices, empty="No text matches.")
