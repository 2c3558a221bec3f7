"""Questions of servers: stored before they are shown, answered once, void when their call is over."""

import json

from chatops.domain.decisions import Answer, AnswerAction, Answered, Approved, ServerQuestion
from chatops.domain.events import AskReason
from chatops.domain.messages import NoticeMessage
from chatops.domain.names import looks_secret
from chatops.engine.effects import DeliverAnswer
from chatops.engine.inputs import AnswerQuestion, CancelTurn, QuestionInput, QuestionWithdrawnInput
from chatops.engine.state import Started
from chatops.engine.view import open_questions, pending_calls
from chatops.store.codec import STATE_VERSION, decode_state, encode_state
from tests.engine.world import ANA, World, raw, reply

KEY = ServerQuestion(server="h", message="Who?", schema='{"type":"object"}', secrets=("api_key",), id="q1")
ANSWER = Answer(action=AnswerAction.ACCEPT, content=json.dumps({"name": "Ana", "api_key": "sk-1"}))


def asking(question: ServerQuestion = KEY) -> World:
    """A call that runs and has asked."""
    world = World.begin()
    world.drain(reply(raw("run")))
    world.decide(0, Approved())
    while not any(isinstance(one.status, Started) for one in world.state.phase.calls):  # type: ignore[union-attr]
        world.perform(0)
    world.feed(QuestionInput(call_id=_call(world), attempt=1, question=question))
    return world


def _call(world: World):  # type: ignore[no-untyped-def]
    return world.state.phase.calls[0].call.id  # type: ignore[union-attr]


def notices(world: World) -> list[str]:
    return [one.text for one in world.state.messages if isinstance(one, NoticeMessage)]


def test_an_answer_is_delivered_once_and_what_looks_secret_is_stored_nowhere() -> None:
    world = asking()
    (asked,) = open_questions(world.state)
    assert asked.question == KEY
    assert decode_state(encode_state(world.state), version=STATE_VERSION).state.phase == world.state.phase
    answer = AnswerQuestion(call_id=asked.call_id, question_id="q1", answer=ANSWER, by=ANA)
    step = world.feed(answer)
    assert step.effects == (DeliverAnswer(call_id=asked.call_id, question_id="q1", answer=ANSWER),)
    (logged,) = step.decisions
    assert logged.decision == Answered(action=AnswerAction.ACCEPT, fields=("name", "api_key"))
    assert not world.feed(answer).effects, "it is answered once"
    assert notices(world) == [
        "The MCP server h asks you, for run: Who?",
        "You answered the MCP server h: name: Ana, api_key: (not stored)",
    ]
    assert "sk-1" not in encode_state(world.state)
    assert "sk-1" not in repr((step.messages, step.events, step.decisions))
    world.drain(reply())
    assert "Ana" not in repr(world.requests[-1].messages), "no model gets the question or the answer"


def test_a_question_is_void_when_its_call_ends_stops_or_is_interrupted() -> None:
    ended, stopped, withdrawn, killed = asking(), asking(), asking(), asking()
    ended.perform(0)
    stopped.feed(CancelTurn())
    withdrawn.feed(QuestionWithdrawnInput(call_id=_call(withdrawn), question_id="q1"))
    killed.crash()
    for world in (ended, stopped, withdrawn, killed):
        assert open_questions(world.state) == ()
        assert notices(world)[-1].startswith("The question of the MCP server h is void: ")
        late = AnswerQuestion(call_id=_call(asking()), question_id="q1", answer=ANSWER, by=ANA)
        assert not world.feed(late).effects
    (pending,) = pending_calls(killed.state)
    assert pending.reason is AskReason.OUTCOME_UNKNOWN


def test_a_call_asks_one_question_at_a_time() -> None:
    world = asking()
    second = ServerQuestion(server="h", message="And?", id="q2")
    assert not world.feed(QuestionInput(call_id=_call(world), attempt=1, question=second)).events
    world.feed(AnswerQuestion(call_id=_call(world), question_id="q1", answer=ANSWER, by=ANA))
    world.feed(QuestionInput(call_id=_call(world), attempt=1, question=second))
    assert [one.question.id for one in open_questions(world.state)] == ["q2"]


def test_words_for_secrets_are_found_however_they_are_written() -> None:
    for text in (
        "apiKey",
        "API key \x1b]52;c;",
        "pass\u200bword",
        "Your \u0440\u0430ssword",
        "P4$$w0rd",
        "p a s s w d",
    ):
        assert looks_secret("", text), text
    for text in ("name", "Which colour do you like?", "monkey business", "keyboard layout", "2 boats"):
        assert not looks_secret(text), text
