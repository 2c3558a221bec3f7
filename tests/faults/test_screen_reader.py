"""Everything that the dialog shows, as lines from top to bottom: the entry point for a screen reader (F15)."""

import re

import pytest

from tests.e2e.installation import EFFECT, dialog_of
from tests.faults.entry_points import FaultyChat, Pipe
from tests.support.fake_openai import call, calls, says

SAYS = "I would like to write it down, because you asked for it."


@pytest.mark.more
@pytest.mark.fault("F15")
def test_what_waits_is_read_and_answered_line_by_line_while_the_chat_is_open(pipe: Pipe, chat: FaultyChat) -> None:
    command = f"{EFFECT}\nprintf 'a\\tb' # {'long ' * 60}\u202eend"
    chat.say("write it down", calls(call("shell_exec", command=command), text=SAYS), says("It is written."))
    chat.wait_for("a approve once")
    dialog = dialog_of(chat.terminal.text())
    listed = pipe.run("approvals", "list").out
    (call_id,) = re.findall(r"^(\S+\.1\.1\.1) ", listed, re.MULTILINE)
    read = pipe.run("approvals", "show", call_id)
    # Nothing places a cursor, draws a frame or stands beside something else; every line says what it is about.
    assert re.fullmatch(r"[\x20-\x7e\n]*", read.out)
    for said in (
        f"  {EFFECT}\n",
        "<U+202E>end\n",
        "long " * 60,
        SAYS,
        "Asked by:     coder (local)",
        "Tool:         shell_exec",
    ):
        assert said in read.out
    labels = "careful|not clear|runs in|writes|sandbox|asks because"
    facts = re.findall(rf"(?ms)^({labels}) +(\S.*?)(?=\n(?:{labels}) |\n\n)", dialog)
    shown = [fact for fact in facts if fact[0] in ("runs in", "sandbox", "asks because")]
    assert len(shown) == 3
    for label, value in shown:
        # The dialog cuts what does not fit in a row; its details have all of it.
        value, cut, _ = " ".join(value.split()).partition("…")
        value = value.rstrip()  # a part that is left out may follow a blank
        end = ".+$" if cut else "$"
        assert re.search(rf"(?mi)^{label}: +{re.escape(value)}{end}", read.out), f"{label} is not told"

    assert pipe.run("approvals", "approve", call_id).code == 0
    chat.wait_for("It is written")
    assert chat.installation.count == 1
    chat.assert_well()
