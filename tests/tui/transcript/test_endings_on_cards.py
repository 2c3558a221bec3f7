"""A card's line says how a program ended: stopped at its limit, with what code, and what was stopped behind it."""

import pytest

from chatops.domain.endings import EndedBy, Ending, with_ending, without_ending
from chatops.domain.tools import CallEnd, Outcome, ResultFacts
from chatops.tui.theme import PLAIN
from chatops.tui.transcript.blocks import finished_card
from chatops.tui.transcript.card import card_lines

SENTENCE = "The command was not run, because its sandbox could not be set up: bwrap: no. Repeat the call."
LINES: dict[tuple[Outcome, str, Ending | None], str] = {
    (Outcome.FAILED, "so far", Ending(by=EndedBy.TIME_LIMIT, seconds=2.5)): "stopped after 2.5 s",
    (Outcome.FAILED, "x", Ending(exit_code=2, stopped=2)): "exit code 2 · 3.0 s, 2 background processes stopped",
    (Outcome.FAILED, "x", Ending(exit_code=2, cause="no network")): "exit code 2 · 3.0 s x Likely cause: no network",
    (Outcome.SUCCESS, "done", Ending(stopped=1)): "3.0 s, 1 background process stopped",
    (Outcome.SUCCESS, "done", Ending(pipeline=("pytest", "tail"), not_found=("pytest",))): (
        "3.0 s, pytest not found, exit code of tail done"
    ),
    (
        Outcome.FAILED,
        "x",
        Ending(exit_code=1, pipeline=("a", "")),
    ): "exit code 1 · 3.0 s, exit code of the last program x",
    (Outcome.SUCCESS, "done", None): "3.0 s",
    (Outcome.FAILED, SENTENCE, None): f"failed · 3.0 s {SENTENCE}",
    (Outcome.FAILED, "a\nb", None): "failed · 3.0 s a b",
    (Outcome.FAILED, "a \x1b[2J" + "b" * 900, None): "failed · 3.0 s a ",
}


def test_a_shortened_result_says_so_on_its_line() -> None:
    card = finished_card(
        "c1",
        CallEnd(
            tool="web_fetch",
            arguments='{"url":"https://example.org"}',
            outcome=Outcome.SUCCESS,
            content="the first of it",
            truncated=True,
            duration_ms=3_000,
        ),
    )
    (line,) = card_lines(card, width=100, theme=PLAIN, expanded=False)
    assert line.plain.endswith("3.0 s, result shortened")


@pytest.mark.parametrize(("outcome", "content", "ending"), LINES)
def test_the_headline_says_how_the_program_ended(outcome: Outcome, content: str, ending: Ending | None) -> None:
    card = finished_card(
        "c1",
        CallEnd(
            tool="shell_exec",
            arguments='{"command":"make"}',
            outcome=outcome,
            content=content if ending is None else with_ending(content, ending),
            duration_ms=3_000,
            facts=ResultFacts(ending=ending),
        ),
    )
    shown = " ".join(line.plain.strip() for line in card_lines(card, width=100, theme=PLAIN, expanded=False))
    assert LINES[outcome, content, ending] in shown
    assert "\x1b" not in shown
    assert len(shown) < 600


@pytest.mark.parametrize("ending", [Ending(), Ending(exit_code=3), Ending(stopped=1), Ending(signal="SIGKILL")])
@pytest.mark.parametrize("output", ["", "a", "a\n[exit code 3]", "[exit code 0]", "[exit code 0]\n[exit code 0]"])
def test_the_output_itself_comes_back(output: str, ending: Ending) -> None:
    assert without_ending(with_ending(output, ending), ending) == output
