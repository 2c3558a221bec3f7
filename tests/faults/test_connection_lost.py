"""Faults A: nobody answers. The models' own tests know each way to fail; here keys work meanwhile."""

from collections.abc import Iterator

import pytest

from tests.faults.stage import Stage
from tests.support.sockets import black_hole


@pytest.fixture(scope="module")
def unheard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The stage, with a role whose server takes no connection."""
    with black_hole() as port:
        pit = {"api_url": f"http://127.0.0.1:{port}/v1", "timeout_s": {"connect": 600, "first_token": 60, "idle": 60}}
        with Stage.open(tmp_path_factory.mktemp("stage"), others={"pit": pit}) as stage:
            yield stage


@pytest.mark.fault("A14")
def test_while_no_connection_comes_about_keys_work_and_esc_stops_it(unheard: Stage) -> None:
    unheard.as_role("pit")
    unheard.chat.say("hello down there")
    terminal = unheard.chat.terminal
    terminal.send("still typing")
    terminal.wait_for("still typing")
    terminal.press("escape")
    unheard.seen("hello down there", r"Stopped by the user\.")
    terminal.wait_for("still typing")
    terminal.press("ctrl+c")
    terminal.wait_gone("still typing")
    unheard.as_role("coder")
    unheard.chat.assert_well()
