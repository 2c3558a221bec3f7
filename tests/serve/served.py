"""The real server of the desk in a process of its own, and requests to it as a browser or an attacker sends them."""

import http.client
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from tests.support.command_line import REPOSITORY
from tests.support.waiting import PATIENCE

LINK = re.compile(r"(https?://[^/\s]+)/login/(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def where(self) -> str:
        """Where it leads."""
        return self.headers["location"]


@dataclass(slots=True)
class Served:
    """A running ``chatops serve``."""

    process: subprocess.Popen[str]
    keys: int
    """The terminal that it reads keys from."""
    home: Path
    workspace: Path
    links: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def link(self) -> str:
        """The next link that it prints."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self.said.append(line)
            if found := LINK.search(line):
                self.links.append(found[0])
                return found[0]
        raise AssertionError(f"no link: {''.join(self.said)}")

    def until_said(self, text: str) -> str:
        """The next line in which it says this."""
        assert self.process.stdout is not None
        return next(line for line in self.process.stdout if text in line)

    def another_link(self) -> str:
        """The link that it prints when somebody presses Enter."""
        os.write(self.keys, b"\n")
        return self.link()

    @property
    def origin(self) -> str:
        return LINK.search(self.links[0])[1]  # type: ignore[index]

    @property
    def host(self) -> str:
        return self.origin.partition("://")[2]

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(
        self,
        method: str,
        path: str,
        *,
        cookie: str = "",
        form: dict[str, str] | None = None,
        host: str | None = None,
        **headers: str,
    ) -> Answer:
        """Send one request. Underscores in the names of headers become hyphens."""
        connection = self.connection()
        connection.putrequest(method, path, skip_host=True)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        body = b""
        if form is not None:
            body = urlencode(form).encode()
            sent = {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(body)), **sent}
        if cookie:
            sent["cookie"] = cookie
        for name, value in {"Host": self.host if host is None else host, **sent}.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        response = connection.getresponse()
        answer = Answer(
            status=response.status,
            headers={name.lower(): value for name, value in response.getheaders()},
            text=response.read().decode(),
        )
        connection.close()
        return answer

    def get(self, path: str, *, cookie: str = "", host: str | None = None, **headers: str) -> Answer:
        return self.ask("GET", path, cookie=cookie, host=host, form=None, **headers)

    def log_in(self, link: str = "") -> str:
        """Log a browser in; the cookie that it sends from now on."""
        token = (link or self.another_link()).rpartition("/")[2]
        answer = self.ask("POST", "/login", form={"token": token}, origin="null")
        assert (answer.status, answer.where) == (303, "/"), answer.text
        return answer.headers["set-cookie"].partition(";")[0]

    def fields(self, path: str, cookie: str) -> dict[str, str]:
        """The hidden fields of the forms of a page."""
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.get(path, cookie=cookie).text)
        return dict(found)

    def decide(self, call: str, answer: str, cookie: str, **changed: str) -> Answer:
        """Press a button of a call's page. `changed` are fields that the form has otherwise."""
        form = {**self.fields(f"/call/{call}", cookie), "answer": answer, **changed}
        return self.ask("POST", f"/call/{call}", cookie=cookie, form=form, origin=self.origin)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command over the same store."""
        return subprocess.run(
            [sys.executable, "-m", "chatops", *arguments],
            cwd=self.workspace,
            env=environment(self.home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def paused(self, prompt: str, *arguments: str) -> str:
        """Let the demo make a call that asks; its id."""
        ran = self.run("--role", "coder", "-p", prompt, "--output-format", "json", *arguments)
        assert ran.returncode == 3, ran.stderr
        return str(re.search(r'"id": "([^"]+)"', ran.stdout.partition('"pending"')[2])[1])  # type: ignore[index]


def environment(home: Path) -> dict[str, str]:
    return os.environ | {"CHATOPS_HOME": str(home), "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}


@contextmanager
def serving(home: Path, workspace: Path, *arguments: str) -> Iterator[Served]:
    """Start the server, and end it with the signal of Ctrl+C."""
    keys, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "chatops", "serve", *arguments],
        cwd=workspace,
        env=environment(home),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(terminal)
    served = Served(process, keys, home, workspace)
    try:
        served.link()
        yield served
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)
        os.close(keys)
    # Tests of deaths kill it themselves.
    assert process.returncode in (0, -signal.SIGKILL), out


class _Seen(HTMLParser):
    """Collects the elements of a page, and the text that a reader sees."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.text = ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(attrs)))
        if tag in ("dd", "dt", "code", "p", "h1", "h2", "li", "td"):
            self.text += "\n"

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> _Seen:
    """Return the elements and the text of a page."""
    seen = _Seen()
    seen.feed(html)
    seen.close()
    return seen


def path_of(link: str) -> str:
    return urlsplit(link).path
