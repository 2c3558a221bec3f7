"""What the terminal app needs besides one conversation: `tui.host.Host` over store, registry and catalog."""

import asyncio
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from chatops.config.paths import write_new_private
from chatops.config.settings import store_theme
from chatops.domain.errors import ConfigError, SessionHeld, StoreError
from chatops.domain.events import Notice, Published
from chatops.domain.ids import SessionId
from chatops.policy.concerns import MISSING_TYPES
from chatops.policy.registry import ModelSpec
from chatops.runtime.conversation import Conversation
from chatops.runtime.left_off import left_off
from chatops.runtime.session import ChatSession
from chatops.store.base import SessionInfo
from chatops.store.unsent import recover
from chatops.tui.host import ModelRow, Opened, RoleRow, SessionRow
from chatops.wiring.app import App, Options
from chatops.wiring.background import Background
from chatops.wiring.host_runs import HostRuns, changed_at, reviews_left, run_standing
from chatops.wiring.host_texts import HostTexts

log = logging.getLogger(__name__)

TITLE_AT_START = 30
"""Characters of a title in the line at the start, so that all of the line fits."""
HISTORY = 500
"""Messages of a workspace that the composer offers again."""


async def open_for_tui(options: Options, *, session: SessionId | None, last: bool, pick: bool) -> Opened:
    """The app's opener: everything heavy is made in a thread, so the screen goes on taking keys.

    `session`: open this one; `last`: the last of this workspace; `pick`: a new one behind the picker.
    """
    host = await asyncio.to_thread(_prepared, options)
    opened = await host.opened(session, last=last, pick=pick)
    host.background.warm_up(opened.session.snapshot().model)
    host.background.offer_models(opened.session)
    host.background.watch_files()
    return opened


def _prepared(options: Options) -> "TuiHost":
    app = App(options)
    app.prepare()
    return TuiHost(app)


class TuiHost(HostRuns, HostTexts):
    """Answers from the store and the registry as they are when asked."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.background = Background(app)
        """What is done beside the conversations, once it is begun."""
        self._history = _texts(app.settings.get(self._history_key))
        self._sandbox = app.sandbox_note()

    @property
    def app(self) -> App:
        """What this host answers from; the caller of the terminal app closes it."""
        return self._app

    async def opened(self, session: SessionId | None, *, last: bool, pick: bool) -> Opened:
        """The first conversation of this run, and what to say at the start."""
        app = self._app
        if last and session is None:
            rows = await asyncio.to_thread(app.store.sessions, workspace=str(app.workspace), limit=1)
            session = rows[0].id if rows else None
        chat, notices = await self._taken_up(session)
        if isinstance(chat, ChatSession) and not app.store.unsaved:
            chat.remark(" ".join(app.store.notices))
        waiting = "" if session is not None or pick else await asyncio.to_thread(self._left_behind)
        recovered = await asyncio.to_thread(self._recover_unsent, chat)
        notices = (*notices, *self._withheld(chat), *recovered)
        return Opened(session=chat, host=self, notices=notices, waiting=waiting, pick=pick)

    def _withheld(self, chat: Conversation) -> tuple[str, ...]:
        try:
            return self._app.rights.withheld(chat.snapshot().role)
        except ConfigError:
            return ()  # The role is gone from the registry, which has a notice of its own.

    def _recover_unsent(self, chat: Conversation) -> tuple[str, ...]:
        """Put what a killed process was about to send into the draft of `chat`, and say so."""
        app, store = self._app, self._app.store
        key = self._draft_key(chat.session_id, reading=not isinstance(chat, ChatSession))

        def keep(text: str) -> None:
            drafts = (store.setting(key), text)
            store.set_setting(key, "\n\n".join(draft for draft in drafts if draft))

        try:
            found = 0 if store.unsaved else recover(app.paths, app.workspace, store=keep)
        except StoreError as error:
            log.warning("unsent messages were not recovered: %s", error)
            return ()
        what = "message is" if found == 1 else "messages are"
        return (f"{found} {what} in the composer: chatops ended before it could send.",) if found else ()

    def history(self) -> Sequence[str]:
        """What the person has sent from this workspace, oldest first."""
        return tuple(self._history)

    def remember(self, text: str) -> None:
        """Add to the history of this workspace."""
        if self._history[-1:] != [text]:
            self._history = [*self._history, text][-HISTORY:]
            self._app.settings.set(self._history_key, json.dumps(self._history))

    def draft(self, session_id: SessionId, *, reading: bool) -> str:
        """See `tui.host.Host.draft`."""
        return self._app.settings.fresh(self._draft_key(session_id, reading=reading)) or ""

    def keep_draft(self, session_id: SessionId, *, reading: bool, text: str) -> None:
        """See `tui.host.Host.keep_draft`."""
        self._app.settings.set(self._draft_key(session_id, reading=reading), text)

    async def take_queued(self, session: Conversation) -> str:
        """See `tui.host.Host.take_queued`."""
        return await session.take_queued(into=self._draft_key(session.session_id, reading=False))

    async def keep_theme(self, name: str) -> None:
        """Store the theme for this user."""
        await asyncio.to_thread(store_theme, self._app.paths.settings, name)

    def roles(self) -> Sequence[RoleRow]:
        """The roles of this person here, in registry order."""
        return [self._role(name) for name in self._app.rights.roles()]

    def models(self) -> Sequence[ModelRow]:
        """The configured models."""
        return [_model(spec) for spec in self._app.rights.models()]

    def personas(self) -> Sequence[str]:
        """Names of the personas that can be spoken."""
        return self._app.rights.personas()

    def persona(self, session: Conversation) -> str:
        """The name of the persona that speaks in a conversation, whoever chose it."""
        now = session.snapshot()
        try:
            return self._app.rights.persona(now.role, chosen=now.persona)
        except ConfigError:
            return now.persona

    def workspace_trouble(self) -> str:
        """Why no tool can work here now."""
        return self._app.workspace_trouble

    async def reload_registry(self) -> None:
        """Put the registry as its file is now in force."""
        await asyncio.to_thread(self._app.reload_registry)

    def sandbox(self) -> str:
        """How commands are confined here."""
        return self._sandbox

    async def sessions(self) -> Sequence[SessionRow]:
        """The stored conversations of this workspace, newest first."""
        return await asyncio.to_thread(self._rows)

    def _rows(self) -> list[SessionRow]:
        store = self._app.store
        return [_session(info, left_off(store, info)) for info in store.sessions(workspace=str(self._app.workspace))]

    async def waiting(self) -> SessionId | None:
        """The session of this workspace used last in which a call is pending, else a run to review, else the session
        interrupted last."""
        left = await asyncio.to_thread(self._left)
        reviews = await asyncio.to_thread(self.to_review)
        wanted = [*(info for info, _ in left if info.pending), *reviews, *(info for info, _ in left)]
        return wanted[0].id if wanted else None

    async def pending(self) -> Sequence[SessionRow]:
        """All sessions of this workspace with something to decide, the one used last first."""
        return await asyncio.to_thread(self._pending_rows)

    def _pending_rows(self) -> list[SessionRow]:
        found = {info.id: info for info in (*self._undecided(), *self.to_review())}
        rows = sorted(found.values(), key=_used_at, reverse=True)
        return [_session(info, left_off(self._app.store, info)) for info in rows]

    async def open_session(self, session_id: SessionId) -> Conversation:
        """Open a stored conversation; one that another process has is read along with."""
        chat, _ = await self._taken_up(session_id)
        return chat

    async def read_along(self, session_id: SessionId) -> Conversation:
        """Read along with a conversation that another process has, or is about to have."""
        return await self._app.read_along(session_id)

    async def new_session(self, *, role: str, model: str | None) -> Conversation:
        """Begin an empty session in `role`, if there is one, with `model` pinned; None as the command line says."""
        session = await self._app.open_session(None, attended=True, model=model)
        if role and role != session.snapshot().role:
            await session.switch_role(role)
        return session

    async def fork_session(self, session_id: SessionId) -> Conversation:
        """A copy of a conversation up to now, opened."""
        info = await asyncio.to_thread(self._app.store.fork_session, session_id)
        return await self._app.open_session(info.id, attended=True)

    async def export_session(self, session_id: SessionId, *, style: str, path: str) -> str:
        """Write a conversation to a file that does not exist yet; returns where."""
        from chatops.store.export import ExportFormat, export

        formats = [known.value for known in ExportFormat]
        if style not in formats:
            raise ConfigError(f"There is no export format {style!r}.", advice=f"Formats: {', '.join(formats)}.")
        store = self._app.store
        info, history = await asyncio.to_thread(lambda: (store.session(session_id), store.history(session_id)))
        suffix = {"openai": "json"}.get(style, style)
        text = export(history, info, to=ExportFormat(style))
        name = path or f"{session_id}.{suffix}"
        return await asyncio.to_thread(_write, self._app.workspace, name, text)

    async def _taken_up(self, session_id: SessionId | None) -> tuple[Conversation, tuple[str, ...]]:
        """A conversation that goes on where it was left, and what there is to say about that.

        The screen draws the state it finds, so nothing is lost on it by beginning before it follows.
        """
        if session_id is not None:
            info = await asyncio.to_thread(self._app.store.session, session_id)
            try:
                if info.run is not None:
                    # It goes on when the screen listens: what happens then is part of what it shows.
                    return self.keep(await self._app.open_run(info.id, attended=True)), ()
                chat = await self._app.open_session(session_id, attended=True)
            except SessionHeld:
                return await self._app.read_along(info.id), ()
        else:
            chat = await self._app.open_session(None, attended=True)
        said: list[str] = []

        def heard(published: Published) -> None:
            if isinstance(published.event, Notice):
                said.append(f"{published.event.text} {published.event.advice}".strip())

        unsubscribe = chat.subscribe(heard)
        try:
            await chat.resume()
        finally:
            unsubscribe()
        return chat, tuple(said)

    @property
    def _history_key(self) -> str:
        return f"history:{self._app.workspace}"

    def _draft_key(self, session_id: SessionId, *, reading: bool) -> str:
        return f"{'read-along-' if reading else ''}draft:{self._app.workspace}:{session_id}"

    def _left_behind(self) -> str:
        """How the stored conversations of this workspace stand that are not finished, in one line."""
        left = self._left()
        if not left:
            return reviews_left(self.to_review())
        first, state = left[0]
        title = first.title or first.id
        shown = title if len(title) <= TITLE_AT_START else f"{title[: TITLE_AT_START - 1]}…"
        more = f"; {len(left) - 1} more" if len(left) > 1 else ""
        return f'Left off in "{shown}": {state}{more} – ctrl+g'

    def _left(self) -> list[tuple[SessionInfo, str]]:
        """The unfinished sessions of this workspace that no process owns, each with how it stands: those with a call
        to decide first, and of these and of the others the one used last first."""
        store = self._app.store
        found = (*self._undecided(), *store.sessions(workspace=str(self._app.workspace)))
        return [
            (info, state)
            for info in {info.id: info for info in found}.values()
            if (state := left_off(store, info)) and store.held(info.id) is None
        ]

    def _undecided(self) -> list[SessionInfo]:
        """The sessions of this workspace with a call to decide, the one used last first."""
        store, here = self._app.store, str(self._app.workspace)
        ids = dict.fromkeys(one.session_id for one in store.queue() if one.decided is None)
        found = [info for info in map(store.session, ids) if info.workspace == here]
        return sorted(found, key=_used_at, reverse=True)

    def _role(self, name: str) -> RoleRow:
        try:
            grant = self._app.grant_for(name)
        except ConfigError as error:
            return RoleRow(name=name, model="", tools=(), description=str(error))
        model = grant.models[0]
        return RoleRow(name=name, model=model.label or model.name, tools=tuple(t.name for t in grant.tools))


def _used_at(info: SessionInfo) -> float:
    return info.updated_at


def _write(workspace: Path, name: str, text: str) -> str:
    target = workspace / os.path.expanduser(name)
    write_new_private(target, text.encode("utf-8", "backslashreplace"))
    return str(target)


def _session(info: SessionInfo, state: str) -> SessionRow:
    return SessionRow(
        id=info.id,
        title=info.title or "(no title)",
        when=changed_at(info),
        messages=info.messages,
        pending=info.pending,
        state=state,
        run=run_standing(info),
    )


def _model(spec: ModelSpec) -> ModelRow:
    missing = f"Models of type {spec.type.value} are not in this version." if spec.type in MISSING_TYPES else ""
    note = spec.model_name if spec.model_name and spec.model_name != spec.name else spec.type.value
    return ModelRow(name=spec.name, label=spec.label or spec.name, note=note, missing=missing)


def _texts(stored: str | None) -> list[str]:
    try:
        texts = json.loads(stored or "[]")
    except ValueError:
        return []
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
