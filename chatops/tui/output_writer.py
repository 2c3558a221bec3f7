"""Output writer: writes to the terminal in a thread, so that drawing never waits for the terminal.

Theory of operation
-------------------
A terminal may be slow (a serial line), stop reading (a window that is being moved, a link that hangs) or be gone. The
event loop must notice none of that. `OutputWriter.write` encodes text and appends it to a queue; one thread writes the
queue in order, in small parts.

- The queue is bounded. Above `MAX_QUEUED` bytes, `skips_frame` tells the app to leave out frames. Once the terminal has
  read everything, `on_caught_up` is called and the app draws a whole frame. From `MAX_BYTES` on, text is dropped.
- `shown_for` says for how long the user can have seen the last frame. A dialog takes no key for a screen that may not
  have been seen.
- A write that fails means that the terminal is gone: the queue is dropped and `on_lost` is called once.
- `close` writes the sequences that restore the terminal, whatever else is dropped, and gives up after a time limit.

Text is encoded so that it keeps its width: characters that the terminal's charset lacks get a substitute of the same
width, C1 controls become question marks, and an emoji of several code points is anchored to the cells it is measured
as.

Why not a library: Textual's writer thread has a queue that blocks when it is full, and with it the event loop.
asyncio's pipe transports switch the terminal to non-blocking mode, which every program on it inherits.
"""

import codecs
import math
import os
import re
import select
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable
from functools import lru_cache

from rich.cells import cell_len

from chatops.domain.charset import ONE_CELL
from chatops.domain.sanitize import JOINED_EMOJI

MAX_QUEUED = 1 << 14
"""Waiting bytes, besides the largest frame, above which no further frame is drawn: 17 seconds at 9600 baud."""
MAX_BYTES = 1 << 20
"""Waiting bytes from which on all text is dropped."""
_LAG_S = 0.5
"""Seconds that output may wait before the user counts as seeing an older screen."""
_WRITE_BYTES = 4096
"""Bytes per write call: a call that blocks holds up no more than these."""
_POLL_S = 0.5
"""Seconds of a wait for a terminal that was left in non-blocking mode."""
_SUBSTITUTE_HANDLER = "chatops.cells"
"""The name under which codecs know `_substitute_error`."""
_AMBIGUOUS_EMOJI = f"{JOINED_EMOJI}|[^\x00-\x7f][\ufe0f\U0001f3fb-\U0001f3ff]|[0-9#*]\ufe0f\u20e3"
"""Emoji of several code points, on whose width terminals disagree."""
_AMBIGUOUS_SIGNS = "\u200d\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
"""Characters of which each of these has one: the joiner, the emoji variant, the skin tones."""
_C1_CONTROL = re.compile(r"[\x80-\x9f]")
_NEXT_ROW = re.compile(r"\x1b\[\d+;\d+H\n?(?=\x1b\[\d+;\d+H)|\n(?=\x1b\[\d+;\d+H)")
"""The end of a row, and positions in it where nothing is written, before the cursor is put somewhere anyway."""
_BETWEEN_PIECES = re.compile(r"\x1b\[0m((?:\x1b\[\d+;\d+H)?)\x1b\[([\d;]+)m")
"""The end of a piece and the start of the next one, perhaps elsewhere."""
_CODES = re.compile(r"\x1b\[([\d;:]*)m")
_COLOUR_DEFAULTS = {"38": "39", "48": "49"}
"""The parameter that sets a colour of its own, and the one that sets the default again."""
_ATTRIBUTE_ENDS = {"1": "22", "2": "22", "3": "23", "4": "24", "7": "27", "9": "29"}
"""The parameter that sets an attribute, and the one that ends it. 22 ends both bold and faint."""


class OutputWriter:
    """Writes text to one file descriptor, in order.

    `on_caught_up` is called when the terminal has read everything after frames were left out, `on_lost` when it is
    gone. Both are called from the writing thread.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        encode: Callable[[str], bytes],
        on_caught_up: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._encode = encode
        self._on_caught_up = on_caught_up
        self._on_lost = on_lost
        self._queue: deque[bytes] = deque()
        self._size = 0
        """Bytes that wait."""
        self._largest = 0
        """Bytes of the longest text since the queue was last empty."""
        self._skipped = False
        """True after a frame was left out, until the terminal has caught up."""
        self._queued_since: float | None = None
        """Time at which the queue last became non-empty."""
        self._lagged_until = -math.inf
        """The time at which the terminal had last caught up after output had waited for long."""
        self._closing = False
        """True once no further text is taken: on closing, or when the terminal is gone."""
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="terminal-output", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Queue `text`. It is dropped if `MAX_BYTES` bytes wait already."""
        data = self._encode(text)
        with self._condition:
            if self._size < MAX_BYTES and not self._closing:
                self._queue.append(data)
                self._size += len(data)
                self._largest = max(self._largest, len(data))
                self._queued_since = self._queued_since or time.monotonic()
                self._condition.notify_all()

    @property
    def is_idle(self) -> bool:
        """True if nothing waits to be written."""
        with self._condition:
            return not self._size

    def shown_for(self) -> float:
        """Return for how many seconds the user can have seen the last frame; 0 while the terminal lags behind."""
        with self._condition:
            now = time.monotonic()
            if self._skipped or (self._queued_since is not None and now - self._queued_since > _LAG_S):
                return 0.0
            return now - self._lagged_until

    def skips_frame(self) -> bool:
        """Return True if this frame should be skipped. `on_caught_up` will then be called later.

        One frame of any size is no lag. A large screen's whole frame exceeds `MAX_QUEUED` by itself: if it counted, the
        next small frame would be left out, the whole screen would be drawn to make up for it, and so on forever.
        """
        with self._condition:
            self._skipped = self._skipped or self._size - self._largest > MAX_QUEUED or self._size > MAX_BYTES // 2
            return self._skipped

    def close(self, last: str, *, timeout_s: float) -> bool:
        """Write `last` last and end. Return False if the terminal did not read it within `timeout_s` seconds.

        Waiting frames may be dropped, `last` is not.
        """
        data = self._encode(last)
        with self._condition:
            if self._size > MAX_QUEUED:
                self._queue.clear()
                self._size = 0
            self._queue.append(data)
            self._size += len(data)
            self._closing = True
            self._condition.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._queue and not self._closing:
                    self._condition.wait()
                if not self._queue:
                    return
                data = self._queue.popleft()
            if not self._write_all(data):
                return
            with self._condition:
                self._size = max(0, self._size - len(data))
                recovered = self._skipped and not self._queue
                self._skipped = self._skipped and not recovered
                self._note_lag()
            if recovered:
                self._on_caught_up()

    def _note_lag(self) -> None:
        if self._queue or self._queued_since is None:
            return
        self._largest = 0
        now = time.monotonic()
        if now - self._queued_since > _LAG_S:
            self._lagged_until = now
        self._queued_since = None

    def _write_all(self, data: bytes) -> bool:
        """Write all of it. Return False once the terminal is gone."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view[:_WRITE_BYTES]) :]
            except BlockingIOError:
                # Another program has left the terminal in non-blocking mode.
                select.select([], [self._descriptor], [], _POLL_S)
            except OSError:
                self._terminal_gone()
                return False
        return True

    def _terminal_gone(self) -> None:
        with self._condition:
            self._closing = True
            self._queue.clear()
            self._size = 0
        self._on_lost()


def encoder_for(charset: str) -> Callable[[str], bytes]:
    """Return the function that encodes text for the terminal. It never raises; escape sequences stay as they are."""
    codecs.register_error(_SUBSTITUTE_HANDLER, _substitute_error)
    errors = "replace" if charset == "utf-8" else _SUBSTITUTE_HANDLER

    def encode(text: str) -> bytes:
        # Some terminals obey C1 controls like an escape. The app uses none of them.
        return (text if text.isascii() else _C1_CONTROL.sub("?", text)).encode(charset, errors)

    return encode


def with_anchored_emoji(text: str) -> str:
    """Return `text` with each emoji of several code points (👩‍👩‍👧, ❤️) in exactly the cells it is measured as.

    Terminals disagree on these cells. So they are blanked, the emoji is written over them, and the following text is
    written at its own position, each time from the cursor saved before the emoji (DECSC, DECRC, CUF).
    """
    # Almost no frame has one, and searching for the signs is much faster than searching for the emoji.
    return re.sub(_AMBIGUOUS_EMOJI, _anchor_emoji, text) if any(sign in text for sign in _AMBIGUOUS_SIGNS) else text


def _anchor_emoji(found: re.Match[str]) -> str:
    cells = cell_len(found[0])
    return f"\x1b7{' ' * cells}\x1b8\x1b7{found[0]}\x1b8\x1b[{cells}C"


def _substitute_error(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return ascii_substitute(error.object[error.start : error.end]), error.end


def ascii_substitute(text: str) -> str:
    """Return ASCII text of the same width for `text`, which cannot be shown.

    Signs become signs of the same meaning, letters lose their accents, and anything else becomes a question mark per
    cell.
    """
    width = cell_len(text)
    shown = "".join(_ascii_character(char) for char in text)
    return shown if len(shown) == width else "?" * width


def _ascii_character(char: str) -> str:
    width = cell_len(char)
    sign = ONE_CELL.get(char) or unicodedata.normalize("NFKD", char)[0]
    return sign.ljust(width) if sign.isascii() and width else "?" * width


def with_short_styles(text: str) -> str:
    """Return `text`, in which each styled piece ends with a reset, with shorter codes of the same effect.

    Style codes are most of a frame's bytes. Textual writes each piece of a line with all of its colours and a reset
    after it, some 40 bytes for a word. Where another piece follows at once, only what differs from the style before it
    is needed. ECMA-48, section 8.3.117 (SGR).
    """
    first, *rest = _BETWEEN_PIECES.split(_NEXT_ROW.sub("", text))
    written, before = [first], _last_codes(first, instead="")
    for move, codes, piece in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        written += (move, _style_change(before, codes), piece)
        # Text without a style may follow in the same piece, and then text with another one. The cursor may move in it.
        before = _last_codes(piece, instead=codes) if "\x1b[" in piece else codes
    return "".join(written)


def _last_codes(text: str, *, instead: str) -> str:
    found = _CODES.findall(text)
    return found[-1] if found else instead


@lru_cache(maxsize=4096)
def _style_change(before: str, after: str) -> str:
    """Return the sequence that changes one style into another, given as SGR parameters."""
    old, new = _parse_style(before), _parse_style(after)
    after_reset = f"\x1b[0;{after}m"
    if old is None or new is None:
        return after_reset
    ended = old.keys() - _COLOUR_DEFAULTS.keys() - new.keys()
    if not ended <= _ATTRIBUTE_ENDS.keys():
        return after_reset
    ends = sorted({_ATTRIBUTE_ENDS[name] for name in ended})
    # 22 also ends the other one of bold and faint, which is then set again.
    remaining = [name for name in old if _ATTRIBUTE_ENDS.get(name) not in ends]
    parts = ends + [new.get(name, off) for name, off in _COLOUR_DEFAULTS.items() if old.get(name) != new.get(name)]
    parts += [name for name in new if name not in remaining and name not in _COLOUR_DEFAULTS]
    return min(after_reset, f"\x1b[{';'.join(parts)}m", key=len) if parts else ""


def _parse_style(codes: str) -> dict[str, str] | None:
    """Return the attributes and colours by name, the first parameter; None if these are no such parameters."""
    left, style = codes.split(";"), dict[str, str]()
    while left:
        name, *left = left
        if not name.isdecimal() or name == "0":
            return None
        if name in _COLOUR_DEFAULTS:
            size = {"2": 4, "5": 2}.get(left[0] if left else "", 0)
            if not size or len(left) < size:
                return None
            style[name], left = ";".join([name, *left[:size]]), left[size:]
        elif 30 <= int(name) <= 49 or int(name) >= 90:
            # A colour of the terminal's own palette, or its default one: 30s and 90s for text, others behind it.
            style["38" if int(name) // 10 in (3, 9) else "48"] = name
        else:
            style[name] = name
    return style
