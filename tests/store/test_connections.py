"""Between chatops and its database: TLS, a pooler, and a network that is cut."""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from chatops.domain.errors import NotSavedError, StoreError
from chatops.domain.ids import SessionId
from chatops.domain.messages import Message
from chatops.store import postgres_link
from chatops.store.postgres import Postgres
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.support.postgres import Server, find_programs, server
from tests.support.sockets import CERTIFICATES
from tests.support.waiting import PATIENCE

POOLER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed"),
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def running(port: int) -> Iterator[Server]:
    with server(port=port) as made:
        yield made


def use_certificate(running: Server, name: str) -> None:
    """Let the server prove its name with one of the certificates of the tests."""
    for end in ("crt", "key"):
        file = running.folder / "data" / f"server.{end}"
        shutil.copy(CERTIFICATES / f"{name}.pem", file)
        file.chmod(0o600)
        if os.getuid() == 0:
            shutil.chown(file, "nobody")
    (running.folder / "data" / "postgresql.auto.conf").write_text("ssl = on\n")
    running.stop("fast")
    running.start()


def test_a_server_has_to_prove_its_name(running: Server, port: int) -> None:
    address = f"postgresql://chatops@127.0.0.1:{port}/postgres?sslmode=verify-full"
    trusted = f"{address}&sslrootcert={CERTIFICATES / 'ca.pem'}"
    with pytest.raises(NotSavedError, match="does not support SSL") as refused:
        Postgres(trusted)
    assert "prove its name" in str(refused.value.advice)
    for certificate, fault in (
        ("elsewhere", "does not match host name"),
        ("expired", "certificate verify failed"),
        ("self-signed", "certificate verify failed"),
    ):
        use_certificate(running, certificate)
        with pytest.raises(NotSavedError, match=fault) as refused:
            Postgres(trusted)
        assert "prove its name" in str(refused.value.advice)
    use_certificate(running, "good")
    with pytest.raises(NotSavedError, match="certificate verify failed"):
        Postgres(f"{address}&sslrootcert=system")
    with closing(Store(Postgres(trusted))) as store:
        store.set_setting("a", "1")
        (row,) = store._rows.all("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        assert (store.setting("a"), row) == ("1", (True,))


@contextmanager
def pooler(folder: Path, to: int, *, mode: str) -> Iterator[int]:
    """Run PgBouncer before the server at a port, with two connections to it. Yields its own port."""
    assert POOLER is not None
    port = free_port()
    (folder / "users").write_text('"chatops" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={to}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"auth_type = trust\nauth_file = {folder}/users\nunix_socket_dir =\npool_mode = {mode}\n"
        "default_pool_size = 2\nserver_round_robin = 1\nignore_startup_parameters = extra_float_digits\n"
    )
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    # It refuses to run as root.
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*user, POOLER, str(folder / "ini")], stdout=log, stderr=log)
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert process.poll() is None, (folder / "log").read_text()
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(POOLER is None, reason="PgBouncer is not installed")
@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_a_pooler_that_spreads_transactions_is_refused_in_words_and_another_one_is_not_noticed(
    running: Server, port: int, mode: str
) -> None:
    folder = running.folder / mode
    folder.mkdir()
    with pooler(folder, port, mode=mode) as its:
        address = f"postgresql://chatops@127.0.0.1:{its}/postgres?sslmode=disable"
        refused = ""
        stored = 0
        # Each transaction is stored as a whole, or refused in words.
        for number in range(40):
            try:
                with closing(Store(Postgres(address))) as one, closing(Store(Postgres(address))) as two:
                    for store, other in ((one, two), (two, one)):
                        # Two at a time, so that the pooler needs both of its connections.
                        with other._rows.read():
                            store.set_setting(f"{mode}-{number}-{stored}", "1")
                        stored += 1
            except StoreError as error:
                refused = f"{error} {error.advice}"
                assert "pool_mode = session" in refused, refused
                break
        assert bool(refused) == (mode == "transaction")
    with closing(Store(Postgres(running.url))) as store:
        (count,) = store._rows.all("SELECT count(*) FROM settings WHERE key LIKE ?", f"%{mode}-%")
        assert count == (stored,)


class Proxy:
    """Forwards connections to a port, and can be cut: nothing passes, or connections end."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._passes = threading.Event()
        self._passes.set()
        self._links: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, ends: bool) -> None:
        self._passes.clear()
        if ends:
            links, self._links = self._links, []
            for link in links:
                with suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._passes.set()

    def swallow(self) -> None:
        """Let nothing more pass on the connections that there are, and keep them open. Later ones are not concerned."""
        self._passes.clear()
        self._passes = threading.Event()
        self._passes.set()

    def close(self) -> None:
        self._listener.close()
        self.cut(ends=True)
        self.mend()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                self._passes.wait()
                outer = socket.create_connection(("127.0.0.1", self._to))
                self._links += [inner, outer]
                for one, other in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._forward, args=(one, other, self._passes), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket, passes: threading.Event) -> None:
        with one, suppress(OSError):
            while data := one.recv(65536):
                passes.wait()
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


def test_where_the_network_is_cut_nothing_is_lost_and_all_go_on(running: Server, port: int) -> None:
    """Turns are committed over a network that is cut: for a while, and with the end of all connections."""
    with closing(Proxy(port)) as proxy:
        address = f"postgresql://chatops@127.0.0.1:{proxy.port}/postgres?sslmode=disable&connect_timeout=60"
        over, failed = threading.Event(), list[BaseException]()
        stored: list[list[SessionId]] = [[], []]

        def commit(number: int) -> None:
            try:
                with closing(Store(Postgres(address))) as store:
                    info = store.create_session(workspace="/w", role="r", persona="p")
                    while not over.is_set():
                        with suppress(NotSavedError):
                            store.append_message(info.id, kit.user(f"{number}-{len(stored[number])}"))
                            stored[number].append(info.id)
                            continue
                        # Whether it was stored is not known: it is looked up, as `runtime.saving` repeats a step.
                        if any(one.id.startswith(f"{number}-{len(stored[number])}.") for one in again(store, info.id)):
                            stored[number].append(info.id)
            except BaseException as error:
                failed.append(error)

        def again(store: Store, session: SessionId) -> tuple[Message, ...]:
            while True:
                with suppress(NotSavedError):
                    return store.history(session)

        writers = [threading.Thread(target=commit, args=(number,), daemon=True) for number in range(2)]
        for writer in writers:
            writer.start()

        def more() -> None:
            """Wait until each writer has stored something that it had not before."""
            counts = [len(one) for one in stored]
            end = time.monotonic() + PATIENCE
            while any(len(one) <= count for one, count in zip(stored, counts, strict=True)):
                assert not failed and time.monotonic() < end, failed
                time.sleep(0.01)

        more()
        for ends in (False, True, True):
            proxy.cut(ends=ends)
            time.sleep(1)
            proxy.mend()
            more()
        over.set()
        for writer in writers:
            writer.join(PATIENCE)
        assert failed == []
    with closing(Store(Postgres(running.url))) as store:
        for one in stored:
            assert len(store.history(one[0])) == len(one)


def test_a_connection_that_swallows_everything_ends_and_a_statement_that_takes_long_does_not(
    running: Server, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_link, "SILENT_S", 0.5)
    found: list[object] = []

    def use(proxy: Proxy) -> None:
        address = f"postgresql://chatops@127.0.0.1:{proxy.port}/postgres?sslmode=disable"
        with closing(Store(Postgres(address))) as store:
            found.extend(store._rows.all("SELECT pg_sleep(3), 1"))
            proxy.swallow()
            store.set_setting("a", "1")
            try:
                with store._rows.write():
                    store._rows.put_setting("a", "2")
                    proxy.swallow()
            except NotSavedError as error:
                found.append("nothing passes" in str(error))
            store.set_setting("b", "3")
            found.append(store.setting("a"))

    with closing(Proxy(port)) as proxy:
        using = threading.Thread(target=use, args=[proxy], daemon=True)
        using.start()
        using.join(PATIENCE)
        assert found == [("", 1), True, "1"]
