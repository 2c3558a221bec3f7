"""The status line: role, access level, model, tokens, context, pending approvals, sandbox.

Parts are left out when the window is too narrow for all of them.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural, spent
from chatops.tui.error_boundary import ErrorBoundary

if TYPE_CHECKING:
    from chatops.domain.events import Published
    from chatops.domain.sandbox import SandboxNote
    from chatops.runtime.view import Snapshot

_ATTENTION = "bold $text-warning"
_TICK_S = 1.0
"""Seconds between two updates of the time that a turn has taken."""
_WORTH_COUNTING = 1_000
"""The number of characters received is shown from this many on."""


class _Part(NamedTuple):
    """A part of the line. Parts with the highest `drop` are left out first; 0 is never left out."""

    text: str
    drop: int
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the turn is that runs."""

    seconds: int = 0
    """Time since it was started or resumed here."""
    written: int = 0
    """Characters of the current reply that have arrived."""


def status_parts(
    snapshot: "Snapshot", *, sandbox: "SandboxNote", progress: Progress | None, colour: str = ""
) -> list[_Part]:
    """Return the parts in display order.

    `progress` is None while no turn runs. `colour` is that of the role.
    """
    from chatops.domain.events import TurnStatus  # not before the first paint

    usage = snapshot.usage
    parts = [
        _Part(snapshot.role, 0, f"bold {colour}".rstrip()),
        _Part(snapshot.level.word, 3),
        _Part(_model(snapshot), 1),
    ]
    if snapshot.pending:
        parts.append(_Part(f"? {approvals_pending(len(snapshot.pending))}", 0, _ATTENTION))
    if snapshot.contained:
        parts.append(_Part("contained", 0))
    if progress is not None:
        time = f" {spent(progress.seconds)}" if progress.seconds else ""
        far = f", {count(progress.written)} characters" if progress.written >= _WORTH_COUNTING else ""
        parts.append(_Part(f"working{time}{far}, Esc stops", 2))
    if snapshot.queued:
        parts.append(_Part(f"{len(snapshot.queued)} queued", 2))
    if snapshot.context_window:
        parts.append(_Part(f"context {_percent(snapshot.context_used, snapshot.context_window)}", 4))
    if usage is not None:
        parts.append(_Part(f"{count(usage.input_tokens)} in {count(usage.output_tokens)} out", 5))
        if usage.cost:
            parts.append(_Part(f"cost {usage.cost:.4f}", 6))
    elif snapshot.status not in (None, TurnStatus.FAILED) and progress is None:
        # A failed turn has no reply whose tokens could have been counted.
        parts.append(_Part("tokens unknown", 5))
    if sandbox.off:
        # The fact that commands run unsandboxed is always shown. The reason may be left out.
        parts.append(_Part("sandbox: off", 0, _ATTENTION))
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

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._clock = clock
        self._parts: list[_Part] = []
        self._in_progress: tuple[Snapshot, SandboxNote, str] | None = None
        self._since = 0.0
        self._ticking = False
        self._written = 0

    def show(self, snapshot: "Snapshot", *, sandbox: "SandboxNote", running: bool, colour: str = "") -> None:
        """Show the session's state. `colour` is that of its role."""
        if running and self._in_progress is None:
            self._since = self._clock()
        self._in_progress = (snapshot, sandbox, colour) if running else None
        if running and not self._ticking:
            self._ticking = True
            self.set_timer(_TICK_S, self._tick)
        progress = Progress(seconds=int(self._clock() - self._since), written=self._written) if running else None
        parts = status_parts(snapshot, sandbox=sandbox, progress=progress, colour=colour)
        self._parts = [_Part(sanitize(part.text, newlines=False), part.drop, part.style) for part in parts]
        self._draw()

    def _tick(self) -> None:
        """Show how long the turn has taken."""
        self._ticking = False
        self._show_progress()

    def _show_progress(self) -> None:
        if self._in_progress is not None:
            snapshot, sandbox, colour = self._in_progress
            self.show(snapshot, sandbox=sandbox, running=True, colour=colour)

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
        if count(self._written) != before and self._written >= _WORTH_COUNTING:
            self._show_progress()

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
