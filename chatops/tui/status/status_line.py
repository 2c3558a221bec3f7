"""The status line: role, access level, model, context, cost, pending approvals, sandbox.

Parts are left out when the window is too narrow: first cost, the word "level", queue and context, then from the right.
What needs attention stays. A part that was left out comes back if there is room for it in the end.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.domain.wording import money, plural, spent
from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.keys import with_user_keys

if TYPE_CHECKING:
    from chatops.domain.events import Published
    from chatops.domain.sandbox import SandboxNote
    from chatops.runtime.view import Snapshot

_ATTENTION = "bold $text-warning"
BARS = "▁▂▃▄▅▆▇█"
"""Signs for a fraction, from 0 to 1."""
_SCARCE = 0.8
"""Used fraction of the context window from which on it needs attention."""
_CENT = 0.01
_TICK_S = 1.0
"""Seconds between two updates of the time that a turn has taken."""
_WORTH_COUNTING = 1_000
"""The number of characters received is shown from this many on."""


class _Part(NamedTuple):
    """A part of the line."""

    text: str
    style: str = ""
    stays: bool = False
    """True if the part is kept in a narrow window, because it needs attention."""
    early: int = 0
    """The parts with the highest number are left out first."""
    gap: str = "   "
    """Text before the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of the running turn."""

    seconds: int = 0
    """Time since it was started or resumed here."""
    written: int = 0
    """Characters of the current reply that have arrived."""


def status_parts(
    snapshot: "Snapshot", *, sandbox: "SandboxNote", progress: Progress | None, colour: str = "", bars: str = BARS
) -> list[_Part]:
    """Return the parts in display order.

    `progress` is None while no turn runs. `colour` is that of the role. `bars` are signs for a fraction, lowest first.
    """
    parts = [
        _Part(snapshot.role, f"bold {colour}".rstrip(), stays=True),
        _Part(f"· {snapshot.level.word}", gap=" "),
        _Part("level", gap=" ", early=2),
        _Part(_model(snapshot)),
    ]
    if snapshot.questions:
        parts.append(_Part("waits for your answer – ctrl+g", _ATTENTION, stays=True))
    elif progress is not None:
        time = f" {spent(progress.seconds)}" if progress.seconds else ""
        far = f", {count(progress.written)} characters" if progress.written >= _WORTH_COUNTING else ""
        parts.append(_Part(f"working{time}{far}, Esc stops", stays=True))
    if snapshot.context_window is None:
        parts.append(_Part(f"ctx {count(snapshot.context_used)} tokens", early=1))
    elif snapshot.context_window:
        full = min(1.0, snapshot.context_used / snapshot.context_window)
        meter = f"{bars[min(len(bars) - 1, int(full * len(bars)))]} " if bars else ""
        scarce = full >= _SCARCE
        parts.append(_Part(f"ctx {meter}{int(100 * full)} %", _ATTENTION if scarce else "", stays=scarce, early=1))
    if spending := _spending(snapshot, running=progress is not None):
        parts.append(_Part(spending, early=3))
    if snapshot.pending:
        parts.append(_Part(f"? {len(snapshot.pending)} pending", _ATTENTION, stays=True))
    if snapshot.contained:
        parts.append(_Part("contained", stays=True))
    if snapshot.queued:
        parts.append(_Part(f"{len(snapshot.queued)} queued", early=1))
    if sandbox.off:
        # The fact that commands run unsandboxed is always shown. The reason may be left out.
        parts += [_Part("sandbox off", _ATTENTION, stays=True), _Part(sandbox.text, gap=" ")]
    else:
        parts.append(_Part("sandbox on"))
    return parts


def _spending(snapshot: "Snapshot", *, running: bool) -> str:
    """Return the cost of the session so far, else its tokens, which is all that is known without a price."""
    # Not before the first paint.
    from chatops.domain.events import TurnStatus
    from chatops.domain.messages import AssistantMessage

    usage = snapshot.usage
    if usage is None:
        # A failed turn, a command of the user and an undo have no reply whose tokens could have been counted.
        replied = any(
            isinstance(one, AssistantMessage) and one.model and one.usage is None for one in snapshot.messages
        )
        return "" if running or not replied or snapshot.status is TurnStatus.FAILED else "tokens unknown"
    if usage.cost:
        return money(usage.cost, cents_from=_CENT)
    return f"{count(usage.input_tokens)} in {count(usage.output_tokens)} out"


def fitted(parts: Sequence[_Part], *, width: int) -> list[_Part]:
    """Return the parts that fit into `width` cells. Parts are left out early ones first, then from the right."""
    kept = [at for at, part in enumerate(parts) if part.stays]
    for at in sorted(range(len(parts)), key=lambda at: (parts[at].early, at)):
        more = sorted({*kept, at})
        # A part that belongs to the one before it does not stand alone.
        whole = len(parts[at].gap) > 1 or at - 1 in kept
        kept = more if whole and _width([parts[one] for one in more]) <= width else kept
    return [parts[at] for at in kept]


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
        bars = BARS if getattr(self.app, "charset", "utf-8") == "utf-8" else ""
        parts = status_parts(snapshot, sandbox=sandbox, progress=progress, colour=colour, bars=bars)
        self._parts = [part._replace(text=sanitize(part.text, newlines=False)) for part in parts]
        self._draw()

    def _tick(self) -> None:
        """Show how long the turn has taken, and how much of the reply has arrived."""
        self._ticking = False
        if self._in_progress is not None:
            snapshot, sandbox, colour = self._in_progress
            self.show(snapshot, sandbox=sandbox, running=True, colour=colour)

    def follow(self, batch: "Iterable[Published]") -> None:
        """Count the characters of the reply as they arrive. They are shown with the time, once a second."""
        from chatops.domain.events import ReasoningDelta, RoundStarted, TextDelta

        for published in batch:
            match published.event:
                case RoundStarted():
                    self._written = 0
                case TextDelta(text=text) | ReasoningDelta(text=text):
                    self._written += len(text)
                case _:
                    pass

    def say(self, text: str) -> None:
        """Show only this text, before a session is open."""
        self._parts = [_Part(with_user_keys(text))]
        self._draw()

    def on_resize(self) -> None:
        """Choose the parts for the new width."""
        self._draw()

    def _draw(self) -> None:
        parts = fitted(self._parts, width=self.content_size.width or 80)
        pieces = [((part.gap if at else "") + part.text, part.style) for at, part in enumerate(parts)]
        self.update(Content.assemble(*pieces), layout=False)


def _width(parts: Sequence[_Part]) -> int:
    return sum(cell_len(part.text) + (len(part.gap) if at else 0) for at, part in enumerate(parts))


def _model(snapshot: "Snapshot") -> str:
    label = snapshot.model_label or snapshot.model
    if not snapshot.is_demo:
        return label
    return label if "demo" in label.lower() and label.isupper() else "DEMO model, no AI"


def approvals_pending(number: int) -> str:
    """Return the number of pending approvals in words."""
    return f"{plural(number, 'approval')} pending"


def count(tokens: int) -> str:
    """Return a count such as ``830`` or ``12.4k``."""
    return str(tokens) if tokens < 1_000 else f"{tokens / 1_000:.1f}k"
