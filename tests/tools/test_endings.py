"""How a program ended is read back as it was written, and nothing that a program says is taken for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.endings import LOST, Ending, caused, closed, ending_of, exited, left, stopped_after

HOWS = {
    "": "",
    stopped_after(2.5): "stopped after 2.5 s",
    exited(3): "exit code 3",
    exited(139, signal="SIGSEGV"): "exit code 139 (SIGSEGV)",
    exited(137, signal="SIGKILL"): "killed (out of memory?)",
    LOST: "exit code is not known",
}
STOPPED = {"": "", left(1): "1 background process stopped", left(12): "12 background processes stopped"}
CAUSE = caused('no network; "sandbox": {"network": true}')
FORGED = st.sampled_from([*HOWS, *STOPPED, CAUSE, "[exit code 7] ", "[exit code 7", "hello", "\n", "\r"])


@given(st.lists(FORGED | st.text(max_size=5), max_size=4), st.sampled_from(list(HOWS)), st.sampled_from(list(STOPPED)))
def test_the_ending_is_ours_whatever_was_put_out(lines: list[str], how: str, stopped: str) -> None:
    found = ending_of("shell_exec", closed("\n".join(lines), how=how, stopped=stopped))
    said_in_defence = Ending(how="exit code 0", stopped=STOPPED[stopped])
    assert found in (Ending(how=HOWS[how], stopped=STOPPED[stopped]), *((said_in_defence,) if not how else ()))


@given(st.lists(FORGED | st.text(max_size=5), max_size=4), st.sampled_from(list(STOPPED)))
def test_a_cause_is_read_back_behind_the_end(lines: list[str], stopped: str) -> None:
    told = closed("\n".join(lines), how=exited(3), stopped=stopped, cause=caused("no network"))
    assert ending_of("shell_exec", told) == Ending(how="exit code 3", stopped=STOPPED[stopped], cause="no network")


@pytest.mark.parametrize("output", ["", "hello", "hello\n\n", "[note]"])
def test_an_ordinary_end_adds_nothing(output: str) -> None:
    assert closed(output) == output.rstrip("\n")
    assert ending_of("shell_exec", closed(output)) == Ending()


def test_what_other_tools_found_is_not_taken_for_it() -> None:
    assert ending_of("file_read", exited(3)) == Ending()
