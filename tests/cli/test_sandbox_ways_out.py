"""A command in the sandbox reaches nothing outside through sockets, pipes and devices, and mounts nothing there."""

import json
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, Ran
from tests.tools.running import needs_sandbox

pytestmark = needs_sandbox

SEND = """
import os, socket, sys
here = os.getcwd()
for path in sys.argv[1:]:
    os.chdir(here)
    try:
        if path.endswith("sock"):
            one = socket.socket(socket.AF_UNIX)
            os.chdir(os.path.dirname(path) or ".")
            one.connect(os.path.basename(path))
            one.sendall(b"out")
        else:
            os.write(os.open(path, os.O_RDWR | os.O_NONBLOCK), b"out")
        print(path, "sent")
    except OSError as error:
        print(path, "failed", error.strerror)
"""


class Listener:
    """Data that arrives on the host, at a socket and at a pipe."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.socket, self.pipe = folder / "sock", folder / "pipe"
        self.received: list[bytes] = []
        self._server = socket.socket(socket.AF_UNIX)
        # The whole path may be longer than an address can be.
        descriptor = os.open(folder, os.O_RDONLY)
        self._server.bind(f"/proc/self/fd/{descriptor}/sock")
        os.close(descriptor)
        self._server.listen()
        os.mkfifo(self.pipe)
        self._reader = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._server.accept()
                self.received.append(connection.recv(10))
        except OSError:
            return

    def close(self) -> list[bytes]:
        """Stop, and give all that has arrived."""
        try:
            self.received.append(os.read(self._reader, 10))
        except BlockingIOError:
            pass
        os.close(self._reader)
        self._server.close()
        return self.received


@pytest.fixture
def listener(workspace: Path) -> Listener:
    """A socket and a pipe deep in the workspace."""
    return Listener(workspace / "node_modules" / ".cache")


def run(chatops: CommandLine, command: str, *arguments: str) -> Ran:
    """Let the demo run one command that a rule for this run allows word by word."""
    rule = f"shell_exec:{command}"
    return chatops("-p", f"run `{command}`", "--approve", rule, "--output-format", "json", *arguments)


def test_sockets_pipes_and_devices_of_the_workspace_are_covered(chatops: CommandLine, listener: Listener) -> None:
    (chatops.workspace / "send.py").write_text(SEND)
    paths = ["node_modules/.cache/sock", "node_modules/.cache/pipe"]
    if os.geteuid() == 0:
        os.mknod(chatops.workspace / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        paths.append("null")
    ran = run(chatops, f"python3 send.py {' '.join(paths)}", "--role", "coder")
    assert ran.json["calls"][0]["outcome"] == "success", ran
    assert "failed" in ran.json["answer"] and "sent" not in ran.json["answer"]
    assert listener.close() == []


@pytest.mark.more
def test_those_of_a_folder_that_may_be_read_are_covered_too(chatops: CommandLine, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    listener = Listener(shown / "deep")
    (shown / "readme.txt").write_text("hello from there")
    (chatops.workspace / "send.py").write_text(SEND)
    value = {
        "version": 3,
        "default_role": "coder",
        "roles": {"coder": {"primary": "demo"}},
        "users": {"*": {"access_level": "operator"}},
        "sandbox": {"read": [str(shown), str(listener.socket)]},
    }
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps(value))
    ran = run(chatops, f"python3 send.py {listener.socket} {listener.pipe}", "--registry", str(registry))
    assert "sent" not in ran.json["answer"], ran
    assert listener.close() == []
    assert "hello" in run(chatops, f"cat {shown}/readme.txt", "--registry", str(registry)).json["answer"]


def test_a_folder_that_cannot_be_listed_is_covered(chatops: CommandLine, listener: Listener) -> None:
    (chatops.workspace / "open.py").write_text(
        "import os\ntry:\n    os.chmod('node_modules', 0o700)\nexcept OSError as error: print(error)\n"
        f"import sys\nsys.argv = ['', 'node_modules/.cache/sock']\n{SEND}"
    )
    os.chmod(chatops.workspace / "node_modules", 0)
    try:
        ran = run(chatops, "python3 open.py", "--role", "coder")
    finally:
        os.chmod(chatops.workspace / "node_modules", 0o700)
    assert "sent" not in ran.json["answer"], ran
    assert listener.close() == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_mount_point_behind_a_link_is_refused(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Protected paths are mounted over; a link on the way would make bubblewrap create the mount point outside."""
    home = chatops.workspace / "home"
    secret = home / ".config" / "gh"
    secret.mkdir(parents=True)
    if kind == "file":
        secret = home / ".docker" / "config.json"
        secret.parent.mkdir()
        secret.write_text("{}")
    monkeypatch.setenv("HOME", str(home))
    outside = tmp_path / "outside"
    outside.mkdir()
    assert run(chatops, "ls", "--role", "coder").json["calls"][0]["outcome"] == "success"
    secret.parent.rename(home / "web")
    secret.parent.symlink_to(f"../../../../../../../../oldroot{outside}")
    ran = run(chatops, "ls", "--role", "coder")
    assert ran.json["calls"][0]["outcome"] == "failed"
    assert "was replaced by a link" in ran.json["answer"]
    assert not list(outside.iterdir())
