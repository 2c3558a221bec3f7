"""The chat on a real terminal against a hostile model and a hostile workspace."""

import re
import threading
from pathlib import Path

import pytest

from tests.e2e.installation import TITLE, Installation, registry
from tests.support.fake_openai import Call, FakeOpenAI, Wait, call, calls, says

PAYLOADS = (
    "\x1b]52;c;Q0FOQVJZ\x07",
    "\x1b]0;PWNED\x07",
    "\x1b]8;;http://evil.test\x1b\\click\x1b]8;;\x1b\\",
    "\x1bP+q544e\x1b\\",
    "\x1b[6n",
    "\x9b2J",
    "\x9d0;PWNED\x9c",
    "\x1b]777;notify;PWNED;x\x07",
)
HOSTILE = " ".join(PAYLOADS)
FORBIDDEN = (b"]52;c;Q0FOQVJZ", b"]0;PWNED", b"]777;notify", b"+q544e")


@pytest.fixture
def installation(tmp_path: Path, chatops_home: Path) -> Installation:
    """A workspace whose files try things."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    (workspace / "note.txt").write_text(f"before {HOSTILE} after\n")
    (workspace / "x\x1b]0;PWNED\x07.txt").write_text("x")
    return Installation(workspace, chatops_home)


def introduced(raw: bytes) -> list[bytes]:
    """Payloads that stand in `raw` right behind the character that would make a terminal obey them."""
    return [
        bad
        for bad in FORBIDDEN
        if re.search(rb"(?:\x1b|\xc2[\x80-\x9f])" + re.escape(bad[:1]) + re.escape(bad[1:]), raw)
    ]


def test_no_surface_passes_a_sequence_on(installation: Installation) -> None:
    script = [
        calls(call("file_read", path="note.txt"), call("file_search", pattern="x", path="."), text=HOSTILE),
        calls(Call(name=f"x{HOSTILE}", arguments="{}"), Call(name="file_read", arguments=f'{{"path": "{HOSTILE}"}}')),
        calls(call("shell_exec", command=f"echo '{HOSTILE}'"), text=f"# {HOSTILE}\n\n- `{HOSTILE}`", reasoning=HOSTILE),
        says(HOSTILE),
    ]
    with FakeOpenAI(script) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as chat:
            chat.ready("coder")
            chat.say(f"go on {PAYLOADS[1][2:6]}")
            chat.wait_for(TITLE)
            assert "␛" in chat.text()
            chat.press("d")
            chat.wait_for("␛")
            raw = bytes(chat.raw)
    assert introduced(raw) == []


def test_keys_typed_ahead_do_not_approve(installation: Installation) -> None:
    typed = threading.Event()
    script = [calls(call("shell_exec", command="touch PWNED"), wait=Wait(event=typed)), says("DONE")]
    with FakeOpenAI(script) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as chat:
            chat.ready("coder")
            chat.say("go")
            chat.wait_for("▌ go")
            for number, keys in enumerate(("a", "ay", "y", "a"), start=1):
                chat.say(keys)
                chat.wait_for(f"{number} queued")
            typed.set()
            chat.wait_for(TITLE)
            chat.send("y\r")
            assert TITLE in chat.text()
    assert not (installation.workspace / "PWNED").exists()
    assert list(installation.journal()) == []


@pytest.mark.attacks
def test_headless_surfaces_pass_nothing_on(installation: Installation) -> None:
    script = [calls(call("shell_exec", command=f"echo '{HOSTILE}'"), text=HOSTILE), says(HOSTILE)]
    with FakeOpenAI(script) as server:
        installation.use(registry(server.url))
        asked = installation.run("-p", f"title {HOSTILE}", "--role", "coder")
        assert asked.code == 3
        session = installation.session().id
        with installation.store() as store:
            (queued,) = store.pending_calls()
        id_ = queued.pending.call.id
        seen = [
            asked,
            installation.run("approvals", "list"),
            installation.run("approvals", "show", id_),
            installation.run("sessions", "list"),
        ]
        seen += [installation.run("approvals", "deny", id_, "--reason", HOSTILE), installation.run("resume", session)]
        seen += [
            installation.run("audit", "list"),
            installation.run("sessions", "search", "title"),
            installation.run("policy", "list"),
        ]
        json_out = installation.run("sessions", "show", session, "--output-format", "json")
    for ran in seen:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", ran.err), ran.err
    # Tables and descriptions are ours; an answer in a pipe is the model's text as it is.
    for ran in (seen[1], seen[2], seen[3], seen[6], seen[7], seen[8]):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", ran.out), ran.out
    assert json_out.out.isascii() and "\x1b" not in json_out.out
