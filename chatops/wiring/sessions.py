"""The sessions of the workspace, and the workflow runs among them: listed, searched, opened, copied and deleted."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from chatops.config.paths import write_new_private
from chatops.domain.errors import ConfigError, NoSuchSessionError, SessionBusyError, SessionHeldError
from chatops.domain.events import Notice, Published
from chatops.domain.ids import CallId, MessageId, SessionId, child_session
from chatops.domain.messages import AssistantMessage, Speaker, UserMessage
from chatops.domain.wording import cut, one_line, plural
from chatops.runtime.descriptions import call_line, resume_summary
from chatops.runtime.session import Session
from chatops.runtime.view import SessionView
from chatops.runtime.workflow import WorkflowRun
from chatops.store.base import ALL, DailyUsage, SessionInfo
from chatops.wiring.app import App
from chatops.wiring.rows import NO_TITLE, HitRow, RunRow, SessionRow, WorkflowRow, run_state, runs_to_review
from chatops.wiring.unused_copies import replaced_copies, unused_copy
from chatops.wiring.user_state import UserState

MAX_TITLE_CHARS = 30
"""Characters of a title in the line at the start, so that all of the line fits."""
_DAY_S = 24 * 60 * 60
_PREVIEW_MESSAGES = 30
"""Messages at the end of a session in which the last question and answer are looked for."""
_MAX_PREVIEW_CHARS = 300
"""Characters of a message in a preview."""


class Runs:
    """The workflows that can be run in the workspace, and their runs."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: dict[SessionId, WorkflowRun] = {}

    async def workflows(self) -> Sequence[WorkflowRow]:
        """Return the workflows of this user here."""
        known = await asyncio.to_thread(self._app.workflows)
        rows = [
            WorkflowRow(
                name=found.name, steps=tuple(step.name for step in found.spec.steps), description=found.spec.description
            )
            for found in known.found
        ]
        return (*rows, *(WorkflowRow(name=broken.name, problem=str(broken.error)) for broken in known.unusable))

    async def unfinished(self) -> Sequence[RunRow]:
        """Return the runs of this workspace that have not ended, last active first."""
        return [
            RunRow(id=info.id, title=info.title, state=run_state(info), when=changed_at_words(info))
            for info in await asyncio.to_thread(self._unfinished)
        ]

    async def new(
        self,
        workflow: str,
        *,
        query: str,
        beside: SessionView,
        warn: Callable[[str], None],
        empty: Session | None = None,
    ) -> SessionView:
        """Create a run in an `empty` session or one of its own, under the role and model of the session `beside`.

        The run is not started: see `run_of`. `warn` is called with each warning about the workflow.

        Raises ConfigError with everything that is wrong with the workflow.
        """
        from chatops.wiring.checks import check_to_run

        driven = self.run_of(beside)
        if driven is not None and not driven.over:
            role, model = driven.state.role, driven.state.model
        else:
            role, model = beside.snapshot().role, beside.settings.model_pin
        definition = await asyncio.to_thread(lambda: self._app.workflows().get(workflow))
        checked = await check_to_run(self._app, definition, role=role)
        spec = checked.or_raise().spec
        for warning in checked.warnings:
            warn(warning)
        return self._remember_open(
            await self._app.new_run(spec, query, attended=True, role=role, model=model, empty=empty)
        )

    async def open(self, session_id: SessionId) -> SessionView:
        """Open a stored run. Raises SessionHeldError if another process owns it."""
        return self._remember_open(await self._app.open_run(session_id, attended=True))

    def run_of(self, session: SessionView) -> WorkflowRun | None:
        """Return the run of a session, or None. The caller that shows the run calls `resume`, and closes it."""
        run = self._open.get(session.session_id)
        return run if run is not None and run.session is session else None

    def to_review(self) -> list[SessionInfo]:
        """Return the runs of this workspace that wait for a review, newest activity first."""
        return runs_to_review(self._app.store, str(self._app.workspace))

    def _remember_open(self, run: WorkflowRun) -> SessionView:
        self._open[run.run_id] = run
        return run.session

    def _unfinished(self) -> list[SessionInfo]:
        runs = self._app.store.runs(workspace=str(self._app.workspace))
        return [info for info in runs if info.unfinished_run is not None]


class SessionList:
    """The sessions of the workspace, as the store has them now. Methods that open one raise ChatopsError."""

    def __init__(self, app: App, *, runs: Runs, user: UserState) -> None:
        self._app = app
        self._runs = runs
        self._user = user

    async def listed(self) -> Sequence[SessionRow]:
        """Return the stored sessions of this workspace, newest first."""
        return await asyncio.to_thread(
            lambda: self._describe_rows(self._app.store.sessions(workspace=str(self._app.workspace), limit=ALL))
        )

    async def last_said(self, session_id: SessionId) -> Sequence[str]:
        """Return the last message of the user and the last answer of a session, each in one line with its author."""
        messages = await asyncio.to_thread(self._app.store.history, session_id, last=_PREVIEW_MESSAGES)
        asked = [said for said in messages if isinstance(said, UserMessage) and said.by is not Speaker.MACHINE]
        answers = (said.text for said in reversed(messages) if isinstance(said, AssistantMessage) and said.text.strip())
        request = asked[-1].text if asked else await asyncio.to_thread(self._request_of_run, session_id)
        last = {"You": request, "Answer": next(answers, "")}
        return [f"{author}: {one_line(text, most=_MAX_PREVIEW_CHARS)}" for author, text in last.items() if text.strip()]

    def _request_of_run(self, session_id: SessionId) -> str:
        """Return what a workflow run was asked for; empty if the session is not a run."""
        with suppress(NoSuchSessionError):
            return self._app.store.load_run(session_id).query
        return ""

    async def child_transcript(self, call: CallId) -> str:
        """Return what a child session has said and done so far, as Markdown.

        Raises NoSuchSessionError if the call has not started one.
        """
        session_id = child_session(call)
        # The store takes the beginning of an id too, and would find the session of another call.
        if (await asyncio.to_thread(self._app.store.session, session_id)).id != session_id:
            raise NoSuchSessionError("This call has no session of its own yet.")
        return await asyncio.to_thread(self._exported, session_id, "md")

    async def rename(self, session_id: SessionId, title: str) -> None:
        """Rename a session that is not open here."""
        await asyncio.to_thread(self._app.store.update_session, session_id, title=title)

    async def delete(self, session_id: SessionId) -> None:
        """Delete a session for good, with its unfinished turn.

        Raises SessionBusyError if it is open in another process.
        """

        def delete() -> None:
            store = self._app.store
            if (lease := store.lease(session_id)) is not None:
                raise SessionBusyError(
                    f"It is open in another chatops (pid {lease.holder.pid} on {lease.holder.host}).",
                    advice="Close it there first.",
                )
            store.delete_session(session_id)
            self._app.outputs.forget_others(session_id, ())

        await asyncio.to_thread(delete)

    async def delete_replaced(self, left: SessionId, *, made: SessionId) -> None:
        """Delete the copy `left`, and others that end where the new copy `made` ends, if nothing was said in them."""
        await self._delete_all(partial(replaced_copies, left=left, made=made))

    async def delete_copy_looked_at(self, left: SessionId) -> None:
        """Delete a session if nothing was said in it and it is a copy from another folder. Raises StoreError."""
        await self._delete_all(partial(unused_copy, left=left))

    async def _delete_all(self, find: Callable[..., list[SessionId]]) -> None:
        draft = partial(self._user.draft, followed=False)
        for unused in await asyncio.to_thread(find, self._app.store, draft=draft):
            await self.delete(unused)
            self._user.save_draft(unused, followed=False, text="")

    async def other_folder(self, session_id: SessionId) -> str:
        """Return the folder that a session was held in; empty if it is this workspace. Raises NoSuchSessionError."""
        return self._other_workspace(await asyncio.to_thread(self._app.store.session, session_id))

    def _other_workspace(self, info: SessionInfo) -> str:
        return info.workspace if info.workspace != str(self._app.workspace) else ""

    async def daily_usage(self, *, days: int) -> Sequence[DailyUsage]:
        """Return the usage of each day and model in the sessions of this workspace, the last day first."""
        since = time.time() - days * _DAY_S
        return await asyncio.to_thread(self._app.store.daily_usage, workspace=str(self._app.workspace), since=since)

    async def search(self, text: str, *, everywhere: bool = False) -> Sequence[HitRow]:
        """Return where sessions of this workspace, or of all if `everywhere`, contain `text`, newest first."""
        workspace = None if everywhere else str(self._app.workspace)
        hits = await asyncio.to_thread(self._app.store.search, text, workspace=workspace)
        return [
            HitRow(
                session_id=hit.session.id,
                title=hit.session.title or NO_TITLE,
                when=changed_at_words(hit.session),
                text=hit.text,
                message_id=hit.message_id or "",
                is_copy=hit.session.forked_from is not None,
                folder=self._other_workspace(hit.session),
            )
            for hit in hits
        ]

    async def next_pending(self) -> SessionId | None:
        """Return the session of this workspace to decide on next, or None.

        A session with a pending call comes first, then a run to review, then an interrupted session; among equals, the
        one used last.
        """
        unfinished = [info for info, _ in await asyncio.to_thread(self._unfinished_sessions)]
        reviews = await asyncio.to_thread(self._runs.to_review)
        wanted = [*(info for info in unfinished if info.pending), *reviews, *unfinished]
        return wanted[0].id if wanted else None

    async def pending(self) -> Sequence[SessionRow]:
        """Return all sessions of this workspace with a call to decide or a step to review, last used first."""

        def pending() -> list[SessionRow]:
            found = {info.id: info for info in (*self._undecided_sessions(), *self._runs.to_review())}
            return self._describe_rows(_last_used_first(found.values()))

        return await asyncio.to_thread(pending)

    def unfinished_line(self) -> tuple[str, frozenset[SessionId]]:
        """Return one line on the unfinished sessions of this workspace, empty if there are none, and their ids."""
        unfinished = self._unfinished_sessions()
        if not unfinished:
            return _reviews_line(self._runs.to_review()), frozenset()
        (first, state), *others = unfinished
        title = cut(first.title or first.id, most=MAX_TITLE_CHARS).replace('"', "'")
        more = f"; {len(others)} more" if others else ""
        return f'Unfinished: {state} (session "{title}"){more}', frozenset(info.id for info, _ in unfinished)

    def _unfinished_sessions(self) -> list[tuple[SessionInfo, str]]:
        """Return the unfinished sessions of this workspace that no process owns, each with its resume summary.

        Those with a call to decide come first; within both groups, the last used one.
        """
        store = self._app.store
        found = (*self._undecided_sessions(), *store.sessions(workspace=str(self._app.workspace)))
        return [
            (info, state)
            for info in {info.id: info for info in found}.values()
            if (state := resume_summary(store, info)) and store.lease(info.id) is None
        ]

    def _undecided_sessions(self) -> list[SessionInfo]:
        """Return the sessions of this workspace with a call to decide, the last used one first."""
        store, here = self._app.store, str(self._app.workspace)
        ids = dict.fromkeys(row.session_to_continue for row in store.pending_calls() if row.decided is None)
        found = [info for info in map(store.session, ids) if info.workspace == here]
        return _last_used_first(found)

    def _describe_rows(self, found: Sequence[SessionInfo]) -> list[SessionRow]:
        """Return the sessions as lists show them: with their pending calls, and the session they are a copy of."""
        store = self._app.store
        asks: dict[SessionId, list[str]] = {}
        if any(info.pending for info in found):
            for row in store.pending_calls():
                if row.decided is None:
                    asks.setdefault(row.session_to_continue, []).append(call_line(row.pending.call, row.pending.facts))
        known = {info.id: info for info in found}
        return [
            SessionRow(
                id=info.id,
                title=info.title or NO_TITLE,
                when=changed_at_words(info),
                messages=info.messages,
                pending=info.pending,
                state=resume_summary(store, info),
                run=run_state(info),
                role=info.role,
                asks=tuple(asks.get(info.id, ())),
                copy_of=_source_text(info, known.get(info.forked_from) if info.forked_from else None),
                source=info.forked_from or "",
            )
            for info in found
        ]

    # Opening

    async def open(self, session_id: SessionId) -> SessionView:
        """Open a stored session; follow one that another process owns. The caller then closes the present session."""
        session, _ = await self.open_and_resume(session_id)
        return session

    async def open_and_resume(self, session_id: SessionId | None) -> tuple[SessionView, tuple[str, ...]]:
        """Open or follow a session, a new one for None, resume it, and return it with the notices from resuming.

        A UI draws the state that it finds, so nothing is lost by resuming before it subscribes.
        """
        if session_id is not None:
            info = await asyncio.to_thread(self._app.store.session, session_id)
            try:
                if info.run is not None:
                    # Resumed once the UI listens, because the UI shows what happens then.
                    return await self._runs.open(info.id), ()
                session = await self._app.open_session(session_id, attended=True)
            except SessionHeldError:
                return await self._app.follow_session(info.id), ()
        else:
            session = await self._app.open_session(None, attended=True)
        notices: list[str] = []

        def collect(published: Published) -> None:
            if isinstance(published.event, Notice):
                notices.append(f"{published.event.text} {published.event.advice}".strip())

        unsubscribe = session.subscribe(collect)
        try:
            await session.resume()
        finally:
            unsubscribe()
        return session, tuple(notices)

    async def follow(self, session_id: SessionId) -> SessionView:
        """Follow a session that another process owns, or is about to own."""
        return await self._app.follow_session(session_id)

    async def new(self, *, role: str, model: str | None) -> SessionView:
        """Start an empty session with this model pinned.

        Without a role, it uses the one used here last. If `model` is None, the command line decides which model is
        pinned.
        """
        session = await self._app.open_session(None, attended=True, model=model)
        if role and role != session.snapshot().role:
            await session.switch_role(role)
        return session

    async def fork(self, session_id: SessionId, *, before: MessageId | None = None) -> SessionView:
        """Copy a session up to now, or up to a message and without it, and open the copy in this workspace."""
        here = str(self._app.workspace)
        info = await asyncio.to_thread(self._app.store.fork_session, session_id, before=before, workspace=here)
        return await self._app.open_session(info.id, attended=True)

    async def export(self, session_id: SessionId, *, style: str, path: str) -> str:
        """Write a session as ``md``, ``html``, ``jsonl`` or ``openai`` and return the path. Never overwrites a file."""
        name = path or f"{session_id}.{'json' if style == 'openai' else style}"

        def write() -> str:
            text = self._exported(session_id, style)
            target = self._app.workspace / os.path.expanduser(name)
            write_new_private(target, text.encode("utf-8", "backslashreplace"))
            return str(target)

        return await asyncio.to_thread(write)

    def _exported(self, session_id: SessionId, style: str) -> str:
        from chatops.store.export import ExportFormat, export  # slow to import

        formats = [known.value for known in ExportFormat]
        if style not in formats:
            raise ConfigError(f"There is no export format {style!r}.", advice=f"Formats: {', '.join(formats)}.")
        store = self._app.store
        info, history = store.session(session_id), store.history(session_id)
        return export(history, info, to=ExportFormat(style), read_file=self._app.files.read)


def _source_text(info: SessionInfo, source: SessionInfo | None) -> str:
    """Return the session that `info` is a copy of, in words; empty if it is none. `source` is it, if known."""
    if source is None:
        return info.forked_from or ""
    return f"{source.title or NO_TITLE} ({source.id}, {changed_at_words(source)})"


def _last_used_first(found: Iterable[SessionInfo]) -> list[SessionInfo]:
    return sorted(found, key=lambda info: info.updated_at, reverse=True)


def changed_at_words(info: SessionInfo) -> str:
    """Return when a session last changed, in words."""
    when = datetime.fromtimestamp(info.updated_at).astimezone()
    today = when.date() == datetime.now().astimezone().date()
    return f"today {when:%H:%M}" if today else f"{when:%Y-%m-%d %H:%M}"


def _reviews_line(runs: Sequence[SessionInfo]) -> str:
    """Return one sentence about the runs that wait for a review; empty if there are none."""
    if not runs:
        return ""
    names = ", ".join(dict.fromkeys(info.run.workflow for info in runs if info.run is not None))
    many = plural(len(runs), "run")
    return f"{many} of a workflow need{'' if len(runs) > 1 else 's'} your review ({names})"
