"""List, show and decide pending calls: ``chatops approvals``, if there is a call."""

import json
from argparse import Namespace
from collections.abc import Mapping

from chatops.commands.application import open_app, with_app
from chatops.commands.context import Stored, find_call, open_stored, options, show_list
from chatops.config.paths import show_folder
from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError, ConfigError, SessionHeldError
from chatops.domain.events import AskReason, Notice, PendingCall, Published
from chatops.domain.ids import CallId
from chatops.domain.tools import ENGINE_CALLS
from chatops.engine.view import pending_calls
from chatops.headless.pending import answers, beginning, describe, describe_json, mention
from chatops.headless.screen import screen, when
from chatops.runtime.call_facts import asked_by
from chatops.runtime.descriptions import decision_word, stored_way_to_continue
from chatops.runtime.session import Session
from chatops.store.base import PendingCallRow
from chatops.wiring.app import App
from chatops.wiring.pending import PendingCalls, check_unknown_outcome, require_digest, state_in_words
from chatops.wiring.stored import open_store

VIA = "approvals"
SHOWN_DIGEST = 16
"""Hex digits: with 64 bits, a second call with the same digest cannot be found while the first one is pending."""


def list_pending(opened: Stored, arguments: Namespace, *, empty: str) -> int:
    """Print the queue with the steps to review, or `empty`, and interrupted calls that no user was asked about."""
    calls = _pending_calls(opened)
    queue = calls.all()
    folders = {queued.session_id: opened.store.session(queued.session_id).workspace for queued in queue}
    view = screen()
    for session, state in calls.interrupted():
        view.say(f"Session {session} was {state}. To decide: chatops resume {session}")
    reviews = [(info, info.run) for info in calls.reviews() if info.run is not None]
    rows: list[tuple[str, ...]] = [
        (
            queued.pending.call.id,
            asked_by(queued.pending),
            when(queued.requested_at),
            state_in_words(queued),
            show_folder(folders[queued.session_id]),
            queued.pending.call.name,
            beginning(queued.pending),
        )
        for queued in queue
    ]
    rows += [
        (
            info.id,
            info.role,
            when(info.updated_at),
            "to review",
            show_folder(info.workspace),
            f"step {run.step}",
            f"workflow {run.workflow}: chatops workflow show {info.id}",
        )
        for info, run in reviews
    ]
    values = [{**_queued_json(queued), "workspace": folders[queued.session_id]} for queued in queue]
    values += [
        {"session_id": info.id, "workflow": run.workflow, "review": run.step, "workspace": info.workspace}
        for info, run in reviews
    ]
    header = ("ID", "ROLE", "SINCE", "STATE", "FOLDER", "TOOL", "ARGUMENTS")
    return show_list(arguments, values, header, rows, empty=empty)


def _pending_calls(opened: Stored | App) -> PendingCalls:
    return PendingCalls(opened.store, rights=lambda: opened.rights, data=opened.paths.data)


def show(arguments: Namespace) -> int:
    """Print everything about a pending call, and how to decide it."""
    with open_stored(arguments) as opened:
        calls = _pending_calls(opened)
        queued = calls.with_changes(calls.judge_again(find_call(opened.store, arguments.id)))
        then = stored_way_to_continue(opened.store, queued.session_id) if queued.decided is not None else ""
    view = screen()
    if arguments.output_format == "json":
        view.json(_queued_json(queued))
        return 0
    view.exactly(describe(queued.pending))
    if queued.decided is not None:
        view.say(f"Already decided: {state_in_words(queued)}. Then: {then}")
    else:
        view.say("\n  ".join(["To decide:", *_ways_to_decide(queued.pending)]))
    return 0


def _ways_to_decide(pending: PendingCall) -> list[str]:
    """Return the commands that decide a call as it was just shown: those that approve it name its digest."""
    if pending.denial is not None:
        return answers(pending)
    approve = f"chatops approvals approve {pending.call.id}"
    run = f"--digest {pending.digest[:SHOWN_DIGEST]}"
    approvals = [f"{approve} --done", f"{approve} --again {run}"] if pending.outcome_unknown else [f"{approve} {run}"]
    return [*approvals, f"chatops approvals deny {pending.call.id} --reason TEXT"]


def _queued_json(queued: PendingCallRow) -> dict[str, JsonValue]:
    return {
        **describe_json(queued.pending),
        "session_id": queued.session_id,
        "turn_id": queued.turn_id,
        "requested_at": queued.requested_at,
        "decision": queued.decided.decision.kind if queued.decided else None,
        "decided_by": str(queued.decided.by) if queued.decided else None,
    }


def decide(arguments: Namespace) -> int:
    """Approve or deny a call. Exit code 0, or 1 if the call is not pending any more."""
    if arguments.action == "deny":
        return _decide_as_shown(arguments, Rejected(reason=arguments.reason))
    if arguments.edit is None:
        only = tuple(arguments.only) if arguments.only else None
        return _decide_as_shown(arguments, MarkedDone() if arguments.done else Approved(only=only))
    edited = _parse_edit(arguments.edit)
    with open_store(registry=options(arguments).registry) as store:
        queued = find_call(store, arguments.id)
        if queued.pending.call.name in ENGINE_CALLS:
            raise ChatopsError(f"{queued.pending.call.id} has no arguments to edit; nothing was approved.")
        require_digest(queued.pending, arguments.digest)
        check_unknown_outcome(queued.pending, done=arguments.done, again=arguments.again)
        call, session = queued.pending.call.id, queued.session_id
    return with_app(
        arguments, lambda opened: _decide_with_edit(opened, call, edited), via=VIA, session=session, broken_ok=True
    )


def _parse_edit(text: str) -> str:
    """Return the user's arguments as canonical JSON. Raises ConfigError unless they are one JSON object."""
    advice = 'Write all of them, as in --edit \'{"path": "a"}\'.'
    try:
        value: JsonValue = json.loads(text)
        if isinstance(value, Mapping):
            return canonical(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The edited arguments are not valid JSON: {error}.", advice=advice) from error
    raise ConfigError("The edited arguments are not a JSON object.", advice=advice)


def _decide_as_shown(arguments: Namespace, decision: Decision) -> int:
    """Decide on the call as it is pending now, and print what continues its session."""
    with open_app(arguments, via=VIA, broken_ok=True) as opened:
        queued = find_call(opened.store, arguments.id)
        # `deny` has neither --digest nor --again.
        digest, again = getattr(arguments, "digest", None), getattr(arguments, "again", False)
        calls = _pending_calls(opened)
        if not calls.decide(queued, decision, by=opened.principal, digest=digest, again=again):
            return _say_decided_before(calls, queued)
        then = calls.continue_session(queued)
    view = screen()
    word = decision_word(decision, outcome_unknown=queued.pending.outcome_unknown).capitalize()
    view.answer(f"{word}: {mention(queued.pending)}")
    view.say(then)
    return 0


async def _decide_with_edit(opened: App, call: CallId, arguments: str) -> int:
    """Approve a call with other arguments, which are validated and judged again first.

    If another process has the session open, that process checks them and asks again. Otherwise this one checks them,
    shows the changed call and approves it.
    """
    view = screen()
    queued = find_call(opened.store, call)
    calls = _pending_calls(opened)
    if queued.decided is not None:
        return _say_decided_before(calls, queued)
    opened.rights.check_surface(opened.principal.via)
    try:
        session = await opened.open_session(queued.session_id, attended=False)
    except SessionHeldError:
        if not calls.post(queued.pending, Edited(arguments=arguments), by=opened.principal):
            return _say_decided_before(calls, queued)
        view.answer(f"Edited: {call}")
        view.say("The session is open in another window, which checks the edit and asks again.")
        return 0
    try:
        edited = await _inspect_edit(session, queued, arguments)
    finally:
        await session.aclose()
    if not calls.post(edited, Approved(), by=opened.principal):
        return _say_decided_before(calls, queued)
    view.exactly(describe(edited))
    view.answer(f"\nApproved: {mention(edited)}")
    view.say(calls.continue_session(queued))
    return 0


async def _inspect_edit(session: Session, queued: PendingCallRow, arguments: str) -> PendingCall:
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
        before = _find_pending(session, call)
        edited = Edited(arguments=arguments)
        if before is None or not await session.decide(call, digest=before.digest, decision=edited):
            raise ChatopsError(f"{call} is no longer pending.", advice="chatops approvals list shows what is.")
        await session.settle()
    finally:
        unsubscribe()
    after = _find_pending(session, call)
    if after is None or after.reason is not AskReason.EDITED:
        detail = f" {' '.join(notices)}" if notices else ""
        raise ChatopsError(
            f"With these arguments the call cannot run, so nothing was approved.{detail}",
            advice=f"Pending now: chatops approvals show {call}",
        )
    return after


def _find_pending(session: Session, call: str) -> PendingCall | None:
    state = session.state
    return next((pending for pending in pending_calls(state) if pending.call.id == call), None) if state else None


def _say_decided_before(calls: PendingCalls, queued: PendingCallRow) -> int:
    """Print the decision that came first, and return exit code 1."""
    view = screen()
    call = queued.pending.call.id
    first = calls.decided(queued.session_id, call) or f"{call} has been decided already."
    view.say(f"{first} The first decision counts.")
    view.say(f"To continue: {calls.way_to_continue(queued)}")
    return 1
