"""A store in a file of its own, and what is in it past the store."""

import sqlite3
from contextlib import closing
from pathlib import Path

from chatops.domain.ids import SessionId
from chatops.store.store import Store


def a_session(store: Store) -> SessionId:
    return store.create_session(workspace="/w", role="coder", persona="default").id


def sql(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as raw, raw:
        return raw.execute(statement, values).fetchall()
