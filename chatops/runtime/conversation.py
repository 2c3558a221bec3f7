"""What a user can do to a conversation besides sending a message: correct the turn, run a command of their own."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from chatops.domain.errors import SessionBusyError
from chatops.engine.effects import ComposerDraft, TurnStep
from chatops.engine.inputs import CorrectTurn
from chatops.engine.without_model import start_command
from chatops.policy.grant import Grant
from chatops.runtime.queue import MessageQueue
from chatops.runtime.services import Services
from chatops.runtime.turns import Turns

Left = Callable[[], ComposerDraft | None]
"""Called when a text is about to be stored; returns the draft to store with it."""


class Conversation:
    """The conversation of a session that this process owns. Methods raise ChatopsError with a message for the user."""

    def __init__(self, turns: Turns, queue: MessageQueue, services: Services) -> None:
        self._turns = turns
        self._queue = queue
        self._services = services

    async def correct(self, text: str, *, draft: Left) -> bool:
        """Interrupt the turn and go on with `text`, in one step. Returns False if no turn can be corrected.

        Raises StoreError if it cannot be stored: the turn then goes on as before.
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

    async def run_command(self, command: str, *, private: bool, draft: Left) -> None:
        """Run a shell command that the user has typed, through the same checks as a call of the model.

        If it is `private`, no model gets it or its result. Raises SessionBusyError during a turn.
        """
        turns = self._turns
        turns.check_owned()
        async with turns.submitting:
            if turns.workflow or turns.unfinished:
                what = f"a run of workflow {turns.workflow}" if turns.workflow else "a turn"
                raise SessionBusyError(
                    f"The command was not run: {what} is unfinished.", advice="Run it after its end."
                )
            info = await turns.stored()
            turn_id = await turns.next_id(info.id)

            def make(grant: Grant) -> TurnStep:
                step = start_command(
                    turn_id=turn_id,
                    session_id=info.id,
                    parent_id=turns.history.head,
                    grant=grant,
                    history=turns.history.messages,
                    command=command,
                    private=private,
                    by=self._services.by,
                )
                return replace(step, draft=draft())

            await turns.begin(info, turns.settings, make)

    async def remove_queued(self, text: str, *, later: int) -> bool:
        """Remove the queued message `text` that has `later` newer ones. Returns False if it is not there any more."""
        self._turns.check_owned()
        return await self._queue.remove(text, later=later)
