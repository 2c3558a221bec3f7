"""Connections to PostgreSQL: their address, their end if nothing passes any more, and one that listens for changes.

A firewall, a router or a pooler may drop all packets of a connection and still answer those that keep TCP alive. Then
nothing ends the connection, and a client would wait for ever. A time limit for statements would end searches and copies
that take long. So after `SILENT_S` a second connection asks the server if it still works on the statement. All of this
takes less than the time after which tools have to be stopped because their lease is not renewed.

The database notifies in the transaction that changes something. Any role that can connect can listen, also one that may
read nothing. So all that is sent is a mark of what has changed, which several sessions share.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Set
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict

from chatops.domain.errors import ConfigError
from chatops.domain.known_keys import add_known_keys
from chatops.store.queue import CHANNEL

log = logging.getLogger(__name__)

SILENT_S = 5.0
"""Seconds without an answer after which the server is asked by another connection."""
_LATE_ANSWER_S = 1.0
"""Seconds for an answer that is on its way while the other connection asks: then the server is idle already."""
RETRY_S = 2.0
"""Seconds from a failure of the connection that listens to the next try."""
# A connection whose other end is gone ends after 11 s, as in `_SETTINGS` of `postgres`, before a lease expires.
_CLIENT_PARAMETERS = {
    "application_name": "chatops",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",
    "client_encoding": "UTF8",
    "gssencmode": "disable",
}
T = TypeVar("T")


class Link(psycopg.Connection[Any]):
    """A connection that ends if the server does not work on what it waits for."""

    process = 0
    """The process of the server that executes its statements. 0: each has to be answered within `SILENT_S` seconds."""
    _parameters: Mapping[str, Any]

    @classmethod
    def to(cls, parameters: Mapping[str, Any]) -> Link:
        """Connect, without any transaction. Raises psycopg.OperationalError."""
        link = cls.connect(**cast("Any", parameters), autocommit=True)
        link._parameters = parameters
        return link

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for the server. Raises psycopg.OperationalError."""
        if self.process:
            gen = self._watch(gen)
        elif timeout is None:
            timeout = SILENT_S
        return super().wait(gen, interval, timeout)

    def _watch(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Pass on what psycopg waits for, and end the connection if the server is idle meanwhile.

        `ready` is 0 whenever an interval has passed in which nothing came.
        """
        last_sign, is_idle = time.monotonic(), False
        try:
            awaited = next(gen)
            while True:
                if ready := (yield awaited):
                    last_sign, is_idle = time.monotonic(), False
                elif is_idle and time.monotonic() > last_sign + _LATE_ANSWER_S:
                    self.close()
                    raise psycopg.OperationalError("nothing passes the connection any more")
                elif not is_idle and time.monotonic() > last_sign + SILENT_S:
                    last_sign, is_idle = time.monotonic(), not self._is_working()
                awaited = gen.send(ready)
        except StopIteration as ended:
            return cast("T", ended.value)

    def _is_working(self) -> bool:
        """Return True if the server works on a statement of this connection, and not on sending its rows."""
        works = "state !~ '^idle' AND wait_event IS DISTINCT FROM 'ClientWrite'"
        query = f"SELECT FROM pg_stat_activity WHERE pid = %s AND {works}"
        try:
            with closing(Link.to(self._parameters)) as other:
                return other.execute(query.encode(), [self.process]).rowcount > 0
        except psycopg.Error:
            return False


class Listener:
    """Wakes listeners when the database notifies of their name, in a thread that runs while one waits."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._waiting: dict[Callable[[], object], Set[str]] = {}
        """Whom to wake, and for which marks."""
        self._listens = False

    def add(self, wake: Callable[[], object], names: tuple[str, ...]) -> Callable[[], object]:
        """Call `wake` whenever one of these names may have changed, until the function that is returned is called."""
        marks = {sha256(name.encode()).hexdigest()[:6] for name in names}
        with self._lock:
            self._waiting[wake] = marks
            if not self._listens:
                self._listens = True
                threading.Thread(target=self._listen, name="listener", daemon=True).start()
        return partial(self._waiting.pop, wake, None)

    def close(self) -> None:
        """Wake no one any more."""
        self._waiting.clear()

    def _has_listeners(self) -> bool:
        """Return True while anyone waits. If not, the thread ends, and `add` starts another one."""
        with self._lock:
            self._listens = bool(self._waiting)
            return self._listens

    def _listen(self) -> None:
        while self._has_listeners():
            try:
                with closing(self._connect()) as link:
                    link.execute(f"LISTEN {CHANNEL}".encode())
                    # Nothing was heard of what happened before.
                    self._wake(None)
                    while self._has_listeners():
                        if notified := {notice.payload for notice in link.notifies(timeout=SILENT_S, stop_after=1)}:
                            self._wake(notified)
                        else:
                            # If nothing passes the connection any more, this ends it.
                            link.execute("")
            except psycopg.Error as error:
                log.info("nothing is heard of the database: %s", error)
                time.sleep(RETRY_S)

    def _wake(self, notified: Set[str] | None) -> None:
        """Wake those who wait for one of these marks; None: all."""
        for wake, marks in tuple(self._waiting.items()):
            if notified is None or notified & marks:
                # Its event loop may have ended.
                with suppress(RuntimeError):
                    wake()


def connection_parameters(address: str) -> Mapping[str, Any]:
    """Return the parameters of a connection to `address`, which is verified by TLS unless it stays on this machine.

    A password may also be in ``PGPASSWORD`` or ``~/.pgpass``. Raises ConfigError.
    """
    try:
        given = conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        raise ConfigError(
            "The address of the store cannot be read.", advice="Write it like: postgresql://host/database"
        ) from None
    add_known_keys(str(given.get("password", "")), os.environ.get("PGPASSWORD", ""))
    if _is_local(given):
        return {**_CLIENT_PARAMETERS, **given}
    place, wanted = show_address(given), str(given.get("sslmode", "verify-full"))
    if wanted != "verify-full":
        raise ConfigError(
            f"The store {place} is on another machine, and sslmode={wanted} does not check which one answers.",
            advice="Leave sslmode out: chatops uses verify-full. A certificate of your own: sslrootcert=FILE.",
        )
    own = Path("~/.postgresql/root.crt").expanduser()
    root = {} if own.exists() or os.environ.get("PGSSLROOTCERT") else {"sslrootcert": "system"}
    return {**_CLIENT_PARAMETERS, **root, **given, "sslmode": "verify-full"}


def show_address(given: Mapping[str, Any]) -> str:
    """Return the address without a password."""
    host, port = (str(given.get(key) or "") for key in ("host", "port"))
    name = given.get("dbname") or given.get("user") or ""
    if host.startswith("/"):
        return f"postgresql:///{name}?host={host}"
    return f"postgresql://{host}{f':{port}' if port else ''}/{name}"


def lacks_password(error: psycopg.Error) -> bool:
    """Return True if the server asked for a password and got none."""
    return error.pgconn is not None and error.pgconn.needs_password


def _is_local(given: Mapping[str, Any]) -> bool:
    """Return True if the connection stays on this machine, whatever the environment says."""
    if given.get("service") or os.environ.get("PGSERVICE"):
        return False
    # An address goes before a name, wherever each of them comes from.
    addresses = given.get("hostaddr") or os.environ.get("PGHOSTADDR")
    hosts = given.get("host") or os.environ.get("PGHOST", "")
    return all(map(_is_local_host, str(addresses or hosts).split(",")))


def _is_local_host(host: str) -> bool:
    try:
        return host in ("", "localhost") or host.startswith(("/", "@")) or ip_address(host).is_loopback
    except ValueError:
        return False
