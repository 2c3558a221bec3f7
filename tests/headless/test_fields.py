"""A JSON value as people read it, and as they accept it: what both would leave out is shown as it is."""

from chatops.domain.wording import as_fields, readable
from tests.support.cases import for_each


def test_fields_and_entries_are_lines_however_deep_they_are() -> None:
    text = '{"files": ["a.py", "b.py"], "plan": "one\\ntwo", "done": true, "by": {"who": null}, "no": [], "e": ""}'
    assert as_fields(text).split("\n") == [
        "files:",
        "  - a.py",
        "  - b.py",
        "plan:",
        "  one",
        "  two",
        "done: true",
        "by:",
        "  who: null",
        "no: []",
        'e: ""',
    ]
    assert as_fields('[{"a": 1, "b": 2}, [3]]') == "- a: 1\n  b: 2\n- - 3"


def test_a_name_cannot_look_like_a_field_of_its_own() -> None:
    assert as_fields('{"a\\nsuccess": true}') == '"a\\nsuccess": true'


@for_each("text", ["", "plain", '"text"', "12", "{oops", "{} and more", "[" * 100_000, '{"a": 1, "a": 2}'])
def test_anything_else_stays_as_it_is(text: str) -> None:
    assert as_fields(text) == readable(text) == text
