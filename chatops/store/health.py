"""Problems of a store, its file and its pending work, found without changing anything.

The file is read through SQLite alone: opening and closing it in another way would drop the locks that SQLite holds on
it for this process.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from chatops.domain.errors import StoreError, UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId, SessionId
from chatops.domain.wording import plural
from chatops.store import audit
from chatops.store.backup import MAX_BACKUP_BYTES
from chatops.store.codec import decode_principal, decode_recorded, decode_run, decode_state
from chatops.store.connection import Connection, SqlRow, Value, prepare
from chatops.store.export import kept_files
from chatops.store.leases import HOLDER, holder_in
from chatops.store.messages import decode_body
from chatops.store.opening import backup_of, is_of_one_row, must_be_ours, refuse_other_version
from chatops.store.process_identity import is_alive
from chatops.store.recovery import open_to_read
from chatops.store.schema import SCHEMA_VERSION, references, schema_faults
from chatops.store.session_files import SessionFiles
from chatops.store.sqlite_errors import is_busy, is_damage, store_error
from chatops.store.turns import stored_grant

if TYPE_CHECKING:
    from chatops.store.queue import Queue

MOST_NAMED = 5
"""Maximum number of things that a finding names."""
_WHEN_DAMAGED = (
    "The next chatops that saves something renames it, and copies what can be read into a new store. To look first: "
    "chatops sessions list --all, chatops sessions export SESSION"
)
LITTLE_SPACE = 100_000_000
"""Bytes of free space below which a finding is reported. Below a tenth of it, it is a failure."""
SLOW_S, APART_S = 0.1, 5.0
"""Seconds for an answer of a database, and between the clocks, beyond which a finding is reported."""
LARGE_LOG = 64_000_000
"""Bytes of write-ahead log beyond which something must be blocking its checkpoint."""

_TEST_BYTES = 4096
"""Bytes to write as a test: fewer may fit where nothing else does."""


class Severity(Enum):
    """Severity of a finding."""

    OK = auto()
    WARN = auto()
    FAIL = auto()


@frozen_dataclass
class Finding:
    """A result of one check: a sentence, and what to do."""

    severity: Severity
    text: str
    advice: str = ""


def _warning(text: str, advice: str = "") -> Finding:
    return Finding(severity=Severity.WARN, text=text, advice=advice)


def _failure(text: str, advice: str) -> Finding:
    return Finding(severity=Severity.FAIL, text=text, advice=advice)


def _fine(text: str, advice: str = "") -> Finding:
    return Finding(severity=Severity.OK, text=text, advice=advice)


def findings(path: Path, *, deep: bool = False) -> list[Finding]:
    """Return all findings about the store at `path`, without changing or moving it.

    Reads the whole file; `deep`: also the files of sessions, and the chains of the log. Raises nothing.
    """
    try:
        if not path.exists():
            return [_describe_missing(path)]
        if path.is_dir():
            return [_failure(f"{path} is a folder. chatops keeps its file there.", "Move that folder away.")]
        refuse_other_version(path)
        file_checks = (_check_rights, _check_space, _check_log, _list_quarantined, _check_backup)
        of_file = [finding for check in file_checks for finding in check(path)]
        with closing(open_to_read(path)) as raw:
            must_be_ours(raw, path)
            missing = _check_schema(raw)
            rows = Connection(prepare(raw), path=path)
            counted = [*_count_rows(rows), *_check_pages(rows)]
            contents = check_rows(rows) if deep else _check_contents(rows)
            return [*counted, *contents, *_list_unknown_outcomes(rows), *missing, *of_file]
    except sqlite3.Error as error:
        return [_describe_error(error, path)]
    except StoreError as error:
        return [_failure(str(error), error.advice)]
    except OSError as error:
        return [_failure(f"{path} cannot be read: {error.strerror or error}.", "Check its folder's permissions.")]


def _describe_error(error: sqlite3.Error, path: Path) -> Finding:
    """Return the finding for a file that cannot be read. Unlike `store_error`, it does not advise to run doctor."""
    if is_damage(error):
        return _failure(f"{path} is damaged: {error}.", _WHEN_DAMAGED)
    if is_busy(error):
        busy = store_error(error, path=path)
        return _failure(str(busy), busy.advice)
    advice = "Check the disk, and the permissions of the file and its folder."
    return _failure(f"{path} cannot be read: {error}.", advice)


def _describe_missing(path: Path) -> Finding:
    obstacle = write_obstacle(path.parent)
    if obstacle is None:
        return _fine(f"{path} does not exist yet; the first message creates it")
    return _failure(f"There is no store, and nothing is saved: {path.parent} {obstacle.why}.", obstacle.advice)


def _count_rows(rows: Connection) -> list[Finding]:
    counts = [_read_value(rows, f"SELECT count(*) FROM {name}") for name in ("sessions", "messages")]
    version = _read_value(rows, "PRAGMA user_version")
    older = f" of {SCHEMA_VERSION}, upgraded when chatops opens it" if version != SCHEMA_VERSION else ""
    text = f"{rows.path}: {_format_size(rows.path.stat().st_size)}, version {version}{older}"
    for count, noun in zip(counts, ("session", "message"), strict=True):
        text += f", {plural(count, noun)}" if isinstance(count, int) else ""
    return [_fine(text)]


def _check_schema(raw: sqlite3.Connection) -> list[Finding]:
    if not (faults := schema_faults(raw)):
        return []
    text = f"The file does not have the tables of its version: {'; '.join(faults[:MOST_NAMED])}."
    return [_failure(text, _WHEN_DAMAGED)]


def _check_pages(rows: Connection) -> list[Finding]:
    complaints = [str(row[0]) for row in _read_rows(rows, rows.PAGES)]
    broken = [complaint for complaint in complaints if complaint != "ok" and not is_of_one_row(complaint)]
    found: list[Finding] = []
    if broken or not complaints:
        faults = "; ".join(broken[:MOST_NAMED]) or "its pages cannot be read"
        found.append(_failure(f"The file is damaged: {faults}.", _WHEN_DAMAGED))
    if odd := [complaint for complaint in complaints if is_of_one_row(complaint)]:
        found.append(_warning(f"Some rows have values of the wrong type: {'; '.join(odd[:MOST_NAMED])}."))
    return found


def _check_references(rows: Connection) -> list[Finding]:
    """Return a finding about rows that refer to missing ones, which some databases let no one store."""
    lost = [
        f"{table}.{column}"
        for table, column, parent, key in references()
        if _read_rows(
            rows,
            f"SELECT 1 FROM {table} c WHERE c.{column} IS NOT NULL "
            f"AND NOT EXISTS (SELECT 1 FROM {parent} p WHERE p.{key} = c.{column}) LIMIT 1",
        )
    ]
    if not lost:
        return []
    text = "Some rows refer to rows that are missing: a session may lack its older messages"
    return [_warning(f"{text} ({', '.join(lost)}).")]


def describe(rows: Connection) -> list[Finding]:
    """Return where a database is, what is in it, and how it answers. Raises StoreError."""
    took, ahead = rows.measure_clock()
    # Plus 0, so that a rounded -0.0 is shown as +0.0.
    clock = f"{round(ahead, 1) + 0:+.1f} s"
    found = [_fine(f"{rows.describe()}, answers in {1000 * took:.1f} ms, its clock is {clock} from this one")]
    if took > SLOW_S:
        text = f"The database takes {1000 * took:.0f} ms to answer, and each step of a turn waits for some answers."
        found.append(_warning(text, "Run chatops nearer to it."))
    if abs(ahead) > APART_S:
        text = f"The clocks of this machine and of the database are {abs(ahead):.0f} s apart: times are shown wrongly."
        found.append(_warning(text, "Set the clocks. Who owns a session does not depend on them."))
    return found


def describe_queue(queue: Queue, *, now: float) -> list[Finding]:
    """Return how the queue of a database is; empty if nothing is queued and no worker lives. Raises StoreError."""
    workers, queued = queue.workers(), queue.queued()
    if not workers and not queued:
        return []
    ready = [row for row in queued if row.runnable and row.lease is None]
    text = f"{plural(len(workers), 'worker is', 'workers are')} alive, {plural(len(queued), 'turn')} in the queue"
    if ready:
        oldest = min(row.session.updated_at for row in ready)
        text += f", {len(ready)} of them ready, the oldest for {max(0, now - oldest):.0f} s"
    found = [_fine(text)]
    served = {workspace for worker in workers for workspace in worker.workspaces}
    if missing := sorted({row.workspace for row in ready} - served):
        text = f"No worker is alive for {', '.join(missing[:MOST_NAMED])}, where turns are ready."
        found.append(_warning(text, "To see them: chatops queue list"))
    turns, hints = queue.unmatched()
    if turns or hints:
        text = f"{plural(turns, 'ready turn has', 'ready turns have')} no hint for workers, and {hints} hints no turn."
        found.append(_warning(text, "Workers mend that every 10 s. At once: chatops queue sweep"))
    return found


def check_rows(rows: Connection) -> list[Finding]:
    """Return findings about all rows and files of a store of any kind, each of which is read. Raises StoreError."""
    with rows.read():
        bodies = _read_bodies(rows)
        found = [*_check_references(rows), *bodies.damaged, *_check_chains(rows), *_list_unfinished(rows)]
        sessions = [SessionId(str(row[0])) for row in rows.all("SELECT id FROM sessions")]
    return [*found, *_check_files(rows.files(), sessions, bodies.files)]


def _check_contents(rows: Connection) -> list[Finding]:
    """Return as much of `check_rows` as takes no long time."""
    return [*_check_references(rows), *_read_bodies(rows).damaged, *_list_unfinished(rows)]


def _check_chains(rows: Connection) -> list[Finding]:
    stored = audit.rows_of(rows)
    faults, _ = audit.verify(stored, ())
    if not faults:
        return [_fine(f"{plural(len(stored), 'row')} of the log, whose chains are whole")]
    named = "; ".join(faults[:MOST_NAMED])
    return [_failure(f"The log was changed: {named}.", "All faults: chatops audit verify")]


def _check_files(files: SessionFiles, sessions: Sequence[SessionId], named: Mapping[str, str]) -> list[Finding]:
    """Return findings about files and what names them. `named`: a place for each digest that a message names."""
    found: list[Finding] = []
    kept: set[str] = set()
    changed: list[str] = []
    for session_id in sessions:
        digests = files.digests(session_id)
        kept |= digests
        gone = (name for name in sorted(digests) if files.read_by_digest(name, session_id) is None)
        changed += [f"{name[:12]} of {session_id}" for name in gone]
    lost = [place for digest, place in named.items() if digest not in kept]
    for problem, places in (("changed", changed), ("missing", lost)):
        if places:
            text = f"{plural(len(places), 'file of a session is', 'files of sessions are')} {problem}"
            found.append(_warning(f"{text}: {', '.join(places[:MOST_NAMED])}.", "Messages show only their names."))
    if strays := files.count_strays(sessions):
        text = f"{plural(strays, 'file belongs', 'files belong')} to no session"
        found.append(_warning(f"{text}: a chatops was killed while it deleted or copied one.", "They do no harm."))
    return [*found, _fine(f"{plural(len(kept), 'file')} of sessions, {len(kept - {*named})} of them in no message yet")]


class _Bodies(NamedTuple):
    """Result of decoding all rows."""

    damaged: list[Finding]
    """About rows whose contents are damaged although the pages are sound."""
    files: Mapping[str, str]
    """The files that messages name, by digest, each with its path and session."""


def _read_bodies(rows: Connection) -> _Bodies:
    files: dict[str, str] = {}

    def read_message(id_: Value, body: Value, session_id: Value) -> None:
        for file in kept_files([decode_body(body, MessageId(str(id_)))]):
            files[file.digest] = f"{file.path} of {session_id}"

    def read_turn(session_id: Value, version: Value, state: Value) -> None:
        decode_state(str(state), version=int(str(version)), grant_of=partial(stored_grant, rows, str(session_id)))

    damaged = [
        *_check_decodable(
            rows,
            "SELECT call_id, decision, by FROM decisions",
            lambda _, decision, by: (decode_recorded(decision), decode_principal(by)),
            *("entry of the decision log is", "entries of the decision log are", "damaged and left out of it"),
            advice="chatops audit list",
        ),
        *_check_decodable(
            rows,
            "SELECT id, body, session_id FROM messages",
            read_message,
            *("message is", "messages are", "damaged and shown as such"),
            advice="The other messages of the session are not affected.",
        ),
        *_check_decodable(
            rows,
            "SELECT session_id, version, state FROM runs",
            lambda _, version, state: decode_run(state, version=int(str(version))),
            *("run of a workflow", "runs of workflows", "cannot be resumed, only read"),
            advice="chatops sessions show SESSION",
        ),
        *_check_decodable(
            rows,
            "SELECT t.session_id, t.version, t.state FROM turns t JOIN sessions s ON s.active_turn = t.turn_id",
            read_turn,
            *("unfinished turn is", "unfinished turns are", "damaged and cannot be resumed"),
            advice="To continue in a copy: chatops sessions fork SESSION",
        ),
    ]
    return _Bodies(damaged, files)


def _check_decodable(
    rows: Connection, sql: str, decode: Callable[..., object], one: str, several: str, fault: str, *, advice: str
) -> list[Finding]:
    """Report the rows of a query that `decode` cannot read: how many of what, and what is wrong with them."""
    if not (damaged := _find_damaged(rows, sql, decode)):
        return []
    text = f"{plural(len(damaged), one, several)} {fault}: {', '.join(damaged[:MOST_NAMED])}."
    return [_warning(text, advice)]


def _list_unfinished(rows: Connection) -> list[Finding]:
    calls = _read_rows(rows, "SELECT 1 FROM pending")
    turns = _read_rows(rows, "SELECT 1 FROM sessions WHERE active_turn IS NOT NULL")
    parts = [f"{plural(len(calls), 'call')} pending"] if calls else []
    parts += [plural(len(turns), "unfinished turn")] if turns else []
    return [_fine(", ".join(parts), "chatops approvals list, chatops resume SESSION")] if parts else []


def _list_unknown_outcomes(rows: Connection) -> list[Finding]:
    """Return findings about calls that were started and whose process is gone, so that no result will come."""
    owned = {session_id for session_id, *holder in _read_rows(rows, _LEASES) if _is_alive(tuple(holder))}
    started = [(session_id, tool) for session_id, tool in _read_rows(rows, _WITHOUT_RESULT) if session_id not in owned]
    if not started:
        return []
    named = ", ".join(f"{tool} in {session_id}" for session_id, tool in started[:MOST_NAMED])
    counted = plural(len(started), "call was started and has", "calls were started and have")
    text = f"{counted} no result: {named}."
    return [_warning(text, "To see what is known and decide: chatops -r SESSION")]


_LEASES = f"SELECT session_id, {HOLDER} FROM leases"
_WITHOUT_RESULT = (
    "SELECT t.session_id, j.tool FROM journal j JOIN turns t ON t.turn_id = j.turn_id "
    "JOIN sessions s ON s.active_turn = t.turn_id WHERE j.outcome IS NULL ORDER BY j.seq"
)


def _is_alive(holder: SqlRow) -> bool:
    try:
        return is_alive(holder_in(holder))
    except UnreadableError:
        return False


def _find_damaged(rows: Connection, sql: str, decode: Callable[..., object]) -> list[str]:
    """Return the first column of the rows that `decode` raises UnreadableError for, as far as they can be read."""
    found: list[str] = []
    # Damaged pages have a finding of their own. A table that an older version lacks is empty.
    with suppress(sqlite3.Error):
        for row in rows.run(sql):
            try:
                decode(*row)
            except (UnreadableError, ValueError):
                found.append(str(row[0]))
    return found


def _read_rows(rows: Connection, sql: str) -> list[SqlRow]:
    """Return the rows of a query; none if they cannot be read, which the finding about the pages reports."""
    try:
        return rows.all(sql)
    except sqlite3.Error:
        return []


def _read_value(rows: Connection, sql: str) -> object:
    found = _read_rows(rows, sql)
    return found[0][0] if found else None


class Obstacle(NamedTuple):
    """Why nothing can be written in a folder, as a clause about it, and what to do."""

    why: str
    advice: str


def write_obstacle(folder: Path) -> Obstacle | None:
    """Return why nothing can be written in `folder`, or it cannot be created; None if it can.

    This is tested by writing, because permissions say nothing about a full disk. Nothing of the test stays. Raises
    nothing.
    """
    there = next(above for above in (folder, *folder.parents) if os.path.lexists(above))
    try:
        if there == folder:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                file.write(bytes(_TEST_BYTES))
        else:
            Path(tempfile.mkdtemp(dir=there)).rmdir()
    except OSError as error:
        why = error.strerror or str(error)
        if there != folder:
            return Obstacle(f"cannot be reached or made: {why}", "Set CHATOPS_HOME to a folder that can be.")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Obstacle(f"cannot be written: {why}", "Free some space.")
        advice = "Make it writable for you, or set CHATOPS_HOME to a folder that is."
        return Obstacle(f"cannot be written: {why}", advice)
    return None


def _check_rights(path: Path) -> list[Finding]:
    """Return findings about who else may read or write the file. Raises OSError."""
    files = (file for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if file.exists())
    found = [
        _warning(f"Others may read {file}.", f"Run: chmod 600 {file}") for file in files if file.stat().st_mode & 0o077
    ]
    folder = path.parent.stat()
    if folder.st_mode & 0o022 and not folder.st_mode & 0o1000:
        found.append(_warning(f"Others may write to {path.parent}.", f"Run: chmod 700 {path.parent}"))
    if path.stat().st_uid != os.getuid():
        found.append(_warning(f"{path} belongs to another user (uid {path.stat().st_uid}).", "Correct its owner."))
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        text = f"{path} cannot be written: nothing is saved."
        advice = "Make file and folder writable, or set CHATOPS_HOME to a folder that is."
        found.append(_failure(text, advice))
    return found


def _check_space(path: Path) -> list[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free >= LITTLE_SPACE:
        return [_fine(f"{_format_size(free)} free on its disk")]
    report = _failure if free < LITTLE_SPACE / 10 else _warning
    return [report(f"Only {_format_size(free)} free on the disk of {path.parent}.", "Free some space.")]


def _check_log(path: Path) -> list[Finding]:
    log = Path(f"{path}-wal")
    bytes_ = log.stat().st_size if log.exists() else 0
    if not bytes_:
        return []
    if bytes_ > LARGE_LOG:
        text = f"The write-ahead log {log} has grown to {_format_size(bytes_)}: a program has long kept the store open."
        return [_warning(text, "Close other programs that have the store open.")]
    text = "are still in the write-ahead log, of a chatops that runs or was killed; nothing is lost by it"
    return [_fine(f"{_format_size(bytes_)} {text}")]


def _list_quarantined(path: Path) -> list[Finding]:
    names = sorted(
        file
        for file in path.parent.iterdir()
        if file.name.startswith((f"{path.name}.bad-", f"{path.name}.old-")) and not file.name.endswith(("-wal", "-shm"))
    )
    return [
        _warning(
            f"{file} ({_format_size(file.stat().st_size)}) was kept when the store was damaged or replaced.",
            f"To read it: chatops sessions list --store {file}. Delete it when you do not need it any more.",
        )
        for file in names
    ]


def _check_backup(path: Path) -> list[Finding]:
    if path.stat().st_size > MAX_BACKUP_BYTES:
        text = f"There is no backup: {path} is larger than {_format_size(MAX_BACKUP_BYTES)}."
        return [_warning(text, "Copy it while no chatops runs, or delete sessions: chatops sessions delete SESSION")]
    backup = backup_of(path)
    if not backup.exists():
        return []
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(backup.stat().st_mtime))
    return [_fine(f"backup of {when} in {backup}")]


def _format_size(bytes_: int) -> str:
    """Return a size in a readable unit: ``1.4 MB``."""
    value = float(bytes_)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
