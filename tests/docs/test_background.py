"""The recipes of docs/background.md: cron, systemd, a message to a phone."""

import json
import os
import shutil
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from chatops.config.paths import packaged_registry
from tests.support import document
from tests.support.waiting import PATIENCE

PAGE = document.DOCS / "background.md"


def block(name: str) -> str:
    return "\n".join(document.block(f"background: {name}", page=PAGE)) + "\n"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The home folder of a user who has a project, and chatops in ``~/.local/bin``."""
    programs = tmp_path / ".local" / "bin"
    programs.mkdir(parents=True)
    (programs / "chatops").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m chatops "$@"\n')
    (programs / "chatops").chmod(0o755)
    (tmp_path / "project").mkdir()
    return tmp_path


def run(line: str, user: Path) -> str:
    """Run a line as cron does: with hardly any environment, and no standard input."""
    bare = {"HOME": str(user), "PATH": "/usr/bin:/bin", "PYTHONPATH": os.environ["PYTHONPATH"]}
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=user,
        env=bare,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_cron_starts_a_job(user: Path) -> None:
    *times, line = block("cron").split(maxsplit=5)
    assert len(times) == 5
    job = run(line, user).strip()
    waited = run(f"cd / && ~/.local/bin/chatops jobs wait {job} --output-format json", user)
    assert json.loads(waited)["status"] == "answered"


def test_systemd_accepts_the_units_and_their_command_starts_a_job(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = user / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    names = ("chatops-morning.service", "chatops-morning.timer")
    for name in names:
        (units / name).write_text(block(name))
    (started,) = (line for line in block(names[0]).splitlines() if line.startswith("ExecStart="))
    command = started.partition("=")[2].replace("%h", str(user))
    job = run(f"cd project && {command}", user).strip()
    assert job in run("~/.local/bin/chatops jobs list", user)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(user))
    verified = subprocess.run(
        ["systemd-analyze", "--user", "verify", *(str(units / name) for name in names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, [line for line in verified.stderr.splitlines() if "chatops" in line]) == (0, [])


def test_a_message_is_sent_when_a_call_waits(user: Path) -> None:
    received: list[str] = []

    class Phone(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Phone)
    Thread(target=server.serve_forever, daemon=True).start()
    script = user / "tell-phone"
    address = f"http://127.0.0.1:{server.server_port}/my-jobs"
    script.write_text(block("tell-phone").replace("https://ntfy.example.org/my-jobs", address))
    script.chmod(0o755)
    entry = json.loads(block("notify").replace("/home/ana/bin/tell-phone", str(script)))
    registry = user / "registry.json"
    registry.write_text(json.dumps({**json.loads(packaged_registry().read_text()), **entry}))
    asked = "~/.local/bin/chatops --registry ~/registry.json --role coder --background -p 'run `echo hello`'"
    run(f"cd project && {asked}", user)
    end = time.monotonic() + PATIENCE
    while not received and time.monotonic() < end:
        time.sleep(0.02)
    server.shutdown()
    server.server_close()
    assert received == ["waits: run `echo hello` shell_exec (echo hello)"]
