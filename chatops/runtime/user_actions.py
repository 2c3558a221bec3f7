"""User actions on a session: correct or contain a turn, run a command, undo, compact.

A summary of the session for the model is asked for, shown to the user, and stored only if the user takes it. It is not
a turn. Nothing is stored until the user has seen the text, so a crash loses a summary and nothing else. Once stored, it
is a message like any other, and the model gets it instead of what was said before; see `engine.transcript`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from chatops.domain.canonical import canonical, json_or_text
from chatops.domain.decisions import UNATTENDED, Answer, AnswerAction, OpenQuestion
from chatops.domain.errors import ChatopsError, ConfigError, SessionBusyError, ToolFailedError
from chatops.domain.events import Notice
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, MessageId, SessionId, TurnId, turn_of
from chatops.domain.messages import Message, SummaryMessage, ToolMessage, UserMessage, count_for_user
from chatops.domain.model import ModelRequest, ToolChoice
from chatops.domain.sanitize import reveal
from chatops.domain.tools import BUILT_IN_TOOLS, Outcome, Problem, ResultSource, Verdict
from chatops.domain.wording import one_line
from chatops.engine.effects import TurnStep
from chatops.engine.inputs import AnswerQuestion, ContainTurn, CorrectTurn
from chatops.engine.state import TurnState, new_turn
from chatops.engine.transcript import fit_messages
from chatops.engine.view import is_in_flight, settled_so_far
from chatops.engine.without_model import start_command, start_undo
from chatops.models.base import Failed, ModelClient, ReasoningChunk, Replied, TextChunk
from chatops.policy.grant import Grant
from chatops.policy.workflow import SHELL_TOOL
from chatops.runtime.services import EventBus, Services
from chatops.runtime.turns import TakeDraft, Turns
from chatops.store.base import SessionInfo
from chatops.toolkit.threads import in_thread
from chatops.tools.schema import format_problems, schema_problems

if TYPE_CHECKING:
    from chatops.contained.undoing import UndoList

_CALL_LENGTH = 200
"""Characters of a call in the list of what cannot be taken back."""
_WRITES_ELSEWHERE = frozenset({"memory_write"})
"""Built-in tools that write, and not in the workspace."""


@frozen_dataclass
class UndoResult:
    """The copy in which a session continues after an undo."""

    session_id: SessionId
    asks: bool
    """True if a pending question in it is about files to put back."""
    cannot: tuple[str, ...]
    """Lines about what cannot be taken back."""


def messages_from(first: MessageId, messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages starting with the `first` one. Raises ChatopsError if it is not there."""
    index = next((index for index, message in enumerate(messages) if message.id == first), None)
    if index is None:
        raise ChatopsError("That message is not in this session any more.")
    return messages[index:]


def calls_with_effects(messages: Sequence[Message]) -> dict[CallId, str]:
    """Return the calls that may have had an effect, each with what to tell the user if it cannot be taken back."""
    found: dict[CallId, str] = {}
    for message in messages:
        if not isinstance(message, ToolMessage) or message.outcome in (Outcome.DENIED, Outcome.INVALID):
            continue
        if message.facts.source is ResultSource.IMPORTED:
            continue
        known = BUILT_IN_TOOLS.get(message.tool)
        if known is None or known.runs_anything or known.delegates or message.tool in _WRITES_ELSEWHERE:
            found[message.call_id] = one_line(f"{message.tool} ({_argument_values(message)})", most=_CALL_LENGTH)
        elif message.facts.wrote:
            found[message.call_id] = f"{one_line(message.facts.wrote, most=_CALL_LENGTH)}: what was there is not kept"
    return found


def _argument_values(message: ToolMessage) -> str:
    """Return what a call was given, without the names and signs of JSON."""
    given = json_or_text(message.arguments)
    values = given.values() if isinstance(given, dict) else (given,)
    shown = (value if isinstance(value, str) else canonical(value) for value in values)
    return reveal(", ".join(shown), newlines=False)


def _check_may_take_back(grant: Grant) -> None:
    """Raise ChatopsError if the role may not write files: its question about an undo could only be denied."""
    if grant.permits("file_write").verdict is Verdict.DENY:
        raise ChatopsError(
            f"Nothing was undone: files would be put back, and role {grant.role} may not write files.",
            advice="Switch to a role that may (/role), then undo.",
        )


class UserActions:
    """User actions on a session that this process owns. Methods raise ChatopsError with a message for the user."""

    def __init__(self, turns: Turns, services: Services, bus: EventBus) -> None:
        self._turns = turns
        self._services = services
        self._bus = bus

    async def correct(self, text: str, *, draft: TakeDraft) -> bool:
        """Interrupt the turn and continue with `text`, in one step. Returns False if no turn can be corrected.

        Raises StoreError if it cannot be stored: the turn then continues as before.
        """
        turns = self._turns
        turns.check_owned()
        state = turns.runner.state
        if turns.workflow or state is None or not turns.unfinished:
            return False
        attach = self._services.attach
        files = await asyncio.to_thread(attach, state.session_id, text) if "@" in text else ()
        said, reasoning = turns.performer.partial()
        return await turns.runner.take_or_fail(
            CorrectTurn(text=text, files=files, draft=draft(), partial_text=said, partial_reasoning=reasoning)
        )

    async def run_command(self, command: str, *, private: bool, shown: bool, draft: TakeDraft) -> None:
        """Run a shell command that the user has typed, through the same checks as a call of the model.

        If it is `private`, no model gets it or its result. If it was not `shown` in full, it asks.

        Raises SessionBusyError during a turn, and ChatopsError if the role does not get the shell.
        """
        turns = self._turns
        turns.check_owned()
        async with turns.submitting:
            if turns.workflow or turns.unfinished:
                what = f"a run of workflow {turns.workflow}" if turns.workflow else "a turn"
                raise SessionBusyError(
                    f"The command was not run: {what} is unfinished.", advice="Run it after its end."
                )
            info = await turns.ensure_stored()
            turn_id = await turns.next_turn_id(info.id)
            grant = turns.settings.grant(self._services.rights)
            if grant.tool(SHELL_TOOL) is None:
                raise ChatopsError(
                    f"The command was not run: role {grant.role} may not run commands here.",
                    advice=f"/role switches to another role; /policy {SHELL_TOOL} says why.",
                )

            def make(turn: TurnState) -> TurnStep:
                step = start_command(turn, command, private=private, shown=shown, by=self._services.by)
                return replace(step, draft=draft())

            await turns.begin(turn_id, turns.settings, make, grant=grant)

    async def undo(self, before: MessageId) -> UndoResult:
        """Continue in a copy that ends before a message, which asks to put back the files changed since.

        The copy and its question are stored in one step. Raises SessionBusyError while a turn runs.
        """
        turns = self._turns
        turns.check_owned()
        async with turns.submitting:
            state = turns.runner.state
            if turns.workflow:
                raise SessionBusyError(f"Nothing was undone: this session is a run of workflow {turns.workflow}.")
            if state is not None and is_in_flight(state):
                raise SessionBusyError("Nothing was undone: a turn is running.", advice="Stop it first with Esc.")
            info = await turns.ensure_stored()
            await turns.runner.catch_up()
            current = (*state.messages, *settled_so_far(state)) if state is not None else ()
            listed = await self._files_to_undo(info.id, messages_from(before, (*turns.history.messages, *current)))
            grant = turns.settings.grant(self._services.rights)
            if listed.name:
                _check_may_take_back(grant)

            def begin(copy: SessionInfo) -> TurnStep:
                turn = new_turn(TurnId(f"{copy.id}.1"), copy.id, grant=grant, parent_id=copy.head)
                return start_undo(turn, name=listed.name, text="/undo")

            fork = partial(self._services.store.fork_session, info.id, before=before)
            copy = await self._services.worker(partial(fork, begin=begin) if listed.name else fork)
        return UndoResult(session_id=copy.id, asks=bool(listed.name), cannot=listed.cannot)

    async def contain(self, *, on: bool = True) -> bool:
        """Contain the unfinished turn, or the next one; or end that. Returns True if a turn is unfinished.

        Raises ChatopsError if turns cannot be contained here.
        """
        self._turns.check_owned()
        if self._turns.workflow:
            raise SessionBusyError(f"A run of workflow {self._turns.workflow} cannot be contained.")
        why = await self._turns.why_not_contained() if on else ""
        if why:
            raise ConfigError(f"The turn was not contained. {why}")
        if self._turns.unfinished and (await self._turns.runner.take(ContainTurn(on=on)) or self._turns.unfinished):
            return True
        # There is none, or it ended before the input was taken.
        self._turns.contain_next = on
        return False

    async def undo_contained(self) -> None:
        """Ask to take back the changes of the contained turn that was applied last. Raises ChatopsError."""
        turns = self._turns
        turns.check_owned()
        async with turns.submitting:
            if turns.unfinished or turns.workflow:
                raise SessionBusyError("A turn is unfinished.", advice="Undo after it.")
            info = await turns.ensure_stored()
            name, number = await in_thread(self._services.contained().last_applied, self._services.workspace)
            if not name:
                raise ChatopsError("No contained turn was applied to this workspace that can be undone.")
            _check_may_take_back(turns.settings.grant(self._services.rights))
            turn_id = await turns.next_turn_id(info.id)

            make = partial(start_undo, name=name, number=number, text="/contain undo")
            await turns.begin(turn_id, turns.settings, make)

    def summary_request(
        self, focus: str, *, received: Callable[[int], None] = lambda characters: None
    ) -> Callable[[], Awaitable[SummaryMessage]]:
        """Return what asks the model for a summary of the session as it is now. Nothing is stored; see `compact`.

        Raises ChatopsError if there is nothing to summarise or a turn is unfinished; so does the request if it fails.
        """
        self._check_between_turns()
        if not self._messages:
            raise ChatopsError("There is nothing to summarise yet: this session is empty.")
        grant = self._turns.settings.grant(self._services.rights)
        models, messages = self._services.models, self._messages
        return partial(ask_for_summary, models, grant=grant, messages=messages, focus=focus, received=received)

    async def compact(self, summary: SummaryMessage) -> None:
        """Send this summary instead of the messages before it from now on; one without text takes it back.

        Raises SessionBusyError during a turn or run, ConflictError, StoreError.
        """
        async with self._turns.submitting:
            self._check_between_turns()
            info = await self._turns.ensure_stored()
            summary = replace(summary, id=MessageId(f"{info.id}.summary{len(self._messages)}"))
            await self._turns.append(info, summary)
        self._bus.publish(Notice(id=summary.id, parent_id=info.id, text=summary.notice))

    @property
    def _messages(self) -> tuple[Message, ...]:
        """All messages of the session."""
        state = self._turns.runner.state
        return (*self._turns.history.messages, *(state.messages if state is not None else ()))

    def _check_between_turns(self) -> None:
        self._turns.check_owned()
        if self._turns.workflow or self._turns.unfinished:
            raise SessionBusyError(
                "Nothing was compacted: a turn or a run is not finished.",
                advice="Wait for its end, or stop it with Esc.",
            )

    async def _files_to_undo(self, session_id: SessionId, messages: Sequence[Message]) -> "UndoList":
        calls = calls_with_effects(messages)
        turns = tuple(dict.fromkeys(turn_of(message.id) for message in messages))
        listing = partial(self._services.contained().undo_list, session_id=session_id, turns=turns, calls=calls)
        try:
            return await in_thread(listing, self._services.workspace)
        except (OSError, ToolFailedError) as error:
            raise ChatopsError(f"Nothing was undone: {error}") from error

    async def answer(self, asked: OpenQuestion, answer: Answer, *, why: str = "") -> tuple[Problem, ...]:
        """Answer a question of a server, unless its form does not accept the answer: then return why.

        `why` is a clause for an answer that the user has not given: the UI could not ask.

        Raises ChatopsError if the question is void, ConfigError if the site does not let users decide here, StoreError
        if the answer cannot be stored. Nothing is sent then.
        """
        if answer.action is AnswerAction.ACCEPT:
            self._services.rights.check_surface(self._services.by.via)
        if answer.action is AnswerAction.ACCEPT and asked.question.schema:
            given = json_or_text(answer.content)
            problems = await in_thread(schema_problems, given, schema=asked.question.schema, noun="field")
            if problems := (*problems, *format_problems(given, schema=asked.question.schema)):
                return problems
        self._turns.check_owned()
        by = replace(self._services.by, via=UNATTENDED) if why else self._services.by
        number = asked.question.id
        answered = AnswerQuestion(call_id=asked.call_id, question_id=number, answer=answer, by=by, why=why)
        if not await self._turns.runner.take_or_fail(answered):
            raise ChatopsError("Nothing was sent: the server no longer waits for this answer.")
        return ()


SUMMARY_INSTRUCTION = (
    "Summarise our session so far for yourself: from now on you will get this summary instead of the messages above."
    " Keep what the work needs: what I want, decisions and their reasons, files and commands that matter with their"
    " exact names, results that were found, errors and how they were solved, and what is left to do. Leave out"
    " pleasantries and everything that was overtaken. Write at most 600 words, as plain text or a list. Call no tools."
)


async def ask_for_summary(
    models: ModelClient, *, grant: Grant, messages: tuple[Message, ...], focus: str, received: Callable[[int], None]
) -> SummaryMessage:
    """Return a summary of `messages`, not stored and without an id.

    `focus` is what the user asks to keep in particular. `received` is told the characters of each piece. Raises
    ChatopsError if there is none.
    """
    target = grant.models[0]
    text = f"{SUMMARY_INSTRUCTION}\n\nKeep in particular: {focus}" if focus else SUMMARY_INSTRUCTION
    asked = (*messages, UserMessage(id=MessageId("summary"), text=text))
    request = ModelRequest(
        model=target.name,
        system=grant.prompt,
        messages=fit_messages(asked, system=grant.prompt, tools=grant.tools, model=target).messages,
        tools=grant.tools,
        tool_choice=ToolChoice.NONE,
    )
    async for event in models.stream(request):
        match event:
            case TextChunk(text=text) | ReasoningChunk(text=text):
                received(len(text))
            case Replied(reply=reply) if reply.text.strip():
                return SummaryMessage(
                    id=MessageId(""),
                    text=reply.text.strip(),
                    replaces=count_for_user(messages),
                    model=target.name,
                    usage=reply.usage,
                )
            case Replied():
                raise ChatopsError(f"{target.label or target.name} sent an empty summary.", advice="Try again.")
            case Failed(failure=failure):
                raise ChatopsError(f"There is no summary: {failure.message}", advice=failure.advice)
            case _:
                pass
    raise ChatopsError("There is no summary: the reply did not end.", advice="Try again.")
