"""A rule that a user makes on the screen answers after `kill -9`, in the next session, until it is taken back."""

import pytest

from tests.e2e.installation import Installation, registry
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says

COMMAND = "touch one"


def touches(request: SeenRequest) -> Completion:
    """Asks for the command until there is a result."""
    return says("Understood.") if request.tool_results else calls(call("shell_exec", command=COMMAND))


@pytest.mark.more
def test_a_rule_for_the_folder_answers_after_a_kill_until_it_is_revoked(installation: Installation) -> None:
    with FakeOpenAI(touches) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("go")
            terminal.dialog()
            terminal.press("r")
            terminal.wait_for("Make a rule for shell_exec, as coder")
            terminal.press("tab")
            terminal.wait_for("> this folder")
            terminal.press("ctrl+s")
            terminal.wait_for("Rule made, for this folder: shell_exec:touch one")
            terminal.wait_for("Understood.")
            terminal.kill9()
        (installation.workspace / "one").unlink()
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("go again")
            terminal.wait_for("Understood.")
            terminal.wait_for("allowed by rule 1")
            assert (installation.workspace / "one").exists()
            terminal.say("/permissions")
            terminal.wait_for("used once")
            terminal.press("escape")
            terminal.say("/permissions revoke 1")
            terminal.wait_for("Revoked rule 1: shell_exec:touch one")
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("and again")
            assert COMMAND in terminal.dialog()
