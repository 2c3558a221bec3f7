"""Open a session: take its lease, load what is stored, and put the wanted settings in force."""

from dataclasses import replace

from chatops.domain.errors import ConfigError
from chatops.domain.ids import SessionId
from chatops.runtime.services import Services
from chatops.runtime.session import Session
from chatops.runtime.settings import Rights, SessionSettings, stored_settings


async def open_session(
    services: Services,
    session_id: SessionId | None,
    *,
    role: str = "",
    default_role: str,
    model_pin: str = "",
) -> Session:
    """Open a session. A stored one keeps its persona, and its role and model unless others are given.

    With no user at the screen, an unfinished turn also keeps role and model. An unfinished turn is loaded but not
    resumed: call `resume` when a UI listens. The session of a workflow run is opened as it is, and its next turn is not
    started: see `runtime.workflow.open_run`.

    Raises NoSuchSessionError, SessionHeldError, UnreadableError, ConfigError.
    """
    if session_id is None:
        return Session(services, None, SessionSettings(role=role or default_role, model_pin=model_pin))
    info = await services.worker(services.store.session, session_id)
    stored = info.role if info.role in services.rights.roles() else default_role
    settings = await services.worker(stored_settings, services.store, info, role=stored)
    settings, notices = _drop_missing(settings, services.rights, chosen=bool(model_pin))
    session = Session(services, info, settings)
    for text in notices:
        session.notify_later(text)
    try:
        await session.load()
        if info.run is not None and not info.run.result:
            run = await services.worker(services.store.load_run, info.id)
            session.bind_to_run(run.spec.name, settings.at_step(run))
        # With no user at the screen, an unfinished turn refuses the prompt, so nothing may change before that check.
        wanted = replace(settings, role=role or stored, model_pin=model_pin or settings.model_pin)
        if wanted != settings and (services.attended or not session.unfinished):
            await session.change_settings(wanted)
    except BaseException:
        await session.aclose()
        raise
    return session


def _drop_missing(settings: SessionSettings, rights: Rights, *, chosen: bool) -> tuple[SessionSettings, list[str]]:
    """Return the settings without a pinned model or persona that no longer exists, and the notices about them.

    If the user has just `chosen` another model, there is no notice about the stored one. The session opens all the
    same, because pending calls wait in it for the user.
    """
    notices: list[str] = []
    for kind, pin, persona in (("model", settings.model_pin, ""), ("persona", "", settings.persona)):
        try:
            SessionSettings(settings.role, model_pin=pin, persona=persona).grant(rights)
        except ConfigError as error:
            settings = replace(settings, model_pin="") if pin else replace(settings, persona="")
            if not (pin and chosen):
                notices.append(f"{error} The role's own {kind} is used until it exists again; /{kind} chooses another.")
    return settings, notices
