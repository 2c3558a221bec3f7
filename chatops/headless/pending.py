"""Describe a pending call as text: all facts of the approval dialog, with invisible characters shown."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from chatops.domain.canonical import JsonValue
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.sanitize import reveal, show_path
from chatops.domain.tools import CONTAINED_APPLY, Interruption, is_undo
from chatops.domain.wording import plural
from chatops.headless.json_values import arguments_value, fields_json
from chatops.runtime.call_facts import Fact, Form, asked_by
from chatops.runtime.call_sheet import CallSheet, OfferKey, budget_question, call_sheet

MAX_BEGINNING = 100
"""Maximum number of characters of the arguments in a one-line mention."""

_LABEL_WIDTH = 13
_FOREIGN_MARK = "  | "
"""Stands before each line that somebody else wrote, so that none looks like one of ours."""
# What a key of the chat's dialog does beyond approving once.
_OFFER_VERBS: dict[OfferKey, str] = {
    "s": "allows for this session",
    "S": "allows for this session",
    "r": "offers",
    "+": "approves",
}


def describe(pending: PendingCall) -> str:
    """Return all facts that the user has to see before deciding, with invisible characters shown."""
    sheet = call_sheet(pending, now=time.time())
    lines = [_on_one_line(budget_question(pending) or f"Approve {pending.call.name}?"), *_fact_lines(sheet.facts)]
    if pending.outcome_unknown and pending.denial is None:
        lines += [
            "",
            "Answers:  approve --done marks it as done, approve --again runs it once more exactly as shown,",
            "          deny tells the model that the outcome is unknown.",
        ]
    elif covered := scope(pending, sheet):
        lines += ["", *(f"{'' if index else 'Scope:':<10}{text}" for index, text in enumerate(covered))]
    return "\n".join(lines)


def _fact_lines(facts: Iterable[Fact]) -> Iterator[str]:
    """Yield the facts: those of one line with their labels, the others as blocks between empty lines."""
    after_block = True
    for fact in facts:
        is_block = not (fact.form.one_line or fact.form is Form.FILE)
        if is_block or after_block:
            yield ""
        if is_block:
            lead = _FOREIGN_MARK if fact.form is Form.FOREIGN else "  "
            yield f"{fact.title}:"
            yield from (f"{lead}{line}" for line in reveal(fact.value, strict=fact.form is Form.PROGRAM).split("\n"))
        else:
            yield f"{fact.title + ':':<{_LABEL_WIDTH}} {_on_one_line(fact.value)}"
        after_block = is_block


def describe_json(pending: PendingCall) -> dict[str, JsonValue]:
    """Return the facts of `describe` for scripts, with unchanged text; those that a script may compute with by name."""
    facts, sheet = pending.facts, call_sheet(pending, now=time.time())
    return {
        **pending_json(pending),
        "digest": pending.digest,
        "reason": pending.reason.value,
        "role": pending.role,
        "caller": pending.caller,
        "model": pending.model,
        "facts": [{"label": fact.label, "value": fact.value, "weight": fact.weight.value} for fact in sheet.facts],
        "offers": [{"key": offer.key, "allows": offer.allows} for offer in sheet.offers],
        "interpreter": list(facts.interpreter),
        "cwd": facts.cwd,
        "paths": list(facts.paths),
        "hosts": list(facts.hosts),
        "credentials": list(facts.credentials),
        "command": facts.command,
        "diff": facts.diff,
        "delegation": asdict(facts.delegation) if facts.delegation is not None else None,
        "server": asdict(facts.server) if facts.server is not None else None,
        "network": facts.network or bool(facts.hosts),
        "denial": fields_json(pending.denial, "role", "by", "could_run") if pending.denial is not None else None,
    }


def pending_json(pending: PendingCall) -> dict[str, JsonValue]:
    """Return a pending call as the JSON format lists it."""
    return {
        "id": pending.call.id,
        "tool": pending.call.name,
        "arguments": arguments_value(pending.facts.arguments),
        "why": pending.why,
        **({"interrupted": _interruption_json(pending.interruption)} if pending.interruption is not None else {}),
    }


def _interruption_json(interruption: Interruption) -> JsonValue:
    """Return what is known about an attempt whose outcome is unknown."""
    return {
        "attempt": interruption.attempt,
        "started_at": interruption.started_at,
        "output": interruption.output,
        "processes": interruption.processes.value,
        "process_count": interruption.count,
    }


def mention(pending: PendingCall) -> str:
    """Return one line: id, tool, the beginning of the command, the changed files or the arguments."""
    by = f"  ({_on_one_line(asked_by(pending))})" if pending.caller else ""
    return f"{pending.call.id}  {_on_one_line(pending.call.name)}  {beginning(pending)}{by}"


def beginning(pending: PendingCall) -> str:
    """Return the beginning of the command or the arguments, marked if it is not all of it.

    For a contained turn: whether it applies or undoes, and the files.
    """
    facts = pending.facts
    text = budget_question(pending) or facts.command or facts.arguments
    if pending.call.name == CONTAINED_APPLY:
        verb = "undo" if is_undo(facts.arguments) else "apply"
        text = f"{verb}: {', '.join(map(facts.relative, facts.paths)) or 'nothing'}"
    shown = _on_one_line(text)
    return shown if len(shown) <= MAX_BEGINNING else f"{shown[:MAX_BEGINNING]}… (cut; show has all of it)"


def answers(pending: PendingCall) -> list[str]:
    """Return the commands that decide a call, each with an explanation where it is not obvious."""
    call = pending.call.id
    if pending.denial is not None:
        return [
            *([f"chatops approvals approve {call} --done     (it took effect)"] if pending.outcome_unknown else []),
            f"chatops approvals deny {call} --reason TEXT",
        ]
    if pending.call.name == CONTAINED_APPLY and not pending.outcome_unknown:
        denied = "the changes stay applied" if is_undo(pending.facts.arguments) else "discards all changes"
        return [
            f"chatops approvals approve {call} --digest HEX [--only PATH]…    (HEX: at the end of what show prints)",
            f"chatops approvals deny {call}    ({denied})",
        ]
    if pending.reason is AskReason.BUDGET:
        return [f"chatops approvals approve {call}", f"chatops approvals deny {call}    (ends the turn)"]
    if not pending.outcome_unknown:
        return [f"chatops approvals approve {call}", f"chatops approvals deny {call} --reason TEXT"]
    return [
        f"chatops approvals approve {call} --done     (it took effect)",
        f"chatops approvals approve {call} --again    (run it once more)",
        f"chatops approvals deny {call}               (tell the model that the outcome is unknown)",
    ]


def next_steps(pending: Sequence[PendingCall], *, then: str) -> str:
    """Return the pending calls of a session, the exact commands that decide them, and what continues it: `then`."""
    what = "decision" if any(waiting.outcome_unknown for waiting in pending) else "approval"
    lines = [f"Paused: {plural(len(pending), what)} pending."]
    for waiting in pending:
        call, warnings = waiting.call, call_sheet(waiting, now=time.time()).warnings
        lines += [
            f"  {mention(waiting)}",
            *(f"    path: {show_path(path)}" for path in waiting.facts.paths if call.name != CONTAINED_APPLY),
            *(f"    {fact.label}: {_on_one_line(fact.value)}" for fact in warnings),
            f"    why: {_on_one_line(waiting.why)}",
            f"    chatops approvals show {call.id}",
            *(f"    {line}" for line in answers(waiting)),
        ]
    lines.append(f"Then: {then}")
    return "\n".join(lines)


def scope(pending: PendingCall, sheet: CallSheet) -> list[str]:
    """Return what an approval covers here, and what the chat's own dialog could grant beyond it, as sentences."""
    if pending.denial is not None:
        return []
    tool, facts = pending.call.name, pending.facts
    if pending.reason is AskReason.BUDGET:
        return ["approving lets this turn go on. No rule answers this."]
    if tool == CONTAINED_APPLY:
        what = "takes these changes back in" if is_undo(facts.arguments) else "applies these changes to"
        return [f"approving {what} the workspace, once. No rule answers this."]
    return [
        "approving here runs this call once, as shown, and remembers nothing.",
        *(
            f"In the chat, {offer.key} {_OFFER_VERBS[offer.key]}: {_on_one_line(offer.allows)}"
            for offer in sheet.offers
            if offer.key in _OFFER_VERBS
        ),
    ]


def _on_one_line(text: str) -> str:
    return reveal(text, newlines=False)
