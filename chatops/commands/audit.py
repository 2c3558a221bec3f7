"""``chatops audit``: the decision log, with who decided what, on which bytes, from where."""

from argparse import Namespace

from chatops.commands.context import find_session, screen, show_list, stored
from chatops.domain.decisions import Answered, Approved, Edited, MarkedDone, Recorded, Rejected
from chatops.domain.sandbox import NARROWEST
from chatops.headless.json_values import dumps, plain
from chatops.headless.screen import when
from chatops.policy.patterns import show_rule
from chatops.policy.sandbox import describe_extra
from chatops.store.base import DecisionRow

EVERYTHING = 1_000_000_000
RECENT = 1_000


def run(arguments: Namespace) -> int:
    """Print the log: ``list`` the latest entries as a table or JSON, ``export`` all of it as JSON lines."""
    with stored(arguments) as opened:
        session = find_session(opened.store, arguments.session).id if arguments.session else None
        limit = EVERYTHING if arguments.action == "export" else RECENT
        # The latest entries may hold none that a filter wants, so the whole log is read.
        rows = [row for row in opened.store.decisions(session_id=session, limit=EVERYTHING) if _wanted(row, arguments)]
        rows = rows[-limit:]
    values = [plain(row) for row in rows]
    if arguments.action == "export":
        for value in values:
            screen().line(dumps(value))
        return 0
    cells = [
        (when(row.decided_at), row.call_id, row.tool, _place(row), row.digest[:12], _words(row.decision, row.tool))
        for row in rows
    ]
    header = ("AT", "CALL", "TOOL", "BY", "DIGEST", "DECISION")
    return show_list(arguments, values, header, cells, empty="No decisions yet.")


_KINDS = {"denied": "rejected"}
"""The stored kind of a decision whose word is another one."""


def _wanted(row: DecisionRow, arguments: Namespace) -> bool:
    return (
        (arguments.since is None or row.decided_at >= arguments.since)
        and (arguments.decision is None or row.decision.kind == _KINDS.get(arguments.decision, arguments.decision))
        and (arguments.tool is None or row.tool == arguments.tool)
    )


def _place(row: DecisionRow) -> str:
    return " ".join((str(row.by), *row.by.place))


def _words(decision: Recorded, tool: str) -> str:
    match decision:
        case Approved(remember=pattern, scope=scope, extra=extra):
            if pattern is None:
                return "approved" if extra == NARROWEST else f"approved with {describe_extra(extra)}"
            return f"approved, with a rule of scope {scope.value}: {show_rule(tool, pattern)}"
        case Edited(arguments=arguments):
            return f"edited: {arguments}"
        case Rejected(reason=reason):
            return f"denied: {reason}" if reason else "denied"
        case MarkedDone(note=note):
            return f"marked as done: {note}" if note else "marked as done"
        case Answered(action=action, fields=fields):
            sent = f", sent {', '.join(fields)}" if fields else ""
            return f"question of the server: {action.value}{sent}"
