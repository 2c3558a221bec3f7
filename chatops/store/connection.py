"""One connection to a database, shared between threads.

Writes are ``BEGIN IMMEDIATE``: a transaction that starts with a read and then writes fails at once beside another
writer, whatever the busy timeout is. Text with lone surrogates is bound as a blob and read back as text, so that
nothing in a model's reply or a file name can make a commit raise.

Python's module decodes SQLite's messages strictly. One that quotes a damaged schema raises UnicodeDecodeError, which is
no sqlite3.Error. Connections made by `connect` raise Damage instead.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from chatops.domain.decisions import NO_UID
from chatops.domain.errors import SessionHeldError, StoreError, UnreadableError
from chatops.domain.known_keys import without_keys
from chatops.domain.tools import AccessLevel
from chatops.store.sqlite_errors import Damage, is_busy, translate_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatops.domain.ids import SessionId
    from chatops.store.session_files import SessionFiles

log = logging.getLogger(__name__)

T = TypeVar("T")
Value = None | int | float | str
SqlRow = tuple[Value, ...]

BUSY_TIMEOUT_MS = 5000
"""Milliseconds without a commit of anyone after which a lock counts as held by a program that hangs."""
MAX_WAIT_S = 60.0
"""Seconds that a transaction waits at most while other processes commit theirs."""


class ClockLook(NamedTuple):
    """A look at the clock of a database, in seconds."""

    took: float
    """Seconds until the answer."""
    ahead: float
    """Seconds that the clock of the database is ahead of this machine's."""


class Connection:
    """An open database. All access goes through `read` and `write`, one thread at a time.

    Another database for the sessions needs a class like this one, and its own `schema`. The statements of the store are
    standard SQL, but for the parts that each database has in its own form: the class attributes.
    """

    GREATEST = "max"
    """Function that returns the greatest of its arguments."""
    ONE_OF = "IN (SELECT value FROM json_each(?))"
    """Condition: one of the values that `listed` has made a parameter."""
    SEARCH = """
        SELECT seq, id, session_id,
            CASE WHEN kind IN ('user', 'assistant', 'tool', 'summary')
                AND CAST(body AS TEXT) LIKE ?1 ESCAPE '!' THEN body END
        FROM messages WHERE ?2 IS NULL OR seq < ?2 ORDER BY seq DESC LIMIT ?3
    """
    """Query: messages before the row ?2, newest first. Those that match the pattern ?1, whatever the case of ASCII
    letters, have a body. The others have none, or are left out. A body may be a blob.
    """
    IS_OBJECT = "CASE WHEN json_valid({column}) THEN json_type({column}) END = 'object'"
    """Condition: a column holds a JSON object."""
    FIELD = NUMBER = "json_extract({column}, '$.{field}')"
    """A text, or a number, in a field of the JSON object in a column."""
    DAY = "date({column}, 'unixepoch', 'localtime')"
    """The day in local time, such as ``2026-11-21``, of seconds since the epoch."""
    PAGES = "PRAGMA integrity_check(100)"
    """Query: up to 100 complaints about the pages of the database; ``ok`` if there is none."""
    PRINCIPAL = "''"
    """Column of `posted` and `posted_reviews`: the role of the database that a decision or review came from."""
    ID_LETTERS = 4
    """Letters of the random part of a new session's id."""
    WRITTEN_BY = "''"
    """Column of `audit`: the role of the database that wrote the row."""
    POST = ""
    """Query that posts a decision by a function of the database; empty if there is none."""
    POST_REVIEW = ""
    """The same for a review of a run at one of its states."""
    HAS_BACKUP = True
    """True if a backup is made beside the database, from which a deleted session has to go too."""
    OWN = "TRUE"
    """Condition: a remembered rule was made by someone with the rights of this connection."""

    def __init__(self, raw: sqlite3.Connection, *, path: Path, unsaved: str = "") -> None:
        """Wrap `raw`, made by `prepare`. `path` is what errors name; `unsaved` as in `Store.unsaved`."""
        self.path = path
        self.unsaved = unsaved
        self.notices: list[str] = []
        """Notices for the user about this file, one sentence each. More may come while it is open."""
        self._raw = raw
        self._lock = threading.RLock()
        self._closed = False

    @contextmanager
    def write(self) -> Iterator[None]:
        """Run the block in one write transaction: all of it is durable afterwards, or nothing."""
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def read(self) -> Iterator[None]:
        """Run the block in one read transaction, so that its queries see the same moment."""
        with self._transaction("BEGIN"):
            yield

    def query(self) -> AbstractContextManager[None]:
        """Run the block, which has one query. Over a network that is faster than a transaction."""
        return self.read()

    def all(self, sql: str, *values: Value) -> list[SqlRow]:
        """Return all rows of a query."""
        return self.run(sql, *values).fetchall()

    def one(self, sql: str, *values: Value) -> SqlRow | None:
        """Return the first row of a query, or None."""
        row: SqlRow | None = self.run(sql, *values).fetchone()
        return row

    def run(self, sql: str, *values: Value | bytes) -> sqlite3.Cursor:
        """Execute one statement."""
        return self._raw.execute(sql, tuple(map(bind, values)))

    def insert(self, table: str, /, **values: Value) -> None:
        """Insert a row. The names are columns."""
        marks = ", ".join("?" * len(values))
        self.run(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", *values.values())

    def upsert(self, table: str, key: str, /, **values: Value) -> None:
        """Insert a row, or change these columns of the row with the same `key`."""
        marks = ", ".join("?" * len(values))
        changes = ", ".join(f"{name} = excluded.{name}" for name in values if name != key)
        sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {changes}"
        self.run(sql, *values.values())

    def listen(self, wake: Callable[[], object], *names: str) -> Callable[[], object]:
        """Call `wake` in a thread when another process may have changed what one of these names stands for.

        Names are ids of sessions, `base.CALLS`, and `base.IN_QUEUE` with a workspace. Return how to end it. A file
        notifies of nothing, so a listener also looks from time to time.
        """
        return lambda: None

    def put_setting(self, key: str, value: str, *, role: str = "") -> None:
        """Store a setting, in a database that of another `role` if one is given."""
        self.upsert("settings", "key", key=self.setting_key(key, role), value=value)

    def setting_key(self, key: str, role: str = "") -> str:
        """Return the key under which a setting is stored."""
        return key

    @property
    def role(self) -> str:
        """The role of the database that this connection has logged in as; empty in a file."""
        return ""

    def level_of(self, role: str) -> AccessLevel | None:
        """Return the highest level of a role of the database; None if it may nothing. A file binds nobody."""
        return AccessLevel.ADMIN

    def requester(self, session_id: SessionId) -> str:
        """Return the role of the database for which a session asks; in a file its user, as ``uid 1000``."""
        return f"uid {self.owner()}"

    def groups_of(self, role: str, among: Sequence[str]) -> frozenset[str] | None:
        """Return those of these roles of the database that a role is a member of; None in a file."""
        return None

    def levels(self) -> dict[str, AccessLevel]:
        """Return the levels of the members of a team's database; none in a file."""
        return {}

    def grant(self, role: str, level: AccessLevel | None) -> None:
        """Give a role of the database a level; None: take it away. Raises StoreError."""
        raise StoreError(
            f"{self.path} is a file of one user, and has no roles.",
            advice='Levels are granted in a database: "store": "postgresql://…", or CHATOPS_STORE.',
        )

    def foreign(self, session_id: SessionId, *, to_drive: bool = True) -> str:
        """Return whom a session belongs to; empty if this role may drive it, or may change it if not `to_drive`."""
        return ""

    def must_be_own(self, session_id: SessionId, *, to_drive: bool = False) -> None:
        """Raise SessionHeldError if a session belongs to another role of the database."""
        if whose := self.foreign(session_id, to_drive=to_drive):
            raise SessionHeldError(
                f"Session {session_id} belongs to {whose}.",
                advice=f"`chatops -r {session_id}` follows it, and shows the calls that wait. To continue in a copy of "
                f"your own: chatops sessions fork {session_id}",
            )

    def listed(self, values: Sequence[str]) -> Any:
        """Return the parameter of `ONE_OF` that stands for these values."""
        return json.dumps(values)

    def files(self) -> SessionFiles:
        """Return the files of sessions."""
        from chatops.store.session_files import SessionFiles

        return SessionFiles(self.path)

    def owner(self) -> int | None:
        """Return the uid of the only user who can write here; None if there may be others. `NO_UID`: not known."""
        try:
            return self.path.stat().st_uid
        except OSError:
            return NO_UID

    def describe(self) -> str:
        """Return where the database is, and how it is, in one line."""
        return str(self.path)

    def now(self) -> float:
        """Return the time by which leases expire, in seconds since the epoch."""
        return time.time()

    def measure_clock(self) -> ClockLook:
        """Ask the database for its time."""
        measured = []
        for _ in range(3):
            began, here = time.monotonic(), time.time()
            there = self.now()
            took = time.monotonic() - began
            # The answer is taken to come from the middle of that time.
            measured.append(ClockLook(took, there - here - took / 2))
        # The quickest answer says most about the clock: the error is at most half of the time that it took.
        return min(measured)

    def changes(self) -> int:
        """Return a number that changes when another connection has written. Not within a transaction."""
        with self._lock, translate_errors(self.path):
            self._must_be_open()
            return integer((self.one("PRAGMA data_version") or (0,))[0])

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._raw.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._lock, translate_errors(self.path):
            self._must_be_open()
            self._begin(begin)
            try:
                yield
                self._raw.execute("COMMIT")
            except BaseException as error:
                _roll_back(self._raw)
                if isinstance(error, sqlite3.Error):
                    self._handle_failure(error)
                raise

    def _begin(self, begin: str) -> None:
        """Begin a transaction with the statement `begin`. While other processes commit theirs, it waits for its turn.

        SQLite gives up after `BUSY_TIMEOUT_MS`, which is too short for the last of many processes on a busy machine.
        """
        give_up_at = time.monotonic() + MAX_WAIT_S
        seen = self._commits_of_others()
        while True:
            try:
                self._raw.execute(begin)
            except sqlite3.Error as error:
                before, seen = seen, self._commits_of_others()
                # Nobody has committed for as long as SQLite has waited: the lock is held by a program that hangs.
                if not is_busy(error) or seen == before or time.monotonic() > give_up_at:
                    raise
            else:
                return

    def _commits_of_others(self) -> object:
        """Return a number that changes when another connection has committed; None if it is not known now."""
        try:
            return self._raw.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return None

    def _handle_failure(self, error: sqlite3.Error) -> None:
        """Handle a transaction that failed and was rolled back. May raise a more helpful error."""

    def _must_be_open(self) -> None:
        if self._closed:
            raise StoreError("The session store has been closed.", advice="Start chatops again.")


class _RawConnection(sqlite3.Connection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.text_factory = _decode_text

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        try:
            return super().execute(sql, parameters)
        except UnicodeDecodeError as error:
            raise Damage("malformed database schema, and no UTF-8 text") from error


def connect(database: Path | str) -> sqlite3.Connection:
    """Open a database, named by its path or a URI, in autocommit mode. Several threads may use it in turns.

    Raises sqlite3.Error, here and wherever it is used, also for a schema that cannot be decoded.
    """
    return sqlite3.connect(
        database,
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        factory=_RawConnection,
    )


def prepare(raw: sqlite3.Connection) -> sqlite3.Connection:
    """Set `raw`, which is in autocommit mode, to read and write values as the store does, and return it."""
    raw.row_factory = _decode_row
    raw.execute("PRAGMA foreign_keys = ON")
    return raw


def bind(value: Value | bytes) -> Value | bytes:
    """Return `value` as a parameter of a statement. Every text that enters a row comes here, and loses known keys."""
    if isinstance(value, str):
        value = without_keys(value)
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def _decode_text(stored: bytes) -> str:
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return stored.decode("utf-8", "replace")


def _decode_row(cursor: sqlite3.Cursor, row: Sequence[object]) -> tuple[object, ...]:
    return tuple(_decode_text(value) if isinstance(value, bytes) else value for value in row)


@contextmanager
def transaction(raw: sqlite3.Connection, *, unchecked: bool = False) -> Iterator[None]:
    """Run the block in one transaction: durable when it has ended, or undone. `raw` is in autocommit mode.

    If `unchecked`, rows may be written before the rows that they refer to, as when whole tables are copied.
    """
    if unchecked:
        raw.execute("PRAGMA foreign_keys = OFF")
    try:
        raw.execute("BEGIN IMMEDIATE")
        try:
            yield
            raw.execute("COMMIT")
        except BaseException:
            _roll_back(raw)
            raise
    finally:
        if unchecked:
            raw.execute("PRAGMA foreign_keys = ON")


def _roll_back(raw: sqlite3.Connection) -> None:
    # SQLite itself has rolled back after some errors (disk full, I/O).
    if raw.in_transaction:
        with suppress(sqlite3.Error):
            raw.execute("ROLLBACK")


def text(value: Value) -> str:
    """Return a text column. Raises UnreadableError."""
    if isinstance(value, str):
        return value
    raise _wrong_type_error(value)


def text_or_none(value: Value) -> str | None:
    """Return a text column that may be NULL. Raises UnreadableError."""
    return None if value is None else text(value)


def text_or(value: Value, instead: str) -> str:
    """Return a text column that is only displayed; `instead` if it is damaged."""
    return value if isinstance(value, str) else instead


_LATEST_TIME_S = 250_000_000_000
"""Seconds since the epoch, in the year 9892: a later time is damage, as calendars end with the year 9999."""


def number_or_zero(value: Value) -> float:
    """Return a number that is only displayed; 0 if it is damaged."""
    return value if isinstance(value, int | float) and abs(value) < _LATEST_TIME_S else 0


def integer(value: Value) -> int:
    """Return an integer column. Raises UnreadableError."""
    if isinstance(value, int):
        return value
    raise _wrong_type_error(value)


def integer_or_none(value: Value) -> int | None:
    """Return an integer column that may be NULL. Raises UnreadableError."""
    return None if value is None else integer(value)


def real(value: Value) -> float:
    """Return a number: a time in seconds since the epoch, or an amount. Raises UnreadableError for a damaged one."""
    if isinstance(value, int | float) and abs(value) < _LATEST_TIME_S:
        return float(value)
    raise _wrong_type_error(value)


def real_or_none(value: Value) -> float | None:
    """Return a number as `real` does, or None for NULL. Raises UnreadableError."""
    return None if value is None else real(value)


def readable(rows: Iterable[SqlRow], decode: Callable[[SqlRow], T], *, what: str) -> list[T]:
    """Return what `decode` makes of each row. A damaged one is left out, and `what` it was is logged."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(decode(row))
        except (UnreadableError, ValueError) as error:
            log.warning("%s is left out: %s", what, error)
    return found


def _wrong_type_error(value: Value) -> UnreadableError:
    return UnreadableError(
        f"A row of the session store is damaged: a value has the wrong type ({type(value).__name__}).",
        advice="Run `chatops doctor` to check the store.",
    )
