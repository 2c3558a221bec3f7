"""Sessions and the tree of messages below which they have their heads."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from chatops.domain.errors import AlreadyStoredError, NoSuchSessionError, StoreError
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import Message, countable
from chatops.store.base import SessionInfo
from chatops.store.rules import ambiguous
from chatops.store.titles import copy_title, title_from
from chatops.store.turn_rules import mark_of
from tests.store.memory.tables import Memory, StoredMessage


def create(
    memory: Memory, session_id: SessionId, *, workspace: str, role: str, persona: str, title: str, now: float
) -> SessionInfo:
    """A new conversation without messages."""
    made = SessionInfo(
        id=session_id,
        workspace=workspace,
        title=title,
        role=role,
        model_pin="",
        persona=persona,
        head=None,
        forked_from=None,
        created_at=now,
        updated_at=now,
        messages=0,
        active_turn=None,
        last_turn=None,
        pending=0,
    )
    memory.sessions[session_id] = made
    touch(memory, session_id)
    return made


def touch(memory: Memory, session_id: SessionId) -> None:
    """Make it the one with the newest activity."""
    memory.activity[session_id] = max(memory.activity.values(), default=0) + 1


def full_id(memory: Memory, prefix: SessionId) -> SessionId:
    """The id that is `prefix` or alone begins with it. Raises NoSuchSessionError, StoreError if several do."""
    if prefix in memory.sessions:
        return prefix
    names = sorted(
        (name for name in memory.sessions if prefix and name.startswith(prefix)),
        key=lambda name: -memory.activity[name],
    )
    if not names:
        raise NoSuchSessionError(f"There is no session {prefix!r}.", advice="`chatops sessions list` shows them.")
    if len(names) > 1:
        raise ambiguous(prefix, list(names))
    return names[0]


def info(memory: Memory, session_id: SessionId) -> SessionInfo:
    """One conversation by its whole id, with what waits in it."""
    found = memory.sessions[session_id]
    waiting = [row for row in memory.pending.values() if row.turn_id == found.active_turn]
    run = memory.runs.get(found.id)
    return replace(found, pending=len(waiting), run=None if run is None else mark_of(run.state))


def listed(memory: Memory, *, workspace: str | None) -> list[SessionInfo]:
    """Those that were begun, newest activity first."""
    newest_first = sorted(memory.sessions, key=lambda session_id: -memory.activity[session_id])
    begun = (one for one in newest_first if one in memory.runs or memory.sessions[one].head is not None)
    infos = (info(memory, session_id) for session_id in begun)
    return [one for one in infos if workspace is None or one.workspace == workspace]


def update(
    memory: Memory,
    session_id: SessionId,
    *,
    role: str | None,
    model_pin: str | None,
    persona: str | None,
    title: str | None,
) -> None:
    """Change what is not None; this is no activity."""
    before = memory.sessions[session_id]
    memory.sessions[session_id] = replace(
        before,
        role=before.role if role is None else role,
        model_pin=before.model_pin if model_pin is None else model_pin,
        persona=before.persona if persona is None else persona,
        title=before.title if title is None else title,
    )


def delete(memory: Memory, session_id: SessionId) -> None:
    """Remove a conversation; messages that a fork shares and the decision log stay."""
    for turn_id in [id_ for id_, turn in memory.turns.items() if turn.step.state.session_id == session_id]:
        del memory.turns[turn_id]
        memory.journal = {key: row for key, row in memory.journal.items() if row[0] != turn_id}
        memory.pending = {key: row for key, row in memory.pending.items() if row.turn_id != turn_id}
        memory.posted = {key: row for key, row in memory.posted.items() if row[0] != turn_id}
    memory.rules = {key: row for key, row in memory.rules.items() if row[0] != session_id}
    memory.texts = [row for row in memory.texts if row[0] != session_id]
    memory.runs.pop(session_id, None)
    memory.words = [row for row in memory.words if row[0] != session_id]
    memory.leases.pop(session_id, None)
    gone = memory.sessions[session_id]
    del memory.sessions[session_id], memory.activity[session_id]
    for one in list(memory.sessions.values()):
        if one.forked_from == session_id and gone.forked_from is not None:
            memory.sessions[one.id] = replace(one, forked_from=gone.forked_from)
    memory.turn_numbers.pop(session_id, None)
    kept = {id_ for one in memory.sessions.values() for id_ in path(memory, one.head)}
    memory.messages = {id_: row for id_, row in memory.messages.items() if id_ in kept}


def fork(
    memory: Memory,
    session_id: SessionId,
    *,
    before: MessageId | None,
    workspace: str,
    now: float,
    new_id: Callable[[], SessionId],
) -> SessionInfo:
    """A second head in the same tree. Raises StoreError if `before` is not in this session."""
    source = memory.sessions[session_id]
    whole = path(memory, source.head)
    if before is not None and before not in whole:
        raise StoreError(f"There is no message {before!r} in session {source.id}.", advice="Name one of its own.")
    point = source.head if before is None else memory.messages[before].parent
    title = source.title
    if before is not None:
        title = copy_title(
            [memory.messages[before].message],
            source=source.title,
            is_copy=source.forked_from is not None,
            said=[memory.messages[id_].message for id_ in reversed(whole)],
        )
    made = create(
        memory,
        new_id(),
        workspace=workspace or source.workspace,
        role=source.role,
        persona=source.persona,
        title=title if point else "",
        now=now,
    )
    memory.sessions[made.id] = replace(
        made,
        model_pin=source.model_pin,
        head=point,
        forked_from=source.id,
        messages=countable(memory.messages[id_].message for id_ in path(memory, point)),
    )
    return memory.sessions[made.id]


def append(memory: Memory, session_id: SessionId, messages: Sequence[Message], *, now: float) -> None:
    """Add messages below the head, each below the one before, and move it."""
    session = memory.sessions[session_id]
    head = session.head
    for message in messages:
        if message.id in memory.messages:
            raise AlreadyStoredError(f"The id {message.id} is taken.", session_id=session_id)
        memory.messages[message.id] = StoredMessage(message=message, parent=head)
        head = message.id
    memory.sessions[session_id] = replace(
        session,
        head=head,
        title=session.title or title_from(messages),
        messages=session.messages + countable(messages),
        updated_at=now,
    )
    touch(memory, session_id)


def path(memory: Memory, head: MessageId | None) -> list[MessageId]:
    """The ids of all messages up to `head`, newest first."""
    found: list[MessageId] = []
    while head is not None:
        found.append(head)
        head = memory.messages[head].parent
    return found


def chain(memory: Memory, head: MessageId | None) -> tuple[Message, ...]:
    """All messages up to `head`, oldest first."""
    return tuple(memory.messages[id_].message for id_ in reversed(path(memory, head)))


def next_turn_id(memory: Memory, session_id: SessionId) -> TurnId:
    """A number of its own for each turn ever begun, also for one that was never committed."""
    number = memory.turn_numbers.get(session_id, 0) + 1
    while TurnId(f"{session_id}.{number}") in memory.turns:
        number += 1
    memory.turn_numbers[session_id] = number
    return TurnId(f"{session_id}.{number}")
