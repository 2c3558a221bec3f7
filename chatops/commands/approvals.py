"""``chatops approvals``: the durable queue of gated calls, from any terminal.

A decision is posted for the turn. A window that has the session open takes it at once; else ``chatops resume`` does.
The decision names the digest of the pending call. With ``--digest``, only what `show` has printed is approved, even if
the call has changed since.
"""

import json
import logging
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace

from chatops.commands.context import Storage, app, find_call, open_store, screen, with_app
from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Principal, Rejected
from chatops.domain.errors import ChatopsError, ConfigError, NoSuchSessionError, SessionHeldError, UnreadableError
from chatops.domain.events import AskReason, Event, Notice, PendingCall
from chatops.engine.inputs import DecideCall
from chatops.engine.recovery import attempts_in_doubt
from chatops.engine.view import pending_calls
from chatops.headless.pending import answers, beginning, describe, describe_json, mention
from chatops.headless.screen import table, when
from chatops.runtime.denials import sentence, under_rights_now
from chatops.runtime.descriptions import answer_to, left_off, told
from chatops.runtime.session import ChatSession
from chatops.store.base import QueuedCall, Store
from chatops.wiring.app import App

log = logging.getLogger(__name__)

VIA = "approvals"
SHORTEST_DIGEST = 8
SHOWN_DIGEST = 16
"""Hex digits: with 64 bits, a second call with the same digest cannot be found while the first one is pending."""


def run(arguments: Namespace) -> int:
    """Run the chosen action. Exit code 0, or 1 if the call is not pending any more."""
    match arguments.action:
        case "approve" if arguments.edit is not None:
            edited = edited_arguments(arguments.edit)
            with open_store() as store:
                found = find_call(store, arguments.id)
                check_digest(found.pending, arguments.digest)
                check_doubt(found.pending, arguments)
                call, session = found.pending.call.id, found.session_id
            return with_app(
                arguments, lambda opened: _edit(opened, call, edited), via=VIA, session=session, broken_ok=True
            )
        case "approve":
            return _post(arguments, MarkedDone() if arguments.done else Approved())
        case "deny":
            return _post(arguments, Rejected(reason=arguments.reason))
        case "show":
            return _show(arguments)
        case _:
            return _list(arguments)


def edited_arguments(text: str) -> str:
    """Return the user's arguments as canonical JSON. Raises ConfigError unless they are one JSON object."""
    try:
        value: JsonValue = json.loads(text)
        if not isinstance(value, Mapping):
            raise ConfigError(
                "The edited arguments are no JSON object.", advice='Write all of them, as in --edit \'{"path": "a"}\'.'
            )
        return canonical(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The edited arguments are no JSON: {error}.", advice='Write all of them, as in --edit \'{"path": "a"}\'.'
        ) from error


def check_digest(pending: PendingCall, digest: str | None) -> None:
    """Raise ChatopsError unless `digest` (its beginning, or None for any) is that of the pending call."""
    if digest is None:
        return
    if len(digest) < SHORTEST_DIGEST or not pending.digest.startswith(digest.lower()):
        raise ChatopsError(
            f"{pending.call.id} is not what was shown under the digest {digest!r}; nothing was approved.",
            advice=f"Look at what waits now: chatops approvals show {pending.call.id}",
        )


def check_doubt(pending: PendingCall, arguments: Namespace) -> None:
    """Raise ChatopsError unless a call with an unknown outcome is declared done or to be run again.

    Also raised if either is declared of a call that was not started.
    """
    said = "--done" if arguments.done else "--again" if arguments.again else ""
    call = pending.call.id
    if pending.in_doubt and not said:
        raise ChatopsError(
            f"{call} was interrupted and may have taken effect; nothing was approved.",
            advice="\n".join(["Say which it is, once you have looked:", *(f"  {one}" for one in answers(pending))]),
        )
    if said and not pending.in_doubt:
        raise ChatopsError(
            f"{call} has not been started yet, so {said} means nothing; nothing was approved.",
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
        f"{pending.call.name} ({call}) was not approved. {sentence(pending.denial)}", advice="\n".join(ways)
    )


def _as_of_now(opened: App, queued: QueuedCall) -> QueuedCall:
    """Return the call with the verdict of the current rights; as stored if its turn cannot be read."""
    try:
        return replace(queued, pending=under_rights_now(opened.store, queued, opened.rights))
    except (NoSuchSessionError, UnreadableError) as error:
        log.info("%s is shown as stored: %s", queued.pending.call.id, error)
        return queued


def _list(arguments: Namespace) -> int:
    with app(arguments, via=VIA, broken_ok=True, storage=Storage.READ) as opened:
        queue = [_as_of_now(opened, one) for one in opened.store.queue()]
        interrupted = list(_interrupted(opened.store))
    view = screen()
    if arguments.output_format == "json":
        view.json([_queued_json(one) for one in queue])
    for session, state in interrupted:
        view.say(f"Session {session} was {state}. What is to become of it is asked by: chatops resume {session}")
    if arguments.output_format == "json":
        return 0
    if not queue:
        view.say("No call waits for approval.")
        return 0
    rows = [
        (
            one.pending.call.id,
            one.pending.role,
            when(one.requested_at),
            _standing(one),
            one.pending.call.name,
            beginning(one.pending),
        )
        for one in queue
    ]
    view.answer(table(("ID", "ROLE", "SINCE", "STATE", "TOOL", "ARGUMENTS"), rows))
    return 0


def _interrupted(store: Store) -> Iterator[tuple[str, str]]:
    """Yield id and state of sessions with a call interrupted by a crash that no user was asked about yet."""
    for info in store.sessions():
        if info.active_turn is None or store.held(info.id) is not None:
            continue
        try:
            if attempts_in_doubt(store.load_turn(info.active_turn)):
                yield info.id, left_off(store, info)
        except UnreadableError as error:
            log.info("session %s is left out: %s", info.id, error)


def _show(arguments: Namespace) -> int:
    with app(arguments, via=VIA, broken_ok=True, storage=Storage.READ) as opened:
        queued = _as_of_now(opened, find_call(opened.store, arguments.id))
    view = screen()
    if arguments.output_format == "json":
        view.json(_queued_json(queued))
        return 0
    view.exactly(describe(queued.pending))
    call = queued.pending.call.id
    if queued.decided is not None:
        view.say(f"Already decided: {_standing(queued)}. Then: chatops resume {queued.session_id}")
    elif queued.pending.denial is not None:
        view.say("Decide with: " + "\nor: ".join(answers(queued.pending)))
    else:
        shown = queued.pending.digest[:SHOWN_DIGEST]
        again = " --again" if queued.pending.in_doubt else ""
        if again:
            view.say(f"Decide with: chatops approvals approve {call} --done")
        view.say(f"{'or' if again else 'Decide with'}: chatops approvals approve {call}{again} --digest {shown}")
        view.say(f"or: chatops approvals deny {call} --reason TEXT")
    return 0


def _post(arguments: Namespace, decision: Decision) -> int:
    with app(arguments, via=VIA, broken_ok=True) as opened:
        queued = find_call(opened.store, arguments.id)
        if not isinstance(decision, Rejected):
            check_digest(queued.pending, arguments.digest)
            check_doubt(queued.pending, arguments)
        if isinstance(decision, Approved) and queued.decided is None:
            check_denial(_as_of_now(opened, queued).pending, queued.session_id)
        posted = post(opened.store, queued.pending, decision, opened.principal)
        if not posted:
            return _too_late(opened.store, queued)
    view = screen()
    word = _word(decision, again=queued.pending.in_doubt)
    view.answer(f"{word}: {mention(queued.pending)}")
    view.say(_then(queued))
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
        view.say("The session is open in another window: it checks the edit and asks there again.")
        return 0
    try:
        shown = await _inspected(session, queued, arguments)
    finally:
        await session.aclose()
    if not post(opened.store, shown, Approved(), opened.principal):
        return _too_late(opened.store, queued)
    view.exactly(describe(shown))
    view.answer(f"\nApproved: {mention(shown)}")
    view.say(_then(queued))
    return 0


async def _inspected(session: ChatSession, queued: QueuedCall, arguments: str) -> PendingCall:
    """Return the call as it is pending after the edit.

    Raises ChatopsError if the edited call cannot run; the call then stays pending.
    """
    call = queued.pending.call.id
    notices: list[str] = []
    unsubscribe = session.subscribe(lambda published: _collect(published.event, notices))
    try:
        await session.resume()
        await session.settle()
        waiting = _waiting(session, call)
        if waiting is None or not await session.decide(
            call, digest=waiting.digest, decision=Edited(arguments=arguments)
        ):
            raise ChatopsError(f"{call} does not wait any more.", advice="chatops approvals list shows what does.")
        await session.settle()
    finally:
        unsubscribe()
    after = _waiting(session, call)
    if after is None or after.reason is not AskReason.EDITED:
        detail = f" {' '.join(notices)}" if notices else ""
        raise ChatopsError(
            f"With these arguments the call cannot run, so nothing was approved.{detail}",
            advice=f"What waits now: chatops approvals show {call}",
        )
    return after


def _collect(event: Event, notices: list[str]) -> None:
    if isinstance(event, Notice):
        notices.append(event.text)


def _waiting(session: ChatSession, call: str) -> PendingCall | None:
    state = session.state
    return next((one for one in pending_calls(state) if one.call.id == call), None) if state else None


def _too_late(store: Store, queued: QueuedCall) -> int:
    view, call = screen(), queued.pending.call.id
    answer = answer_to(store, queued.session_id, call)
    already = f"was {told(answer)}" if answer is not None else "has been decided"
    view.say(f"{call} {already} already; the first decision counts.")
    view.say(f"Go on with: chatops resume {queued.session_id}")
    return 1


def _then(queued: QueuedCall) -> str:
    return f"A window that has the session open goes on by itself. Otherwise: chatops resume {queued.session_id}"


def _standing(queued: QueuedCall) -> str:
    if queued.decided is None:
        if queued.pending.denial is not None:
            return "cannot run now"
        return "outcome unknown" if queued.pending.in_doubt else "waits"
    return f"{queued.decided.decision.kind} by {queued.decided.by}"


def _queued_json(queued: QueuedCall) -> dict[str, JsonValue]:
    return {
        **describe_json(queued.pending),
        "session_id": queued.session_id,
        "turn_id": queued.turn_id,
        "requested_at": queued.requested_at,
        "decision": queued.decided.decision.kind if queued.decided else None,
        "decided_by": str(queued.decided.by) if queued.decided else None,
    }
