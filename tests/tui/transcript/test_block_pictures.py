"""Every kind of block at two widths, as text. WRITE_GOLDEN=1 stores what is there now."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.tools import Outcome
from chatops.tui.output_writer import encoder_for
from chatops.tui.theme import ASCII, PLAIN, symbols_for
from chatops.tui.transcript.answer import warm_up
from chatops.tui.transcript.block_lines import can_open
from chatops.tui.transcript.blocks import Block, CardStatus, ToolCardBlock
from chatops.tui.transcript.finding import noun_of
from tests.support.cases import for_each
from tests.support.transcript_blocks import card, render_block, samples

GOLDEN = Path(__file__).parent / "golden"
warm_up()


def _name(block: Block) -> str:
    kinds: dict[type, str] = {ToolCardBlock: "tool", RoleSwitchMessage: "role_switch"}
    return kinds.get(type(block), type(block).__name__.removesuffix("Block").lower())


def picture(width: int, *, ascii_only: bool = False) -> str:
    theme = replace(PLAIN, symbols=ASCII) if ascii_only else PLAIN
    parts = []
    for block in samples():
        for expanded in (False, True) if can_open(block) else (False,):
            lines = [strip.text.rstrip() for strip in render_block(block, width, theme, expanded=expanded)]
            parts.append("\n".join([f"== {_name(block)} {block.id}{' open' if expanded else ''}", *lines]))
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize("width", [80, 120])
def test_each_kind_of_block_matches_its_golden_picture(width: int) -> None:
    golden = GOLDEN / f"blocks_{width}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(picture(width), encoding="utf-8")
    assert picture(width) == golden.read_text(encoding="utf-8")


@for_each("width", [20, 40, 80, 120])
def test_no_line_is_wider_than_its_width(width: int) -> None:
    for block in samples():
        for strip in render_block(block, width, PLAIN, expanded=True):
            assert strip.cell_length <= width, (block.id, strip.text)


def test_a_terminal_without_utf8_gets_plain_signs() -> None:
    shown = picture(80, ascii_only=True)
    assert [*map(len, encoder_for("ascii")(shown).split(b"\n"))] == [*map(cell_len, shown.split("\n"))]
    assert symbols_for("ISO-8859-1") is ASCII
    assert symbols_for(None) is ASCII
    assert symbols_for("utf-8") is not ASCII


@pytest.mark.parametrize("outcome", [Outcome.DENIED, Outcome.INVALID])
def test_a_call_that_did_not_run_says_so_without_colour(outcome: Outcome) -> None:
    block = card("x", "rm x", outcome=outcome, decided_by="uid 1 (ana) via tui", duration_ms=12)
    text = "\n".join(strip.text for strip in render_block(block, 80, PLAIN))
    assert "not run" in text
    assert "✓" not in text
    assert "12 ms" not in text


@pytest.mark.parametrize("by", ["rule 12 (this folder, as coder)", "rule of role coder"])
@pytest.mark.parametrize("status", [CardStatus.SETTLED, CardStatus.PERMITTED])
def test_a_call_that_a_rule_allowed_names_the_rule(by: str, status: CardStatus) -> None:
    block = replace(card("x", "git status", outcome=Outcome.SUCCESS, decided_by=by), status=status)
    text = "\n".join(strip.text for strip in render_block(block, 80, PLAIN))
    assert f"allowed by {by.partition(' (')[0]}" in text


def test_each_state_of_a_card_reads_differently_without_colour() -> None:
    states = [(status, None) for status in CardStatus if status is not CardStatus.SETTLED]
    blocks = [ToolCardBlock(id="c", tool="t", arguments="{}", status=status, outcome=None) for status, _ in states]
    blocks += [
        ToolCardBlock(id="c", tool="t", arguments="{}", status=CardStatus.SETTLED, outcome=outcome)
        for outcome in Outcome
    ]
    texts = ["".join(strip.text for strip in render_block(block, 80, PLAIN)) for block in blocks]
    assert len(set(texts)) == len(texts)


def test_every_block_can_be_named_when_it_is_copied() -> None:
    nouns = {noun_of(block) for block in samples()}
    assert {"the change of role", "the call with its result", "the answer", "the message"} <= nouns
