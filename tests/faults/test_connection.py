"""Faults A: what a server answers instead of a reply, as it is told at both entry points."""

import json
import re
from dataclasses import dataclass

import pytest

from chatops.domain.messages import AssistantMessage
from chatops.engine.pairing import NO_REPLY
from tests.faults.stage import KEY, Stage, assistants
from tests.support.fake_openai import FakeOpenAI, Raw, Reply, error, says

PAGE = (
    b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title><style>p{}</style></head>"
    b"<body><h1>\x1b]0;owned\x07\x1b[31mnginx</h1></body></html>"
)
AT_ONCE = (("Retry-After-Ms", "20"),)


def page(status: int, body: bytes = PAGE, **options: object) -> Raw:
    return Raw(status=status, content_type="text/html", steps=(body,), headers=AT_ONCE)


def as_json(status: int, value: object) -> Raw:
    return Raw(status=status, content_type="application/json", steps=(json.dumps(value).encode(),))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A server that gives this answer to `requests` requests, and the texts expected in both places."""

    reply: Reply
    says: str
    requests: int = 1
    role: str = "coder"


CASES = {
    "A05": Case(reply=page(502), says=r"502 from 127\.0\.0\.1:\d+: 502 Bad Gateway\. (→ )?The server has", requests=3),
    "A08": Case(
        reply=error(404, "model not found"),
        says=r"Model 'gone-model' is unknown at 127\.0\.0\.1:\d+; known: fake-model\. (→ )?Choose one",
        role="stranger",
    ),
    "A19": Case(
        reply=page(200, b"\n<html><body>Please log in to the hotel</body></html>"),
        says=r"127\.0\.0\.1:\d+ sent a web page, not an API reply \(Please log in to the hotel\)\. (→ )?"
        r"Check api_url in the registry: it usually ends in /v1",
    ),
    "A20": Case(
        reply=as_json(200, {"error": {"message": "the engine is asleep"}}),
        says=r"127\.0\.0\.1:\d+ reports an error: the engine is asleep\.",
    ),
}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.fault(name[:3]), id=name) for name, case in CASES.items()]
)
def test_a_refusal_is_told_and_the_conversation_goes_on(
    stage: Stage, case: Case, request: pytest.FixtureRequest
) -> None:
    text = f"question {request.node.callspec.id}"
    replies = [case.reply] * case.requests

    ended = stage.ask(text, *replies, more=("--role", case.role))
    assert (ended.ran.code, ended.status, ended.answer, ended.asked) == (1, "failed", "", case.requests)
    assert re.search(case.says, ended.err), ended.err
    assert not [message for message in stage.history(ended) if isinstance(message, AssistantMessage)]

    stage.as_role(case.role)
    screen = stage.said(text, rf"{case.says}.*Press R to retry", *replies)
    assert len(stage.chat.asked) == case.requests
    assert f"{case.role} · " in screen
    stage.as_role("coder")
    stage.chat.assert_well()
    assert b"owned" not in stage.chat.terminal.raw


@pytest.mark.more
@pytest.mark.fault("A19", "A20")
def test_a_reply_that_was_none_leaves_nothing_in_the_conversation(stage: Stage) -> None:
    ended = stage.ask("is this a reply?", CASES["A19"].reply)
    again = stage.ask("or this?", CASES["A20"].reply, more=("-r", ended.session))
    assert (again.status, again.session) == ("failed", ended.session)
    sent = stage.goes_on(again)
    assert set(assistants(sent)) == {NO_REPLY}
    assert [m["content"] for m in sent.messages if m["role"] == "user"] == [
        "is this a reply?",
        "or this?",
        "still there?",
    ]


@pytest.mark.more
@pytest.mark.fault("A02")
def test_r_asks_again_at_once(stage: Stage) -> None:
    stage.said("press R now", "limits the rate for 1 h", error(429, "slow down", headers=(("Retry-After", "3600"),)))
    stage.provider.script(says("here it is"))
    stage.chat.terminal.send("R")
    stage.seen("press R now", "limits the rate for 1 h.*here it is")
    assert len(stage.chat.asked) == 2
    assert stage.chat.asked[0].messages == stage.chat.asked[1].messages
    stage.chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("A01")
def test_a_pause_counts_down_and_esc_ends_it(stage: Stage) -> None:
    limited = error(429, "slow down", headers=(("Retry-After", "30"),))
    stage.said("do not wait", r"Trying again in 2\d s \(2 of 3\)\.", limited)
    stage.chat.terminal.press("escape")
    stage.seen("do not wait", r"limits the rate: slow down\. It was not tried again\. .*Stopped by the user\.")
    assert len(stage.chat.asked) == 1
    stage.chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("A17")
def test_a_redirect_is_named_and_not_followed(stage: Stage) -> None:
    with FakeOpenAI([says("caught you")] * 4) as elsewhere:
        for status in (307, 308):
            location = ("Location", f"{elsewhere.url}/chat/completions?token=abc")
            moved = Raw(status=status, headers=(location,), steps=(b"moved",))
            target = re.escape(f"{elsewhere.url}/chat/completions")
            words = rf"127\.0\.0\.1:\d+ redirects to {target}\. The key was not sent there\."
            ended = stage.ask(f"moved {status}?", moved)
            assert (ended.ran.code, ended.status, ended.asked) == (1, "failed", 1)
            assert re.search(words, ended.err), ended.err
            stage.goes_on(ended)
            assert "token=abc" not in stage.said(f"moved {status}?", f"{words}.*Press R", moved)
            stage.chat.assert_well()
        assert (elsewhere.requests, elsewhere.others, elsewhere.connections) == ([], [], 0)


@pytest.mark.more
@pytest.mark.fault("A06", "A07")
def test_a_key_that_a_server_repeats_is_seen_nowhere(stage: Stage) -> None:
    echoes = [error(status, f"the key {KEY} and more") for status in (400, 401, 403, 422, 501)]
    echoes += [as_json(200, {"error": f"bad {KEY}"}), page(200, f"<html><title>{KEY}</title></html>".encode())]
    for number, echo in enumerate(echoes):
        ended = stage.ask(f"echo {number}", echo)
        assert ended.status == "failed"
        assert KEY not in ended.ran.err + ended.ran.out
        stage.said(f"echo {number}", "Press R to retry", echo)
    stage.chat.assert_well()
    assert stage.provider.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert KEY.encode() not in stage.chat.terminal.raw
    homes = [stage.pipe.installation.home, stage.chat.installation.home]
    files = [file for home in homes for file in home.rglob("*") if file.is_file()]
    assert len(files) > 2
    assert [file for file in files if KEY.encode() in file.read_bytes()] == []


def test_a_failure_after_retries_is_said_once_on_the_screen(stage: Stage) -> None:
    reply = error(500, "the model is out of order", headers=AT_ONCE)
    ended = r"Tried again \(3 of 3\)\. .*the model is out of order\..*The server has a problem.*Press R to retry"
    turn = stage.said("say it once", ended, reply, reply, reply)
    assert turn.count("the model is out of order") == 1
    assert turn.count("The server has a problem") == 1
    stage.chat.assert_well()
