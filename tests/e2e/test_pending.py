"""Several sessions wait for the user after a kill: which one comes first, and which keys decide."""

import re
import threading

import pytest

from tests.e2e.installation import EFFECT, Installation, registry
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says


def writes(request: SeenRequest) -> Completion:
    return says("Understood.") if request.tool_results else calls(call("shell_exec", command=EFFECT))


def wait_in(installation: Installation, *messages: str) -> None:
    """Leave one killed session with a pending call for each message."""
    for message in messages:
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say(message)
            terminal.dialog()
            terminal.kill9()


@pytest.mark.more
def test_the_session_used_last_comes_first_and_pending_lists_all(installation: Installation) -> None:
    with FakeOpenAI(writes) as server:
        installation.use(registry(server.url))
        wait_in(installation, "the first", "the second")
        with installation.open("--role", "coder") as terminal:
            terminal.wait_for(re.compile(r'Unfinished: .*\(session "the second"\)'))
            terminal.say("/pending")
            listed = terminal.wait_for("Pending")
            assert listed.index("the second") < listed.index("the first")
            assert installation.count == 0
            terminal.press("escape")
            terminal.wait_gone("type to filter")
            terminal.press("ctrl+g")
            terminal.dialog()
            terminal.wait_for("▌ the second")
            terminal.press("escape")
            terminal.wait_for("1 approval pending – ctrl+g")
            terminal.say("/pending")
            terminal.wait_for("open now")
            terminal.send("first")
            terminal.wait_gone("open now")
            terminal.press("enter")
            terminal.wait_for("▌ the first")
            terminal.dialog()
            terminal.press("d")
            terminal.wait_for("Understood.")
        assert server.violations == []
    assert installation.count == 0


@pytest.mark.some(1)
@pytest.mark.parametrize("settings", ["", "notifications: false\n"])
def test_an_approval_calls_a_user_back_whose_terminal_has_not_the_focus(
    installation: Installation, settings: str
) -> None:
    (installation.home / "config").mkdir(exist_ok=True)
    (installation.home / "config" / "settings.yaml").write_text(settings)
    left = threading.Event()

    def writes_later(request: SeenRequest) -> Completion:
        left.wait()
        return writes(request)

    with installation.chat(writes_later) as (_, terminal):
        before = terminal.title
        terminal.say("write it down")
        terminal.send("\x1b[O")
        left.set()
        terminal.dialog()
        if settings:
            assert b"\x1b]9;" not in terminal.raw and terminal.title == before
            return
        terminal.wait_until(lambda _: terminal.title == "? Approve Shell? chatops", what="the title")
        assert terminal.raw.count(b"\x1b]9;chatops: Approve Shell?\x1b\\") == 1
        assert terminal.raw.count(b"\x1b]777;notify;chatops;Approve Shell?\x1b\\\x07") == 1
        terminal.send("\x1b[I")
        terminal.wait_until(lambda _: b"\x1b[23;2t" in terminal.raw, what="the title to be put back")
        terminal.press("d")
