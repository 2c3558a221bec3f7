"""The text of /context: what fills the context, in estimated tokens, and the parts of the prompt with their source."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.messages import Message, SummaryMessage, UserMessage
from chatops.domain.wording import one_line, plural
from chatops.engine.transcript import from_summary, shared, tokens, tools_size
from chatops.tui.transcript.lines import with_joined_paragraphs

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

_WIDTH = 40
"""Cells of the longest bar."""
_TITLE = 40


def context_text(session: "SessionView") -> str:
    """Return the meter, then the layers of the system prompt in order, each with its source and size."""
    lines = [*_meter(session), ""]
    lines += _summary(session.snapshot().messages)
    for layer in session.prompt_layers():
        text = layer.text.strip()
        size = f", {plural(len(text), 'character')}" if text else ""
        lines.append(f"--- {layer.name} ({layer.source}{size})")
        # A persona file has line breaks for an editor; the screen wraps for its own width.
        lines += [with_joined_paragraphs(text) if layer.name == "persona" else text] if text else []
        lines.append("")
    return "\n".join(lines).rstrip()


def _summary(messages: Sequence[Message]) -> list[str]:
    """Return the lines about the summary in force, which replaces earlier messages; empty if there is none."""
    asked, last, summary = "", "", None
    for message in messages:
        if isinstance(message, SummaryMessage):
            last, summary = asked, message
        elif isinstance(message, UserMessage):
            asked = one_line(message.text, most=_TITLE)
    if summary is None or not summary.text:
        return []
    return [f'--- summary (sent instead of all up to "{last}" and its answer)', summary.text, ""]


def _meter(session: "SessionView") -> list[str]:
    """Return one line for each kind of content, as wide as its share of the window."""
    snapshot, grant = session.snapshot(), session.grant()
    window, used = snapshot.context_window, snapshot.context_used
    system, tools = tokens(len(grant.prompt)), tools_size(grant.tools)
    asked = (message for message in shared(from_summary(tuple(snapshot.messages))) if isinstance(message, UserMessage))
    files = sum(tokens(len(file.text)) for message in asked for file in message.files)
    parts = {
        "system": system,
        "tools": tools,
        "messages": max(0, used - system - tools - files),
        "files": files,
    }
    if window is None:
        whole = max(1, used)
        head = f"About {used:,} tokens are used. How many the model takes is unknown: context_window in the registry."
    else:
        whole = max(1, window)
        parts["free"] = max(0, window - used)
        head = f"About {used:,} of {window:,} tokens are used ({used * 100 // whole} %)."
    lines = [head, ""]
    for name, size in parts.items():
        sign = "░" if name == "free" else "█"
        lines.append(f"{name:<10}{size:>10,}  {sign * round(size / whole * _WIDTH)}".rstrip())
    return lines
