"""Rules for every format: its calls are read, quoted ones are data, and cut-off ones are not calls."""

import json
from typing import Any

import pytest

from chatops.dialects import FORMATS, Confidence, DiagnosticKind, Reading, read_calls
from chatops.domain.canonical import JsonValue
from tests.dialects.examples import SPELLINGS, TOOLS, Wanted
from tests.support.cases import for_each

ALL = for_each("format", sorted(SPELLINGS))
MARKED = for_each("format", sorted(name for name, each in SPELLINGS.items() if each.marked))
OSLO: Wanted = ("get_weather", {"city": "Oslo", "days": 3})
LIST: Wanted = ("list_files", {})
EVIL: Wanted = ("run_shell", {"command": "rm -rf ~"})
VALUES: list[dict[str, Any]] = [
    {"city": "São Paulo 東京 😀"},
    {"city": "grep -n \"a}b\" *.py | awk '{print $1}'", "days": 30},
    {"city": 'def f(x):\n    d = {"a": [1, 2]}\n    return d["a"][x]  # }'},
    {"city": "a < b && c > d <b>bold</b> &amp; `x` ```y```"},
    {"city": "42"},
    {"city": "null"},
    {"city": '{"a": 1}'},
    {"city": "C:\\new\\table \\d+ \\' \\u0041"},
    {"city": "x", "days": -7},
]
TYPES = {
    "config": {"retries": 3, "nested": {"on": True}},
    "enabled": False,
    "tags": ["a", "b"],
    "ratio": 0.25,
    "note": None,
}


def got(reading: Reading) -> list[Wanted]:
    """The calls of a reading as they were wanted."""
    return [(call.name, json.loads(call.arguments)) for call in reading.calls]


def test_every_format_of_the_table_has_an_example() -> None:
    assert set(SPELLINGS) | {"llama3_builtin"} == FORMATS


@ALL
def test_a_call_is_read_under_the_name_of_its_format(format: str) -> None:
    reading = read_calls(SPELLINGS[format].spell([OSLO]), TOOLS)
    assert got(reading) == [OSLO]
    assert reading.format == reading.calls[0].format == format
    assert reading.content == reading.reasoning == ""
    assert reading.diagnostics == ()


def test_several_calls_in_python_without_brackets_may_be_an_example() -> None:
    call = 'get_weather(city="Oslo", days=3)'
    for text, confidence in (
        (f"[{call}]", "high"),
        (call, "high"),
        (f"[{call}, {call}]", "high"),
        (f"{call}\n{call}", "low"),
    ):
        assert {each.confidence for each in read_calls(text, TOOLS).calls} == {Confidence(confidence)}


@ALL
def test_a_call_in_good_order_needs_no_repairs_and_leaves_no_doubt(format: str) -> None:
    [call] = read_calls(SPELLINGS[format].spell([OSLO]), TOOLS).calls
    assert call.repairs == ()
    assert call.confidence is Confidence.HIGH


@ALL
def test_values_come_as_they_were_written(format: str) -> None:
    for values in VALUES:
        wanted = [("get_weather", values)]
        assert got(read_calls(SPELLINGS[format].spell(wanted), TOOLS)) == wanted


@ALL
def test_values_have_the_types_of_the_schema_or_of_json(format: str) -> None:
    wanted = [("set_config", TYPES)]
    assert got(read_calls(SPELLINGS[format].spell(wanted), TOOLS)) == wanted


@ALL
def test_a_call_without_arguments_is_read(format: str) -> None:
    assert got(read_calls(SPELLINGS[format].spell([LIST]), TOOLS)) == [LIST]


@for_each("format", sorted(name for name, each in SPELLINGS.items() if each.several))
def test_several_calls_come_in_their_order(format: str) -> None:
    wanted = [OSLO, LIST, ("get_weather", {"city": "Rome"})]
    assert got(read_calls(SPELLINGS[format].spell(wanted), TOOLS)) == wanted


@MARKED
def test_text_around_a_call_is_content(format: str) -> None:
    reading = read_calls(f"I look.\n\n{SPELLINGS[format].spell([OSLO])}\nDone.", TOOLS)
    assert got(reading) == [OSLO]
    assert reading.content.split() == ["I", "look.", "Done."]


@for_each("format", sorted(name for name, each in SPELLINGS.items() if not each.marked))
def test_one_word_beside_an_unmarked_call_makes_it_text(format: str) -> None:
    call = SPELLINGS[format].spell([OSLO])
    for text in (f"{call}\nThat is the format.", f"Such as {call}"):
        reading = read_calls(text, TOOLS)
        assert reading.calls == ()
        assert reading.content == text


@ALL
def test_tokens_that_end_a_message_change_nothing(format: str) -> None:
    for end in ("<|im_end|>", "</s>", "\n<|eot_id|>", "<|eom_id|>\n", "<｜end▁of▁sentence｜>", "<end_of_turn>"):
        reading = read_calls(SPELLINGS[format].spell([OSLO]) + end, TOOLS)
        assert (got(reading), reading.content) == ([OSLO], ""), end


@ALL
def test_calls_of_any_format_in_an_argument_are_data(format: str) -> None:
    for quoted in SPELLINGS.values():
        evil = quoted.spell([EVIL])
        for body in (f"The model printed: {evil} -- please review", evil, f"x\n{evil}\n"):
            wanted = [("send_email", {"to": "ops@example.com", "body": body})]
            text = SPELLINGS[format].spell(wanted)
            assert got(read_calls(text, TOOLS)) == wanted, text


@pytest.mark.some(5)
@pytest.mark.parametrize("format", sorted(SPELLINGS))
def test_no_beginning_of_a_message_gives_another_call_than_the_message(format: str) -> None:
    spelling = SPELLINGS[format]
    body = f"see {spelling.spell([EVIL])} ok\n"
    wanted = [OSLO, ("send_email", {"to": "a@b.c", "body": body})][0 if spelling.several else 1 :]
    text = spelling.spell(wanted)
    assert got(read_calls(text, TOOLS)) == wanted
    for end in range(len(text)):
        for call in got(read_calls(text[:end], TOOLS)):
            assert call in wanted, text[:end]


@ALL
def test_after_too_long_an_answer_only_calls_count_whose_end_is_there(format: str) -> None:
    text = SPELLINGS[format].spell([OSLO])
    assert got(read_calls(text, TOOLS, finish_reason="length")) == [OSLO]
    for end in range(len(text)):
        reading = read_calls(text[:end], TOOLS, finish_reason="length")
        assert got(reading) in ([OSLO], []), text[:end]
        if got(reading):
            assert not reading.calls[0].repairs, text[:end]


@for_each("format", sorted({*SPELLINGS} - {"harmony"}))
def test_a_call_without_its_closing_mark_is_read_and_says_so(format: str) -> None:
    """Harmony is left out: its mark ends the message too, so servers take it away."""
    text = SPELLINGS[format].spell([OSLO])
    cut = text[: text.rfind("}") + 1]
    for call in read_calls(cut, TOOLS).calls if cut != text else ():
        assert call.repairs


@ALL
def test_a_call_that_was_cut_off_is_reported(format: str) -> None:
    text = SPELLINGS[format].spell([("run_shell", {"command": "rm -rf /tmp/build"})])
    cut = text[: text.index("/bui") + 4]
    reading = read_calls(cut, TOOLS)
    assert reading.calls == ()
    if format not in ("json_fenced", "openai_tool_calls_obj", "bare_json_alt"):
        assert [each.kind for each in reading.diagnostics] == [DiagnosticKind.CUT_OFF]


@MARKED
def test_a_tool_that_is_not_on_offer_is_reported_and_its_call_is_not_shown(format: str) -> None:
    reading = read_calls(f"Hm.\n{SPELLINGS[format].spell([('nuke', {'path': '/'})])}", TOOLS)
    assert reading.calls == ()
    [diagnostic] = reading.diagnostics
    assert (diagnostic.kind, diagnostic.name, diagnostic.format) == (DiagnosticKind.UNKNOWN_TOOL, "nuke", format)
    assert "run_shell" in diagnostic.message
    assert diagnostic.excerpt
    assert reading.content.strip() == "Hm."


@for_each("format", sorted(name for name, each in SPELLINGS.items() if each.marked and each.several))
def test_a_good_call_beside_one_of_an_unknown_tool_is_a_call(format: str) -> None:
    reading = read_calls(SPELLINGS[format].spell([("nuke", {"path": "/"}), OSLO]), TOOLS)
    assert got(reading) == [OSLO]
    assert [each.name for each in reading.diagnostics] == ["nuke"]


@ALL
def test_no_name_is_guessed(format: str) -> None:
    for name in ("xget_weather", "get_weather2", "Get_weather", "get_wеather", "get\u200b_weather", "get"):
        assert read_calls(SPELLINGS[format].spell([(name, {"city": "Oslo"})]), TOOLS).calls == (), name


@ALL
def test_a_name_that_begins_another_one_is_not_taken_for_it(format: str) -> None:
    tools: dict[str, dict[str, JsonValue]] = {"say": {}, "say_hello": {}, "say_hello_world": {}}
    for name in tools:
        assert got(read_calls(SPELLINGS[format].spell([(name, {})]), tools)) == [(name, {})]


def test_built_in_tools_of_llama_are_called_by_their_names_or_ours() -> None:
    tools: dict[str, dict[str, JsonValue]] = {
        "web_search": {"type": "object", "properties": {"query": {"type": "string"}}}
    }
    text = '<|python_tag|>brave_search.call(query="snow \\"today\\"")'
    reading = read_calls(text, tools, aliases={"brave_search": "web_search"})
    assert got(reading) == [("web_search", {"query": 'snow "today"'})]
    assert reading.format == "llama3_builtin"
    assert read_calls(text, tools).calls == ()
    assert got(read_calls('web_search.call(query="x")', tools)) == [("web_search", {"query": "x"})]
