"""Output streams: without terminal controls in a pipe, harmless on a terminal, quiet when the reader has gone."""

import io
import os
import subprocess
import sys

from chatops.headless.screen import Screen
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
