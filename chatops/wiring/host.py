"""Implementation of `tui.host.Host` over store, registry and catalog."""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.paths import write_new_private
from chatops.config.settings import load_settings, store_theme
from chatops.domain.errors import ConfigError, SessionHeldError, StoreError
from chatops.domain.events import Notice, Published
from chatops.domain.ids import MessageId, SessionId
from chatops.domain.sandbox import SandboxNote
from chatops.domain.wording import plural
from chatops.policy.registry import ModelSpec
from chatops.policy.registry_checks import model_problem
from chatops.runtime.session import Session, owned
from chatops.runtime.view import SessionView
from chatops.store.unsent import recover
from chatops.tui.host import FirstSession, ModelRow, RoleRow
from chatops.wiring.app import App
from chatops.wiring.background import Background
from chatops.wiring.host_sessions import HostSessions
from chatops.wiring.host_texts import HostTexts
from chatops.wiring.options import Options

if TYPE_CHECKING:
    from chatops.headless.reach import Reach

log = logging.getLogger(__name__)

HISTORY = 500
"""Messages of a workspace that the composer offers again."""


async def open_for_tui(options: Options, *, session: SessionId | None, last: bool, pick: bool) -> FirstSession:
    """Open the session for the terminal app. Everything heavy runs in a thread, so that the UI stays responsive.

    `session`: open this one. `last`: the last of this workspace. `pick`: a new one behind the picker.
    """
    host = await asyncio.to_thread(_prepared, options)
    opened = await host.opened(session, last=last, pick=pick)
    host.background.warm_up(opened.session.snapshot().model)
    host.background.offer_models(opened.session)
    host.background.connect_servers()
    host.background.watch_files()
    host.background.back_up()
    return opened


def _prepared(options: Options) -> "TuiHost":
    app = App(options)
    with ThreadPoolExecutor(max_workers=1) as beside:
        # Mostly waits for a program.
        sandbox = beside.submit(app.limits.sandbox_note)
        app.prepare()
        return TuiHost(app, sandbox=sandbox.result())


class TuiHost(HostSessions, HostTexts):
    """Answers from the current store and registry."""

    def __init__(self, app: App, *, sandbox: SandboxNote | None = None) -> None:
        """Create the host. `sandbox` says how commands are confined; None: find out."""
        super().__init__(app)
        self.background = Background(app)
        """Background work beside the sessions, once it is started."""
        self._history = _texts(app.settings.get(self._history_key))
        self._sandbox = app.limits.sandbox_note() if sandbox is None else sandbox
        self._shows_turn_cost = load_settings(app.paths.settings).turn_cost

    @property
    def app(self) -> App:
        """The application that this host answers from. The caller of the terminal app closes it."""
        return self._app

    async def opened(self, session: SessionId | None, *, last: bool, pick: bool) -> FirstSession:
        """Return the first session of this run, and the notices for the start."""
        app = self._app
        if last and session is None:
            rows = await asyncio.to_thread(app.store.sessions, workspace=str(app.workspace), limit=1)
            session = rows[0].id if rows else None
        chat, notices = await self._resumed(session)
        if isinstance(chat, Session) and not app.store.unsaved:
            chat.show_store_notice(" ".join(app.store.notices))
        waiting = "" if session is not None or pick else await asyncio.to_thread(self.unfinished_line)
        recovered = await asyncio.to_thread(self._recover_unsent, chat)
        notices = (*notices, *self._withheld(chat), *recovered)
        return FirstSession(
            session=chat,
            host=self,
            notices=notices,
            pending_elsewhere=waiting,
            trust=next((one.question for one in (app.own_tools_trust, app.trust) if one.question.is_open), None),
            choose_session=pick,
        )

    def _withheld(self, chat: SessionView) -> tuple[str, ...]:
        app, own = self._app, self._app.own_tools_trust
        # /tools lists what no role gets here, which is no news for each start. About the user's own tools the app asks.
        known = [*app.catalog.absent, *(own.not_loaded() if own.question.is_open else ()), *app.servers.pending()]
        try:
            return app.rights.withheld(chat.snapshot().role, but=known)
        except ConfigError:
            return ()  # The role is gone from the registry, which has a notice of its own.

    def _recover_unsent(self, chat: SessionView) -> tuple[str, ...]:
        """Put what a killed process was about to send into the draft of `chat`, and return the notice."""
        app, store = self._app, self._app.store
        key = self.draft_setting(chat.session_id, followed=not isinstance(chat, Session))

        def keep(text: str) -> None:
            drafts = (store.setting(key), text)
            store.set_setting(key, "\n\n".join(draft for draft in drafts if draft))

        try:
            found = 0 if store.unsaved else recover(app.paths, app.workspace, store=keep)
        except StoreError as error:
            log.warning("unsent messages were not recovered: %s", error)
            return ()
        what = plural(found, "message is", "messages are")
        return (f"{what} in the composer: chatops ended before it could send.",) if found else ()

    def history(self) -> Sequence[str]:
        return tuple(self._history)

    def remember(self, text: str) -> None:
        if self._history[-1:] != [text]:
            self._history = [*self._history, text][-HISTORY:]
            self._app.settings.set(self._history_key, json.dumps(self._history))

    def draft(self, session_id: SessionId, *, followed: bool) -> str:
        return self._app.settings.fresh(self.draft_setting(session_id, followed=followed)) or ""

    def save_draft(self, session_id: SessionId, *, followed: bool, text: str) -> None:
        self._app.settings.set(self.draft_setting(session_id, followed=followed), text)

    async def take_queued(self, session: SessionView) -> str:
        key = self.draft_setting(session.session_id, followed=False)
        return await owned(session, "The queue was not changed").queue.take(into=key)

    async def save_theme(self, name: str) -> None:
        await asyncio.to_thread(store_theme, self._app.paths.settings, name)

    def roles(self) -> Sequence[RoleRow]:
        return [self._role(name) for name in self._app.rights.roles()]

    def favourite_roles(self) -> Sequence[str]:
        return load_settings(self._app.paths.settings).favourite_roles

    def shows_turn_cost(self) -> bool:
        return self._shows_turn_cost

    def role_colours(self) -> Sequence[tuple[str, str]]:
        return self._app.rights.role_colours()

    def models(self) -> Sequence[ModelRow]:
        return [_model(spec) for spec in self._app.rights.models()]

    async def models_of_servers(self) -> Sequence[ModelRow]:
        found = await asyncio.gather(*(self._reach(spec) for spec in self._app.rights.models()))
        rows = [replace(_model(one.spec), missing=one.missing) for one in found]
        taken = {(one.spec.api_url, one.spec.model_name) for one in found}
        for one in found:
            others = [name for name in one.available if (one.spec.api_url, name) not in taken]
            taken |= {(one.spec.api_url, name) for name in others}
            rows += [_model(one.spec.sibling(name)) for name in others]
        return rows

    async def model_problem(self, name: str) -> str:
        spec = self._app.rights.model(name)
        return "" if spec is None or model_problem(spec) else (await self._reach(spec)).missing

    async def _reach(self, spec: ModelSpec) -> "Reach":
        """Ask the server of a model, which takes a few seconds at most.

        One whose key is asked of a program or a keyring, which may ask the user in turn, is not asked.
        """
        from chatops.headless.reach import Reach, Reachability, reach

        if why := model_problem(spec):
            return Reach(spec=spec, reachability=Reachability.ABSENT, text=f"It {why}.")
        if spec.key.command or spec.key.keyring:
            return Reach(spec=spec, reachability=Reachability.THERE, text="")
        return await reach(spec, require=self._app.limits.sandbox().require)

    def personas(self) -> Sequence[str]:
        return self._app.rights.personas()

    def persona(self, session: SessionView) -> str:
        now = session.snapshot()
        try:
            return self._app.rights.persona(now.role, chosen=now.persona)
        except ConfigError:
            return now.persona

    def workspace_problem(self) -> str:
        return self._app.workspace_error

    async def reload_registry(self) -> bool:
        await asyncio.to_thread(self._app.reload_registry)
        return any(one.question.is_open for one in (self._app.own_tools_trust, self._app.trust))

    def sandbox(self) -> SandboxNote:
        return self._sandbox

    async def open_session(self, session_id: SessionId) -> SessionView:
        chat, _ = await self._resumed(session_id)
        return chat

    async def follow_session(self, session_id: SessionId) -> SessionView:
        return await self._app.follow_session(session_id)

    async def new_session(self, *, role: str, model: str | None) -> SessionView:
        session = await self._app.open_session(None, attended=True, model=model)
        if role and role != session.snapshot().role:
            await session.switch_role(role)
        return session

    async def fork_session(self, session_id: SessionId, *, before: MessageId | None = None) -> SessionView:
        here = str(self._app.workspace)
        info = await asyncio.to_thread(self._app.store.fork_session, session_id, before=before, workspace=here)
        return await self._app.open_session(info.id, attended=True)

    async def delete_replaced(self, left: SessionId, *, made: SessionId) -> None:
        """Delete copies in which nothing was said, as `tui.host.Host.delete_replaced` says."""
        from chatops.wiring.unused_copies import replaced_copies

        await self._delete_all(partial(replaced_copies, left=left, made=made))

    async def delete_copy_looked_at(self, left: SessionId) -> None:
        """Delete it if nothing was said in it, as `tui.host.Host.delete_copy_looked_at` says."""
        from chatops.wiring.unused_copies import copy_looked_at

        await self._delete_all(partial(copy_looked_at, left=left))

    async def _delete_all(self, found: Callable[..., list[SessionId]]) -> None:
        draft = partial(self.draft, followed=False)
        for unused in await asyncio.to_thread(found, self._app.store, draft=draft):
            await self.delete_session(unused)
            self.save_draft(unused, followed=False, text="")

    async def export_session(self, session_id: SessionId, *, style: str, path: str) -> str:
        from chatops.store.export import ExportFormat, export

        formats = [known.value for known in ExportFormat]
        if style not in formats:
            raise ConfigError(f"There is no export format {style!r}.", advice=f"Formats: {', '.join(formats)}.")
        store = self._app.store
        info, history = await asyncio.to_thread(lambda: (store.session(session_id), store.history(session_id)))
        suffix = {"openai": "json"}.get(style, style)
        text = await asyncio.to_thread(export, history, info, to=ExportFormat(style), read_file=self._app.files.read)
        name = path or f"{session_id}.{suffix}"
        return await asyncio.to_thread(_write, self._app.workspace, name, text)

    async def _resumed(self, session_id: SessionId | None) -> tuple[SessionView, tuple[str, ...]]:
        """Open or follow a session, resume it, and return it with the notices from resuming.

        A UI draws the state that it finds, so nothing is lost by resuming before it subscribes.
        """
        if session_id is not None:
            info = await asyncio.to_thread(self._app.store.session, session_id)
            try:
                if info.run is not None:
                    # Resumed once the UI listens, because the UI shows what happens then.
                    return self.keep(await self._app.open_run(info.id, attended=True)), ()
                chat = await self._app.open_session(session_id, attended=True)
            except SessionHeldError:
                return await self._app.follow_session(info.id), ()
        else:
            chat = await self._app.open_session(None, attended=True)
        notices: list[str] = []

        def collect(published: Published) -> None:
            if isinstance(published.event, Notice):
                notices.append(f"{published.event.text} {published.event.advice}".strip())

        unsubscribe = chat.subscribe(collect)
        try:
            await chat.resume()
        finally:
            unsubscribe()
        return chat, tuple(notices)

    @property
    def _history_key(self) -> str:
        return f"history:{self._app.workspace}"

    def draft_setting(self, session_id: SessionId, *, followed: bool) -> str:
        return f"{'read-along-' if followed else ''}draft:{self._app.workspace}:{session_id}"

    def _role(self, name: str) -> RoleRow:
        try:
            grant = self._app.grant_for(name)
        except ConfigError as error:
            return RoleRow(name=name, model="", tools=(), description=str(error))
        model = grant.models[0]
        return RoleRow(name=name, model=model.label or model.name, tools=tuple(t.name for t in grant.tools))


def _write(workspace: Path, name: str, text: str) -> str:
    target = workspace / os.path.expanduser(name)
    write_new_private(target, text.encode("utf-8", "backslashreplace"))
    return str(target)


def _model(spec: ModelSpec) -> ModelRow:
    missing = f"It {why}." if (why := model_problem(spec)) else ""
    served = spec.model_name if spec.model_name != spec.name else ""
    note = f"{spec.type.value} {served}".rstrip()
    return ModelRow(name=spec.name, label=spec.label or spec.name, note=note, missing=missing)


def _texts(stored: str | None) -> list[str]:
    try:
        texts = json.loads(stored or "[]")
    except ValueError:
        return []
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
