"""What a member of a team's database may do in it, whatever program the member uses.

Theory of operation

The role that owns the schema ``chatops`` is the *owner*: workers connect as it, it grants levels, and nothing here
binds it. Any other role is a *member* once `grant` has given it a level (the table `members`). A role without one has
no right to the schema. The principal of what a member does is ``session_user``, the role that has logged in: neither
``SET ROLE`` nor any parameter changes it.

Each session has a `principal`, the role that made it. It is driven by clients of that role, or by workers if it is in
`queue`. A member puts a session there by the function `queue_prompt` alone. It makes the session, with an id that
nobody knows before, so that no turn or run in it, and no child of it, comes from a client. Its requester alone queues
more in it (`queue_further`), and takes back what no worker has taken yet (`cancel_queued`).

Forced row security lets a member read all rows but the personal ones of others (drafts, last roles), and write the rows
of sessions that the member drives. So a member can store anything in such a session: it is the member's own chatops
that takes its turns, on a machine of the member. No worker continues it, and no other member.

What others rely on is written otherwise. A decision is posted by the function `post_decision`, which takes the
principal from ``session_user``; a member can insert one in no other way. A review of a run's step is posted by
`post_review`, for the state that the run is in. The log of decisions takes one in another's name only if that is
posted. Rows of the audit log are added at the end of a chain, with the role that wrote them, and never changed.
`members`, and sessions that workers drive, are written by the owner alone.

The functions belong to the owner, run with its rights and have a search path of their own, with the temporary schema
last; members may create nothing in the schema. Columns that say who wrote a row, and running numbers, are left out of
the rights to insert and update, so they have their defaults; the policies compare them all the same. The id of a
session stays as it was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatops.domain.errors import StoreError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import AccessLevel
from chatops.store.connection import text
from chatops.store.session_files import PASTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatops.store.connection import Connection

SESSION_SETTINGS = ("child", "copied", "revoked", "sandbox", "step times")
"""Kinds of settings, the part of a key before the colon, that belong to a session. All others belong to a principal."""

_OWN_COLUMNS = ("principal", "made_by", "written_by")
"""Columns that members do not set, beside running numbers."""

_DEFINER = "LANGUAGE {} SECURITY DEFINER SET search_path = pg_catalog, chatops, pg_temp AS $$ {} $$"


def _function(head: str, body: str, *, language: str = "sql STABLE") -> str:
    return f"CREATE OR REPLACE FUNCTION {head} {_DEFINER.format(language, body)}"


_COLUMNS = (
    'ALTER TABLE sessions ADD IF NOT EXISTS principal TEXT COLLATE "C" NOT NULL DEFAULT session_user',
    'ALTER TABLE posted ADD IF NOT EXISTS principal TEXT COLLATE "C" NOT NULL DEFAULT session_user',
    'ALTER TABLE posted_reviews ADD IF NOT EXISTS principal TEXT COLLATE "C" NOT NULL DEFAULT session_user',
    'ALTER TABLE audit ADD IF NOT EXISTS written_by TEXT COLLATE "C" NOT NULL DEFAULT session_user',
    """CREATE TABLE IF NOT EXISTS members (
        role TEXT COLLATE "C" PRIMARY KEY,
        level TEXT NOT NULL CHECK (level IN ('viewer', 'user', 'operator', 'admin'))
    )""",
)
_FUNCTIONS = (
    _function("is_member() RETURNS boolean", "SELECT EXISTS (SELECT 1 FROM members WHERE role = session_user::text)"),
    _function(
        "is_queued(session text) RETURNS boolean", "SELECT EXISTS (SELECT 1 FROM queue q WHERE q.session_id = session)"
    ),
    _function(
        "owns(session text) RETURNS boolean",
        "SELECT is_member() AND EXISTS (SELECT 1 FROM sessions s "
        "WHERE s.id = session AND s.principal = session_user::text AND NOT is_queued(s.id))",
    ),
    _function(
        "owns_turn(turn text) RETURNS boolean",
        "SELECT EXISTS (SELECT 1 FROM turns t WHERE t.turn_id = turn AND owns(t.session_id))",
    ),
    # A child session has the id of its caller's session and more; rows of the log outlive their session. All that is
    # stored by now counts, so it is VOLATILE and wants `read committed`: an older snapshot lacks the caller's session.
    _function(
        "is_new(session text) RETURNS boolean",
        """SELECT is_member() AND current_setting('transaction_isolation') = 'read committed'
            AND session ~ '^[0-9A-Za-z]+(-[0-9A-Za-z]+)*$'
            AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.session_id = session)
            AND NOT EXISTS (SELECT 1 FROM decisions d WHERE d.session_id = session)
            AND NOT EXISTS (
                SELECT 1 FROM string_to_array(session, '-') AS parts
                CROSS JOIN LATERAL generate_series(1, cardinality(parts) - 1) AS n
                JOIN sessions p ON p.id = array_to_string(parts[1:n], '-') WHERE NOT owns(p.id)
            )
            AND NOT EXISTS (
                SELECT 1 FROM sessions c WHERE c.id > session || '-' AND c.id < session || '.'
                AND NOT owns(c.id)
            )""",
        language="sql VOLATILE",
    ),
    # The most that a member can set: the greatest bigint would leave no greater one for the sessions of others.
    _function("next_activity() RETURNS bigint", "SELECT coalesce(max(activity), 0) + 1 FROM sessions"),
    _function(
        "next_number(session text) RETURNS bigint",
        "SELECT coalesce(max(number), 0) + 1 FROM audit WHERE session_id = session",
    ),
    _function(
        "is_posted(call text, shown text, said text, who text) RETURNS boolean",
        "SELECT EXISTS (SELECT 1 FROM posted p WHERE p.call_id = call AND p.digest = shown AND p.principal = who "
        "AND object_of(p.decision) ->> 'kind' = object_of(said) ->> 'kind' AND NOT EXISTS "
        "(SELECT FROM jsonb_each(object_of(p.decision)) AS f "
        "WHERE coalesce(object_of(said) -> f.key, 'null') <> f.value))",
    ),
    _function(
        "own_setting(key text) RETURNS boolean",
        f"""SELECT CASE WHEN split_part(key, ':', 1) IN {SESSION_SETTINGS}
            THEN owns(split_part(split_part(key, ':', 2), '.', 1))
            ELSE is_member() AND starts_with(key, '@' || length(session_user) || ':' || session_user || ':') END""",
    ),
    # Messages and files are deleted after their session. What another one still has is kept by its references.
    _function(
        "is_gone(session text) RETURNS boolean",
        "SELECT is_member() AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = session)",
    ),
    _function("is_used(file text) RETURNS boolean", "SELECT EXISTS (SELECT 1 FROM files WHERE digest = file)"),
    _function(
        "queue_prompt(_place text, _role text, _model text, _workspace text, _workflow text, _prompt text) "
        "RETURNS text",
        """DECLARE _now float8; _id text;
        BEGIN
            -- A worker that refuses the turn copies the names into its row, again and again.
            IF octet_length(concat(_place, _role, _model, _workspace, _workflow)) > 4096 THEN
                RAISE check_violation USING MESSAGE = 'more than 4096 bytes in the names';
            END IF;
            SELECT now INTO _now FROM begin_write();
            _id := to_char(to_timestamp(_now) AT TIME ZONE 'UTC', 'YYYYMMDD-HH24MISS-')
                || left(replace(gen_random_uuid()::text, '-', ''), 12);
            INSERT INTO sessions (id, workspace, title, role, model_pin, persona, activity, created_at, updated_at)
                VALUES (_id, _place, '', _role, _model, '', next_activity(), _now, _now);
            INSERT INTO queue (session_id, workspace, workflow) VALUES (_id, _workspace, _workflow);
            INSERT INTO queued_texts (session_id, text) VALUES (_id, _prompt);
            RETURN _id;
        END""",
        language="plpgsql VOLATILE",
    ),
    _function(
        "queue_further(_id text, _prompt text) RETURNS void",
        """BEGIN
            PERFORM begin_write();
            IF NOT EXISTS (SELECT 1 FROM queue WHERE session_id = _id AND requester = session_user::text) THEN
                RAISE insufficient_privilege USING MESSAGE = format('%s was not queued by %s', _id, session_user);
            END IF;
            INSERT INTO queued_texts (session_id, text) VALUES (_id, _prompt);
        END""",
        language="plpgsql VOLATILE",
    ),
    # With a lease, also one that has expired, a worker may be about to send the message. A hint tells workers of a
    # session; `is_new` of one says that only the queued message made it.
    _function(
        "cancel_queued(_id text) RETURNS boolean",
        """BEGIN
            PERFORM begin_write();
            IF is_member() AND NOT EXISTS
                    (SELECT 1 FROM queue WHERE session_id = _id AND requester = session_user::text) THEN
                RAISE insufficient_privilege USING MESSAGE = format('%s was not queued by %s', _id, session_user);
            END IF;
            DELETE FROM queued_texts WHERE session_id = _id AND is_queued(_id)
                AND NOT EXISTS (SELECT 1 FROM leases WHERE session_id = _id);
            IF NOT FOUND THEN
                RETURN false;
            END IF;
            DELETE FROM hints WHERE session_id = _id AND is_new;
            UPDATE queue SET cancelled_by = session_user, cancelled_at = extract(epoch FROM clock_timestamp())
                WHERE session_id = _id;
            RETURN true;
        END""",
        language="plpgsql VOLATILE",
    ),
    # A statement after it sees what was committed before it, as it waits for the row that all writers change.
    _function(
        "begin_write(OUT version bigint, OUT now float8)",
        """BEGIN
            IF NOT pg_has_role(session_user, current_user, 'MEMBER') AND NOT is_member() THEN
                RAISE insufficient_privilege USING MESSAGE = format('role %s has no level', session_user);
            END IF;
            UPDATE store SET changes = changes + 1
                RETURNING store.version, extract(epoch FROM clock_timestamp()) INTO version, now;
        END""",
        language="plpgsql VOLATILE",
    ),
    # U+FDD0 begins an escaped character (`postgres.MARK`): chatops reads such a text otherwise than the database.
    _function(
        "post_decision(_call text, _digest text, _decision text, _by text) RETURNS boolean",
        """DECLARE _turn text;
        BEGIN
            PERFORM begin_write();
            SELECT turn_id INTO _turn FROM pending WHERE call_id = _call AND digest = _digest;
            -- What has no kind here could be a decision for chatops, and `is_posted` would not find it.
            IF NOT FOUND OR object_of(_decision) ->> 'kind' IS NULL OR strpos(lower(_decision), '\\ufdd0') > 0
                OR EXISTS (SELECT 1 FROM posted WHERE call_id = _call AND digest = _digest) THEN
                RETURN false;
            END IF;
            DELETE FROM posted WHERE call_id = _call;
            INSERT INTO posted (call_id, turn_id, digest, decision, by, principal, decided_at)
                VALUES (_call, _turn, _digest, _decision, _by, session_user, extract(epoch FROM clock_timestamp()));
            RETURN true;
        END""",
        language="plpgsql VOLATILE",
    ),
    # The step of a run that waits for a review stays the same until one is taken. So each is about what was shown.
    _function(
        "post_review(_session text, _seq bigint, _body text) RETURNS boolean",
        """DECLARE _kind text := object_of(_body) ->> 'kind';
        BEGIN
            PERFORM begin_write();
            IF _kind = 'cancel_run' AND is_member() AND NOT EXISTS
                    (SELECT 1 FROM sessions WHERE id = _session AND principal = session_user::text) THEN
                RAISE insufficient_privilege USING MESSAGE = format('%s is no run of %s', _session, session_user);
            END IF;
            -- What has no kind here could be a cancellation for chatops.
            IF _kind IS NULL
                OR NOT EXISTS (SELECT 1 FROM runs WHERE session_id = _session AND seq = _seq AND result = ''
                    AND (phase = 'awaiting_review' OR _kind = 'cancel_run'))
                OR EXISTS (SELECT 1 FROM posted_reviews WHERE session_id = _session
                    AND principal = session_user::text AND object_of(body) ->> 'kind' IS NOT DISTINCT FROM _kind) THEN
                RETURN false;
            END IF;
            INSERT INTO posted_reviews (session_id, body, principal) VALUES (_session, _body, session_user);
            RETURN true;
        END""",
        language="plpgsql VOLATILE",
    ),
)


@frozen_dataclass(kw_only=False)
class _Table:
    """The commands that members may use besides SELECT, and the condition on the rows that they write."""

    commands: str
    condition: str = ""
    inserts: str = ""
    """The condition on the rows that they insert, where it is another one."""
    seen: str = "(SELECT is_member())"
    """The condition on the rows that they see."""


_OF_SESSION = "owns(session_id)"
_OWN_OR_GONE = f"({_OF_SESSION} OR is_gone(session_id))"
_OWN_SESSION = (
    "principal = session_user::text AND NOT is_queued(id) AND (SELECT is_member()) "
    "AND activity <= (SELECT next_activity())"
)
_ALL = "INSERT UPDATE DELETE"
TABLES = {
    "store": _Table(""),
    "members": _Table(""),
    "messages": _Table("INSERT DELETE", _OWN_OR_GONE, f"{_OF_SESSION} AND starts_with(id, session_id || '.')"),
    "sessions": _Table(_ALL, _OWN_SESSION, f"{_OWN_SESSION} AND is_new(id)"),
    "turns": _Table(_ALL, f"{_OF_SESSION} AND starts_with(turn_id, session_id || '.')"),
    "journal": _Table("INSERT UPDATE", "owns_turn(turn_id) AND starts_with(call_id, turn_id || '.')"),
    "pending": _Table(_ALL, f"{_OF_SESSION} AND owns_turn(turn_id) AND starts_with(call_id, turn_id || '.') "),
    "posted": _Table("DELETE", "owns_turn(turn_id)"),
    "decisions": _Table(
        "INSERT",
        # What is no JSON object for the database could be one for chatops.
        f"{_OF_SESSION} AND starts_with(call_id, session_id || '.') AND object_of(by) IS NOT NULL AND "
        "(coalesce(object_of(by) ->> 'member', '') IN ('', session_user) "
        "OR is_posted(call_id, digest, decision, object_of(by) ->> 'member'))",
    ),
    "audit": _Table(
        "INSERT",
        f"written_by = session_user::text AND number = next_number(session_id) AND (SELECT is_member()) "
        f"AND (session_id = '' OR {_OF_SESSION})",
    ),
    "queued_texts": _Table("INSERT DELETE", _OF_SESSION),
    "leases": _Table(_ALL, _OF_SESSION),
    "settings": _Table(
        _ALL, "own_setting(key)", seen="(SELECT is_member()) AND (NOT starts_with(key, '@') OR own_setting(key))"
    ),
    "runs": _Table(_ALL, _OF_SESSION),
    "posted_reviews": _Table("DELETE", _OF_SESSION),
    "rules": _Table(
        "INSERT UPDATE",
        f"made_by = session_user::text AND (SELECT is_member()) AND (session_id IS NULL OR {_OF_SESSION})",
    ),
    "turn_grants": _Table("INSERT", _OF_SESSION),
    "jobs": _Table(_ALL, _OF_SESSION),
    "files": _Table(
        "INSERT DELETE", _OWN_OR_GONE, f"{_OF_SESSION} OR (session_id = '{PASTED}' AND (SELECT is_member()))"
    ),
    "queue": _Table(""),
    "hints": _Table(""),
    "workers": _Table(""),
    "file_bodies": _Table(
        "INSERT DELETE",
        "(SELECT is_member()) AND NOT is_used(digest)",
        "(SELECT is_member()) AND starts_with(encode(sha256(body), 'hex'), digest)",
    ),
}


def secure(rows: Connection) -> None:
    """Make the tables of this version safe from members, as their owner, within the transaction that makes them."""
    for statement in (*_COLUMNS, *_FUNCTIONS):
        rows.run(statement)
    old = "SELECT quote_ident(policyname), quote_ident(tablename) FROM pg_policies WHERE schemaname = 'chatops'"
    for policy, name in rows.all(old):
        rows.run(f"DROP POLICY {policy} ON {name}")
    for name, table in TABLES.items():
        rows.run(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        rows.run(f"CREATE POLICY owner ON {name} TO CURRENT_USER USING (true) WITH CHECK (true)")
        rows.run(f"CREATE POLICY seen ON {name} FOR SELECT USING ({table.seen})")
        for command in table.commands.split():
            # Without WITH CHECK, USING holds for the new row too.
            inserts = f"WITH CHECK ({table.inserts or table.condition})"
            check = inserts if command == "INSERT" else f"USING ({table.condition})"
            rows.run(f"CREATE POLICY own_{command.lower()} ON {name} FOR {command} {check}")
    rows.run("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA chatops FROM PUBLIC")
    rows.run("REVOKE ALL ON SCHEMA chatops FROM PUBLIC")
    for (role,) in rows.all("SELECT role FROM members JOIN pg_roles ON rolname = role"):
        _put_rights(rows, text(role), member=True)


def grant(rows: Connection, role: str, level: AccessLevel | None) -> None:
    """Give a role of the database a level and the rights that members need; None: take all of it away.

    Raises StoreError if `role` is no other role that can be bound.
    """
    with rows.write():
        known = rows.one(
            "SELECT rolsuper OR pg_has_role(oid, current_user, 'MEMBER') FROM pg_roles WHERE rolname = ?", role
        )
        if known is None:
            raise StoreError(
                f"The server of the database has no role {role}.", advice=f"Make it first: CREATE ROLE {role} LOGIN"
            )
        (is_bound_by_none,) = known
        if is_bound_by_none and level is not None:
            raise StoreError(
                f"{role} owns this database, is a superuser or a member of the owner: no level binds it.",
                advice="Give each member a role of its own.",
            )
        if level is None:
            rows.run("DELETE FROM members WHERE role = ?", role)
        else:
            rows.upsert("members", "role", role=role, level=level.word)
        _put_rights(rows, role, member=level is not None)


def _put_rights(rows: Connection, role: str, *, member: bool) -> None:
    """Give a member exactly the rights to the tables and functions of this version, or a former one none."""
    name = '"' + role.replace('"', '""') + '"'
    for what in ("ALL TABLES IN SCHEMA", "ALL SEQUENCES IN SCHEMA", "ALL FUNCTIONS IN SCHEMA", "SCHEMA"):
        rows.run(f"REVOKE ALL ON {what} chatops FROM {name}")
    if not member:
        return
    rows.run(f"GRANT USAGE ON SCHEMA chatops TO {name}")
    rows.run(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA chatops TO {name}")
    rows.run(f"GRANT SELECT ON runnable TO {name}")
    for table, rights in TABLES.items():
        writable = rows.all(
            "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = ?::regclass "
            "AND attnum > 0 AND NOT attisdropped AND attidentity = '' AND attname <> ALL(?)",
            f"chatops.{table}",
            rows.listed(_OWN_COLUMNS),
        )
        columns = [text(column) for (column,) in writable]
        grants = {
            "INSERT": f"INSERT ({', '.join(columns)})",
            "UPDATE": f"UPDATE ({', '.join(column for column in columns if column != 'id')})",
            "DELETE": "DELETE",
        }
        given = ["SELECT", *(grants[command] for command in rights.commands.split())]
        rows.run(f"GRANT {', '.join(given)} ON {table} TO {name}")


def levels(rows: Connection) -> dict[str, AccessLevel]:
    """Return the levels of all members."""
    with rows.read():
        return {text(row[0]): AccessLevel[text(row[1]).upper()] for row in rows.all("SELECT role, level FROM members")}


def level_of(rows: Connection, role: str) -> AccessLevel | None:
    """Return the level of a role; the highest for one that no level binds, None for one without any."""
    found = rows.one(
        "SELECT m.level, pg_has_role(r.oid, n.nspowner, 'MEMBER') FROM pg_roles r "
        "JOIN pg_namespace n ON n.nspname = 'chatops' LEFT JOIN members m ON m.role = r.rolname::text "
        "WHERE r.rolname = ?",
        role,
    )
    level, owns = found or (None, False)
    if owns:
        return AccessLevel.ADMIN
    return None if level is None else AccessLevel[text(level).upper()]


def groups_of(rows: Connection, role: str, among: Sequence[str]) -> frozenset[str]:
    """Return those of the roles `among` that a role is a member of; none for a superuser, who is in all of them."""
    found = rows.all(
        "SELECT g.rolname::text FROM pg_roles g JOIN pg_roles m ON m.rolname = ? WHERE g.rolname = ANY(?) "
        "AND NOT m.rolsuper AND pg_has_role(m.oid, g.oid, 'MEMBER')",
        role,
        rows.listed(among),
    )
    return frozenset(text(row[0]) for row in found)
