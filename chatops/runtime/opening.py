"""Opening sessions: a new one, or a stored one with its lease, messages and unfinished turn."""

from dataclasses import replace

from chatops.domain.errors import ConfigError
from chatops.domain.ids import SessionId
from chatops.engine.workflow.machine import start_run
from chatops.policy.workflow import WorkflowSpec
from chatops.runtime.services import Services
from chatops.runtime.session import ChatSession
from chatops.runtime.settings import Rights, SessionSettings, parse_revoked
from chatops.runtime.workflow import WorkflowRun
from chatops.store.derive import TITLE_LENGTH


async def open_session(
    services: Services,
    session_id: SessionId | None,
    *,
    role: str = "",
    default_role: str,
    model_pin: str = "",
) -> ChatSession:
    """Open a session. A stored one keeps its persona, and its role and model unless others are given.

    With no user at the screen, an unfinished turn also keeps the stored role. An unfinished turn is loaded but not
    resumed: call `resume` when a UI listens. The session of a workflow run is opened as it is, and its next turn is not
    started: see `open_run`.

    Raises NoSuchSessionError, SessionHeldError, UnreadableError, ConfigError.
    """
    if session_id is None:
        return ChatSession(services, None, SessionSettings(role=role or default_role, model_pin=model_pin))
    info = await services.worker(services.store.session, session_id)
    stored = info.role if info.role in services.rights.roles() else default_role
    taken = await services.worker(services.store.setting, f"revoked:{info.id}")
    settings = SessionSettings(
        role=stored,
        model_pin=model_pin or info.model_pin,
        persona=info.persona,
        revoked=parse_revoked(taken),
    )
    settings, gone = _drop_missing(settings, services.rights, chosen=bool(model_pin))
    session = ChatSession(services, info, settings)
    for text in gone:
        session.tell_when_heard(text)
    try:
        await session.load()
        if info.run is not None and not info.run.result:
            run = await services.worker(services.store.load_run, info.id)
            session.lead(run.spec.name, settings.at_step(run))
        # With no user at the screen, an unfinished turn refuses the prompt, so nothing may change before that check.
        if role and role != stored and (services.attended or not session.unfinished):
            await session.switch_role(role)
    except BaseException:
        await session.aclose()
        raise
    return session


def _drop_missing(settings: SessionSettings, rights: Rights, *, chosen: bool) -> tuple[SessionSettings, list[str]]:
    """Return the settings without a pinned model or persona that no longer exists, and the notices about them.

    A model that was `chosen` just now stays. The session opens all the same, because pending calls wait in it for the
    user.
    """
    said: list[str] = []
    for kind, pin, persona in (("model", "" if chosen else settings.model_pin, ""), ("persona", "", settings.persona)):
        try:
            SessionSettings(role=settings.role, model_pin=pin, persona=persona).grant(rights)
        except ConfigError as error:
            settings = replace(settings, model_pin="") if pin else replace(settings, persona="")
            said.append(f"{error} The role's own {kind} is used until it is there again; /{kind} chooses another.")
    return settings, said


async def new_run(services: Services, workflow: WorkflowSpec, *, query: str, role: str, model: str = "") -> WorkflowRun:
    """Create a run of `workflow` in a new session: call `go_on` when a UI listens. Raises ConfigError, StoreError."""
    store, worker = services.store, services.worker
    settings = SessionSettings(role=role, model_pin=model)
    settings.grant(services.rights)
    title = " ".join(f"{workflow.name}: {query}".split())[:TITLE_LENGTH].rstrip()
    info = await worker(store.create_session, workspace=str(services.workspace), role=role, persona="", title=title)
    await worker(store.update_session, info.id, model_pin=model)
    session = ChatSession(services, info, settings)
    await session.load()
    first = start_run(session_id=info.id, spec=workflow, query=query, role=role, model=model)
    return WorkflowRun(services, session, first.state, first=first)


async def open_run(services: Services, session_id: SessionId, *, default_role: str) -> WorkflowRun:
    """Open a stored run: call `go_on` when a UI listens.

    Raises NoSuchSessionError if the session is not a run, SessionHeldError, UnreadableError.
    """
    await services.worker(services.store.load_run, session_id)
    session = await open_session(services, session_id, default_role=default_role)
    # Read it again under the lease: until now another process may have resumed it.
    state = await services.worker(services.store.load_run, session.session_id)
    return WorkflowRun(services, session, state)
