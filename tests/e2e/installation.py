"""One user's installation: a workspace, a registry that points at a model server, terminals, the store."""

import json
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from chatops.store.base import JournalRow, SessionInfo
from chatops.store.store import Store
from tests.support.command_line import Ran, program, program_environment
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE

APPROVE = "a approve once"
"""On the screen once the end of the call has been seen."""
PAUSES = "act after a short pause."
"""On the screen while the dialog does not take all keys."""
TITLE = "Approve "
ALLOWED_TO_CODER = ["file_read", "file_search", "file_edit", "shell_exec", "scratch_write"]
ALLOWED_TO_RESEARCHER = ["web_fetch", "file_read", "scratch_write"]
CODER_SAYS = "You are in code-specialist mode. Say what you would run."
RESEARCHER_SAYS = "You are in research mode. Name your sources."
EFFECT = "printf x >> count.txt"
_PRESSED_AGAIN_S = 20.0
"""Seconds after which a deciding key is pressed again if nothing came of it. Pressed too soon, it becomes a message."""


def registry(url: str, *, host_type: str = "openai", users: dict[str, Any] | None = None) -> dict[str, Any]:
    """A registry with two roles on one server and one role that may do nothing, as people write it."""
    model = {
        "type": "openai",
        "host_type": host_type,
        "api_url": url,
        "model_name": "fake-model",
        "label": "Local",
        "timeout_s": {"connect": 5, "first_token": 60, "idle": 60},
    }
    roles = {
        "assistant": {"primary": "local", "tools": []},
        "coder": {"primary": "local", "system_append": CODER_SAYS, "tools": ALLOWED_TO_CODER},
        "researcher": {"primary": "local", "system_append": RESEARCHER_SAYS, "tools": ALLOWED_TO_RESEARCHER},
        "operator": {"primary": "local", "tools": ["shell_exec", "file_read"]},
    }
    return {
        "version": 3,
        "default_role": "assistant",
        "models": {"local": model},
        "roles": roles,
        "users": users or {"*": {"access_level": "operator"}},
    }


class Installation:
    """One user in one workspace; programs started here share the test's CHATOPS_HOME."""

    def __init__(self, workspace: Path, home: Path) -> None:
        self.workspace = workspace
        self.home = home
        self.flags: tuple[str, ...] = ()

    @classmethod
    def with_note(cls, workspace: Path, home: Path) -> Self:
        """At a new workspace, empty but for `note.txt`; nothing is configured."""
        workspace.mkdir()
        (workspace / "note.txt").write_text("The invoice is due on Friday.\n")
        return cls(workspace, home)

    def use(self, contents: dict[str, Any] | str) -> Path:
        """Write a registry beside the workspace; programs started from now on use it."""
        file = self.workspace.parent / "registry.json"
        file.write_text(contents if isinstance(contents, str) else json.dumps(contents))
        self.flags = ("--registry", str(file))
        return file

    def open(
        self,
        *arguments: str,
        python: Sequence[str] = ("-m", "chatops"),
        env: dict[str, str] | None = None,
        cols: int = 110,
        rows: int = 36,
        kitty: bool = False,
    ) -> "ChatTerminal":
        """The chat on a new terminal, which shows images if it is `kitty`."""
        env = {"PYTHONPATH": program_environment()["PYTHONPATH"], **(env or {})}
        started = [sys.executable, *python, *self.flags, *arguments]
        return ChatTerminal(started, env=env, cwd=self.workspace, cols=cols, rows=rows, kitty=kitty)

    @contextmanager
    def chat(
        self, replies: Iterable[Reply] | Callable[[SeenRequest], Reply], *, role: str = "coder", **terminal: Any
    ) -> Iterator[tuple[FakeOpenAI, "ChatTerminal"]]:
        """Open the chat in a role on a strict server with these replies. `terminal` is for `open`."""
        with FakeOpenAI(replies) as server:
            self.use(registry(server.url))
            with self.open("--role", role, **terminal) as chat:
                chat.ready(role)
                yield server, chat
        assert server.violations == []

    def run(self, *arguments: str) -> Ran:
        """A command in another terminal of the same user."""
        return program(*self.flags, *arguments, cwd=self.workspace)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, as another program sees it."""
        store = Store(self.home / "data" / "chatops.db")
        try:
            yield store
        finally:
            store.close()

    def session(self) -> SessionInfo:
        """The one conversation of this installation in which anything was said."""
        with self.store() as store:
            (info,) = (one for one in store.sessions() if one.messages)
        return info

    def journal(self) -> list[JournalRow]:
        """Every attempt to run a call in the last turn."""
        turn = self.session().last_turn
        assert turn is not None
        with self.store() as store:
            return store.journal(turn)

    def drafts(self) -> list[str]:
        """Return the stored drafts that are not empty."""
        with closing(sqlite3.connect(self.home / "data" / "chatops.db")) as raw:
            rows = raw.execute("SELECT value FROM settings WHERE key LIKE '%draft:%' AND value != ''")
            return [text for (text,) in rows]

    @property
    def count(self) -> int:
        """Return how often `EFFECT` took effect."""
        file = self.workspace / "count.txt"
        return len(file.read_text()) if file.exists() else 0


class ChatTerminal(Terminal):
    """The chat, used as a user uses it."""

    def press(self, *keys: str) -> None:
        """Press keys once a dialog on the screen takes them.

        It takes none within half a second of the terminal having lagged, which on a busy machine this one does.
        """
        self.wait_until(lambda text: self._ended or PAUSES not in text, what="the pause to end")
        if any(len(key) == 1 for key in keys) and "Esc later" in dialog_of(self.text()):
            self.wait_quiet(0.6)
        super().press(*keys)

    def say(self, text: str) -> None:
        """Type a message and send it.

        Commands that are refused while a turn runs wait for its end: an answer is on screen a moment before.
        """
        if text.startswith(("!", "/compact", "/edit", "/retry", "/undo")):
            self.wait_gone("Esc stops")
        self.send(text)
        self.press("enter")

    def dialog(self, offers: str = APPROVE) -> str:
        """Wait until the dialog offers a key; the text of the dialog without its frame."""

        def acts(text: str) -> bool:
            return offers in dialog_of(text) and PAUSES not in text

        return dialog_of(self.wait_until(acts, what=f"the dialog to offer {offers}"))

    def decide(self, key: str, offers: str = APPROVE) -> str:
        """Press a deciding key once the dialog offers `offers`, and again while the dialog does not accept it.

        A key can be swallowed although it is offered: the screen may be an older one than the program has, and after
        the terminal lagged no key decides. Returns the dialog that was decided, without its frame. Not for calls that
        change while they wait, nor where the next round asks the same.
        """
        shown = self.dialog(offers)
        question = _question(shown)
        give_up = time.monotonic() + PATIENCE
        while _question(self.dialog(offers)) == question:
            assert time.monotonic() < give_up, f"The dialog did not accept {key}:\n{self.text()}"
            super().press(key)
            if self._reacts(question, within=_PRESSED_AGAIN_S):
                # Another question, or none; or a pause over the same one.
                self.wait_until(lambda text: PAUSES not in text, what="the pause to end")
            if _question(dialog_of(self.text())) != question:
                break
        return shown

    def _reacts(self, question: list[str], *, within: float) -> bool:
        give_up = time.monotonic() + within
        while time.monotonic() < give_up:
            shown = dialog_of(self.text())
            if PAUSES in shown or _question(shown) != question:
                return True
            time.sleep(0.02)
        return False

    def ready(self, role: str) -> None:
        """Wait until the conversation is open in that role."""
        self.wait_for(f"{role} · ")


def dialog_of(text: str) -> str:
    """Return the text inside the dialog's frame; nothing until the whole frame is on the screen."""
    # Cells of an image are marked by combining characters, which take no column.
    lines = re.sub("\U0010eeee[\u0300-\u20ff]+", "\U0010eeee", text).split("\n")
    # A tall dialog covers all of the message field but its sides.
    tops = [number for number, line in enumerate(lines) if "╭" in line and "│" not in line]
    bottoms = [number for number, line in enumerate(lines) if "╰" in line]
    if len(bottoms) > 1:
        # The frame of the message field is below. The dialog may cover its top.
        bottoms.pop()
        tops = [top for top in tops if top < bottoms[-1]]
    if len(tops) != 1 or len(bottoms) != 1:
        return ""
    # It is as wide as its text, and the chat stands beside it.
    left, right = lines[tops[0]].index("╭"), lines[tops[0]].rindex("╮")
    return "\n".join(line[left : right + 1].strip("│ ") for line in lines[tops[0] + 1 : bottoms[0]])


def _question(dialog: str) -> list[str]:
    """Return the lines of a dialog that say which call is asked about."""
    lines = dialog.split("\n")
    return [lines[0], *(line for line in lines if line.startswith(">"))]


def ids_of(request: SeenRequest) -> list[str]:
    """Ids of the tool messages that a request carries, in order."""
    return [str(message["tool_call_id"]) for message in request.messages if message["role"] == "tool"]


def asked_ids(request: SeenRequest) -> list[str]:
    """Ids of the calls in the request's history, in order."""
    return [str(wanted["id"]) for message in request.messages for wanted in message.get("tool_calls", [])]


def answers_each_call_once(request: SeenRequest) -> bool:
    """Return True if the tool messages answer the calls of the history, each exactly once and in order."""
    return ids_of(request) == asked_ids(request)


def lines_with(text: str, wanted: Sequence[str]) -> list[str]:
    """The lines of a screen that hold all of `wanted`."""
    return [line for line in text.split("\n") if all(part in line for part in wanted)]
