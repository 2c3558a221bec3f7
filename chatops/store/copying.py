"""Copy the sessions of a store into another one, in one direction: those of a file into a database.

Theory of operation

The source is read at one moment, in one transaction. Each session is written in one transaction of the target, with its
messages, turns, journal and log. Before that ends, all of it is read back and compared by its digest. So a kill leaves
whole sessions, and the next run skips those that are there. It compares them too. One that differs was used since, here
or there, and is left as it is. Nothing in the target is ever overwritten. Row numbers and the order of activity are the
target's own: its other sessions may come from other stores.

Files of a session come before its rows: they are named by their digests, and one that is there is not written again.

A copy is a copy, see `identity`: no earlier approval lets anything run in it. Unfinished turns are marked as copied, so
their calls ask again. Approvals and reviews that were posted and not taken are left out, as are remembered rules. So
are leases: an owner of the session in the source owns nothing here. What binds a session (revoked tools, a narrower
sandbox, its caller) goes along, as do queued messages and drafts.

A user who has a file can write anything into it, and the owner of the database copies it with rights that members lack.
So rows that name a member, which no file holds by itself, are refused, and so is a session that would be the child of
one that only the target has. What is copied belongs to one role of the database, which the log names as its writer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from chatops.config.failpoints import reach
from chatops.domain.canonical import json_or_text
from chatops.domain.errors import NotSavedError, StoreError
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.known_keys import without_keys
from chatops.store.connection import text, text_or
from chatops.store.identity import copied_key, lets_continue, lets_run
from chatops.store.leases import HOLDER, holder_in
from chatops.store.process_identity import is_alive
from chatops.store.schema import SCHEMA_VERSION, columns_of
from chatops.store.session_files import pasted_names
from chatops.toolkit.counting import count_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chatops.store.connection import Connection, SqlRow

_CHAIN = """
    WITH RECURSIVE chain(id, parent_id) AS (
        SELECT id, parent_id FROM messages WHERE id = (SELECT head FROM sessions WHERE id = ?1)
        UNION SELECT m.id, m.parent_id FROM chain c JOIN messages m ON m.id = c.parent_id
    ) SELECT id FROM chain
"""
_OF_TURNS = "turn_id IN (SELECT turn_id FROM turns WHERE session_id = ?1)"
_OF_SESSION = "session_id = ?1"
TABLES = {
    "messages": f"id IN ({_CHAIN})",
    "sessions": "id = ?1",
    "turns": _OF_SESSION,
    "turn_grants": _OF_SESSION,
    "journal": _OF_TURNS,
    "pending": _OF_SESSION,
    "posted": _OF_TURNS,
    "decisions": _OF_SESSION,
    "audit": _OF_SESSION,
    "queued_texts": _OF_SESSION,
    "runs": _OF_SESSION,
    "posted_reviews": _OF_SESSION,
    "jobs": _OF_SESSION,
}
"""Tables with rows of a session, those that others refer to first, each with the condition for its rows."""
LEFT_OUT = ("leases", "rules", "settings")
"""Tables that are not copied whole. Of the settings, those go along that end with the id of a session."""
_NUMBERED = ("turns", "runs")
"""Tables whose `seq` is the number of the last stored step. In the others it is the number of the row in its store."""
_SESSION_ID = re.compile("[A-Za-z0-9-]*")
"""The form of a session's id. Ids of turns have dots, paths of folders slashes."""
_PROCESS_SETTINGS = ("followed:", "unsent:")
"""Settings of processes that have the session open in the source."""
_ROWS_AT_ONCE = 100
"""Rows of one statement."""

Rows = dict[str, list["SqlRow"]]


@dataclass(kw_only=True)
class Copied:
    """What a copy has done, and what it found."""

    new: list[str] = field(default_factory=list)
    """Sessions that were copied now."""
    same: list[str] = field(default_factory=list)
    """Sessions that were there already, with the same rows."""
    differing: list[str] = field(default_factory=list)
    """Sessions that are there and were used since, here or there; ``""``: the log outside of sessions."""
    failed: dict[str, str] = field(default_factory=dict)
    """Sessions that could not be copied, with the reason."""
    open: list[str] = field(default_factory=list)
    """Sessions that a living process of this machine owns in the source."""
    rows: Counter[str] = field(default_factory=Counter)
    """Rows of the new and the same sessions that are in the target, by table."""
    files: int = 0
    """Files that were copied now."""
    lost: list[str] = field(default_factory=list)
    """Files that could not be copied, each with the reason."""
    hidden: int = 0
    """Rows in which a known key was replaced. Chains of the log with such a row do not verify."""


def copy_sessions(source: Connection, target: Connection, *, role: str = "") -> Copied:
    """Copy all sessions of `source` that `target`, a database, does not have.

    They will belong to `role`, a role of the database; empty: to the one of this connection.

    Raises StoreError for a source that cannot be read, NotSavedError if the target cannot be written now: what was
    copied until then stays, and the next run continues.
    """
    report = Copied()
    with source.read(), count_work("copying", unit="session") as counter:
        owned = source.all(f"SELECT session_id, {HOLDER} FROM leases")
        report.open = [text(session_id) for session_id, *holder in owned if is_alive(holder_in(tuple(holder)))]
        ids, settings = _list_sessions(source), _settings_by_session(source)
        counter.expect(len(ids))
        for id_ in ids:
            if not _SESSION_ID.fullmatch(id_):
                report.failed[id_] = "a session cannot have this id"
                counter.add()
                continue
            try:
                _copy_session(source, target, id_, settings.get(id_, []) if id_ else [], report, role or target.role)
            except NotSavedError:
                raise
            except StoreError as error:
                report.failed[id_] = str(error)
            counter.add()
    return report


def _list_sessions(source: Connection) -> list[str]:
    """Return the ids of all sessions, by activity, and then of the deleted ones that are in a log."""
    logged = "(SELECT session_id FROM audit UNION SELECT session_id FROM decisions)"
    found = source.all("SELECT id FROM sessions ORDER BY activity, seq")
    found += source.all(f"SELECT session_id FROM {logged} l WHERE session_id NOT IN (SELECT id FROM sessions)")
    return [text(session_id) for (session_id,) in found]


def _settings_by_session(source: Connection) -> dict[str, list[tuple[str, str]]]:
    """Return keys and values of the settings that are copied, by the last part of the key: the id of a session."""
    settings: dict[str, list[tuple[str, str]]] = {}
    for stored_key, value in source.all("SELECT key, value FROM settings ORDER BY key"):
        key = text_or(stored_key, "")
        _, colon, owner = key.rpartition(":")
        if colon and not key.startswith(_PROCESS_SETTINGS):
            settings.setdefault(owner, []).append((key, text_or(value, "")))
    return settings


def _copy_session(
    source: Connection, target: Connection, id_: str, settings: list[tuple[str, str]], report: Copied, role: str
) -> None:
    """Copy a session, or the log of one that was deleted, for `role`, with its `settings`."""
    as_read = _without_approvals(_read_session(source, id_))
    wanted: Rows = {table: [] for table in as_read}
    for table, rows in as_read.items():
        for row in rows:
            wanted[table].append(tuple(without_keys(value) if isinstance(value, str) else value for value in row))
    with target.read():
        there = _read_session(target, id_)
    is_new = not (there["sessions"] or there["audit"] or there["decisions"])
    if not is_new and digest(there) != digest(wanted):
        report.differing.append(id_)
        return
    if is_new:
        _must_name_no_member(wanted)
        _must_not_become_child(source, target, id_)
    _copy_files(source, target, SessionId(id_), chain(settings, wanted["queued_texts"]), report)
    if is_new:
        with target.write():
            _write_session(target, id_, wanted, settings, role)
            reach("in_store_copy")
            stored = (
                target.one("SELECT value FROM settings WHERE key = ?", target.setting_key(key, role))
                for key, _ in settings
            )
            same = [*stored] == [(without_keys(value),) for _, value in settings]
            if not same or digest(_read_session(target, id_)) != digest(wanted):
                raise StoreError("it does not read back as it was written, so nothing of it was stored")
    report.hidden += sum(
        row != clean for table, rows in as_read.items() for row, clean in zip(rows, wanted[table], strict=True)
    )
    report.rows.update({table: len(rows) for table, rows in wanted.items()})
    (report.new if is_new else report.same).append(id_)


def _write_session(
    target: Connection, id_: str, rows_by_table: Rows, settings: list[tuple[str, str]], role: str
) -> None:
    """Insert the rows and settings of a session for `role`, and mark its unfinished turns as copied."""
    for table, rows in rows_by_table.items():
        _insert(target, table, rows)
    # An unfinished run of a workflow resumes its last turn, whether it is active or not.
    may_resume = ("active_turn", "last_turn") if rows_by_table["runs"] else ("active_turn",)
    places = [columns("sessions").index(name) for name in may_resume]
    stored = {row[place] for row in rows_by_table["sessions"] for place in places}
    turns = {text(turn) for turn in stored if turn is not None}
    for key, value in (*settings, *((copied_key(TurnId(turn)), "1") for turn in sorted(turns))):
        target.put_setting(key, value, role=role)
    target.run("UPDATE sessions SET principal = ? WHERE id = ?", role, id_)
    target.run("UPDATE audit SET written_by = ? WHERE session_id = ?", role, id_)


def _must_name_no_member(rows: Rows) -> None:
    """Raise StoreError for decisions in the name of a member: only a database knows who a member is."""
    for table, column in (("posted", "by"), ("decisions", "by"), ("audit", "body")):
        place = columns(table).index(column)
        for row in rows[table]:
            value = json_or_text(text(row[place]))
            by = value.get("by") if table == "audit" and isinstance(value, Mapping) else value
            if isinstance(by, Mapping) and by.get("member"):
                raise StoreError("a row of its log or decisions names a member of a database, so it was changed")


def _must_not_become_child(source: Connection, target: Connection, id_: str) -> None:
    """Raise StoreError if the session would be a child of another one than in the source."""
    parts = id_.split("-")
    for count in range(1, len(parts)):
        caller = "-".join(parts[:count])
        in_source, in_target = (
            rows.one("SELECT 1 FROM sessions WHERE id = ?", caller) is not None for rows in (source, target)
        )
        if in_target and not in_source:
            raise StoreError(f"it would be a child of {caller}, which is another session there")


def columns(table: str) -> list[str]:
    """Return the columns of a table that are copied."""
    given_by_store = () if table in _NUMBERED else ("seq", "activity")
    return sorted(
        column for name, column in columns_of(SCHEMA_VERSION) if name == table and column not in given_by_store
    )


def digest(rows: Rows) -> str:
    """Return the digest of the rows of a session, whatever order each table has them in."""
    ordered = [(table, sorted(map(json.dumps, found))) for table, found in sorted(rows.items())]
    return hashlib.sha256(json.dumps(ordered).encode()).hexdigest()


def _read_session(rows: Connection, id_: str) -> Rows:
    """Return the rows of a session, by table."""
    return {
        table: rows.all(
            f"SELECT {', '.join(columns(table))} FROM {table} WHERE {where} "
            f"ORDER BY {'session_id' if table == 'jobs' else 'seq'}",
            id_,
        )
        for table, where in TABLES.items()
    }


def _without_approvals(rows: Rows) -> Rows:
    """Return rows without what was posted to let something run and was not taken yet."""
    for table, column, lets in (("posted", "decision", lets_run), ("posted_reviews", "body", lets_continue)):
        place = columns(table).index(column)
        rows[table] = [row for row in rows[table] if not lets(row[place])]
    return rows


def _insert(target: Connection, table: str, rows: Sequence[SqlRow]) -> None:
    names, values = columns(table), f"({', '.join('?' * len(columns(table)))})"
    if table == "sessions":
        names, values = [*names, "activity"], f"{values[:-1]}, (SELECT coalesce(max(activity), 0) + 1 FROM sessions))"
    # A session shares messages with its forks.
    shared = " ON CONFLICT (id) DO NOTHING" if table == "messages" else ""
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[start : start + _ROWS_AT_ONCE]
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES {', '.join([values] * len(part))}{shared}"
        target.run(sql, *chain.from_iterable(part))


def _copy_files(
    source: Connection, target: Connection, session_id: SessionId, texts: Iterable[SqlRow], report: Copied
) -> None:
    """Copy the files of a session, and the images that its drafts and queued messages name."""
    here, there = source.files(), target.files()
    for file in sorted(here.digests(session_id) - there.digests(session_id)):
        data = here.read_by_digest(file, session_id)
        problem = "changed, not copied" if data is None else there.keep(session_id, "", data).problem
        report.files += not problem
        report.lost += [f"{file[:12]} of session {session_id}: {problem}"] if problem else []
    named = {name for row in texts for value in row for name in pasted_names(str(value))}
    for name in named:
        image = here.pasted(name)
        if image is not None and there.pasted(name) is None:
            report.files += not there.keep_pasted(image).problem
