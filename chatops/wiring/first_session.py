"""Open the first session of the terminal app, with everything that the user has to be told at the start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from chatops.config.trust import TrustQuestion
from chatops.domain.errors import ConfigError, StoreError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId
from chatops.domain.wording import plural
from chatops.runtime.session import Session
from chatops.runtime.view import SessionView
from chatops.store.unsent import recover
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from chatops.wiring.workspace import Workspace

log = logging.getLogger(__name__)


@frozen_dataclass
class FirstSession:
    """The result of opening the first session, once everything heavy is imported."""

    session: SessionView
    workspace: Workspace
    notices: tuple[str, ...] = ()
    """Notices to show once at the start (a broken registry, an ignored workspace registry)."""
    pending_elsewhere: str = ""
    """Pending and interrupted work in other sessions, in one line; ctrl+g opens it."""
    trust: TrustQuestion | None = None
    """Question about the files of the workspace, if there is one."""
    choose_session: bool = False
    """True to show the session picker first (``chatops -r`` without an id)."""


Opener = Callable[[], Awaitable[FirstSession]]
"""Called after the first paint, which does not wait for registry, store and models."""


async def open_for_tui(options: Options, *, session: SessionId | None, last: bool, pick: bool) -> FirstSession:
    """Open the session for the terminal app. Everything heavy runs in a thread, so that the UI stays responsive.

    `session`: open this one. `last`: the last of this workspace. `pick`: a new one behind the picker.
    """
    app, workspace = await asyncio.to_thread(_prepare_workspace, options)
    first = await open_first_session(app, workspace, session, last=last, pick=pick)
    workspace.upkeep.start(first.session)
    return first


def _prepare_workspace(options: Options) -> tuple[App, Workspace]:
    app = App(options)
    with ThreadPoolExecutor(max_workers=1) as executor:
        # Beside the rest, because it mostly waits for a program.
        sandbox = executor.submit(app.limits.sandbox_note)
        app.prepare()
        return app, Workspace(app, sandbox=sandbox.result())


async def open_first_session(
    app: App, workspace: Workspace, session: SessionId | None, *, last: bool, pick: bool
) -> FirstSession:
    """Open the first session of this run, see `open_for_tui`. Its notices are those for the start."""
    if last and session is None:
        found = await asyncio.to_thread(app.store.last_session, str(app.workspace))
        session = found.id if found is not None else None
    chat, notices = await workspace.sessions.open_and_resume(session)
    if isinstance(chat, Session) and not app.store.unsaved:
        chat.show_store_notice(" ".join(app.store.notices))
    elsewhere, in_that_line = "", frozenset[SessionId]()
    if session is None and not pick:
        elsewhere, in_that_line = await asyncio.to_thread(workspace.sessions.unfinished_line)
    recovered = await asyncio.to_thread(_recover_unsent, app, workspace, chat)
    jobs = await asyncio.to_thread(workspace.jobs.news, in_that_line)
    return FirstSession(
        session=chat,
        workspace=workspace,
        notices=(*notices, *_withheld_notices(app, chat), *recovered, *jobs),
        pending_elsewhere=elsewhere,
        trust=workspace.trust.about_files(),
        choose_session=pick,
    )


def _withheld_notices(app: App, chat: SessionView) -> tuple[str, ...]:
    own = app.own_tools_trust
    # /tools lists what no role gets here, which is no news for each start. About the user's own tools the app asks.
    known = [*app.catalog.absent, *(own.not_loaded() if own.question.is_open else ()), *app.servers.pending()]
    try:
        return app.rights.withheld(chat.snapshot().role, but=known)
    except ConfigError:
        return ()  # The role is gone from the registry, which has a notice of its own.


def _recover_unsent(app: App, workspace: Workspace, chat: SessionView) -> tuple[str, ...]:
    """Put what a killed process was about to send into the draft of `chat`, and return the notice."""
    store = app.store
    key = workspace.user.draft_setting(chat.session_id, followed=not isinstance(chat, Session))

    def keep(text: str) -> None:
        drafts = (store.setting(key), text)
        store.set_setting(key, "\n\n".join(draft for draft in drafts if draft))

    try:
        count = 0 if store.unsaved else recover(app.paths, app.workspace, store=keep)
    except StoreError as error:
        log.warning("unsent messages were not recovered: %s", error)
        return ()
    what = plural(count, "message is", "messages are")
    return (f"{what} in the composer: chatops ended before it could send.",) if count else ()
