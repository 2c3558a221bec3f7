"""The command that finds a text in the sessions of this folder, or of all, and shows it where it was said."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from chatops.domain.ids import SessionId
from chatops.domain.wording import excerpt, plural
from chatops.tui.commands.handlers import resume
from chatops.tui.commands.replies import Choose, Context, FindText, Notify, Replies
from chatops.tui.composer.completions import Completion
from chatops.tui.dialogs.picker import Choice, Picker, columns
from chatops.wiring.rows import HitRow

_ALL = "--all"
_ROWS = 3
"""Hits listed of one session until the list is filtered."""
_TITLE, _WHEN = 20, 16
_BEFORE, _AFTER = 8, 60
"""Characters shown around the text that was found. Few before it, so that a narrow window does not cut it off."""
_LED, _PREVIEW = 80, 400
"""Characters shown before and after the text while its row is highlighted."""


async def search(context: Context, argument: str) -> Replies:
    """Let the user choose among the places that contain a text, and show the chosen one in its session."""
    first, _, rest = argument.partition(" ")
    everywhere = first == _ALL
    argument = rest.strip() if everywhere else argument
    if not argument:
        return (Notify(f"Write what to search for after the command: /search invoice, or {_ALL} invoice"),)
    hits = _each_once(await context.workspace.sessions.search(argument, everywhere=everywhere))
    if not hits and everywhere:
        return (Notify(f"No session of any folder contains {argument!r}."),)
    if not hits:
        advice = f"In all folders: /search {_ALL} {argument}"
        return (Notify(f"No session of this folder contains {argument!r}. {advice}"),)
    choices = [
        Choice(
            key=str(index),
            text=_row(hit, excerpt(hit.text, argument, around=_AFTER, before=_BEFORE)),
            find=f"{hit.title} {hit.text} {hit.folder}",
            preview=f"In {hit.folder}:\n{_preview(hit.text, argument)}" if hit.folder else _preview(hit.text, argument),
        )
        for index, hit in enumerate(hits)
    ]

    async def chosen(then: Context, key: str) -> Replies:
        hit = hits[int(key)]
        found = FindText(argument, hit.text)
        if hit.session_id == then.session.session_id:
            return (found,)
        return (*await resume(then, hit.session_id), found)

    where = f"{plural(len(hits), 'hit')} in {plural(len({hit.session_id for hit in hits}), 'session')}"
    picker = Picker(f"Sessions with {argument!r}: {where}", choices=choices, unfiltered=_few(hits, choices))
    return (Choose(picker, chosen),)


def _few(hits: Sequence[HitRow], choices: Sequence[Choice]) -> list[Choice]:
    """Return the first choices of each session, and a row that counts its others and leads to the first of them."""
    counts, listed, few = Counter(hit.session_id for hit in hits), Counter[SessionId](), []
    for hit, choice in zip(hits, choices, strict=True):
        listed[hit.session_id] += 1
        more = counts[hit.session_id] - _ROWS
        if listed[hit.session_id] <= _ROWS or more == 1:
            few.append(choice)
        elif listed[hit.session_id] == _ROWS + 1:
            few.append(replace(choice, text=_row(hit, f"… {more} more in this session")))
    return few


def _row(hit: HitRow, text: str) -> str:
    session = columns((f"{'↳ ' if hit.is_copy else ''}{hit.title}", _TITLE), (hit.when, _WHEN))
    return f"{session.ljust(_TITLE + _WHEN + 2)}  {text}"


async def offers(context: Context, before: tuple[str, ...]) -> Sequence[Completion]:
    """Complete the option of /search."""
    return [] if before[1:] else [Completion(insert=f"{_ALL} ", text=_ALL, note="in all folders")]


def _each_once(hits: Sequence[HitRow]) -> list[HitRow]:
    """Return each message in one session only: of a session and its copies, in the one used last."""
    found: dict[str, HitRow] = {}
    for hit in hits:
        found.setdefault(hit.message_id or f"title {hit.session_id}", hit)
    return list(found.values())


def _preview(text: str, wanted: str) -> str:
    return text if len(text) <= _PREVIEW else excerpt(text, wanted, around=_PREVIEW, before=_LED)
