"""Calls that models write wrong: what can only mean one thing is read and said, the rest is refused and said."""

import json
from typing import Any

from chatops.dialects import CallReader, Confidence, DiagnosticKind, Reading, read_calls
from chatops.dialects.formats.base import MARKS, TAGS
from chatops.domain.canonical import JsonValue
from tests.dialects.examples import SPELLINGS, TOOLS, Wanted
from tests.support.cases import for_each

PARIS: Wanted = ("get_weather", {"city": "Paris"})
LS: Wanted = ("run_shell", {"command": "ls"})
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
OBJECTS = {
    "hermes": "<tool_call>\n%s\n</tool_call>",
    "list in a tag": "<tool_call>[%s]</tool_call>",
    "longcat": "<longcat_tool_call>%s</longcat_tool_call>",
    "granite20b_fc": "<function_call> %s",
    "granite3": "<|tool_call|>[%s]",
    "llama3_python_tag": "<|python_tag|>%s",
    "llama3_json": "%s",
    "internlm2": "<|action_start|> <|plugin|>\n%s<|action_end|>",
    "gigachat31": "<|function_call|>%s",
    "gigachat3": "<|message_sep|>\n\nfunction call<|role_sep|>\n%s",
    "gigachat3 after its separator": "function call<|role_sep|>\n%s",
    "inkling": "<|message_model|>get_weather<|content_invoke_tool_json|>%s<|end_message|>",
    "k2_horizon": "<ifm|tool_calls><ifm|tool_call>%s</ifm|tool_call></ifm|tool_calls>",
    "dots": "<dots_function_call>%s</dots_function_call>",
    "tool_calls_array": "<tool_calls>[%s]</tool_calls>",
    "nemotron_toolcall": "<TOOLCALL>[%s]</TOOLCALL>",
    "functools": "functools[%s]",
    "mistral_json": "[TOOL_CALLS] [%s]",
    "mistral_json, one": "[TOOL_CALLS]%s",
    "json_array": "[%s]",
    "cohere_action": "<|START_ACTION|>[\n%s\n]<|END_ACTION|>",
    "commandr_action": "Action:\n```json\n[\n%s\n]\n```",
    "openai_tool_calls_obj": '{"tool_calls": [%s]}',
    "json_fenced": "```json\n%s\n```",
    "json_fenced, a list": "```\n[%s]\n```",
    "lfm2": "<|tool_call_start|>[%s]<|tool_call_end|>",
}
EVERY = for_each("around", OBJECTS.values(), ids=OBJECTS)


def got(reading: Reading) -> list[Wanted]:
    """The calls of a reading."""
    return [(call.name, json.loads(call.arguments)) for call in reading.calls]


ONE_CALL: list[tuple[str, Wanted]] = [
    *(
        (f'{{"name": "get_weather", "{key}": {{"city": "Paris"}}}}', PARIS)
        for key in ("arguments", "parameters", "args", "input", "params", "kwargs", "tool_input", "tool_args")
    ),
    ('{"arguments": {"city": "Paris"}, "name": "get_weather"}', PARIS),
    ('{"name": " get_weather ", "arguments": {"city": "Paris"}}', PARIS),
    ('{"id": "call_1", "type": "function", "name": "get_weather", "arguments": {"city": "Paris"}}', PARIS),
    ('{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}', PARIS),
    ('{"function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}, "id": "1"}', PARIS),
    ('{"tool_name": "get_weather", "parameters": {"city": "Paris"}}', PARIS),
    ('{"tool": "get_weather", "args": {"city": "Paris"}}', PARIS),
    ('{"action": "get_weather", "action_input": {"city": "Paris"}}', PARIS),
    ('{"function_name": "get_weather", "arguments": {"city": "Paris"}}', PARIS),
    ('{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}', PARIS),
    (f'{{"name": "get_weather", "arguments": {json.dumps(json.dumps(json.dumps({"city": "Paris"})))}}}', PARIS),
    ('{"name": "get_weather", "arguments": {"city": "Paris",},}', PARIS),
    ("{'name': 'get_weather', 'arguments': {'city': 'Paris'}}", PARIS),
    ("{'name': 'get_weather', 'arguments': {'city': \"Xi'an\"}}", ("get_weather", {"city": "Xi'an"})),
    (
        "{'name': 'get_weather', 'arguments': {'city': 'x', 'days': None}}",
        ("get_weather", {"city": "x", "days": None}),
    ),
    ('{"name": "get_weather", "arguments": {"city": "a\nb\tc"}}', ("get_weather", {"city": "a\nb\tc"})),
    ('{"name": "get_weather", "arguments": {"city": "Paris"}', PARIS),
    ('{"name": "get_weather", "arguments": {"city": "Paris"}}}', PARIS),
    ('{{"name": "get_weather", "arguments": {"city": "Paris"}}}', PARIS),
    ('{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}', PARIS),
    ('{name: "get_weather", arguments: {city: "Paris"}}', PARIS),
    ('{"name": "get_weather", // the tool\n"arguments": {"city": "Paris" /* here */}}', PARIS),
    ('{"name": "get_weather" "arguments": {"city": "Paris"}}', PARIS),
    ("{“name”: “get_weather”, “arguments”: {“city”: “Paris”}}", PARIS),
    (
        '{"name": "run_shell", "arguments": {"command": "grep \\d+ it\\\'s"}}',
        ("run_shell", {"command": "grep \\d+ it's"}),
    ),
    ('{"name": "run_shell", "arguments": {"command": "echo "a b""}}', ("run_shell", {"command": 'echo "a b"'})),
    ('{"name": "list_files", "arguments": null}', ("list_files", {})),
    ('{"name": "list_files", "arguments": ""}', ("list_files", {})),
    ('{"name": "list_files", "arguments": "{}"}', ("list_files", {})),
    ('{"name": "list_files", "arguments": {}}', ("list_files", {})),
]


@EVERY
def test_an_object_that_can_only_mean_one_call_is_that_call(around: str) -> None:
    for written, wanted in ONE_CALL:
        reading = read_calls(around % written, TOOLS)
        assert got(reading) == [wanted], written
        try:
            json.loads(written)
        except ValueError:
            assert reading.calls[0].repairs, written


NO_CALL = [
    '{"name": "nope", "arguments": {}}',
    '{"name": "", "arguments": {}}',
    '{"name": "Get_weather", "arguments": {"city": "P"}}',
    '{"name": "get_weather", "arguments": 5}',
    '{"name": "get_weather", "arguments": ["a"]}',
    '{"name": "get_weather", "arguments": "Paris"}',
    '{"name": "get_weather", "arguments": null}',
    '{"name": "get_weather"}',
    '{"name": ["get_weather"], "arguments": {"city": "P"}}',
    '{"arguments": {"city": "P"}}',
    '{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}',
    '{"name": "get_weather", "description": "x", "parameters": {"city": "P"}}',
    '{"type": "function", "function": {"name": "get_weather", "description": "x", "parameters": {}}}',
    '{"name": "get_weather", "arguments": {"city": "P"}, "result": 3}',
    '{"name": "get_weather", "result": {"city": "P"}}',
    '{"name": "get_weather", "arguments": {"city": "P"}, "parameters": {"city": "Q"}}',
    '{"role": "user", "name": "get_weather", "arguments": {"city": "P"}}',
    '{"name": "run_shell", "arguments": {"command": "ls", "command": "rm"}}',
    '{"name": "run_shell", "name": "get_weather", "arguments": {"command": "ls"}}',
    '{"name": "run_shell", "arguments": {"command": NaN}}',
    '{"name": "run_shell", "arguments": {"command": 1e999}}',
    '{"name": "run_shell", "arguments": {"command": "\\ud800"}}',
    '{"messages": [{"role": "assistant", "name": "get_weather", "arguments": {"city": "P"}}]}',
    '{"success": true, "result": {"name": "get_weather", "arguments": {"city": "P"}}}',
    '"get_weather"',
    "3",
    "[]",
    "[[]]",
    "null",
    "{}",
    "",
]


@EVERY
def test_what_is_no_call_gives_none(around: str) -> None:
    for written in NO_CALL:
        assert read_calls(around % written, TOOLS).calls == (), written


@EVERY
@for_each("end", ["rm -rf /tmp/bui", 'rm -rf /tmp/bui"', 'rm -rf /tmp/bui", ', "", "rm \\"])
def test_an_object_that_ends_inside_its_arguments_is_no_call(around: str, end: str) -> None:
    written = '{"name": "run_shell", "arguments": {"command": "' + end
    assert read_calls(around.partition("%s")[0] + written, TOOLS).calls == ()


@for_each("written", ["{}", '{"name": "get_weather"}', CALL.replace("}}", "}, 3}")])
def test_marked_content_that_is_no_call_is_reported(written: str) -> None:
    reading = read_calls(f"<tool_call>{written}</tool_call>", TOOLS)
    assert reading.calls == ()
    assert len(reading.diagnostics) == 1
    assert reading.content == ""


@for_each(
    "text",
    [
        "<tool_call>%s",
        "<tool_call>%s<tool_call>",
        "<tool_call>\n<tool_call>\n%s\n</tool_call>\n</tool_call>",
        "< tool_call >%s</ tool_call >",
        "<tool_call >%s</tool_call >",
        "<Tool_Call>%s</TOOL_CALL>",
        "<tool_call>%s</tool_calls>",
        "<tool_call>%s</function>",
        "<tool_call>%s</function_call>",
        "<tool-call>%s</tool-call>",
        "<toolcall>%s</toolcall>",
        "<function_call>%s</function_call>",
        "<function_calls>%s</function_calls>",
        "<tool_calls><tool_call>%s</tool_call></tool_calls>",
        "<tool_call>\n```json\n%s\n```\n</tool_call>",
        "<tool_call>```\n%s```</tool_call>",
        "<tool_call>%s;</tool_call>",
        "<tool_call>%s,</tool_call>",
        "<tool_call>json\n%s</tool_call>",
        "<tool_call>: %s</tool_call>",
        "<tool_call>\\n%s\\n</tool_call>",
        "<tool_call>%s<|im_end|>",
        "\n\n<tool_call>%s</tool_call>\n\n",
        "%s\n</tool_call>",
        "<|tool_call|>%s<|/tool_call|>",
        "<tool_call:opensource>%s</tool_call:opensource>",
    ],
)
def test_tags_that_are_missing_doubled_wrong_or_spelled_otherwise_do_no_harm(text: str) -> None:
    reading = read_calls(text % CALL, TOOLS)
    assert got(reading) == [PARIS]
    assert reading.content == ""
    assert reading.diagnostics == ()


TAGGED = [
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
    "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</function>\n</tool_call>",
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</tool_call>",
    '<tool_call>\n<function="get_weather">\n<parameter="city">\nParis\n</parameter>\n</function>\n</tool_call>',
    "<tool_call>\n<function = get_weather>\n<parameter = city>\nParis\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=get_weather >\n<parameter=city >\nParis\n</parameter >\n</function >\n</tool_call >",
    "<TOOL_CALL>\n<FUNCTION=get_weather>\n<PARAMETER=city>\nParis\n</PARAMETER>\n</FUNCTION>\n</TOOL_CALL>",
    '<tool_call><function=get_weather>{"city": "Paris"}</function></tool_call>',
    '<function=get_weather>{"city": "Paris"}',
    '<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>',
    "<invoke name='get_weather'>\n<parameter name='city'>Paris</parameter>\n</invoke>",
    "<minimax:tool_call><invoke name=get_weather><parameter name=city>Paris</parameter></invoke></minimax:tool_call>",
    '<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Paris\n</invoke>\n</function_calls>',
    '<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>',
    '<functionname="get_weather"><paramname="city">Paris</param></function>',
    '<functionĠname="get_weather"><paramĠname="city">Paris</param></function>',
    '<function name="get_weather"><arguments><param name="city">Paris</param></arguments></function>',
    '<function name="get_weather" id="1"><param name="city"><![CDATA[Paris]]></param></function>',
    '<function name="get_weather"><param name="arguments">{"city": "Paris"}</param></function>',
    "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n</tool_call>",
    '<tool_call>get_weather\n{"city": "Paris"}\n</tool_call>',
    "<tool_calls:opensource><tool_call:opensource>get_weather<tool_sep:opensource><arg_key:opensource>city"
    "</arg_key:opensource><arg_value:opensource>Paris</arg_value:opensource></tool_call:opensource></tool_calls:opensource>",
    "<ifm|tool_call>get_weather<ifm|arg_key>city</ifm|arg_key><ifm|arg_type>string</ifm|arg_type>"
    "<ifm|arg_value>Paris</ifm|arg_value></ifm|tool_call>",
    '<|tool▁calls▁begin|><|tool▁call▁begin|>function<|tool▁sep|>get_weather\n```json\n{"city": "Paris"}\n```'
    "<|tool▁call▁end|><|tool▁calls▁end|>",
    '<｜tool▁calls▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>',
    '<｜tool_calls_begin｜><｜tool_call_begin｜>get_weather<｜tool_sep｜>{"city": "Paris"}<｜tool_call_end｜>',
    '<|tool_call_begin|>get_weather<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>',
    '<|tool_call_begin|>functions.get_weather:12 <|tool_call_argument_begin|> {"city": "Paris"}',
    '<|channel|>commentary to=functions.get_weather json<|message|>{"city": "Paris"}<|call|>',
    '<|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Paris"}',
    '<|channel|>commentary to=get_weather code<|message|>{"city": "Paris"}<|call|>',
    'commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    '[TOOL_CALLS]get_weather{"city": "Paris"}',
    '[TOOL_CALLS] get_weather [CALL_ID]x1 [ARGS] {"city": "Paris"}</s>',
    '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<turn|>',
    '<|tool_call>call: get_weather{ city: <|"|>Paris<|"|> }<tool_call|>',
    '<|tool_call>call:get_weather{"city":"Paris"}<tool_call|>',
    '<|tool_call>call:get_weather{city:<|"|>Paris<|"|><tool_call|>',
    "<start_function_call>call:get_weather{city:Paris}<end_function_call>",
    '<|python_start|>get_weather(city="Paris")<|python_end|>',
    '<function_calls>\n[get_weather(city="Paris")]\n</function_calls>',
    '<|tool_call_start|>get_weather(city="Paris")<|tool_call_end|>',
    '<tool_call>get_weather(city="Paris")</tool_call>',
    '<|python_tag|>get_weather.call(city="Paris")<|eom_id|>',
    '<|python_tag|>[get_weather(city="Paris")]',
    '[get_weather(city="Paris"),]',
    'get_weather\n{"city": "Paris"}',
    '>>>all\nLet me see.\n>>>get_weather\n{"city": "Paris"}',
    'Thought: hm\nAction: get_weather\nAction Input: {"city": "Paris"}\nObservation: sunny\nFinal Answer: sun',
    'Action : get_weather\nAction Input : {"city": "Paris"}',
    'Action: get_weather\nAction_Input: {"city": "Paris"}',
    'Action: get_weather\nAction Input:\n```json\n{"city": "Paris"}\n```',
    'Action:\n```json\n{"action": "get_weather", "action_input": {"city": "Paris"}}\n```',
    '```tool_code\n[get_weather(city="Paris")]\n```',
    f"```xml\n<tool_call>{CALL}</tool_call>\n```",
    f"~~~JSON\n{CALL}\n~~~",
    f"```json\n{CALL}",
    '<|open|>call tool="get_weather" index="1"<|sep|><|open|>json type="object"<|sep|>{"city": "Paris"}'
    "<|close|>json<|sep|><|close|>call<|sep|>",
    ']<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris</city>]<]minimax[>[</invoke>',
    '<tool_call>\n]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris]<]minimax[>[</city>'
    "]<]minimax[>[</invoke>",
    '<|DSML|tool_calls><|DSML|invoke name="get_weather"><|DSML|parameter name="city">Paris</|DSML|parameter>'
    "</|DSML|invoke>",
    '<｜DSML｜function_calls><｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="input" string="true">'
    '{"city": "Paris"}</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>',
]


@for_each("text", TAGGED)
def test_spellings_beside_the_usual_one_are_read(text: str) -> None:
    reader = CallReader(TOOLS)
    for char in text:
        reader.feed(char)
    assert got(read_calls(text, TOOLS)) == got(reader.close()[1]) == [PARIS]


@for_each(
    "text",
    [
        "<function=run_shell>\n<parameter=command>\nls\n</parameter>\n",
        "<tool_call>\n<function=run_shell>\n<parameter=command>\nls\n</tool_call>",
        "<tool_call>run_shell\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>",
        "<tool_call>run_shell\n<arg_key>command</arg_key>\n",
        '<invoke name="run_shell"><parameter name="command">ls</parameter>',
        '<｜DSML｜invoke name="run_shell"><｜DSML｜parameter name="command" string="true">ls</｜DSML｜parameter>',
        '<|open|>call tool="run_shell"<|sep|><|open|>argument key="command"<|sep|>ls<|close|>argument<|sep|>',
        ']<]minimax[>[<invoke name="run_shell">]<]minimax[>[<command>ls]<]minimax[>[</command>',
        "<function=run_shell>\n<parameter=command>\nuse </function> or </tool_call> to",
    ],
)
def test_a_call_whose_end_is_missing_may_have_lost_arguments(text: str) -> None:
    reading = read_calls(text, TOOLS)
    assert reading.calls == ()
    assert [each.kind for each in reading.diagnostics] == [DiagnosticKind.CUT_OFF]


@for_each(
    "unclosed",
    [
        "<tool_call><function=run_shell><parameter=command>ls</function></tool_call>",
        "<tool_call>run_shell<arg_key>command</arg_key><arg_value>ls</tool_call>",
    ],
)
def test_a_call_of_any_format_is_read_after_one_whose_value_is_not_closed(unclosed: str) -> None:
    texts = [spelling.spell([PARIS]) for format, spelling in SPELLINGS.items() if format in {*TAGS, *MARKS}]
    for text in (*texts, SPELLINGS["deepseek_v3"].spell([PARIS]).replace("▁", " ")):
        assert got(read_calls(f"{unclosed}\n{text}", TOOLS)) == [LS, PARIS], text


@for_each(
    "text",
    [
        '[run_shell(command="ls", command="rm -rf /")]',
        '[run_shell("ls")]',
        '[run_shell(**{"command": "ls"})]',
        '[run_shell(command=f"{x}")]',
        '[run_shell(command="a" * 10)]',
        '[run_shell(command=__import__("os").environ)]',
        '[run_shell(command=get_weather(city="x"))]',
        "[run_shell(command=c) for c in x]",
        'x = [run_shell(command="ls")]',
        '[run_shell.__class__(command="x")]',
        '[run_shell(command="ls")',
        'print(run_shell(command="ls"))',
        'The tool run_shell(command="ls") lists.',
    ],
)
def test_python_that_is_more_than_calls_with_values_is_text(text: str) -> None:
    reading = read_calls(text, TOOLS)
    assert reading.calls == ()
    assert reading.content == text


def test_a_broken_call_is_reported_beside_a_good_one() -> None:
    text = (
        '<tool_call>\n{"name": "run_shell", "arguments": {"command": \n</tool_call>\n<tool_call>\n'
        + CALL
        + "\n</tool_call>"
    )
    reading = read_calls(text, TOOLS)
    assert got(reading) == [PARIS]
    [diagnostic] = reading.diagnostics
    assert (diagnostic.kind, diagnostic.name) == (DiagnosticKind.UNREADABLE, "run_shell")


def test_entries_that_are_no_calls_are_left_out_and_reported() -> None:
    [call] = read_calls(f'<tool_calls>["x", {CALL}, 3]</tool_calls>', TOOLS).calls
    assert call.repairs == ("entries that are not calls were left out",)


@for_each("text", ["<tool_call>I think I should search</tool_call>", '<tool_call>"get_weather"</tool_call>'])
def test_prose_between_the_tags_of_a_call_is_reported_and_not_shown(text: str) -> None:
    reading = read_calls(text, TOOLS)
    assert (reading.calls, reading.content) == ((), "")
    assert [each.kind for each in reading.diagnostics] == [DiagnosticKind.UNREADABLE]


@for_each(
    "text",
    [
        "Use <tool_call> to open it.",
        "The <function> tag",
        "<invoke> it",
        "A <tool_calls> list is long.",
        "functools[0] is a word",
    ],
)
def test_a_mention_of_a_tag_is_text(text: str) -> None:
    reading = read_calls(text, TOOLS)
    assert (reading.calls, reading.diagnostics, reading.content) == ((), (), text)


def test_two_values_for_one_parameter_are_refused() -> None:
    text = "<function=run_shell><parameter=command>ls</parameter><parameter=command>rm</parameter></function>"
    [diagnostic] = read_calls(text, TOOLS).diagnostics
    assert "twice" in diagnostic.message


def test_a_value_that_is_not_of_its_declared_type_is_refused() -> None:
    text = "<function=get_weather><parameter=city>x</parameter><parameter=days>many</parameter></function>"
    [diagnostic] = read_calls(text, TOOLS).diagnostics
    assert "'days'" in diagnostic.message


def test_a_closing_tag_that_a_value_talks_about_does_not_end_it() -> None:
    code = "def end():\n    return '</function>' + '</tool_call>'\n# then </parameter is written"
    text = f"<tool_call>\n<function=run_shell>\n<parameter=command>\n{code}\n</parameter>\n</function>\n</tool_call>"
    assert got(read_calls(text, TOOLS)) == [("run_shell", {"command": code})]


def test_nested_tags_of_minimax_have_the_shape_of_the_schema() -> None:
    tools: dict[str, dict[str, JsonValue]] = {
        "order": {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
                },
                "note": {"type": "string"},
                "more": {"type": "object"},
                "limit": {
                    "oneOf": [{"type": "integer"}, {"type": "object", "properties": {"max": {"type": "integer"}}}]
                },
            },
        }
    }
    inside = (
        "<items><item><sku>1</sku><n>2</n></item><item><sku>3</sku><n>04</n></item></items>"
        "<note>]</note><more><tag>a</tag><tag>b</tag></more><limit><max>10</max></limit>"
    ).replace("<", "]<]minimax[>[<")
    [call] = read_calls(f']<]minimax[>[<invoke name="order">{inside}]<]minimax[>[</invoke>', tools).calls
    assert json.loads(call.arguments) == {
        "items": [{"sku": "1", "n": 2}, {"sku": "3", "n": 4}],
        "note": "]",
        "more": {"tag": ["a", "b"]},
        "limit": {"max": 10},
    }


@for_each(
    ("text", "tool"),
    [
        ("<|python_tag|>import math\nprint(math.pi)<|eom_id|>", "python_exec"),
        ("<|python_tag|>import math\nprint(math.pi)", "python_exec"),
        ("<|action_start|><|interpreter|>import math\nprint(math.pi)<|action_end|>", "python_exec"),
        ("<|python_tag|>import math\nprint(math.pi)", "run_python"),
    ],
)
def test_code_behind_a_marker_is_a_call_of_the_tool_that_runs_code_with_doubt(text: str, tool: str) -> None:
    tools: dict[str, dict[str, JsonValue]] = {tool: {}}
    [call] = read_calls(text, tools, aliases={"code_interpreter": tool}).calls
    assert (call.name, json.loads(call.arguments)) == (tool, {"code": "import math\nprint(math.pi)"})
    assert call.confidence is Confidence.LOW


def test_code_after_a_marker_is_reported_where_no_tool_runs_code() -> None:
    reading = read_calls("<|python_tag|>print(1)", TOOLS)
    assert (reading.calls, reading.content) == ((), "")
    assert [each.name for each in reading.diagnostics] == ["python_exec"]


CITY = '{"city": "Oslo"}'
ASKS = f'{{"name": "get_weather", "arguments": {CITY}}}'
OTHER = '{"name": "run_shell", "arguments": {"command": "ls"}}'


@for_each(
    ("text", "format"),
    [
        (f"<function=get_weather{CITY}</function>", "llama3_function_tag"),
        (f"<function=get_weather{CITY}></function>", "llama3_function_tag"),
        (f"<function=get_weather {CITY} </function>", "llama3_function_tag"),
        (f"<function=get_weather({CITY})</function>", "llama3_function_tag"),
        (f"<|python_tag|><function=get_weather{CITY}</function><|eom_id|>", "llama3_function_tag"),
        (f'{{"thought": "", "tool_calls": [{ASKS}]}}', "openai_tool_calls_obj"),
        (f'{{"thought": "I look.", "tool_calls": [{ASKS}]}}', "openai_tool_calls_obj"),
        (f'```json\n{{"tool_calls": [{ASKS}]}}\n```', "json_fenced"),
        (f"```\n{ASKS}\n```", "json_fenced"),
        ('```tool_code\nprint(get_weather(city="Oslo"))\n```', "json_fenced"),
        ('```tool_code\nget_weather(city="Oslo")\n```', "json_fenced"),
        ('```tool_code\nprint(default_api.get_weather(city="Oslo"))\n```', "json_fenced"),
        ('get_weather.call(city="Oslo")', "pythonic"),
        ('weather.call(city="Oslo")', "pythonic"),
        (
            f"<｜tool calls begin｜><｜tool call begin｜>function<｜tool sep｜>get_weather\n```json\n{CITY}\n```"
            "<｜tool call end｜><｜tool calls end｜>",
            "deepseek_v3",
        ),
        (f"<|tool call begin|>get_weather<|tool sep|>{CITY}<|tool call end|>", "deepseek_v31"),
    ],
)
def test_what_models_write_instead_of_their_format_is_sure_where_nothing_else_was_written(
    text: str, format: str
) -> None:
    for size in (1, 5, len(text)):
        reader = CallReader(TOOLS, aliases={"weather": "get_weather"})
        for at in range(0, len(text), size):
            reader.feed(text[at : at + size])
        reading = reader.close()[1]
        assert (got(reading), reading.content) == ([("get_weather", {"city": "Oslo"})], ""), size
        [call] = reading.calls
        assert (call.repairs, call.confidence, call.format) == ((), Confidence.HIGH, format)


@for_each(
    "text",
    [
        r'web_search.call(query="say \"hi\"")',
        r'[web_search(query="say \"hi\"")]',
        r'<|python_tag|>web_search.call(query="say \"hi\"")<|eom_id|>',
        r'<function=web_search{"query": "say \"hi\""}</function>',
    ],
)
def test_escaped_quotes_are_part_of_the_value(text: str) -> None:
    reader = CallReader({"web_search": {}})
    for char in text:
        reader.feed(char)
    assert got(reader.close()[1]) == [("web_search", {"query": 'say "hi"'})]


@for_each("between", ["\n", "\n\n", "\n\nand then\n\n", "\nThis first, that second:\n"])
def test_all_fences_at_the_end_are_calls_that_could_be_examples(between: str) -> None:
    for before in ("", "I look.\n\n"):
        text = f"{before}```json\n{ASKS}\n```{between}```json\n{OTHER}\n```"
        reading = read_calls(text, TOOLS)
        assert got(reading) == [("get_weather", {"city": "Oslo"}), ("run_shell", {"command": "ls"})]
        assert {call.confidence for call in reading.calls} == {Confidence.LOW}
        assert reading.content.split() == (before + between).split()


@for_each(
    "text",
    [
        f"```json\n{ASKS}\n```\n```json\n{OTHER}\n```\nThat is how it looks.",
        f"```json\n{ASKS}\n```\n```python\nx = 1\n```",
        f"```json\n{ASKS}\n```\n```json\n[1, 2]\n```",
        "```tool_code\nprint(get_weather(city=name))\n```",
        '```tool_code\nprint(get_weather(city="Oslo"), end="")\n```',
        '```python\nprint(get_weather(city="Oslo"))\n```',
    ],
)
def test_fences_of_which_the_last_is_no_call_are_code(text: str) -> None:
    reading = read_calls(text, TOOLS)
    assert (reading.calls, reading.content) == ((), text)


def test_only_the_fences_behind_an_example_are_calls() -> None:
    text = f"```json\n[1, 2]\n```\n```json\n{OTHER}\n```"
    assert got(read_calls(text, TOOLS)) == [("run_shell", {"command": "ls"})]
    assert read_calls(f"```json\n{OTHER}\n```\nFor example:\n```json\n{ASKS}\n```\n", TOOLS).calls == ()


MISSED = [
    f"<tools>\n{ASKS}\n</tools>",
    f"I look.\n<tools>{ASKS}",
    f"<tools>[{ASKS}, {OTHER}]</tools>",
    f"analysisWe need it.assistantcommentary to=functions.get_weather json{CITY}",
    f"commentary to=functions.get_weather code{CITY}",
    f"<function/get_weather{CITY}</function>",
    f"<function(get_weather){CITY}</function>",
    f"<function=get_weather, {CITY}</function>",
    f"<function>{ASKS}</function>",
    f"get_weather{CITY}</function>",
    '<tool_code>get_weather("Oslo")</tool_code>',
    f'<|inner_prefix|>I look.<|tools_prefix|>[{{"get_weather": {CITY}}}]<|tools_suffix|><|inner_suffix|>',
    f"<think>I look. <tool_call>{ASKS}</tool_call></think>",
    f"I look. <tool_call>{ASKS}</tool_call>\n</think>\n",
]


@for_each("text", MISSED)
def test_a_tool_name_after_a_marker_without_a_call_is_reported_once(text: str) -> None:
    for size in (1, 7, len(text)):
        reader = CallReader(TOOLS)
        for at in range(0, len(text), size):
            reader.feed(text[at : at + size])
        reading = reader.close()[1]
        assert reading.calls == ()
        assert [(each.kind, each.name) for each in reading.diagnostics] == [(DiagnosticKind.MISSED, "get_weather")]
        assert reading.content + reading.reasoning


@for_each(
    "text",
    [
        *(f"{text}\nSo it is written." for text in MISSED),
        *(f"It is written `{text}`" for text in MISSED),
        *(f'It is written "{text}"' for text in MISSED),
        *(f"```\n{text}\n```" for text in MISSED[:-1]),
        *(text.replace("get_weather", "get_whether").replace("run_shell", "ruin_shell") for text in MISSED),
        f"<analysis>\nOne could {MISSED[0]}\n</analysis>",
        f"<think>`<tool_call>{ASKS}</tool_call>` would do.</think>",
        '<tools>{"name": "get_weather", "parameters": {"type": "object", "properties": {}}}</tools>',
        "The tag <tools> lists get_weather (and others).",
        "Use <function=...> for get_weather.",
        "See get_weather {docs}.",
    ],
)
def test_text_about_calls_is_no_missed_one(text: str) -> None:
    reading = read_calls(text, TOOLS)
    assert [each.kind for each in reading.diagnostics if each.kind is not DiagnosticKind.UNKNOWN_TOOL] == []


def test_nothing_is_filled_in_from_the_schema() -> None:
    tools: dict[str, Any] = {"f": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}}
    assert got(read_calls("<function=f></function>", tools)) == [("f", {})]
