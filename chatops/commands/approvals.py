"""``chatops approvals``: the durable queue of gated calls, from any terminal.

A decision is posted for the turn. A process that owns the session takes it at once, otherwise ``chatops resume`` does.
The decision names the digest of the pending call. With ``--digest``, only what `show` has printed is approved, even if
the call has changed since.

An empty list is answered here, and loads little: shells and status lines ask for it often. The rest is in
`commands.deciding`.
"""

from argparse import Namespace

from chatops.commands.context import open_stored, show_list

NOTHING_PENDING = "No approvals pending."


def run(arguments: Namespace) -> int:
    """Run the chosen action. Exit code 0, or 1 if the call is not pending any more."""
    if arguments.action in ("approve", "deny", "show"):
        from chatops.commands import deciding

        return deciding.show(arguments) if arguments.action == "show" else deciding.decide(arguments)
    with open_stored(arguments) as opened:
        store = opened.store
        if store.pending_calls() or store.unfinished_turns() or store.runs(limit=1):
            from chatops.commands import deciding

            return deciding.list_pending(opened, arguments, empty=NOTHING_PENDING)
    return show_list(arguments, [], (), [], empty=NOTHING_PENDING)
