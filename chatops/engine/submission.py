"""Answers in the turn of a workflow step: submitted, checked, then accepted or returned to the model.

A refused answer counts as a round. Several answers without any JSON in a row end the turn (see
`acceptance.MOST_WITHOUT_JSON`). When the rounds are used up one closing call without tools is left, and its answer is
checked like any other.
"""

from chatops.domain.events import AnswerRefused, Status, TurnStatus
from chatops.domain.ids import RoundId
from chatops.domain.messages import Speaker, UserMessage
from chatops.domain.model import ModelReply
from chatops.engine import acceptance, findings, rounds
from chatops.engine.contract import AnswerFacts
from chatops.engine.draft import Draft
from chatops.engine.effects import CheckAnswer
from chatops.engine.state import AwaitingModel, CheckingAnswer, Purpose

_MOST_OF_A_DETAIL = 2_000


def submit(draft: Draft, phase: AwaitingModel, reply: ModelReply, model: str) -> None:
    """Submit the text of a reply without calls for checking. Its message is already part of the turn."""
    if not reply.text.strip():
        rounds.close_round(draft, phase.round_id, model, Status.ERROR)
        empty = acceptance.Refused(told=acceptance.EMPTY, why=acceptance.WAS_EMPTY, wants_json=True)
        _give_back(draft, phase.round_id, phase.purpose, empty)
        return
    rounds.close_round(draft, phase.round_id, model, Status.SUCCESS)
    if reply.finish_reason == "length":
        cut = acceptance.Refused(told=acceptance.CUT, why=acceptance.WAS_CUT)
        _give_back(draft, phase.round_id, phase.purpose, cut)
        return
    draft.set_phase(CheckingAnswer(round_id=phase.round_id, purpose=phase.purpose, text=reply.text))
    ask(draft)


def ask(draft: Draft) -> None:
    """Emit the effect that checks the answer. Also used to repeat the check after a restart."""
    phase, contract = draft.state.phase, draft.state.contract
    if isinstance(phase, CheckingAnswer) and contract is not None:
        draft.effects.append(
            CheckAnswer(
                round_id=phase.round_id, text=phase.text, schema=contract.output_schema, patterns=contract.patterns
            )
        )


def checked(draft: Draft, phase: CheckingAnswer, facts: AnswerFacts) -> None:
    """Accept the answer, fail the turn, or return the answer to the model, as the contract says."""
    state = draft.state
    if state.contract is None:
        return
    match acceptance.word_on(state.contract, facts, state.messages, state.grant):
        case acceptance.Accepted(answer=answer):
            rounds.finish(draft, TurnStatus.ANSWERED, answer)
        case acceptance.GivenUp(reason=reason):
            rounds.finish(draft, TurnStatus.FAILED, "", detail=reason)
        case acceptance.Refused() as refused:
            _give_back(draft, phase.round_id, phase.purpose, refused)


def _give_back(draft: Draft, number: RoundId, purpose: Purpose, refused: acceptance.Refused) -> None:
    draft.events.append(
        AnswerRefused(
            id=number, parent_id=draft.state.turn_id, reason=refused.told, why=refused.why, unproven=refused.unproven
        )
    )
    why = findings.one_line(refused.why, most=_MOST_OF_A_DETAIL)
    if refused.hopeless:
        rounds.finish(draft, TurnStatus.FAILED, "", detail=refused.hopeless)
    elif purpose is Purpose.CLOSE:
        rounds.finish(draft, TurnStatus.LIMIT, "", detail=f"{rounds.limit_text(draft)} {why}")
    else:
        message_id = draft.next_message_id()
        draft.say(UserMessage(id=message_id, text=refused.told, by=Speaker.MACHINE, wants_json=refused.wants_json))
        rounds.count_round(draft, only_invalid=False)
        if (times := acceptance.without_json(draft.state.messages)) >= acceptance.MOST_WITHOUT_JSON:
            detail = f"The model answered {times} times in a row without the JSON that this step asks for. {why}"
            rounds.finish(draft, TurnStatus.FAILED, "", detail=detail)
            return
        rounds.ask_next(draft)
