"""Texts of the approval dialog: the pending call as rows, and the question for a reason.

A call's rows hold everything that would run, never shortened. Every value passes through `reveal`, which makes control
and invisible characters visible. Lines are split at line feeds only, so that no other character can fake a line end.
The model's own words come last and are not part of the payload.
"""

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from types import MappingProxyType

from rich.style import Style

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.decisions import ArgumentPattern, Decision, HostPattern, PathPattern, Rejected
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.sandbox import NARROWEST
from chatops.domain.sanitize import show_path
from chatops.domain.tools import BUILT_IN_TOOLS, CallFacts, tool_name
from chatops.domain.wording import plural
from chatops.policy.patterns import rule_text, suggest_exact
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
    risky_parts,
)
from chatops.tui.dialogs.diff_rows import DiffRows
from chatops.tui.dialogs.payload import FOREIGN, Description, Row, RowTone, Span, line
from chatops.tui.dialogs.question import Question
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import coloured, warm_up
from chatops.tui.transcript.card import verb


def describe(
    pending: PendingCall, *, theme: BlockTheme, details: bool = False, side_by_side: bool = False
) -> Description:
    """Return everything the user has to see, the command or the diff first. The details are not part of the payload."""
    facts = pending.facts
    change = change_of(pending, theme) if facts.diff else None
    payload = [*_head(pending), *_command(facts, theme)]
    if change is not None:
        payload += [*_file(facts, change), *change.rows(side_by_side=side_by_side)]
    payload += [*_arguments(pending), Row(), *_labels(pending), *_described(facts), *_output(pending)]
    while payload and payload[0] == Row():
        payload.pop(0)
    return Description(rows=(*payload, *_details(pending, shown=details)), payload=len(payload))


def change_of(pending: PendingCall, theme: BlockTheme) -> DiffRows:
    """Return the diff of a call."""
    return DiffRows(pending.facts.diff, name=next(iter(pending.facts.paths), ""), theme=theme)


def title(pending: PendingCall) -> str:
    """Return one line for the list: the tool and the call's subject."""
    facts = pending.facts
    paths = " ".join(show_path(_inside(path, facts.workspace)) for path in facts.paths)
    about = line(facts.command) or paths or line(" ".join(facts.hosts) or facts.arguments)
    return f"{verb(pending.call.name)}  {about}"


def _exact(text: str, tone: RowTone = "code") -> Iterator[Row]:
    for part in text.split("\n"):
        yield Row(text=line(part), tone=tone, exact=True)


def _head(pending: PendingCall) -> Iterator[Row]:
    """Yield what to know before reading what would run."""
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


def _command(facts: CallFacts, theme: BlockTheme) -> Iterator[Row]:
    """Yield the command in syntax colours, its risky parts marked. A line with one begins with a sign."""
    if not facts.command:
        return
    parts = facts.command.split("\n")
    shown = [line(part) for part in parts]
    colours = _coloured("\n".join(shown), language=_language(facts), theme=theme)
    begin, risky = 0, deque(risky_parts(facts))
    under = Style(bgcolor=theme.code.bgcolor)
    yield Row()
    for part, text, styled in zip(parts, shown, colours, strict=True):
        end, marks = begin + len(part), list[Span]()
        while risky and risky[0][0] < end:
            first, last = risky[0]
            marks.append(Span(_place(part, first - begin), _place(part, last - begin)))
            if last > end:
                break  # It goes on in the next line.
            risky.popleft()
        spans = [*styled, *marks] if len(marks) <= _MOST_MARKS else [Span(0, len(text))]
        lead, strong = (f"{theme.symbols.risky} ", _STRONG) if marks else ("  ", None)
        yield Row(
            text=text, tone="code", exact=True, spans=partial(tuple, spans), lead=lead, lead_style=strong, under=under
        )
        begin = end + 1


def _place(part: str, at: int) -> int:
    """Return where the character of a command's line at index `at` stands once the line is revealed."""
    return len(line(part[: max(0, at)]))


_MOST_MARKS = 100
"""Marks on one line above which all of it is marked: placing each takes time in the length of the line."""
_STRONG = Style(bold=True)


def _language(facts: CallFacts) -> str:
    if not facts.interpreter:
        return "bash"
    return "python" if PurePath(facts.interpreter[0]).name.startswith("python") else ""


def _coloured(text: str, *, language: str, theme: BlockTheme) -> list[list[Span]]:
    """Return the syntax colours of each line."""
    warm_up()
    lines = coloured(text, language=language, theme=theme).split("\n", allow_blank=True)
    return [
        [Span(one.start, one.end, one.style) for one in each.spans if isinstance(one.style, Style)] for each in lines
    ]


def _file(facts: CallFacts, change: DiffRows) -> Iterator[Row]:
    """Yield which file changes, and how many lines of it."""
    yield Row()
    path = next(iter(facts.paths), "")
    name = f"{show_path(_inside(path, facts.workspace))}  " if path else ""
    yield Row(text=f"{name}{'new file  ' if facts.creates else ''}{change.counts}", tone="heading")


def _labels(pending: PendingCall) -> Iterator[Row]:
    facts = pending.facts
    if pending.interruption is not None:
        yield Row(label="started", text=describe_start(pending.interruption, now=time.time()))
        if ended := describe_processes(pending.interruption, facts):
            yield Row(label="processes", text=ended)
    yield from _rows(describe_server(facts.server))
    if facts.interpreter:
        yield Row(label="program", text=line(" ".join(facts.interpreter)), exact=True, tone="quiet")
    if facts.cwd:
        yield Row(label="runs in", text=show_path(facts.cwd), exact=True, tone="quiet")
    if seconds := _timeout(pending):
        yield Row(label="timeout", text=f"{seconds} s", tone="quiet")
    for index, path in enumerate(facts.paths):
        yield Row(label="" if index else "touches", text=show_path(path), exact=True)
    yield from _rows(describe_command(facts))
    for index, host in enumerate(facts.hosts):
        yield Row(label="" if index else "contacts", text=line(host), exact=True, tone="caution")
    unconfined = bool(facts.command) and not facts.sandbox
    sandbox = line(facts.sandbox) or ("none" if unconfined else "not needed: no program is run")
    yield Row(label="sandbox", text=sandbox, tone="caution" if unconfined else "quiet")
    reaches = facts.network or bool(facts.hosts)
    yield Row(label="network", text="yes" if reaches else "no", tone="plain" if reaches else "quiet")
    if not pending.outcome_unknown:
        added = f"{describe_extra(facts.extra)}, for this call only" if facts.extra != NARROWEST else ""
        yield from _rows([*describe_lacks(facts), *([Fact("+ adds", added)] if added else [])])
    model = f" ({line(pending.model)})" if pending.model else ", without a model"
    yield Row(label="asked by", text=f"{line(pending.role)}{model}", tone="quiet")
    if pending.why:
        edited = pending.reason is AskReason.EDITED
        yield Row(label="asks because", text="you edited the arguments" if edited else line(pending.why), tone="quiet")
    if takes_rule(pending) and not pending.outcome_unknown and pending.denial is None:
        yield _grant(pending)


def _rows(facts: Iterable[Fact]) -> Iterator[Row]:
    """Yield labelled values; a label that repeats stands once."""
    before = ""
    for one in facts:
        shown = "" if one.label == before else one.label
        yield Row(label=shown, text=line(one.value), exact=one.exact, tone=one.tone)
        before = one.label


def _grant(pending: PendingCall) -> Row:
    """Return what `s` would remember, and for how long. Exact arguments are shown elsewhere already."""
    tool = pending.call.name
    match exact_grant(pending):
        case PathPattern():
            allowed = f"any {tool} of this file"
        case HostPattern(host=host):
            allowed = f"any {tool} of {host}"
        case pattern:
            allowed = rule_text(tool, pattern)
    return Row(
        label="s allows", text=f"for this session, as {line(pending.role)}: {line(allowed)}", exact=True, tone="quiet"
    )


def _described(facts: CallFacts) -> Iterator[Row]:
    """Yield what the server says of the tool, each line marked, so that none looks like one of ours.

    It is a part of what is approved.
    """
    if facts.server is None:
        return
    yield Row()
    said = facts.server.description.strip()
    yield Row(text="The server says of this tool" if said else "The server says nothing of this tool", tone="heading")
    if said:
        yield from (replace(row, lead=FOREIGN) for row in _exact(said, "quiet"))


def _output(pending: PendingCall) -> Iterator[Row]:
    """Yield what an interrupted attempt had printed."""
    if pending.interruption is None:
        return
    output = pending.interruption.output.removesuffix("\n")
    yield Row()
    yield Row(text="Its output until then" if output else f"Its output until then: {NO_OUTPUT}", tone="heading")
    if output:
        yield from _exact(output)


def _arguments(pending: PendingCall) -> Iterator[Row]:
    """Yield the arguments that nothing else shows, character for character."""
    facts = pending.facts
    values = json_or_text(facts.arguments)
    if not isinstance(values, dict):
        yield from (Row(), Row(text="Arguments", tone="heading"), *_exact(facts.arguments))
        return
    shown = {key: value for key, value in values.items() if not _shown_elsewhere(pending, key, value)}
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


_IN_DIFF = MappingProxyType({"file_edit": ("old", "new"), "file_write": ("content",), "memory_write": ("text",)})
"""Arguments of our tools that the diff shows, all of them."""


def _shown_elsewhere(pending: PendingCall, key: str, value: JsonValue) -> bool:
    """Return True if the command, the diff or the path above shows this argument, character for character."""
    facts, tool = pending.facts, tool_name(pending.call.name)
    if facts.command and key in ("command", "code") and value == facts.command:
        return True
    if facts.diff and key in _IN_DIFF.get(tool, ()):
        return True
    if _timeout(pending) and key == "timeout_s":
        return True
    inside = [_inside(path, facts.workspace) for path in facts.paths]
    return key == "path" and tool in _IN_DIFF and value in (*inside, *facts.paths)


def _timeout(pending: PendingCall) -> int | None:
    """Return the time limit that a call of our tools names, in seconds."""
    values = json_or_text(pending.facts.arguments)
    found = values.get("timeout_s") if isinstance(values, dict) and pending.facts.command else None
    ours = tool_name(pending.call.name) in BUILT_IN_TOOLS
    return found if ours and isinstance(found, int) and not isinstance(found, bool) else None


def _inside(path: str, folder: str) -> str:
    return path.removeprefix(folder.rstrip("/") + "/") if folder else path


def _details(pending: PendingCall, *, shown: bool) -> Iterator[Row]:
    """Yield the model's words and the raw values; folded, how much there is of them."""
    said = pending.said.strip()
    yield Row()
    if not shown:
        count = f"the model's words ({plural(len(pending.said), 'character')}), " if said else ""
        yield Row(text=f"v details: {count}raw arguments, digests", tone="quiet")
        return
    facts = pending.facts
    if said:
        yield Row(text="The model says, in its own words", tone="quiet")
        yield from (Row(text=line(part), tone="quiet") for part in pending.said.split("\n"))
        yield Row()
    yield Row(text="Raw arguments", tone="quiet")
    yield from _exact(facts.arguments, "quiet")
    yield Row()
    yield Row(label="call", text=line(f"{pending.call.id}, {pending.call.name}"), exact=True, tone="quiet")
    yield Row(label="digest", text=line(pending.digest), exact=True, tone="quiet")
    if facts.definition:
        yield Row(label="tool", text=line(facts.definition), exact=True, tone="quiet")
    for index, entry in enumerate(facts.hashes):
        yield Row(label="" if index else "files", text=line(entry), exact=True, tone="quiet")


def takes_rule(pending: PendingCall) -> bool:
    """Return True if a rule could answer such a call; the user decides each that was repaired or `needs_user`."""
    return not pending.facts.repairs and not pending.facts.needs_user


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
