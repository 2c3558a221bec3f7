"""Paths that no tool may touch are hidden in the sandbox too, wherever they are."""

import json
from pathlib import Path

import pytest

from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import Exposure, ToolCall
from chatops.sandbox import confinement
from chatops.sandbox.confinement import Probed, probe
from chatops.toolkit.base import ToolContext
from chatops.tools.shell import shell_tools


@pytest.mark.skipif(not probe()[0], reason=f"no sandbox here: {probe()[1]}")
async def test_a_key_file_in_a_readable_folder_is_hidden(tmp_path: Path) -> None:
    workspace, shown = tmp_path / "ws", tmp_path / "shown"
    workspace.mkdir()
    shown.mkdir()
    (shown / "key.txt").write_text("sk-secret")
    (shown / "readme.txt").write_text("hello")
    (tool,) = shell_tools()
    context = ToolContext(
        workspace=workspace,
        session_id=SessionId("s"),
        call_id=CallId("c"),
        protected=(shown / "key.txt",),
        sandbox=SandboxSpec(read=(str(shown),)),
    )
    arguments = f'{{"command":"cat {shown}/readme.txt {shown}/key.txt"}}'
    facts = await tool.inspect(ToolCall(id=CallId("c"), name="shell_exec", arguments=arguments), context)
    result = await tool.run(facts, context)
    assert "hello" in result.content
    assert "sk-secret" not in result.content


@pytest.mark.more
@pytest.mark.skipif(not probe()[0], reason=f"no sandbox here: {probe()[1]}")
async def test_folders_of_keys_are_hidden_as_a_whole_and_others_file_by_file(tmp_path: Path) -> None:
    """More keys than can be hidden one by one."""
    workspace, shown = tmp_path / "ws", tmp_path / "shown"
    workspace.mkdir()
    for folder, number in (("keys", 1_200), ("mixed", 2), ("read", 2), ("written", 2)):
        (shown / folder).mkdir(parents=True)
        for name in range(number):
            (shown / folder / f"{name}.pem").write_text("sk-secret")
    (shown / "mixed" / "readme.txt").write_text("hello")
    (tool,) = shell_tools()
    context = ToolContext(
        workspace=workspace,
        session_id=SessionId("s"),
        call_id=CallId("c"),
        exposure=Exposure.READ_ONLY,
        sandbox=SandboxSpec(read=(str(shown), str(shown / "read")), write=(str(shown / "written"),)),
    )
    made = f"{shown}/written/new {shown}/keys/new"
    command = f"touch {made}; cat {shown}/mixed/readme.txt {shown}/*/*.pem; ls {shown}/keys; true"
    call = ToolCall(id=CallId("c"), name="shell_exec", arguments=json.dumps({"command": command}))
    result = await tool.run(await tool.inspect(call, context), context)
    assert "hello" in result.content, result.content
    assert "sk-secret" not in result.content
    assert not (shown / "keys" / "new").exists()
    assert (shown / "written" / "new").exists()


@pytest.mark.more
@pytest.mark.skipif(not probe()[0], reason=f"no sandbox here: {probe()[1]}")
async def test_at_level_basic_namespaces_of_a_command_uncover_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level basic is where commands can make user namespaces, in which they may mount."""
    monkeypatch.setattr(confinement, "probe", lambda: Probed(probe().program, "no level hard", SandboxLevel.BASIC))
    workspace = tmp_path / "ws"
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / "id_rsa").write_text("sk-secret")
    (tool,) = shell_tools()
    context = ToolContext(
        workspace=workspace, session_id=SessionId("s"), call_id=CallId("c"), protected=(workspace / "id_rsa",)
    )
    reached = "cat id_rsa; echo x > .git/hooks/new"
    tried = (
        "echo nested",
        f"umount -l $PWD/id_rsa; umount -l $PWD/.git; {reached}",
        f"mount -o remount,rw,bind $PWD/.git; {reached}",
        f"mkdir /tmp/m; mount --bind $PWD /tmp/m; cd /tmp/m; {reached}",
        f"mkdir /tmp/m; mount --rbind $PWD /tmp/m; umount -l /tmp/m/id_rsa; cd /tmp/m; {reached}",
        f"mkdir /tmp/r; mount --rbind / /tmp/r; cd /tmp/r; pivot_root . tmp; umount -l tmp; cd {workspace}; {reached}",
        f"umount -l /tmp; cd {workspace}; {reached}",
        "mount -t proc p /proc; cat /proc/*/root/etc/shadow; echo x > /proc/sys/kernel/hostname",
    )
    for script in tried:
        arguments = json.dumps({"command": f"unshare -Ump --fork --keep-caps sh -c '{script}'"})
        facts = await tool.inspect(ToolCall(id=CallId("c"), name="shell_exec", arguments=arguments), context)
        assert "basic" in facts.sandbox
        result = await tool.run(facts, context)
        if script == tried[0] and "nested" not in result.content:
            pytest.skip("no user namespaces within bubblewrap here")
        assert "sk-secret" not in result.content and "root:" not in result.content, script
        assert not list((workspace / ".git" / "hooks").iterdir()), script
