"""The text of a pending call in a dialog, as rows: everything that would run, never shortened.

Every value passes through `reveal`, which makes control and invisible characters visible. Lines are split at line feeds
only, so that no other character can fake a line end. The model's own words come last and are not part of the payload.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from chatops.domain.canonical import json_or_text
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.sanitize import reveal, show_path
from chatops.domain.tools import CallFacts
from chatops.runtime.denials import denial_sentence
from chatops.runtime.descriptions import NO_OUTPUT, UNKNOWN, processes, since

Tone = Literal["plain", "heading", "code", "add", "remove", "hunk", "caution", "quiet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One logical line. A `label` is put in a column of its own. `exact` rows wrap at cells, not words."""

    text: str = ""
    tone: Tone = "plain"
    label: str = ""
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The rows of a call. The first `payload` rows must have been on screen before an approval."""

    rows: tuple[Row, ...]
    payload: int


def describe(pending: PendingCall, *, scope: str, unfolded: bool) -> Description:
    """Return everything the user has to see. `scope` is the rule that `s` would grant."""
    payload = (*_head(pending), *_command(pending.facts), *_labels(pending, scope), *_output(pending))
    payload = (*payload, *_change(pending.facts), *_arguments(pending.facts))
    return Description(rows=(*payload, *_said(pending, unfolded=unfolded)), payload=len(payload))


def title(pending: PendingCall) -> str:
    """Return one line for the list: the tool and the call's subject."""
    facts = pending.facts
    about = facts.command or " ".join(facts.paths) or " ".join(facts.hosts) or facts.arguments
    return f"{line(pending.call.name)}  {line(about)}"


def line(text: str) -> str:
    """Return untrusted text on one line with nothing hidden."""
    return reveal(text, newlines=False)


def _exact(text: str, tone: Tone = "code") -> Iterator[Row]:
    for part in text.split("\n"):
        yield Row(text=line(part), tone=tone, exact=True)


def _head(pending: PendingCall) -> Iterator[Row]:
    verb = "asked to run" if pending.in_doubt else "asks to run"
    model = f"({line(pending.model)})" if pending.model else "(a gate of the workflow, no model)"
    yield Row(text=f"{line(pending.role)} {model} {verb} {line(pending.call.name)}", tone="heading")
    if pending.in_doubt:
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
    if facts.command:
        yield Row()
        yield from _exact(facts.command)


def _labels(pending: PendingCall, scope: str) -> Iterator[Row]:
    facts = pending.facts
    yield Row()
    if pending.interruption is not None:
        yield Row(label="started", text=since(pending.interruption, now=time.time()))
        if ended := processes(pending.interruption, facts):
            yield Row(label="processes", text=ended)
    if facts.interpreter:
        yield Row(label="program", text=line(" ".join(facts.interpreter)), exact=True)
    if facts.cwd:
        yield Row(label="runs in", text=show_path(facts.cwd), exact=True)
    for index, path in enumerate(facts.paths):
        yield Row(label="" if index else "touches", text=show_path(path), exact=True)
    for index, host in enumerate(facts.hosts):
        yield Row(label="" if index else "contacts", text=line(host), exact=True)
    yield Row(
        label="sandbox", text=line(facts.sandbox) or ("none" if facts.command else "not needed: no program is run")
    )
    yield Row(label="network", text="yes" if facts.network or facts.hosts else "no")
    if pending.why:
        yield Row(label="asks because", text=line(pending.why))
    if scope and not pending.in_doubt and pending.denial is None:
        granted = f"{line(scope)}  (this session, as {line(pending.role)})"
        yield Row(label="s allows", text=granted, exact=True)


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


def _diff_tone(part: str) -> Tone:
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
