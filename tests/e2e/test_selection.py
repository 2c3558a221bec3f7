"""Text selected with the mouse stays readable, and ctrl+c copies it and does nothing else."""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.installation import ChatTerminal, Installation
from tests.support.emulator import Cell
from tests.support.fake_openai import says

ANSWER = "The invoice is due on Friday."


@contextmanager
def answered(installation: Installation, **env: str) -> Iterator[ChatTerminal]:
    with installation.chat(lambda _: says(ANSWER), env=env) as (_, terminal):
        terminal.say("When is it due?")
        terminal.wait_for(ANSWER)
        yield terminal


def place(terminal: ChatTerminal, words: str) -> tuple[int, int]:
    """Row and column of `words` on the screen, counted from 0."""
    rows = terminal.screen()
    (row,) = (number for number, line in enumerate(rows) if words in line)
    return row, rows[row].index(words)


def drag(terminal: ChatTerminal, words: str) -> None:
    """Select `words` with the mouse; returns when the selection is drawn."""
    row, column = place(terminal, words)
    before = cells(terminal, words)
    first, last = f"{column + 1};{row + 1}", f"{column + len(words)};{row + 1}"
    terminal.send(f"\x1b[<0;{first}M\x1b[<32;{last}M\x1b[<0;{last}m")
    terminal.wait_until(lambda _: cells(terminal, words) != before, what="the selection")


def cells(terminal: ChatTerminal, words: str) -> list[Cell]:
    row, column = place(terminal, words)
    return terminal.cells()[row][column : column + len(words)]


def copied(terminal: ChatTerminal) -> list[str]:
    """Return the text that the program has put on the terminal's clipboard (OSC 52)."""
    found = re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", terminal.raw)
    return [base64.b64decode(text).decode() for text in found]


def wait_copied(terminal: ChatTerminal, *texts: str) -> None:
    terminal.wait_until(lambda _: copied(terminal) == [*texts], what=f"{texts} on the clipboard")


@pytest.mark.some(1)
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=["colours", "no colours"])
def test_selected_text_stays_readable(installation: Installation, env: dict[str, str]) -> None:
    with answered(installation, **env) as terminal:
        drag(terminal, "invoice")
        assert all(cell.marked or cell.foreground != cell.background for cell in cells(terminal, "invoice"))
        assert copied(terminal) == []


def test_ctrl_c_copies_a_selection_and_neither_clears_nor_stops_nor_quits(installation: Installation) -> None:
    with answered(installation) as terminal:
        terminal.send("half a thought")
        terminal.wait_for("half a thought")
        drag(terminal, "invoice is due")
        terminal.press("ctrl+c")
        wait_copied(terminal, "invoice is due")
        terminal.wait_for("Copied")
        terminal.press("ctrl+c")
        wait_copied(terminal, "invoice is due", "invoice is due")
        assert "half a thought" in terminal.text()
        assert "again quits" not in terminal.text()


@pytest.mark.more
def test_a_press_that_copied_is_not_the_first_of_two_that_quit(installation: Installation) -> None:
    with answered(installation) as terminal:
        drag(terminal, "Friday")
        terminal.press("ctrl+c")
        wait_copied(terminal, "Friday")
        before = cells(terminal, "Friday")
        terminal.press("escape")
        terminal.wait_until(lambda _: cells(terminal, "Friday") != before, what="the selection to go")
        terminal.press("ctrl+c")
        terminal.wait_for("ctrl+c again quits")
        terminal.press("ctrl+c")
        assert terminal.wait_exit() == 0
        assert copied(terminal) == ["Friday"]


@pytest.mark.more
def test_typing_drops_the_selection_so_that_ctrl_c_clears_the_text_again(installation: Installation) -> None:
    with answered(installation) as terminal:
        drag(terminal, "Friday")
        terminal.send("x")
        terminal.wait_for(re.compile(r"^│ x +│$", re.MULTILINE))
        terminal.press("ctrl+c")
        terminal.wait_for("The text is in the history")
        assert copied(terminal) == []
