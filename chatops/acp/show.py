"""Updates for an editor: values without the protocol, made from events and facts of calls.

Everything from models, tools and files is sanitised. Titles and notices that Markdown would change are put into code.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Literal

from chatops.acp.offer import is_plain
from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.events import (
    AnswerRefused,
    CallDecided,
    CallProposed,
    Event,
    Notice,
    PendingCall,
    ReasoningDelta,
    Status,
    StepFinished,
    TextDelta,
    ThoughtFinished,
    ToolFinished,
    ToolStarted,
    TurnCorrected,
    TurnStarted,
    WorkflowFinished,
)
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import Speaker
from chatops.domain.sanitize import reveal, sanitize
from chatops.domain.tools import Capabilities, shown_verb, written_path
from chatops.domain.wording import one_line
from chatops.engine.workflow.view import RunView, StepMark
from chatops.headless.json_values import arguments_value
from chatops.headless.pending import describe
from chatops.runtime.call_sheet import subject_line

Kind = Literal["read", "edit", "execute", "fetch", "other"]
Progress = Literal["pending", "in_progress", "completed", "failed"]
LONGEST_TITLE, LONGEST_RESULT = 200, 20_000
"""Characters of what an editor shows. The terminal has all of it."""


@frozen_dataclass
class Diff:
    """One changed place of a file: the lines before and after, with some around them."""

    path: str
    old: str
    new: str


@frozen_dataclass
class Card:
    """A call, or what has changed of it: empty fields say nothing new."""

    id: str
    title: str = ""
    kind: Kind = "other"
    status: Progress = "pending"
    text: str = ""
    """Markdown below the title."""
    diffs: tuple[Diff, ...] = ()
    paths: tuple[str, ...] = ()
    """Absolute paths in the workspace."""
    arguments: JsonValue = None
    opens: bool = False
    """True for the first card of this call."""


@frozen_dataclass(kw_only=False)
class Text:
    """More of a message, as Markdown."""

    text: str
    by: Literal["user", "agent", "thought"] = "agent"


@frozen_dataclass(kw_only=False)
class Plan:
    """The steps of a workflow run, each with its state."""

    steps: tuple[tuple[str, Literal["pending", "in_progress", "completed"]], ...]


@frozen_dataclass(kw_only=False)
class Window:
    """Tokens of the context window that are used, its size, and what the session has cost."""

    used: int
    size: int
    cost: float | None


@frozen_dataclass(kw_only=False)
class Settings:
    """Role and model in force, and the models to choose from: values with their labels."""

    role: str
    model: str
    models: tuple[tuple[str, str], ...]


@frozen_dataclass(kw_only=False)
class Commands:
    """The slash commands of `acp.commands`, which are the same in every session."""


Update = Text | Card | Plan | Window | Settings | Commands


def code_block(text: str) -> str:
    """Return text as a block of code that nothing in it can end."""
    fence = _fence(text, least=3)
    return f"{fence}\n{sanitize(text)}\n{fence}"


def inert(text: str) -> str:
    """Return a sentence of chatops. One that Markdown would change is shown as code."""
    return text if is_plain(text) else code_block(text)


def notice(text: str) -> Text:
    """Return a sentence of chatops as a message."""
    return Text(f"\n\n{inert(text.strip())}\n\n")


def updates(event: Event, capabilities: Capabilities, *, workspace: str, typed_here: bool) -> Iterator[Update]:
    """Yield what an event shows. `capabilities` are the capabilities of its tool.

    `typed_here`: messages of the user come from this editor, which shows them itself.
    """
    match event:
        case TurnStarted(by=Speaker.USER | Speaker.COMMAND) | TurnCorrected():
            if not typed_here:
                yield Text(sanitize(event.text, prose=True), by="user")
        case TextDelta():
            yield Text(sanitize(event.text, prose=True))
        case ReasoningDelta():
            yield Text(sanitize(event.text, prose=True), by="thought")
        case ThoughtFinished():
            yield Text(sanitize(event.reasoning, prose=True), by="thought")
            yield Text(sanitize(event.text, prose=True))
        case CallProposed():
            yield proposed_card(event.id, event.tool, event.arguments, capabilities, workspace=workspace)
        case ToolStarted():
            yield Card(id=event.id, status="in_progress")
        case CallDecided():
            yield Card(id=event.id, status="in_progress", text=inert(f"{event.decision.kind} by {event.by}"))
        case ToolFinished():
            yield ended_card(event, workspace=workspace)
        case _ if text := _sentence(event):
            yield notice(text)


def _sentence(event: Event) -> str:
    match event:
        case Notice():
            return f"{event.text} {event.advice}"
        case AnswerRefused():
            return event.why or event.reason
        case StepFinished() if event.detail:
            return f"Step {event.name}, attempt {event.attempt}: {event.result}. {event.detail}"
        case WorkflowFinished():
            return f"The run is over: {event.result}. {event.detail}"
        case _:
            return ""


def proposed_card(call: str, tool: str, arguments: str, capabilities: Capabilities, *, workspace: str) -> Card:
    """Return the card of a call that the model has proposed."""
    values = json_or_text(arguments)
    given = values if isinstance(values, dict) else {}
    subjects = (capabilities.command, capabilities.path, capabilities.url, capabilities.code)
    about = next((given[name] for name in subjects if given.get(name)), None)
    about = about or written_path(capabilities, arguments) or (arguments if given else "")
    text = about if isinstance(about, str) else json.dumps(about)
    return Card(
        id=call,
        title=_card_title(shown_verb(tool, capabilities, arguments), text),
        kind=_card_kind(capabilities),
        paths=_paths_in_workspace(workspace, [given.get(capabilities.path) if capabilities.path else None]),
        arguments=arguments_value(arguments),
        opens=True,
    )


def pending_card(pending: PendingCall, *, workspace: str, opens: bool) -> Card:
    """Return the card of a call that waits for a decision, with everything that the approval dialog shows."""
    facts, capabilities = pending.facts, pending.capabilities
    return Card(
        id=pending.call.id,
        title=_card_title(shown_verb(pending.call.name, capabilities, pending.call.arguments), subject_line(pending)),
        kind=_card_kind(capabilities),
        text=code_block(describe(pending)),
        diffs=tuple(diffs(facts.diff, facts.paths[0])) if facts.diff and facts.paths else (),
        paths=_paths_in_workspace(workspace, facts.paths),
        arguments=arguments_value(facts.arguments),
        opens=opens,
    )


def ended_card(event: ToolFinished, *, workspace: str) -> Card:
    """Return the card of a call that is over."""
    content, facts = event.content, event.facts
    cut = content[:LONGEST_RESULT] + ("\n…" if len(content) > LONGEST_RESULT else "")
    paths = _paths_in_workspace(workspace, [facts.wrote])
    return Card(
        id=event.id,
        status="completed" if event.status is Status.SUCCESS else "failed",
        text=code_block(cut) if cut.strip() else "",
        diffs=tuple(diffs(facts.diff, paths[0])) if paths else (),
        paths=paths,
    )


def diffs(unified: str, path: str) -> Iterator[Diff]:
    """Yield the changed places of a unified diff of one file."""
    for hunk in re.split(r"^@@.*\n", unified, flags=re.MULTILINE)[1:]:
        lines = [line for line in re.findall(r"[^\n]*\n|[^\n]+", hunk) if line[0] in " +-"]
        # The old text has no added lines, and the new one no removed ones.
        old, new = ("".join(line[1:] for line in lines if line[0] != sign) for sign in "+-")
        yield Diff(path=path, old=sanitize(old), new=sanitize(new))


def plan(run: RunView) -> Plan:
    """Return the steps of a workflow run as a plan."""

    def state(mark: StepMark) -> Literal["pending", "in_progress", "completed"]:
        over = (StepMark.DONE, StepMark.FAILED, StepMark.SKIPPED)
        return "pending" if mark is StepMark.WAITING else "completed" if mark in over else "in_progress"

    named = ((f"{step.name} ({step.word})" if step.word else step.name, step.mark) for step in run.steps)
    return Plan(tuple((reveal(text, newlines=False), state(mark)) for text, mark in named))


def _card_title(verb: str, about: str) -> str:
    text = one_line(reveal(about, newlines=False), most=LONGEST_TITLE)
    if not text or is_plain(f"{verb}: {text}"):
        return f"{verb}: {text}" if text else verb
    fence = _fence(text, least=1)
    blank = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{verb}: {fence}{blank}{text}{blank}{fence}"


def _fence(text: str, *, least: int) -> str:
    return "`" * max([least, *(1 + len(run) for run in re.findall("`+", text))])


def _card_kind(capabilities: Capabilities) -> Kind:
    if capabilities.runs_anything:
        return "execute"
    if capabilities.writes:
        return "edit"
    if capabilities.url:
        return "fetch"
    return "read" if capabilities.reads_workspace else "other"


def _paths_in_workspace(workspace: str, paths: object) -> tuple[str, ...]:
    """Return those of `paths` that are in the workspace, absolute. An editor may open what it is named."""
    named = [path for path in paths if isinstance(path, str) and path] if isinstance(paths, list | tuple) else []
    absolute = (posixpath.normpath(posixpath.join(workspace, path)) for path in named)
    return tuple(path for path in absolute if path.startswith(f"{workspace.rstrip('/')}/") and path.isprintable())
