"""The terminal driver: takes the terminal, reads keys, writes frames, and restores the terminal on every exit.

Theory of operation
-------------------
Textual's own Linux driver does not fit an app that must keep running on any terminal:

- It writes through a queue that blocks when the terminal stops reading, and does not expect it to disappear.
- It starts a second time after SIGCONT, and takes up to 0.2 s to quit.
- Its parser takes late parts of a sequence for typed text, and splits a paste without marks into characters.

This driver replaces terminal modes, input, output and signals. Only the meaning of keys stays Textual's. Three parts
work together:

- Output: `write` passes text to an `OutputWriter`, whose thread writes to the terminal. The event loop never waits for
  the terminal. While the terminal is far behind, `skips_frame` tells the app to leave out frames, and `redraw` draws a
  whole one once it has caught up. `shown_for` says how long the user can have seen the last frame; dialogs ignore keys
  that came too early.
- Input: a `KeyReader` reads the terminal in a thread, and posts events to the app from there.
- Signals: SIGTSTP, SIGCONT and SIGWINCH are handled on the event loop, between two steps of it. Textual's handlers
  would run between any two instructions.

States. The terminal is either taken (`_writer` is set) or given back. `start_application_mode` and
`stop_application_mode` switch between them, and both are idempotent. In the second state nothing is written, so that
another program can use the terminal.

Rules for giving the terminal back:

- First everything that sends by itself is switched off (mouse, focus, paste marks). Then the key thread ends, and
  unread input is flushed, so that no shell runs it.
- `_LEAVE` undoes `_ENTER` in reverse and ends a frame that was cut off.
- A terminal that reads nothing delays quitting by `_CLOSE_TIMEOUT_S` at most. `is_unresponsive` then tells the caller
  not to write any more.

If reading or writing fails, the terminal is gone. `on_lost` is called once, on the event loop.

After SIGCONT, a shell may have drawn and changed modes in between. The modes are set again and everything is redrawn.
"""

import asyncio
import contextlib
import contextvars
import fcntl
import os
import signal
import struct
import sys
import termios
import tty
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual import constants, events
from textual.driver import Driver
from textual.geometry import Size

from chatops.tui.graphics import ASK_NAME
from chatops.tui.key_reader import KeyReader
from chatops.tui.output_writer import OutputWriter, encoder_for, with_anchored_emoji, with_short_styles

if TYPE_CHECKING:
    from textual.app import App

_CLOSE_TIMEOUT_S = 0.5
"""Seconds that quitting waits for a terminal that reads nothing."""
_REDRAW_AFTER_S = 0.1
"""Seconds after the last resize until a redraw: the window may have shrunk and grown faster than frames were drawn."""

_INPUT_FLAGS = termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
"""Flow control and changes of line ends, which are switched off: ctrl+s, ctrl+q and ctrl+j are keys."""
_LOCAL_FLAGS = termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG
"""Echo, line editing and signals by key, which are switched off."""
_KEYBOARD_FLAGS = 0b11001
"""Kitty's keyboard protocol: unambiguous escape codes (1), all keys as escape codes (8), with their text (16)."""
_MOUSE_MODES = ("1000", "1003", "1015", "1006")
_ENTER = (
    "\x1b[?1049h"
    + "".join(f"\x1b[?{mode}h" for mode in _MOUSE_MODES)
    + "\x1b[?25l\x1b[?1004h\x1b[?2004h\x1b[?7l"
    + ("" if constants.DISABLE_KITTY_KEY else f"\x1b[>{_KEYBOARD_FLAGS}u")
)
"""Alternate screen, mouse, no cursor, focus reports, bracketed paste, no line wrap, keyboard protocol."""
_STOP_REPORTS = "".join(f"\x1b[?{mode}l" for mode in (*_MOUSE_MODES, "1004", "2004"))
_LEAVE = (
    _STOP_REPORTS
    + "\x1b[?2026l\x1b[?7h"
    + ("" if constants.DISABLE_KITTY_KEY else "\x1b[<u")
    + "\x1b]22;\x07\x1b[0m\x1b[?1049l\x1b[?25h"
)
"""The reverse of `_ENTER`, and the end of a frame that was cut off."""
_ENTER_AGAIN = ("" if constants.DISABLE_KITTY_KEY else "\x1b[<u") + _ENTER
"""Keyboard modes are a stack: pop the old entry before pushing it again."""
_QUERY_MODES = "\x1b[?2026$p\x1b[?2004$p"
"""Ask if the terminal draws whole frames at once (mode 2026) and marks pastes (mode 2004)."""

_QUERY_BACKGROUND = "\x1b]11;?\x1b\\"
"""Ask for the colour of the background (OSC 11)."""


class TerminalDriver(Driver):
    """Driver for a terminal on standard input and output. `charset` is a Python codec.

    `on_lost` is called on the event loop when the terminal is gone, `redraw` when everything must be drawn again.
    `takes_text` is called in the key thread. It returns True if a printable character can only be inserted, whether it
    was typed or is the start of a paste. `on_background` gets the terminal's answers on the colour of its background,
    and `on_answer` all its other answers, first its name. Without them, the terminal is not asked. `on_entered` is
    called each time that the terminal was taken, `on_leaving` returns what is written before it is given back.
    """

    def __init__(
        self,
        app: "App[Any]",
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
        charset: str = "utf-8",
        on_lost: Callable[[], None],
        redraw: Callable[[], None],
        takes_text: Callable[[], bool],
        on_background: Callable[[str], None] | None = None,
        on_answer: Callable[[str], None] | None = None,
        on_entered: Callable[[], None] = lambda: None,
        on_leaving: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._target = app
        self._event_loop = asyncio.get_running_loop()
        self._in = (sys.__stdin__ or sys.__stderr__).fileno()  # type: ignore[union-attr]
        self._out = (sys.__stdout__ or sys.__stderr__).fileno()  # type: ignore[union-attr]
        self._encode = encoder_for(charset)
        self._charset = charset
        self._on_lost = on_lost
        self._redraw = redraw
        self._takes_text = takes_text
        self._on_background = on_background
        self._on_answer = on_answer
        self._on_entered, self._on_leaving = on_entered, on_leaving
        self._writer: OutputWriter | None = None
        self._keys: KeyReader | None = None
        """None while no keys are read."""
        self._before: list[Any] | None = None
        """The terminal's settings before the app took it. None if it has none."""
        self._redraw_timer: asyncio.TimerHandle | None = None
        """Redraws everything soon after the window has changed its size."""
        self._is_lost = False
        self.is_unresponsive = False
        """True if the terminal did not read even the final output. Writing to it would block."""
        # A thread has no context of its own; keep the one in which the app runs.
        self._context = contextvars.copy_context()

    @property
    def can_suspend(self) -> bool:
        """True: `App.suspend` may give the terminal to another program."""
        return True

    # Output

    def write(self, data: str) -> None:
        """Queue text for the terminal without waiting. Nothing is written while another program has the terminal."""
        if self._writer is not None:
            self._writer.write(with_anchored_emoji(with_short_styles(data)))

    def skips_frame(self) -> bool:
        """Return True if the terminal lags so far behind that a frame is left out. `redraw` follows later."""
        return self._writer is not None and self._writer.skips_frame()

    @property
    def is_idle(self) -> bool:
        """True if nothing waits to be written."""
        return self._writer is None or self._writer.is_idle

    def shown_for(self) -> float:
        """Return for how many seconds the user can have seen the last frame; 0 while the terminal lags behind."""
        return self._writer.shown_for() if self._writer is not None else 0.0

    # Taking the terminal and giving it back

    def start_application_mode(self) -> None:
        """Take the terminal and start reading keys."""
        if self._writer is not None:
            return
        # In the background, this stops the process until it is brought to the front.
        self._before = self._settings()
        self._make_raw()
        typed_ahead = self._typed_ahead()
        self._writer = OutputWriter(
            self._out,
            encode=self._encode,
            on_caught_up=lambda: self._call_soon(self._redraw),
            on_lost=lambda: self._call_soon(self._terminal_lost),
        )
        self.write(_ENTER + _QUERY_MODES + ("" if self._on_background is None else _QUERY_BACKGROUND))
        self.write("" if self._on_answer is None else ASK_NAME)
        self._on_entered()
        self._handle_signals()
        self._keys = KeyReader(
            self._in,
            charset=self._charset,
            typed_ahead=typed_ahead,
            takes_text=self._takes_text,
            on_event=self.process_message,
            on_answer=self._answered,
            on_lost=lambda: self._call_soon(self._terminal_lost),
        )
        self._post_size()

    def stop_application_mode(self) -> None:
        """Give the terminal back. Repeated calls do nothing."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        # First switch off what the terminal sends by itself. What it has sent until then is discarded with the keys.
        writer.write(_STOP_REPORTS)
        self.disable_input()
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._in, termios.TCSANOW, self._before)
        self.is_unresponsive = not writer.close(self._on_leaving() + _LEAVE, timeout_s=_CLOSE_TIMEOUT_S)

    def disable_input(self) -> None:
        """End the key thread and discard unread keys, so that no shell runs them."""
        keys, self._keys = self._keys, None
        if keys is None:
            return
        self._event_loop.remove_signal_handler(signal.SIGWINCH)
        if self._redraw_timer is not None:
            self._redraw_timer.cancel()
        keys.stop()
        with contextlib.suppress(termios.error):
            termios.tcflush(self._in, termios.TCIFLUSH)

    def close(self) -> None:
        """Give the terminal back and remove the signal handlers."""
        self.stop_application_mode()
        for number in (signal.SIGTSTP, signal.SIGCONT):
            self._event_loop.remove_signal_handler(number)

    def suspend_application_mode(self) -> None:
        """Give the terminal to another program for a while.

        Its ctrl+c is not meant for this process, and its ctrl+z stops both.
        """
        self.stop_application_mode()
        self._event_loop.add_signal_handler(signal.SIGINT, lambda: None)
        self._event_loop.remove_signal_handler(signal.SIGTSTP)

    def resume_application_mode(self) -> None:
        """Take the terminal back from the other program."""
        self._event_loop.add_signal_handler(signal.SIGINT, self._on_lost)
        self.start_application_mode()

    def _settings(self) -> list[Any] | None:
        with contextlib.suppress(termios.error):
            settings = termios.tcgetattr(self._in)
            termios.tcsetattr(self._in, termios.TCSANOW, settings)
            return settings
        return None

    def _make_raw(self) -> None:
        if self._before is None:
            return
        raw = [*self._before[: tty.CC], [*self._before[tty.CC]]]
        raw[tty.IFLAG] &= ~_INPUT_FLAGS
        raw[tty.LFLAG] &= ~_LOCAL_FLAGS
        raw[tty.CC][termios.VMIN] = 1
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, raw)

    def _typed_ahead(self) -> int:
        """Return the number of bytes that were typed before the app took the terminal."""
        if self._before is None:
            return 0
        with contextlib.suppress(OSError):
            (waiting,) = struct.unpack("i", fcntl.ioctl(self._in, termios.FIONREAD, b"\0" * 4))
            return int(waiting)
        return 0

    # Signals

    def _handle_signals(self) -> None:
        self._event_loop.add_signal_handler(signal.SIGWINCH, self._resized)
        self._event_loop.add_signal_handler(signal.SIGTSTP, self.stop_process)
        self._event_loop.add_signal_handler(signal.SIGCONT, self._continued)

    def stop_process(self, *, group: bool = False) -> None:
        """Give the terminal to the shell and stop the process until ``fg``.

        `group` stops the whole job, as ctrl+z does. If no shell could continue it (a window of its own for the app),
        the kernel does not stop anything.
        """
        self.stop_application_mode()
        self._event_loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(0 if group else os.getpid(), signal.SIGTSTP)
        # The process is stopped and continued here.
        self.start_application_mode()
        self._redraw()

    def _continued(self) -> None:
        """Set up the terminal again after SIGCONT, because a shell may have drawn and changed modes meanwhile."""
        if self._writer is not None:
            self._make_raw()
            if self._keys is not None:
                self._keys.typed_ahead = self._typed_ahead()
            self.write(self._on_leaving() + _ENTER_AGAIN)
            self._on_entered()
            self._post_size()
            self._redraw()

    def _resized(self) -> None:
        self._post_size()
        if self._redraw_timer is not None:
            self._redraw_timer.cancel()
        self._redraw_timer = self._event_loop.call_later(_REDRAW_AFTER_S, self._redraw)

    def _post_size(self) -> None:
        size = Size(*self._terminal_size())
        self._call_soon(lambda: self._target.post_message(events.Resize(size, size)))

    def _terminal_size(self) -> tuple[int, int]:
        """Return columns and rows as the terminal reports them. COLUMNS and LINES may be of another window."""
        with contextlib.suppress(OSError):
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(self._out, termios.TIOCGWINSZ, b"\0" * 8))
            if rows and columns:
                return columns, rows
        return 80, 24

    # Calls to the app

    def _answered(self, text: str) -> None:
        """Pass on an answer of the terminal: that about its background begins with OSC."""
        listener = self._on_background if text.startswith("\x1b]") else self._on_answer
        if listener is not None:
            self._call_soon(partial(listener, text))

    def _terminal_lost(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._on_lost()

    def _call_soon(self, act: Callable[[], object]) -> None:
        """Run `act` on the event loop. Can be called from any thread."""
        with contextlib.suppress(RuntimeError):
            self._event_loop.call_soon_threadsafe(cast(Callable[[], None], act), context=self._context)
