"""Faults B: streams of many small pieces, of one huge piece, and without an end in sight. Keys work all the while, no
character is lost, and the memory that a reply takes stays a small multiple of its text.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatops.domain.messages import AssistantMessage
from tests.faults.entry_points import FaultyChat
from tests.support.fake_openai import Raw, Step, Wait, delta, sse

MB = 1024 * 1024
LONG = 600
"""Seconds for what takes its time."""
END = sse(delta(" the end.", finish="stop"))


def memory(chat: FaultyChat, what: str) -> int:
    """Bytes that the chat takes now (VmRSS) or took at most (VmHWM)."""
    lines = Path(f"/proc/{chat.terminal.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:"))


def stored(chat: FaultyChat) -> str:
    """The reply that ends in ` the end.`, as it is stored once it is over; it is shown a moment before that."""
    texts = [""]

    def is_there(_: str) -> bool:
        with chat.installation.store() as store:
            messages = store.history(chat.installation.session().id)
        texts[0] = next(message.text for message in reversed(messages) if isinstance(message, AssistantMessage))
        return texts[0].endswith(" the end.")

    chat.terminal.wait_until(is_there, what="the reply to be stored", timeout=LONG)
    return texts[0]


def words(number: int, *, together: int) -> Iterator[Step]:
    """So many words in deltas of their own, in paragraphs of 15, so many deltas in one write."""
    for start in range(0, number, together):
        told = (
            delta(f"word{at}{'. ' if at % 15 else '.'}" if at % 15 else "\n\n") for at in range(start, start + together)
        )
        yield sse(*told, done=False)


@pytest.mark.more
@pytest.mark.fault("B17")
def test_ten_thousand_small_pieces_are_all_there_and_keys_work_meanwhile(chat: FaultyChat) -> None:
    chat.assert_well()
    before = memory(chat, "VmRSS")
    letters = "".join("\n\n" if at % 500 == 499 else chr(ord("a") + at % 26) for at in range(10_000))
    pieces = [sse(delta(letter), done=False) for letter in letters]
    halfway = threading.Event()
    chat.say("letter by letter", Raw(steps=(*pieces[:5000], Wait(event=halfway), *pieces[5000:], END)))
    # Not what was said before it: by the time anybody looks that may have left the screen.
    chat.wait_for("[a-z]{20}")
    chat.terminal.send("typed while it streams")
    chat.terminal.wait_for("typed while it streams")
    halfway.set()
    chat.wait_for(r"the end\.")
    assert stored(chat) == f"{letters} the end."
    assert memory(chat, "VmHWM") - before < 60 * MB
    chat.terminal.press("ctrl+c")
    chat.terminal.wait_gone("typed while it streams")
    chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("B17")
def test_one_piece_of_five_megabytes_is_all_there_and_keys_work_afterwards(chat: FaultyChat) -> None:
    chat.assert_well()
    before = memory(chat, "VmRSS")
    huge = "many words " * (5 * MB // 11)
    chat.say("all at once", Raw(steps=(sse(delta(huge), done=False), END)))
    chat.wait_for(r"the end\.")
    assert stored(chat) == f"{huge} the end."
    assert memory(chat, "VmHWM") - before < 30 * len(huge)
    chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("B19")
def test_a_very_long_reply_is_stored_whole_in_bounded_memory(chat: FaultyChat) -> None:
    _long(chat, 50_000)


@pytest.mark.more
@pytest.mark.fault("B19")
def test_a_reply_without_end_is_stopped_with_a_sentence(chat: FaultyChat) -> None:
    chat.assert_well()
    chat.say("never stop", Raw(steps=(*words(140_000, together=500), END)))
    chat.terminal.wait_for("more than 131,072 tokens in one reply", timeout=LONG)
    chat.assert_well()


def _long(chat: FaultyChat, number: int) -> None:
    chat.assert_well()
    before = memory(chat, "VmRSS")
    chat.say("go on and on", Raw(steps=(*words(number, together=50), END)))
    chat.terminal.wait_for("the end.", timeout=LONG)
    text = stored(chat)
    assert text.startswith("\n\nword1. ") and text.endswith(f"word{number - 1}.  the end.")
    assert text.count("word") == number - -(-number // 15)
    # The text is there some times over; drawn are the lines around the view only.
    assert memory(chat, "VmHWM") - before < 50 * MB + 14 * len(text)
    chat.assert_well()
