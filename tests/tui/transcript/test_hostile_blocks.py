"""Untrusted text in any field of any block is shown as text: never as markup or an escape sequence."""

import json
import signal
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.token import Token  # type: ignore[import-untyped]

from chatops.domain.files import FileRef
from chatops.tui.theme import PLAIN
from chatops.tui.transcript import markdown
from chatops.tui.transcript.answer import warm_up
from chatops.tui.transcript.blocks import AnswerBlock, Block, CardStatus, EndDetails, ToolCardBlock
from chatops.tui.transcript.card import argument_summary
from tests.support.cases import for_each
from tests.support.transcript_blocks import render_block, samples

warm_up()
MARKUP = ["[/foo]", "[@click=app.bell]x", "[type=x, v={'a[0]'}]", "[bold]x[/bold]", "[link=http://e]x[/link]"]
ESCAPES = ["\x1b]52;c;eA==\x07", "\x1b[2J", "\x9b31m", "a\rb", "\u202eabc", "\x00", "\ud800", "\u2028", "\x85"]
FIXED = {"id", "level", "decided_by"}


def poisoned(block: Block | EndDetails, text: str) -> Any:
    changes: dict[str, object] = {}
    for field in fields(block):
        value = getattr(block, field.name)
        if field.name == "decided_by" and value:
            changes[field.name] = f"uid 1 ({text}) via tui"
        elif field.name not in FIXED and isinstance(value, str) and not isinstance(value, CardStatus):
            if field.name != "outcome":
                changes[field.name] = text
        elif isinstance(value, EndDetails):
            changes[field.name] = poisoned(value, text)
        elif field.name == "files":
            changes[field.name] = (FileRef(path=text), FileRef(path="x", problem=text))
        elif isinstance(value, tuple):
            changes[field.name] = (text,)
    return replace(block, **changes)  # type: ignore[arg-type]


def text_of(block: Block) -> str:
    return "\n".join(strip.text for strip in render_block(block, 300, PLAIN, expanded=True))


@pytest.fixture(autouse=True)
def patient_highlighting() -> None:
    """Leave the limit as it is: these tests are about it."""


@for_each("block", samples(), ids=lambda block: block.id)
@for_each("text", MARKUP)
def test_markup_is_shown_literally(block: Block, text: str) -> None:
    assert text in text_of(poisoned(block, text))


@for_each("block", samples(), ids=lambda block: block.id)
@for_each("text", ESCAPES)
def test_no_text_acts_on_the_terminal(block: Block, text: str) -> None:
    shown = text_of(poisoned(block, text))
    assert not set(shown) & set("\x1b\x9b\x07\r\x00\ud800\u202e\u2028\x85")


@for_each("text", MARKUP)
def test_markup_in_arguments_is_shown_in_the_headline(text: str) -> None:
    block = ToolCardBlock(id="c", tool=text, arguments=json.dumps({"command": text, text: [text]}))
    assert render_block(block, 300, PLAIN)[0].text.count(text) >= 2


@for_each("arguments", ["[" * 100_000, '{"a":' * 50_000, "9" * 10_000, "", "null", '"x"', "\ud800{"])
def test_no_arguments_break_a_card(arguments: str) -> None:
    assert len(argument_summary(arguments)) <= 400
    assert render_block(ToolCardBlock(id="c", tool="t", arguments=arguments[:2_000]), 80, PLAIN, expanded=True)


@pytest.mark.some(1)
@pytest.mark.parametrize("text", ["[" * 15_000, "*a " * 5_000, "`" * 15_000, "> " * 7_000, "- " * 5_000, "![" * 7_000])
def test_no_markdown_breaks_an_answer(text: str) -> None:
    for block in samples():
        if isinstance(block, AnswerBlock):
            assert render_block(replace(block, text=text), 80, PLAIN)


def test_code_that_a_lexer_would_take_hours_for_is_drawn_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "_given_up", set())
    code = "<a " + " " * 19_000 + "!"
    assert not markdown.highlight(code, language="adl", theme=PLAIN).spans
    # It was tried once: what streams in is drawn many times a second.
    monkeypatch.setattr(markdown, "_tokens", lambda lexer, code: pytest.fail("asked again"))
    assert markdown.highlight(code, language="adl", theme=PLAIN).plain == code


class DeafLexer(Lexer):  # type: ignore[misc]
    """Takes 20 s of CPU time, and is in a weakref callback when its time is over: an exception there is ignored."""

    def get_tokens(self, text: str) -> Iterator[tuple[object, str]]:
        end, ignored = time.process_time() + 20, Lexer()
        reference = weakref.ref(ignored, lambda _: self.spin(end))
        del ignored
        self.spin(end)
        assert reference() is None
        yield Token.Keyword, text

    def spin(self, end: float) -> None:
        while time.process_time() < end:
            # The limit is of time outside the system's calls, and asking for the time is one.
            sum(range(10_000))


@pytest.mark.more
def test_a_lexer_is_stopped_even_if_it_is_in_a_weakref_callback_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    monkeypatch.setattr(markdown, "_given_up", set())
    monkeypatch.setattr(markdown, "_lexer", lambda language: DeafLexer())
    assert not markdown.highlight("if", language="deaf", theme=PLAIN).spans
    assert len(ignored) == 1
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_other_languages_keep_their_colours() -> None:
    assert markdown.highlight("import a\n" * 1_000, language="python", theme=PLAIN).spans
