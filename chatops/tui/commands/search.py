"""``/search``: the places in all sessions that contain a text, as a list to choose from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from chatops.domain.ids import SessionId
from chatops.domain.wording import excerpt, plural
from chatops.tui.commands.handlers import ALL, resume
from chatops.tui.commands.replies import Choose, Context, FindText, Notify, Replies
from chatops.tui.dialogs.picker import Choice, Picker, columns
from chatops.wiring.rows import HitRow

_MAX_HITS_OF_SESSION = 3
"""Hits listed of one session until the list is filtered."""
_TITLE_WIDTH, _MAX_TITLE_WIDTH, _TIME_WIDTH = 20, 28, 16
"""Cells of the columns of a hit. That of the titles is wider if no text needs the room."""
_BEFORE, _AFTER = 8, 60
"""Characters shown around the text that was found. Few before it, so that a narrow window does not cut it off."""
_PREVIEW_BEFORE, _MAX_PREVIEW = 80, 400
"""Characters shown before and after the text while its row is highlighted."""


async def search(context: Context, argument: str) -> Replies:
    """Let the user choose among the places that contain a text, and show the chosen one in its session."""
    first, _, rest = argument.partition(" ")
    everywhere = first == ALL
    wanted = rest.strip() if everywhere else argument
    if not wanted:
        return (Notify(f"Write what to search for after the command: /search invoice, or {ALL} invoice"),)
    found = await context.workspace.sessions.search(wanted, everywhere=everywhere)
    hits = _without_copies(found, current=context.session.session_id)
    if not hits and everywhere:
        return (Notify(f"No session of any folder contains {wanted!r}."),)
    if not hits:
        advice = f"In all folders: /search {ALL} {wanted}"
        return (Notify(f"No session of this folder contains {wanted!r}. {advice}"),)

    async def chosen(then: Context, key: str) -> Replies:
        return await _show_hit(then, hits[int(key)], wanted)

    return (Choose(_hit_picker(hits, wanted), chosen),)


async def _show_hit(context: Context, hit: HitRow, wanted: str) -> Replies:
    """Find the text in its message, and open the session of that first if it is another one."""
    find = FindText(wanted, hit.text)
    if hit.session_id == context.session.session_id:
        return (find,)
    left = context.session.session_id if context.session.snapshot().session_id else ""
    back = f"/resume {left} goes back." if left else "/new starts an empty one."
    return (*await resume(context, hit.session_id), find, Notify(f"You are in {hit.title!r} now. {back}"))


def _hit_picker(hits: Sequence[HitRow], wanted: str) -> Picker:
    """Return the list of hits. The key of a choice is the index of its hit."""
    texts = [excerpt(hit.text, wanted, around=_AFTER, before=_BEFORE) for hit in hits]
    room = _TITLE_WIDTH + _BEFORE + _AFTER - max(map(len, texts))
    width = max(_TITLE_WIDTH, min(room, _MAX_TITLE_WIDTH, max(len(hit.title) for hit in hits)))
    choices = [
        Choice(
            key=str(index),
            text=_hit_line(hit, text, width=width),
            find=f"{hit.title} {hit.text} {hit.folder}",
            # The title whole, which the row cuts.
            preview=f"{hit.title}{f' in {hit.folder}' if hit.folder else ''}:\n{_preview_of(hit.text, wanted)}",
        )
        for index, (hit, text) in enumerate(zip(hits, texts, strict=True))
    ]
    messages = sum(bool(hit.message_id) for hit in hits)
    found = [plural(messages, "message")] if messages else []
    found += [plural(len(hits) - messages, "title")] if len(hits) > messages else []
    count = f"{' and '.join(found)} in {plural(len({hit.session_id for hit in hits}), 'session')}"
    unfiltered = _first_of_each_session(hits, choices, width=width)
    return Picker(f"Sessions with {wanted!r}: {count}", choices=choices, unfiltered=unfiltered)


def _first_of_each_session(hits: Sequence[HitRow], choices: Sequence[Choice], *, width: int) -> list[Choice]:
    """Return the first choices of each session, and a row that counts its others and leads to the first of them."""
    counts, seen, first = Counter(hit.session_id for hit in hits), Counter[SessionId](), []
    for hit, choice in zip(hits, choices, strict=True):
        seen[hit.session_id] += 1
        others = counts[hit.session_id] - _MAX_HITS_OF_SESSION
        # Title and time stand once.
        indent = " " * (width + _TIME_WIDTH + 4)
        # A row that counts one other hit would take the same room.
        if seen[hit.session_id] == 1:
            first.append(choice)
        elif seen[hit.session_id] <= _MAX_HITS_OF_SESSION or others == 1:
            first.append(replace(choice, text=indent + choice.text[len(indent) :]))
        elif seen[hit.session_id] == _MAX_HITS_OF_SESSION + 1:
            first.append(replace(choice, text=f"{indent}… {others} more in this session"))
    return first


def _hit_line(hit: HitRow, text: str, *, width: int) -> str:
    session = columns((f"{'↳ ' if hit.is_copy else ''}{hit.title}", width), (hit.when, _TIME_WIDTH))
    return f"{session.ljust(width + _TIME_WIDTH + 2)}  {text}"


def _without_copies(hits: Sequence[HitRow], *, current: SessionId) -> list[HitRow]:
    """Return each message in one session only: in the current one, else, of a session and its copies, the last used."""
    by_message: dict[str, HitRow] = {}
    for hit in hits:
        # A title is no message. The hits of the session used last come first.
        key = hit.message_id or f"title {hit.session_id}"
        if hit.session_id == current or key not in by_message:
            by_message[key] = hit
    return list(by_message.values())


def _preview_of(text: str, wanted: str) -> str:
    return text if len(text) <= _MAX_PREVIEW else excerpt(text, wanted, around=_MAX_PREVIEW, before=_PREVIEW_BEFORE)
