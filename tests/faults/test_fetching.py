"""Pages that fail, lie, never end or burst: one line, bounded time and bytes, and the conversation goes on (G10)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.entry_points import flat, patient_registry
from tests.faults.network_namespace import NAME, NetworkNamespace, can_be_had
from tests.support.command_line import Ran, program

pytestmark = [pytest.mark.fault("G10"), pytest.mark.skipif(not can_be_had(), reason="no namespaces for a test here")]

PAGE = f"http://{NAME}"
LIMIT_S = 3
FAILURES = {
    "dns": ("http://nowhere.test/", r"Not fetched: The name nowhere\.test could not be resolved\."),
    "refused": (f"{PAGE}:81/", rf"{NAME}:81 could not be fetched: All connection attempts failed\."),
    "tls": (
        f"https://{NAME}/plain",
        rf"{NAME} could not be fetched: its certificate was refused \(self-signed certificate\)\.",
    ),
    "redirects": (f"{PAGE}/loop", r"Not fetched: more than 5 redirects\."),
    "slow loris": (f"{PAGE}/loris", r"The page did not arrive within 2\.7 s\."),
}
BOUNDED = {
    "100 MB": (f"{PAGE}/big", r"x{1000}.*only the first 2,000,000 bytes were read"),
    "gzip bomb": (f"{PAGE}/bomb", r"A{1000}.*only the first 2,000,000 bytes were read"),
}
ODD = {
    "wrong charset": (f"{PAGE}/charset", "caf\ufffd au lait"),
    "unknown charset": (f"{PAGE}/nocharset", "café"),
    "empty": (f"{PAGE}/empty", r"\[the page has no text\]"),
}


class Reader:
    """`chatops -p` as researcher, on the network namespace."""

    def __init__(self, namespace: NetworkNamespace, folder: Path) -> None:
        self._workspace = folder / "project"
        self._workspace.mkdir()
        self._env = {"CHATOPS_HOME": str(folder / "home")}
        self._registry = folder / "registry.json"
        whole = {**patient_registry(namespace.model), "tools": {"web_fetch": {"timeout_s": LIMIT_S, "ports": [81]}}}
        self._registry.write_text(json.dumps(whole))

    def ask(self, text: str, *more: str) -> Ran:
        """One message."""
        flags = ("--registry", str(self._registry), "--role", "researcher", "--approve", "web_fetch")
        return program(*flags, "-p", text, *more, cwd=self._workspace, env=self._env)

    def fetch(self, url: str) -> Ran:
        """Have the model fetch a page. However that goes, there is an answer, no traceback, and the next turn works."""
        ran = self.ask(f"fetch {url}")
        assert ran.code == 0, ran.err
        assert "Traceback" not in ran.err
        well = self.ask("still there?", "-c")
        assert (well.code, well.out) == (0, "You said: still there?\n"), well.err
        return ran


@pytest.fixture(scope="module")
def namespace() -> Iterator[NetworkNamespace]:
    """See `tests.faults.network_namespace`."""
    up = NetworkNamespace()
    with up.forking():
        yield up


@pytest.fixture
def reader(namespace: NetworkNamespace, tmp_path: Path) -> Reader:
    """A user who reads pages."""
    return Reader(namespace, tmp_path)


@pytest.mark.more
@pytest.mark.parametrize("kind", FAILURES)
def test_a_page_that_cannot_be_had_is_one_line(reader: Reader, kind: str) -> None:
    url, message = FAILURES[kind]
    ran = reader.fetch(url)
    started, failed = ran.err.splitlines()
    assert started.startswith("running web_fetch ")
    assert re.fullmatch(f"web_fetch: failed: {message}", failed)
    assert re.fullmatch(f"It gave: {message}", flat(ran.out))


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", BOUNDED)
def test_a_page_without_end_is_cut_before_and_after_it_is_unpacked(reader: Reader, kind: str) -> None:
    url, message = BOUNDED[kind]
    ran = reader.fetch(url)
    assert ran.err.splitlines()[1:] == ["web_fetch: result shortened"]
    assert re.search(message, flat(ran.out))
    assert len(ran.out) < 20_000


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_page_is_read_as_far_as_it_can_be(reader: Reader, kind: str) -> None:
    url, message = ODD[kind]
    ran = reader.fetch(url)
    assert len(ran.err.splitlines()) == 1
    assert re.search(message, flat(ran.out))
