"""Atomic transactions on a connection that nothing else uses."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def transaction(raw: sqlite3.Connection, *, unchecked: bool = False) -> Iterator[None]:
    """Run the block in one transaction: durable when it has ended, or undone. `raw` is in autocommit mode.

    `unchecked`: rows may come before those that they refer to, as when whole tables are copied.
    """
    if unchecked:
        raw.execute("PRAGMA foreign_keys = OFF")
    try:
        raw.execute("BEGIN IMMEDIATE")
        try:
            yield
            raw.execute("COMMIT")
        except BaseException:
            # Some errors (disk full, I/O) have already rolled back.
            if raw.in_transaction:
                with suppress(sqlite3.Error):
                    raw.execute("ROLLBACK")
            raise
    finally:
        if unchecked:
            raw.execute("PRAGMA foreign_keys = ON")
