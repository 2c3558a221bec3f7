"""Decide on pending calls: ``chatops approvals approve`` and ``deny``."""

import json
import os
from argparse import Namespace
from collections.abc import Mapping

from chatops.commands.context import app, find_call, screen, with_app
from chatops.config.paths import find_paths
from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Principal, Rejected
from chatops.domain.errors import ChatopsError, ConfigError, SessionHeldError
from chatops.domain.events import AskReason, Notice, PendingCall, Published
from chatops.domain.sanitize import show_path
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.engine.inputs import DecideCall
from chatops.engine.view import pending_calls
from chatops.headless.pending import answers, describe, mention
from chatops.runtime.descriptions import (
    denial_sentence,
    describe_decision,
    find_decision,
    judge_now,
    stored_way_to_continue,
)
from chatops.runtime.session import Session
from chatops.store.base import PendingCallRow
from chatops.store.store import Store
from chatops.wiring.app import App
from chatops.wiring.stored import open_store

VIA = "approvals"
SHORTEST_DIGEST = 8


def decide(arguments: Namespace) -> int:
    """Approve or deny a call. Exit code 0, or 1 if the call is not pending any more."""
    if arguments.action == "deny":
        return _post(arguments, Rejected(reason=arguments.reason))
    if arguments.edit is None:
        only = tuple(arguments.only) if arguments.only else None
        return _post(arguments, MarkedDone() if arguments.done else Approved(only=only))
    edited = edited_arguments(arguments.edit)
    with open_store() as store:
        found = find_call(store, arguments.id)
        check_digest(found.pending, arguments.digest)
        check_doubt(found.pending, arguments)
        call, session = found.pending.call.id, found.session_id
    return with_app(arguments, lambda opened: _edit(opened, call, edited), via=VIA, session=session, broken_ok=True)


def edited_arguments(text: str) -> str:
    """Return the user's arguments as canonical JSON. Raises ConfigError unless they are one JSON object."""
    try:
        value: JsonValue = json.loads(text)
        if not isinstance(value, Mapping):
            raise ConfigError(
                "The edited arguments are not a JSON object.",
                advice='Write all of them, as in --edit \'{"path": "a"}\'.',
            )
        return canonical(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The edited arguments are not valid JSON: {error}.",
            advice='Write all of them, as in --edit \'{"path": "a"}\'.',
        ) from error


def check_digest(pending: PendingCall, digest: str | None) -> None:
    """Raise ChatopsError unless `digest` (its beginning, or None for any) is that of the pending call."""
    if digest is None:
        return
    if len(digest) < SHORTEST_DIGEST or not pending.digest.startswith(digest.lower()):
        raise ChatopsError(
            f"{pending.call.id} is not what was shown under the digest {digest!r}; nothing was approved.",
            advice=f"See what is pending now: chatops approvals show {pending.call.id}",
        )


def check_changes(pending: PendingCall, arguments: Namespace) -> None:
    """Raise ChatopsError unless the changes of a contained turn are approved by digest, and `--only` names some."""
    call, contained = pending.call.id, pending.call.name == CONTAINED_APPLY
    undo = contained and is_undo(pending.call.arguments)
    if contained and arguments.digest is None:
        verb = "takes back" if undo else "applies"
        raise ChatopsError(
            f"{call} {verb} the changes of a contained turn, and only what was shown can be approved.",
            advice=f"See them, and the digest at their end: chatops approvals show {call}",
        )
    if arguments.only and not contained:
        raise ChatopsError(f"{call} is not a contained turn, so --only means nothing; nothing was approved.")
    if arguments.only:
        from chatops.contained.turns import ContainedTurns

        paths = ContainedTurns(find_paths(os.environ).data).paths(pending.call.arguments)
        if unknown := [path for path in arguments.only if path not in paths]:
            raise ChatopsError(
                f"There is no change of {show_path(unknown[0])} that can be applied; nothing was approved.",
                advice=f"See what there is: chatops approvals show {call}",
            )


def check_doubt(pending: PendingCall, arguments: Namespace) -> None:
    """Raise ChatopsError unless a call with an unknown outcome is declared done or to be run again.

    Also raised if either is declared of a call that was not started.
    """
    option = "--done" if arguments.done else "--again" if arguments.again else ""
    call = pending.call.id
    if pending.outcome_unknown and not option:
        raise ChatopsError(
            f"{call} was interrupted and may have taken effect; nothing was approved.",
            advice="\n".join(["Check what happened, then report it:", *(f"  {answer}" for answer in answers(pending))]),
        )
    if option and not pending.outcome_unknown:
        raise ChatopsError(
            f"{call} has not been started yet, so {option} means nothing; nothing was approved.",
            advice=f"To let it run: chatops approvals approve {call}",
        )


def check_denial(pending: PendingCall, session: str) -> None:
    """Raise ChatopsError if the current rights would deny the call."""
    if pending.denial is None:
        return
    call = pending.call.id
    ways = [f"To deny it: chatops approvals deny {call} --reason TEXT"]
    if pending.denial.could_run:
        ways.insert(0, f"To switch the role: chatops -r {session} --role {pending.denial.could_run[0]}")
    raise ChatopsError(
        f"{pending.call.name} ({call}) was not approved. {denial_sentence(pending.denial)}", advice="\n".join(ways)
    )


def _post(arguments: Namespace, decision: Decision) -> int:
    with app(arguments, via=VIA, broken_ok=True) as opened:
        queued = find_call(opened.store, arguments.id)
        if not isinstance(decision, Rejected):
            check_digest(queued.pending, arguments.digest)
            check_doubt(queued.pending, arguments)
        if isinstance(decision, Approved):
            check_changes(queued.pending, arguments)
        if isinstance(decision, Approved) and queued.decided is None:
            check_denial(judge_now(opened.store, queued, opened.rights), queued.session_id)
        posted = post(opened.store, queued.pending, decision, opened.principal)
        if not posted:
            return _too_late(opened.store, queued)
        then = _then(opened.store, queued)
    view = screen()
    word = _word(decision, again=queued.pending.outcome_unknown)
    view.answer(f"{word}: {mention(queued.pending)}")
    view.say(then)
    return 0


def _word(decision: Decision, *, again: bool) -> str:
    match decision:
        case Rejected():
            return "Left unknown" if again else "Denied"
        case MarkedDone():
            return "Marked as done"
        case _:
            return "To be run again" if again else "Approved"


def post(store: Store, pending: PendingCall, decision: Decision, by: Principal) -> bool:
    """Post `decision` on exactly what `pending` shows. Returns False if another decision was first."""
    return store.post_decision(DecideCall(call_id=pending.call.id, digest=pending.digest, decision=decision, by=by))


async def _edit(opened: App, name: str, arguments: str) -> int:
    """Approve a call with other arguments, which are validated and judged again first.

    If another process has the session open, it does that and asks there. Otherwise it is done here: the changed call is
    shown and approved.
    """
    view = screen()
    queued = find_call(opened.store, name)
    if queued.decided is not None:
        return _too_late(opened.store, queued)
    try:
        session = await opened.open_session(queued.session_id, attended=False)
    except SessionHeldError:
        if not post(opened.store, queued.pending, Edited(arguments=arguments), opened.principal):
            return _too_late(opened.store, queued)
        view.answer(f"Edited: {queued.pending.call.id}")
        view.say("The session is open in another window, which checks the edit and asks again.")
        return 0
    try:
        shown = await _inspected(session, queued, arguments)
    finally:
        await session.aclose()
    if not post(opened.store, shown, Approved(), opened.principal):
        return _too_late(opened.store, queued)
    view.exactly(describe(shown))
    view.answer(f"\nApproved: {mention(shown)}")
    view.say(_then(opened.store, queued))
    return 0


async def _inspected(session: Session, queued: PendingCallRow, arguments: str) -> PendingCall:
    """Return the call as it is pending after the edit.

    Raises ChatopsError if the edited call cannot run; the call then stays pending.
    """
    call = queued.pending.call.id
    notices: list[str] = []

    def collect(published: Published) -> None:
        if isinstance(published.event, Notice):
            notices.append(published.event.text)

    unsubscribe = session.subscribe(collect)
    try:
        await session.resume()
        await session.settle()
        waiting = _waiting(session, call)
        if waiting is None or not await session.decide(
            call, digest=waiting.digest, decision=Edited(arguments=arguments)
        ):
            raise ChatopsError(f"{call} is no longer pending.", advice="chatops approvals list shows what is.")
        await session.settle()
    finally:
        unsubscribe()
    after = _waiting(session, call)
    if after is None or after.reason is not AskReason.EDITED:
        detail = f" {' '.join(notices)}" if notices else ""
        raise ChatopsError(
            f"With these arguments the call cannot run, so nothing was approved.{detail}",
            advice=f"Pending now: chatops approvals show {call}",
        )
    return after


def _waiting(session: Session, call: str) -> PendingCall | None:
    state = session.state
    return next((pending for pending in pending_calls(state) if pending.call.id == call), None) if state else None


def _too_late(store: Store, queued: PendingCallRow) -> int:
    view, call = screen(), queued.pending.call.id
    answer = find_decision(store, queued.session_id, call)
    already = f"was {describe_decision(answer)}" if answer is not None else "has been decided"
    view.say(f"{call} {already} already; the first decision counts.")
    view.say(f"To continue: {stored_way_to_continue(store, queued.session_id)}")
    return 1


def _then(store: Store, queued: PendingCallRow) -> str:
    way = stored_way_to_continue(store, queued.session_id)
    return f"If the session is open in a window, it continues there. Otherwise: {way}"
