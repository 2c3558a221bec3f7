"""Lines around the message field.

Above it: what arrived below the view, queued messages, notices, and what needs the user. Below it, the status line:
role, access level, model, context, cost, pending approvals, sandbox.

Parts of the status line are left out when the window is too narrow: first cost, queue and context, then from the
right. What needs attention stays. A part that was left out comes back if there is room for it in the end.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.cells import cell_len
from textual.content import Content
from textual.message import Message
from textual.notifications import Notification
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.domain.wording import cut, money, plural, spent
from chatops.tui.keys import BACK, KeyHint, KeyLegend, key_of
from chatops.tui.textual_internals import ErrorBoundary, refresh_notices
from chatops.tui.ticker import Moving, frame_at

if TYPE_CHECKING:
    from chatops.domain.sandbox import SandboxNote
    from chatops.runtime.view import Snapshot

BannerTone = Literal["waiting", "error", "quiet"]
MAX_QUEUED_LINES = 3
"""Maximum number of messages shown with a line each."""
_MAX_NOTICE_LINES = 6
"""Maximum lines of notices, as in ``app.tcss``."""
_MAX_FIRST_WORDS = 200
"""Characters of a message that are shown, enough to recognise it."""


class _TextLines(ErrorBoundary, Static):
    """Lines that take no room while there is nothing to show. Text is never read as markup."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False
        self._shown = Content("")

    def draw(self, text: Content) -> None:
        """Draw plain text. What is shown already is not drawn again, which would lay out the whole screen."""
        if text.plain != self._shown.plain:
            self._shown = text
            self.update(text)


class Banner(_TextLines):
    """Says what needs the user, one line per sentence."""

    def show(self, text: str, *, tone: BannerTone, problem: str = "") -> None:
        """Show `text` below a lasting `problem`. Hides the banner if both are empty."""
        whole = "\n".join(part for part in (problem, text) if part)
        self.display = bool(whole)
        for name in ("waiting", "error", "quiet"):
            self.set_class(name == ("error" if problem else tone), f"-{name}")
        self.draw(Content(sanitize(whole)))


class Notices(_TextLines):
    """Notices, newest last."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._texts: list[str] = []

    def show(self, notices: Sequence[Notification]) -> None:
        """Replace the notices. An empty sequence hides the widget."""
        self.display = bool(notices)
        self.set_class(any(notice.severity == "error" for notice in notices), "-error")
        self._texts = [sanitize(notice.message) for notice in notices]
        self._draw()
        if notices:
            left = min(notice.time_left for notice in notices)
            self.set_timer(max(left, 0.0) + 0.01, lambda: refresh_notices(self.app))

    def on_resize(self) -> None:
        """Wrap the notices for the new width."""
        self._draw()

    def _draw(self) -> None:
        """Show as many lines as there is room for, those of the newest notice first; a mark where some are missing."""
        width = max(1, self.app.size.width - 2)
        lines: list[Content] = []
        for text in reversed(self._texts):
            room = _MAX_NOTICE_LINES - len(lines)
            own = [part for line in text.split("\n") for part in Content(line).wrap(width)]
            if len(own) > room > 0:
                own[room - 1 :] = [own[room - 1].truncate(width - 2) + " …"]
            lines = [*own[:room], *lines]
        self.draw(Content("\n").join(lines))


class QueuedMessages(_TextLines):
    """Messages that were sent and are not in the transcript yet, under a heading that says what happens to them."""

    def show(self, texts: Sequence[str], *, heading: str = "", marked: int | None = None) -> None:
        """Show the start of each text, oldest first, and ✗ beside the one with the index `marked`.

        If there are too many, show the first and the last, or the ones around the marked one.
        """
        self.display = bool(texts)
        lines = [f"{'✗' if at == marked else '❯'} {_first_words(text)}" for at, text in enumerate(texts)]
        if len(lines) > MAX_QUEUED_LINES and marked is not None:
            start = max(0, min(marked - 1, len(lines) - MAX_QUEUED_LINES))
            lines = lines[start : start + MAX_QUEUED_LINES]
        elif len(lines) > MAX_QUEUED_LINES:
            lines[1:-1] = [f"  … {len(lines) - 2} more"]
        self.draw(Content("\n".join([heading, *lines] if heading else lines)))


def _first_words(text: str) -> str:
    line = sanitize(" ".join(text[: 2 * _MAX_FIRST_WORDS].split()), newlines=False)
    return cut(line, most=_MAX_FIRST_WORDS)


class TranscriptHint(ErrorBoundary, Static):
    """Says what is below the view, and the keys of the selected block. Hidden without either."""

    class Clicked(Message):
        """Posted on a click while blocks are out of view."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id)
        self._unseen = ""
        """Text about what is below the view: counts of unseen messages, or that there is more; empty: nothing."""
        self._selected = False
        self._more = KeyHint()

    def count_unseen(self, messages: int, *, calls: int, more: bool) -> None:
        """Show how many messages and tool calls arrived below the view, or only that there is `more`."""
        counted = ((messages, "new message"), (calls, "tool call" if messages else "new tool call"))
        self._unseen = ", ".join(plural(count, noun) for count, noun in counted if count)
        self._unseen = self._unseen or ("more below" if more else "")
        self._show()

    def show_keys(self, *, selected: bool, more: KeyHint) -> None:
        """Show or hide the keys of the selected block."""
        self._selected, self._more = selected, more
        self._show()

    def on_click(self) -> None:
        """Post `Clicked` if there is something to scroll to."""
        if self._unseen:
            self.post_message(self.Clicked())

    def _show(self) -> None:
        keys = [KeyHint(does=f"↓ {self._unseen}")] if self._unseen else []
        if self._selected:
            more = [self._more] if self._more.key else []
            keys += [KeyHint("y", "copy"), KeyHint(does="open", id="open-block"), *more, BACK]
        elif keys:
            keys.append(KeyHint(does="shows the end", id="end"))
        self.update(KeyLegend([keys]).draw())
        self.display = bool(keys)


_ATTENTION = "bold $text-warning"
"""Style of what needs the user."""
BARS = "▁▂▃▄▅▆▇█"
"""Signs for a fraction, from 0 to 1."""
_NEARLY_FULL = 0.8
"""Used fraction of the context window from which on it needs attention."""
_CENT = 0.01
"""Cost from which on it is shown in cents."""


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


def status_parts(
    snapshot: "Snapshot",
    *,
    sandbox: "SandboxNote",
    seconds: int | None,
    tokens: int = 0,
    colour: str = "",
    bars: str = BARS,
) -> list[_Part]:
    """Return the parts in display order.

    `seconds` is the time since the turn was started or resumed here, None while none runs. `tokens` are those of the
    reply that streams. `colour` is that of the role. `bars` are signs for a fraction, lowest first.
    """
    parts = [_Part(snapshot.role, f"bold {colour}".rstrip(), stays=True)]
    if snapshot.role != snapshot.level.word:
        parts.append(_Part(f"· level {snapshot.level.word}", gap=" "))
    # The message field's frame names the model too.
    parts.append(_Part(_model(snapshot), early=1 if tokens else 0))
    parts += _turn_parts(snapshot, seconds=seconds, tokens=tokens)
    parts += _context_parts(snapshot, bars=bars)
    if spending := _spending(snapshot, running=seconds is not None):
        parts.append(_Part(spending, early=3))
    if snapshot.pending:
        parts.append(_Part(f"? {len(snapshot.pending)} pending", _ATTENTION, stays=True))
    if snapshot.contained:
        parts.append(_Part("contained", stays=True))
    if snapshot.queued:
        parts.append(_Part(f"{len(snapshot.queued)} queued", early=1))
    if sandbox.off:
        # The fact that commands run unsandboxed is always shown. The reason may be left out.
        return [*parts, _Part("sandbox off", _ATTENTION, stays=True), _Part(sandbox.text, gap=" ")]
    return [*parts, _Part("sandbox on")]


def _turn_parts(snapshot: "Snapshot", *, seconds: int | None, tokens: int) -> Iterator[_Part]:
    """Yield what the turn does; nothing while none runs."""
    if snapshot.questions:
        yield _Part(f"waits for your answer – {key_of('pending')}", _ATTENTION, stays=True)
    elif seconds is not None:
        yield _Part(f"working {spent(seconds)}" if seconds else "working", stays=True)
        if seconds and tokens:
            yield _Part(plural(tokens, "token"), gap=" · ")
        yield _Part("Esc stops", stays=True, gap=", ")


def _context_parts(snapshot: "Snapshot", *, bars: str) -> Iterator[_Part]:
    """Yield how full the context is, or how many tokens it has if its size is unknown."""
    if snapshot.context_window is None:
        yield _Part(f"ctx {count(snapshot.context_used)} tokens", early=1)
    elif snapshot.context_window:
        full = min(1.0, snapshot.context_used / snapshot.context_window)
        meter = f"{bars[min(len(bars) - 1, int(full * len(bars)))]} " if bars else ""
        warns = full >= _NEARLY_FULL
        yield _Part(f"ctx {meter}{int(100 * full)} %", _ATTENTION if warns else "", stays=warns, early=1)


def _spending(snapshot: "Snapshot", *, running: bool) -> str:
    """Return the cost of the session so far, else its tokens, which is all that is known without a price."""
    # Not before the first paint.
    from chatops.domain.messages import AssistantMessage

    usage = snapshot.usage
    if usage is None:
        # A failed turn, a stopped one, a command of the user and an undo have no reply whose tokens could have been
        # counted.
        replied = any(
            isinstance(message, AssistantMessage) and message.model and message.usage is None and not message.incomplete
            for message in snapshot.messages
        )
        return "" if running or not replied or snapshot.has_failed else "tokens unknown"
    if usage.cost:
        return money(usage.cost, cents_from=_CENT)
    return f"{count(usage.input_tokens)} in {count(usage.output_tokens)} out"


def fit_parts(parts: Sequence[_Part], *, width: int) -> list[_Part]:
    """Return the parts that fit into `width` cells. Parts are left out early ones first, then from the right."""
    kept = [index for index, part in enumerate(parts) if part.stays]
    for index in sorted(range(len(parts)), key=lambda index: (parts[index].early, index)):
        with_it = sorted({*kept, index})
        # A part with a narrow gap belongs to the one before it, and does not stand alone.
        may_stand = len(parts[index].gap) > 1 or index - 1 in kept
        if may_stand and _width([parts[other] for other in with_it]) <= width:
            kept = with_it
    return [parts[index] for index in kept]


class StatusLine(ErrorBoundary, Static, Moving):
    """Draws the parts that fit."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        counted: Callable[[], bool] = lambda: False,
        tokens: Callable[[], int] = lambda: 0,
        id: str | None = None,
    ) -> None:
        """Create the line.

        `counted` returns True while another time that passes is on the screen: one is enough. `tokens` returns those of
        the reply that streams.
        """
        super().__init__("", id=id, markup=False)
        self._clock = clock
        self._counted = counted
        self._tokens = tokens
        self._parts: list[_Part] = []
        self._in_progress: tuple[Snapshot, SandboxNote, str] | None = None
        """What was shown last of a turn that runs; None while none does."""
        self._since = 0.0
        """The time at which that turn was first seen to run, or from which on something is awaited."""
        self._seconds: int | None = None
        """The seconds that are shown; None while no turn runs."""
        self._awaited = ""
        """What is awaited before a session is open; empty if nothing is."""

    def show(self, snapshot: "Snapshot", *, sandbox: "SandboxNote", running: bool, colour: str = "") -> None:
        """Show the session's state. `colour` is that of its role."""
        if running and self._in_progress is None:
            self._since = self._clock()
        self._in_progress, self._awaited = (snapshot, sandbox, colour) if running else None, ""
        self._seconds = self._seconds_now() if running else None
        bars = BARS if getattr(self.app, "charset", "utf-8") == "utf-8" else ""
        tokens = self._tokens() if getattr(self.app, "moves", True) else 0
        parts = status_parts(snapshot, sandbox=sandbox, seconds=self._seconds, tokens=tokens, colour=colour, bars=bars)
        self._parts = [part._replace(text=sanitize(part.text, newlines=False)) for part in parts]
        self._draw()

    @property
    def moves(self) -> bool:
        """True while a turn runs, whose time is shown, or something is awaited."""
        return self._in_progress is not None or bool(self._awaited)

    def tick(self, *, second: bool) -> None:
        """Show how long the turn has taken, once a second, and the sign of what is awaited from the first one on."""
        seconds = int(self._clock() - self._since)
        if self._awaited and seconds:
            from chatops.tui.theme import SPINNER  # the first paint does without it

            frame = frame_at(self._clock(), SPINNER if getattr(self.app, "moves", True) else "")
            if frame or second:
                self._parts = [_Part(f"{frame} {self._awaited} {spent(seconds)}".lstrip())]
                self._draw()
        # A second of the turn does not begin with one of the clock.
        if self._in_progress is not None and self._seconds_now() != self._seconds:
            snapshot, sandbox, colour = self._in_progress
            self.show(snapshot, sandbox=sandbox, running=True, colour=colour)

    def _seconds_now(self) -> int:
        """Return the seconds to show; 0: none."""
        return 0 if self._counted() else int(self._clock() - self._since)

    def say(self, text: str, *, awaited: bool = False) -> None:
        """Show only this text, before a session is open. If that is `awaited`, its time passes."""
        self._awaited, self._since = text if awaited else "", self._clock()
        self._parts = [_Part(text)]
        self._draw()

    def on_resize(self) -> None:
        """Choose the parts for the new width."""
        self._draw()

    def _draw(self) -> None:
        parts = fit_parts(self._parts, width=self.content_size.width or 80)
        pieces = [((part.gap if at else "") + part.text, part.style) for at, part in enumerate(parts)]
        self.update(Content.assemble(*pieces), layout=False)


def _width(parts: Sequence[_Part]) -> int:
    return sum(cell_len(part.text) + (len(part.gap) if at else 0) for at, part in enumerate(parts))


def _model(snapshot: "Snapshot") -> str:
    label = snapshot.model_label or snapshot.model
    if not snapshot.is_demo:
        return label
    return label if "demo" in label.lower() and label.isupper() else "DEMO model, no AI"


def count(tokens: int) -> str:
    """Return a count such as ``830`` or ``12.4k``."""
    return str(tokens) if tokens < 1_000 else f"{tokens / 1_000:.1f}k"
