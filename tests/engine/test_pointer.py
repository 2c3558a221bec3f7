"""RFC 6901: the examples of its section 5, and what names nothing."""

import pytest

from chatops.domain.canonical import JsonValue, PointerError, resolve_pointer
from tests.support.cases import for_each

DOCUMENT: JsonValue = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
    "none": None,
}


@for_each(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
        ("/none", None),
    ],
)
def test_a_pointer_names_a_value(pointer: str, value: JsonValue) -> None:
    assert resolve_pointer(DOCUMENT, pointer) == value


@for_each(
    "pointer", ["foo", "/bar", "/foo/2", "/foo/-", "/foo/00", "/foo/-1", "/foo/٣", "/foo/0/0", "/foo/" + "9" * 5_000]
)
def test_what_names_nothing_is_said(pointer: str) -> None:
    with pytest.raises(PointerError):
        resolve_pointer(DOCUMENT, pointer)
