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
from dataclasses import dataclass, replace

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
from chatops.domain.frozen_dataclass import frozen_dataclass
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


@dataclass(eq=False, slots=True)
class _Reply:
    """The reply that is awaited, as far as it has come."""

    asked_at: float
    data_at: float
    """Time of its last data; infinite once no more is to come."""
    characters: int = 0
    text_at: float | None = None
    """Time of its last text; None before the first one."""
    has_stalled: bool = False
    """True once its text has stalled. The sign then stays until the reply ends."""
    writes: str = ""
    """The tool whose call is being written, and its file, as far as they are known."""

    def receive(self, characters: int, now: float) -> None:
        """Count data that has come."""
        self.characters += characters
        self.data_at = now

    def receive_text(self, text: str, now: float) -> None:
        """Count text that has come. Blank lines before the first word do not count as flowing text."""
        self.receive(len(text), now)
        if text.strip() or self.text_at is not None:
            self.text_at = now

    @property
    def text_flows(self) -> bool:
        """True while text comes, which itself shows that something moves."""
        return self.text_at is not None and not self.has_stalled


@frozen_dataclass
class _Facts:
    """Facts that the line states."""

    seconds: int = 0
    """The seconds since the reply was asked for, or since its last data if it is `silent`."""
    tokens: int = 0
    """The tokens of the reply when `seconds` changed last."""
    silent: bool = False
    """True if a reply that had begun gets no more data."""
    work: Progress | None = None
    """Long work of a command, once it has taken long enough."""
    work_seconds: int = 0


class Sign:
    """State of the awaited reply, and of a command that works long."""

    def __init__(self) -> None:
        self._running = False
        self._awaited = True
        """False while calls are settled, which have cards."""
        self._role = ""
        self._reply = _Reply(asked_at=0.0, data_at=0.0)
        self._facts = _Facts()
        """As of the last `tick`."""
        self.work: Progress | None = None
        """Long work of a command, as far as it is known."""

    def run(self, *, running: bool, role: str, now: float) -> None:
        """Adopt whether a turn runs here that does not wait for the user, and its role."""
        if not running or not self._running:
            self._begin(now)
        self._running, self._role = running, role

    def _begin(self, now: float) -> None:
        """Await a reply that is asked for now."""
        self._awaited, self._reply = True, _Reply(asked_at=now, data_at=now)
        self._facts = replace(self._facts, seconds=0, tokens=0, silent=False)

    def follow(self, batch: Iterable[Published], *, now: float) -> None:
        """Follow what happens in the turn."""
        for published in batch:
            match published.event:
                case TurnStarted() | TurnCorrected() | RoundStarted():
                    self._begin(now)
                case CallProposed() | ApprovalRequested() | ToolStarted() | TurnPaused():
                    self._awaited = False
                case ThoughtFinished():
                    self._reply.data_at = math.inf
                case TurnFinished():
                    self._running = self._awaited = False
                case ReasoningDelta(text=text):
                    self._reply.receive(len(text), now)
                case CallStreamed(characters=characters, tool=tool, path=path):
                    self._reply.receive(characters, now)
                    self._reply.writes = f"{tool} {path}".rstrip() if tool else ""
                case TextDelta(text=text):
                    self._reply.receive_text(text, now)
                case _:
                    pass

    def tick(self, now: float, *, calm: bool = False) -> bool:
        """Notice that time has passed. Return True if the line has to be drawn again, if `calm` once a second."""
        before, was_shown, reply = self._facts, self.shown, self._reply
        reply.has_stalled |= reply.text_at is not None and now - reply.text_at >= _STALLED_S
        silent = bool(reply.characters) and now - reply.data_at >= _SILENT_S
        since = reply.data_at if silent else reply.asked_at
        seconds = int(now - since) if self._running else 0
        # No server counts the tokens of a reply before its end.
        tokens = before.tokens if seconds == before.seconds else -(-reply.characters // CHARACTERS_PER_TOKEN)
        self._facts = replace(before, seconds=seconds, tokens=tokens, silent=silent)
        work = self.work if self.work is not None and self.work.is_due(now) else None
        work_seconds = int(now - work.since) if work is not None else 0
        if not calm or work is None or before.work is None or work_seconds != before.work_seconds:
            self._facts = replace(self._facts, work=work, work_seconds=work_seconds)
        return (self._facts, self.shown) != (before, was_shown)

    @property
    def tokens(self) -> int:
        """The tokens of the current reply as of the last second; 0 while none is awaited."""
        return self._facts.tokens if self._running and self._awaited else 0

    @property
    def running(self) -> bool:
        """True while a turn runs that does not wait for the user, or a command works long."""
        return self._running or self.work is not None

    @property
    def shown(self) -> bool:
        """True while the model is awaited and no text flows, or a command has worked for long."""
        return self._facts.work is not None or (self._running and self._awaited and not self._reply.text_flows)

    def line(self, frame: str, theme: BlockTheme, *, width: int, now: float) -> Text:
        """Return the line without the gutter. `frame` is the moving sign; empty if nothing is to move but the time."""
        facts, reply = self._facts, self._reply
        if facts.work is not None:
            sign = Text(f"{frame} " if frame else "", theme.role(self._role), end="")
            return sign.append_text(progress_text(facts.work, theme, width=width - GUTTER - 2, now=now))
        parts = [spent(facts.seconds), "Esc to stop"] if facts.seconds else []
        if facts.silent:
            parts[0] = f"no data for {parts[0]}"
        elif frame and facts.tokens:
            parts.insert(1, plural(facts.tokens, "token"))
        says_waiting = not frame or now - reply.asked_at >= _SAY_WAITING_S
        if reply.writes and width >= _ROOMY_WIDTH:
            parts.insert(0, f"writing {one_line(reply.writes, most=min(_LONGEST_NAME, width - _BESIDE_NAME))}")
        elif says_waiting and not reply.characters and width >= _ROOMY_WIDTH:
            parts.insert(0, "waiting for the model")
        line = Text(end="").append(f"{frame} " if frame else "", theme.role(self._role))
        return line.append(f" {theme.symbols.dot} ".join(parts), theme.muted)


def progress_text(progress: Progress, theme: BlockTheme, *, width: int, now: float) -> Text:
    """Return how far long work is: what it is where there is room, a bar if something may move, and words."""
    filled, empty = progress.bar(width) if theme.spinner else ("", "")
    text = Text(f"{progress.what}  " if width >= _ROOMY_WIDTH else "", theme.text, end="")
    text.append(filled, theme.good).append(empty, theme.muted).append("  " if filled + empty else "")
    text.append(progress.words(now, between=f" {theme.symbols.dot} "), theme.muted)
    text.truncate(max(1, width))
    return text
