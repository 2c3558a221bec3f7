"""What models and tools say, on a real terminal: no sequence of theirs reaches it, and the chat goes on."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.faults.terminals import chat_in
from tests.fuzz.bounded import hold
from tests.support.fake_openai import call, calls, says

SEQUENCE = re.compile(
    r"\x1b\[([<-?]?)[0-9;:]*([ -/]*[@-~])|\x1b([\]PX^_])([^\x07\x1b]*)(?:\x07|\x1b\\)|\x1b([ -/]*[0-OQ-WYZ`-~])"
)
SEQUENCES = [
    *("\x1b]0;EVIL\x07", "\x1b]2;EVIL\x1b\\", "\x1b]52;c;RVZJTA==\x07", "\x1b]8;;file:///EVIL\x1b\\", "\x1b[77;77H"),
    *("\x1b[6n", "\x1b[0c", "\x1b[21t", "\x1bc", "\x1b[201~", "\x1b(0", "\x1b[77J", "\x1b[?1049;77l", "\x1b[?2004;77l"),
    *('\x1bP$q"p\x1b\\', "\x1b_Ga=T;EVIL\x1b\\", "\x1b^EVIL\x1b\\", "\x9b2J", "\x9d0;EVIL\x9c", "\x90EVIL\x9c"),
]
PIECES = [
    *SEQUENCES,
    *("\x1b", "\x1b[", "\x1b]0;", "\x07", "\x08" * 9, "\r", "\x0b", "\x0c", "\x0e", "\x0f", "\x7f", "\x00", "\x85"),
    *("\u2028", "\u202e", "\u2066", "\u200b", "\ufeff", "\U0010eeee\u0305\u0305", "a" + "\u0301" * 40, "\U000e0041"),
    *(
        "\u061c",
        "é",
        "日本",
        "👩\u200d👧",
        "[red]",
        "[/]",
        "[@click=app.quit]x[/]",
        "```",
        "```python\n",
        "<!--",
        "<b>",
    ),
    *(
        "| a | b |\n|---|---|\n",
        "[a](file:///b)",
        "![a](http://b/)",
        "$$",
        "\\",
        "\n",
        "\n\n",
        "    ",
        "- ",
        "> ",
        "# ",
    ),
    *("***", "\t", "x" * 300, "EVIL"),
]
OWN = {("", "7"), ("", "8"), ("", "C")}
"""Sequences of chatops itself: it moves the cursor behind a character that terminals draw in different widths."""
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), min_size=1, max_size=12).map("".join)
EXAMPLES = st.tuples(st.sampled_from(["answer", "file", "name", "error"]), TEXTS, st.integers(1, 40))


def kinds(written: str) -> set[tuple[str, str]]:
    """Return the kinds of control sequences in what was written to a terminal, and single control characters."""
    found = {(one[3] or one[1] or "", one[2] or one[5] or "") for one in SEQUENCE.finditer(written)}
    rest = SEQUENCE.sub("", written)
    return found | {("", char) for char in rest if char < " " or "\x7f" <= char < "\xa0"}


@pytest.mark.more
def test_no_sequence_of_a_model_or_a_tool_reaches_the_terminal(tmp_path: Path) -> None:
    number, read = itertools.count(), 0
    with chat_in(tmp_path) as chat:

        def written(kind: str, text: str, pieces: int) -> str:
            """Play a turn, and return what the terminal has got since the last one, in whole sequences."""
            nonlocal read
            end = f"END{next(number)}."
            answer = says(f"{text}\n\n{end}", pieces=pieces)
            if kind == "file":
                (chat.installation.workspace / "a.txt").write_text(text, "utf-8", "replace", "")
                chat.provider.script(calls(call("file_read", path="a.txt")), replace(answer, text=end))
            elif kind == "name":
                chat.provider.script(calls(call("file_read", path=text), text=text), replace(answer, text=end))
            elif kind == "error":
                chat.provider.script(calls(call(text[:60], path=text)), replace(answer, text=end))
            else:
                chat.provider.script(answer)
            chat.terminal.say("go on ")
            chat.terminal.wait_for(end)
            chat.terminal.wait_for("Message (Enter sends")
            raw = chat.terminal.raw[read:]
            last = raw.rfind(b"\x1b")
            if last >= 0 and SEQUENCE.match(raw[last:].decode("utf-8", "replace")) is None:
                raw = raw[:last]
            read += len(raw)
            return raw.decode("utf-8", "replace")

        title = chat.terminal.title
        plain = [written(kind, "plain", 3) for kind in ("answer", "file", "name", "error")]
        known = OWN.union(*map(kinds, plain))

        def check(example: tuple[str, str, int]) -> None:
            new = written(*example)
            assert kinds(new) <= known, (example, kinds(new) - known)
            assert not [one for one in SEQUENCES if one in new], example
            assert not re.search("\x1b[]PX^_][^\x07\x1b]*EVIL", new), example
            assert "Traceback" not in new

        hold(check, EXAMPLES, kept=[("answer", "".join(PIECES), 40), ("file", "".join(PIECES), 1)], few=3)
        assert "EVIL" not in title + chat.terminal.title
        chat.terminal.press("ctrl+q")
        assert chat.terminal.wait_exit() == 0
        assert chat.terminal.left_on() == []
