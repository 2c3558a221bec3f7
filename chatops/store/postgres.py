"""The store in a PostgreSQL database, which several hosts share.

Theory of operation

The statements are those of the other stores, see `Connection`. They are sent with parameters of their own and never
put together from values. All tables are in the schema ``chatops``. Each process has one connection, which it makes
again when it is lost.

A write transaction first changes the one row of the table `store`. This does two things. It counts the changes, so
that others notice them. And it lets writers wait for each other until the commit, as ``BEGIN IMMEDIATE`` does for a
file: every statement after it sees what was committed before, so all promises of `turns` and `leases` hold as they
stand. One writer at a time is also the limit of this store: a commit holds the row for some statements and a flush of
the log to disk. A lock for each session would be narrower. Then the order of `activity`, and all that a transaction
reads of other sessions, needs care of its own. Readers wait for no one: they see the moment of their first statement.

The clock of the database, read once the row is locked, says when a lease expires. So the clocks of hosts do not matter.

PostgreSQL stores neither NUL nor lone surrogates. `escape_text` writes them, and its own mark, as the mark and four
digits. The mark is a noncharacter of Unicode, which JSON need not escape.

A database that was restored or copied gets another number, or another cluster around it. Then it is a copy as a copied
file is one, see `identity`: no earlier approval lets anything run, and no remembered rule answers. A database that was
restored in place, or together with its whole cluster, is not recognised.

An outage is a NotSavedError for each transaction that it meets, and the next one connects again. The store never moves
into memory. If a connection is lost during a commit, whether it took place is not known; the caller repeats the step,
which is recognised if it was stored.

Remembered rules answer for the role of the database that made them, and for no other one: user ids of several hosts say
nothing. What roles may do is in `members`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.types.string import StrDumper

from chatops.domain.errors import NotSavedError, StoreError
from chatops.domain.ids import SessionId
from chatops.domain.known_keys import add_known_keys, without_keys
from chatops.domain.tools import AccessLevel
from chatops.domain.wording import plural
from chatops.store import members, postgres_tables
from chatops.store.connection import Connection, SqlRow, Value, integer, real, text
from chatops.store.postgres_link import Link, Listener, connection_parameters, lacks_password, show_address
from chatops.store.session_files import SessionFiles
from chatops.store.sqlite_errors import DISK_FULL

MARK = "\ufdd0"
"""Beginning of an escaped character: a noncharacter, see above."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff\ufdd0]")
# No other character: the policies compare what is stored, and would not see it.
_ESCAPED = re.compile(f"{MARK}(0000|d[89a-f][0-9a-f]{{2}}|fdd0)")
_PARAMETER = re.compile(r"\?(\d*)|%")
"""A parameter in the form of SQLite, such as ``?`` or ``?2``, or what psycopg would take for one."""
_SETTINGS = {
    "search_path": "chatops, pg_temp",
    "lock_timeout": "15s",
    # A process that was stopped within a transaction would make all others wait.
    "idle_in_transaction_session_timeout": "10s",
    # The server, too, ends a connection whose other end is gone.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
    "standard_conforming_strings": "on",
}
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT version, now FROM begin_write()"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Postgres(Connection):
    """The connection of this process to a database. `Connection` says what each of the class attributes is."""

    HAS_BACKUP = False
    GREATEST = "greatest"
    ONE_OF = "= ANY(?)"
    # Readers keep no one waiting, so one query searches everything. It can use an index of trigrams if there is one.
    SEARCH = """
        SELECT seq, id, session_id, body FROM messages
        WHERE kind IN ('user', 'assistant', 'tool', 'summary') AND body ILIKE ?1 ESCAPE '!' AND (?2 IS NULL OR seq < ?2)
        ORDER BY seq DESC LIMIT ?3
    """
    IS_OBJECT = "object_of({column}) IS NOT NULL"
    FIELD = "(object_of({column}) #>> string_to_array('{field}', '.'))"
    # A number or a time beyond those of PostgreSQL would fail the query over the rows of all members.
    NUMBER = (
        "CASE WHEN jsonb_typeof(object_of({column}) #> string_to_array('{field}', '.')) = 'number' "
        f"THEN CASE WHEN abs({FIELD}::numeric) < 1e15 THEN round({FIELD}::numeric, 12)::float8 END END"
    )
    DAY = "CASE WHEN {column} BETWEEN 0 AND 250000000000 THEN to_char(to_timestamp({column}), 'YYYY-MM-DD') END"
    PAGES = "SELECT 'ok'"
    OWN = "made_by = session_user"
    PRINCIPAL = "principal"
    # A member who has made and deleted a session could still write rows of that id over a second connection.
    ID_LETTERS = 10
    WRITTEN_BY = "written_by"
    POST = "SELECT post_decision(?, ?, ?, ?)"
    POST_REVIEW = "SELECT post_review(?, ?, ?)"

    def __init__(self, address: str, *, unsaved: str = "", keyring: Callable[[str], str] = lambda place: "") -> None:
        """Connect to the database at `address`, such as ``postgresql://host/name``, and create or migrate its tables.

        `keyring` returns the password of a database by its place, for a server that asks for one that is given nowhere.

        Raises ConfigError for an address that must not be used, NotSavedError, and UnreadableError for tables of a
        newer chatops.
        """
        self._parameters = connection_parameters(address)
        self._keyring = keyring
        self.place = show_address(self._parameters)
        super().__init__(cast("Any", None), path=Path(os.devnull), unsaved=unsaved)
        self._link: Link | None = None
        self._listener = Listener(lambda: Link.to(self._parameters))
        self._role = ""
        self.is_owner = False
        """True if the role of this connection owns the tables, as that of workers does: no level binds it."""
        self._own_changes = 0
        """Number of changes that this connection has made."""
        self._pooled_process = 0
        """The process of the server behind a pooler; 0 if there is no pooler."""
        self._is_first = False
        """True from the start of a transaction, or of a query without one, to its first statement."""
        self._now: float | None = None
        """Time of the write transaction that is open."""
        with self._lock, self._translate_errors():
            try:
                self._open_tables(self._connect())
            except BaseException:
                self.close()
                raise

    def run(self, sql: str, *values: Any) -> Any:
        """Execute one statement, the first one over a new connection if the old one turns out to be lost."""
        if self._is_first:
            self._is_first = False
            link = self._connect()
            try:
                return self._execute(sql, values)
            except psycopg.Error:
                if not link.closed:
                    raise
            self._connect()
        return self._execute(sql, values)

    def _execute(self, sql: str, values: Sequence[Any]) -> Any:
        assert self._link is not None
        statement, numbers = _for_psycopg(sql, tuple(value is None for value in values))
        # A prepared plan is made without the pattern, so it would not use an index of trigrams.
        prepare = False if sql == self.SEARCH else None
        return self._link.execute(
            statement.encode(), [_to_database(values[number]) for number in numbers], prepare=prepare
        )

    def all(self, sql: str, *values: Any) -> list[SqlRow]:
        """Return all rows of a query."""
        return [tuple(map(_from_database, row)) for row in self.run(sql, *values)]

    def one(self, sql: str, *values: Any) -> SqlRow | None:
        """Return the first row of a query, or None."""
        row = self.run(sql, *values).fetchone()
        return None if row is None else tuple(map(_from_database, row))

    def listed(self, values: Sequence[str]) -> Any:
        """Return the parameter of `ONE_OF` that stands for these values."""
        return list(map(escape_text, values))

    def now(self) -> float:
        """Return the time of the database; in a write transaction, the time at which it got its lock."""
        with self._lock:
            if self._now is not None:
                return self._now
            return real(self._only_row("SELECT extract(epoch FROM clock_timestamp())::float8")[0])

    def changes(self) -> int:
        """Return a number that changes when another connection has written."""
        with self._lock:
            return integer(self._only_row("SELECT changes FROM store")[0]) - self._own_changes

    def files(self) -> SessionFiles:
        """Return the files of sessions, which are in the database too."""
        return postgres_tables.PostgresFiles(self)

    def owner(self) -> int | None:
        """Return None, as no single user owns the rows."""
        return None

    def setting_key(self, key: str, role: str = "") -> str:
        """Return the key under which a setting is stored: one of this role, unless it belongs to a session."""
        role = role or self.role
        kind, _, _ = key.partition(":")
        return key if kind in members.SESSION_SETTINGS else f"@{len(role)}:{role}:{key}"

    @property
    def role(self) -> str:
        """The role that has logged in."""
        return self._role

    def requester(self, session_id: SessionId) -> str:
        """Return the role for which a session asks."""
        (principal,) = self.one("SELECT principal FROM sessions WHERE id = ?", session_id) or ("",)
        return text(principal)

    groups_of, levels, level_of = members.groups_of, members.levels, members.level_of

    def grant(self, role: str, level: AccessLevel | None) -> None:
        """Give a role of the database a level; None: take it away. Raises StoreError."""
        if not self.is_owner:
            raise StoreError(
                f"Only the owner of {self.place} grants levels, and this is {self.role}.",
                advice="Name the owner in the address of the store.",
            )
        members.grant(self, role, level)

    def foreign(self, session_id: SessionId, *, to_drive: bool = True) -> str:
        """Return whom a session belongs to; empty if this role may drive it, or may change it if not `to_drive`."""
        queued = "EXISTS (SELECT 1 FROM queue q WHERE q.session_id = s.id)"
        found = self.one(f"SELECT s.principal, {queued} FROM sessions s WHERE s.id = ?", session_id)
        principal, by_worker = found or (self.role, False)
        own = principal == self.role and not by_worker
        may = own or (self.is_owner and (by_worker or not to_drive))
        if may:
            return ""
        return f"{principal}, and workers drive it" if by_worker else f"{principal}"

    def describe(self) -> str:
        """Return where the database is, and what is in it, in one line. Raises StoreError."""
        counts = "(SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)"
        with self._lock:
            version, release, sessions, messages = self._only_row(
                f"SELECT version, current_setting('server_version'), {counts} FROM store"
            )
        counted = f"{plural(integer(sessions), 'session')}, {plural(integer(messages), 'message')}"
        return f"{self.place}: PostgreSQL {release}, version {version}, {counted}"

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with self._lock:
            self._closed = True
            self._listener.close()
            if self._link is not None:
                self._link.close()

    def listen(self, wake: Callable[[], object], *names: str) -> Callable[[], object]:
        """Call `wake` when another process may have changed what a name stands for, see `Connection.listen`."""
        return self._listener.add(wake, names)

    @contextmanager
    def query(self) -> Iterator[None]:
        """Run the block, which has one query, without a transaction."""
        with self._lock, self._translate_errors():
            self._must_be_open()
            self._is_first = True
            try:
                yield
            finally:
                self._is_first = False

    def _only_row(self, sql: str) -> SqlRow:
        """Return the first row of a query outside of any transaction."""
        with self.query():
            return self.one(sql) or (None,)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self.query():
            writes = begin != "BEGIN"
            try:
                begun = self.run(_BEGIN_WRITE if writes else _BEGIN_READ)
                self._must_be_same_process()
                # The second result is that of begin_write().
                if writes and begun.nextset():
                    version, now = begun.fetchone()
                    self._now = real(now)
                    postgres_tables.must_be_readable(integer(version), self.place)
                yield
                if self.run("COMMIT").statusmessage != "COMMIT":
                    raise StoreError(f"The database {self.place} refused a statement: nothing was stored.")
                self._own_changes += writes
            except BaseException:
                if self._link is not None and self._link.info.transaction_status is not TransactionStatus.IDLE:
                    with suppress(psycopg.Error):
                        self.run("ROLLBACK")
                raise
            finally:
                self._now = None

    def _connect(self) -> Link:
        """Return the connection, made again if it was lost."""
        if self._link is None or self._link.closed:
            try:
                self._link = Link.to(self._parameters)
            except psycopg.OperationalError as error:
                if not lacks_password(error):
                    raise
                password = self._keyring(self.place)
                if not password:
                    raise
                add_known_keys(password)
                self._parameters = {**self._parameters, "password": password}
                self._link = Link.to(self._parameters)
            try:
                self._set_up(self._link)
            except BaseException:
                self._link.close()
                raise
        return self._link

    def _set_up(self, link: Link) -> None:
        """Set what the store relies on, and find out whether a pooler is in between."""
        link.adapters.register_dumper(str, StrDumper)
        # A statement that was prepared in another process of the server may be another one there.
        link.prepare_threshold = None
        with link.transaction():
            settings = ", ".join(["set_config(?, ?, false)"] * len(_SETTINGS))
            self.run(f"SELECT {settings}", *chain.from_iterable(_SETTINGS.items()))
            # A call whose commit the server forgets could take effect twice.
            name = "'synchronous_commit'"
            self.run(f"SELECT set_config({name}, 'on', false) WHERE current_setting({name}) = 'off'")
            for zone in _time_zones():
                with suppress(psycopg.DataError), link.transaction():
                    self.run("SELECT set_config('TimeZone', ?, false)", zone)
                    break
            process = integer((self.one("SELECT pg_backend_pid()") or (0,))[0])
        self._pooled_process = process if process != link.info.backend_pid else 0
        link.process = process
        if not self._pooled_process:
            link.prepare_threshold = 5  # psycopg's own default

    def _must_be_same_process(self) -> None:
        """Raise StoreError if a pooler has given this transaction to a process of the server without our settings."""
        if self._pooled_process and self.one("SELECT pg_backend_pid()") != (self._pooled_process,):
            raise self._not_for_poolers()

    def _not_for_poolers(self) -> StoreError:
        return StoreError(
            f"A pooler before {self.place} spreads the transactions of one connection: nothing was stored.",
            advice="Set pool_mode = session in PgBouncer, or connect to the database itself.",
        )

    def _open_tables(self, link: Link) -> None:
        """Find out who owns the tables, and create or migrate them. Raises StoreError if only another role may."""
        if link.info.server_version < 140000:
            raise StoreError(
                f"{self.place} runs PostgreSQL {link.info.server_version // 10000}.", advice="Use 14 or newer."
            )
        owns = "SELECT pg_has_role(current_user, nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'chatops'"
        self._role = text((self.one("SELECT session_user::text") or (None,))[0])
        self.is_owner = bool((self.one(owns) or (True,))[0])
        if not postgres_tables.are_current(self):
            self._must_own("update the tables")
            with link.transaction():
                postgres_tables.create_or_migrate(self, self.place)
        if postgres_tables.is_copy_or_new(self):
            self._must_own("open a copied or restored database first")
            with self.write():
                postgres_tables.note_database(self)

    def _must_own(self, to_do: str) -> None:
        if not self.is_owner:
            raise StoreError(
                f"{self.role} cannot {to_do} in {self.place}.", advice="Its owner starts this version of chatops once."
            )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._store_error(error) from error

    def _store_error(self, error: psycopg.Error) -> StoreError:
        """Return `error` as a StoreError, NotSavedError if it may pass."""
        first_line, _, _ = str(error).partition("\n")
        message = (error.diag.message_primary or first_line).rstrip(".")
        match error:
            case errors.DiskFull():
                why, advice = DISK_FULL, "Free some space where the database is."
            case errors.LockNotAvailable() | errors.QueryCanceled() | errors.DeadlockDetected():
                why = "locked by another program"
                advice = "End the program that keeps its tables locked, then try again."
            case errors.ReadOnlySqlTransaction():
                why, advice = "the database is read-only", "Name the server that takes writes, or wait for it."
            case errors.UndefinedTable() | errors.UndefinedFunction() if self._pooled_process:
                return self._not_for_poolers()
            # Without a right to the schema its tables are not found.
            case errors.InsufficientPrivilege() | errors.UndefinedTable() | errors.UndefinedFunction():
                return StoreError(
                    f"The database {self.place} does not permit this: {message}.",
                    advice="Members change what is their own, and have a level of its owner: chatops store grant ROLE "
                    "--level L",
                )
            case psycopg.OperationalError() | errors.IdleInTransactionSessionTimeout() | psycopg.InterfaceError():
                why, advice = "the database cannot be reached", "chatops connects again by itself once it answers."
                if lacks_password(error):
                    advice = f"Put it into ~/.pgpass or PGPASSWORD, or run: keyring set chatops {self.place}"
                elif "certificate" in message or "SSL" in message:
                    advice = "It has to prove its name by a certificate: see docs/team.md, and sslrootcert=FILE."
                return NotSavedError(
                    f"The database {self.place} cannot be reached ({message}).", advice=advice, reason=why
                )
            case _:
                return StoreError(f"The database {self.place} failed: {message}.", advice="Run `chatops doctor`.")
        return NotSavedError(f"Not saved to {self.place}: {why} ({message}).", advice=advice, reason=why, says_so=True)


def escape_text(value: str) -> str:
    """Return `value` without NUL and lone surrogates, which PostgreSQL does not store."""
    return _UNSTORABLE.sub(lambda found: f"{MARK}{ord(found[0]):04x}", value)


def unescape_text(stored: str) -> str:
    """Return what `escape_text` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stored) if MARK in stored else stored


def _to_database(value: Any) -> Any:
    return escape_text(without_keys(value)) if isinstance(value, str) else value


def _from_database(value: Any) -> Value:
    return unescape_text(value) if isinstance(value, str) else cast("Value", value)


@lru_cache(maxsize=512)
def _for_psycopg(sql: str, nulls: tuple[bool, ...]) -> tuple[str, tuple[int, ...]]:
    """Return a statement with the parameters of psycopg, and which values they are.

    NULL is put into the text: a parameter that is only compared with NULL has no type.
    """
    numbers: list[int] = []
    unnumbered = iter(range(len(nulls)))

    def put_parameter(found: re.Match[str]) -> str:
        if found[0] == "%":
            return "%%"
        number = int(found[1]) - 1 if found[1] else next(unnumbered)
        if nulls[number]:
            return "NULL"
        numbers.append(number)
        return "%s"

    statement = _PARAMETER.sub(put_parameter, sql)
    return statement, tuple(numbers)


def _time_zones() -> tuple[str, str]:
    """Return the time zone of this process, in which days are counted: by name, and by its offset now."""
    _, _, zone = os.path.realpath("/etc/localtime").rpartition("/zoneinfo/")
    named = os.environ.get("TZ", "").removeprefix(":") or zone
    west = -time.localtime().tm_gmtoff
    return named, f"<local>{'-' if west < 0 else '+'}{abs(west) // 3600:02}:{abs(west) % 3600 // 60:02}"
