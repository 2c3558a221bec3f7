"""Faults B: replies of odd characters, and of more than belongs to them. What is shown is whole and acts on nothing."""

import json
import sys
from dataclasses import dataclass

import pytest

from chatops.domain.messages import AssistantMessage
from tests.e2e.installation import EFFECT
from tests.faults.stage import Stage, assistants
from tests.support.command_line import program_environment
from tests.support.fake_openai import Raw, delta, sse, stream
from tests.support.terminal import Terminal

TEXT = "café 😀 naïve"
BODY = sse(delta("café 😀 "), delta("naïve", finish="stop"))
HOSTILE = "a\x00b\x1b]0;owned\x07c\x1b[1337;5md\u009b1338me\x08f\x7fg\u202eh"
SHOWN = r"a␀b␛\]0;owned␇c␛\[1337;5md<U\+009B>1338me␈f␡g<U\+202E>h"
SEQUENCES = tuple(
    sequence.encode()
    for sequence in ("\x1b]0;owned", "owned\x07", "\x1b[1337;5m", "\u009b1338", "me\x08", "\x7fg", "\u202e", "\x00")
)


def late_call() -> bytes:
    wanted = {
        "index": 0,
        "id": "late",
        "function": {"name": "shell_exec", "arguments": json.dumps({"command": EFFECT})},
    }
    return sse(delta(tool_calls=[wanted], finish="tool_calls"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A reply in an odd spelling, the text that it means, and how that looks (a regular expression)."""

    reply: Raw
    means: str = TEXT
    looks: str = TEXT


CASES = {
    "B13": Case(
        reply=stream(delta("x\ud83dy"), delta("z\ud83d", finish="stop")),
        means="x\ufffdyz\ufffd",
        looks="x\ufffdyz\ufffd",
    ),
    "B15": Case(reply=stream(delta(HOSTILE, finish="stop")), means=HOSTILE, looks=SHOWN),
    "B16": Case(reply=Raw(steps=(BODY + sse(delta("late")) + late_call(),))),
}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.fault(name[:3]), id=name) for name, case in CASES.items()]
)
def test_the_answer_is_the_same_and_whole(stage: Stage, case: Case, request: pytest.FixtureRequest) -> None:
    text = f"question {request.node.callspec.id}"
    ended = stage.ask(text, case.reply)
    assert (ended.ran.code, ended.status, ended.answer, ended.asked) == (0, "answered", case.means, 1)
    assert (ended.err, ended.ran.json["calls"], ended.ran.json["pending"]) == ("", [], [])

    screen = stage.said(text, case.looks, case.reply)
    assert not any(word in screen for word in ("late", "Approve "))
    stage.chat.assert_well()
    replies = [message for message in stage.chat_history() if isinstance(message, AssistantMessage)]
    assert (replies[-2].text, replies[-2].incomplete, replies[-2].calls) == (case.means, False, ())
    assert assistants(stage.provider.requests[-1])[-1] == case.means
    assert (stage.pipe.installation.count, stage.chat.installation.count) == (0, 0)
    raw = stage.chat.terminal.raw
    assert [sequence for sequence in SEQUENCES if sequence in raw] == []


@pytest.mark.fault("B13")
def test_half_a_character_can_be_exported_and_sent_back(stage: Stage) -> None:
    ended = stage.ask("half?", CASES["B13"].reply)
    assert assistants(stage.goes_on(ended)) == [CASES["B13"].means]
    for style in ("md", "html", "jsonl", "openai"):
        exported = stage.pipe.run("sessions", "export", ended.session, "--format", style)
        assert exported.code == 0, exported.err


@pytest.mark.more
@pytest.mark.fault("B15")
def test_no_sequence_reaches_a_terminal_without_the_chat_either(stage: Stage) -> None:
    stage.provider.script(stream(delta(HOSTILE, finish="stop")))
    installation = stage.pipe.installation
    env = {**stage.env, "CHATOPS_HOME": str(installation.home), "PYTHONPATH": program_environment()["PYTHONPATH"]}
    argv = [sys.executable, "-m", "chatops", *installation.flags, "-p", "hello terminal"]
    with Terminal(argv, cwd=installation.workspace, env=env) as terminal:
        assert terminal.wait_exit() == 0
        assert "owned" in terminal.text()
        assert [sequence for sequence in SEQUENCES if sequence in terminal.raw] == []
