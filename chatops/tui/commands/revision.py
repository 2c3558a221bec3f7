"""The commands about what was said and done: take it back, say it again, show what it changed, copy it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId, turn_of
from chatops.domain.messages import AssistantMessage, Message, Speaker, SummaryMessage, ToolMessage, UserMessage
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CONTAINED_APPLY, NOT_RUN_HERE, ResultSource, built_in_capabilities, is_undo
from chatops.domain.wording import plural
from chatops.runtime.session import owned
from chatops.runtime.user_actions import messages_from
from chatops.tui.commands.context import compact
from chatops.tui.commands.replies import (
    Choose,
    Context,
    Copy,
    Notify,
    Replies,
    ScreenAction,
    Send,
    ShowChanges,
    ShowSession,
    ShowText,
    Then,
    Write,
)
from chatops.tui.composer import Completion
from chatops.tui.dialogs.picker import Choice, Picker, columns

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

_ORIGINAL_IS_KEPT = "The session as it was is in /sessions. What was approved for it asks again."
_EDITED = f"Edit the message and send it, in a copy that ends before it. {_ORIGINAL_IS_KEPT}"
_UNDONE = f"Undone in a copy: your message is in the field again. {_ORIGINAL_IS_KEPT}"
_UNDO_ASKS = f"Your message is in the field again, in a copy. {_ORIGINAL_IS_KEPT}"
_ASKED_AGAIN = f"Your message is asked again, in a copy. {_ORIGINAL_IS_KEPT}"
_TEXT_WIDTH = 70
"""Cells of a text in its picker, and of the first line of a code block."""
_TURN_WIDTH, _FILES_WIDTH = 40, 30
"""Columns of the list of turns: the message, and the files that its turn has changed."""
_MAX_REASONS = 3
"""Maximum number of reasons named why something was not taken back."""
_PENDING_TRIES, _PENDING_RETRY_S = 100, 0.05
"""How often, and how many seconds apart, the command checks if the question of an undo is there."""


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
    messages = _user_messages(context)
    if not messages:
        return (Notify("There is no message to edit yet."),)
    if not argument:
        picker = _texts_picker("Edit a message and send it again", [message.text for message in messages])
        return (Choose(picker, edit),)
    if not argument.isdigit() or int(argument) >= len(messages):
        return (Notify("/edit lists the messages to choose from."),)
    message = messages[int(argument)]
    opened, deleted = _show_copy_before(context, message)
    return (opened, Write(message.text), Notify(_EDITED), deleted)


async def retry(context: Context, argument: str) -> Replies:
    """Retry a failed turn. With a model or role, ask the last message again with it, in a copy of the session.

    In a run, retry what could not be started or saved.
    """
    if context.run is not None and not context.run.over:
        nothing = "Nothing in this run can be retried. /pending opens a failed step."
        return () if await context.run.retry() else (Notify(nothing),)
    session = owned(context.session, "Nothing was retried")
    if not argument:
        nothing = "There is no failed turn to retry. /retry MODEL or /retry ROLE asks your last message again."
        return () if await session.retry() else (Notify(nothing),)
    return _ask_again_with(context, argument)


def _ask_again_with(context: Context, name: str) -> Replies:
    """Ask the last message again with a model or a role, in a copy of the session."""
    models = [model.name for model in context.workspace.models()]
    roles = [role.name for role in context.workspace.roles()]
    if name not in (*models, *roles):
        return (Notify(f"There is no model and no role {name}. /model and /role list them."),)
    asked = next((message for message in _user_messages(context) if message.by is not Speaker.COMMAND), None)
    if asked is None:
        return (Notify("There is no message to ask again yet."),)

    async def choose(copy: Context, name: str) -> Replies:
        copied = owned(copy.session, "Nothing was asked")
        await (copied.switch_role(name) if name in roles else copied.pin_model(name, as_default=False))
        return (Send(asked.text),)

    opened, deleted = _show_copy_before(context, asked)
    return (opened, Then(choose, name), Notify(_ASKED_AGAIN), deleted)


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
    """Take back the last turn of a model, or all from a chosen message on, in a copy; ask about files to put back.

    Right after /compact, take back the summary alone.
    """
    pending = context.session.snapshot().pending
    if any(asked.call.name == CONTAINED_APPLY and is_undo(asked.facts.arguments) for asked in pending):
        waits = "Nothing more was undone: the files of the last undo wait for your answer."
        return (Notify(waits), ScreenAction.DECIDE)
    turns = opening_messages(context)
    if not turns:
        return (Notify("There is no turn to undo yet."),)
    last_said = context.session.snapshot().messages[-1]
    if not argument and isinstance(last_said, SummaryMessage) and last_said.text:
        return (*await compact(context, "undo"), Notify("Only /compact was undone. /undo again takes back a turn."))
    if argument == "list":
        messages = context.session.snapshot().messages
        return (Choose(await asyncio.to_thread(_undo_picker, turns, messages, context.session), undo),)
    names_turn = argument.isdigit() and int(argument) < len(turns)
    if argument and not names_turn:
        return (Notify("Usage: /undo, or /undo list to choose how far"),)
    # What commands of the user did cannot be taken back: by itself, none is chosen while there is another turn.
    last = next((turn for turn in turns if turn.by is not Speaker.COMMAND), turns[0])
    return await _undo_from(context, turns[int(argument)] if argument else last)


async def _undo_from(context: Context, message: UserMessage) -> Replies:
    """Take back all from a message on, in a copy in which the message is in the field again."""
    sessions = context.workspace.sessions
    done = await owned(context.session, "Nothing was undone").actions.undo(message.id)
    opened, deleted = _show_copy_instead(context, lambda: sessions.open(done.session_id))
    # If files are asked about, the dialog says what cannot be taken back.
    texts = []
    if done.cannot and not done.asks:
        reasons = done.cannot[:_MAX_REASONS]
        texts.append(f"Not taken back: {'; '.join(reasons)}.")
    write = Then(_write_below_dialog, message.text) if done.asks else Write(message.text)
    return (opened, write, *map(Notify, texts), Notify(_UNDO_ASKS if done.asks else _UNDONE), deleted)


async def _write_below_dialog(context: Context, text: str) -> Replies:
    """Write a text once the question has its dialog, which does not open by itself over a text."""
    for _ in range(_PENDING_TRIES):
        if context.session.snapshot().pending:
            return (ScreenAction.DECIDE, Write(text))
        await asyncio.sleep(_PENDING_RETRY_S)
    return ()


def opening_messages(context: Context) -> list[UserMessage]:
    """Return the messages that the user has opened turns with, newest first."""
    first_of_turn: dict[str, UserMessage] = {}
    for message in reversed(_user_messages(context)):
        if message.by is not Speaker.MACHINE:
            first_of_turn.setdefault(turn_of(message.id), message)
    return list(reversed(first_of_turn.values()))


def _user_messages(context: Context) -> list[UserMessage]:
    messages = context.session.snapshot().messages
    return [message for message in reversed(messages) if isinstance(message, UserMessage)]


def _show_copy_before(context: Context, message: UserMessage) -> tuple[ShowSession, Then]:
    session_id, sessions = SessionId(context.session.session_id), context.workspace.sessions
    return _show_copy_instead(context, lambda: sessions.fork(session_id, before=message.id))


def _show_copy_instead(context: Context, open_copy: "Callable[[], Awaitable[SessionView]]") -> tuple[ShowSession, Then]:
    """Show a copy in place of the session, and name the session's rules, which the copy does not have.

    Delete the session if it is itself a copy in which nothing was said.
    """

    async def delete(copy: Context, left: str) -> Replies:
        rights = copy.workspace.rights
        kept = {rule.id for rule in await rights.rules(copy.session)}
        gone = [rule.rule for rule in await rights.rules(context.session) if rule.id not in kept]
        # A failure only leaves an unused copy behind.
        with suppress(ChatopsError):
            await copy.workspace.sessions.delete_replaced(SessionId(left), made=copy.session.session_id)
        what = f"{plural(len(gone), 'rule')} of the session: {'; '.join(gone)}"
        return (Notify(f"Not in the copy: {what}."),) if gone else ()

    return ShowSession(open_copy), Then(delete, context.session.session_id)


def _undo_picker(turns: Sequence[UserMessage], messages: Sequence[Message], session: "SessionView") -> Picker:
    """Return the picker for a message to go back to. It names the files that each turn has changed. Reads files."""
    by_turn: dict[str, list[Message]] = {}
    for message in messages:
        by_turn.setdefault(turn_of(message.id), []).append(message)
    choices = []
    for index, message in enumerate(turns):
        changed = _changed_files(by_turn[turn_of(message.id)], session)
        files = f"{plural(len(changed), 'file')}: {', '.join(changed)}" if changed else ""
        text = columns((" ".join(message.text.split()), _TURN_WIDTH), (files, _FILES_WIDTH))
        choices.append(Choice(key=str(index), text=text, find=f"{message.text} {files}", preview=message.text))
    return Picker("Undo back to a message", choices=choices, empty="No text matches.")


def _changed_files(turn: Sequence[Message], session: "SessionView") -> list[str]:
    """Return the files that a turn has changed. Of a contained turn, those that differ from before it."""
    results = [message for message in turn if isinstance(message, ToolMessage)]
    if any(result.tool == CONTAINED_APPLY for result in results):
        with suppress(ChatopsError):
            return [change.path for change in session.changed_files(turn)]
        return []
    return list(dict.fromkeys(result.facts.wrote for result in results if result.facts.wrote))


def _texts_picker(title: str, texts: Sequence[str]) -> Picker:
    choices = [
        Choice(key=str(index), text=columns((" ".join(text.split()), _TEXT_WIDTH)), find=text, preview=text)
        for index, text in enumerate(texts)
    ]
    return Picker(title, choices=choices, empty="No text matches.")


async def diff(context: Context, argument: str) -> Replies:
    """Show what the session has changed in files, or the ``last`` turn, or the changes of one file or folder."""
    messages: Sequence[Message] = context.session.snapshot().messages
    title, whose = "Changed in this session", "This session's"
    if argument == "last":
        title, whose = "Changed in the last turn", "The last turn's"
        turns = opening_messages(context)
        messages = messages_from(turns[0].id, messages) if turns else ()
    changes = await asyncio.to_thread(context.session.changed_files, messages)
    if argument not in ("", "last"):
        changes = tuple(change for change in changes if _is_in(change.path, argument, context.session.workspace))
        if not changes:
            return (Notify(f"No file tool of this session has changed {argument}. /diff shows all changes."),)
    folder = Path(context.session.snapshot().workspace)
    in_repository = any((above / ".git").exists() for above in (folder, *folder.parents))
    if changes:
        return (ShowChanges(title, changes, in_repository=in_repository),)
    results = (message.facts.source for message in messages if isinstance(message, ToolMessage))
    imported = f" Its calls were {NOT_RUN_HERE}." if ResultSource.IMPORTED in results else ""
    commands = " What commands changed: !git diff." if in_repository else ""
    return (Notify(f"{whose} file tools have changed no file.{commands}{imported}"),)


def _is_in(path: str, named: str, workspace: Path) -> bool:
    """Return True if `path`, relative to the workspace, is the named file or lies in the named folder."""
    wanted = os.path.relpath(os.path.join(workspace, named), workspace)
    return wanted == "." or f"{path}/".startswith(f"{wanted}/")


async def diff_offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete ``last``, and the files that calls of the session have written."""
    if before[1:]:
        return []
    results = (message for message in context.session.snapshot().messages if isinstance(message, ToolMessage))
    written = dict.fromkeys(result.facts.wrote for result in results if result.facts.wrote)
    last = Completion(insert="last", text="last", note="only what the last turn changed")
    return [last, *(Completion(insert=path, text=path) for path in written)]


async def delegated(context: Context, argument: str) -> Replies:
    """Show what was said and done in the last delegated task, the Nth one from the end, or that of a call."""
    messages = context.session.snapshot().messages
    replies = (message for message in messages if isinstance(message, AssistantMessage))
    tasks = [call for reply in replies for call in reply.calls if built_in_capabilities(call.name).delegates]
    number = int(argument) if argument.isdecimal() else 1
    call = next((task for task in tasks if task.id == argument), None)
    if call is None and 0 < number <= len(tasks):
        call = tasks[-number]
    if call is None:
        return (Notify(f"This session has delegated {plural(len(tasks), 'task') if tasks else 'no task'}."),)
    text = await context.workspace.sessions.child_transcript(call.id)
    return (ShowText("Delegated", sanitize(text)),)


async def copy(context: Context, argument: str) -> Replies:
    """Copy the last answer, the Nth from the end, or with ``code`` a code block of the newest answer that has one."""
    answers = [
        message.text
        for message in reversed(context.session.snapshot().messages)
        if isinstance(message, AssistantMessage) and message.text.strip()
    ]
    if not answers:
        return (Notify("There is no answer to copy yet."),)
    if argument == "code":
        return _copy_code(answers)
    names_answer = argument.isdecimal() and int(argument) > 0
    if argument and not names_answer:
        return (Notify("Usage: /copy, /copy 2 for the answer before the last one, /copy code"),)
    number = int(argument or 1)
    if number > len(answers):
        return (Notify(f"There is no answer {number}: the session has {plural(len(answers), 'answer')}."),)
    what = "the last answer" if number == 1 else f"answer {number} from the end"
    return (Copy(answers[number - 1], what),)


def _copy_code(answers: Sequence[str]) -> Replies:
    # Not before the first prompt.
    from chatops.tui.transcript.markdown import code_blocks

    blocks = next((found for found in map(code_blocks, answers) if found), [])
    codes = [code for _, code in blocks]
    if not blocks:
        return (Notify("No answer has a code block."),)
    if len(codes) == 1:
        return (Copy(codes[0], "the code block"),)
    choices = [
        Choice(
            key=str(index),
            text=columns((language or "text", 12), (code.strip().split("\n")[0], _TEXT_WIDTH)),
            find=f"{language} {code}",
            preview=code,
        )
        for index, (language, code) in enumerate(blocks)
    ]

    async def chosen(_: Context, key: str) -> Replies:
        return (Copy(codes[int(key)], "the code block"),)

    return (Choose(Picker("Copy a code block", choices=choices, empty="No code block matches."), chosen),)
