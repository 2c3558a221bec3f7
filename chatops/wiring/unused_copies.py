"""Find copies of sessions in which nothing was said, so that they can be deleted when another one takes their place."""

from collections.abc import Callable

from chatops.domain.errors import NoSuchSessionError
from chatops.domain.ids import SessionId
from chatops.domain.messages import AssistantMessage, Message, SummaryMessage, ToolMessage, UserMessage
from chatops.domain.tools import CONTAINED_APPLY
from chatops.store.base import SessionInfo
from chatops.store.sessions import copy_title
from chatops.store.store import Store


def replaced_copies(
    store: Store, *, left: SessionId, made: SessionId, draft: Callable[[SessionId], str]
) -> list[SessionId]:
    """Return the copies in whose place the copy `made` stands: `left`, and others that end where it ends.

    A copy that is open, or holds anything that the user wrote, is not among them. `draft` returns what was typed and
    not sent. Raises StoreError.
    """
    new, old = store.session(made), store.session(left)
    ends_alike = [
        info
        for info in store.sessions(workspace=new.workspace)
        if info.id not in (made, left)
        and info.title == new.title
        and info.forked_from in (new.forked_from, old.forked_from)
    ]
    return [
        info.id
        for info in (old, *ends_alike)
        if store.lease(info.id) is None and _has_no_own_content(store, info, draft(info.id))
    ]


def unused_copy(store: Store, *, left: SessionId, draft: Callable[[SessionId], str]) -> list[SessionId]:
    """Return `left` if it is a copy of all of another folder's session to which nothing was added.

    `draft` returns what was typed and not sent. Raises StoreError.
    """
    copy = store.session(left)
    if copy.forked_from is None or store.lease(left) is not None:
        return []
    source = store.session(copy.forked_from)
    whole = source.workspace != copy.workspace and source.head == copy.head
    return [left] if whole and _has_no_own_content(store, copy, draft(left)) else []


def _has_no_own_content(store: Store, info: SessionInfo, draft: str) -> bool:
    """Return True if nothing was said, queued, typed or named in a copy. A question about files does not count."""
    if info.forked_from is None or info.run is not None or info.active_turn or store.queued_messages(info.id):
        return False
    try:
        said, source = store.history(info.forked_from), store.session(info.forked_from)
    except NoSuchSessionError:
        return False
    history = store.history(info.id)
    own = [message for message in history if message.id.startswith(f"{info.id}.")]
    left_out = said[len(history) - len(own) :][:1]
    # The message that the copy leaves out is its first draft, and still in the original.
    known_drafts = ("", *(message.text for message in left_out if isinstance(message, UserMessage)))
    made = copy_title(left_out, source=source.title, is_copy=source.forked_from is not None, said=said)
    named = info.title not in ("", source.title, made)
    return not named and draft in known_drafts and not any(map(_says_something, own))


def _says_something(message: Message) -> bool:
    match message:
        case UserMessage() | SummaryMessage():
            return True
        case AssistantMessage():
            return bool(message.text.strip())
        case ToolMessage():
            return message.tool != CONTAINED_APPLY
        case _:
            return False
