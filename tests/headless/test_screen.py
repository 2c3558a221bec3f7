"""Output streams: without terminal controls in a pipe, harmless on a terminal, quiet when the reader has gone."""

import io
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.events import CallProposed, Published, RoundStarted
from chatops.domain.progress import Progress
from chatops.headless.formats import OutputFormat, reporter
from chatops.headless.screen import Screen, table
from tests.support.cases import for_each
from tests.support.turns import CALL, ROUND, TURN
from tests.support.waiting import PATIENCE


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_never_gets_a_control_character_from_an_answer() -> None:
    out = Terminal()
    Screen(out=out, err=io.StringIO()).answer("a\x1b]0;title\x07b\nc")
    assert out.getvalue() == "a␛]0;title␇b\nc\n"


def test_a_pipe_gets_the_answer_without_what_only_a_terminal_obeys() -> None:
    out = io.StringIO()
    Screen(out=out, err=io.StringIO()).answer("a\x1b[1mb\x07\x9b2J\x7f over\rwritten\n")
    assert out.getvalue() == "a␛[1mb␇<U+009B>2J␡ over␍written\n"


def test_a_table_fits_the_terminal_unless_its_last_column_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("id" * 8, "/home/ana/" + "é" * 40, "A title " * 5, "waits for approval")]
    monkeypatch.setattr(sys, "stdout", Terminal())
    lines = table(("ID", "FOLDER", "TITLE", "ABOUT"), rows).split("\n")
    assert max(map(len, lines)) <= 79 and lines[0].endswith("ABOUT") and lines[1].count("…") == 2
    assert lines[1].startswith("id" * 8) and lines[1].endswith("  waits for approval")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert "é" * 40 in table(("ID", "FOLDER", "TITLE", "ABOUT"), rows)


def test_columns_without_room_are_lines_of_their_own_and_the_last_one_breaks_between_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = ("ID", "ROLE", "SINCE", "STATE", "FOLDER", "TOOL", "ARGUMENTS")
    row = (
        "id" * 12,
        "coder",
        "2026-11-30 09:15:00",
        "pending",
        f"/srv/{'x' * 20}",
        "shell_exec",
        "echo" + " word" * 20,
    )
    monkeypatch.setattr(sys, "stdout", Terminal())
    head, head_2, first, *further = table(header, [row, (*row[:4], "", "", "")]).split("\n")
    last = further.pop()
    assert (head.split(), head_2.split()) == (list(header[:4]), list(header[4:]))
    assert last == first and first.endswith("pending") and further[0].startswith("    /srv/x")
    at = head_2.index("ARGUMENTS")
    assert max(map(len, further)) <= 79 and {one[:at].strip() for one in further[1:]} == {""}
    assert " ".join(one[at:] for one in further) == row[-1]


def test_a_text_for_approval_is_broken_between_words_and_keeps_all_of_them() -> None:
    out, text = Terminal(), f"Command:      {'longer ' * 30}{'x' * 100}"
    Screen(out=out, err=out).exactly(text)
    first, *further = out.getvalue().rstrip("\n").split("\n")
    assert first.endswith("longer ") and all(one.startswith("    » ") for one in further)
    assert first + "".join(one.removeprefix("    » ") for one in further) == text


def test_a_pipe_gets_everything_else_as_it_is() -> None:
    text = "tab\t crlf\r\n \u202e \u200d 👩\u200d👧 é\u0301 \u00a0 trailing  \n"
    out = io.StringIO(newline="")
    Screen(out=out, err=io.StringIO()).answer(text)
    assert out.getvalue() == text


def test_remarks_are_sanitised_in_any_case() -> None:
    err = io.StringIO()
    Screen(out=io.StringIO(), err=err).say("a\x1bb")
    assert err.getvalue() == "a␛b\n"


def test_what_the_stream_cannot_encode_is_escaped_and_no_error() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    Screen(out=out, err=io.StringIO()).answer("é\ud800")
    assert raw.getvalue() == b"\\xe9\\ud800\n"


def test_a_closed_pipe_ends_output_without_noise_and_without_ending_the_program() -> None:
    script = (
        "import sys\n"
        "from chatops.headless.screen import Screen\n"
        "screen = Screen(out=sys.stdout, err=sys.stderr)\n"
        "for number in range(100000): screen.line('x' * 100)\n"
        "screen.say('came to the end')\n"
    )
    reading, writing = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    _, err = process.communicate(timeout=PATIENCE)
    assert err == "came to the end\n"
    assert process.returncode == 0


PROGRESS = Progress(what="importing", done=3, total=4, unit="session", since=-60.0, counted_since=-60.0)


@contextmanager
def on_a_terminal(encoding: str = "utf-8") -> Iterator[tuple[Screen, Callable[[str], str]]]:
    """A screen whose messages go to a terminal, and a function that returns what came until a text was there."""
    reading, slave = os.openpty()
    came = ""

    def until(text: str) -> str:
        nonlocal came
        end = time.monotonic() + PATIENCE
        while text not in came and time.monotonic() < end:
            if select.select([reading], [], [], 0.05)[0]:
                came += os.read(reading, 4096).decode(encoding)
        head, found, came = came.partition(text)
        assert found, head
        return head + found

    with open(slave, "w", encoding=encoding) as err:
        yield Screen(out=io.StringIO(), err=err), until
    os.close(reading)


def test_progress_is_one_line_of_a_terminal_that_messages_push_down_and_that_is_erased() -> None:
    with on_a_terminal() as (screen, until):
        screen.show_progress(PROGRESS)
        shown = until(" left").rpartition("\r")[2]
        assert shown.startswith("importing  ██████████████─────  3 of 4 sessions · about "), shown
        screen.say("one is there")
        assert until("one is there\r\n").endswith(f"\r{' ' * len(shown)}\rone is there\r\n")
        until("sessions")
        screen.show_progress(None)
        assert until(" \r").rstrip("\r").endswith(" " * 20)
        screen.say("done")
        assert until("done\r\n") == "done\r\n"


@pytest.mark.parametrize(("words", "said"), [(("doctor",), "Checking what is set up"), (("-p", "hello"), "Starting")])
def test_a_terminal_says_at_once_what_starts_and_keeps_none_of_it(
    words: tuple[str, ...], said: str, chatops_home: Path
) -> None:
    reading, slave = os.openpty()
    command = [sys.executable, "-X", "importtime", "-m", "chatops", *words]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave):
        os.close(slave)
        came = b""
        with suppress(OSError):  # its end
            while True:
                came += os.read(reading, 65_536)
    os.close(reading)
    text = came.decode()
    assert text.index(f"\r{said}") < text.index("chatops.wiring.app\r\n")
    assert f"\r{' ' * len(said)}\r" in text.partition(said)[2]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr.count(said) == 0


@for_each("output", OutputFormat)
def test_a_terminal_says_that_the_model_is_awaited_until_its_reply_is_there(output: OutputFormat) -> None:
    with on_a_terminal() as (screen, until):
        printer = reporter(output, screen)
        printer.event(Published(at=0, event=RoundStarted(id=ROUND, parent_id=TURN, model="local")))
        until("waiting for the model")
        printer.event(Published(at=0, event=CallProposed(id=CALL, parent_id=ROUND, tool="x", arguments="{}")))
        until(" \r")
        screen.say("done")
        assert until("done\r\n") == "done\r\n"


def test_without_utf_8_or_colours_only_words_are_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_a_terminal("ascii") as (screen, until):
        screen.show_progress(PROGRESS)
        assert until(" left").startswith("\rimporting  3 of 4 sessions, ")
    monkeypatch.setenv("NO_COLOR", "1")
    with on_a_terminal() as (screen, until):
        screen.show_progress(PROGRESS)
        assert until(" left").startswith("\rimporting  3 of 4 sessions, ")


def test_progress_writes_nothing_where_there_is_no_terminal_and_before_work_takes_long() -> None:
    err = io.StringIO()
    screen = Screen(out=io.StringIO(), err=err)
    screen.show_progress(PROGRESS)
    screen.say("still here")
    assert err.getvalue() == "still here\n"
    with on_a_terminal() as (screen, until):
        screen.show_progress(replace(PROGRESS, since=time.monotonic() + 1_000))
        screen.say("at once")
        assert until("\r\n") == "at once\r\n"
