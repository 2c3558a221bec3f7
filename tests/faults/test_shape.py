"""Replies in every shape that servers give them, through both entry points: what is seen, what ran, what is sent back.

A turn has many rounds, so one turn meets many shapes: a start of the program is what costs time here.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chatops.domain.messages import AssistantMessage
from tests.e2e.installation import APPROVE, EFFECT, Installation, asked_ids, dialog_of
from tests.faults.entry_points import FaultyChat, Pipe, flat, patient_registry
from tests.faults.shapes import FINISH, STOP, fn, no_calls, one_call, piece, two_calls, words
from tests.faults.terminals import chat_in
from tests.support.fake_openai import Hang, Raw, delta, sse, stream
from tests.support.waiting import PATIENCE

SHELL = {"command": EFFECT}
SAID = "The invoice is due on Friday."
NOTE = {"path": "note.txt"}
FIRST, SECOND = {"command": "printf a >> out.txt"}, {"command": "printf b >> out.txt"}
ENDLESS = [sse(*[delta("the ")] * 500, done=False)]
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


def approve(chat: FaultyChat, *, undecided: int = 1, of: int = 1) -> str:
    """Wait until `undecided` calls ask and one of them can be approved, approve it, and return what was shown."""
    head = "Approve " if of == 1 else f"of {of}, {undecided} undecided"
    shown = chat.terminal.wait_until(
        lambda text: head in dialog_of(text) and APPROVE in dialog_of(text), what=f"{undecided} of {of} calls to ask"
    )
    if of == 1:
        # The next round may ask the very same question.
        chat.terminal.press("a")
    else:
        chat.terminal.decide("a")
    # The heading, the list of several calls, the command, what else there is to know.
    return dialog_of(shown).split("\n\n")[1 if of == 1 else 2].strip().removeprefix("▲ ")


def arguments_sent(chat: FaultyChat) -> list[dict[str, Any]]:
    """The arguments of the calls since the last message, as they are sent back."""
    last = chat.asked[-1].messages
    begun = max(place for place, message in enumerate(last) if message["role"] == "user")
    sent = [one for message in last[begun:] for one in message.get("tool_calls", [])]
    return [json.loads(one["function"]["arguments"]) for one in sent]


# Words


@pytest.mark.more
@pytest.mark.fault("C01", "C02", "C03", "C08", "C21", "C22")
def test_words_arrive_however_they_are_sent(seen: FaultyChat) -> None:
    for shape in words(""):
        seen.say(f"tell {shape}", words(f"This is said as {shape} says it.")[shape])
        seen.wait_for(rf"tell {shape} This is said as {shape} says it\.")
        assert len(seen.asked) == 1
    seen.assert_well()


@pytest.mark.more
@pytest.mark.fault("C01", "C02", "C03", "C08", "C21", "C22")
def test_words_are_the_answer_of_a_script_and_stored_as_the_models(pipe: Pipe, installation: Installation) -> None:
    for number, shape in enumerate(words("")):
        ran = pipe.ask("go", words("It is Friday.")[shape], more=(*AS_JSON, *(("-c",) if number else ())))
        assert (ran.code, ran.json["answer"], ran.json["calls"]) == (0, "It is Friday.", []), shape
        finish = "refusal" if shape == "C08-refusal" else "stop"
        assert [one["finish_reason"] for one in ran.json["rounds"]] == [finish], shape
        with installation.store() as store:
            said = store.history(installation.session().id)[-1]
        assert isinstance(said, AssistantMessage), shape
        assert (said.text, said.finish_reason) == ("It is Friday.", finish), shape
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C05")
def test_c05_a_reply_without_a_finish_mark_is_cut_off(seen: FaultyChat, pipe: Pipe) -> None:
    half = stream(delta("Half of an answer"))
    seen.say("tell c05", half)
    shown = seen.wait_for(r"tell c05 Half of an answer .*ended without a finish mark.*Press R to retry")
    assert "cut off" in shown
    seen.assert_well()
    ran = pipe.ask("go", half, more=AS_JSON)
    assert (ran.code, ran.json["status"], ran.json["answer"]) == (1, "failed", "Half of an answer")
    assert "ended without a finish mark" in ran.err
    with pipe.installation.store() as store:
        kept = [m for m in store.history(pipe.installation.session().id) if isinstance(m, AssistantMessage)]
    assert [(m.text, m.incomplete) for m in kept] == [("Half of an answer", True)]
    pipe.assert_well()


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


# Calls


@pytest.mark.more
@pytest.mark.fault("C01", "C02", "C03", "C04", "C09", "C15", "C16", "C20")
def test_one_call_is_made_as_it_was_meant(patient_pipe: Pipe) -> None:
    shapes = list(one_call("file_read", NOTE))
    wanted = [{**NOTE, "limit": number} for number in range(1, len(shapes) + 1)]
    replies = [one_call("file_read", one)[shape] for shape, one in zip(shapes, wanted, strict=True)]
    report = patient_pipe.ask("go", *replies, more=AS_JSON).json
    assert [one["arguments"] for one in report["calls"]] == wanted
    assert {(one["tool"], one["outcome"]) for one in report["calls"]} == {("file_read", "success")}
    assert report["answer"] == "You said: go"
    results = patient_pipe.asked[-1].tool_results
    assert len(results) == len(shapes)
    assert all(SAID in result for result in results)
    patient_pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C04", "C09", "C15", "C16")
def test_what_is_shown_of_one_call_is_what_runs_once_and_only_after_a_yes(seen: FaultyChat) -> None:
    shapes = [shape for shape in one_call("", {}) if shape[:3] in {"C04", "C09", "C15", "C16"}]
    wanted = [{"command": f"printf {letter} >> out.txt"} for letter in "abcdefgh"[: len(shapes)]]
    replies = [one_call("shell_exec", one)[shape] for shape, one in zip(shapes, wanted, strict=True)]
    seen.say("one call each", *replies)
    for number, one in enumerate(wanted):
        asks(seen, one["command"])
        assert out(seen) == "abcdefgh"[:number]
        assert approve(seen) == one["command"]
    seen.wait_for(rf"printf {'abcdefgh'[len(shapes) - 1]} >> out.txt approved · [\d.]+ m?s You said: one call each")
    assert out(seen) == "abcdefgh"[: len(shapes)]
    assert arguments_sent(seen) == wanted
    seen.assert_well()


@pytest.mark.more
@pytest.mark.fault("C10", "C11", "C12", "C13", "C14")
def test_two_calls_are_two_questions_and_two_results(seen: FaultyChat) -> None:
    for shape in ("C10-interleaved", "C11-null-index", "C12-both-at-index-0", "C13-no-id", "C14-one-id"):
        (seen.installation.workspace / "out.txt").unlink(missing_ok=True)
        seen.say(f"two {shape}", two_calls("shell_exec", FIRST, SECOND)[shape])
        shown = {approve(seen, undecided=2, of=2), approve(seen, undecided=1, of=2)}
        assert shown == {FIRST["command"], SECOND["command"]}, shape
        seen.wait_for(
            rf"two {shape} .*printf a >> out.txt approved · [\d.]+ m?s "
            rf".*printf b >> out.txt approved · [\d.]+ m?s You said: two {shape}"
        )
        assert out(seen) == "ab", shape
        assert arguments_sent(seen) == [FIRST, SECOND], shape
    seen.assert_well()


@pytest.mark.more
@pytest.mark.fault("C10", "C11", "C12", "C13", "C14")
def test_two_calls_are_reported_as_two(patient_pipe: Pipe) -> None:
    shapes = list(two_calls("file_read", NOTE, NOTE))
    wanted = [({**NOTE, "limit": number}, {**NOTE, "limit": number + 100}) for number in range(1, len(shapes) + 1)]
    replies = [two_calls("file_read", *pair)[shape] for shape, pair in zip(shapes, wanted, strict=True)]
    report = patient_pipe.ask("go", *replies, more=AS_JSON).json
    assert [one["arguments"] for one in report["calls"]] == [one for pair in wanted for one in pair]
    assert {one["outcome"] for one in report["calls"]} == {"success"}
    ids = asked_ids(patient_pipe.asked[-1])
    assert len(ids) == len(set(ids)) == 2 * len(shapes)
    assert len(patient_pipe.asked[-1].tool_results) == 2 * len(shapes)
    patient_pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C14")
def test_c14_an_id_that_returns_in_every_turn_is_sent_back_as_ours(pipe: Pipe) -> None:
    for number in (1, 2):
        again = stream(piece(**fn("file_read", json.dumps({**NOTE, "limit": number}), index=0, id="call_0")), FINISH)
        assert pipe.ask("go", again, more=("-c",) if number > 1 else ()).code == 0
    ids = asked_ids(pipe.asked[-1])
    assert len(ids) == len(set(ids)) == 2
    assert "call_0" not in ids
    pipe.assert_well()


@pytest.mark.more
def test_at_the_round_limit_the_model_is_told_that_the_results_were_received(pipe: Pipe) -> None:
    pipe.installation.use(patient_registry(pipe.provider.server.url, max_rounds=1))
    pipe.ask("read it", one_call("file_read", NOTE)["C09-legacy"], more=AS_JSON)
    asked = pipe.asked[-1].messages
    assert [one["role"] for one in asked][-3:] == ["tool", "assistant", "user"]
    assert asked[-2]["content"] == "[The results of the tool calls were received.]"
    assert "without calling any tool" in asked[-1]["content"]
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
IN_WORDS = {
    "C23-in-reasoning": r"thought \(\d+ words\) no\.",
    "C23-in-other-reasoning": r"thought \(\d+ words\) no\.",
    "C23-in-think-tags": r"thought \(\d+ words\) no\.",
    "C25-in-code": r"Like this: <tool_call>.*printf x.*no\.",
    "C25-in-a-quotation": r"<tool_call>.*printf x.*no\.",
}
"""Text in the chat of a reply that holds no call, whatever it looks like."""


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


@pytest.mark.more
@pytest.mark.fault("C23", "C25")
def test_what_only_looks_like_a_call_is_shown_and_never_runs(seen: FaultyChat, pipe: Pipe) -> None:
    for number, (shape, expected) in enumerate(IN_WORDS.items()):
        reply = no_calls("shell_exec", SHELL)[shape]
        seen.say(f"none {shape}", reply)
        shown = flat(seen.wait_for(rf"none {shape} .*{expected}")).rpartition(f"none {shape}")[2]
        assert "waiting" not in shown
        assert ("tool_call" in shown) == shape.startswith("C25")
        more = (*AS_JSON, "--approve", "shell_exec:printf *", *(("-c",) if number else ()))
        report = pipe.ask("go", reply, more=more).json
        assert (report["status"], report["calls"], report["pending"]) == ("answered", [], []), shape
        assert report["answer"].endswith("no."), shape
    assert seen.installation.count == pipe.installation.count == 0
    seen.assert_well()
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C05")
def test_c05_a_call_without_a_finish_mark_is_not_run(seen: FaultyChat, pipe: Pipe) -> None:
    reply = no_calls("shell_exec", SHELL)["C05-no-finish"]
    seen.say("call c05", reply)
    seen.wait_for(r"call c05 .*inside a tool call; the call was not run.*Press R to retry")
    seen.assert_well()
    ran = pipe.ask("go", reply, more=(*AS_JSON, "--approve", "shell_exec:printf *"))
    assert (ran.code, ran.json["status"], ran.json["calls"]) == (1, "failed", [])
    assert "the call was not run" in ran.err
    assert seen.installation.count == pipe.installation.count == 0
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C17")
def test_c17_no_arguments_are_enough_only_where_none_are_needed(seen: FaultyChat, pipe: Pipe) -> None:
    reply = stream(piece(**fn("scratch_read", "", index=0, id="1")), piece(**fn("file_read", "", index=1)), FINISH)
    registry = patient_registry(pipe.provider.server.url)
    registry["roles"]["coder"]["tools"] = ["scratch_read", "file_read"]
    pipe.installation.use(registry)
    report = pipe.ask("go", reply, more=AS_JSON).json
    outcomes = [(one["tool"], one["outcome"]) for one in report["calls"]]
    assert outcomes == [("scratch_read", "success"), ("file_read", "invalid")]
    assert "path: is required" in pipe.asked[1].tool_results[1]
    pipe.assert_well()
    seen.say("none c17", stream(piece(**fn("file_read", "", index=0)), FINISH))
    seen.wait_for(r"none c17 .*Read not run: path: is required but missing You said: none c17")
    seen.assert_well()


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
@pytest.mark.fault("C25")
def test_c25_a_call_in_the_text_is_read_only_where_it_may_be(pipe: Pipe) -> None:
    text = f'<tool_call>{{"name":"file_read","arguments":{json.dumps(NOTE)}}}</tool_call>'
    found = {}
    for tool_format in ("native", "auto"):
        pipe.installation.use(patient_registry(pipe.provider.server.url, tool_format=tool_format))
        report = pipe.ask("go", stream(delta(text), STOP), more=AS_JSON).json
        found[tool_format] = ([(one["arguments"], one["outcome"]) for one in report["calls"]], report["answer"])
    assert found == {"native": ([], text), "auto": ([(NOTE, "success")], "You said: go")}
    pipe.assert_well()


# Numbers


@pytest.mark.more
@pytest.mark.fault("C24")
def test_c24_tokens_that_were_not_counted_are_unknown(seen: FaultyChat, pipe: Pipe) -> None:
    unknown = {"input_tokens": None, "output_tokens": None, "reasoning_tokens": None, "cost": None}
    zero = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    for ends in ([STOP], [STOP, zero]):
        assert pipe.ask("go", stream(delta("Hello."), *ends), more=AS_JSON).json["usage"] == unknown
    running = [{**delta(f"{n}"), "usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in (1, 2, 3)]
    counted = pipe.ask("go", stream(*running, STOP), more=AS_JSON).json["usage"]
    assert (counted["input_tokens"], counted["output_tokens"]) == (5, 3)
    pipe.assert_well()
    # A turn that `/new` removes: without one, the next message would be typed at once and be taken for a paste.
    seen.assert_well()
    seen.say("/new")
    seen.terminal.wait_gone("You said")
    seen.say("count c24", stream(delta("Hello."), STOP))
    shown = seen.wait_for(r"count c24 Hello\. .*tokens unknown")
    assert " 0 in" not in shown
    seen.assert_well()


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
@pytest.mark.fault("C28")
def test_c28_one_word_for_ever_is_counted_and_stopped_by_a_key_or_by_itself(seen: FaultyChat, pipe: Pipe) -> None:
    seen.say("for ever c28", Raw(steps=(*ENDLESS * 5, Hang())))
    seen.wait_for(r"the the the .*\d+ s · 2500 tokens · Esc to stop")
    seen.terminal.press("escape")
    seen.wait_for(r"the the the .*Stopped by the user")
    assert seen.asked[0].gone.wait(PATIENCE)
    seen.say("for ever again", Raw(steps=(*ENDLESS * 60, Hang())))
    shown = seen.wait_for(r"wrote 'the' over and over, [5-9]\d,\d\d\d characters of it; the reply was stopped")
    assert flat(shown).count("over and over") == 1
    assert seen.asked[0].gone.wait(PATIENCE)
    seen.assert_well()
    ran = pipe.ask("go", Raw(steps=(*ENDLESS * 60, Hang())), more=AS_JSON)
    assert (ran.code, ran.json["status"]) == (4, "limit")
    assert ran.json["answer"].startswith("the the")
    assert len(ran.json["answer"]) < 1_500
    assert "over and over" in ran.err
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C29")
def test_c29_that_another_model_answers_is_said_once(seen: FaultyChat, pipe: Pipe) -> None:
    other = stream({**delta("It is me.", finish="stop"), "model": "cheap-one"})
    seen.say("who c29", other)
    seen.wait_for(r"who c29 It is me\. .*answered with model 'cheap-one', not 'fake-model'")
    seen.say("who again", other)
    shown = seen.wait_for(r"who again It is me\.")
    assert flat(shown).count("cheap-one") == 1
    seen.assert_well()
    ran = pipe.ask("go", other)
    assert ran.out.strip() == "It is me."
    assert ran.err.count("cheap-one") == 1
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
