"""Patterns that do not backtrack match what plain ones match, on every patch of Python 3.11."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chatops
from chatops.dialects.formats import base
from chatops.dialects.json_reader import _EXTRA_BRACES, UnreadableValueError, read_value
from chatops.dialects.literals import _RAW_NEWLINE, JSON, PYTHON
from chatops.dialects.strings import _BODY
from tests.support.cases import for_each

PATTERNS = [
    *(JSON.gap, PYTHON.gap, PYTHON.number, _EXTRA_BRACES, _RAW_NEWLINE, base._TAIL, base._CLOSER_RUN),
    *_BODY.values(),
]
GROUP_REPEATED = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+")
PARTS = (
    "/* */ * / // # \\ \" ' “ ” } a 1 23 _ . e - </tool_call> </tool_call :x> > <|im_end|> <|im_end </s> <|user| [EOS "
    "]<]minimax[>[</ x> <|close|> tools<|sep|> <|sep [/TOOL_CALLS] <｜DSML｜ </｜DSML｜"
).split()
TEXTS = st.lists(st.sampled_from([*PARTS, " ", "\n", "< / tools"]), max_size=8).map("".join)


def plain(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """`pattern` with quantifiers that backtrack."""
    return re.compile(re.sub(r"([*+?}])\+", r"\1", pattern.pattern.replace("|(?!)", "")), pattern.flags)


PLAIN = list(map(plain, PATTERNS))


@given(text=TEXTS)
def test_each_matches_what_a_plain_pattern_matches(text: str) -> None:
    for pattern, reference in zip(PATTERNS, PLAIN, strict=True):
        found, wanted = pattern.match(text), reference.match(text)
        assert (found and (found.span(), found.groups())) == (wanted and (wanted.span(), wanted.groups())), pattern


def test_no_other_pattern_repeats_a_group_without_backtracking() -> None:
    """`possessive` writes the only kind that every patch of 3.11 matches right."""
    for file in Path(chatops.__file__).parent.rglob("*.py"):
        if file.name != "strings.py":
            assert not GROUP_REPEATED.search(file.read_text(encoding="utf-8")), file


@for_each("end", ["/* and", "/*", "/* }}", ', "x": 1_2_'])
def test_a_value_that_a_comment_or_a_number_cuts_off_is_not_whole(end: str) -> None:
    with pytest.raises(UnreadableValueError):
        read_value(f'{{"a": "ls" {end}', close_open=True)
