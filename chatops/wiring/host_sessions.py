"""The host's part for the other sessions of the workspace: list, search, rename and delete them."""

import asyncio
from collections.abc import Sequence

from chatops.domain.errors import SessionBusyError
from chatops.domain.ids import SessionId
from chatops.domain.messages import AssistantMessage, UserMessage
from chatops.domain.wording import cut, one_line
from chatops.runtime.descriptions import named_call, resume_summary
from chatops.store.base import ALL, SessionInfo
from chatops.store.search import NO_INDEX, can_index
from chatops.tui.host import HitRow, SessionRow
from chatops.wiring.host_runs import HostRuns, changed_at, reviews_left
from chatops.wiring.words import NO_TITLE, run_state

TITLE_AT_START = 30
"""Characters of a title in the line at the start, so that all of the line fits."""
_LAST = 30
"""Messages at the end of a session in which the last question and answer are looked for."""
_LONGEST = 300
"""Characters of a message in a preview."""


class HostSessions(HostRuns):
    """Answers from the current store."""

    async def sessions(self) -> Sequence[SessionRow]:
        return await asyncio.to_thread(self._rows)

    def _rows(self) -> list[SessionRow]:
        return self._described(self._app.store.sessions(workspace=str(self._app.workspace), limit=ALL))

    async def last_said(self, session_id: SessionId) -> Sequence[str]:
        messages = await asyncio.to_thread(self._app.store.history, session_id, last=_LAST)
        asked = next((one.text for one in reversed(messages) if isinstance(one, UserMessage)), "")
        answers = (one.text for one in reversed(messages) if isinstance(one, AssistantMessage) and one.text.strip())
        said = {"You": asked, "Answer": next(answers, "")}
        return [f"{author}: {one_line(text, most=_LONGEST)}" for author, text in said.items() if text.strip()]

    async def rename_session(self, session_id: SessionId, title: str) -> None:
        await asyncio.to_thread(self._app.store.update_session, session_id, title=title)

    async def delete_session(self, session_id: SessionId) -> None:
        await asyncio.to_thread(self._delete, session_id)

    def _delete(self, session_id: SessionId) -> None:
        store = self._app.store
        if (lease := store.lease(session_id)) is not None:
            raise SessionBusyError(
                f"It is open in another chatops (pid {lease.holder.pid} on {lease.holder.host}).",
                advice="Close it there first.",
            )
        store.delete_session(session_id)
        self._app.outputs.forget_others(session_id, ())

    async def other_folder(self, session_id: SessionId) -> str:
        return self._elsewhere(await asyncio.to_thread(self._app.store.session, session_id))

    def _elsewhere(self, info: SessionInfo) -> str:
        return info.workspace if info.workspace != str(self._app.workspace) else ""

    async def search(self, text: str, *, everywhere: bool = False) -> Sequence[HitRow]:
        workspace = None if everywhere else str(self._app.workspace)
        hits = await asyncio.to_thread(self._app.store.search, text, workspace=workspace)
        return [
            HitRow(
                session_id=hit.session.id,
                title=hit.session.title or NO_TITLE,
                when=changed_at(hit.session),
                text=hit.text,
                message_id=hit.message_id or "",
                is_copy=hit.session.forked_from is not None,
                folder=self._elsewhere(hit.session),
            )
            for hit in hits
        ]

    def search_note(self) -> str:
        return "" if can_index() else f"{NO_INDEX}."

    async def next_pending(self) -> SessionId | None:
        left = await asyncio.to_thread(self._unfinished_sessions)
        reviews = await asyncio.to_thread(self.to_review)
        wanted = [*(info for info, _ in left if info.pending), *reviews, *(info for info, _ in left)]
        return wanted[0].id if wanted else None

    async def pending(self) -> Sequence[SessionRow]:
        return await asyncio.to_thread(self._pending_rows)

    def _pending_rows(self) -> list[SessionRow]:
        found = {info.id: info for info in (*self._undecided(), *self.to_review())}
        return self._described(sorted(found.values(), key=_used_at, reverse=True))

    def unfinished_line(self) -> str:
        """Return one line on the unfinished sessions of this workspace; empty if there are none."""
        left = self._unfinished_sessions()
        if not left:
            return reviews_left(self.to_review())
        first, state = left[0]
        shown = cut(first.title or first.id, most=TITLE_AT_START).replace('"', "'")
        more = f"; {len(left) - 1} more" if len(left) > 1 else ""
        return f'Unfinished: {state} (session "{shown}"){more} – ctrl+g'

    def _unfinished_sessions(self) -> list[tuple[SessionInfo, str]]:
        """Return the unfinished sessions of this workspace that no process owns, each with its resume summary.

        Those with a call to decide come first; within both groups, the last used one.
        """
        store = self._app.store
        found = (*self._undecided(), *store.sessions(workspace=str(self._app.workspace)))
        return [
            (info, state)
            for info in {info.id: info for info in found}.values()
            if (state := resume_summary(store, info)) and store.lease(info.id) is None
        ]

    def _undecided(self) -> list[SessionInfo]:
        """Return the sessions of this workspace with a call to decide, the last used one first."""
        store, here = self._app.store, str(self._app.workspace)
        ids = dict.fromkeys(one.session_id for one in store.pending_calls() if one.decided is None)
        found = [info for info in map(store.session, ids) if info.workspace == here]
        return sorted(found, key=_used_at, reverse=True)

    def _described(self, found: Sequence[SessionInfo]) -> list[SessionRow]:
        """Return the sessions as lists show them: with their pending calls, and the session they are a copy of."""
        store = self._app.store
        asks: dict[SessionId, list[str]] = {}
        if any(info.pending for info in found):
            for one in store.pending_calls():
                if one.decided is None:
                    asks.setdefault(one.session_id, []).append(named_call(one.pending.call, one.pending.facts))
        known = {info.id: info for info in found}
        return [
            SessionRow(
                id=info.id,
                title=info.title or NO_TITLE,
                when=changed_at(info),
                messages=info.messages,
                pending=info.pending,
                state=resume_summary(store, info),
                run=run_state(info),
                role=info.role,
                asks=tuple(asks.get(info.id, ())),
                copy_of=_origin(info, known.get(info.forked_from) if info.forked_from else None),
                source=info.forked_from or "",
            )
            for info in found
        ]


def _origin(info: SessionInfo, source: SessionInfo | None) -> str:
    if info.forked_from is None:
        return ""
    return info.forked_from if source is None else f"{source.title or NO_TITLE} ({source.id}, {changed_at(source)})"


def _used_at(info: SessionInfo) -> float:
    return info.updated_at
