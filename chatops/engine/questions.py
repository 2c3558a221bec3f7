"""Questions that a server asks the user while a call runs.

A question is part of its call's status (`Started.question`), one at a time, so it is stored before anyone sees it. The
answer is stored before the server gets it (`DeliverAnswer`). The transcript has a notice for each question and for
what became of it; what was typed into a field that looks like a secret is in neither.

A question ends with its call. When the process ends, the outcome of the call is unknown and its question void: the
server that waited for the answer is gone.
"""

from collections.abc import Mapping
from dataclasses import replace

from chatops.domain.canonical import canonical, digest, json_or_text
from chatops.domain.decisions import AnswerAction, Answered, ServerQuestion
from chatops.domain.wording import one_line
from chatops.engine.draft import StepDraft
from chatops.engine.effects import DecisionRecord, DeliverAnswer
from chatops.engine.inputs import AnswerQuestion, QuestionInput, QuestionWithdrawnInput
from chatops.engine.state import Started

_MAX_NOTICE_CHARS = 2_000
"""Characters of the server's or the user's words in a notice."""


def apply_question_input(
    draft: StepDraft, index: int, call_input: QuestionInput | AnswerQuestion | QuestionWithdrawnInput
) -> None:
    """Apply what happened to a question, if its call still runs."""
    call, status = draft.calls()[index].call, draft.calls()[index].status
    if not isinstance(status, Started):
        return
    match call_input:
        case QuestionInput(attempt=attempt, question=question):
            if status.attempt == attempt and status.question is None:
                _set_question(draft, index, question)
                said = one_line(question.message, most=_MAX_NOTICE_CHARS)
                what = f" to open {question.url}" if question.url else ""
                _notify(draft, f"The MCP server {question.server} asks you{what}, for {call.name}: {said}")
        case AnswerQuestion(question_id=question_id):
            if status.question is not None and status.question.id == question_id:
                _answer_question(draft, index, status.question, call_input)
        case QuestionWithdrawnInput(question_id=question_id):
            if status.question is not None and status.question.id == question_id:
                void_question(draft, index, "the server no longer waits for it")


def void_question(draft: StepDraft, index: int, why: str) -> None:
    """End the open question of a call, if it has one, without an answer."""
    status = draft.calls()[index].status
    if isinstance(status, Started) and status.question is not None:
        server = status.question.server
        _set_question(draft, index, None)
        draft.warn(f"The question of the MCP server {server} is void: {why}. No answer was sent.")


def _answer_question(draft: StepDraft, index: int, question: ServerQuestion, call_input: AnswerQuestion) -> None:
    call, answer = draft.calls()[index].call, call_input.answer
    given = json_or_text(answer.content) if answer.content else None
    fields = tuple(given) if isinstance(given, Mapping) else ()
    draft.decisions.append(
        DecisionRecord(
            call_id=call.id,
            tool=call.name,
            digest=digest(question.id, question.server, question.message, question.schema, question.url),
            decision=Answered(action=answer.action, fields=fields, why=call_input.why),
            by=call_input.by,
        )
    )
    _set_question(draft, index, None)
    draft.effects.append(DeliverAnswer(call_id=call.id, question_id=question.id, answer=answer))
    match answer.action:
        case AnswerAction.ACCEPT if question.url:
            _notify(draft, f"You agreed to open {question.url}. The MCP server {question.server} was told.")
        case AnswerAction.ACCEPT:
            values = given if isinstance(given, Mapping) else {}
            shown = [
                f"{name}: {'(not stored)' if name in question.secrets else _text(value)}"
                for name, value in values.items()
            ]
            what = one_line(", ".join(shown), most=_MAX_NOTICE_CHARS) or "yes"
            _notify(draft, f"You answered the MCP server {question.server}: {what}")
        case _ if call_input.why:
            _notify(draft, f"The question of the MCP server {question.server} was declined: {call_input.why}.")
        case AnswerAction.DECLINE:
            _notify(draft, f"You declined the question of the MCP server {question.server}.")
        case AnswerAction.CANCEL:
            _notify(draft, f"You dismissed the question of the MCP server {question.server}.")


def _text(value: object) -> str:
    return value if isinstance(value, str) else canonical(value)  # type: ignore[arg-type]


def _set_question(draft: StepDraft, index: int, question: ServerQuestion | None) -> None:
    status = draft.calls()[index].status
    if isinstance(status, Started):
        draft.set_status(index, replace(status, question=question))


def _notify(draft: StepDraft, text: str) -> None:
    draft.inform(text, for_model=False)
