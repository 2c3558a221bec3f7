"""Replies that come in pieces of any size while the user types, scrolls and resizes: none of it is lost."""

import random
import time
from collections.abc import Callable

import pytest

from tests.e2e.installation import Installation
from tests.support.emulator import Cell
from tests.support.fake_openai import Pause, Raw, Reply, SeenRequest, Step, delta, sse
from tests.support.terminal import Terminal

COLS, ROWS = 90, 26
GRUVBOX = "282828"
"""The background of the theme."""
STREAMS, ACTIONS = 4, 12
WORDS = "each role is read from a small file \u2014 na\u00efve \u6f22\u5b57 \u2705 **bold** *it* `code(1)` [link](http://x/1)".split()
KEYS = {
    "page up": "\x1b[5~",
    "page down": "\x1b[6~",
    "start": "\x1b[1;5H",
    "end": "\x1b[1;5F",
    "wheel up": "\x1b[<64;20;10M" * 3,
    "wheel down": "\x1b[<65;20;10M" * 2,
    "select": "\x1b[1;5A",
    "type": "abc d",
    "delete": "\x7f\x7f",
    "theme": "\x15/theme nord\r",
    "theme again": "\x15/theme gruvbox\r",
}


def block(chance: random.Random) -> str:
    line = " ".join(chance.choices(WORDS, k=chance.randint(1, 30)))
    kinds: list[Callable[[], str]] = [
        lambda: line,
        lambda: "\n".join(f"- {line[:50]} {number}" for number in range(chance.randint(1, 6))),
        lambda: "```python\n" + "\n".join(f"x{n} = f({n})" for n in range(chance.randint(1, 80))) + "\n```",
        lambda: "| a | b |\n|---|---|\n" + "\n".join(f"| {n} | \u6f22 |" for n in range(chance.randint(1, 9))),
        lambda: f"## {line[:40]}",
    ]
    return chance.choice(kinds)()


def reply(chance: random.Random, ident: str, *, at_once: bool) -> Reply:
    """Return a reply that ends in `ident`, cut at any byte, with pauses of up to 40 ms and comments between events."""
    text = "\n\n".join([*(block(chance) for _ in range(chance.randint(3, 25))), ident])
    size = chance.choice((2, 9, 60))
    events = [sse(delta(text[at : at + size]), done=False) for at in range(0, len(text), size)]
    with_comments = (event + (b": alive\n\n" if chance.random() < 0.1 else b"") for event in events)
    body = b"".join(with_comments) + sse(delta(finish="stop"), done=chance.random() < 0.8)
    if at_once:
        lines = (
            sse(delta(f"Line {number} of many. {number * 'x '}"[:90] + "\n\n"), done=False) for number in range(3_000)
        )
        return Raw(steps=(b"".join(lines) + body,))
    steps, at, most = list[Step](), 0, max(2, len(body) // 40)
    while at < len(body):
        part = body[at : at + chance.randint(1, most)]
        at += len(part)
        bit_by_bit = len(part) < 400 and chance.random() < 0.2
        steps += [part[n : n + 1] for n in range(len(part))] if bit_by_bit else [part]
        steps.append(Pause(seconds=chance.choice((0, 0.005, 0.0099, 0.02, 0.0201, chance.uniform(0, 0.04)))))
    return Raw(steps=tuple(steps))


def interfere(terminal: Terminal, chance: random.Random) -> None:
    """Press keys, scroll and resize while the reply streams. Then return to the end of the transcript."""
    for _ in range(ACTIONS):
        time.sleep(chance.uniform(0, 0.12))
        if chance.random() < 0.2:
            terminal.resize(cols=chance.randint(45, 120), rows=chance.randint(14, 40))
        else:
            terminal.send(KEYS[chance.choice(list(KEYS))])
    terminal.resize(cols=COLS, rows=ROWS)
    # Enter in a burst of keys is a line break, so the message field may hold several lines.
    terminal.send("\x15\x7f" * ACTIONS + "/theme gruvbox")
    terminal.wait_for("│ /theme gruvbox ")
    terminal.press("enter")
    terminal.wait_until(lambda _: GRUVBOX in {cell.background for cell in terminal.cells()[-2]}, what="the last theme")
    terminal.send(KEYS["end"])


def paint_again(terminal: Terminal) -> None:
    written = len(terminal.raw)
    terminal.resize(cols=COLS + 1, rows=ROWS)
    terminal.resize(cols=COLS, rows=ROWS)
    terminal.wait_until(lambda _: len(terminal.raw) > written + 2_000, what="the screen to be painted again")


def without_scroll_bar(terminal: Terminal) -> list[list[Cell]]:
    """Return the cells without the scroll bar, which is approximate: blocks out of view have estimated heights."""
    return [row[:-1] for row in terminal.cells()]


@pytest.mark.more
def test_a_stream_is_shown_to_its_end_whatever_comes_between(installation: Installation) -> None:
    chance = random.Random(1)

    def answer(request: SeenRequest) -> Reply:
        ident = f"END-{request.last_user.split()[1]}"
        return reply(random.Random(ident), ident, at_once=ident.endswith("-3"))

    with installation.chat(answer, cols=COLS, rows=ROWS) as (_, terminal):
        for number in range(STREAMS):
            terminal.say(f"stream {number}")
            if number:
                interfere(terminal, chance)
            terminal.wait_for(f"END-{number}")
            terminal.wait_for("tokens unknown")  # Shown in a window of this width while no turn runs.
            terminal.wait_quiet(1)
            shown = without_scroll_bar(terminal)
            paint_again(terminal)
            terminal.wait_until(
                lambda _, shown=shown: without_scroll_bar(terminal) == shown,  # type: ignore[misc]
                what=f"the screen of stream {number} again:\n{terminal.text()}\n",
            )
