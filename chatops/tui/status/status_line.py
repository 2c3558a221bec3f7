"""The status line: role, access level, model, tokens, context, pending approvals, sandbox.

Parts are left out when the window is too narrow for all of them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural
from chatops.tui.error_boundary import ErrorBoundary

if TYPE_CHECKING:
    from chatops.domain.events import Published
    from chatops.domain.sandbox import SandboxNote
    from chatops.runtime.view import Snapshot

_WORTH_COUNTING = 1_000
"""The number of characters received is shown from this many on."""


class _Part(NamedTuple):
    """A part of the line. Parts with the highest `drop` are left out first; 0 is never left out."""

    text: str
    drop: int
    style: str = ""


def status_parts(snapshot: "Snapshot", *, sandbox: "SandboxNote", running: bool, written: int = 0) -> list[_Part]:
    """Return the parts in display order. `written` is how many characters of the current reply have arrived."""
    from chatops.domain.events import TurnStatus  # not before the first paint

    usage = snapshot.usage
    parts = [_Part(snapshot.role, 0, "bold"), _Part(snapshot.level.word, 3), _Part(_model(snapshot), 1)]
    if snapshot.pending:
        parts.append(_Part(approvals_pending(len(snapshot.pending)), 0, "bold"))
    if snapshot.contained:
        parts.append(_Part("contained", 0))
    if running:
        far = f", {count(written)} characters" if written >= _WORTH_COUNTING else ""
        parts.append(_Part(f"working{far}, Esc stops", 2))
    if snapshot.queued:
        parts.append(_Part(f"{len(snapshot.queued)} queued", 2))
    if snapshot.context_window:
        parts.append(_Part(f"context {_percent(snapshot.context_used, snapshot.context_window)}", 4))
    if usage is not None:
        parts.append(_Part(f"{count(usage.input_tokens)} in {count(usage.output_tokens)} out", 5))
        if usage.cost:
            parts.append(_Part(f"cost {usage.cost:.4f}", 6))
    elif snapshot.status not in (None, TurnStatus.FAILED) and not running:
        # A failed turn has no reply whose tokens could have been counted.
        parts.append(_Part("tokens unknown", 5))
    if sandbox.off:
        # The fact that commands run unsandboxed is always shown. The reason may be left out.
        parts.append(_Part("sandbox: off", 0, "bold"))
        parts.append(_Part(sandbox.text, 3))
    else:
        parts.append(_Part(f"sandbox: {sandbox.text}", 7))
    return parts


def fitted(parts: list[_Part], *, width: int, separator: str) -> list[_Part]:
    """Return the parts that fit into `width` cells, leaving out the least important first."""
    kept = list(parts)
    while len(kept) > 1 and _width(kept, separator) > width:
        least = max(kept, key=lambda part: part.drop)
        if least.drop == 0:
            break
        kept.remove(least)
    return kept


class StatusLine(ErrorBoundary, Static):
    """Draws the parts that fit."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._parts: list[_Part] = []
        self._in_progress: tuple[Snapshot, SandboxNote] | None = None
        self._written = 0

    def show(self, snapshot: "Snapshot", *, sandbox: "SandboxNote", running: bool) -> None:
        """Show the session's state."""
        self._in_progress = (snapshot, sandbox) if running else None
        parts = status_parts(snapshot, sandbox=sandbox, running=running, written=self._written)
        self._parts = [_Part(sanitize(part.text, newlines=False), part.drop, part.style) for part in parts]
        self._draw()

    def follow(self, batch: "Iterable[Published]") -> None:
        """Count the characters of the reply as they arrive."""
        from chatops.domain.events import ReasoningDelta, RoundStarted, TextDelta

        before = count(self._written)
        for published in batch:
            match published.event:
                case RoundStarted():
                    self._written = 0
                case TextDelta(text=text) | ReasoningDelta(text=text):
                    self._written += len(text)
                case _:
                    pass
        if self._in_progress is not None and count(self._written) != before and self._written >= _WORTH_COUNTING:
            snapshot, sandbox = self._in_progress
            self.show(snapshot, sandbox=sandbox, running=True)

    def say(self, text: str) -> None:
        """Show only this text, before a session is open."""
        self._parts = [_Part(text, 0)]
        self._draw()

    def on_resize(self) -> None:
        """Choose the parts for the new width."""
        self._draw()

    def _draw(self) -> None:
        width = self.size.width or 80
        parts = fitted(self._parts, width=width, separator=" · ")
        pieces = [Content.styled(part.text, part.style) for part in parts]
        self.update(Content(" · ").join(pieces))


def _width(parts: list[_Part], separator: str) -> int:
    return cell_len(separator.join(part.text for part in parts))


def _model(snapshot: "Snapshot") -> str:
    label = snapshot.model_label or snapshot.model
    if not snapshot.is_demo:
        return label
    return label if "demo" in label.lower() and label.isupper() else "DEMO model, no AI"


def _percent(used: int, window: int) -> str:
    return f"{min(100, round(100 * used / window))}%"


def approvals_pending(number: int) -> str:
    """Return the number of pending approvals in words."""
    return f"{plural(number, 'approval')} pending"


def count(tokens: int) -> str:
    """Return a count such as ``830`` or ``12.4k``."""
    return str(tokens) if tokens < 1_000 else f"{tokens / 1_000:.1f}k"
