"""One chat on one terminal through changes of size, pastes, keys typed ahead, cut-up sequences and wide characters."""

import contextlib
import itertools
import re
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import EFFECT, TITLE, dialog_of
from tests.faults.entry_points import FaultyChat
from tests.faults.terminals import chat_in
from tests.support.fake_openai import Pause, Raw, call, calls, delta, says, sse

COLS, ROWS = 110, 36
NUMBERS = itertools.count(1)


class Kept:
    """The chat that the tests share, and another one once a test has left it in a state that is not theirs."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._opened = contextlib.ExitStack()
        self._chat: FaultyChat | None = None

    def chat(self) -> FaultyChat:
        """The one that is open, or a new one."""
        if self._chat is None:
            folder = self._folders.mktemp("terminal")
            self._chat = self._opened.enter_context(chat_in(folder, cols=COLS, rows=ROWS))
        return self._chat

    def close(self) -> None:
        """Close it; the next test gets a new one."""
        self._chat = None
        self._opened.close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    chats = Kept(tmp_path_factory)
    yield chats
    chats.close()


@pytest.fixture
def chat(kept: Kept) -> Iterator[FaultyChat]:
    """Each test leaves an empty message at the common size, and a chat in which the next turn works."""
    chat = kept.chat()
    (chat.installation.workspace / "count.txt").unlink(missing_ok=True)
    with contextlib.ExitStack() as unless_well:
        unless_well.callback(kept.close)
        yield chat
        assert chat.installation.count <= 1
        chat.assert_well()
        unless_well.pop_all()


def asks(chat: FaultyChat, *words: str) -> str:
    """The model asks for the effect; what it says when that has been answered."""
    command, done = " ".join([EFFECT, "#", *words]), f"It is done, number {next(NUMBERS)}."
    chat.say("write it down", calls(call("shell_exec", command=command)), says(done))
    return done


def dialog(chat: FaultyChat) -> str:
    return dialog_of(chat.terminal.wait_until(lambda text: "a approve once" in dialog_of(text), what="the dialog"))


def message(chat: FaultyChat) -> str:
    """Return the draft: the line in the frame above the status line."""
    return chat.terminal.screen()[-3].strip("│ ")


def empty(chat: FaultyChat) -> None:
    chat.terminal.press("ctrl+c")
    chat.wait_for("Message .Enter sends")


def resize(chat: FaultyChat, cols: int, rows: int) -> None:
    chat.terminal.resize(cols=cols, rows=rows)


@pytest.mark.more
@pytest.mark.fault("F01")
def test_a_storm_of_sizes_in_the_middle_of_an_answer_loses_nothing(chat: FaultyChat) -> None:
    words = [f"word{number}" for number in range(200)]
    pieces = [piece for word in words for piece in (sse(delta(f"{word} "), done=False), Pause(seconds=0.01))]
    chat.say("many words", Raw(steps=(*pieces, sse(delta(finish="stop")))))
    chat.wait_for("word3")
    for number in range(100):
        resize(chat, 40 + number * 37 % 90, 8 + number * 7 % 40)
        time.sleep(0.01)
    # The last change is the same size again: what the terminal has cut meanwhile has to come back.
    resize(chat, 30, 10)
    resize(chat, COLS, ROWS)
    chat.wait_for(" ".join(words))
    settled = chat.terminal.wait_until(
        lambda text: (
            all(part in text for part in ("▌ many words\n", "word13 word14\n", "word198 word199\n", "Message (Enter"))
            and re.search(r"ctx .*   tokens.*\Z", text) is not None
        ),
        what="the lines of the last size and its last row",
    )
    resize(chat, COLS - 20, ROWS)
    chat.terminal.wait_until(lambda text: text != settled, what="the narrower screen")
    resize(chat, COLS, ROWS)
    chat.terminal.wait_until(lambda text: text == settled, what=f"the screen as it had settled:\n{settled}\n")


@pytest.mark.more
@pytest.mark.fault("F02")
def test_a_small_dialog_is_read_by_scrolling_and_a_smaller_one_approves_nothing(chat: FaultyChat) -> None:
    try:
        resize(chat, 20, 6)
        done = asks(chat, *(f"note{number}" for number in range(20)))
        chat.wait_for("Approve ")
        chat.wait_for("a read on")
        seen = ""
        while "a approve" not in (shown := chat.terminal.text()):
            seen += shown
            chat.terminal.press("down")
            chat.terminal.wait_until(lambda text, shown=shown: text != shown, what="more")  # type: ignore[misc]
        seen += shown
        assert all(f"note{number}" in re.sub(r"\W", "", seen) for number in range(20)), seen
        for cols, rows in ((10, 3), (1, 1), (19, 6), (20, 5)):
            resize(chat, cols, rows)
            if cols > 1:
                chat.wait_for("Make")
            # Long enough for the dialog to take keys again.
            time.sleep(0.7)
            chat.terminal.press("a")
            time.sleep(0.2)
            chat.terminal.press("s")
            time.sleep(0.2)
        assert chat.installation.journal() == []
        resize(chat, 20, 6)
        chat.wait_for("a approve")
        chat.terminal.press("a")
        chat.wait_for(done)
    finally:
        resize(chat, COLS, ROWS)
        chat.wait_for("ctx")
    assert chat.installation.count == 1


@pytest.fixture
def largest(tmp_path: Path) -> Iterator[FaultyChat]:
    """A chat of its own, for this terminal is slow on so large a screen, and the next test would wait for it."""
    with chat_in(tmp_path, cols=400, rows=120) as opened:
        yield opened


@pytest.mark.more
@pytest.mark.fault("F02")
def test_the_dialog_fits_the_largest_screen(largest: FaultyChat) -> None:
    done = asks(largest)
    largest.wait_for("a approve once")
    assert EFFECT in largest.terminal.text()
    largest.terminal.press("d")
    largest.wait_for(done)
    assert largest.installation.count == 0


LINES = "".join(f"line {number}: all of it, and a key: a\n" for number in range(10_000))
MEGABYTE = "It is one long line. " * 50_000
BINARY = bytes(range(256)).decode("latin-1").replace("\x1b", "") * 20 + "\n" * 11


@pytest.mark.some(1)
@pytest.mark.fault("F11")
@pytest.mark.parametrize(
    ("pasted", "shown"),
    [
        (LINES, r"\[pasted 10000 lines, \d+ kB #\d+\]"),
        (MEGABYTE, r"\[pasted 1 line, 1\.[01] MB #\d+\]"),
        (BINARY, r"\[pasted \d+ lines, \d+ kB #\d+\]"),
    ],
    ids=["10000 lines", "1 MB", "binary"],
)
def test_a_large_paste_is_one_item_and_is_sent_whole(chat: FaultyChat, pasted: str, shown: str) -> None:
    chat.terminal.send("look: ")
    chat.terminal.paste(pasted)
    chat.terminal.wait_until(lambda text: re.fullmatch(f"look: {shown}", message(chat)) is not None, what=shown)
    chat.provider.script(says(f"I have looked at {len(pasted)} characters."))
    chat.terminal.press("enter")
    if pasted is not BINARY:
        chat.wait_for("Not sent yet")
        chat.terminal.press("enter")
    chat.wait_for(f"I have looked at {len(pasted)} characters")
    sent = chat.provider.requests[-1].last_user
    printable = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", pasted.replace("\r\n", "\n").replace("\r", "\n"))
    assert sent == f"look: {printable}".strip()


@pytest.mark.some(1)
@pytest.mark.fault("F11")
@pytest.mark.parametrize("marked", [True, False], ids=["bracketed", "unbracketed"])
def test_no_character_of_a_paste_answers_a_dialog(chat: FaultyChat, marked: bool) -> None:
    done = asks(chat)
    dialog(chat)
    text = "a\rs\rA\ry\rr\x13e\r" * 2_000
    chat.terminal.paste(text) if marked else chat.terminal.send(text)
    chat.wait_for("Pasted into the message")
    if not marked:
        # Too short to be told by its length: only that nothing is typed that fast.
        dialog(chat)
        chat.terminal.send("approve")
        chat.terminal.wait_until(lambda text: message(chat).endswith("approve"), what="what was typed in the message")
        chat.wait_for("What you typed is in the message field")
    assert chat.installation.journal() == []
    assert TITLE in dialog(chat)
    chat.terminal.press("d")
    chat.wait_for(done)
    assert chat.installation.count == 0
    assert message(chat).startswith("[pasted 10000 lines") and message(chat).endswith("]" if marked else "approve")
    empty(chat)


def test_what_is_typed_right_after_a_choice_is_the_message(chat: FaultyChat) -> None:
    typed = "read the code of the invoice and tell me where it rounds"
    chat.terminal.press("ctrl+r")
    chat.wait_for("Enter chooses")
    chat.terminal.send(f"coder\r{typed}")
    chat.wait_for(typed)
    assert message(chat) == typed
    empty(chat)


@pytest.mark.more
@pytest.mark.fault("F13")
def test_mouse_reports_in_parts_leave_no_text(chat: FaultyChat) -> None:
    chat.terminal.send("typed")
    report = "\x1b[<35;20;10M"
    for cut in (1, 2, 3, 7, len(report) - 1):
        chat.terminal.trickle(report[:cut], report[cut:])
    chat.terminal.send("!")
    chat.terminal.wait_until(lambda text: message(chat) == "typed!", what="only what was typed")
    empty(chat)


@pytest.mark.some(1)
@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    ("typed", "cells"),
    [("日本語", 6), ("cafe\u0301", 4), ("שלום", 4), ("a😀b", 4), ("Ａx", 3), ("نص", 2)],
    ids=["wide", "combining", "right to left", "emoji", "full width", "arabic"],
)
def test_characters_of_every_width_are_where_they_are_typed(chat: FaultyChat, typed: str, cells: int) -> None:
    chat.terminal.send(typed)
    chat.terminal.wait_until(lambda text: chat.terminal.cursor() == (ROWS - 3, 2 + cells), what="the cursor behind it")
    chat.terminal.send("|")
    shown = unicodedata.normalize("NFC", f"{typed}|")
    chat.terminal.wait_until(lambda text: message(chat).replace(" ", "") == shown, what="the text")
    chat.terminal.press("home", "delete", "end", "enter")
    chat.wait_for(f"You said: {re.escape(shown[1:])}")


HIDDEN = "\u202e\u2066\u200b\u200d\ufeff\u00ad\U000e0041"


@pytest.mark.fault("F14")
def test_hidden_characters_of_a_paste_are_seen_in_the_message_and_sent_as_they_are(chat: FaultyChat) -> None:
    pasted = "".join(f"{character}{letter}" for character, letter in zip(HIDDEN, "abcdefg", strict=True))
    begin = len(chat.terminal.raw)
    chat.terminal.paste(f"say {pasted}!")
    chat.terminal.wait_until(
        lambda text: message(chat) == "say \ufffda\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffdg!", what="signs"
    )
    chat.terminal.wait_until(lambda text: chat.terminal.cursor() == (ROWS - 3, 21), what="the cursor behind them")
    chat.terminal.press("backspace")
    chat.terminal.wait_until(lambda text: message(chat).endswith("\ufffdg"), what="one character less")
    chat.terminal.press("enter")
    chat.wait_for("You said: say")
    written = chat.terminal.raw[begin:].decode(errors="ignore")
    assert not set(HIDDEN) & set(written), "nothing hidden reaches the terminal"
    assert chat.provider.requests[-1].last_user == f"say {pasted}"


@pytest.mark.fault("F14")
def test_emoji_of_several_parts_are_whole_and_shift_nothing(chat: FaultyChat) -> None:
    family, couple, heart = "👩\u200d👩\u200d👧", "👩🏽\u200d❤\ufe0f\u200d👨", "❤\ufe0f"
    begin = len(chat.terminal.raw)
    chat.say("draw them", says(f"a {family}|b {couple}|c {heart}|end\n\n`{family}`"))
    chat.wait_for("<U.200D>👩<U.200D>👧")
    (row,) = (line for line in chat.terminal.cells() if "|end" in "".join(cell.text for cell in line))
    shown = {at: cell.text for at, cell in enumerate(row)}
    assert [shown[at] for at in (2, 6, 7, 11, 12, 16, 17)] == ["a", "|", "b", "|", "c", "|", "e"], shown
    written = chat.terminal.raw[begin:].decode(errors="ignore")
    assert family in written and couple in written and heart in written
