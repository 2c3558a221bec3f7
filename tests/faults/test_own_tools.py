"""Errors and results of tools, and tools that changed after their approval (G07, G09).

Tools of a program are met at the entry point for programs, and what came of them is looked at on a terminal.
"""

import asyncio
import re
import subprocess
import sys
from typing import Any

import pytest

from chatops import Step, Workflow, tool
from chatops.domain.events import AskReason
from tests.e2e.installation import EFFECT, Installation
from tests.faults.entry_points import FaultyChat, Pipe, Provider, patient_registry
from tests.support.command_line import program_environment
from tests.support.fake_openai import call, calls, says

KEY = "sk-live-5d1e8b7740aa"
VALUE = "words-of-the-model"


class Outcry(BaseException):
    """No ordinary exception."""


@tool(verdict="allow")
def raises() -> str:
    """Raise."""
    return str(1 / 0)


@tool(verdict="allow")
def leaves() -> str:
    """End the program."""
    sys.exit(3)


@tool(verdict="allow")
async def cries() -> str:
    """Raise what nobody expects."""
    raise Outcry("no")


@tool(verdict="allow")
async def cancels() -> str:
    """Raise a cancellation that nobody asked for."""
    raise asyncio.CancelledError


@tool(verdict="allow")
def number() -> float:
    """Give no text."""
    return 4.5


@tool(verdict="allow")
def bytes_of_text() -> bytes:
    """Give bytes."""
    return "naïve".encode()


@tool(verdict="allow")
def picture() -> bytes:
    """Give bytes that are no text."""
    return b"\x89PNG\0\0" * 50


@tool(verdict="allow")
def huge() -> str:
    """Give 100 MB."""
    return "h" * 100_000_000


@tool(verdict="allow")
def snake() -> list[object]:
    """Give something that holds itself."""
    whole: list[object] = []
    whole.append(whole)
    return whole


RAISING = {
    raises: "Tool execution failed: ZeroDivisionError: division by zero",
    leaves: "Tool execution failed: SystemExit: 3",
    cries: "Tool execution failed: Outcry: no",
    cancels: "Tool execution failed: CancelledError",
}
GIVING = {
    number: r"4\.5",
    bytes_of_text: "naïve",
    picture: r"\[binary, 300 bytes\]",
    huge: r"h+\n\[… [\d,]+ of 100,000,000 characters left out here …\]\nh+",
    snake: r"\[\[\.\.\.\]\]",
}


@pytest.mark.more
@pytest.mark.fault("G07")
def test_whatever_a_tool_raises_or_gives_the_turn_goes_on(installation: Installation, provider: Provider) -> None:
    file = installation.use(patient_registry(provider.server.url))
    every = [*RAISING, *GIVING]
    workflow = Workflow("try", [Step("all", "Call each tool once.", tools=every)])
    provider.script(calls(*(call(one.spec.name) for one in every)), says('{"success": true, "result": "done"}'))
    with pytest.warns(UserWarning, match="more than 8"):
        result = workflow.run("go", registry=file, workspace=installation.workspace, model="local")
    assert (result.success, result.result) == (True, "done"), result
    results = provider.requests[-1].tool_results
    for wanted, got in zip([*RAISING.values(), *GIVING.values()], results, strict=True):
        assert re.match(wanted, got), got[:200]
        assert len(got) <= 16_000
    with installation.open("-r", result.session_id, rows=70) as terminal:
        terminal.wait_for("ctx ")
        chat = FaultyChat(installation, provider, terminal)
        for words in RAISING.values():
            chat.wait_for(rf"failed .*{words}")
        chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("G09")
def test_a_long_list_of_mistakes_is_short_for_the_model_and_whole_in_the_log(pipe: Pipe) -> None:
    pipe.installation.use(patient_registry(pipe.provider.server.url, api_key_env="THE_KEY"))
    wrong: dict[str, Any] = {
        "command": {"nested": [VALUE] * 3_000},
        **{f"extra{number}": VALUE for number in range(300)},
    }
    pipe.provider.script(calls(call("shell_exec", **wrong)))
    done = pipe.run("-p", "go", env={"THE_KEY": KEY})
    assert (done.code, done.out) == (0, "You said: go\n"), done.err
    assert "shell_exec: invalid: shell_exec was not run: its arguments are not valid." in done.err
    (result,) = pipe.provider.requests[-1].tool_results
    assert len(result) < 1_500
    assert "- command: must be string" in result
    log = (pipe.installation.home / "log" / "chatops.log").read_text()
    assert "command: Input should be a valid string" in log
    assert all(f"extra{number}: Extra inputs are not permitted" in log for number in range(300))
    assert KEY not in log + result + done.err
    assert VALUE not in log
    pipe.installation.use(patient_registry(pipe.provider.server.url))
    pipe.assert_well()


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
