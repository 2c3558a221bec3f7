"""``chatops audit``: every verdict in a chain, and what an anchor proves."""

import asyncio
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from chatops import Chat
from chatops.store.audit import link
from tests.acp.editing import editing, said
from tests.cli.test_own_tools import PACKAGE, trusted
from tests.cli.test_skills import reads, skill, write
from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, call, calls, says
from tests.support.terminal import Terminal

MORE = pytest.mark.more
DOCS = Path(__file__).parents[2] / "docs" / "audit.md"


def finished(chatops: CommandLine) -> str:
    """Run a session with a call that asks and is approved; return its id."""
    session, call = chatops.paused("run `touch made.txt`")
    assert chatops("approvals", "approve", call).code == 0
    assert chatops("resume", session).code == 0
    return session


def test_each_verdict_is_logged_with_what_it_was_judged_by(chatops: CommandLine) -> None:
    session = finished(chatops)
    (chatops.workspace / "notes.txt").write_text("hello")
    assert chatops("-r", session, "-p", "read notes.txt").code == 0
    rows = [json.loads(line) for line in chatops("audit", "export", "--session", session).out.splitlines()]
    kinds = [row["kind"] for row in rows]
    assert kinds == ["prompt", "verdict", "decision", "start", "result", "prompt", "verdict", "start", "result"]
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    asked, allowed = (row for row in rows if row["kind"] == "verdict")
    assert (asked["verdict"], asked["tool"], asked["facts"]["argv"]) == ("ask", "shell_exec", ["touch", "made.txt"])
    assert (allowed["verdict"], allowed["tool"]) == ("allow", "file_read")
    assert allowed["facts"]["arguments"] == {"path": "notes.txt"}
    for verdict in (asked, allowed):
        assert verdict["by"] == {"uid": os.getuid(), "via": "headless"}
        assert verdict["layer"] and verdict["level"] and verdict["role"] and len(verdict["registries"][-1]) > 5
        assert verdict["engine"] == "demo" and verdict["facts"]["workspace"] == str(chatops.workspace.resolve())
        assert verdict["digest"] in {row["digest"] for row in rows if row["kind"] == "start"}
    assert "hello" not in json.dumps(rows), "results are in the log by digest only"


@pytest.mark.parametrize("surface", ["headless", "python", *(pytest.param(one, marks=MORE) for one in ("acp", "tui"))])
def test_each_verdict_names_the_surface_and_its_user(chatops: CommandLine, chatops_home: Path, surface: str) -> None:
    """Of own tools, skills and calls above a viewer's level too."""
    folder, registry = chatops.workspace, chatops.workspace.parent / "registry.json"
    write(chatops_home / "config", {"skills/review/SKILL.md": skill("review"), "tools/moon.py": PACKAGE})
    trusted(chatops, chatops_home / "config" / "tools")
    asked = [
        call("file_read", path="note.txt"),
        reads("review"),
        call("moon", day=1),
        call("shell_exec", command="true"),
    ]
    with FakeOpenAI([calls(*asked), says("All done.")]) as server:
        models = {"m": {"api_url": server.url, "model_name": "m"}}
        users, roles = {"*": {"access_level": "viewer"}}, {"coder": {"primary": "m"}}
        registry.write_text(json.dumps({"version": 3, "models": models, "roles": roles, "users": users}))
        flags = ("--registry", str(registry), "--role", "coder")
        match surface:
            case "headless":
                assert chatops(*flags, "-p", "go").code == 0
            case "python":
                assert Chat(role="coder", workspace=folder, registry=registry).send("go").text == "All done."
            case "acp":
                asyncio.run(prompted_in_an_editor(flags, folder))
            case "tui":
                with Terminal([sys.executable, "-m", "chatops", *flags], cwd=folder) as terminal:
                    terminal.wait_for("ctx ")
                    terminal.send("go")
                    terminal.press("enter")
                    terminal.wait_for("All done.")
    verdicts = [row for row in chatops("audit", "list", "--output-format", "json").json if row["kind"] == "verdict"]
    met = dict(zip((one.name for one in asked), ("allow", "allow", "deny", "deny"), strict=True))
    assert {row["tool"]: row["verdict"] for row in verdicts} == met
    assert {json.dumps(row["by"]) for row in verdicts} == {json.dumps({"uid": os.getuid(), "via": surface})}
    assert {row["level"] for row in verdicts} == {"viewer"}


async def prompted_in_an_editor(flags: tuple[str, ...], folder: Path) -> None:
    async with editing(*flags) as editor:
        session = await editor.agent.new_session(cwd=str(folder), mcp_servers=[])
        await editor.agent.prompt(session.session_id, said("go"))


def test_the_list_keeps_the_order_of_a_session_when_the_clock_was_set_back(chatops: CommandLine) -> None:
    session = finished(chatops)
    path = next(Path(os.environ["CHATOPS_HOME"]).rglob("*.db"))
    with closing(sqlite3.connect(path)) as rows, rows:
        for number, body in rows.execute("SELECT number, body FROM audit").fetchall():
            later = re.sub(r'"at":[\d.]+', f'"at":{2_000_000_000 - number}', body)
            rows.execute("UPDATE audit SET body = ? WHERE number = ?", (later, number))
    listed = json.loads(chatops("audit", "list", "--output-format", "json").out)
    assert [row["kind"] for row in listed] == ["prompt", "verdict", "decision", "start", "result"]
    assert {row["session"] for row in listed} == {session}


def test_an_anchor_finds_whatever_is_done_to_the_rows(chatops: CommandLine, tmp_path: Path) -> None:
    """Who knows how writes the whole chain anew: only the anchor finds that."""
    session = finished(chatops)
    anchor = tmp_path / "anchor.jsonl"
    assert chatops("audit", "export", "-o", str(anchor)).code == 0
    finished(chatops)
    bare = chatops("audit", "verify")
    assert bare.code == 0 and "This proves nothing" in bare.out
    proven = chatops("audit", "verify", "--anchor", str(anchor))
    assert proven.code == 0 and "5 rows proven by the anchor, 5 " in proven.out, proven.out
    path = next(Path(os.environ["CHATOPS_HOME"]).rglob("*.db"))
    with closing(sqlite3.connect(path)) as raw:
        of_session = "FROM audit WHERE session_id = ?"
        sound = raw.execute(f"SELECT body, chain {of_session} ORDER BY number", (session,)).fetchall()
        pick = random.Random(7)
        for change in (removed, changed, reordered, inserted, cut_off):
            for anew in (False, True):
                rows, chain = list(sound), ""
                change(rows, pick)
                raw.execute(f"DELETE {of_session}", (session,))
                for number, (body, stored) in enumerate(rows, 1):
                    if anew:
                        body = re.sub(r'"number":\d+', f'"number":{number}', body)
                        chain = stored = link(chain, body)
                    columns = "(session_id, number, body, chain) VALUES (?, ?, ?, ?)"
                    raw.execute(f"INSERT INTO audit {columns}", (session, number, body, stored))
                raw.commit()
                found = chatops("audit", "verify", "--anchor", str(anchor))
                assert found.code == 1 and f"FAULT  session {session}" in found.out, (change, anew, found.out)
                if anew:
                    assert chatops("audit", "verify").code == 0, "without an anchor nothing is found"


Rows = list[tuple[str, str]]


def removed(rows: Rows, pick: random.Random) -> None:
    del rows[pick.randrange(len(rows) - 1)]


def changed(rows: Rows, pick: random.Random) -> None:
    place = pick.randrange(len(rows))
    rows[place] = (re.sub(r'"at":[\d.]+', '"at":1', rows[place][0]), rows[place][1])


def reordered(rows: Rows, pick: random.Random) -> None:
    place = pick.randrange(len(rows) - 1)
    rows[place], rows[place + 1] = rows[place + 1], rows[place]


def inserted(rows: Rows, pick: random.Random) -> None:
    place = pick.randrange(len(rows) - 1)
    rows.insert(place, rows[place])


def cut_off(rows: Rows, pick: random.Random) -> None:
    del rows[pick.randrange(1, len(rows)) :]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_receipt_is_checked_without_chatops(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = finished(chatops)
    key, receipt = tmp_path / "key", tmp_path / "receipt.jsonl"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    export = ("audit", "export", "--session", session, "--texts", "-o", str(receipt))
    assert chatops(*export, "--sign", str(tmp_path / "none")).code == 2
    assert chatops("audit", "export", "--sign", str(key)).code == 2, "a signature is of a file"
    assert chatops(*export, "--sign", str(key)).code == 0
    (tmp_path / "allowed").write_text(f"ana {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "allowed"), "-I", "ana", "-n", "chatops-audit"]
    verify += ["-s", f"{receipt}.sig"]
    assert subprocess.run(verify, input=receipt.read_bytes(), check=False, capture_output=True).returncode == 0
    for why in ("No such file or directory.\nInstall OpenSSH.", "Permission denied."):
        with monkeypatch.context() as patched:
            patched.setenv("PATH", str(tmp_path))
            ran = chatops("audit", "export", "-o", str(tmp_path / "second"), "--sign", str(key))
        assert ran.code == 2 and ran.err.partition("ssh-keygen: ")[2].strip() == why
        (tmp_path / "ssh-keygen").touch()  # it may not be run
    script = tmp_path / "check.py"
    script.write_text(DOCS.read_text().partition("<!-- receipt -->\n```python\n")[2].partition("```")[0])

    def check() -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, script, receipt], check=False, capture_output=True, text=True)

    whole = receipt.read_text()
    assert chatops(*export).code == 1 and receipt.read_text() == whole, "no earlier anchor is lost"
    sound = check()
    assert sound.returncode == 0 and "1 texts fit" in sound.stdout, sound.stderr
    for was, now in (("run `touch", "run `rm"), ('"approved"', '"rejected"'), ('"success"', '"failed"')):
        assert was in whole
        receipt.write_text(whole.replace(was, now))
        assert check().returncode == 1, was
    receipt.write_text("".join(line for line in whole.splitlines(keepends=True) if '"verdict"' not in line))
    assert check().returncode == 1
