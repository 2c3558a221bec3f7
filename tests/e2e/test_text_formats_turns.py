"""Further fates of calls in text, on a terminal: refused, repaired, misnamed, cut off, under two roles."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.installation import (
    EFFECT,
    TITLE,
    ChatTerminal,
    Installation,
    answers_each_call_once,
    lines_with,
    registry,
)
from tests.e2e.text_model import SPELLINGS, replies_so_far, streamed
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, says

HERMES = SPELLINGS["hermes"]
READS = HERMES.asks("file_read", path="note.txt")


def in_turn(*replies: Reply) -> Callable[[SeenRequest], Reply]:
    """The replies in order, by what the request shows of them: a repeated request gets the same one."""
    return lambda request: replies[replies_so_far(request)]


def keyed(url: str, **keys: object) -> dict[str, Any]:
    """A registry whose model has these keys."""
    value = registry(url)
    value["models"]["local"] |= keys
    return value


def switch(terminal: ChatTerminal, role: str) -> None:
    """Go on in another role."""
    terminal.press("ctrl+r")
    terminal.wait_for("type to filter")
    terminal.send(role)
    terminal.press("enter")


@pytest.mark.some(1)
@pytest.mark.parametrize("format", ["hermes", "qwen3_xml", "llama3_json", "deepseek_v31"])
def test_the_reason_of_a_refusal_reaches_the_model_as_its_results_do(format: str, installation: Installation) -> None:
    spelling = SPELLINGS[format]
    replies = in_turn(streamed(spelling.asks("shell_exec", command=EFFECT)), says("Understood."))
    with FakeOpenAI(replies) as server:
        installation.use(keyed(server.url, tool_format=format))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            terminal.dialog()
            terminal.press("D")
            terminal.wait_for("Deny shell_exec")
            terminal.send("not on a Friday")
            terminal.press("enter")
            terminal.wait_for("Understood.")
        last = server.requests[-1]
        assert server.violations == []
    assert installation.count == 0 and installation.journal() == []
    result = last.last_user
    assert "of shell_exec: denied]" in result
    assert result.index("[result ") < result.index("not on a Friday") < result.index("[end of result ")
    assert spelling.call("shell_exec", {"command": EFFECT}) in last.messages[-2]["content"]


@pytest.mark.more
def test_a_repaired_call_asks_where_a_rule_would_have_let_it_run_and_the_dialog_shows_the_repair(
    installation: Installation,
) -> None:
    whole = HERMES.asks("shell_exec", command="touch one")
    broken = HERMES.asks("shell_exec", command="touch two").replace('"}}', '",}}')
    with FakeOpenAI(in_turn(streamed(whole), streamed(broken), says("Both are there."))) as server:
        value = keyed(server.url, tool_format="hermes")
        value["roles"]["coder"]["rules"] = [{"tool": "shell_exec", "match": ["touch", "*"], "verdict": "allow"}]
        installation.use(value)
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("make two files")
            shown = terminal.dialog()
            assert (installation.workspace / "one").exists() and not (installation.workspace / "two").exists()
            terminal.press("a")
            terminal.wait_for("Both are there.")
        assert server.violations == []
    assert "touch two" in shown
    assert "Read with repairs: a comma before a closing bracket was dropped" in shown
    assert (installation.workspace / "two").exists()


def test_a_name_that_is_not_on_offer_is_answered_and_the_turn_goes_on(installation: Installation) -> None:
    unknown = HERMES.asks("shell_exex", words="I run it.", command=EFFECT)
    with FakeOpenAI(in_turn(streamed(unknown), streamed(READS), says("It is due on Friday."))) as server:
        installation.use(keyed(server.url, tool_format="hermes"))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("when is it due?")
            screen = terminal.wait_for("It is due on Friday.")
            assert TITLE not in screen
        _, result, last = server.requests
        assert server.violations == []
    assert "shell_exex" in result.last_user and "on offer" in result.last_user and "shell_exec" in result.last_user
    assert "The invoice is due on Friday." in last.last_user
    assert installation.count == 0


@pytest.mark.some(1)
@pytest.mark.parametrize("format", SPELLINGS)
def test_a_call_that_the_length_limit_cut_does_not_run_and_nobody_is_asked(
    format: str, installation: Installation
) -> None:
    spelling = SPELLINGS[format]
    text = spelling.asks("shell_exec", words="" if spelling.lead else "I run it.", command=EFFECT)
    cut = text[: text.index(".txt")]
    with FakeOpenAI(in_turn(streamed(cut, finish="length"), says("I will be shorter."))) as server:
        installation.use(keyed(server.url, tool_format="auto", model_name=spelling.model))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            screen = terminal.wait_for("I will be shorter.")
            assert TITLE not in screen
            assert lines_with(screen, ["not run: it was cut off"])
        last = server.requests[-1]
        assert server.violations == []
    assert len(server.requests) == 2
    (result,) = last.tool_results
    assert "not run" in result and "cut off" in result
    assert installation.count == 0 and installation.journal() == []


@pytest.mark.more
def test_a_conversation_goes_from_a_prompted_model_to_a_native_one_and_back(installation: Installation) -> None:
    def reply(request: SeenRequest) -> Reply:
        match replies_so_far(request):
            case 0 | 4 if "tools" not in request.body:
                return streamed(SPELLINGS["qwen3_xml"].asks("file_read", words="Looking.", path="note.txt"))
            case 2 if "tools" in request.body:
                return calls(call("file_read", path="note.txt"), text="Looking too.")
            case number:
                return says(f"Answer {number}.")

    with FakeOpenAI(reply) as server:
        value = registry(server.url)
        value["models"]["prompted"] = {**value["models"]["local"], "tool_format": "qwen3_xml"}
        value["roles"]["coder"]["primary"] = "prompted"
        installation.use(value)
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("the first question")
            terminal.wait_for("Answer 1.")
            switch(terminal, "operator")
            terminal.wait_for("coder → operator")
            terminal.say("the second question")
            terminal.wait_for("Answer 3.")
            switch(terminal, "coder")
            terminal.wait_for("operator → coder")
            terminal.say("the third question")
            terminal.wait_for("Answer 5.")
        assert server.violations == []
        native, prompted = server.requests[3], server.requests[5]
    assert ["tools" in request.body for request in server.requests] == [False, False, True, True, False, False]
    assert answers_each_call_once(native)
    assert len(native.tool_results) == 2 and all("due on Friday" in result for result in native.tool_results)
    assert "<tool_call>" not in json.dumps(native.messages)
    history = prompted.messages
    assert [message["role"] for message in history[1:]] == ["user", "assistant"] * 5 + ["user"]
    assert not any("tool_calls" in message for message in history)
    said = [message["content"] for message in history if message["role"] == "assistant"]
    assert [text.count("<function=file_read>") for text in said] == [1, 0, 1, 0, 1]
    assert sum("due on Friday" in message["content"] for message in history if message["role"] == "user") == 3


@pytest.mark.more
def test_a_call_of_a_prompted_model_that_is_approved_under_a_native_one_is_answered_natively(
    installation: Installation,
) -> None:
    def reply(request: SeenRequest) -> Reply:
        return says("Understood.") if "tools" in request.body else streamed(asking)

    asking = HERMES.asks("shell_exec", words="I write it down.", command=EFFECT)
    with FakeOpenAI(reply) as server:
        value = registry(server.url)
        value["models"]["prompted"] = {**value["models"]["local"], "tool_format": "hermes"}
        value["roles"]["coder"]["primary"] = "prompted"
        installation.use(value)
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            terminal.dialog()
            terminal.press("escape")
            terminal.wait_for("1 approval pending – ctrl+g")
            switch(terminal, "operator")
            terminal.wait_for("coder → operator")
            terminal.press("ctrl+g")
            assert "coder (prompted)" in terminal.dialog()
            terminal.press("a")
            terminal.wait_for("Understood.")
        _, last = server.requests
        assert server.violations == []
    assert installation.count == 1
    assert answers_each_call_once(last) and len(last.tool_results) == 1


def test_under_native_what_looks_like_a_call_is_text_that_a_user_can_read(installation: Installation) -> None:
    with FakeOpenAI([streamed(HERMES.asks("shell_exec", words="I write it down.", command=EFFECT))]) as server:
        installation.use(keyed(server.url, tool_format="native"))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            screen = terminal.wait_until(lambda text: EFFECT in " ".join(text.split()), what=EFFECT)
            assert TITLE not in screen
            terminal.wait_for('"name": "shell_exec"')
        assert len(server.requests) == 1
    assert installation.count == 0 and installation.journal() == []
