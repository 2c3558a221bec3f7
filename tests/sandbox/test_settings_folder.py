"""A settings folder in the workspace is nothing that a model can make or change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxSpec
from chatops.sandbox.confinement import probe
from chatops.sandbox.mount_points import mount_point, remove_mount_point
from chatops.tools.files import file_edit, file_write
from chatops.tools.shell import shell_tools
from tests.tools.toolkit import context_for, done, inspected

WRITE = "mkdir -p .chatops; echo x > .chatops/settings.json; mv .chatops other; ls -A"


@pytest.mark.parametrize("path", [".chatops/settings.json", "sub/.chatops/a", ".CHATOPS/a", ".chatops"])
async def test_the_file_tools_refuse_it(tmp_path: Path, path: str) -> None:
    facts = await inspected(file_write, context_for(tmp_path), {"path": path, "content": "x"})
    assert "protected path" in facts.refusal
    facts = await inspected(file_edit, context_for(tmp_path), {"path": path, "old": "x", "new": "y"})
    assert "protected path" in facts.refusal


@pytest.mark.skipif(bool(probe()[1]), reason="there is no sandbox here")
@pytest.mark.parametrize("present", [False, True])
async def test_a_command_cannot_make_or_change_it(tmp_path: Path, present: bool) -> None:
    folder = tmp_path / ".chatops"
    if present:
        folder.mkdir()
        (folder / "settings.json").write_text("mine")
    (shell,) = shell_tools()
    result = await done(shell, context_for(tmp_path), {"command": WRITE})
    assert "Read-only file system" in result.content
    assert not (tmp_path / "other").exists()
    # What the sandbox mounted on is gone; what was there has stayed.
    assert folder.exists() is present
    if present:
        assert (folder / "settings.json").read_text() == "mine"


@pytest.mark.skipif(bool(probe()[1]), reason="there is no sandbox here")
async def test_a_mount_point_of_a_killed_app_is_reused_and_removed(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path)
    (shell,) = shell_tools()
    result = await done(shell, context_for(tmp_path), {"command": WRITE})
    assert "Read-only file system" in result.content
    assert not os.listdir(tmp_path)


def test_the_mount_point_stays_while_a_command_needs_it(tmp_path: Path) -> None:
    with mount_point(tmp_path / ".chatops"):
        with mount_point(tmp_path / ".chatops"):
            pass
        remove_mount_point(tmp_path / ".chatops")
        assert os.listdir(tmp_path) == [".chatops"]
    assert not os.listdir(tmp_path)


def test_an_empty_folder_of_a_user_stays(tmp_path: Path) -> None:
    (tmp_path / ".chatops").mkdir()
    with mount_point(tmp_path / ".chatops"):
        pass
    assert (tmp_path / ".chatops").exists()


def left_by_a_killed_process(workspace: Path) -> None:
    script = (
        "import os, signal; from pathlib import Path; from chatops.sandbox.mount_points import mount_point\n"
        f"with mount_point(Path({str(workspace)!r}) / '.chatops'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    assert os.listdir(workspace / ".chatops") == []


@pytest.mark.skipif(bool(probe()[1]), reason="there is no sandbox here")
async def test_what_the_sandbox_may_read_is_part_of_what_is_approved(tmp_path: Path) -> None:
    (shell,) = shell_tools()
    before = await inspected(shell, context_for(tmp_path), {"command": "ls"})
    after = await inspected(shell, context_for(tmp_path, sandbox=SandboxSpec(read=("/srv",))), {"command": "ls"})
    assert before.sandbox != after.sandbox
    assert "/srv" in after.sandbox
