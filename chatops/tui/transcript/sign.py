"""The sign where the answer will come: a line after the last block, which moves while nothing else does.

It stands there while a model is awaited: ``⠋ 3 s · 212 tokens · Esc to stop``, the time and the tokens of the current
reply. It goes when text flows, which then shows that something moves, and the status line has the time and the tokens.
It comes back if text stalls, as it does while a model writes a long call, whose tool and file it names and whose tokens
count too. If the server sends nothing more, it says for how long. From then on it stays until the reply ends, so that
it does not come and go beneath text that is read. It reads no clock: `tick` and `follow` get the time.

While a command does long work, the line says how far that is instead.
"""

import math
from collections.abc import Iterable

from rich.text import Text

from chatops.domain.events import (
    ApprovalRequested,
    CallProposed,
    CallStreamed,
    Published,
    ReasoningDelta,
    RoundStarted,
    TextDelta,
    ThoughtFinished,
    ToolStarted,
    TurnCorrected,
    TurnFinished,
    TurnPaused,
    TurnStarted,
)
from chatops.domain.progress import Progress
from chatops.domain.wording import one_line, plural, spent
from chatops.engine.transcript import CHARACTERS_PER_TOKEN
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.lines import GUTTER

_STALLED_S = 2.0
"""Seconds without text after which the sign comes back."""

_SILENT_S = 5.0
"""Seconds without any data of a reply that has begun from which on the line says so."""
_SAY_WAITING_S = 3
"""Seconds without any token from which on the line says what it waits for; at once if nothing moves."""
_ROOMY_WIDTH = 60
"""Columns from which on there is room for that."""
_LONGEST_NAME, _BESIDE_NAME = 60, 50
"""Characters of the names of tool and file, which a model has made up, and columns of what stands beside them."""


class Sign:
    """What is known of the reply that is awaited."""

    def __init__(self) -> None:
        self._running = False
        self._awaited = True
        """False while calls are settled, which have cards."""
        self._role = ""
        self._asked_at = self._data_at = 0.0
        """Times at which the current reply was asked for, and of its last data."""
        self._writes = ""
        """The tool whose call is being written, and its file, as far as they are known."""
        self._text_at: float | None = None
        """Time of the last text of the reply; None before the first one, and after text has stalled."""
        self._stalled = False
        self._received = 0
        """Characters of the reply so far."""
        self._seconds = self._tokens = 0
        """The seconds and tokens that the line shows. Both change once a second."""
        self._silent = False
        """True if a reply that had begun got no more data at the last `tick`. Then `_seconds` counts from its last."""
        self.work: Progress | None = None
        """Long work of a command, as far as it is known."""
        self._shown_work: Progress | None = None
        """`work` as the line shows it, once it has taken long enough, and the second of it that is shown."""
        self._shown_work_second = 0

    def run(self, *, running: bool, role: str, now: float) -> None:
        """Adopt whether a turn runs here that does not wait for the user, and its role."""
        if not running or not self._running:
            self._begin(now)
            self._awaited = True
        self._running, self._role = running, role

    def _begin(self, now: float) -> None:
        self._asked_at, self._text_at, self._stalled, self._writes = now, None, False, ""
        self._received = self._tokens = self._seconds = 0
        self._silent = False

    def follow(self, batch: Iterable[Published], *, now: float) -> None:
        """Follow what happens in the turn."""
        for published in batch:
            match published.event:
                case TurnStarted() | TurnCorrected() | RoundStarted():
                    self._begin(now)
                    self._awaited = True
                case CallProposed() | ApprovalRequested() | ToolStarted() | TurnPaused():
                    self._awaited = False
                case ThoughtFinished():
                    self._data_at = math.inf  # No more is to come.
                case TurnFinished():
                    self._running = self._awaited = False
                case ReasoningDelta(text=text):
                    self._receive(len(text), now)
                case CallStreamed(characters=characters, tool=tool, path=path):
                    self._receive(characters, now)
                    self._writes = f"{tool} {path}".rstrip() if tool else ""
                case TextDelta(text=text):
                    self._receive(len(text), now)
                    if text.strip() or self._text_at is not None:
                        self._text_at = now
                case _:
                    pass

    def _receive(self, characters: int, now: float) -> None:
        self._received += characters
        self._data_at = now

    def tick(self, now: float, *, calm: bool = False) -> bool:
        """Notice that time has passed. Return True if the line has to be drawn again, if `calm` once a second."""
        before = self._seconds, self.shown, self._shown_work, self._shown_work_second, self._silent
        work = self.work if self.work is not None and self.work.is_due(now) else None
        second = int(now - work.since) if work is not None else 0
        if not calm or work is None or self._shown_work is None or second != self._shown_work_second:
            self._shown_work, self._shown_work_second = work, second
        self._stalled |= self._text_at is not None and now - self._text_at >= _STALLED_S
        self._silent = bool(self._received) and now - self._data_at >= _SILENT_S
        self._seconds = int(now - (self._data_at if self._silent else self._asked_at)) if self._running else 0
        if self._seconds != before[0]:
            # No server counts the tokens of a reply before its end.
            self._tokens = -(-self._received // CHARACTERS_PER_TOKEN)
        return (self._seconds, self.shown, self._shown_work, self._shown_work_second, self._silent) != before

    @property
    def tokens(self) -> int:
        """The tokens of the current reply as of the last second; 0 while none is awaited."""
        return self._tokens if self._running and self._awaited else 0

    @property
    def running(self) -> bool:
        """True while a turn runs that does not wait for the user, or a command works long."""
        return self._running or self.work is not None

    @property
    def shown(self) -> bool:
        """True while the model is awaited and no text flows, or a command has worked for long."""
        text_flows = self._text_at is not None and not self._stalled
        return self._shown_work is not None or (self._running and self._awaited and not text_flows)

    def line(self, frame: str, theme: BlockTheme, *, width: int, now: float) -> Text:
        """Return the line without the gutter. `frame` is the moving sign; empty if nothing is to move but the time."""
        if self._shown_work is not None:
            sign = Text(f"{frame} " if frame else "", theme.role(self._role), end="")
            return sign.append_text(progress_text(self._shown_work, theme, width=width - GUTTER - 2, now=now))
        parts = [spent(self._seconds), "Esc to stop"] if self._seconds else []
        if self._silent:
            parts[0] = f"no data for {parts[0]}"
        elif frame and self._tokens:
            parts.insert(1, plural(self._tokens, "token"))
        if self._writes and width >= _ROOMY_WIDTH:
            parts.insert(0, f"writing {one_line(self._writes, most=min(_LONGEST_NAME, width - _BESIDE_NAME))}")
        elif (not frame or now - self._asked_at >= _SAY_WAITING_S) and not self._received and width >= _ROOMY_WIDTH:
            parts.insert(0, "waiting for the model")
        words = f" {theme.symbols.dot} ".join(parts)
        line = Text(end="")
        if frame:
            line.append(f"{frame} ", theme.role(self._role))
        return line.append(words, theme.muted)


def progress_text(progress: Progress, theme: BlockTheme, *, width: int, now: float) -> Text:
    """Return how far long work is: what it is where there is room, a bar if something may move, and words."""
    filled, empty = progress.bar(width) if theme.spinner else ("", "")
    text = Text(f"{progress.what}  " if width >= _ROOMY_WIDTH else "", theme.text, end="")
    text.append(filled, theme.good).append(empty, theme.muted).append("  " if filled + empty else "")
    text.append(progress.words(now, between=f" {theme.symbols.dot} "), theme.muted)
    text.truncate(max(1, width))
    return text
