"""Replies in odd shapes, through both entry points: what is seen, what ran, what is sent back.

A turn has many rounds, so one turn meets many shapes: a start of the program is what costs time here.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.installation import APPROVE, EFFECT, asked_ids, dialog_of
from tests.faults.entry_points import FaultyChat, Pipe, flat, patient_registry
from tests.faults.shapes import FINISH, STOP, fn, no_calls, piece
from tests.faults.terminals import chat_in
from tests.support.fake_openai import delta, stream

SHELL = {"command": EFFECT}
NOTE = {"path": "note.txt"}
FIRST, SECOND = {"command": "printf a >> out.txt"}, {"command": "printf b >> out.txt"}
AS_JSON = ("--output-format", "json")


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyChat]:
    """One chat on a terminal for all the faults of this file, as coder."""
    with chat_in(tmp_path_factory.mktemp("talk"), max_rounds=24) as chat:
        yield chat


@pytest.fixture
def seen(talk: FaultyChat) -> FaultyChat:
    """The chat, and nothing left of what ran in it before."""
    for left in ("out.txt", "count.txt"):
        (talk.installation.workspace / left).unlink(missing_ok=True)
    return talk


@pytest.fixture
def patient_pipe(pipe: Pipe) -> Pipe:
    """The program without a terminal, for turns of many rounds."""
    pipe.installation.use(patient_registry(pipe.provider.server.url, max_rounds=24))
    return pipe


def out(chat: FaultyChat) -> str:
    """Return the files written by the calls of a test."""
    file = chat.installation.workspace / "out.txt"
    return file.read_text() if file.exists() else ""


def asks(chat: FaultyChat, words: str) -> None:
    """Wait until the dialog says this."""
    chat.terminal.wait_until(lambda text: words in flat(dialog_of(text)), what=f"the dialog to say {words!r}")


def approve(chat: FaultyChat) -> str:
    """Wait until the call can be approved, approve it, and return what was shown."""
    shown = chat.terminal.wait_until(lambda text: APPROVE in dialog_of(text), what="the call to ask")
    # The next round may ask the very same question.
    chat.terminal.press("a")
    # The heading, the command, what else there is to know.
    return dialog_of(shown).split("\n\n")[1].strip().removeprefix("▲ ")


def arguments_sent(chat: FaultyChat) -> list[dict[str, Any]]:
    """The arguments of the calls since the last message, as they are sent back."""
    last = chat.asked[-1].messages
    begun = max(place for place, message in enumerate(last) if message["role"] == "user")
    sent = [one for message in last[begun:] for one in message.get("tool_calls", [])]
    return [json.loads(one["function"]["arguments"]) for one in sent]


@pytest.mark.more
@pytest.mark.fault("C07")
def test_c07_what_came_before_a_filter_is_kept_and_the_filter_named(seen: FaultyChat, pipe: Pipe) -> None:
    part = stream(delta("Part of an answer"), delta(finish="content_filter"))
    seen.say("tell c07", part)
    seen.wait_for(r"tell c07 Part of an answer .*stopped by the provider's filter")
    seen.assert_well()
    ran = pipe.ask("go", part, more=AS_JSON)
    assert (ran.json["answer"], ran.json["rounds"][0]["finish_reason"]) == ("Part of an answer", "content_filter")
    assert "stopped by the provider's filter" in ran.err
    pipe.assert_well()


# Calls of which none may run

IN_A_ROUND = {
    "C06-length": "not run: the reply hit the length limit",
    "C06-length-in-pieces": "not run: the reply hit the length limit",
    "C07-filter": "not run: the provider's filter stopped",
    "C18-two-objects": "not run: its arguments hold two JSON values",
    "C20-unknown": r"not run: there is no tool 'functions\.shell_exec now'",
    "C20-no-name": r"\(no name\) .*not run: there is no tool ''",
    "C20-null-name": r"\(no name\) .*not run: ",
}
"""Text in the chat about a call that is answered with an error; the turn continues."""


@pytest.mark.more
@pytest.mark.fault("C06", "C07", "C18", "C20")
def test_a_broken_call_never_runs_and_the_model_is_told(seen: FaultyChat, patient_pipe: Pipe) -> None:
    replies = [no_calls("shell_exec", SHELL)[shape] for shape in IN_A_ROUND]
    seen.say("none of these", *replies)
    shown = seen.wait_for(r"none of these .*" + " .*".join(IN_A_ROUND.values()) + ".* You said: none of these")
    assert "waiting" not in shown
    assert len(seen.asked[-1].tool_results) - len(seen.asked[0].tool_results) == len(replies)
    assert seen.installation.count == 0
    seen.assert_well()
    report = patient_pipe.ask("go", *replies, more=(*AS_JSON, "--approve", "shell_exec:printf *")).json
    assert (report["status"], report["pending"], report["answer"]) == ("answered", [], "You said: go")
    assert [one["outcome"] for one in report["calls"]] == ["invalid"] * len(replies)
    assert all("not run" in one or "There is no tool" in one for one in patient_pipe.asked[-1].tool_results)
    assert patient_pipe.installation.count == 0
    patient_pipe.assert_well()


@pytest.mark.fault("C19")
def test_c19_what_was_repaired_is_said_and_what_is_shown_is_what_runs(seen: FaultyChat, patient_pipe: Pipe) -> None:
    written = {
        "the arguments were given as a JSON string": json.dumps(json.dumps(FIRST)),
        "the arguments were in a code fence": f"```json\n{json.dumps(SECOND)}\n```",
    }
    replies = [stream(piece(**fn("shell_exec", one, index=0, id="1")), FINISH) for one in written.values()]
    seen.say("repair these", *replies)
    for repair, command in zip(written, (FIRST["command"], SECOND["command"]), strict=True):
        asks(seen, f"repaired {repair}")
        assert approve(seen).split("\n")[-1] == command
    seen.wait_for(r"repair these .*printf b >> out.txt approved · [\d.]+ m?s You said: repair these")
    assert out(seen) == "ab"
    assert arguments_sent(seen) == [FIRST, SECOND]
    seen.assert_well()
    more = (*AS_JSON, "--approve", "shell_exec:printf *", "--on-approval", "deny")
    report = patient_pipe.ask("go", *replies, more=more).json
    assert [(one["arguments"], one["outcome"]) for one in report["calls"]] == [(FIRST, "denied"), (SECOND, "denied")]
    patient_pipe.assert_well()


@pytest.mark.fault("C23")
def test_c23_what_was_thought_is_sent_back_only_to_who_wants_it(pipe: Pipe) -> None:
    thinks = stream(delta(reasoning_content="Let me see."), piece(**fn("file_read", json.dumps(NOTE), index=0)), FINISH)
    assert pipe.ask("go", thinks).code == 0
    assert b"Let me see" not in pipe.asked[1].raw
    pipe.installation.use(patient_registry(pipe.provider.server.url, model_name="deepseek-v3.2"))
    assert pipe.ask("go", thinks).code == 0
    assert pipe.asked[1].messages[-2]["reasoning_content"] == "Let me see."
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C27")
def test_c27_an_empty_reply_is_asked_for_again_once_and_then_by_a_key(seen: FaultyChat, pipe: Pipe) -> None:
    empty = {
        "nothing": stream(STOP),
        "blanks": stream(delta(" \n"), STOP),
        "only a thought": stream(delta(reasoning_content="Hm."), STOP),
    }
    for name, reply in empty.items():
        seen.say(f"empty {name}", reply, reply)
        seen.wait_for(rf"empty {name} .*sent an empty reply twice.*Press R to retry")
        assert len(seen.asked) == 2
        seen.terminal.press("R")
        seen.wait_for(rf"You said: empty {name}")
        assert len(seen.asked) == 3
    seen.assert_well()
    assert pipe.ask("go", empty["nothing"]).out == "You said: go\n"
    assert len(pipe.asked) == 2
    failed = pipe.ask("go", empty["blanks"], empty["nothing"], more=AS_JSON)
    assert (failed.code, failed.json["status"], len(pipe.asked)) == (1, "failed", 2)
    assert "sent an empty reply twice" in failed.err
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C26")
def test_c26_two_hundred_calls_each_get_a_result_and_those_too_many_share_a_line(seen: FaultyChat, pipe: Pipe) -> None:
    many = [fn("file_read", json.dumps({**NOTE, "limit": n}), index=n, id=f"i{n}") for n in range(1, 201)]
    reply = stream(*[piece(**one) for one in many], FINISH)
    report = pipe.ask("go", reply, more=AS_JSON).json
    assert [one["outcome"] for one in report["calls"]] == ["success"] * 64 + ["invalid"] * 136
    assert len(pipe.asked[1].tool_results) == len(set(asked_ids(pipe.asked[1]))) == 200
    pipe.assert_well()
    seen.say("many c26", reply)
    shown = seen.wait_for(r"136 more calls not run: invalid call You said: many c26")
    assert "Read  note.txt " in shown
    assert len(seen.asked[-1].tool_results) >= 200
    seen.assert_well()
