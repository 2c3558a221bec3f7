import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chatops.dialects.json_reader import Repair, UnreadableValueError, read_value, read_whole, unwrap
from chatops.dialects.literals import JSON, LiteralReader, same_json
from chatops.domain.canonical import JsonValue, canonical
from tests.dialects.reading_steps import steps
from tests.support.cases import for_each

REPAIRABLE: list[tuple[str, JsonValue, Repair]] = [
    ('{"a": 1,}', {"a": 1}, Repair.TRAILING_COMMA),
    ('{"a": [1, 2,],}', {"a": [1, 2]}, Repair.TRAILING_COMMA),
    ('[{"a": {"b": "c",},},]', [{"a": {"b": "c"}}], Repair.TRAILING_COMMA),
    ("{'city': 'Paris'}", {"city": "Paris"}, Repair.SINGLE_QUOTES),
    ("{'q': \"what's new\"}", {"q": "what's new"}, Repair.SINGLE_QUOTES),
    ("{'q': 'what\\'s new'}", {"q": "what's new"}, Repair.SINGLE_QUOTES),
    ("{'q': 'what's new'}", {"q": "what's new"}, Repair.INNER_QUOTES),
    ("{'q': 'the dogs' bone', 'n': 1}", {"q": "the dogs' bone", "n": 1}, Repair.INNER_QUOTES),
    ("{'q': 'say \"hi\"'}", {"q": 'say "hi"'}, Repair.SINGLE_QUOTES),
    ('{"a": True, "b": False, "c": None}', {"a": True, "b": False, "c": None}, Repair.PYTHON_WORDS),
    ("[None]", [None], Repair.PYTHON_WORDS),
    ('{"a": "one\ntwo"}', {"a": "one\ntwo"}, Repair.RAW_CONTROL),
    ('{"a": "one\ttwo"}', {"a": "one\ttwo"}, Repair.RAW_CONTROL),
    ('{"a": "one\r\ntwo", "b": 2}', {"a": "one\r\ntwo", "b": 2}, Repair.RAW_CONTROL),
    ('{city: "Paris"}', {"city": "Paris"}, Repair.UNQUOTED_KEY),
    ("{$x: 1, max_results: 2, a-b: 3}", {"$x": 1, "max_results": 2, "a-b": 3}, Repair.UNQUOTED_KEY),
    ("{a: {b: [1]}}", {"a": {"b": [1]}}, Repair.UNQUOTED_KEY),
    ('{"a": 1, // one\n"b": 2}', {"a": 1, "b": 2}, Repair.COMMENT),
    ('{"a": 1 /* one */, "b": 2}', {"a": 1, "b": 2}, Repair.COMMENT),
    ('{"a": "x", # said so\n"b": 2}', {"a": "x", "b": 2}, Repair.COMMENT),
    ('/* call */ {"a": 1}', {"a": 1}, Repair.COMMENT),
    ('{"a": "x" "b": "y"}', {"a": "x", "b": "y"}, Repair.MISSING_COMMA),
    ('{"a": 1\n"b": 2}', {"a": 1, "b": 2}, Repair.MISSING_COMMA),
    ('{"a": {"x": 1} "b": [2] "c": 3}', {"a": {"x": 1}, "b": [2], "c": 3}, Repair.MISSING_COMMA),
    ('[{"a": 1} {"a": 2}]', [{"a": 1}, {"a": 2}], Repair.MISSING_COMMA),
    ('["a" "b"]', ["a", "b"], Repair.MISSING_COMMA),
    ("{“a”: “b”}", {"a": "b"}, Repair.SMART_QUOTES),
    ("{‘a’: ‘it’s’}", {"a": "it’s"}, Repair.SMART_QUOTES),
    ("{„a“: „b“}", {"a": "b"}, Repair.SMART_QUOTES),
    (r'{"a": "grep -E \d+"}', {"a": r"grep -E \d+"}, Repair.BAD_ESCAPE),
    (r'{"a": "C:\users\me"}', {"a": r"C:\users\me"}, Repair.BAD_ESCAPE),
    (r'{"a": "it\'s"}', {"a": "it's"}, Repair.ESCAPED_APOSTROPHE),
    ('{{"a": {"b": 1}}}', {"a": {"b": 1}}, Repair.DOUBLED_BRACES),
    ('{{"a": {{"b": 1}}}}', {"a": {"b": 1}}, Repair.DOUBLED_BRACES),
    ("{{}}", {}, Repair.DOUBLED_BRACES),
    ('{"a": {"b": 1}}}', {"a": {"b": 1}}, Repair.EXTRA_BRACE),
    ('{"a": 1}}}', {"a": 1}, Repair.EXTRA_BRACE),
    ('{"a": 1}\n}\n', {"a": 1}, Repair.EXTRA_BRACE),
    ('{"a": {"b": 1}', {"a": {"b": 1}}, Repair.UNCLOSED),
    ('[{"a": {"b": 1}}', [{"a": {"b": 1}}], Repair.UNCLOSED),
    ('[{"a": {"b": 1}]', [{"a": {"b": 1}}], Repair.UNCLOSED),
    ('[{"a": {"b": 1}, {"a": {"b": 2}}]', [{"a": {"b": 1}}, {"a": {"b": 2}}], Repair.UNCLOSED),
    ('{{"a": {"b": 1}}', {"a": {"b": 1}}, Repair.UNCLOSED),
    ('{"a": "echo "hello world""}', {"a": 'echo "hello world"'}, Repair.INNER_QUOTES),
    ('{"a": "say "yes", then "no".", "b": 1}', {"a": 'say "yes", then "no".', "b": 1}, Repair.INNER_QUOTES),
    ('["say "hi" now", 1]', ['say "hi" now', 1], Repair.INNER_QUOTES),
    (r'{"a": """x\""" y"""}', {"a": 'x""" y'}, Repair.TRIPLE_QUOTES),
    (r'{"a": """x\\"""}', {"a": "x\\"}, Repair.TRIPLE_QUOTES),
    ('{"code": """print("x")\n"""}', {"code": 'print("x")\n'}, Repair.TRIPLE_QUOTES),
    ('{"a": +5, "b": .5, "c": 1.}', {"a": 5, "b": 0.5, "c": 1.0}, Repair.NUMBER_SPELLING),
    ('{"a": 1, "a": 1}', {"a": 1}, Repair.REPEATED_KEY),
]

CUT = [
    '{"command": "rm -rf /tmp/bui',
    '{"command": "rm -rf /tmp/bui\\',
    '{"command": "caf\\u00',
    "{'command': 'rm -rf /tmp/bui",
    "{“command”: “rm -rf /tmp/bui",
    '{"command": """rm -rf /tmp/bui',
    '{"command": """rm -rf /tmp/bui""',
    '{"timeout": 12',
    '{"timeout": 12.',
    '{"timeout": 1e',
    '{"timeout": -',
    '{"force": tru',
    '{"force": true',
    '{"force": Fals',
    '{"force": null',
    '{"comm',
    "{comm",
    '{"command"',
    '{"command":',
    '{"command": ',
    '{"command": "ls",',
    '{"command": "ls", "tim',
    '{"command": ["ls", ',
    '{"command": [["ls", "-l"], ["r',
    '[{"name": "a", "arguments": {"x": 1}}, ',
    "{",
    "[",
    "{{",
    "",
    "  \n",
]

REFUSED = [
    '{"a": 1, "a": 2}',
    '{"a": 1, "a": true}',
    '{"a": 1, "a": 1.0}',
    "{'a': {'b': 1, 'b': 2}}",
    '{"a": NaN}',
    '{"a": -Infinity}',
    '{"a": 1e999}',
    "1e400",
    "9" * 5000,
    '{"a": 012}',
    '{"a": 0x10}',
    '{"a": 1.2.3}',
    '{"a": undefined}',
    '{"a": Paris}',
    '{"a": f(1)}',
    '{"a": 1 + 1}',
    '{"a": "x" + "y"}',
    '{"a" "b"}',
    '{"a"; 1}',
    '{"a"}',
    "{1: 2}",
    '{, "a": 1}',
    '{"a": 1,, "b": 2}',
    "[1,,2]",
    "[,]",
    "[1 2]",
    "[1}",
    '{"a": 1]',
    '{{{"a": 1}}}',
    '{"a": "\\ud800"}',
    '{"\\udc00": 1}',
    '{"a": "\ud800"}',
    '{"a": "x "b" y}',
    '{"a": "x " b" y"}',
    '{"a": "x "b "y"}',
    '[1 "a"]',
    '{"a": 1}}}}',
    '{"a": "echo "rm -rf /" and',
    '{"a": "ls" /* and',
    '{"a": "{"b": "c"}"}',
    '{"a": "x"} trailing',
    "hello",
    "}",
    "[" * 201 + "]" * 201,
    '{"a":' * 201 + "1" + "}" * 201,
    "[" * 100_000 + "]" * 100_000,
]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), VALUES, max_size=4)
PRINTED: list[Callable[[JsonValue], str]] = [
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    lambda value: json.dumps(value, indent=2),
]
PRINTERS = st.sampled_from(PRINTED)
JSONISH = st.text(st.sampled_from(list("{}[]\"'“”:,\\/*#\n .-+0e1tfnubaTrueNone<|`\ud800é")), max_size=60)


@for_each(("text", "value", "repair"), REPAIRABLE)
def test_what_has_one_meaning_is_repaired_and_the_repair_is_named(text: str, value: JsonValue, repair: Repair) -> None:
    read = read_whole(text, close_open=True)
    assert same_json(read.value, value)
    assert repair in read.repairs


@for_each("text", [text for text, _, repair in REPAIRABLE if repair is not Repair.UNCLOSED])
def test_every_repair_but_closing_brackets_is_there_for_all_callers(text: str) -> None:
    assert read_whole(text).unclosed == ()


@for_each("close_open", [False, True])
@for_each("text", CUT)
def test_what_was_cut_inside_a_value_is_refused_as_cut(text: str, close_open: bool) -> None:
    with pytest.raises(UnreadableValueError) as caught:
        read_whole(text, close_open=close_open)
    assert caught.value.cut


@for_each("text", REFUSED)
def test_what_has_no_meaning_or_several_is_refused_and_was_not_cut(text: str) -> None:
    with pytest.raises(UnreadableValueError) as caught:
        read_whole(text, close_open=True)
    assert not caught.value.cut


def test_a_value_ends_where_it_ends_and_the_rest_is_left() -> None:
    text = 'say {"a": "}"}</tool_call>'
    read = read_value(text, 4)
    assert (read.value, text[read.end :]) == ({"a": "}"}, "</tool_call>")


def test_white_space_before_a_value_is_skipped() -> None:
    assert read_value(" \n {}", 0).end == 5


def test_a_caller_can_tell_what_the_model_itself_closed() -> None:
    read = read_value('[{"name": "f", "arguments": {"b": 1}</tool_call>', close_open=True)
    assert isinstance(read.value, list) and isinstance(read.value[0], dict)
    assert read.closed(read.value[0]["arguments"])
    assert not read.closed(read.value[0])
    assert not read.closed(read.value)


def test_arguments_that_the_model_did_not_close_count_as_unclosed() -> None:
    read = read_value('{"name": "f", "arguments": {"b": "x"</tool_call>', close_open=True)
    assert isinstance(read.value, dict)
    assert not read.closed(read.value["arguments"])


@for_each("text", [text for text, _, repair in REPAIRABLE if repair is Repair.UNCLOSED])
def test_no_bracket_is_added_for_a_caller_who_does_not_ask(text: str) -> None:
    with pytest.raises(UnreadableValueError):
        read_value(text)


@for_each("text", ['{"a": "b" c', '{"a": "b"c', '{"a": "it"s', '{"a": ["b" c'])
def test_brackets_are_not_closed_where_a_string_may_have_continued(text: str) -> None:
    with pytest.raises(UnreadableValueError):
        read_value(text, close_open=True)


def test_long_strict_values_are_read_whole_at_any_position() -> None:
    value = {"a": ["x" * 10_000, {"b": "é" * 50_000}, 1.5], "n": list(range(5000))}
    text = "...." + json.dumps(value, ensure_ascii=False) + "<end>"
    read = read_value(text, 4)
    assert (read.value, text[read.end :], read.repairs) == (value, "<end>", ())
    assert steps(lambda whole: read_value(whole, 4), text) < 500, "the strict reader did it"


@for_each("digits", ["1" * 4300, "-" + "7" * 4300])
def test_long_integers_keep_every_digit(digits: str) -> None:
    assert read_whole(digits).value == int(digits)


def test_a_number_that_a_window_of_the_text_would_cut_is_read_whole() -> None:
    assert read_value(" " * 10 + "1" * 4200 + " and more" * 1000).value == int("1" * 4200)


@for_each("wrapped", [json.dumps('{"a": 1}'), json.dumps(json.dumps('{"a": 1}'))])
def test_arguments_written_as_a_text_are_unwrapped_once_or_twice(wrapped: str) -> None:
    value, repairs = unwrap(json.loads(wrapped))
    assert value == {"a": 1}
    assert repairs == (Repair.QUOTED_ARGUMENTS,)


def test_arguments_that_are_an_object_need_no_unwrapping() -> None:
    assert unwrap({"a": "{}"}) == ({"a": "{}"}, ())


@for_each("text", ["ls", "[1]", "3", '"x"', json.dumps(json.dumps(json.dumps({}))), '{"a": "b', "{} {}"])
def test_a_text_without_an_object_in_it_is_no_arguments(text: str) -> None:
    with pytest.raises(UnreadableValueError):
        unwrap(text)


@given(VALUES, PRINTERS)
def test_strict_json_reads_back_as_it_was_without_repairs(
    value: JsonValue, printed: Callable[[JsonValue], str]
) -> None:
    text = printed(value)
    read = read_whole(text)
    assert same_json(read.value, json.loads(text))
    assert (read.end, read.repairs, read.unclosed) == (len(text), (), ())


@given(VALUES, PRINTERS, st.booleans())
def test_the_tolerant_reader_agrees_with_the_strict_one(
    value: JsonValue, printed: Callable[[JsonValue], str], close_open: bool
) -> None:
    text = printed(value)
    reader = LiteralReader(text, 0, JSON, close_open=close_open)
    assert same_json(reader.read(), json.loads(text))
    assert reader.at == len(text)
    assert not reader.repairs and not reader.unclosed


@pytest.mark.more
@given(OBJECTS, PRINTERS, st.sampled_from(["", "<tool>", " x", "\n```", "é"]))
def test_a_value_inside_a_text_ends_at_its_bracket(
    value: JsonValue, printed: Callable[[JsonValue], str], rest: str
) -> None:
    text = printed(value)
    read = read_value("é: " + text + rest, 3, close_open=True)
    assert same_json(read.value, json.loads(text))
    assert read.end == 3 + len(text)


def _begins(part: JsonValue, whole: JsonValue, unclosed: tuple[JsonValue, ...]) -> bool:
    """Return True if `part` is `whole`, or was closed by assumption and is the beginning of it."""
    if not any(part is each for each in unclosed):
        return same_json(part, whole)
    if isinstance(part, dict) and isinstance(whole, dict):
        keys = list(whole)[: len(part)]
        pairs = [(part[key], whole[key]) for key in part]
        return list(part) == keys and all(_begins(one, other, unclosed) for one, other in pairs)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(_begins(*pair, unclosed) for pair in zip(part, whole, strict=False))
    return False


@pytest.mark.more
@given(OBJECTS.filter(bool), PRINTERS, st.data())
@example({"a": {"b": "c"}}, json.dumps, None)
def test_an_object_cut_anywhere_is_refused_as_cut_unless_all_before_the_cut_was_closed(
    value: JsonValue, printed: Callable[[JsonValue], str], data: st.DataObject | None
) -> None:
    text = printed(value)
    whole = json.loads(text)
    for length in [data.draw(st.integers(0, len(text) - 1))] if data else range(len(text)):
        part = text[:length]
        with pytest.raises(UnreadableValueError) as caught:
            read_value(part)
        assert caught.value.cut
        try:
            read = read_value(part, close_open=True)
        except UnreadableValueError as error:
            assert error.cut
        else:
            assert part.rstrip()[-1] in '"}]0123456789eEtrufalsn', "the cut came right after a value"
            assert not read.closed(read.value)
            assert _begins(read.value, whole, read.unclosed)
            assert read.repairs == (Repair.UNCLOSED,)


@given(JSONISH, st.booleans())
def test_any_text_is_read_or_refused_and_what_was_read_can_be_written(text: str, close_open: bool) -> None:
    for read_from in range(min(len(text), 3) + 1):
        try:
            read = read_value(text, read_from, close_open=close_open)
        except UnreadableValueError as error:
            assert read_from <= error.position <= len(text)
            continue
        assert read_from < read.end <= len(text)
        canonical(read.value).encode()


@given(st.text(st.characters(exclude_categories=[])))
def test_no_character_at_all_breaks_the_reader(text: str) -> None:
    for wrapped in (text, f'{{"a": "{text}"}}', f"{{'{text}': 1}}", f"[{text}]"):
        try:
            canonical(read_value(wrapped, close_open=True).value).encode()
        except UnreadableValueError:
            continue


@for_each(
    "unit",
    [
        "{",
        "[",
        "\\",
        '"',
        "'",
        '{"a":',
        '["a" ',
        '"a" ',
        '" b',
        "1,",
        "/*",
        "//\n",
        '"""',
        '{"a":1 ',
        "'a' b',",
        "“",
        "\\u12",
        '"b" :',
        "{{",
        " ",
    ],
)
@for_each("before", ["", "[", '{"a": "', '{"a": ', "{'a': 'b' c "])
def test_twice_the_text_takes_at_most_about_twice_the_steps(before: str, unit: str) -> None:
    def read(text: str) -> object:
        return read_value(text, close_open=True)

    once, twice = (steps(read, before + unit * count) for count in (1000, 2000))
    assert twice <= 2.2 * once + 500
