"""The two entry points through which faults of a provider are met: the chat on a terminal, and ``-p`` in a pipe.

    def test_a04(chat: FaultyChat) -> None:
        chat.say("hello", error(500, "boom"), error(500, "boom"), error(500, "boom"))
        chat.wait_for("boom")
        chat.assert_well()

Replies that are not scripted are healthy: the server repeats what was said, so the next turn proves that the
conversation has survived.
"""

import itertools
import re
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from tests.e2e.installation import ChatTerminal, Installation, answers_each_call_once, registry
from tests.support.command_line import Ran, program
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, says

_NUMBERS = itertools.count(1)


class Provider:
    """A strict server that gives the scripted replies in order, and repeats the user's words when there is none."""

    def __init__(self) -> None:
        self._script: deque[Reply | Callable[[SeenRequest], Reply]] = deque()
        self._lock = threading.Lock()
        self.server = FakeOpenAI(self._reply)

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        self.server.__exit__(*args)

    def script(self, *replies: Reply | Callable[[SeenRequest], Reply]) -> None:
        """Set the next replies; the rest of an earlier script is dropped."""
        with self._lock:
            self._script = deque(replies)

    @property
    def requests(self) -> list[SeenRequest]:
        """Every chat request so far."""
        return self.server.requests

    def _reply(self, request: SeenRequest) -> Reply:
        with self._lock:
            wanted = self._script.popleft() if self._script else says(f"You said: {request.last_user}")
        return wanted(request) if callable(wanted) else wanted


class FaultyChat:
    """The chat on a terminal, talking to a provider that does what the test says; kept open over many faults."""

    def __init__(self, installation: Installation, provider: Provider, terminal: ChatTerminal) -> None:
        self.installation = installation
        self.provider = provider
        self.terminal = terminal
        self.before = 0

    def say(self, text: str, *replies: Reply | Callable[[SeenRequest], Reply]) -> None:
        """Send a message; the server answers with `replies`, one after the other."""
        self.provider.script(*replies)
        self.before = len(self.provider.requests)
        self.terminal.say(text)

    @property
    def asked(self) -> list[SeenRequest]:
        """The chat requests since the last message was sent."""
        return self.provider.requests[self.before :]

    def wait_for(self, pattern: str) -> str:
        """Wait until the screen, read as one line without line breaks, matches `pattern`; that line."""
        found = re.compile(pattern)
        return self.terminal.wait_until(lambda text: found.search(flat(text)) is not None, what=f"{pattern!r}")

    def assert_well(self) -> None:
        """The next turn on a healthy server works, and what is sent is valid for a strict one."""
        number = next(_NUMBERS)
        self.say(f"still there {number}?")
        self.wait_for(re.escape(f"You said: still there {number}?"))
        assert self.provider.server.violations == []
        assert answers_each_call_once(self.provider.requests[-1])
        assert "Traceback" not in self.terminal.text()


class Pipe:
    """`chatops -p` and other commands without a terminal, against the same kind of provider."""

    def __init__(self, installation: Installation, provider: Provider) -> None:
        self.installation = installation
        self.provider = provider
        self.before = 0

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> Ran:
        """One command, under the installation's registry."""
        variables = {"CHATOPS_HOME": str(self.installation.home), **(env or {})}
        return program(*self.installation.flags, *arguments, cwd=self.installation.workspace, env=variables)

    def ask(self, text: str, *replies: Reply | Callable[[SeenRequest], Reply], more: tuple[str, ...] = ()) -> Ran:
        """One message; the server answers with `replies`, one after the other."""
        self.provider.script(*replies)
        self.before = len(self.provider.requests)
        return self.run("-p", text, *more)

    @property
    def asked(self) -> list[SeenRequest]:
        """The chat requests since the last message was sent."""
        return self.provider.requests[self.before :]

    def assert_well(self) -> None:
        """Going on with the same conversation on a healthy server works, with a history that a strict one takes."""
        number = next(_NUMBERS)
        ran = self.ask(f"still there {number}?", more=("-c",))
        assert ran.code == 0, ran.err
        assert f"You said: still there {number}?" in ran.out
        assert self.provider.server.violations == []
        assert answers_each_call_once(self.provider.requests[-1])


def flat(text: str) -> str:
    """A screen as one line: its words in order, however they were wrapped, without frames and scroll bars."""
    return " ".join(re.sub(r"[│┃╭╮╰╯─\u2580-\u259f]", " ", text).split())


def patient_registry(url: str, **model: Any) -> dict[str, Any]:
    """The installation's registry, its first role a coder, with other values for the one model."""
    whole = registry(url)
    whole["default_role"] = "coder"
    whole["models"]["local"].update(model)
    return whole
