"""Faults B: streams that break. The partial reply is kept and marked as cut off; the user asks for the rest."""

import json
import re
from dataclasses import dataclass

import pytest

from tests.e2e.installation import EFFECT, answers_each_call_once
from tests.faults.stage import MARKED, Stage, assistants, partial_of
from tests.support.fake_openai import (
    Close,
    Hang,
    Raw,
    Reply,
    Reset,
    Step,
    call,
    calls,
    delta,
    says,
    sse,
)
from tests.support.waiting import PATIENCE

SAID = "first half, "
HALF = sse(delta(SAID), done=False)
END = sse(delta("and the second", finish="stop"))
HERE = r"127\.0\.0\.1:\d+"


def shell(arguments: str) -> bytes:
    wanted = {"index": 0, "id": "call_x", "function": {"name": "shell_exec", "arguments": arguments}}
    return sse(delta(tool_calls=[wanted]), done=False)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A reply that breaks off after `SAID`, and the text expected about it."""

    steps: tuple[Step, ...]
    says: str
    role: str = "coder"
    meanwhile: str = ""
    """Text shown while it lasts."""


CASES = {
    "B03": Case(steps=(HALF,), says=rf"The reply of {HERE} ended without a finish mark\."),
    "B04": Case(
        steps=(HALF + shell('{"command": "rm -rf bui'),),
        says=rf"The reply of {HERE} ended without a finish mark, inside a tool call; the call was not run\.",
    ),
    "B04 that can be read": Case(
        steps=(HALF + shell(json.dumps({"command": EFFECT})),),
        says=rf"The reply of {HERE} ended without a finish mark, inside a tool call; the call was not run\.",
    ),
    "B05": Case(
        steps=(HALF, Hang()),
        says=rf"There was no further data from {HERE} for [23] s\.",
        role="hasty",
        meanwhile=r"No data for [12] s\. chatops gives up after 2 s\.",
    ),
    "B09": Case(
        steps=(HALF + b"event: error\ndata: out of \x1b[2Jcheese\n\n", END),
        says=rf"{HERE} reports an error: out of \[2Jcheese\.",
    ),
}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.fault(name[:3]), id=name) for name, case in CASES.items()]
)
def test_what_has_come_is_kept_and_marked_and_nothing_is_asked_again(
    stage: Stage, case: Case, request: pytest.FixtureRequest
) -> None:
    text = f"question {request.node.callspec.id}"
    reply = Raw(steps=case.steps)

    ended = stage.ask(text, reply, says("asked again"), more=("--role", case.role))
    assert (ended.ran.code, ended.status, ended.answer, ended.asked) == (1, "failed", SAID, 1)
    assert ended.ran.json["calls"] == []
    assert re.search(rf"{case.meanwhile}.*{case.says} The partial reply is kept\. Try again", ended.err), ended.err
    stored = partial_of(stage.history(ended))
    assert stored is not None and (stored.text, stored.calls) == (SAID, ())

    stage.as_role(case.role)
    stage.chat.say(text, reply, says("asked again"))
    if case.meanwhile:
        stage.seen(text, case.meanwhile)
    screen = stage.seen(
        text, rf"first half, \[cut off here…\] .*{case.says} → The partial reply is kept\..*Press R to retry"
    )
    assert "asked again" not in screen and "Approve " not in screen
    assert len(stage.chat.asked) == 1
    stored = partial_of(stage.chat_history())
    assert stored is not None and (stored.text, stored.calls) == (SAID, ())
    stage.as_role("coder")
    stage.chat.assert_well()
    assert assistants(stage.provider.requests[-1])[-1] == f"{SAID}\n{MARKED}"
    assert (stage.chat.installation.count, stage.pipe.installation.count) == (0, 0)
    assert b"[2Jcheese" not in stage.chat.terminal.raw.replace(b"of [2Jcheese", b"")


@pytest.mark.fault("B03", "B04")
def test_the_model_is_shown_what_it_had_said_and_that_it_was_cut_off(stage: Stage) -> None:
    ended = stage.ask("and then?", Raw(steps=CASES["B03"].steps))
    again = stage.ask("go on", Raw(steps=CASES["B04"].steps), more=("-r", ended.session))
    assert again.session == ended.session
    assert assistants(stage.goes_on(again)) == [f"{SAID}\n{MARKED}"] * 2


@pytest.mark.fault("B01")
def test_r_asks_the_same_again_and_the_cut_off_reply_stays(stage: Stage) -> None:
    stage.said("once more with R", "Press R to retry", Raw(steps=(HALF, Reset())))
    stage.provider.script(says("the whole answer"))
    stage.chat.terminal.send("R")
    stage.seen("once more with R", r"first half, \[cut off here…\].*the whole answer")
    first, second = stage.chat.asked
    assert first.messages == second.messages
    stage.chat.assert_well()
    assert assistants(stage.provider.requests[-1])[-2:] == [f"{SAID}\n{MARKED}", "the whole answer"]


@pytest.mark.some(1)
@pytest.mark.fault("B01", "B02")
@pytest.mark.parametrize("end", [Reset(), Close()], ids=["reset", "close"])
def test_once_a_tool_has_run_nothing_is_asked_again_by_itself_and_r_runs_no_tool_again(
    stage: Stage, end: Reset | Close
) -> None:
    text = f"read it, then {type(end).__name__}"
    replies: tuple[Reply, ...] = (calls(call("file_read", path="note.txt")), Raw(steps=(HALF, end)))
    ended = stage.ask(text, *replies, says("asked again"))
    assert (ended.ran.code, ended.status, ended.answer, ended.asked) == (1, "failed", SAID, 2)
    assert [(one["tool"], one["outcome"]) for one in ended.ran.json["calls"]] == [("file_read", "success")]
    assert "due on Friday" in stage.goes_on(ended).tool_results[-1]

    stage.said(text, r"first half, \[cut off here…\].*Press R to retry", *replies, says("asked again"))
    assert len(stage.chat.asked) == 2
    stage.provider.script(says(f"after {text}"))
    stage.chat.terminal.send("R")
    stage.seen(text, f"after {text}")
    assert len(stage.chat.asked) == 3
    assert answers_each_call_once(stage.chat.asked[-1])
    assert stage.chat.asked[-1].messages == stage.chat.asked[-2].messages
    assert [row.attempt for row in stage.chat.installation.journal()] == [1]
    stage.chat.assert_well()


@pytest.mark.fault("B21")
def test_esc_in_the_middle_of_a_reply_keeps_what_has_come_and_closes_the_connection(stage: Stage) -> None:
    stage.said("stop me", "first half,", Raw(steps=(HALF, Hang())))
    (asked,) = stage.chat.asked
    assert not asked.gone.is_set()
    stage.chat.terminal.press("escape")
    stage.seen("stop me", r"first half, \[cut off here…\] · Stopped by the user\.")
    assert asked.gone.wait(PATIENCE)
    stored = partial_of(stage.chat_history())
    assert stored is not None and stored.text == SAID
    stage.chat.assert_well()
    assert assistants(stage.provider.requests[-1])[-1] == f"{SAID}\n{MARKED}"


@pytest.mark.fault("B21", "B05")
def test_esc_works_while_nothing_comes(stage: Stage) -> None:
    stage.chat.say("stop me before you speak", Raw(steps=(Hang(),)))
    stage.chat.terminal.wait_until(lambda _: bool(stage.chat.asked), what="the question to be asked")
    stage.chat.terminal.press("escape")
    stage.seen("stop me before you speak", r"Stopped by the user\.")
    assert stage.chat.asked[0].gone.wait(PATIENCE)
    stage.chat.assert_well()
