"""Pending calls that the current rights deny: the roles that could run them, and a sentence for the user."""

from collections.abc import Sequence
from dataclasses import replace

from chatops.domain.errors import ConfigError
from chatops.domain.events import Denial, PendingCall
from chatops.domain.rights import Verdict
from chatops.domain.tools import CONTAINED_APPLY
from chatops.engine.view import pending_calls
from chatops.policy.grant import Grant
from chatops.policy.workflow import PYTHON_PROGRAM
from chatops.runtime.settings import Rights, SessionSettings, stored_settings
from chatops.store.base import PendingCallRow
from chatops.store.store import Store

_MOST_ROLES = 3


def with_roles(pending: Sequence[PendingCall], settings: SessionSettings, rights: Rights) -> tuple[PendingCall, ...]:
    """Add to each denied call the roles that could run it. A workflow step's role is fixed, so there are none."""
    return tuple(
        call
        if call.denial is None or settings.step is not None
        else replace(call, denial=replace(call.denial, could_run=_could_run(call, settings, rights)))
        for call in pending
    )


def judge_now(store: Store, queued: PendingCallRow, rights: Rights) -> PendingCall:
    """Judge a queued call as `chatops resume` would now. Raises NoSuchSessionError, UnreadableError.

    A process that has the session open keeps the stored grant up to date and runs the call under its own
    registry and flags, so then only the stored grant counts. So it does for the run of a Python program, which alone
    knows its tools and its role, and judges the call when it resumes.
    """
    info = store.session(queued.session_id)
    state = store.load_turn(queued.turn_id)
    settings = stored_settings(store, info, role=state.grant.role)
    elsewhere = store.lease(info.id) is not None
    if info.run is not None and not info.run.result:
        run = store.load_run(info.id)
        settings = settings.at_step(run)
        elsewhere = elsewhere or run.spec.source == PYTHON_PROGRAM
    if not elsewhere:
        now, _ = settings.grant_for(state.grant, rights)
        state = replace(state, grant=state.grant.intersection(now))
    found = [pending for pending in pending_calls(state) if pending.call.id == queued.pending.call.id]
    return with_roles(found, settings, rights)[0] if found else queued.pending


def denial_sentence(denial: Denial) -> str:
    """Return why the call cannot run and which roles could run it."""
    reason = f"It cannot run now, as {denial.role}. Denied by: {denial.by}."
    roles = denial.could_run[:_MOST_ROLES]
    if not roles:
        return reason
    named = " or ".join(filter(None, (", ".join(roles[:-1]), roles[-1])))
    return f"{reason} Role{'s' if len(roles) > 1 else ''} {named} could run it."


def _runs(pending: PendingCall, grant: Grant) -> bool:
    """Return True if a role with this grant could run the call. No grant offers the one that applies changes."""
    if pending.call.name != CONTAINED_APPLY:
        return grant.judge(pending.call.name, pending.facts).verdict is not Verdict.DENY
    return grant.role == pending.role


def _could_run(pending: PendingCall, settings: SessionSettings, rights: Rights) -> tuple[str, ...]:
    found = []
    in_force = pending.denial.role if pending.denial is not None else ""
    # A turn keeps the restrictions that were put on its role, so only switching to another role helps.
    for role in (role for role in rights.roles() if role != in_force):
        try:
            grant = replace(settings, role=role).grant(rights)
        except ConfigError:
            continue
        if _runs(pending, grant):
            found.append(role)
    # The role that proposed the call comes first: it fits the call best.
    return tuple(sorted(found, key=lambda role: role != pending.role))
