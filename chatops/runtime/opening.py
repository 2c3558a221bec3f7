"""Opening conversations: a new one, or a stored one with its lease, messages and unfinished turn."""

from chatops.domain.ids import SessionId
from chatops.engine.workflow.machine import start_run
from chatops.policy.workflow import WorkflowSpec
from chatops.runtime.services import Services
from chatops.runtime.session import ChatSession
from chatops.runtime.standing import Standing, at_step
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
    """A conversation ready for use. A stored one keeps its role, model and persona unless others are given.

    An unfinished turn is loaded and not resumed: call `resume` when a face listens. Raises NoSuchSession,
    SessionHeld, Unreadable, ConfigError. A run of a workflow is opened as it stands, and its next turn does not
    begin: see `open_run`.
    """
    if session_id is None:
        return ChatSession(services, None, Standing(role=role or default_role, model_pin=model_pin))
    info = await services.offload(services.store.session, session_id)
    stored = info.role if info.role in services.rights.roles() else default_role
    taken = await services.offload(services.store.setting, f"revoked:{info.id}")
    standing = Standing(
        role=stored,
        model_pin=model_pin or info.model_pin,
        persona=info.persona,
        revoked=tuple(name for name in (taken or "").split("\n") if name),
    )
    session = ChatSession(services, info, standing)
    try:
        await session.load()
        if info.run is not None and not info.run.result:
            run = await services.offload(services.store.load_run, info.id)
            session.lead(run.spec.name, at_step(standing, run))
        if role and role != stored:
            await session.switch_role(role)
    except BaseException:
        await session.aclose()
        raise
    return session


async def new_run(services: Services, workflow: WorkflowSpec, *, query: str, role: str, model: str = "") -> WorkflowRun:
    """A run of `workflow` in a session of its own: call `go_on` when a face listens. Raises ConfigError, StoreError."""
    store, offload = services.store, services.offload
    standing = Standing(role=role, model_pin=model)
    standing.grant(services.rights)
    title = " ".join(f"{workflow.name}: {query}".split())[:TITLE_LENGTH].rstrip()
    info = await offload(store.create_session, workspace=str(services.workspace), role=role, persona="", title=title)
    await offload(store.update_session, info.id, model_pin=model)
    session = ChatSession(services, info, standing)
    await session.load()
    first = start_run(session_id=info.id, spec=workflow, query=query, role=role, model=model)
    return WorkflowRun(services, session, first.state, first=first)


async def open_run(services: Services, session_id: SessionId, *, default_role: str) -> WorkflowRun:
    """A stored run: call `go_on` when a face listens. Raises NoSuchSession for a session that is none, SessionHeld,
    Unreadable."""
    await services.offload(services.store.load_run, session_id)
    session = await open_session(services, session_id, default_role=default_role)
    # Only now is nobody else going on with it.
    state = await services.offload(services.store.load_run, session.session_id)
    return WorkflowRun(services, session, state)
