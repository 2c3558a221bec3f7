"""Texts of the approval dialog: the pending call as rows, heading and keys, and the questions that need a text first.

A call's rows hold everything that would run, never shortened. Every value passes through `reveal`, which makes control
and invisible characters visible. Lines are split at line feeds only, so that no other character can fake a line end.
The model's own words come last and are not part of the payload.
"""

import json
import time
from collections.abc import Iterable, Iterator

from textual.content import Content

from chatops.domain.canonical import json_or_text
from chatops.domain.decisions import ArgumentPattern, Decision, ExactArguments, Rejected
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.sandbox import NARROWEST
from chatops.domain.sanitize import show_path
from chatops.domain.tools import CallFacts
from chatops.domain.wording import plural
from chatops.engine.containment import CHANGING
from chatops.policy.patterns import show_rule, suggest_exact
from chatops.runtime.denials import denial_sentence
from chatops.runtime.descriptions import (
    NO_OUTPUT,
    UNKNOWN,
    describe_command,
    describe_extra,
    describe_lacks,
    describe_processes,
    describe_server,
    describe_start,
    risky_parts,
)
from chatops.tui.dialogs.approval_list import ApprovalList, ListedCall
from chatops.tui.dialogs.payload import Description, Row, RowTone, line
from chatops.tui.dialogs.question import Question

_LONGEST_EXTRA = 100
LIST_ROWS = 4
"""Maximum lines of the list of calls."""


def describe(pending: PendingCall, *, unfolded: bool) -> Description:
    """Return everything the user has to see."""
    payload = (*_head(pending), *_command(pending.facts), *_labels(pending), *_output(pending))
    payload = (*payload, *_change(pending.facts), *_arguments(pending.facts), *_described(pending.facts))
    return Description(rows=(*payload, *_said(pending, unfolded=unfolded)), payload=len(payload))


def title(pending: PendingCall) -> str:
    """Return one line for the list: the tool and the call's subject."""
    facts = pending.facts
    about = facts.command or " ".join(facts.paths) or " ".join(facts.hosts) or facts.arguments
    return f"{line(pending.call.name)}  {line(about)}"


def _exact(text: str, tone: RowTone = "code") -> Iterator[Row]:
    for part in text.split("\n"):
        yield Row(text=line(part), tone=tone, exact=True)


def _head(pending: PendingCall) -> Iterator[Row]:
    verb = "asked to run" if pending.outcome_unknown else "asks to run"
    model = f"({line(pending.model)})" if pending.model else "(workflow gate, no model)"
    yield Row(text=f"{line(pending.role)} {model} {verb} {line(pending.call.name)}", tone="heading")
    if pending.outcome_unknown:
        yield Row(text=UNKNOWN, tone="caution")
    match pending.reason:
        case AskReason.CHANGED:
            yield Row(text="What was approved is no longer what would run. Look again.", tone="caution")
        case AskReason.EDITED:
            yield Row(text="The arguments were edited: this is what would run now.", tone="caution")
        case AskReason.COPIED:
            yield Row(text="This store was copied or moved: the call may have run in the other copy.", tone="caution")
        case AskReason.POLICY | AskReason.OUTCOME_UNKNOWN:
            pass
    if pending.denial is not None:
        yield Row(text=line(denial_sentence(pending.denial)), tone="caution")
    for warning in filter(None, (pending.facts.caution, pending.facts.reveals)):
        yield Row(text=line(warning), tone="caution")
    for repair in pending.facts.repairs:
        yield Row(text=f"Read with repairs: {line(repair)}", tone="caution")


def _command(facts: CallFacts) -> Iterator[Row]:
    if not facts.command:
        return
    yield Row()
    begin, risky = 0, risky_parts(facts)
    for part in facts.command.split("\n"):
        spans = ((max(0, first - begin), min(len(part), last - begin)) for first, last in risky)
        shown = tuple((len(line(part[:first])), len(line(part[:last]))) for first, last in spans if first < last)
        yield Row(text=line(part), tone="code", exact=True, risky=shown)
        begin += len(part) + 1


def _labels(pending: PendingCall) -> Iterator[Row]:
    facts = pending.facts
    yield Row()
    if pending.interruption is not None:
        yield Row(label="started", text=describe_start(pending.interruption, now=time.time()))
        if ended := describe_processes(pending.interruption, facts):
            yield Row(label="processes", text=ended)
    for label, text in describe_server(facts.server):
        yield Row(label=label, text=line(text), exact=True)
    if facts.interpreter:
        yield Row(label="program", text=line(" ".join(facts.interpreter)), exact=True)
    if facts.cwd:
        yield Row(label="runs in", text=show_path(facts.cwd), exact=True)
    for index, path in enumerate(facts.paths):
        yield Row(label="" if index else "touches", text=show_path(path), exact=True)
    yield from _rows(describe_command(facts))
    for index, host in enumerate(facts.hosts):
        yield Row(label="" if index else "contacts", text=line(host), exact=True)
    yield Row(
        label="sandbox", text=line(facts.sandbox) or ("none" if facts.command else "not needed: no program is run")
    )
    yield Row(label="network", text="yes" if facts.network or facts.hosts else "no")
    if not pending.outcome_unknown:
        added = f"{describe_extra(facts.extra)}, for this call only" if facts.extra != NARROWEST else ""
        yield from _rows([*describe_lacks(facts), *([("+ adds", added)] if added else [])])
    if pending.why:
        edited = pending.reason is AskReason.EDITED
        yield Row(label="asks because", text="you edited the arguments" if edited else line(pending.why))
    if not pending.outcome_unknown and pending.denial is None:
        yield _grant(pending)


def _rows(facts: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """Yield labelled values; a label that repeats stands once."""
    before = ""
    for label, value in facts:
        yield Row(label="" if label == before else label, text=line(value), exact=label == "contacts")
        before = label


def _grant(pending: PendingCall) -> Row:
    """Return what `s` would remember, and for how long. Exact arguments are shown elsewhere already."""
    pattern, tool = exact_grant(pending), pending.call.name
    exactly = isinstance(pattern, ExactArguments)
    allowed = f"{tool} with exactly these arguments" if exactly else show_rule(tool, pattern)
    text = f"{line(allowed)}  (this session, as {line(pending.role)})"
    return Row(label="s allows", text=text, exact=not exactly)


def _described(facts: CallFacts) -> Iterator[Row]:
    """Yield what the server says of the tool. It is a part of what is approved."""
    if facts.server is None:
        return
    yield Row()
    said = facts.server.description.strip()
    yield Row(text="The server says of this tool" if said else "The server says nothing of this tool", tone="heading")
    if said:
        yield from _exact(said, "quiet")


def _output(pending: PendingCall) -> Iterator[Row]:
    """Yield what an interrupted attempt had printed."""
    if pending.interruption is None:
        return
    output = pending.interruption.output.removesuffix("\n")
    yield Row()
    yield Row(text="Its output until then" if output else f"Its output until then: {NO_OUTPUT}", tone="heading")
    if output:
        yield from _exact(output)


def _change(facts: CallFacts) -> Iterator[Row]:
    if not facts.diff:
        return
    yield Row()
    yield Row(text="Change", tone="heading")
    for part in facts.diff.removesuffix("\n").split("\n"):
        yield from _exact(part, _diff_tone(part))


def _diff_tone(part: str) -> RowTone:
    if part.startswith(("+++", "---", "@@")):
        return "hunk"
    if part.startswith("+"):
        return "add"
    return "remove" if part.startswith("-") else "code"


def _arguments(facts: CallFacts) -> Iterator[Row]:
    """Yield all arguments except a command or code that is shown above, character for character."""
    values = json_or_text(facts.arguments)
    if not isinstance(values, dict):
        yield from (Row(), Row(text="Arguments", tone="heading"), *_exact(facts.arguments))
        return
    above = ("command", "code") if facts.command else ()
    shown = {key: value for key, value in values.items() if not (key in above and value == facts.command)}
    if not shown:
        return
    yield Row()
    yield Row(text="Other arguments" if len(shown) < len(values) else "Arguments", tone="heading")
    for key, value in shown.items():
        if isinstance(value, str) and "\n" in value:
            yield from _exact(f"{key}:", "quiet")
            yield from _exact(value)
        elif isinstance(value, dict | list):
            yield from _exact(f"{key}: {json.dumps(value, ensure_ascii=False, indent=2)}")
        else:
            yield from _exact(f"{key}: {json.dumps(value, ensure_ascii=False)}")


def _said(pending: PendingCall, *, unfolded: bool) -> Iterator[Row]:
    if not pending.said.strip():
        return
    yield Row()
    count = len(pending.said)
    hint = "w hides" if unfolded else f"{count} characters, w shows"
    yield Row(text=f"The model says, in its own words ({hint})", tone="quiet")
    if unfolded:
        for part in pending.said.split("\n"):
            yield Row(text=line(part), tone="quiet")


# Around the call


def heading(approvals: ApprovalList, *, narrow: bool) -> str:
    """Return the dialog's heading: which call is shown, of how many."""
    items, index = approvals.items, approvals.index
    if len(items) == 1 and items[0].pending.outcome_unknown:
        return "Outcome unknown" if narrow else "A call was interrupted, outcome unknown"
    if len(items) == 1:
        tool = line(items[0].pending.call.name)
        return f"Approve {tool}?" if items[0].pending.denial is None else f"Not permitted now: {tool}"
    if narrow:
        return f"{index + 1}/{len(items)} {items[index].mark.value}"
    return f"{index + 1} of {len(items)} calls, {len(approvals.undecided)} undecided"


def calls(approvals: ApprovalList) -> Content:
    """Return up to `LIST_ROWS` lines around the shown call, each with its mark as a word."""
    items, index = approvals.items, approvals.index
    first = max(0, min(index - LIST_ROWS + 2, len(items) - LIST_ROWS))
    lines = []
    for at in range(first, min(len(items), first + LIST_ROWS)):
        pointer = ">" if at == index else " "
        text = f"{pointer} {at + 1}  {items[at].mark.value:<17} {title(items[at].pending)}"
        lines.append(Content.styled(text, "bold" if at == index else ""))
    return Content("\n").join(lines)


def can_contain(pending: PendingCall) -> bool:
    """Return True if the call could run in a copy of the workspace, in a contained turn."""
    return pending.call.name in CHANGING and not pending.facts.contained and bool(pending.model)


def keys(approvals: ApprovalList, item: ListedCall, *, left: int, narrow: bool) -> str:
    """Return the key legend for this call. `left` is how many of its lines have not been on screen yet."""
    if not item.undecided:
        return "Tab next call   Esc close"
    return _short(item, left) if narrow else _long(approvals, item, left)


def _long(approvals: ApprovalList, item: ListedCall, left: int) -> str:
    more = f"{plural(left, 'more line')} below"
    deny = "d deny   D deny with a reason   Esc later"
    if item.pending.outcome_unknown and item.pending.denial is not None:
        return "u tell the model it is unknown   m mark done\nD unknown, with a note   Esc later"
    if item.pending.denial is not None:
        rest = "   A approve the rest" if approvals.approvable() else ""
        return f"e edit   {deny}{rest}"
    if item.pending.outcome_unknown:
        again = "R run it again" if item.seen else f"R scrolls, {more}"
        return f"{again}   u tell the model it is unknown   m mark done\nD unknown, with a note   Esc later"
    if not item.seen:
        return f"a scrolls, {more}   e edit\n{deny}"
    rest = "   A approve the rest" if len(approvals.approvable()) > 1 else ""
    deny = f"c contain the turn   {deny}" if can_contain(item.pending) else deny
    if item.pending.facts.extra != NARROWEST:
        rest += f"\n+ approve once with {_extra(line(describe_extra(item.pending.facts.extra)))}"
    return f"a approve once   s for this session   r make a rule   e edit\n{deny}{rest}"


def _extra(described: str) -> str:
    """Return what `+` adds. If it is long, name the line of the payload that holds all of it."""
    return described if len(described) <= _LONGEST_EXTRA else "all that the line '+ adds' names"


def _short(item: ListedCall, left: int) -> str:
    if item.pending.outcome_unknown and item.pending.denial is not None:
        return "m done\nu unknown  Esc"
    if item.pending.denial is not None:
        return "e d D Esc"
    if item.pending.outcome_unknown:
        return f"{'R again' if item.seen else f'R +{left}'}  m done\nu unknown  Esc"
    with_extra = "+ " if item.pending.facts.extra != NARROWEST else ""
    contain = "c " if can_contain(item.pending) else ""
    return f"a {with_extra}s r e {contain}d D Esc" if item.seen else f"a +{left} lines  e d Esc"


# Answers that need a text first


def exact_grant(pending: PendingCall) -> ArgumentPattern:
    """Return the pattern that `s` remembers: this exact call and nothing wider."""
    return suggest_exact(pending.call.name, pending.facts)


def reason_question(pending: PendingCall) -> Question[Decision]:
    """Return the question for the reason of a denial, which the model is given."""
    tool = line(pending.call.name)
    return Question[Decision](
        f"Do not run {tool} again" if pending.outcome_unknown else f"Deny {tool}",
        explain="Tell the model why, or what to do instead. The turn continues.",
        text="",
        check=lambda text: Rejected(reason=text.strip()),
        done="tells the model" if pending.outcome_unknown else "denies",
        enter_answers=True,
    )
