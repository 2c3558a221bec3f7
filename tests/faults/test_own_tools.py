"""An approval is void once its tool has changed: one of a program, and one of ours."""

import subprocess
import sys

import pytest

from chatops import Step, Workflow, tool
from chatops.domain.events import AskReason
from tests.e2e.installation import EFFECT, Installation
from tests.faults.entry_points import FaultyChat, Pipe, Provider, patient_registry
from tests.support.command_line import program_environment
from tests.support.fake_openai import call, calls, says


class Shop:
    """A tool in two versions, and what it was called with."""

    def __init__(self) -> None:
        self.done: list[str] = []

        def order(part: str) -> str:
            """Order a part."""
            self.done.append(part)
            return f"ordered {part}"

        def changed(part: str) -> str:
            """Order a part, and everything that goes with it."""
            self.done.append(f"{part} and more")
            return f"ordered {part} and more"

        self.versions = [Workflow("buy", [Step("buy", "Buy it.", tools=[tool(name="order")(order)])])]
        self.versions += [Workflow("buy", [Step("buy", "Buy it.", tools=[tool(name="order")(changed)])])]


@pytest.mark.more
def test_an_approval_is_void_once_the_programs_tool_has_changed(pipe: Pipe) -> None:
    installation, provider = pipe.installation, pipe.provider
    file = installation.use(patient_registry(provider.server.url))
    shop = Shop()
    older, newer = shop.versions
    provider.script(calls(call("order", part="timer")), says('{"success": true, "result": "done"}'))
    paused = older.run("go", registry=file, workspace=installation.workspace, model="local")
    (waiting,) = paused.pending
    assert pipe.run("approvals", "approve", waiting.call.id).code == 0
    asked_again = newer.resume(paused.session_id, registry=file)
    (again,) = asked_again.pending
    assert (again.reason, shop.done) == (AskReason.CHANGED, [])
    assert again.why == "the tool order has changed since it was approved: review it again"
    assert "the tool order has changed since it was approved" in pipe.run("approvals", "show", again.call.id).out
    assert pipe.run("approvals", "approve", waiting.call.id).code == 0
    assert newer.resume(paused.session_id, registry=file).success
    assert shop.done == ["timer and more"]


OTHER_VERSION = """
import sys
from dataclasses import replace
from chatops.tools import catalog

made = catalog.shell_tools
catalog.shell_tools = lambda settings: tuple(
    replace(one, spec=replace(one.spec, description="Run it.")) for one in made(settings)
)
from chatops.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""chatops, its shell_exec describing itself otherwise."""


def test_an_approval_is_void_once_a_tool_of_ours_has_changed(installation: Installation, provider: Provider) -> None:
    installation.use(patient_registry(provider.server.url))
    provider.script(calls(call("shell_exec", command=EFFECT)))
    argv = [sys.executable, "-c", OTHER_VERSION, *installation.flags, "-p", "go"]
    older = subprocess.run(
        argv, capture_output=True, text=True, cwd=installation.workspace, env=program_environment(), check=False
    )
    assert older.returncode == 3, older.stderr
    with installation.open("-c") as terminal:
        chat = FaultyChat(installation, provider, terminal)
        terminal.dialog()
        provider.script()
        terminal.press("a")
        chat.wait_for("the tool shell_exec has changed since it was approved: review it again")
        assert installation.count == 0
        terminal.dialog()
        terminal.press("a")
        chat.wait_for("You said: go")
        assert installation.count == 1
        chat.assert_well()
