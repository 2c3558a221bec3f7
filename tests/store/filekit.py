"""A store in a file of its own, and what is in it past the store."""

import sqlite3
from contextlib import closing
from pathlib import Path

from chatops.domain.ids import SessionId
from chatops.store.sqlite import SqliteStore


def a_session(store: SqliteStore) -> SessionId:
    return store.create_session(workspace="/w", role="coder", persona="default").id


def sql(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as raw, raw:
        return raw.execute(statement, values).fetchall()
