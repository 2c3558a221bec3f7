"""A command in the sandbox begins only when its app, alive once its container is there, tells it to."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from chatops.sandbox.confinement import confinement, sandboxed_command
from chatops.sandbox.mount_points import mount_points
from chatops.sandbox.process import DATA, GO, READY, Command, clean_environment, memory_file, run_command
from tests.support.waiting import PATIENCE
from tests.tools.running import needs_sandbox
from tests.tools.toolkit import context_for

pytestmark = needs_sandbox


def touching(workspace: Path) -> Command:
    """Makes a file in the workspace, inside the sandbox."""
    context = context_for(workspace)
    return sandboxed_command(
        ("touch", "made"),
        confined=confinement(context.sandbox, workspace=workspace),
        context=context,
        cwd=workspace,
        environment=clean_environment({}),
        call="test.1.1/1",
    )


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "the app is dead"])
def test_a_command_waits_for_go_and_exits_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    command = touching(tmp_path)
    ours, theirs = socket.socketpair()
    files = [memory_file(data) for data in command.data]
    numbers = iter(files)
    argv = [str(next(numbers)) if word == DATA else word for word in command.argv]
    environment = dict(command.environment)
    with (
        ours,
        mount_points(tmp_path),
        subprocess.Popen(argv, stdin=theirs.fileno(), cwd=tmp_path, env=environment, pass_fds=files) as process,
    ):
        for descriptor in (theirs.detach(), *files):
            os.close(descriptor)
        assert ours.recv(100) == READY
        assert not (tmp_path / "made").exists()
        if ready:
            ours.sendall(GO)
        ours.shutdown(socket.SHUT_WR)
        code = process.wait(PATIENCE)
    assert (code == 0, (tmp_path / "made").exists()) == (ready, ready)


async def test_a_container_that_did_not_start_differs_from_a_failed_command(tmp_path: Path) -> None:
    whole = touching(tmp_path)
    with mount_points(tmp_path):
        ended = await run_command(whole, timeout_s=30, keep=1_000)
    assert (ended.started, ended.code) == (True, 0)
    broken = Command(
        argv=(whole.argv[0], "--no-such-option"), cwd=tmp_path, environment={}, call="c", contained=True, reports=True
    )
    ended = await run_command(broken, timeout_s=30, keep=1_000)
    assert not ended.started
    assert "no-such-option" in ended.output.text()
