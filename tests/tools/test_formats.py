"""The formats of fields that a user fills in."""

import json

from chatops.tools.schema import format_problems
from tests.support.cases import for_each


@for_each(
    ("kind", "good", "bad"),
    [
        ("email", ["ana@example.org", "a@localhost"], ["nonsense", "x@", "@x", "a b@c.org", "a@b..c", "a@b@c"]),
        ("uri", ["https://example.org/a?b#c", "mailto:a@b.org"], ["not a uri", "example.org", "https://", "http://["]),
        ("date", ["2024-02-29"], ["yesterday", "2020-13-45", "2023-02-29", "20200101", "٢٠٢٠-٠١-٠١", "2020-01-01\n"]),
        ("date-time", ["2024-02-29T10:00:00Z", "2024-02-29t10:00:00.5+02:00"], ["2024-02-29", "2024-02-29 10:00"]),
        ("unknown", ["anything"], []),
    ],
)
def test_a_text_has_the_format_of_its_field(kind: str, good: list[str], bad: list[str]) -> None:
    schema = json.dumps({"properties": {"it": {"type": "string", "format": kind}}})
    assert [text for text in good if format_problems({"it": text}, schema=schema)] == []
    assert [text for text in bad if not format_problems({"it": text}, schema=schema)] == []
