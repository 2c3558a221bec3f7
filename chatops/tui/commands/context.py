"""The text of /context: what fills the context, in estimated tokens, and the parts of the prompt with their source."""

from typing import TYPE_CHECKING

from chatops.domain.messages import SummaryMessage, UserMessage
from chatops.domain.wording import plural
from chatops.engine.transcript import from_summary, shared, tokens, tools_size
from chatops.tui.transcript.lines import with_joined_paragraphs

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

_WIDTH = 40
"""Cells of the longest bar."""


def context_text(session: "SessionView") -> str:
    """Return the meter, then the layers of the system prompt in order, each with its source and size."""
    lines = [*_meter(session), ""]
    summary = next((one for one in reversed(session.snapshot().messages) if isinstance(one, SummaryMessage)), None)
    if summary is not None and summary.text:
        lines += [f"--- summary (sent instead of the {summary.replaces} messages before it)", summary.text, ""]
    for layer in session.prompt_layers():
        text = layer.text.strip()
        size = f", {plural(len(text), 'character')}" if text else ""
        lines.append(f"--- {layer.name} ({layer.source}{size})")
        # A persona file has line breaks for an editor; the screen wraps for its own width.
        lines.append((with_joined_paragraphs(text) if layer.name == "persona" else text) or "(empty)")
        lines.append("")
    return "\n".join(lines).rstrip()


def _meter(session: "SessionView") -> list[str]:
    """Return one line for each kind of content, as wide as its share of the window."""
    snapshot, grant = session.snapshot(), session.grant()
    window, used = max(1, snapshot.context_window), snapshot.context_used
    system, tools = tokens(len(grant.prompt)), tools_size(grant.tools)
    asked = (message for message in shared(from_summary(tuple(snapshot.messages))) if isinstance(message, UserMessage))
    files = sum(tokens(len(file.text)) for message in asked for file in message.files)
    parts = {
        "system": system,
        "tools": tools,
        "messages": max(0, used - system - tools - files),
        "files": files,
        "free": max(0, window - used),
    }
    lines = [f"About {used:,} of {window:,} tokens are used ({used * 100 // window} %).", ""]
    for name, size in parts.items():
        lines.append(f"{name:<10}{size:>10,}  {'█' * round(size / window * _WIDTH)}".rstrip())
    return lines
