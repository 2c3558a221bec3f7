"""Random bytes, keys, mouse reports, pastes and sizes, without a pause in which a dialog would take a key."""

import itertools
import random
import time
from pathlib import Path

import pytest

from tests.e2e.installation import EFFECT
from tests.faults.entry_points import FaultyChat
from tests.faults.terminals import chat_in
from tests.support.fake_openai import Completion, SeenRequest, call, calls, says

LEAVING = {0x03, 0x04, 0x10, 0x11, 0x1A}
"""ctrl+c, ctrl+d, ctrl+q and ctrl+z do what they are for, and ctrl+p offers to quit."""
KEYS = ["\r", "\n", "\t", "\x1b", "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~", "\x1bOP", "\x1b[1;5A", "\x1b[1;5B", "\x7f"]
TYPED: list[str] = [*"asrdDAeyumw /@!R", "/role ", "/help", "/sessions\r", "/new\r", "@no", "approve", "é", "日本"]
CONTROLS = ["\x07", "\x12", "\x14", "\x0c", "\x0f", "\x13", "\x1f", "\x19"]

EMPTY = "Message (Enter sends"


def noise(chance: random.Random, most: int) -> bytes:
    return bytes(chance.randrange(256) for _ in range(chance.randrange(1, most)))


def anything(chance: random.Random, *, cols: int, rows: int) -> bytes:
    """One thing that a terminal may send, or that nothing sane would."""
    match chance.randrange(7):
        case 0:
            return bytes(byte for byte in noise(chance, 40) if byte not in LEAVING)
        case 1:
            return chance.choice(KEYS).encode()
        case 2:
            return chance.choice(TYPED).encode()
        case 3:
            return chance.choice(CONTROLS).encode()
        case 4:
            button, x, y = chance.choice([0, 2, 35, 64, 65]), chance.randrange(cols + 3), chance.randrange(rows + 3)
            return f"\x1b[<{button};{x};{y}{chance.choice('Mm')}".encode()
        case 5:
            return b"\x1b[200~" + noise(chance, 200).replace(b"\x1b", b"") + b"\x1b[201~"
        case _:
            whole = chance.choice([*KEYS[4:], "\x1b[<35;20;10M", "\x1b[200~x\x1b[201~", "\x1b]11;rgb:0/0/0\x1b\\"])
            return whole[: chance.randrange(1, len(whole) + 1)].encode()


def model(request: SeenRequest) -> Completion:
    """Asks for the effect whatever is said."""
    if request.messages[-1]["role"] == "tool":
        return says(f"You said: {request.last_user}")
    return calls(call("shell_exec", command=EFFECT))


def play(chat: FaultyChat, seed: int, count: int) -> None:
    chance, cols, rows = random.Random(seed), 110, 36
    chat.provider.script(*[model] * (3 * count))
    for _ in range(count):
        chat.terminal._write(anything(chance, cols=cols, rows=rows))
        # Sent in one go it would all be one paste; a longer pause would let a dialog take a key.
        time.sleep(chance.random() * 0.03)
        if chance.random() < 0.05:
            cols, rows = chance.randrange(1, 130), chance.randrange(1, 45)
            chat.terminal.resize(cols=cols, rows=rows)
    chat.terminal.resize(cols=110, rows=36)


def settle(chat: FaultyChat) -> None:
    """Back to an empty message in the chat, whatever has been typed and is open."""
    # Whatever sequence or paste was begun last ends here; its rest is text.
    chat.terminal.send("\x1b[201~")
    # Each message that is queued asks again once the turn before it is stopped.
    for key in itertools.islice(itertools.cycle(("escape", "escape", "ctrl+c", *["escape"] * 6, "ctrl+c")), 200):
        if EMPTY in chat.terminal.text():
            break
        chat.terminal.press(key)
        if key == "ctrl+c":
            # It stops what runs before it clears the text, and twice within two seconds it quits.
            time.sleep(2.1)
    chat.terminal.wait_for(EMPTY)


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 60), *(pytest.param(seed, 3000, marks=pytest.mark.kill) for seed in range(2, 12))]
)
def test_nothing_that_is_sent_ends_the_app_or_approves_a_call(tmp_path: Path, seed: int, count: int) -> None:
    with chat_in(tmp_path) as chat:
        play(chat, seed, count)
        settle(chat)
        assert chat.installation.count == 0
        written = chat.terminal.raw.decode(errors="replace")
        assert "Traceback" not in written and "Internal error" not in written
        assert not any(0x80 <= ord(char) < 0xA0 for char in written)
        chat.terminal.press("ctrl+q")
        assert chat.terminal.wait_exit() == 0
        assert chat.terminal.left_on() == []
