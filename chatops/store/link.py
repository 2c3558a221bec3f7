"""A connection to PostgreSQL that ends if nothing passes it any more.

A firewall, a router or a pooler may drop all packets of a connection and keep it open on this side: nothing ends it,
and what keeps TCP alive is answered on the way. So whoever waits for a statement would wait for ever. A limit for each
statement would end searches and copies that take long. So a second connection asks the server if it still works on the
statement. All of this takes less than the time after which tools have to be stopped because their lease is not renewed.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any, TypeVar, cast

import psycopg

SILENT_S = 5.0
"""Seconds without an answer after which the server is asked by another connection."""
_ON_ITS_WAY_S = 1.0
"""Seconds for an answer that the server has given while it was asked."""
T = TypeVar("T")


class Link(psycopg.Connection[Any]):
    """A connection that ends if the server does not work on what it waits for."""

    process = 0
    """The process of the server that executes its statements. 0: each has to be answered within `SILENT_S` seconds."""
    _parameters: Mapping[str, Any]

    @classmethod
    def to(cls, parameters: Mapping[str, Any]) -> Link:
        """Connect, without any transaction. Raises psycopg.OperationalError."""
        made = cls.connect(**cast("Any", parameters), autocommit=True)
        made._parameters = parameters
        return made

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for the server. Raises psycopg.OperationalError."""
        if self.process:
            gen = self._watched(gen)
        elif timeout is None:
            timeout = SILENT_S
        return super().wait(gen, interval, timeout)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        heard, is_idle = time.monotonic(), False
        try:
            wanted = next(gen)
            while True:
                if ready := (yield wanted):
                    heard, is_idle = time.monotonic(), False
                elif is_idle and time.monotonic() > heard + _ON_ITS_WAY_S:
                    self.close()
                    raise psycopg.OperationalError("nothing passes the connection any more")
                elif not is_idle and time.monotonic() > heard + SILENT_S:
                    heard, is_idle = time.monotonic(), not self._is_answering()
                wanted = gen.send(ready)
        except StopIteration as ended:
            return cast("T", ended.value)

    def _is_answering(self) -> bool:
        """Return True if the server works on a statement of this connection, and not on sending its rows."""
        works = "state !~ '^idle' AND wait_event IS DISTINCT FROM 'ClientWrite'"
        found = f"SELECT FROM pg_stat_activity WHERE pid = %s AND {works}"
        try:
            with closing(Link.to(self._parameters)) as other:
                return other.execute(found.encode(), [self.process]).rowcount > 0
        except psycopg.Error:
            return False
