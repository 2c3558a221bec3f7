"""Sessions: each is a head in the message tree, with its title, its settings and its queued messages.

Functions that take `rows` run within a transaction of their caller, `Store`. Titles are made from the first exchange,
without a model.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING

from chatops.domain.errors import NoSuchSessionError, StoreError
from chatops.domain.ids import MessageId, SessionId, TurnId, parent_session
from chatops.domain.messages import AssistantMessage, UserMessage, count_for_user
from chatops.store import messages
from chatops.store.base import RunMark, SessionInfo
from chatops.store.connection import Connection, SqlRow, Value, integer, number_or_zero, text, text_or

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from chatops.domain.messages import Message

_MAX_NAMED = 5
"""Maximum number of matching sessions that an error names."""
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits of ids, without those that are easily mistaken for another."""
DAMAGED_TITLE = "(damaged)"
_TITLE_MESSAGES = 20
"""Messages at the beginning of a session among which a fork looks for the one that gave it its title."""
TITLE_LENGTH = 60
"""Maximum characters of a title."""
_TITLE_SOURCE_CHARACTERS = 2_000
"""Characters of a message from which its title is made."""
_GREETING = re.compile(
    r"(?:hi|hiya|hello|hey|hallo|moin|servus|good (?:morning|afternoon|evening|day)|greetings|thanks|thank you|ok|okay)"
    r"(?: (?:there|all|everyone|again|team|claude|chatops))?(?=[\s,.!?:;-]|$)[\s,.!?:;-]*",
    re.IGNORECASE,
)
_POLITE_WORDS = re.compile(
    r"(?:please|kindly|(?:can|could|would|will) you(?: please)?|help me(?: to| with)?"
    r"|i(?:'d| would) like (?:you )?to(?: know)?|i (?:want|need) (?:you )?to(?: know)?)\s+",
    re.IGNORECASE,
)
_LIST_SIGN = re.compile(r"(?:[#>*+-]|\d+[.)])\s+")
_SENTENCE = re.compile(r"(?<=[^\s./][.!?])\s")
_FULL_STOP = re.compile(r"(?<![\s./])\.$")
"""The end of a sentence, and not the last part of a path such as ``.`` or ``src/.``."""
_YOU = re.compile(r"\byou\b", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://([^\s/]+)(?:/[^\s]*)?")
_PATH = re.compile(r"@?(?:~|\.{1,2})?(?:/?[\w.@+-]+/){2,}([\w.@+-]+)/?|@([\w.@+-]+(?:/[\w.@+-]+)?)")
_MIN_SENTENCE = 12
"""Characters of a sentence that can be a title. A shorter one is kept together with the next."""
_SOURCE_TITLE = 28
"""Maximum characters of a session's title within the titles of its copies."""
_JOIN, _BEFORE = " · ", "before: "

_SELECT_INFO = """
    SELECT s.id, s.workspace, s.title, s.role, s.model_pin, s.persona, s.head, s.forked_from, s.created_at,
        s.updated_at, s.message_count, s.active_turn, s.last_turn,
        (SELECT count(*) FROM pending q
            WHERE q.turn_id = s.active_turn OR substr(q.session_id, 1, length(s.id) + 1) = s.id || '-'),
        r.workflow, r.phase, r.step, r.result, c.value
    FROM sessions s LEFT JOIN runs r ON r.session_id = s.id
        LEFT JOIN settings c ON c.key = 'child:' || s.id
"""
CHILD = "child:"
"""Prefix of the settings that hold what binds child sessions."""


def turn_after(session_id: SessionId, last: TurnId | None) -> TurnId:
    """Return the id after the session's last turn, for when the store is not asked for it."""
    return TurnId(f"{session_id}.{turn_number(last or '') + 1}")


def turn_number(turn_id: str) -> int:
    """Return the number of a turn within its session; 0 if there is none."""
    _, _, number = turn_id.rpartition(".")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 0


def new_session_id(now: float, *, letters: int = 4) -> SessionId:
    """Return an id such as ``20261121-101512-k3f9``: the time (UTC), and a random part of so many letters."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return SessionId(f"{stamp}-{''.join(secrets.choice(_ALPHABET) for _ in range(letters))}")


def create(
    rows: Connection, session_id: SessionId, *, workspace: str, role: str, persona: str, title: str, now: float
) -> SessionInfo:
    """Create a session without messages."""
    rows.run(
        "INSERT INTO sessions (id, workspace, title, role, persona, activity, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(activity), 0) + 1 FROM sessions), ?, ?)",
        session_id,
        workspace,
        title,
        role,
        persona,
        now,
        now,
    )
    return info(rows, session_id)


def exists(rows: Connection, session_id: SessionId) -> bool:
    """Return True if this very id is taken."""
    return rows.one("SELECT 1 FROM sessions WHERE id = ?", session_id) is not None


def full_id(rows: Connection, prefix: str) -> SessionId:
    """Return the id that equals `prefix` or is the only one to begin with it.

    Raises NoSuchSessionError, and StoreError if several ids begin with it.
    """
    if prefix and exists(rows, SessionId(prefix)):
        return SessionId(prefix)
    found = rows.all(
        "SELECT id FROM sessions WHERE substr(id, 1, length(?1)) = ?1 AND ?1 <> '' ORDER BY activity DESC LIMIT ?2",
        prefix,
        _MAX_NAMED + 1,
    )
    names = [text(name) for (name,) in found]
    match names:
        case []:
            raise NoSuchSessionError(
                f"There is no session {prefix!r}.", advice="All of them: chatops sessions list --all"
            )
        case [only]:
            return SessionId(only)
        case _:
            listed = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
            raise StoreError(
                f"{prefix!r} is the beginning of several sessions: {listed}.", advice="Give more of the id."
            )


def info(rows: Connection, session_id: SessionId) -> SessionInfo:
    """Return one session by its full id. Raises NoSuchSessionError."""
    row = rows.one(_SELECT_INFO + "WHERE s.id = ?", session_id)
    if row is None:
        raise NoSuchSessionError(
            f"There is no session {session_id!r}.", advice="All of them: chatops sessions list --all"
        )
    return _decode_row(row)


def list_infos(
    rows: Connection, *, workspace: str | None, limit: int, runs_only: bool = False, children: bool = False
) -> list[SessionInfo]:
    """Return sessions that have messages or a run, newest activity first, by sequence and not by any clock.

    Child sessions are left out unless `children` are asked for.
    """
    is_begun = "(r.session_id IS NOT NULL OR (s.head IS NOT NULL AND ?3 = 0)) AND (c.key IS NULL OR ?4 = 1)"
    where = f"WHERE (?1 IS NULL OR s.workspace = ?1) AND {is_begun} "
    found = rows.all(
        _SELECT_INFO + where + "ORDER BY s.activity DESC LIMIT ?2", workspace, limit, int(runs_only), int(children)
    )
    # A session whose id itself is damaged cannot be asked for by any name.
    return [_decode_row(row) for row in found if isinstance(row[0], str)]


def delete(rows: Connection, session_id: SessionId) -> None:
    """Delete a session. Messages that a fork shares, and the decision log, stay.

    Forks of a deleted fork become forks of its source.
    """
    gone = info(rows, session_id)
    rows.run("DELETE FROM sessions WHERE id = ?", session_id)
    rows.run(
        "UPDATE sessions SET forked_from = coalesce(?, forked_from) WHERE forked_from = ?", gone.forked_from, gone.id
    )
    messages.delete_unshared(rows, gone.head)


def children(rows: Connection, session_id: SessionId) -> list[SessionId]:
    """Return the ids of the child sessions of a session."""
    found = rows.all(
        "SELECT s.id FROM sessions s JOIN settings c ON c.key = 'child:' || s.id WHERE substr(s.id, 1, ?2) = ?1 || '-'",
        session_id,
        len(session_id) + 1,
    )
    return [SessionId(text(child)) for (child,) in found]


def fork(
    rows: Connection,
    session_id: SessionId,
    *,
    before: MessageId | None,
    workspace: str,
    now: float,
    new_id: Callable[[], SessionId],
) -> SessionInfo:
    """Create a second head in the same tree. Raises StoreError if `before` is not in this session."""
    source = info(rows, session_id)
    path = messages.chain_ids(rows, source.head)  # the newest first
    if before is not None and before not in path:
        raise StoreError(f"There is no message {before!r} in session {session_id}.", advice="Name one of its own.")
    left_out = path[: 0 if before is None else path.index(before) + 1]
    shared = path[len(left_out) :]
    title = source.title
    if before is not None:
        title = copy_title(
            messages.by_ids(rows, [before]),
            source=source.title,
            is_copy=source.forked_from is not None,
            said=messages.by_ids(rows, reversed(path[-_TITLE_MESSAGES:])),
        )
    made = create(
        rows,
        new_id(),
        workspace=workspace or source.workspace,
        role=source.role,
        persona=source.persona,
        # A copy without messages gets its title from its own first exchange.
        title=title if shared else "",
        now=now,
    )
    rows.run(
        "UPDATE sessions SET head = ?, forked_from = ?, model_pin = ?, message_count = ? WHERE id = ?",
        shared[0] if shared else None,
        session_id,
        source.model_pin,
        max(0, source.messages - count_for_user(messages.by_ids(rows, left_out))),
        made.id,
    )
    return info(rows, made.id)


def append_messages(rows: Connection, session_id: SessionId, added: Sequence[Message], *, now: float) -> None:
    """Add messages outside of any turn and move the head."""
    before = info(rows, session_id)
    head = messages.append(rows, added, session_id=session_id, turn_id=None, parent=before.head, now=now)
    rows.run(
        "UPDATE sessions SET head = ?, title = ?, message_count = message_count + ?, "
        "activity = (SELECT max(activity) + 1 FROM sessions), updated_at = ? WHERE id = ?",
        head,
        before.title or title_from(added),
        count_for_user(added),
        now,
        session_id,
    )


def _decode_row(row: SqlRow) -> SessionInfo:
    """Return the session of a row. A damaged value becomes empty or zero and costs nothing else."""
    id_, workspace, title, role, model_pin, persona, head, forked_from, created_at, updated_at, *others = row
    message_count, active_turn, last_turn, pending, workflow, phase, step, result, binding = others
    session_id = SessionId(text(id_))
    return SessionInfo(
        id=session_id,
        workspace=text_or(workspace, ""),
        title=text_or(title, DAMAGED_TITLE),
        role=text_or(role, ""),
        model_pin=text_or(model_pin, ""),
        persona=text_or(persona, ""),
        head=MessageId(text_or(head, "")) or None,
        forked_from=SessionId(text_or(forked_from, "")) or None,
        created_at=number_or_zero(created_at),
        updated_at=number_or_zero(updated_at),
        messages=int(number_or_zero(message_count)),
        active_turn=TurnId(text_or(active_turn, "")) or None,
        last_turn=TurnId(text_or(last_turn, "")) or None,
        pending=integer(pending),
        run=None if workflow is None else _decode_run_mark(workflow, phase, step, result),
        parent=None if binding is None else parent_session(session_id),
    )


def _decode_run_mark(workflow: Value, phase: Value, step: Value, result: Value) -> RunMark:
    return RunMark(
        workflow=text_or(workflow, ""), phase=text_or(phase, ""), step=text_or(step, ""), result=text_or(result, "")
    )


def title_from(messages: Iterable[Message]) -> str:
    """Return a title from the first message that says something; empty if none does.

    That is a message of the user, or an answer to a greeting, unless the answer is a question.
    """
    for message in messages:
        if isinstance(message, UserMessage):
            title = _make_title(message.text)
        elif isinstance(message, AssistantMessage):
            title = _make_title(message.text)
            title = "" if title.endswith("?") else title
        else:
            continue
        if title:
            return title
    return ""


def copy_title(left_out: Iterable[Message], *, source: str, is_copy: bool, said: Iterable[Message]) -> str:
    """Return the title of a copy that ends before the first of the messages `left_out`.

    The title of its source comes first. If that one was made from a message of the source (`said`), it is shortened, so
    that a list shows something of both. If the source is a copy too (`is_copy`), what its title has added is left out.
    """
    if is_copy:
        source, _, _ = f"{_JOIN}{source}".partition(_JOIN + _BEFORE)
        source = source.removeprefix(_JOIN)
    if len(source) > _SOURCE_TITLE and source == title_from(said):
        source = _cut_between_words(source, _SOURCE_TITLE)
    left = title_from(left_out)
    return _JOIN.join(filter(None, (source, f"{_BEFORE}{left}" if left else "")))


def _make_title(text: str) -> str:
    """Return the first sentence without greeting, list signs and long paths, cut between words."""
    lines = [" ".join(line.split()) for line in _prose_first(text[:_TITLE_SOURCE_CHARACTERS].splitlines())]
    subjects = ((line, _without_greeting(line)) for line in lines)
    line, said = next(((line, subject) for line, subject in subjects if subject), ("", ""))
    # "Could you fix it?" asks for something to be done: "Fix it".
    is_request = _YOU.search(line[: -len(said)] if said else "") is not None
    said = _PATH.sub(lambda found: found[1] or found[2], _ADDRESS.sub(lambda found: found[1], said))
    said = _first_sentence(said)
    said = said.removesuffix("?") if is_request else said
    return said if len(said) <= TITLE_LENGTH else _cut_between_words(said, TITLE_LENGTH)


def _cut_between_words(text: str, most: int) -> str:
    """Return the beginning of a longer text, cut between words."""
    head, _, _ = text[:most].rpartition(" ")
    return f"{(head or text)[: most - 1].rstrip(' ,;:-')}…"


def _prose_first(lines: Sequence[str]) -> list[str]:
    """Return the lines outside of fenced code, then those of the code."""
    prose: list[str] = []
    code: list[str] = []
    fenced = False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        else:
            (code if fenced else prose).append(line)
    return prose + code


def _without_greeting(line: str) -> str:
    """Return a line without what stands before its subject."""
    rest = line
    for before in (_LIST_SIGN, _GREETING, _GREETING, _POLITE_WORDS, _POLITE_WORDS):
        found = before.match(rest)
        rest = rest[found.end() :] if found is not None else rest
    # A first word such as `main.py` stays as it is.
    first_word, _, _ = rest.partition(" ")
    begins_with_word = rest[:1].islower() and first_word.isalpha()
    return rest[:1].upper() + rest[1:] if rest != line and begins_with_word else rest


def _first_sentence(text: str) -> str:
    for end in _SENTENCE.finditer(text):
        if end.start() >= _MIN_SENTENCE:
            return _FULL_STOP.sub("", text[: end.start()])
    return _FULL_STOP.sub("", text)
