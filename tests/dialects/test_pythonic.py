import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.dialects.formats.pythonic import read_call, read_call_list
from chatops.dialects.literals import same_json
from chatops.dialects.reading import Repair, UnreadableValueError
from chatops.domain.canonical import JsonValue, canonical
from tests.dialects.reading_steps import steps
from tests.support.cases import for_each

READ: list[tuple[str, str, dict[str, JsonValue]]] = [
    ("f()", "f", {}),
    ("f( )", "f", {}),
    ("f(a=1)", "f", {"a": 1}),
    ("f (a = 1, )", "f", {"a": 1}),
    ("files.read-all(path='a.txt')", "files.read-all", {"path": "a.txt"}),
    ("f(a=-3, b=+2.5, c=1_000, d=.5, e=1e3)", "f", {"a": -3, "b": 2.5, "c": 1000, "d": 0.5, "e": 1000.0}),
    ("f(a=True, b=False, c=None)", "f", {"a": True, "b": False, "c": None}),
    ("f(a=true, b=false, c=null)", "f", {"a": True, "b": False, "c": None}),
    ("f(a=[1, [2], {'b': {}}], c=[])", "f", {"a": [1, [2], {"b": {}}], "c": []}),
    ("f(a=(1, 2), b=(1,), c=(1), d=())", "f", {"a": [1, 2], "b": [1], "c": 1, "d": []}),
    ("f(a='it\\'s', b=\"it's\", c='say \"hi\"')", "f", {"a": "it's", "b": "it's", "c": 'say "hi"'}),
    (r"f(a='\x41\u00e9\U0001F600\101\n\t\\')", "f", {"a": "Aé😀A\n\t\\"}),
    ("f(a='one\\\ntwo')", "f", {"a": "onetwo"}),
    (r"f(a=r'\d+\n')", "f", {"a": r"\d+\n"}),
    ("f(a='''one\n'two'\n''', b=\"\"\"x\"y\"\"\")", "f", {"a": "one\n'two'\n", "b": 'x"y'}),
    ("f(a={'b': 'f(x=1)'})", "f", {"a": {"b": "f(x=1)"}}),
    ("f(user_id='x', größe=1)", "f", {"user_id": "x", "größe": 1}),
    ("  \n f(a=1)", "f", {"a": 1}),
]

REPAIRED: list[tuple[str, dict[str, JsonValue], Repair]] = [
    ('f(a="one\ntwo")', {"a": "one\ntwo"}, Repair.RAW_CONTROL),
    ('f(a="one" "two")', {"a": "onetwo"}, Repair.ADJACENT_TEXTS),
    ("f(a=('one'\n 'two'))", {"a": "onetwo"}, Repair.ADJACENT_TEXTS),
    ("f(a=r'\\d' '\\n')", {"a": "\\d\n"}, Repair.ADJACENT_TEXTS),
    ("f(month=07)", {"month": 7}, Repair.NUMBER_SPELLING),
    ("f(a=“x”)", {"a": "x"}, Repair.SMART_QUOTES),
    ("f(a='it's')", {"a": "it's"}, Repair.INNER_QUOTES),
    ('f(a="say "hi" now", b=1)', {"a": 'say "hi" now', "b": 1}, Repair.INNER_QUOTES),
    (
        "f(a='python -c \"import x\nprint(x(mul='\\,'))\"')",
        {"a": "python -c \"import x\nprint(x(mul='\\,'))\""},
        Repair.INNER_QUOTES,
    ),
    (r"f(a='\d')", {"a": r"\d"}, Repair.BAD_ESCAPE),
    ("f(a=1 # one\n)", {"a": 1}, Repair.COMMENT),
    ("f(a={'b': 1, 'b': 1})", {"a": {"b": 1}}, Repair.REPEATED_KEY),
]

CUT = [
    "",
    "f",
    "f ",
    "f(",
    "f(a",
    "f(a=",
    "f(a='rm -rf /tmp/bui",
    "f(a='rm -rf /tmp/bui'",
    "f(a='''rm -rf /tmp/bui''",
    "f(a=r'rm\\",
    "f(a='x', ",
    "f(a=1",
    "f(a=Tru",
    "f(a=[1, 2",
    "f(a=[1, 2]",
    "f(a={'b': ",
    "f(a={'b': 1}",
]

REFUSED = [
    "f(1)",
    "f('x')",
    "f(a)",
    "f(a=1, 2)",
    "f({'a': 1})",
    "f(*a)",
    "f(**{'a': 1})",
    "f(a=b)",
    "f(a=g())",
    "f(a=g(b=1))",
    "f(a='x' * 10**9)",
    "f(a='x' + 'y')",
    "f(a=1 + 1)",
    "f(a=6 // 2\n)",
    "f(a=-x)",
    "f(a=1 == 1)",
    "f(a==1)",
    "f(a='x'.upper())",
    "f(a='x'[0])",
    "f(a=os.environ['HOME'])",
    "f(a=lambda: 1)",
    "f(a=(lambda: 'x')())",
    "f(a='x' if b else 'y')",
    "f(a=[p for p in q])",
    "f(a=p for p in q)",
    "f(a=f'{x}')",
    "f(a=rf'{x}')",
    "f(a=b'x')",
    "f(a=1, a=1)",
    "f(a={'b': 1, 'b': 2})",
    "f(a={'b': 1, 'b': True})",
    "f(a={1: 2})",
    "f(a={1, 2})",
    "f(a={{'b': 1}})",
    "f(a={b: 1})",
    "f(a={**b})",
    "f(a=1j)",
    "f(a=0x10)",
    "f(a=1__0)",
    "f(a=nan)",
    "f(a=1e999)",
    "f(a=" + "9" * 5000 + ")",
    "f(a=1; b=2)",
    "f(a=1 b=2)",
    "f(a=[1}])",
    "f(a='\\ud800')",
    "f(a='\\U00110000')",
    "f(a=" + "[" * 201 + "]" * 201 + ")",
    "f(a=" + "(" * 100_000,
    "f[a]",
    "f\n(a=1)",
    "1f()",
    "(f())",
    "f{}",
]

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=15,
)
CALLS = st.tuples(NAMES, st.dictionaries(NAMES, LITERALS, max_size=4))


def _printed(name: str, arguments: dict[str, JsonValue]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


@for_each(("text", "name", "arguments"), READ)
def test_a_call_with_literal_keyword_arguments_is_read_without_repairs(
    text: str, name: str, arguments: dict[str, JsonValue]
) -> None:
    call = read_call(text + " and more")
    assert (call.name, call.repairs, call.end) == (name, (), len(text))
    assert same_json(call.arguments, arguments)


@for_each(("text", "arguments", "repair"), REPAIRED)
def test_what_is_not_quite_python_is_repaired_and_the_repair_is_named(
    text: str, arguments: dict[str, JsonValue], repair: Repair
) -> None:
    call = read_call(text)
    assert same_json(call.arguments, arguments)
    assert repair in call.repairs


@for_each("text", CUT)
def test_a_call_that_was_cut_is_refused_as_cut(text: str) -> None:
    with pytest.raises(UnreadableValueError) as caught:
        read_call(text)
    assert caught.value.cut


@for_each("text", REFUSED)
def test_arguments_that_are_no_literal_keywords_are_refused(text: str) -> None:
    with pytest.raises(UnreadableValueError) as caught:
        read_call(text)
    assert not caught.value.cut


@for_each("text", ["f(1)", "f(x)", "f(**{'a': 1})", "f(a=1, 2)"])
def test_an_argument_without_a_name_is_diagnosed_as_such(text: str) -> None:
    with pytest.raises(UnreadableValueError, match="name=value"):
        read_call(text)


@for_each(
    ("text", "names"),
    [
        ("[]", []),
        ("[ ]", []),
        ("[f()]", ["f"]),
        ("[f(a=1), g()]", ["f", "g"]),
        ("[\n  f(a=1),\n  g(),\n]", ["f", "g"]),
        ("f()", ["f"]),
        ("f(a=1)\ng()", ["f", "g"]),
        ("f(a=1); g()\n\nh()", ["f", "g", "h"]),
        ("f(a=1),\ng()", ["f", "g"]),
    ],
)
def test_lists_and_lines_of_calls_are_read_in_their_order(text: str, names: list[str]) -> None:
    calls, end = read_call_list(f"  {text}<end>", 1)
    assert [call.name for call in calls] == names
    assert end == 2 + len(text)


def test_every_call_of_a_list_has_its_position() -> None:
    text = "[f(a=1), g()]"
    calls, _ = read_call_list(text)
    assert [text[call.start : call.end] for call in calls] == ["f(a=1)", "g()"]


@for_each("text", ["f() is what to call", "f()\nThat was it.", "f()", "f()g()", "f()(a=1)"])
def test_lines_of_calls_end_with_the_last_call(text: str) -> None:
    calls, end = read_call_list(text)
    assert (len(calls), end) == (1, 3)


@for_each(
    "text", ["[f(), g(1)]", "[f(), 3]", "[f() g()]", "[f()", "[f(),", "[f(), g(", "f()\ng(1)", "f()\ng(a='x", "[,]"]
)
def test_one_unreadable_call_makes_the_list_unreadable(text: str) -> None:
    with pytest.raises(UnreadableValueError):
        read_call_list(text)


@for_each("rest", ["", "<|tool_call_end|>", "\n```"])
def test_a_missing_bracket_is_added_after_a_closed_call_for_a_caller_who_asks(rest: str) -> None:
    text = "[f(), g(a=1)"
    calls, end = read_call_list(text + rest, close_open=True)
    assert [call.repairs for call in calls] == [(), (Repair.UNCLOSED,)]
    assert end == len(text)


@for_each("text", ["[f(),", "[f(a=1", "[f() and g()", "["])
def test_a_bracket_is_not_added_where_more_was_to_come(text: str) -> None:
    with pytest.raises(UnreadableValueError):
        read_call_list(text, close_open=True)


@pytest.mark.more
@given(CALLS)
def test_a_call_that_python_printed_reads_back_as_it_was(written: tuple[str, dict[str, JsonValue]]) -> None:
    text = _printed(*written)
    call = read_call(text)
    assert (call.name, call.end, call.repairs) == (written[0], len(text), ())
    assert same_json(call.arguments, written[1])


@pytest.mark.more
@given(CALLS, st.data())
def test_a_call_cut_anywhere_is_refused_as_cut(written: tuple[str, dict[str, JsonValue]], data: st.DataObject) -> None:
    text = _printed(*written)
    with pytest.raises(UnreadableValueError) as caught:
        read_call(text[: data.draw(st.integers(0, len(text) - 1))])
    assert caught.value.cut


@given(st.text(st.sampled_from(list("fg()[]{}=,'\"“\\ \n#.-+017eTrueNone:*;\ud800")), max_size=50), st.booleans())
def test_any_text_is_read_or_refused_and_what_was_read_can_be_written(text: str, close_open: bool) -> None:
    for wrapped in (text, f"f({text})", f"[f(a={text})]"):
        try:
            calls, end = read_call_list(wrapped, close_open=close_open)
        except UnreadableValueError as error:
            assert 0 <= error.position <= len(wrapped)
            continue
        assert 0 < end <= len(wrapped)
        for call in calls:
            canonical(call.arguments).encode()


@for_each("unit", ["(", "[", "'", '"', "\\", "'x' ", "f(a=1)\n", "f(", "a=1,", "1,", "#\n", "A(A=,\t\t)", "x"])
@for_each("before", ["", "[", "f(", "f(a=", "f(a='", "f(a=['x' y ", "[A(A=\t)"])
def test_twice_the_text_takes_at_most_about_twice_the_steps(before: str, unit: str) -> None:
    once, twice = (steps(read_call_list, before + unit * count) for count in (1000, 2000))
    assert twice <= 2.2 * once + 500
