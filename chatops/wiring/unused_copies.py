"""Find copies of sessions to which nothing was added, so that they can be deleted.

A copy holds the messages of its source, up to a message that the user wants to write anew, or all of them if it
continues in another folder. A user who goes back several times, or only looks at such a session, would leave a copy
each time.
"""

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
    """Return the copies that the new copy `made` replaces: `left`, which the user leaves, and others that end alike.

    A copy that is open, or holds anything that the user wrote, is not among them. `draft` returns what was typed in a
    session and not sent. Raises StoreError.
    """
    new, old = store.session(made), store.session(left)
    # A title names the message before which a copy ends.
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
    """Return `left` if it is a copy of all of another folder's session to which nothing was added; else nothing.

    `draft` returns what was typed in a session and not sent. Raises StoreError.
    """
    copy = store.session(left)
    if copy.forked_from is None or store.lease(left) is not None:
        return []
    source = store.session(copy.forked_from)
    is_whole = source.workspace != copy.workspace and source.head == copy.head
    return [left] if is_whole and _has_no_own_content(store, copy, draft(left)) else []


def _has_no_own_content(store: Store, info: SessionInfo, draft: str) -> bool:
    """Return True for a copy in which nothing was said, queued or typed, and whose title was not changed.

    A question whether to apply changes to files does not count.
    """
    if info.forked_from is None or info.run is not None or info.active_turn or store.queued_messages(info.id):
        return False
    try:
        source_history, source = store.history(info.forked_from), store.session(info.forked_from)
    except NoSuchSessionError:
        return False
    history = store.history(info.id)
    own = [message for message in history if message.id.startswith(f"{info.id}.")]
    copied = len(history) - len(own)
    first_left_out = source_history[copied : copied + 1]
    # The text of the first message that was not copied is the copy's first draft, and still in the source.
    known_drafts = ("", *(message.text for message in first_left_out if isinstance(message, UserMessage)))
    is_copy_of_copy = source.forked_from is not None
    first_title = copy_title(first_left_out, source=source.title, is_copy=is_copy_of_copy, said=source_history)
    has_new_title = info.title not in ("", source.title, first_title)
    return not has_new_title and draft in known_drafts and not any(map(_says_something, own))


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
