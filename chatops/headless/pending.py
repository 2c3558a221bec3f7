"""Describe a pending call as text: all facts of the approval dialog, with invisible characters shown."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from chatops.domain.canonical import JsonValue
from chatops.domain.events import AskReason, Denial, PendingCall
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.sanitize import reveal, sanitize, show_path
from chatops.domain.tools import CONTAINED_APPLY, CallFacts, Interruption, is_undo
from chatops.domain.wording import plural
from chatops.headless.json_values import arguments_value
from chatops.policy.patterns import show_rule, suggest_exact, suggest_rules
from chatops.runtime.denials import denial_sentence
from chatops.runtime.descriptions import (
    NO_OUTPUT,
    UNKNOWN,
    Fact,
    describe_command,
    describe_extra,
    describe_lacks,
    describe_processes,
    describe_server,
    describe_start,
)

SHOWN_IN_LISTS = 100
"""Maximum number of characters of the arguments in a one-line mention."""

REASONS = {
    AskReason.POLICY: "",
    AskReason.CHANGED: "The approved call would run differently now, so it asks again.",
    AskReason.EDITED: "The arguments were edited; this is what would run now.",
    AskReason.OUTCOME_UNKNOWN: "",
    AskReason.COPIED: "It may have run in another copy of this store, so it asks again.",
}


def describe(pending: PendingCall) -> str:
    """Return all facts that the user has to see before deciding, with invisible characters shown."""
    facts, contained = pending.facts, pending.call.name == CONTAINED_APPLY
    lines = [
        f"Call:     {pending.call.id}",
        f"Asked by: role {_one_line(pending.role)}, model {_one_line(pending.model)}",
        f"Tool:     {_one_line(pending.call.name)}",
        f"Why:      {_one_line(pending.why)}",
        *_some("Denied:   ", [denial_sentence(pending.denial) if pending.denial is not None else ""]),
        *_some("Note:     ", [UNKNOWN if pending.outcome_unknown else "", REASONS[pending.reason]]),
        *_known(pending),
        *_some("Caution:  ", [facts.caution]),
        *_some("Read with repairs: ", facts.repairs),
        *_facts(describe_server(facts.server)),
        *_some("Program:  ", [" ".join(facts.interpreter)]),
        *_some("Runs in:  ", [show_path(facts.cwd)] if facts.cwd else []),
        *_some("Path:     ", () if contained else map(show_path, facts.paths)),
        *_some("Host:     ", facts.hosts),
        *_facts(describe_command(facts)),
        *_some("Sandbox:  ", [facts.sandbox]),
        f"Network:  {'yes' if facts.network or facts.hosts else 'no'}",
        *_facts(describe_lacks(facts)),
        *([] if contained else [f"Digest:   {pending.digest}"]),
        *_scope(pending),
        "",
        "Arguments:",
        _block(reveal(_pretty(facts.arguments))),
    ]
    if pending.interruption is not None and pending.interruption.output:
        lines += ["", "Output before the interruption:", _block(reveal(pending.interruption.output.removesuffix("\n")))]
    if facts.command:
        what = "Code" if facts.interpreter else "Command"
        lines += ["", f"{what}, exactly as it would run:", _block(reveal(facts.command))]
    if facts.server is not None:
        lines += ["", "The server says of this tool:", _block(reveal(facts.server.description))]
    if facts.diff:
        title = "Change:"
        if contained:
            title = "Undoing changes:" if is_undo(facts.arguments) else "Changes of the contained turn:"
        lines += ["", title, _block(reveal(facts.diff))]
    if pending.said:
        lines += ["", "The model said (its own words):", _block(sanitize(pending.said))]
    if contained:
        lines += ["", f"Digest:   {pending.digest}"]
    return "\n".join(lines)


def _facts(facts: Iterable[Fact]) -> Iterator[str]:
    return (f"{one.label.capitalize() + ':':<9} {_one_line(one.value)}" for one in facts)


def describe_json(pending: PendingCall) -> dict[str, JsonValue]:
    """Return the facts of `describe` for scripts, with unchanged text."""
    facts = pending.facts
    return {
        **pending_json(pending),
        "digest": pending.digest,
        "reason": pending.reason.value,
        "role": pending.role,
        "model": pending.model,
        "caution": facts.caution,
        "repairs": list(facts.repairs),
        "interpreter": list(facts.interpreter),
        "cwd": facts.cwd,
        "paths": list(facts.paths),
        "hosts": list(facts.hosts),
        "effects": [{"label": one.label, "value": one.value} for one in describe_command(facts)],
        "command": facts.command,
        "diff": facts.diff,
        "server": asdict(facts.server) if facts.server is not None else None,
        "sandbox": facts.sandbox,
        "network": facts.network or bool(facts.hosts),
        "lacks": [one.value for one in describe_lacks(facts)],
        "said": pending.said,
        "denial": _denial_json(pending.denial) if pending.denial is not None else None,
    }


def pending_json(pending: PendingCall) -> dict[str, JsonValue]:
    """Return a pending call as the JSON format lists it."""
    return {
        "id": pending.call.id,
        "tool": pending.call.name,
        "arguments": arguments_value(pending.facts.arguments),
        "why": pending.why,
        **({"interrupted": _interrupted_json(pending.interruption)} if pending.interruption is not None else {}),
    }


def _interrupted_json(known: Interruption) -> JsonValue:
    """Return what is known about an attempt whose outcome is unknown."""
    return {
        "attempt": known.attempt,
        "started_at": known.started_at,
        "output": known.output,
        "processes": known.processes.value,
        "process_count": known.count,
    }


def _denial_json(denial: Denial) -> dict[str, JsonValue]:
    return {"role": denial.role, "by": denial.by, "could_run": list(denial.could_run)}


def mention(pending: PendingCall) -> str:
    """Return one line: id, tool, the beginning of the command, the changed files or the arguments."""
    return f"{pending.call.id}  {_one_line(pending.call.name)}  {beginning(pending)}"


def beginning(pending: PendingCall) -> str:
    """Return the beginning of the command or the arguments, marked if it is not all of it.

    For a contained turn: whether it applies or undoes, and the files.
    """
    facts = pending.facts
    text = facts.command or facts.arguments
    if pending.call.name == CONTAINED_APPLY:
        verb = "undo" if is_undo(facts.arguments) else "apply"
        text = f"{verb}: {', '.join(_relative_paths(facts)) or 'nothing'}"
    shown = _one_line(text)
    return shown if len(shown) <= SHOWN_IN_LISTS else f"{shown[:SHOWN_IN_LISTS]}… (cut; show has all of it)"


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
    if not pending.outcome_unknown:
        return [f"chatops approvals approve {call}    (or: deny {call} --reason TEXT)"]
    return [
        f"chatops approvals approve {call} --done     (it took effect)",
        f"chatops approvals approve {call} --again    (run it once more)",
        f"chatops approvals deny {call}               (tell the model that the outcome is unknown)",
    ]


def next_steps(session_id: str, pending: Sequence[PendingCall]) -> str:
    """Return the pending calls of a session and the exact commands to continue."""
    what = "decision" if any(one.outcome_unknown for one in pending) else "approval"
    lines = [f"Paused: {plural(len(pending), what)} pending."]
    for one in pending:
        lines += [
            f"  {mention(one)}",
            *(f"    path: {show_path(path)}" for path in one.facts.paths if one.call.name != CONTAINED_APPLY),
            *(f"    {line}" for line in _doubt(one)),
            f"    why: {_one_line(one.why)}",
            *([f"    denied: {_one_line(denial_sentence(one.denial))}"] if one.denial is not None else []),
            f"    chatops approvals show {one.call.id}",
            *(f"    {line}" for line in answers(one)),
        ]
    lines.append(f"Then: chatops resume {session_id}")
    return "\n".join(lines)


def _doubt(pending: PendingCall) -> list[str]:
    if not pending.outcome_unknown:
        return []
    known = pending.interruption
    started = f", started {describe_start(known, now=time.time())}" if known is not None else ""
    processes = describe_processes(known, pending.facts) if known is not None else ""
    ended = f"; processes {processes}" if processes else ""
    return [f"interrupted, outcome unknown{started}{ended}"]


def _known(pending: PendingCall) -> list[str]:
    """Return what is known about an attempt whose outcome is unknown."""
    known = pending.interruption
    if known is None:
        return []
    return [
        f"Started:  {describe_start(known, now=time.time())}",
        *_some("Processes: ", [describe_processes(known, pending.facts)]),
        *([] if known.output else [f"Output:   {NO_OUTPUT}"]),
    ]


def _scope(pending: PendingCall) -> list[str]:
    """Return what an approval covers here, and what the chat's own dialog could grant beyond it."""
    if pending.denial is not None:
        return []
    if pending.outcome_unknown:
        return [
            "Answers:  approve --done marks it as done, approve --again runs it once more exactly as shown,",
            "          deny tells the model that the outcome is unknown.",
        ]
    tool, facts = pending.call.name, pending.facts
    if tool == CONTAINED_APPLY and is_undo(facts.arguments):
        return ["Scope:    approving takes these changes back in the workspace, once. No rule answers this."]
    if tool == CONTAINED_APPLY:
        return ["Scope:    approving applies these changes to the workspace, once. No rule answers this."]
    session = show_rule(tool, suggest_exact(tool, facts))
    rule = show_rule(tool, suggest_rules(tool, facts)[-1])
    return [
        "Scope:    approving here runs this one call once, as shown, and remembers nothing.",
        f"          In the chat, s would allow for this session, in this role: {_one_line(session)}",
        f"          In the chat, r offers rules up to: {_one_line(rule)}",
        *_extra(facts.extra),
    ]


def _extra(extra: SandboxSpec) -> list[str]:
    if extra == NARROWEST:
        return []
    return [f"          In the chat, + would approve it once with: {_one_line(describe_extra(extra))}"]


def _relative_paths(facts: CallFacts) -> list[str]:
    return [path.removeprefix(f"{facts.workspace}/") for path in facts.paths]


def _one_line(text: str) -> str:
    return reveal(text, newlines=False)


def _some(label: str, values: Iterable[str]) -> list[str]:
    return [f"{label}{_one_line(value)}" for value in values if value]


def _pretty(arguments: str) -> str:
    """Return an object with short values as indented JSON, with its escapes; other text unchanged."""
    value = arguments_value(arguments)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _block(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
