"""Chromium, driven over WebDriver by Debian's chromedriver: https://www.w3.org/TR/webdriver2/"""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
TAB, ENTER, SHIFT = "\ue004", "\ue007", "\ue008"
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str) -> None:
        self._driver = driver
        self._session = session

    def _do(self, method: str, path: str, **values: Any) -> Any:
        return _ask(method, f"{self._driver}/session/{self._session}{path}", values if method == "POST" else None)

    def open(self, url: str) -> None:
        self._do("POST", "/url", url=url)

    @property
    def url(self) -> str:
        return str(self._do("GET", "/url"))

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its result; a promise is waited for."""
        whole = f"(function () {{ {script} }})()"
        text = f"const done = arguments[arguments.length - 1]; Promise.resolve({whole}).then(done)"
        return self._do("POST", "/execute/async", script=text, args=list(arguments))

    def type(self, keys: str) -> None:
        """Press keys, one after the other."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._do("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def tab_to(self, text: str) -> None:
        """Press Tab until the element with this text has the focus."""
        for _ in range(60):
            self.type(TAB)
            if text in str(self.run("const a = document.activeElement; return a.innerText || a.value || ''")):
                return
        raise AssertionError(f"Tab does not lead to {text!r}")

    def until(self, script: str) -> None:
        """Wait until a script returns true."""
        end = time.monotonic() + PATIENCE
        while True:
            # The page may be left while its script runs.
            with suppress(urllib.error.HTTPError):
                if self.run(script):
                    return
            assert time.monotonic() < end, script
            time.sleep(0.05)

    def devtools(self, command: str, **values: Any) -> Any:
        """Send a command of Chromium's own protocol."""
        return self._do("POST", "/goog/cdp/execute", cmd=command, params=values)

    def look(self, *, width: int, dark: bool) -> None:
        """Set the width of the page and the scheme that the system says."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._do("GET", "/screenshot")))


def _ask(method: str, url: str, values: dict[str, Any] | None) -> Any:
    data = None if values is None else json.dumps(values).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())["value"]


@contextmanager
def browser() -> Iterator[Browser]:
    """A new browser without any history."""
    assert CHROMIUM and DRIVER
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    driver = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            _wait(driver)
            options = {"binary": CHROMIUM, "args": [*_ARGUMENTS, f"--user-data-dir={profile}"]}
            wanted = {"alwaysMatch": {"goog:chromeOptions": options}}
            session = _ask("POST", f"{driver}/session", {"capabilities": wanted})["sessionId"]
            try:
                yield Browser(driver, session)
            finally:
                _ask("DELETE", f"{driver}/session/{session}", None)
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _wait(driver: str) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            _ask("GET", f"{driver}/status", None)
            return
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)
