"""The same secrets on every surface: terminal, page, editor, child session, exports, with the key in the keyring.

The model repeats them letter by letter, in its words, in a call and in errors; a server has one in a header.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatops.domain.known_keys import spellings
from tests.acp.test_frames import Wire
from tests.e2e.installation import Installation, registry
from tests.sandbox.test_credentials import SECRET
from tests.sandbox.test_credentials import server as credential_server
from tests.serve.served import serving
from tests.support.command_line import REPOSITORY
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, error, says
from tests.support.processes import family
from tests.support.waiting import PATIENCE
from tests.tools.running import needs_sandbox

server = credential_server
MODEL, HEADER, DATABASE = 'mk-41/d"7f+c09b&canary', "hk-5e0b91d7ac34-canary", "pw-83ca6f0d12be-canary"
TOLD = f"{MODEL} {HEADER} {SECRET}"
FORMS = [form.encode() for form in spellings([MODEL, HEADER, SECRET, DATABASE])]
WAITS = "env; cat /proc/*/environ; touch ready; while [ ! -e go ]; do sleep 0.1; done"
KEYRING = f"def get_password(service, user):\n    return {MODEL!r}\n"
_SPLIT = re.compile(rb"\x1b\[[0-9;:?<>=]*[ -/]*[@-~]|\s+|\xe2\x94\x82")


def replies(request: SeenRequest) -> Reply:
    """What the model says to a word of the user; after a call that it is done, with all of them."""
    if request.messages[-1]["role"] == "tool":
        return says(f"Done, {TOLD}.", pieces=len(TOLD))
    match request.last_user.split()[0]:
        case "hand":
            return calls(call("delegate", role="helper", task="tell"))
        case "wait":
            return calls(call("shell_exec", command=WAITS), text=f"I know {TOLD}.")
        case "fail":
            return error(401, f"bad keys {TOLD}")
        case "hide":
            return calls(call("shell_exec", command=f"echo {HEADER}"))
        case _:
            return says(f"They are {TOLD}. That is all.", pieces=len(TOLD) + 20)


def leaks(found: dict[str, bytes]) -> list[tuple[str, bytes]]:
    """Where a form of a secret is, also if it was cut by what moves the cursor, by lines or by parts of a stream."""
    joined = dict(found)
    for name, data in found.items():
        joined[f"{name}, without escapes"] = _SPLIT.sub(b"", data)
        joined[f"{name}, parts"] = b"".join(re.findall(rb'"text": ?"((?:[^"\\]|\\.)*)"', data))
    forms = [*FORMS, *(_SPLIT.sub(b"", form) for form in FORMS)]
    return [(name, form) for name, data in joined.items() for form in forms if form in data]


class Watched:
    """An installation with the keys, and all that its programs have shown."""

    def __init__(self, installation: Installation, monkeypatch: pytest.MonkeyPatch, url: str, server: int) -> None:
        self.installation, self.found = installation, dict[str, bytes]()
        modules = installation.workspace.parent / "modules"
        modules.mkdir()
        (modules / "keyring.py").write_text(KEYRING)
        contents = registry(url)
        contents["models"]["local"]["api_key_keyring"] = "chatops/local"
        contents["mcp_servers"] = {"far": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "${SERVER_KEY}"}}}
        contents["roles"]["coder"]["tools"] = ["far__*", "shell_exec", "delegate"]
        contents["roles"]["helper"] = {"primary": "local", "tools": []}
        contents["default_role"] = "coder"
        credential = {f"127.0.0.1:{server}": {"env": "API_TOKEN", "header": "Authorization: Bearer {}"}}
        contents["sandbox"] = {"credentials": credential}
        self.own = {"SERVER_KEY": HEADER, "API_TOKEN": SECRET, "PGPASSWORD": DATABASE, "CHATOPS_DEBUG": "1"}
        self.own |= {"CHATOPS_REGISTRY": str(installation.use(contents))}
        for name, value in self.own.items():
            monkeypatch.setenv(name, value)
        self.own["PYTHONPATH"] = f"{modules}{os.pathsep}{REPOSITORY}"

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a real program, which finds the key in the keyring."""
        argv, work = [sys.executable, "-m", "chatops", *words], self.installation.workspace
        return subprocess.Popen(argv, cwd=work, env=os.environ | self.own, stdin=-1, stdout=-1, stderr=-1)

    def run(self, *words: str, code: int | None = 0) -> str:
        with self.start(*words) as program:
            out, err = program.communicate(timeout=PATIENCE)
        assert code is None or program.returncode == code, err.decode()
        self.found[" ".join(words)] = out + b"\n" + err
        return out.decode()

    def look(self, *words: str, code: int | None = 0) -> str:
        """Run a command that asks no model."""
        done = self.installation.run(*words)
        assert code is None or done.code == code, done.err
        self.found[" ".join(words)] = f"{done.out}\n{done.err}".encode()
        return done.out

    def leaks(self) -> list[tuple[str, bytes]]:
        """Return what was found of secrets, in files too."""
        folders = (self.installation.home, self.installation.workspace)
        files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
        return leaks(self.found | {str(file): file.read_bytes() for file in files})


@pytest.fixture
def watched(installation: Installation, monkeypatch: pytest.MonkeyPatch, server: int) -> Iterator[Watched]:
    with FakeOpenAI(replies) as model:
        yield Watched(installation, monkeypatch, model.url, server)


@needs_sandbox
@pytest.mark.more
def test_no_terminal_and_no_child_gets_a_key(watched: Watched) -> None:
    work, found = watched.installation.workspace, watched.found
    with watched.installation.open(env=watched.own | {"LANG": "C.UTF-8"}) as chat:
        chat.ready("coder")
        chat.say("say them")
        chat.wait_for("That is all.")
        chat.say("wait for me")
        chat.decide("a")
        chat.wait_until(lambda _: (work / "ready").exists(), what="the command to start")
        for one in family(chat.pid, mark=str(work)):
            place = Path(f"/proc/{one.pid}")
            found[f"argv of {one.pid}"] = place.joinpath("cmdline").read_bytes()
            if one.pid not in (chat.pid, os.getpid()):
                found[f"environment of {one.pid}"] = place.joinpath("environ").read_bytes()
        (work / "go").touch()
        chat.wait_for("Done, ")
        chat.wait_quiet(0.5)
        found["terminal"] = chat.raw
        found["screen"] = chat.text().encode()
    assert b"[key]" in found["screen"] and any(name.startswith("environment") for name in found)
    assert watched.leaks() == []


@needs_sandbox
@pytest.mark.more
def test_no_page_editor_export_or_child_session_shows_a_key(watched: Watched) -> None:
    work, found = watched.installation.workspace, watched.found
    watched.run("-p", "hand it over", "--output-format", "stream-json")
    watched.run("-p", "fail", "--output-format", "json", code=None)
    watched.run("-p", "hide it", code=None)
    paused = json.loads(watched.run("-p", "wait", "--output-format", "json", code=3))
    waiting = paused["pending"][0]["id"]
    with watched.start("acp") as agent:
        frames = Frames(agent)
        frames.request(1, "initialize", protocolVersion=1)
        opened = frames.request(2, "session/new", cwd=str(work), mcpServers=[])
        prompt = [{"type": "text", "text": "say them"}]
        frames.request(3, "session/prompt", sessionId=opened["result"]["sessionId"], prompt=prompt)
        agent.kill()
    found["frames"] = frames.seen
    with serving(watched.installation.home, work) as desk:
        cookie = desk.log_in(desk.links[0])
        for path in ("/", f"/call/{waiting}"):
            page = desk.get(path, cookie=cookie)
            assert page.status == 200
            found[f"page {path}"] = page.text.encode()
    sessions = [str(one["id"]) for one in json.loads(watched.look("sessions", "list", "--output-format", "json"))]
    for session in sessions:
        watched.look("sessions", "show", session)
        for to in ("md", "html", "jsonl", "openai"):
            watched.look("sessions", "export", session, "--format", to)
    (child,) = (name for name, data in found.items() if name.endswith("--format md") and b"tell" in data)
    for shown in (child, "frames", f"page /call/{waiting}", "-p hand it over --output-format stream-json"):
        assert b"[key]" in found[shown], shown
    watched.look("audit", "export", "--texts", "-o", str(work / "receipt.jsonl"))
    watched.look("policy", "test", "--from-history", str(work / "policy.json"))
    for words in ("audit list", "policy replay", "approvals list", f"approvals show {waiting}", "models list"):
        watched.look(*words.split())
    for words in ("mcp list", "mcp check far", "jobs list", "store check", "doctor", "registry check"):
        watched.look(*words.split(), code=None)
    assert watched.leaks() == []


class Frames(Wire):
    """The wire, which keeps all that came."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(process)
        self.seen = b""

    def read(self) -> None:
        line = self._out.readline()
        self.seen += line
        found = json.loads(line)
        if "method" not in found:
            self.answers[found["id"]] = found
