"""Notifications of a terminal that is not focused: when they are written, and that nothing hostile is in them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from chatops.tui.terminal import Attention

BELL = "\x07"
CALL = {"d1": "Approve Shell?"}


def attention(**more: bool) -> tuple[Attention, list[str]]:
    written: list[str] = []
    return Attention(written.append, **{"enabled": True, "in_tmux": False, **more}), written


def test_it_calls_once_for_each_question_and_only_without_the_focus() -> None:
    caller, written = attention()
    caller.set_pending(CALL)
    assert written == [], "the terminal has not said that it lost the focus"
    caller.focus(False)
    assert written == ["\x1b[22;2t\x1b]2;? Approve Shell? chatops\x1b\\"], "seen already: the title is enough"
    caller.set_pending({**CALL, "d2": "Approve Edit?"})
    assert written[1:] == [
        "\x1b]9;chatops: 2 decisions pending\x1b\\",
        "\x1b]777;notify;chatops;2 decisions pending\x1b\\",
        BELL,
        "\x1b]2;? 2 decisions pending chatops\x1b\\",
    ]
    caller.set_pending(CALL)
    caller.focus(True)
    assert written[5:] == ["\x1b]2;? Approve Shell? chatops\x1b\\", "\x1b[23;2t"]
    caller.close()
    assert len(written) == 7, "the title is put back once"


def test_it_can_be_switched_off() -> None:
    caller, written = attention(enabled=False)
    caller.focus(False)
    caller.set_pending(CALL)
    caller.close()
    assert written == []


@given(st.text(st.characters(codec=None), max_size=80))
def test_no_name_gets_a_character_into_the_sequences_that_acts_there(name: str) -> None:
    for in_tmux in (False, True):
        caller, written = attention(in_tmux=in_tmux)
        caller.focus(False)
        caller.set_pending({"d": f"Approve {name}?"})
        text = r"[ A-Za-z0-9_.?:,'\"-]*"
        escape = "\x1b\x1b" if in_tmux else "\x1b"
        before, after = ("\x1bPtmux;", "\x1b\\") if in_tmux else ("", "")
        for wanted, found in zip(("9;", "777;notify;chatops;"), written, strict=False):
            inner = re.escape(f"{before}{escape}]{wanted}") + text + re.escape(f"{escape}\\{after}")
            assert re.fullmatch(inner, found), found
        assert re.fullmatch(r"\x1b\[22;2t\x1b\]2;" + text + r"\x1b\\", written[3]), written[3]
