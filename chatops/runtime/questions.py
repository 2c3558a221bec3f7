"""Questions of servers whose calls run in this process: each waits here for the answer that the turn delivers."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from chatops.domain.ids import CallId
from chatops.domain.questions import Answer, AnswerAction, ServerQuestion
from chatops.engine.inputs import QuestionInput, QuestionWithdrawnInput
from chatops.toolkit.base import Ask

MOST = 20
"""Maximum number of questions of one call. Further ones are declined."""


class Questions:
    """The open questions, by call. `deliver` takes their inputs."""

    def __init__(self, deliver: Callable[[QuestionInput | QuestionWithdrawnInput], None]) -> None:
        self._deliver = deliver
        self._open: dict[CallId, tuple[str, asyncio.Future[Answer]]] = {}

    def of_call(self, call_id: CallId, attempt: int) -> Ask:
        """Return a function that asks the user on behalf of one attempt at a call."""
        asked = 0

        async def ask(question: ServerQuestion) -> Answer:
            nonlocal asked
            asked += 1
            if asked > MOST:
                return Answer(action=AnswerAction.DECLINE)
            number = f"{call_id}.{attempt}.q{asked}"
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._open[call_id] = (number, answer)
            self._deliver(QuestionInput(call_id=call_id, attempt=attempt, question=replace(question, id=number)))
            try:
                return await answer
            except asyncio.CancelledError:
                self._deliver(QuestionWithdrawnInput(call_id=call_id, question_id=number))
                raise

        return ask

    def answer(self, call_id: CallId, question_id: str, answer: Answer) -> None:
        """Give a call the answer, which is stored by now."""
        number, waiting = self._open.get(call_id, ("", None))
        if number == question_id and waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def end(self, call_id: CallId) -> None:
        """Answer that there is no answer: the call is over. Its server may still wait in a task of the connection."""
        _, waiting = self._open.pop(call_id, ("", None))
        if waiting is not None and not waiting.done():
            waiting.set_result(Answer(action=AnswerAction.CANCEL))
