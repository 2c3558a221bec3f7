"""A site requires that its log service takes the head of the decision log before a call starts."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.events import Notice
from chatops.domain.tools import Outcome
from chatops.engine.view import pending_calls
from chatops.runtime import services
from chatops.runtime.session import Session
from chatops.store import audit
from chatops.store.audit import read_anchors, verify
from tests.support.waiting import until
from tests.wiring.conftest import Bench

ASKED = "run `echo ran >> made.txt`"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the sockets of both services are looked for; nobody listens there yet."""
    path = tmp_path / "log"
    monkeypatch.setattr(audit, "SINK_SOCKETS", {"journald": str(path), "syslog": str(path)})
    yield path


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(path))
    made.setblocking(False)
    return made


async def approved(bench: Bench, kind: str) -> tuple[Session, list[Notice]]:
    """A session whose call was approved a moment ago."""
    bench.write(users={"*": {"access_level": "operator"}})
    bench.write_site(audit={"sink": kind})
    session = await bench.app().open_session(None, attended=True)
    notices: list[Notice] = []
    session.subscribe(lambda one: notices.append(one.event) if isinstance(one.event, Notice) else None)
    await session.submit(ASKED)
    state = await session.settle()
    assert state is not None
    (waiting,) = pending_calls(state)
    assert await session.decide(waiting.call.id, digest=waiting.digest, decision=Approved())
    return session, notices


@pytest.mark.parametrize("kind", ["journald", "syslog"])
async def test_the_head_is_an_anchor_of_the_start(bench: Bench, place: Path, kind: str) -> None:
    with closing(listening(place)) as service:
        session, notices = await approved(bench, kind)
        await session.settle()
        line = service.recv(4096).decode()
        with pytest.raises(BlockingIOError):
            service.recv(1)
    assert (bench.workspace / "made.txt").read_text() == "ran\n" and not notices
    assert "SYSLOG_IDENTIFIER=chatops\n" in line if kind == "journald" else line.startswith("<85>chatops[")
    (said,) = [part for part in line.splitlines() if "{" in part]
    (anchor,) = read_anchors(said)
    rows = bench.apps[0].store.audit()
    assert '"kind":"start"' in rows[anchor.number - 1].body
    assert verify(rows, [anchor]) == ([], {anchor.session: anchor.number})
    assert verify(rows[: anchor.number - 1], [anchor])[0], "the rows were cut off"
    await session.aclose()


async def test_an_approved_call_waits_for_the_service_and_runs_once(bench: Bench, place: Path) -> None:
    session, notices = await approved(bench, "syslog")
    await until(lambda: bool(notices))
    assert "syslog" in notices[0].text and str(place) in notices[0].text and "audit.sink" in notices[0].advice
    assert not (bench.workspace / "made.txt").exists()
    with closing(listening(place)) as service:
        await session.settle()
        assert len(read_anchors(service.recv(4096).decode())) == 1
    assert (bench.workspace / "made.txt").read_text() == "ran\n" and len(notices) == 1
    await session.aclose()


async def test_a_waiting_call_can_be_cancelled(bench: Bench, place: Path) -> None:
    session, notices = await approved(bench, "journald")
    await until(lambda: bool(notices))
    await session.cancel()
    state = await session.settle()
    assert state is not None and state.phase.kind == "finished"
    assert not (bench.workspace / "made.txt").exists()
    await session.aclose()


async def test_a_call_is_not_run_without_the_service(
    bench: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that does not read counts as one that is not there: each attempt has a bound."""
    monkeypatch.setattr(services, "SINK_PATIENCE_S", 0.0)
    monkeypatch.setattr(audit, "SINK_TIMEOUT_S", 0.1)
    with closing(listening(place)), closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as other:
        other.setblocking(False)
        other.connect(str(place))
        with pytest.raises(BlockingIOError):
            while True:
                other.send(b"full")
        session, _ = await approved(bench, "syslog")
        state = await session.settle()
    assert state is not None
    assert not (bench.workspace / "made.txt").exists()
    (result,) = bench.apps[0].store.journal(state.turn_id)
    assert result.outcome is Outcome.FAILED
    assert result.result.startswith("Not run: The site requires that syslog") and "does not answer" in result.result
    await session.aclose()
