"""Both entry points, kept open over many faults: a chat on a terminal and the program in a pipe.

    def test_a04(stage: Stage) -> None:
        told = stage.ask("hello", error(500, "boom"), error(500, "boom"), error(500, "boom"))
        assert "boom" in told.err
        stage.goes_on(told)
        stage.said("hello", "boom.*Press R", error(500, "boom"), error(500, "boom"), error(500, "boom"))
        stage.chat.assert_well()

Each entry point has a home, a workspace and a registry of its own; the provider is one. What is said must be unique, as
the screen keeps what was said before.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from chatops.domain.ids import SessionId
from chatops.domain.messages import AssistantMessage, Message
from tests.e2e.installation import Installation
from tests.faults.entry_points import FaultyChat, Pipe, Provider, flat, patient_registry
from tests.support.command_line import Ran
from tests.support.fake_openai import Reply, SeenRequest

KEY = "sk-live-9f8e7d6c5b4a39281706"
"""The key of the model `local`, which nobody may ever see."""
NO_PROXIES = dict.fromkeys(
    ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"), ""
)
MARKED = "[This reply was cut off here.]"
"""Behind a partial reply where a model is shown it."""
Replies = Reply | Callable[[SeenRequest], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeAnswer:
    """Result of one message in the pipe."""

    ran: Ran
    status: str
    answer: str
    session: SessionId
    asked: int
    """Chat requests."""

    @property
    def err(self) -> str:
        """Text that the user reads, as one line."""
        return flat(self.ran.err)


class Stage:
    """See the module."""

    def __init__(self, provider: Provider, *, pipe: Pipe, chat: FaultyChat, env: dict[str, str]) -> None:
        self.provider = provider
        self.pipe = pipe
        self.chat = chat
        self.env = env
        self._role = "coder"

    @classmethod
    @contextmanager
    def open(
        cls,
        folder: Path,
        *,
        others: Mapping[str, dict[str, Any]] | None = None,
        env: Mapping[str, str] | None = None,
        **model: Any,
    ) -> Iterator[Self]:
        """Open both entry points. `others` are further roles: settings in which the model differs from `local`."""
        env = {**NO_PROXIES, "THE_KEY": KEY, **(env or {})}
        with Provider() as provider, contextlib.ExitStack() as opened:
            whole = patient_registry(provider.server.url, api_key_env="THE_KEY", **model)
            for name, changes in (others or {}).items():
                whole["models"][name] = {**whole["models"]["local"], "label": name.title(), **changes}
                whole["roles"][name] = {"primary": name, "tools": []}
            piped, typed = (_installation(folder / entry_point, whole) for entry_point in ("pipe", "chat"))
            home = {"CHATOPS_HOME": str(typed.home), "HOME": str(typed.home / "person")}
            terminal = opened.enter_context(typed.open("--role", "coder", env={**env, **home}))
            terminal.ready("coder")
            chat = FaultyChat(typed, provider, terminal)
            yield cls(provider, pipe=Pipe(piped, provider), chat=chat, env=dict(env))

    def ask(self, text: str, *replies: Replies, more: tuple[str, ...] = ()) -> PipeAnswer:
        """One message through the pipe, which is told what came of it as JSON. No traceback, no control character."""
        self.provider.script(*replies)
        before = len(self.provider.requests)
        ran = self.pipe.run("-p", text, "--output-format", "json", *more, env=self.env)
        assert "Traceback" not in ran.err
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", ran.err)
        assert ran.out.startswith("{"), ran.err
        return PipeAnswer(
            ran=ran,
            status=ran.json["status"],
            answer=ran.json["answer"],
            session=SessionId(ran.json["session_id"]),
            asked=len(self.provider.requests) - before,
        )

    def goes_on(self, ended: PipeAnswer) -> SeenRequest:
        """The next message of the same conversation works on a healthy server; the request that was sent."""
        after = self.ask("still there?", more=("-r", ended.session, "--role", "coder"))
        assert (after.status, after.ran.code) == ("answered", 0), after.ran.err
        assert after.answer == "You said: still there?"
        assert self.provider.server.violations == []
        return self.provider.requests[-1]

    def as_role(self, role: str) -> None:
        """Switch the chat's role, if it is another."""
        if role != self._role:
            self._role = role
            self.chat.terminal.say(f"/role {role}")
            self.chat.terminal.wait_until(lambda text: status_line(text).startswith(f"{role} · "), what=f"role {role}")

    def said(self, text: str, pattern: str, *replies: Replies) -> str:
        """Send `text`, which must be unique, and wait until `pattern` is seen behind it; the screen from there on."""
        self.chat.say(text, *replies)
        return self.seen(text, pattern)

    def seen(self, text: str, pattern: str) -> str:
        """Wait until `pattern` is seen behind the message `text`; the screen from there on, as one line."""
        screen = self.chat.wait_for(rf"{re.escape(text)}(?!\w).*{pattern}")
        return flat(screen).rpartition(text)[2]

    def history(self, ended: PipeAnswer) -> tuple[Message, ...]:
        """Return the stored messages of a session in the pipe."""
        with self.pipe.installation.store() as store:
            return store.history(ended.session)

    def chat_history(self) -> tuple[Message, ...]:
        """Return the stored messages of the session in the chat."""
        with self.chat.installation.store() as store:
            return store.history(self.chat.installation.session().id)


def status_line(screen: str) -> str:
    """The last line of the chat's screen."""
    return screen.rstrip().rpartition("\n")[2].strip()


def partial_of(history: tuple[Message, ...]) -> AssistantMessage | None:
    """The last reply of a conversation, if it is marked as cut off."""
    replies = [message for message in history if isinstance(message, AssistantMessage)]
    return replies[-1] if replies and replies[-1].incomplete else None


def assistants(request: SeenRequest) -> list[str]:
    """Return the model's messages in a request."""
    return [str(message["content"]) for message in request.messages if message["role"] == "assistant"]


def _installation(folder: Path, registry: dict[str, Any]) -> Installation:
    home = folder / "home"
    home.mkdir(parents=True)
    installation = Installation.with_note(folder / "project", home)
    installation.use(registry)
    return installation
