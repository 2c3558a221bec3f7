"""Problems of a store and its pending work, read from its rows without changing anything."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from chatops.domain.errors import StoreError, UnreadableError
from chatops.domain.ids import MessageId
from chatops.domain.wording import plural
from chatops.store.base import Holder
from chatops.store.codec import decode_principal, decode_recorded, decode_run, decode_state
from chatops.store.connection import Connection, SqlRow, integer, prepared, text
from chatops.store.errors import is_busy, is_damage, store_error
from chatops.store.filesystem import Finding, Severity, filesystem_findings, rights, size, warning, write_obstacle
from chatops.store.messages import decoded
from chatops.store.opening import is_of_one_row, must_be_ours, refuse_newer
from chatops.store.process import is_alive
from chatops.store.reading import open_to_read
from chatops.store.schema import SCHEMA_VERSION, schema_faults
from chatops.store.turns import stored_grant

NAMED = 5
"""Maximum number of things that a finding names."""
_WHEN_DAMAGED = (
    "The next chatops that saves something renames it, and copies what can be read into a new store. To look first: "
    "chatops sessions list --all, chatops sessions export SESSION"
)


def findings(path: Path) -> list[Finding]:
    """Return all findings about the store at `path`, without changing or moving it.

    Reads the whole file. Raises nothing.
    """
    try:
        if not path.exists():
            return [_missing(path)]
        if path.is_dir():
            text = f"{path} is a folder. chatops keeps its file there."
            return [Finding(severity=Severity.FAIL, text=text, advice="Move that folder away.")]
        refuse_newer(path)
        around = filesystem_findings(path)
        with closing(open_to_read(path)) as raw:
            must_be_ours(raw, path)
            missing = _schema(raw)
            return [*_contents(Connection(prepared(raw), path=path)), *missing, *around]
    except sqlite3.Error as error:
        return [_not_read(error, path)]
    except StoreError as error:
        return [Finding(severity=Severity.FAIL, text=str(error), advice=error.advice)]
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror or error}."
        return [Finding(severity=Severity.FAIL, text=text, advice="Check its folder's permissions.")]


def _not_read(error: sqlite3.Error, path: Path) -> Finding:
    """Return the finding for a file that cannot be read. Unlike `sentence`, it does not advise to run doctor."""
    if is_damage(error):
        return Finding(severity=Severity.FAIL, text=f"{path} is damaged: {error}.", advice=_WHEN_DAMAGED)
    if is_busy(error):
        busy = store_error(error, path=path)
        return Finding(severity=Severity.FAIL, text=str(busy), advice=busy.advice)
    advice = "Check the disk, and the permissions of the file and its folder."
    return Finding(severity=Severity.FAIL, text=f"{path} cannot be read: {error}.", advice=advice)


def _missing(path: Path) -> Finding:
    obstacle = write_obstacle(path.parent)
    if obstacle is None:
        return Finding(severity=Severity.OK, text=f"{path} does not exist yet; the first message creates it")
    why, advice = obstacle
    text = f"There is no store, and nothing is saved: {path.parent} {why}."
    return Finding(severity=Severity.FAIL, text=text, advice=advice)


def problems(rows: Connection) -> list[str]:
    """Return the problems of an open store as sentences; empty if it is sound. Never raises."""
    try:
        with rows.read():
            found = [*_pages(rows), *_bodies(rows)]
        if (rows.pragma("journal_mode") or ("",))[0] not in ("wal", "memory"):
            found.append(warning("The file is on a drive without write-ahead logging; saving is slower there."))
        found += rights(rows.path) if not rows.unsaved else []
    except StoreError as error:
        return [error.full]
    except OSError as error:
        return [f"{rows.path} cannot be read ({error.strerror})."]
    return [f"{one.text} {one.advice}".strip() for one in found if one.severity is not Severity.OK]


def _contents(rows: Connection) -> list[Finding]:
    return [*_summary(rows), *_pages(rows), *_bodies(rows), *_unfinished(rows), *_unknown_outcomes(rows)]


def _summary(rows: Connection) -> list[Finding]:
    counts = [_one(rows, f"SELECT count(*) FROM {name}") for name in ("sessions", "messages")]
    version = _one(rows, "PRAGMA user_version")
    older = f" of {SCHEMA_VERSION}, upgraded when chatops opens it" if version != SCHEMA_VERSION else ""
    text = f"{rows.path}: {size(rows.path.stat().st_size)}, version {version}{older}"
    for count, noun in zip(counts, ("session", "message"), strict=True):
        text += f", {plural(count, noun)}" if isinstance(count, int) else ""
    return [Finding(severity=Severity.OK, text=text)]


def _schema(raw: sqlite3.Connection) -> list[Finding]:
    faults = schema_faults(raw)
    if not faults:
        return []
    text = f"The file does not have the tables of its version: {'; '.join(faults[:NAMED])}."
    return [Finding(severity=Severity.FAIL, text=text, advice=_WHEN_DAMAGED)]


def _pages(rows: Connection) -> list[Finding]:
    complaints = [str(row[0]) for row in _asked(rows, "PRAGMA integrity_check(100)")]
    broken = [complaint for complaint in complaints if complaint != "ok" and not is_of_one_row(complaint)]
    found: list[Finding] = []
    if broken or not complaints:
        faults = "; ".join(broken[:NAMED]) or "its pages cannot be read"
        found.append(Finding(severity=Severity.FAIL, text=f"The file is damaged: {faults}.", advice=_WHEN_DAMAGED))
    elif _asked(rows, "PRAGMA foreign_key_check"):
        found.append(warning("Some rows refer to rows that are missing: a session may lack its older messages."))
    if odd := [complaint for complaint in complaints if is_of_one_row(complaint)]:
        found.append(warning(f"Some rows have values of the wrong type: {'; '.join(odd[:NAMED])}."))
    return found


def _bodies(rows: Connection) -> list[Finding]:
    """Return findings about rows whose contents are damaged although the pages are sound."""
    messages = _failing(rows, "SELECT id, body FROM messages", lambda id_, body: decoded(body, MessageId(str(id_))))
    runs = _failing(
        rows,
        "SELECT session_id, version, state FROM runs",
        lambda _, version, state: decode_run(state, version=int(str(version))),
    )
    turns = _failing(
        rows,
        "SELECT t.session_id, t.version, t.state FROM turns t JOIN sessions s ON s.active_turn = t.turn_id",
        lambda session_id, version, state: decode_state(
            str(state), version=int(str(version)), grant_of=lambda digest: stored_grant(rows, str(session_id), digest)
        ),
    )
    decisions = _failing(
        rows,
        "SELECT call_id, decision, by FROM decisions",
        lambda _, decision, by: (decode_recorded(decision), decode_principal(by)),
    )
    return [
        *_named(
            decisions,
            plural(len(decisions), "entry of the decision log is", "entries of the decision log are"),
            "damaged and left out of it",
            "chatops audit list",
        ),
        *_named(
            messages,
            plural(len(messages), "message is", "messages are"),
            "damaged and shown as such",
            "The other messages of the session are not affected.",
        ),
        *_named(
            runs,
            plural(len(runs), "run of a workflow", "runs of workflows"),
            "cannot be resumed, only read",
            "chatops sessions show SESSION",
        ),
        *_named(
            turns,
            plural(len(turns), "unfinished turn is", "unfinished turns are"),
            "damaged and cannot be resumed",
            "To continue in a copy: chatops sessions fork SESSION",
        ),
    ]


def _unfinished(rows: Connection) -> list[Finding]:
    calls = _asked(rows, "SELECT 1 FROM pending")
    unfinished = _asked(rows, "SELECT 1 FROM sessions WHERE active_turn IS NOT NULL")
    parts = [
        f"{plural(len(calls), 'call')} pending" if calls else "",
        f"{plural(len(unfinished), 'unfinished turn')}" if unfinished else "",
    ]
    if not any(parts):
        return []
    text = ", ".join(part for part in parts if part)
    return [Finding(severity=Severity.OK, text=text, advice="chatops approvals list, chatops resume SESSION")]


def _unknown_outcomes(rows: Connection) -> list[Finding]:
    """Return findings about calls that were started and whose process is gone, so that no result will come."""
    owned = {row[0] for row in _asked(rows, _LEASES) if _is_alive(row)}
    started = [(session_id, tool) for session_id, tool in _asked(rows, _WITHOUT_RESULT) if session_id not in owned]
    if not started:
        return []
    named = ", ".join(f"{tool} in {session_id}" for session_id, tool in started[:NAMED])
    counted = plural(len(started), "call was started and has", "calls were started and have")
    text = f"{counted} no result: {named}."
    return [warning(text, "To see what is known and decide: chatops -r SESSION")]


_LEASES = "SELECT session_id, host, pid, boot_id, pid_started FROM leases"
_WITHOUT_RESULT = (
    "SELECT t.session_id, j.tool FROM journal j JOIN turns t ON t.turn_id = j.turn_id "
    "JOIN sessions s ON s.active_turn = t.turn_id WHERE j.outcome IS NULL ORDER BY j.seq"
)


def _is_alive(lease: SqlRow) -> bool:
    try:
        holder = Holder(host=text(lease[1]), pid=integer(lease[2]), boot_id=text(lease[3]), pid_started=text(lease[4]))
    except UnreadableError:
        return False
    return is_alive(holder)


def _failing(rows: Connection, sql: str, decode: Callable[..., object]) -> list[str]:
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


def _named(damaged: Sequence[str], what: str, fault: str, advice: str) -> list[Finding]:
    if not damaged:
        return []
    return [warning(f"{what} {fault}: {', '.join(damaged[:NAMED])}.", advice)]


def _asked(rows: Connection, sql: str) -> list[SqlRow]:
    """Return the rows of a query; none if they cannot be read, which the finding about the pages reports."""
    try:
        return rows.all(sql)
    except sqlite3.Error:
        return []


def _one(rows: Connection, sql: str) -> object:
    found = _asked(rows, sql)
    return found[0][0] if found else None
