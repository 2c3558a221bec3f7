"""``chatops approvals``: the durable queue of gated calls, from any terminal.

A decision is posted for the turn. A process that owns the session takes it at once, otherwise ``chatops resume`` does.
The decision names the digest of the pending call. With ``--digest``, only what `show` has printed is approved, even if
the call has changed since.

The list is here. It loads little as long as no call is pending: shells and status lines ask for it often. Deciding is
in `commands.deciding`.
"""

from argparse import Namespace
from typing import TYPE_CHECKING

from chatops.commands.context import find_call, screen, show_list, stored
from chatops.headless.pending import answers, beginning, describe, describe_json
from chatops.headless.screen import when
from chatops.runtime.call_sheet import asked_by
from chatops.runtime.descriptions import stored_way_to_continue
from chatops.wiring.pending import PendingCalls, short_folder, standing

if TYPE_CHECKING:
    from chatops.domain.canonical import JsonValue
    from chatops.store.base import PendingCallRow

SHOWN_DIGEST = 16
"""Hex digits: with 64 bits, a second call with the same digest cannot be found while the first one is pending."""


def run(arguments: Namespace) -> int:
    """Run the chosen action. Exit code 0, or 1 if the call is not pending any more."""
    match arguments.action:
        case "approve" | "deny":
            from chatops.commands.deciding import decide

            return decide(arguments)
        case "show":
            return _show(arguments)
        case _:
            return _list(arguments)


def _list(arguments: Namespace) -> int:
    with stored(arguments) as opened:
        calls = PendingCalls(opened.store, rights=lambda: opened.rights, data=opened.paths.data)
        queue = calls.all()
        folders = {queued.session_id: opened.store.session(queued.session_id).workspace for queued in queue}
        interrupted = list(calls.interrupted())
    view = screen()
    for session, state in interrupted:
        view.say(f"Session {session} was {state}. To decide: chatops resume {session}")
    if not queue:
        return show_list(arguments, [], (), [], empty="No approvals pending.")
    rows = [
        (
            queued.pending.call.id,
            asked_by(queued.pending),
            when(queued.requested_at),
            standing(queued),
            short_folder(folders[queued.session_id]),
            queued.pending.call.name,
            beginning(queued.pending),
        )
        for queued in queue
    ]
    values = [{**_queued_json(queued), "workspace": folders[queued.session_id]} for queued in queue]
    return show_list(arguments, values, ("ID", "ROLE", "SINCE", "STATE", "FOLDER", "TOOL", "ARGUMENTS"), rows)


def _show(arguments: Namespace) -> int:
    with stored(arguments) as opened:
        calls = PendingCalls(opened.store, rights=lambda: opened.rights, data=opened.paths.data)
        queued = calls.with_changes(calls.as_of_now(find_call(opened.store, arguments.id)))
        then = stored_way_to_continue(opened.store, queued.session_id) if queued.decided is not None else ""
    view = screen()
    if arguments.output_format == "json":
        view.json(_queued_json(queued))
        return 0
    view.exactly(describe(queued.pending))
    call = queued.pending.call.id
    if queued.decided is not None:
        view.say(f"Already decided: {standing(queued)}. Then: {then}")
    elif queued.pending.denial is not None:
        view.say("Decide with: " + "\nor: ".join(answers(queued.pending)))
    else:
        shown = queued.pending.digest[:SHOWN_DIGEST]
        again = " --again" if queued.pending.outcome_unknown else ""
        if again:
            view.say(f"Decide with: chatops approvals approve {call} --done")
        view.say(f"{'or' if again else 'Decide with'}: chatops approvals approve {call}{again} --digest {shown}")
        view.say(f"or: chatops approvals deny {call} --reason TEXT")
    return 0


def _queued_json(queued: "PendingCallRow") -> "dict[str, JsonValue]":
    return {
        **describe_json(queued.pending),
        "session_id": queued.session_id,
        "turn_id": queued.turn_id,
        "requested_at": queued.requested_at,
        "decision": queued.decided.decision.kind if queued.decided else None,
        "decided_by": str(queued.decided.by) if queued.decided else None,
    }
