"""A sandbox that fails for one command: an error, never a fallback; the same again is a question for a user."""

from pathlib import Path

import pytest

from chatops.domain.errors import ToolFailedError
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import Outcome
from chatops.tools.function import FunctionTool
from chatops.tools.python import python_tools
from chatops.tools.shell import shell_tools
from tests.tools.running import needs_sandbox
from tests.tools.toolkit import context_for, done, inspected

pytestmark = needs_sandbox

TOUCH = {"shell_exec": {"command": "touch made"}, "python_exec": {"code": "open('made', 'w')"}}


def tools(mode: SandboxLevel) -> dict[str, FunctionTool]:
    return {tool.spec.name: tool for tool in (*shell_tools(mode), *python_tools(mode))}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox works, and cannot be set up for what is run now."""
    monkeypatch.setattr(
        "chatops.sandbox.covers.mount_protected", lambda folder, **target: ["--ro-bind", "/none", "/mnt"]
    )


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("name", TOUCH)
async def test_nothing_runs_and_the_next_try_is_unsandboxed_and_asks(tmp_path: Path, name: str) -> None:
    tool, context = tools(SandboxLevel.HARD)[name], context_for(tmp_path)
    with pytest.raises(
        ToolFailedError, match=r"The command was not run, because its sandbox could not be set up: bwrap: .*user"
    ):
        await done(tool, context, TOUCH[name])
    assert not (tmp_path / "made").exists()
    again = await inspected(tool, context, TOUCH[name])
    assert again.needs_user == "it would run outside the sandbox, which could not be set up for it"
    assert again.sandbox.startswith("off (it could not be set up for this command: bwrap: ")
    assert again.network
    assert (await tool.run(again, context)).outcome is Outcome.SUCCESS
    assert (tmp_path / "made").exists()
    assert not (await inspected(tool, context, TOUCH[name])).needs_user


@pytest.mark.usefixtures("broken")
async def test_a_failure_counts_for_that_command_and_session_only(tmp_path: Path) -> None:
    tool = tools(SandboxLevel.HARD)["shell_exec"]
    with pytest.raises(ToolFailedError):
        await done(tool, context_for(tmp_path), {"command": "touch made"})
    assert not (await inspected(tool, context_for(tmp_path), {"command": "touch made2"})).needs_user
    other = context_for(tmp_path / "..")
    assert not (await inspected(tool, other, {"command": "touch made"})).needs_user


@pytest.mark.usefixtures("broken")
async def test_an_unsandboxed_run_needs_the_recorded_failure(tmp_path: Path) -> None:
    tool, context = tools(SandboxLevel.HARD)["shell_exec"], context_for(tmp_path)
    with pytest.raises(ToolFailedError):
        await done(tool, context, {"command": "touch made"})
    outside = await inspected(tool, context, {"command": "touch made"})
    restarted = tools(SandboxLevel.HARD)["shell_exec"]
    with pytest.raises(ToolFailedError, match="sandbox has changed since the approval"):
        await restarted.run(outside, context)
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("broken")
async def test_a_required_sandbox_offers_no_unsandboxed_run(tmp_path: Path) -> None:
    tool = tools(SandboxLevel.HARD)["shell_exec"]
    context = context_for(tmp_path, sandbox=SandboxSpec(require=SandboxLevel.HARD))
    with pytest.raises(ToolFailedError, match="cannot run without one"):
        await done(tool, context, {"command": "touch made"})
    assert not (await inspected(tool, context, {"command": "touch made"})).needs_user
