"""A coder's day in one repository: read, edit three files, run the tests, commit, push. How often is the user asked?

The repository has a virtual environment of its own, and its remote is a real git server on this machine that the
registry names in `sandbox.hosts`.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import ALLOWED_TO_CODER, APPROVE, ChatTerminal, Installation, dialog_of, registry
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says
from tests.support.waiting import PATIENCE

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]
FILES = {
    "app.py": "VALUE = 1\n",
    "README.md": "The value is 1.\n",
    "test_app.py": "from app import VALUE\n\nassert VALUE == 1\n",
}
EDITS = [
    call("file_edit", path="app.py", old="VALUE = 1", new="VALUE = 2"),
    call("file_edit", path="README.md", old="is 1", new="is 2"),
    call("file_edit", path="test_app.py", old="== 1", new="== 2"),
]
TESTS = call("shell_exec", command="python test_app.py")
COMMIT = call("shell_exec", command='git commit -am "Count to two"')
PUSH = call("shell_exec", command="git push origin main")


def git(*words: str, cwd: Path) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = {f"GIT_{who}_{what}": "ana@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *words], cwd=cwd, env=os.environ | own | names, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@contextmanager
def git_server(folder: Path) -> Iterator[int]:
    """Serve the repositories in `folder` over HTTP with git's own back end; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            variables = {
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("content-type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                "REMOTE_USER": "ana",
            }
            done = subprocess.run(
                ["git", "http-backend"], input=body, env=os.environ | variables, capture_output=True, check=True
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A bare repository behind a server, and the server's port."""
    folder = tmp_path / "served"
    folder.mkdir()
    git("init", "-q", "--bare", "-b", "main", "project.git", cwd=folder)
    git("config", "http.receivepack", "true", cwd=folder / "project.git")
    with git_server(folder) as port:
        yield folder / "project.git", port


def repository(installation: Installation, port: int) -> None:
    """Make the workspace a repository with a virtual environment and a remote."""
    workspace = installation.workspace
    for name, content in {**FILES, ".gitignore": ".venv\n__pycache__\nnote.txt\n"}.items():
        (workspace / name).write_text(content)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(workspace / ".venv")], check=True)
    git("init", "-q", "-b", "main", cwd=workspace)
    git("config", "user.name", "Ana", cwd=workspace)
    git("config", "user.email", "ana@example.org", cwd=workspace)
    git("add", "-A", cwd=workspace)
    git("commit", "-qm", "Begin", cwd=workspace)
    git("remote", "add", "origin", f"http://127.0.0.1:{port}/project.git", cwd=workspace)


def contents(url: str, port: int) -> dict[str, Any]:
    value = registry(url)
    value["sandbox"] = {"git": "commit", "hosts": [f"127.0.0.1:{port}"]}
    return value


def model(steps: list[Completion]) -> Callable[[SeenRequest], Completion]:
    """A model that makes these calls in order, one round each, and answers when asked anything else."""
    waiting = list(steps)
    return lambda request: waiting.pop(0) if waiting else says("Nothing is left to do.")


def approve_all(terminal: ChatTerminal, server: FakeOpenAI, *, until: str) -> int:
    """Approve each question until a text shows; return how many there were. Each answer leads to one more request."""
    questions = 0
    while True:
        terminal.wait_until(lambda text: until in text or APPROVE in dialog_of(text), what=f"a question or {until!r}")
        if until in terminal.text():
            return questions
        questions, asked = questions + 1, len(server.requests)
        while len(server.requests) == asked and APPROVE in dialog_of(terminal.text()):
            terminal.press("a")
            give_up = time.monotonic() + 5.0
            while len(server.requests) == asked and time.monotonic() < give_up:
                time.sleep(0.05)


def test_without_containment_each_change_and_command_asks_once(
    installation: Installation, remote: tuple[Path, int]
) -> None:
    bare, port = remote
    repository(installation, port)
    steps = [calls(call("file_read", path="app.py")), *(calls(one) for one in (*EDITS, TESTS, COMMIT, PUSH))]
    with FakeOpenAI(model([*steps, says("All done.")])) as server:
        installation.use(contents(server.url, port))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("count to two, test, commit and push")
            questions = approve_all(terminal, server, until="All done.")
        assert [row for row in server.requests[-1].tool_results if "exit" in row.lower() and "0" not in row] == []
    assert questions <= 6
    assert git("log", "--format=%s", "main", cwd=bare).splitlines() == ["Count to two", "Begin"]


def test_with_containment_the_changes_are_one_question(installation: Installation, remote: tuple[Path, int]) -> None:
    bare, port = remote
    repository(installation, port)
    changes = [calls(call("file_read", path="app.py")), *(calls(one) for one in (*EDITS, TESTS)), says("Changed.")]
    with FakeOpenAI(model([*changes, calls(COMMIT), calls(PUSH), says("All done.")])) as server:
        installation.use(contents(server.url, port))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("/contain")
            terminal.wait_for("The next turn works on a copy of the workspace.")
            terminal.say("count to two and test")
            shown = terminal.dialog("Space ticks")
            assert "shell_exec python test_app.py: success" in shown
            terminal.press("end")
            assert (installation.workspace / "app.py").read_text() == FILES["app.py"]
            terminal.decide("a", "a apply 3 of 3")
            terminal.wait_for("Applied 3 changes")
            questions = 1
            terminal.say("commit and push")
            questions += approve_all(terminal, server, until="All done.")
    assert questions <= 3
    assert (installation.workspace / "app.py").read_text() == "VALUE = 2\n"
    assert git("log", "--format=%s", "main", cwd=bare).splitlines() == ["Count to two", "Begin"]


def test_half_an_hour_of_work_needs_nothing_but_the_app(installation: Installation, remote: tuple[Path, int]) -> None:
    _, port = remote
    repository(installation, port)
    readme = installation.workspace / "README.md"
    third = call("file_edit", path="README.md", old="is 2", new="is 3")
    steps = [
        *(calls(call("file_read", path="app.py")), says("It counts to one.")),
        *(calls(*EDITS), calls(TESTS), calls(COMMIT), says("Committed.")),
        *(calls(third), says("Three it is.")),
        says("Summary: the project counts to two."),
        says("As a researcher: two."),
    ]
    with FakeOpenAI(model(steps)) as server:
        value = contents(server.url, port)
        # Putting files back takes the right to write them.
        value["roles"]["coder"]["tools"] = [*ALLOWED_TO_CODER, "file_write"]
        installation.use(value)
        with installation.open("--role", "coder", cols=120, rows=40) as terminal:
            terminal.ready("coder")
            terminal.say("what does this project do?")
            terminal.wait_for("It counts to one.")
            terminal.say("count to two, test and commit")
            look_at_the_dialog(terminal)
            for _ in EDITS:
                terminal.decide("a")
            assert "python test_app.py" in terminal.decide("a")
            assert "git commit" in terminal.decide("a")
            terminal.wait_for("Committed.")
            assert git("log", "--format=%s", cwd=installation.workspace).splitlines() == ["Count to two", "Begin"]
            assert [row for row in server.requests[-1].tool_results if "exit" in row.lower() and "0" not in row] == []

            terminal.say("say three in the README")
            terminal.decide("a")
            terminal.wait_for("Three it is.")
            assert readme.read_text() == "The value is 3.\n"
            terminal.say("/diff last")
            terminal.wait_for("Changed in the last turn: 1 file")
            terminal.press("escape")
            terminal.say("/undo")
            assert "README.md" in terminal.decide("a", "a undo")
            terminal.wait_gone("Three it is.")
            terminal.wait_until(lambda _: readme.read_text() == "The value is 2.\n", what="the file to be put back")
            terminal.wait_for("Took back 1 change")
            terminal.wait_for("│ say three in the README")
            terminal.press("ctrl+c")
            terminal.wait_gone("│ say three in the README")

            terminal.say("/compact")
            terminal.wait_for("Summary: the project counts to two.")
            terminal.press("ctrl+s")
            terminal.wait_for("The model gets the summary")
            terminal.press("ctrl+r")
            terminal.wait_for("type to filter")
            terminal.send("researcher")
            terminal.press("enter")
            terminal.wait_for("coder → researcher")
            terminal.say("how far does it count?")
            terminal.wait_for("As a researcher: two.")
            assert "Summary: the project counts to two." in str(server.requests[-1].messages)
            terminal.press("ctrl+q")
            assert terminal.wait_exit() == 0
        with installation.open(cols=120, rows=40) as terminal:
            terminal.ready("researcher")
            terminal.say("/search test and commit")
            terminal.wait_for("Sessions with 'test and commit'")
            terminal.press("enter")
            terminal.wait_gone("Sessions with")
            terminal.wait_for("count to two, test and commit")
        assert server.violations == []


def look_at_the_dialog(terminal: ChatTerminal) -> None:
    """Look at the first of three edits: side by side, on the full screen, its details."""
    assert "1 of 3" in terminal.dialog()
    sides = re.compile("VALUE = 1 .*VALUE = 2")
    look(terminal, "|", lambda text: sides.search(text) is not None)
    look(terminal, "f", lambda text: "README.md" not in text)
    look(terminal, "f", lambda text: "README.md" in text)
    look(terminal, "|", lambda text: sides.search(text) is None)
    look(terminal, "v", lambda text: "Raw arguments" in text)
    look(terminal, "v", lambda text: "Raw arguments" not in text)


def look(terminal: ChatTerminal, key: str, shows: Callable[[str], bool]) -> None:
    """Press a key until the dialog shows what it should: after the terminal lagged, a key does nothing."""
    give_up = time.monotonic() + PATIENCE
    while not shows(terminal.text()):
        assert time.monotonic() < give_up, f"{key} does nothing:\n{terminal.text()}"
        terminal.press(key)
        again = time.monotonic() + 5.0
        while not shows(terminal.text()) and time.monotonic() < again:
            time.sleep(0.05)
