"""Reading what was said before, while more comes: the way back to the end is one key, and sending goes there."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.installation import ChatTerminal, Installation
from tests.support.fake_openai import Raw, Reply, SeenRequest, Step, Wait, call, calls, delta, says, sse

LINES = "\n\n".join(f"Line {number} of the answer." for number in range(60))
GROWING = (
    "# First part",
    " of it\n\nA paragraph ",
    "that grows **and\nends**",
    ".\n\n- one\n- two\n" + "".join(f"  - inner {number}\n" for number in range(8)),
    "\n```python\nfor one in range(3):\n",
    "    print(one)\n```\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "| 3 | 4 |\n\nWide: \u6f22\u5b57 \u2014 and",
    " more.\n" * 3,
    "\n\n\nThe last line",
)
HOME, END, CTRL_HOME, CTRL_END, CTRL_UP = "\x1b[H", "\x1b[F", "\x1b[1;5H", "\x1b[1;5F", "\x1b[1;5A"


class Server:
    """Answers `long` with many lines, `wait` when `goes_on` is set, `read` with a call, the rest by repeating it.

    It answers `grow` with GROWING, and each part ends in its number and comes when the event of it is set.
    """

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.grows = [threading.Event() for _ in GROWING]

    def __call__(self, request: SeenRequest) -> Reply:
        match request.last_user.split()[0]:
            case "long":
                return says(LINES)
            case "wait":
                begun = sse(delta("It has begun. "), done=False)
                return Raw(steps=(begun, Wait(event=self.goes_on), sse(delta("It is over."), delta(finish="stop"))))
            case "grow":
                steps = list[Step]()
                for number, part in enumerate(GROWING):
                    steps += [Wait(event=self.grows[number]), sse(delta(f"{part} p{number}."), done=False)]
                return Raw(steps=(*steps, sse(delta(finish="stop"))))
            case "read" if request.messages[-1]["role"] != "tool":
                return calls(call("file_read", path="note.txt"))
            case _:
                return says(f"You said: {request.last_user}.")


@contextmanager
def opened(installation: Installation, server: Server) -> Iterator[ChatTerminal]:
    with installation.chat(server, cols=80, rows=24) as (_, terminal):
        yield terminal


@pytest.mark.more
def test_sending_shows_the_end_wherever_one_was_reading(installation: Installation) -> None:
    with opened(installation, Server()) as terminal:
        terminal.say("long answer")
        terminal.wait_for("Line 59")
        terminal.send(CTRL_HOME)
        terminal.wait_for("Line 1 ")
        terminal.say("hello")
        terminal.wait_for("You said: hello.")


@pytest.mark.more
def test_what_is_below_the_view_is_named_until_the_end_is_shown(installation: Installation) -> None:
    server = Server()
    with opened(installation, server) as terminal:
        terminal.say("long answer")
        terminal.wait_for("Line 59")
        terminal.say("wait for it")
        terminal.wait_for("It has begun")
        assert "↓" not in terminal.text()
        terminal.send(CTRL_HOME)
        terminal.wait_for("↓ more below")
        server.goes_on.set()
        before = terminal.wait_gone("Esc stops")
        assert "Line 1 " in before and "It is over" not in before, "the view stays"
        terminal.send(CTRL_END)
        terminal.wait_for("It is over.")
        terminal.wait_gone("↓ more below")


@pytest.mark.more
def test_home_and_end_scroll_with_an_empty_message_and_move_the_cursor_in_a_text(installation: Installation) -> None:
    with opened(installation, Server()) as terminal:
        terminal.say("long answer")
        terminal.wait_for("Line 59")
        terminal.send(HOME)
        terminal.wait_for("Line 1 ")
        terminal.send(END)
        terminal.wait_for("Line 59")
        terminal.send("bc")
        terminal.wait_for("bc")
        terminal.send(HOME)
        terminal.wait_until(lambda _: terminal.cursor() == (21, 2), what="the cursor at the start")
        terminal.send("a")
        terminal.wait_for("abc")
        assert "Line 59" in terminal.text()
        terminal.send(CTRL_HOME)
        terminal.wait_for("Line 1 ")
        terminal.send(CTRL_END)
        assert "abc" in terminal.wait_for("Line 59"), "with a text too"


def test_selecting_starts_from_the_newest_block(installation: Installation) -> None:
    with opened(installation, Server()) as terminal:
        terminal.say("read one")
        terminal.wait_for("You said: read one.")
        terminal.send(CTRL_UP)
        terminal.wait_for("❯ You said: read one.")
        terminal.say("long answer")
        terminal.wait_for("Line 59")
        terminal.say("read two")
        shown = terminal.wait_for("You said: read two.")
        assert "read one" not in shown
        terminal.send(CTRL_UP)
        terminal.wait_for("❯ You said: read two.")
        terminal.send(CTRL_UP)
        near = ("❯ ✓ Read", "You said: read two.")
        terminal.wait_until(lambda text: all(part in text for part in near), what="the new card, not the old one above")


def test_a_screen_painted_bit_by_bit_is_the_one_painted_at_once(installation: Installation) -> None:
    server = Server()
    with opened(installation, server) as terminal:
        terminal.say("long answer")
        terminal.wait_for("Line 59")
        terminal.say("grow")
        for number, event in enumerate(server.grows):
            event.set()
            terminal.wait_for(f"p{number}.")
            terminal.send(str(number))
        terminal.wait_gone("Esc stops")
        terminal.wait_for("0123456789")
        terminal.wait_quiet(0.3)
        bit_by_bit, written = terminal.cells(), len(terminal.raw)
        terminal.resize(cols=81, rows=24)
        terminal.resize(cols=80, rows=24)
        terminal.wait_until(lambda _: len(terminal.raw) > written + 2_000, what="the screen to be painted again")
        terminal.wait_quiet(0.3)
        assert bit_by_bit == terminal.cells()
