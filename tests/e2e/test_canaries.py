"""Keys of a model, a server and a credential are nowhere but where they are used, whatever repeats them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chatops.domain.known_keys import spellings
from chatops.store.backup import make_backup
from tests.e2e.installation import Installation, registry
from tests.mcp.conftest import entry, tool
from tests.sandbox.test_credentials import SECRET
from tests.sandbox.test_credentials import server as credential_server
from tests.support.command_line import Ran, program, program_environment
from tests.support.fake_openai import FakeOpenAI, Reply, call, calls, error, says
from tests.support.processes import family
from tests.support.waiting import PATIENCE
from tests.tools.running import needs_sandbox

server = credential_server
MODEL, SERVER = "mk-6b1d0f42a97c-canary", "st-e83a5c19d704-canary"
FORMS = [form.encode() for form in spellings([MODEL, SERVER, SECRET])]
HELD = [form.encode() for form in spellings([MODEL, SECRET])]
"""What no child has: the key of a server is in the environment of that server."""
COMMAND = (
    "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; "
    'curl -sS -i -m 20 -H "Authorization: Bearer $API_TOKEN" "$API_TOKEN_BASE_URL/plain"; '
    "touch ready; while [ ! -e go ]; do sleep 0.1; done"
)


@needs_sandbox
@pytest.mark.more
def test_no_key_gets_out(installation: Installation, monkeypatch: pytest.MonkeyPatch, server: int) -> None:
    monkeypatch.setenv("MODEL_KEY", MODEL)
    monkeypatch.setenv("SERVER_KEY", SERVER)
    work, found = installation.workspace, dict[str, bytes]()
    (work / "tools.json").write_text(json.dumps([tool("environment")]))
    told = f"{MODEL} {SERVER} {SECRET}"

    def run(*arguments: str) -> Ran:
        ran = program(*installation.flags, *arguments, cwd=work)
        found[" ".join(arguments)] = f"{ran.out}\n{ran.err}".encode()
        return ran

    replies: list[Reply] = [
        calls(call("h__environment")),
        calls(call("shell_exec", command=COMMAND)),
        error(401, f"bad keys {told}"),
    ]
    with FakeOpenAI(lambda request: replies.pop(0) if replies else says(f"They are {told}.")) as model:
        contents = registry(model.url)
        contents["models"]["local"]["api_key_env"] = "MODEL_KEY"
        contents["mcp_servers"] = {"h": entry(env={"API_KEY": "${SERVER_KEY}"})}
        contents["roles"]["coder"]["tools"] = ["h__*", "shell_exec"]
        header = "Authorization: Bearer {}"
        credential = {f"127.0.0.1:{server}": {"env": "API_TOKEN", "header": header}}
        contents["sandbox"] = {"credentials": credential}
        installation.use(contents)

        ran = run("-p", "go", "--role", "coder", "--output-format", "json", "--approve", "h__environment")
        assert ran.code == 3, ran.err
        session, waiting = ran.json["session_id"], ran.json["pending"][0]["id"]
        run("approvals", "show", waiting)
        assert run("approvals", "approve", waiting).code == 0

        resume = [sys.executable, "-m", "chatops", *installation.flags, "resume", session]
        with subprocess.Popen(resume, cwd=work, env=program_environment(), stdout=-1, stderr=-1) as dying:
            give_up = time.monotonic() + PATIENCE
            while not (work / "ready").exists():
                assert dying.poll() is None and time.monotonic() < give_up
                time.sleep(0.05)
            for one in family(dying.pid, mark=str(work)):
                place = Path(f"/proc/{one.pid}")
                found[f"argv of {one.pid}"] = place.joinpath("cmdline").read_bytes()
                if one.pid not in (dying.pid, os.getpid()):
                    held = place.joinpath("environ").read_bytes()
                    assert not [form for form in HELD if form in held]
            dying.kill()
            found["killed"] = b"".join(dying.communicate())

        run("resume", session)
        run("-p", "fail", "--role", "coder", "--output-format", "stream-json")
        run("-p", "say them", "--role", "coder")
        for to in ("md", "html", "jsonl", "openai"):
            run("sessions", "export", session, "--format", to)
        for words in (("sessions", "show", session), ("audit", "export"), ("approvals", "list"), ("doctor",)):
            run(*words)
    assert make_backup(installation.home / "data" / "chatops.db", idle=lambda: True)
    files = [file for file in installation.home.rglob("*") if file.is_file()]
    found |= {str(file): file.read_bytes() for file in (*files, *work.iterdir()) if file.is_file()}
    assert any(name.endswith("chatops.db") for name in found)
    leaks = [(name, form) for name, data in found.items() for form in FORMS if form in data]
    assert not leaks
