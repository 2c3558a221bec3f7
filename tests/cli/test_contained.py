"""A contained turn from the command line: one question at the end, whatever was changed and run before it."""

import functools
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from chatops.sandbox.confinement import probe
from tests.support.command_line import CommandLine, Ran, program
from tests.support.fake_openai import Completion, FakeOpenAI, call, calls, says

pytestmark = pytest.mark.skipif(bool(probe()[1]), reason="contained turns need bubblewrap")

WORK = (
    calls(call("file_write", path="new.py", content="print('new')\n")),
    calls(call("file_edit", path="note.txt", old="Friday", new="Monday")),
    calls(call("shell_exec", command="cat note.txt; echo made > made.txt; pwd; git status --short")),
    says("All done."),
)


def registry(server: FakeOpenAI, workspace: Path, **more: object) -> str:
    """Write a registry whose model is `server`, and return its path."""
    path = workspace.parent / "registry.json"
    values = {
        "version": 3,
        "models": {"fake": {"type": "openai", "api_url": server.url, "model_name": "fake"}},
        "roles": {"coder": {"primary": "fake", "tools": ["file_read", "file_write", "file_edit", "shell_exec"]}},
        "users": {"*": {"access_level": "operator"}},
        **more,
    }
    path.write_text(json.dumps(values))
    return str(path)


def contained(chatops: CommandLine, server: FakeOpenAI, *arguments: str, **more: object) -> Ran:
    path = registry(server, chatops.workspace, **more)
    return chatops("--registry", path, "-p", "work", "--role", "coder", "--output-format", "json", *arguments)


def shown_digest(text: str) -> str:
    return next(line.split()[-1] for line in reversed(text.splitlines()) if "Digest:" in line)


def test_one_question_for_all_changes(chatops: CommandLine, workspace: Path) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    with FakeOpenAI([*WORK, says("And now?")]) as server:
        ran = contained(chatops, server, "--contain")
        assert ran.code == 3, ran.err
        (pending,) = ran.json["pending"]
        assert pending["tool"] == "contained_apply"
        assert [one["outcome"] for one in ran.json["calls"]] == ["success"] * 3 + [None]
        assert (workspace / "note.txt").read_text() == "The invoice is due on Friday.\n"
        assert not (workspace / "new.py").exists() and not (workspace / "made.txt").exists()
        output = server.requests[-1].messages[-1]["content"]
        assert "Monday" in output and str(workspace) in output and "?? made.txt" in output
        assert "contained" in json.dumps(server.requests[0].messages[0])

        path = str(workspace.parent / "registry.json")
        shown = chatops("--registry", path, "approvals", "show", pending["id"])
        assert "+print('new')" in shown.out and "-The invoice is due on Friday." in shown.out
        assert "file_write new.py: success" in shown.out and "Changes of the contained turn:" in shown.out
        assert "Not clear:" not in shown.out and "Command, exactly" not in shown.out
        listed = chatops("--registry", path, "approvals", "list").out
        assert "apply: made.txt, new.py, note.txt" in listed
        assert "shell_exec cat note.txt" in shown.out and "made.txt" in shown.out
        refused = chatops("--registry", path, "approvals", "approve", pending["id"])
        assert refused.code == 1 and "digest" in refused.err
        digest = shown_digest(shown.out)
        assert chatops("--registry", path, "approvals", "approve", pending["id"], "--digest", digest).code == 0
        done = chatops("--registry", path, "resume", ran.json["session_id"])
        assert done.code == 0, done.err
        assert "All done." in done.out
        assert (workspace / "note.txt").read_text() == "The invoice is due on Monday.\n"
        assert (workspace / "new.py").read_text() == "print('new')\n"
        assert (workspace / "made.txt").read_text() == "made\n"
        assert chatops.logged(pending["id"]) == ["verdict ask", "decision approved", "start", "result success"]
        assert chatops.logged(ran.json["calls"][2]["id"]) == ["verdict allow", "start", "result success"]
        again = chatops("--registry", path, "-p", "next", "--role", "coder", "-r", ran.json["session_id"])
        assert again.code == 0
        assert "Applied 3 changes" in json.dumps(server.requests[-1].messages)
        assert not server.violations


def test_only_some_files(chatops: CommandLine, workspace: Path) -> None:
    with FakeOpenAI(WORK) as server:
        ran = contained(chatops, server, "--contain")
        path = str(workspace.parent / "registry.json")
        call_id = ran.json["pending"][0]["id"]
        digest = shown_digest(chatops("--registry", path, "approvals", "show", call_id).out)
        wrong = chatops("--registry", path, "approvals", "approve", call_id, "--digest", digest, "--only", "x")
        assert wrong.code == 1 and "no change" in wrong.err
        assert (
            chatops("--registry", path, "approvals", "approve", call_id, "--digest", digest, "--only", "new.py").code
            == 0
        )
        assert chatops("--registry", path, "resume", ran.json["session_id"]).code == 0
    assert (workspace / "new.py").exists() and not (workspace / "made.txt").exists()
    assert (workspace / "note.txt").read_text() == "The invoice is due on Friday.\n"


def test_a_turn_without_changes_asks_nothing(chatops: CommandLine, workspace: Path) -> None:
    with FakeOpenAI([calls(call("shell_exec", command="ls")), says("Looked.")]) as server:
        ran = contained(chatops, server, "--contain")
    assert ran.code == 0 and ran.json["answer"] == "Looked."


def test_a_role_can_contain_and_the_registry_can_forbid(chatops: CommandLine, workspace: Path) -> None:
    role = {"primary": "fake", "tools": ["file_write"], "contain": True}
    with FakeOpenAI([calls(call("file_write", path="a", content="a")), says("Done.")]) as server:
        ran = contained(chatops, server, roles={"coder": role})
        assert ran.code == 3 and ran.json["pending"][0]["tool"] == "contained_apply"
    with FakeOpenAI([calls(call("file_write", path="a", content="a")), says("Done.")]) as server:
        ran = contained(chatops, server, roles={"coder": role}, sandbox={"contain": False})
        assert ran.code == 3 and ran.json["pending"][0]["tool"] == "file_write"
        assert "forbids contained turns" in ran.err
        ran = contained(chatops, server, "--contain", sandbox={"contain": False})
        assert ran.code == 2


def test_no_rule_answers_it(chatops: CommandLine, workspace: Path) -> None:
    with FakeOpenAI(WORK) as server:
        ran = contained(chatops, server, "--contain", "--approve", "contained_apply")
    assert ran.code == 2


def changed(workspace: Path) -> list[bool]:
    """Return for each of the three changes whether it has been applied."""
    note = (workspace / "note.txt").read_text() == "The invoice is due on Monday.\n"
    return [note, (workspace / "new.py").exists(), (workspace / "made.txt").exists()]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "point", [3, 12, *(pytest.param(point, marks=pytest.mark.more) for point in (1, 2, 4, 7, 8, 10, 14, 16, 18))]
)
def test_a_kill_at_any_point_applies_all_or_nothing(
    chatops: CommandLine, workspace: Path, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    """Killed while copying, freezing, staging or applying: the next process goes on, once."""
    with FakeOpenAI(WORK * 3) as server:
        path = registry(server, workspace)
        base = ("--registry", path)
        monkeypatch.setenv("CHATOPS_FAILPOINT", f"contained:{point}")
        ask = ("-p", "work", "--role", "coder", "--output-format", "json", "--contain")
        ran = program(*base, *ask, cwd=workspace)
        monkeypatch.delenv("CHATOPS_FAILPOINT")
        if ran.code == -9:
            assert not any(changed(workspace))
            session = chatops(*base, "sessions", "list", "--output-format", "json").json[0]["id"]
            assert chatops(*base, "resume", session).code == 3
        else:
            session = ran.json["session_id"]
        (pending,) = chatops(*base, "approvals", "list", "--output-format", "json").json
        digest = shown_digest(chatops(*base, "approvals", "show", pending["id"]).out)
        assert chatops(*base, "approvals", "approve", pending["id"], "--digest", digest).code == 0
        monkeypatch.setenv("CHATOPS_FAILPOINT", f"contained:{point}")
        killed = program(*base, "resume", session, cwd=workspace)
        monkeypatch.delenv("CHATOPS_FAILPOINT")
        if killed.code == -9:
            assert chatops(*base, "resume", session).code == 0
        assert all(changed(workspace))
        assert (workspace / "made.txt").read_text() == "made\n"
        assert not list(workspace.rglob(".chatops-*"))
        assert not server.violations


def work(chatops: CommandLine, workspace: Path, *script: Completion, approve: bool = True) -> tuple[str, str]:
    """Run a contained turn and apply what it asks about; the text that was shown and what the model was told."""
    with FakeOpenAI([*script, says("Done.")]) as server:
        ran = contained(chatops, server, "--contain")
        base = ("--registry", str(workspace.parent / "registry.json"))
        shown = ""
        if ran.code == 3 and approve:
            (pending,) = ran.json["pending"]
            shown = chatops(*base, "approvals", "show", pending["id"]).out
            done = chatops(*base, "approvals", "approve", pending["id"], "--digest", shown_digest(shown))
            assert done.code == 0
            assert chatops(*base, "resume", ran.json["session_id"]).code == 0
        return shown, json.dumps([request.messages for request in server.requests])


def shell(command: str) -> Completion:
    return calls(call("shell_exec", command=command))


def test_a_link_that_a_command_planted_leads_no_tool_out(chatops: CommandLine, workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("mine\n")
    _, told = work(
        chatops,
        workspace,
        shell(f"ln -s {outside} out; ln -s {workspace} back; ln -s ../../../.. up; true"),
        calls(call("file_write", path="out/victim", content="evil")),
        calls(call("file_write", path="back/note.txt", content="evil")),
        calls(call("file_edit", path="up/etc/hostname", old="a", new="b")),
        shell(f"echo evil > out/victim; echo evil > {outside}/victim; true"),
    )
    assert (outside / "victim").read_text() == "mine\n"
    assert (workspace / "note.txt").read_text() == "The invoice is due on Friday.\n"
    assert told.count("outside the workspace") >= 3
    assert not any(path.is_symlink() for path in workspace.iterdir())


def test_a_folder_replaced_by_a_link_is_no_place_to_mount_on(
    chatops: CommandLine, workspace: Path, tmp_path: Path
) -> None:
    modules = workspace / "web" / "node_modules"
    modules.mkdir(parents=True)
    for number in range(2_100):
        (modules / f"{number}.js").touch()
    outside = tmp_path / "outside"
    outside.mkdir()
    _, told = work(
        chatops,
        workspace,
        shell("ls web/node_modules | wc -l; touch web/node_modules/x"),
        shell(f"mv web web2; ln -s /oldroot{outside} web; ls -la"),
        shell("echo it ran"),
        approve=False,
    )
    assert "2100" in told and "Read-only file system" in told
    assert list(outside.iterdir()) == [] and "there is no place for" in told


@pytest.mark.more
def test_sockets_and_pipes_in_shared_folders_are_out_of_reach(chatops: CommandLine, workspace: Path) -> None:
    modules = workspace / "node_modules"
    modules.mkdir()
    for number in range(2_100):
        (modules / f"{number}.js").touch()
    os.mkfifo(modules / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(modules / "sock"))
        _, told = work(chatops, workspace, shell("ls -A node_modules | wc -l; test -e node_modules/sock && echo seen"))
    assert "seen\\n" not in told.replace("echo seen", "")


def test_the_repository_is_read_only_without_programs_and_passwords(
    chatops: CommandLine, workspace: Path, tmp_path: Path
) -> None:
    run = functools.partial(subprocess.run, check=True, cwd=workspace)
    run(["git", "init", "-q"])
    run(["git", "config", "core.fsmonitor", f"touch {workspace}/PWNED; false"])
    run(["git", "config", "remote.origin.url", "https://ana:canary-77@example.org/x.git"])
    (workspace / ".git" / "config.worktree").write_text('[http]\n\textraheader = "Authorization: canary-77"\n')
    module = workspace / ".git" / "modules" / "part" / "config"
    module.parent.mkdir(parents=True)
    module.write_text('[remote "origin"]\n\turl = https://ana:canary-77@example.org/part.git\n')
    hook = workspace / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch PWNED\n")
    hook.chmod(0o755)
    shown, told = work(
        chatops,
        workspace,
        shell(
            "git status --short; cat .git/config .git/config.worktree; grep -r canary .git; ls .git/hooks; "
            "git add note.txt; echo evil > .git/hooks/x; true"
        ),
        shell("echo 1 > made"),
    )
    assert "canary-77" not in told and "?? note.txt" in told
    assert "Read-only file system" in told
    assert not (workspace / "PWNED").exists() and "PWNED" not in shown
    assert not (workspace / ".git" / "hooks" / "x").exists()


@pytest.mark.more
def test_a_compiled_file_is_not_applied(chatops: CommandLine, workspace: Path) -> None:
    (workspace / "mod.py").write_text("print('shown')\n")
    compile_evil = (
        "cp mod.py /tmp/m.py; printf \"print('hid!!')\\n\" > mod.py; touch -r /tmp/m.py mod.py; "
        "python3 -c \"import py_compile; py_compile.compile('mod.py')\"; cp /tmp/m.py mod.py; "
        "touch -r /tmp/m.py mod.py; ls __pycache__; echo 1 > made"
    )
    work(chatops, workspace, shell(compile_evil))
    assert not (workspace / "__pycache__").exists() and (workspace / "made").exists()
    assert (workspace / "mod.py").read_text() == "print('shown')\n"


@pytest.mark.more
def test_there_is_no_network(chatops: CommandLine, workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.settimeout(0.2)
        work(chatops, workspace, shell(f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo hi >&3; true"))
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.more
def test_a_process_that_outlives_its_command_changes_nothing(chatops: CommandLine, workspace: Path) -> None:
    work(chatops, workspace, shell("setsid sh -c 'sleep 0.3; echo late > late' & echo 1 > made"))
    assert (workspace / "made").exists() and not (workspace / "late").exists()


@pytest.mark.more
def test_without_a_user_the_changes_are_discarded(chatops: CommandLine, workspace: Path) -> None:
    with FakeOpenAI(WORK) as server:
        ran = contained(chatops, server, "--contain", "--on-approval", "deny")
    assert ran.code == 0 and "discarded" in ran.err
    assert not any(changed(workspace))


def test_contain_needs_a_prompt(chatops: CommandLine) -> None:
    ran = chatops("--contain")
    assert ran.code == 2 and "--contain works with -p only" in ran.err


@pytest.mark.more
def test_a_command_that_fills_the_disk_is_stopped(
    chatops: CommandLine, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatops.contained.on_copy.MAX_GROWTH", 20 << 20)
    shown, told = work(
        chatops, workspace, shell("echo 1 > made"), shell("head -c 200M /dev/zero > big; sleep 60; echo survived")
    )
    assert "echo survived: failed" in shown
    assert "was stopped: the free disk space shrank by" in told and "survived\\n" not in told
