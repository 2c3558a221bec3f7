"""The entry points themselves: what a healthy provider says arrives, and the next turn works."""

import pytest

from tests.faults.entry_points import FaultyChat, Pipe


@pytest.mark.more
def test_a_healthy_provider_on_a_terminal(chat: FaultyChat) -> None:
    chat.say("good morning")
    chat.wait_for("You said: good morning")
    chat.assert_well()


def test_a_healthy_provider_in_a_pipe(pipe: Pipe) -> None:
    assert "You said: good morning" in pipe.ask("good morning").out
    pipe.assert_well()
