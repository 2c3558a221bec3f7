"""An editor that sends whatever it likes, at random, to the real agent: it decides nothing that it was not asked.

Each call has a fate, which follows from the seed: nobody answers the question about it as offered, or it is rejected,
or it is allowed at once. All else is noise: answers that were not offered, second ones, those of other questions,
requests of any shape, floods, halves of frames, and deaths. ``FUZZ_SECONDS=1800`` goes on for half an hour, and
``FUZZ_SEED`` begins with a seed that a failure has named.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from chatops.acp.stdio import MAX_FRAME_BYTES
from chatops.wiring.stored import open_store
from tests.acp.test_asking import log
from tests.fuzz.bounded import SECONDS
from tests.support.command_line import program_environment
from tests.support.processes import running
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.more

SECRET = "Only outside of the folder."
METHODS = [
    "initialize", "authenticate", "logout", "session/new", "session/load", "session/list", "session/resume",
    "session/close", "session/fork", "session/delete", "session/prompt", "session/cancel", "session/set_mode",
    "session/set_model", "session/set_config_option", "session/request_permission", "session/update",
    "elicitation/create", "elicitation/complete", "fs/read_text_file", "terminal/create", "$/cancel_request",
    "_decide", "", "../session/new",
]  # fmt: skip
FIELDS = [
    "sessionId", "cwd", "mcpServers", "additionalDirectories", "prompt", "modeId", "configId", "value", "cursor",
    "protocolVersion", "clientInfo", "clientCapabilities", "options", "toolCall", "outcome", "_meta", "replay",
]  # fmt: skip
TEXTS = [
    "", "a", "reader", "assistant", "model", "demo", ":role", "\x00",
    "\u202etxt.exe", "a\u200bb", "**bold** `x`", "<b>",
    "[x](http://evil.example)", "\ud800", "..", "../..", "/", "/etc", "~", "x" * 5000, "allow", "allow_once", "0", "-1",
    "99999999999999999999", "/compact", "/compact undo", "/workflow", "/workflow run a b", "/tools", "/permissions",
    "/doctor", "/approve", "!touch hacked.txt", "!!touch hacked.txt", "@../secret.txt", '@"../secret.txt"', "@note.txt",
    "read ../secret.txt", "read note.txt", "hello",
]  # fmt: skip


class Hostile:
    """The client, with one agent after the other over the same store."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.fates: dict[str, str] = {}
        """What is done about each call, by its id."""
        self.void: set[str] = set()
        """Calls whose allow the agent has declared void."""
        self.sent: list[dict[str, Any]] = []
        """Answers that were offered and sent, to be sent again."""
        self.sessions = [""]
        self.faults: list[str] = []
        self._numbers = iter(range(1_000_000, 10**12))
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "chatops", "--workspace", str(self.folder), "acp"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, cwd=self.folder, env=program_environment(), stderr=pipe
        )
        self.dying = False
        self.answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._writing = threading.Lock()
        self._readers = [threading.Thread(target=one, args=(self.process,)) for one in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()
        forms: dict[str, Any] = {"elicitation": {"form": {}}} if self.random.random() < 0.3 else {}
        info = {"name": self.random.choice(TEXTS[7:13]), "version": "1"}
        self.ask("initialize", protocolVersion=1, clientInfo=info, clientCapabilities=forms)

    # What the agent says

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if SECRET.encode() in line:
                self.faults.append("it has shown what is outside of the folder")
            try:
                message = json.loads(line)
            except ValueError:
                if line.endswith(b"\n"):
                    self.faults.append(f"standard output has {line[:200]!r}")
                continue
            if message.get("method") == "session/request_permission":
                self._decide(message)
            elif "method" in message:
                self._watch(message)
            else:
                if message.get("error", {}).get("code") == -32603:
                    said = (Path(os.environ["CHATOPS_HOME"]) / "log" / "chatops.log").read_text()
                    self.faults.append(f"an error of the agent: {message}\n{said[-6000:]}")
                self.answers.put(message)

    def _read_errors(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        if b"Traceback" in (errors := process.stderr.read()):
            self.faults.append(errors.decode("utf-8", "replace"))

    def _watch(self, message: dict[str, Any]) -> None:
        """Remember which allow was void; answer forms with anything."""
        text = json.dumps(message)
        if "before anyone could read it" in text:
            self.void |= {call for call in self.fates if f"approvals show {call}" in text}
        if message["method"] == "elicitation/create":
            action = random.choice(["decline", "cancel", "accept", "zzz"])
            self.answer(message["id"], {"action": action, "content": {"reason": random.choice(["", 3, None])}})

    def _decide(self, message: dict[str, Any]) -> None:
        """Answer a question as its call's fate wants it, with wrong answers around it."""
        params, id = message["params"], message["id"]
        call, options = params["toolCall"]["toolCallId"], params["options"]
        chance = random.Random(call)
        fate = self.fates.setdefault(call, chance.choice(["nothing", "nothing", "rejected", "at once"]))
        right = {"rejected": options[0], "at once": options[-1]}.get(fate)
        wrong = [one["optionId"].rpartition("-")[0] for one in options] + [one["kind"] for one in options]
        noise: list[tuple[Any, Any]] = [(id + 1 + number, options[-1]["optionId"]) for number in range(3)]
        noise += [(-1, options[-1]["optionId"]), (str(id), options[-1]["optionId"])]
        for other, option in noise:
            self.answer(other, {"outcome": {"outcome": "selected", "optionId": option}})
        for old in chance.sample(self.sent, min(3, len(self.sent))):
            self.answer(chance.choice([id + 5, old["id"] + 1_000]), old["result"])
        if right is None:
            outcomes: list[Any] = [
                {"outcome": {"outcome": "selected", "optionId": chance.choice(wrong)}},
                {"outcome": {"outcome": "cancelled", "optionId": options[-1]["optionId"]}},
                {"outcome": {"outcome": "allowed"}},
                {"outcome": options[-1]["optionId"]},
                {},
                None,
                [],
                options[-1]["optionId"],
            ]
            if chance.random() < 0.7:
                self.answer(id, chance.choice(outcomes))
                # A second answer, as it was offered, comes too late.
                self.answer(id, {"outcome": {"outcome": "selected", "optionId": options[-1]["optionId"]}})
            return
        result = {"outcome": {"outcome": "selected", "optionId": right["optionId"]}}
        self.sent.append({"id": id, "result": result})
        self.answer(id, result)
        last = {"outcome": {"outcome": "selected", "optionId": options[-1]["optionId"]}}
        self.answer(id, last)

    # What is sent

    def write(self, frames: bytes) -> None:
        assert self.process.stdin is not None
        with self._writing:
            try:
                self.process.stdin.write(frames)
                self.process.stdin.flush()
            except (OSError, ValueError):
                if not self.dying:
                    self.faults.append("the agent has closed its input")

    def answer(self, id: Any, result: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")

    def request(self, method: Any, **params: Any) -> int:
        id = next(self._numbers)
        self.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n")
        return id

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request until it is not refused because of others, and return its answer."""
        while True:
            id = self.request(method, **params)
            while (found := self.answers.get(timeout=PATIENCE)).get("id") != id:
                pass
            if "Too many requests" not in found.get("error", {}).get("message", ""):
                return found
            time.sleep(0.05)

    def value(self, depth: int = 3) -> Any:
        """Any JSON value, some of it as the protocol wants it."""
        pick, below = self.random.random(), depth - 1
        if pick < 0.15:
            return self.random.choice(self.sessions)
        if pick < 0.3:
            return str(self.folder / self.random.choice(["", "..", "../other", "link", "sub", "\x00", "sub/../.."]))
        if pick < 0.6 or depth == 0:
            return self.random.choice([*TEXTS, None, True, 0, -1, 1e300, 2**80])
        if pick < 0.75:
            return [self.value(below) for _ in range(self.random.randrange(4))]
        if pick < 0.9:
            return self.block()
        names = [*FIELDS, *TEXTS[:8]]
        return {self.random.choice(names): self.value(below) for _ in range(self.random.randrange(5))}

    def block(self) -> dict[str, Any]:
        """A part of a prompt."""
        uris = [
            (self.folder / "../secret.txt").as_uri(), f"file://{self.folder}/%2e%2e/secret.txt",
            f"file://localhost{self.folder}/note.txt", f"file://{self.folder}/x%22%0a@../secret.txt", "file:///etc/passwd",
            "file:secret.txt", "http://[", f"FILE://{self.folder}/link/secret.txt", f"file://{self.folder}/%00", "//x",
        ]  # fmt: skip
        uri, text = self.random.choice(uris), self.random.choice(TEXTS)
        blocks: list[dict[str, Any]] = [
            {"type": "text", "text": text},
            {"type": "resource_link", "name": text, "uri": uri},
            {"type": "resource", "resource": {"uri": uri, "text": text}},
            {"type": "image", "data": self.random.choice(["", "AAAA", "%%%", text]), "mimeType": text},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": text},
        ]
        return self.random.choice(blocks)

    def act(self) -> None:
        """Do one thing."""
        pick, session = self.random.random(), self.random.choice(self.sessions)
        if pick < 0.1:
            self.open()
        elif pick < 0.25:
            number = next(self._numbers)
            asks = [
                f'use scratch_write {{"text": "n{number}"}}',
                f'use file_edit {{"path": "note.txt", "old": "invoice", "new": "n{number}"}}',
                f'use shell_exec {{"command": "touch made-{number}"}}',
            ]
            self.request(
                "session/prompt", sessionId=session, prompt=[{"type": "text", "text": self.random.choice(asks)}]
            )
        elif pick < 0.35:
            parts = [self.block() for _ in range(self.random.randrange(5))]
            self.request("session/prompt", sessionId=session, prompt=parts)
        elif pick < 0.45:
            cancel = {"method": "session/cancel", "params": {"sessionId": session}}
            self.write(json.dumps(cancel).encode() + b"\n")
        elif pick < 0.75:
            names = self.random.sample(FIELDS, self.random.randrange(5))
            given = {name: self.value() for name in names}
            if self.random.random() < 0.5:
                given["sessionId"] = session
            self.request(self.random.choice(METHODS), **given)
        elif pick < 0.85:
            self.write(json.dumps(self.value()).encode() + b"\n")
        elif pick < 0.95:
            self.write(self.random.randbytes(self.random.randrange(200)) + b"\n")
        elif pick < 0.98:
            flood = [b"nonsense", b"[]", b'{"id":1,"result":{}}', b'{"id":7,"method":"session/list"}', b"{" * 200]
            self.write((self.random.choice(flood) + b"\n") * self.random.randrange(1, 2000))
        elif pick < 0.985:
            self.write(b'{"x":"' + b"a" * (MAX_FRAME_BYTES + self.random.randrange(3)) + b'"}\n')

    def open(self) -> None:
        """Open a session, or one from before."""
        if len(self.sessions) > 8:
            self.ask("session/close", sessionId=self.sessions.pop(1))
        old = self.random.choice(self.sessions)
        if old and self.random.random() < 0.3:
            how = self.random.choice(["session/load", "session/resume"])
            self.ask(how, sessionId=old, cwd=str(self.folder), mcpServers=[])
            return
        opened = self.ask("session/new", cwd=str(self.folder), mcpServers=[])
        self.sessions += [opened["result"]["sessionId"]] if "result" in opened else []

    def die(self) -> None:
        """End this agent in some way, and start the next one."""
        # It still answers.
        assert "result" in self.ask("session/list")
        assert self.process.stdin is not None
        how, self.dying = self.random.choice(["end", "half", "kill", "term"]), True
        if how == "kill":
            self.process.kill()
        elif how == "term":
            self.process.terminate()
        else:
            self.write(b'{"jsonrpc":"2.0","id":5,"meth' if how == "half" else b"")
            self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.stop()
        assert code == (-9 if how == "kill" else 0), (how, code)
        self._start()

    def stop(self) -> None:
        """End the agent, and wait for what it has written."""
        self.dying = True
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue

    def check(self) -> dict[str, int]:
        """Compare what was decided and done with what was answered as offered. Return how often each happened."""
        assert not self.faults, self.faults[0]
        decided: dict[str, str] = {}
        for row in log(self.folder):
            assert row["call_id"] not in decided, row
            decided[row["call_id"]] = row["decision"]["kind"]
        for call, what in decided.items():
            fate = self.fates.get(call, "nothing")
            assert {"rejected": fate == "rejected", "approved": fate == "at once" and call not in self.void}[what], call
        made = {one.name for one in self.folder.iterdir()}
        with open_store() as store:
            waiting = {one.pending.call.id for one in store.pending_calls()}
            assert not waiting & decided.keys()
            assert {one.workspace for one in store.sessions(limit=10**6)} == {str(self.folder)}
        approved = sum(what == "approved" for what in decided.values())
        assert len(made - {"note.txt", "sub", "link"}) <= approved and "hacked.txt" not in made, made
        assert (self.folder / "note.txt").read_text() == "The invoice is due on Friday.\n"
        return {
            "asked": len(self.fates),
            "rejected": len(decided) - approved,
            "approved": approved,
            "void": len(self.void),
            "waiting": len(waiting),
        }


@pytest.fixture
def surroundings(folder: Path, registry: Path) -> Iterator[Path]:
    (folder.parent / "secret.txt").write_text(SECRET)
    (folder.parent / "other").mkdir()
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(folder.parent)
    yield folder


def test_nothing_that_is_sent_at_random_decides_what_was_not_answered_as_offered(surroundings: Path) -> None:
    number = int(os.environ.get("FUZZ_SEED", random.randrange(10**9) if SECONDS else 0))
    start, done, rounds = time.monotonic(), {}, 0
    client = Hostile(surroundings, number)
    try:
        # Without FUZZ_SECONDS a fixed number of actions.
        while time.monotonic() - start < SECONDS or rounds < 3:
            for _ in range(150):
                client.act()
                time.sleep(client.random.choice([0, 0, 0.02]))
            client.die()
            rounds += 1
            done = client.check()
    except (AssertionError, Empty) as failure:
        failure.add_note(f"FUZZ_SEED={number}, round {rounds}; the agent runs: {running(client.process.pid)}")
        raise
    finally:
        client.stop()
    print(f"{rounds} agents in {time.monotonic() - start:,.0f} s, from FUZZ_SEED={number}: {done}")
    assert done["asked"] and done["waiting"]
