"""How the app holds a terminal: takes it, reads keys, writes frames, and gives it back as it was in every way out.

Textual's own driver writes through a queue that stands still with the terminal, does not expect the terminal to be
gone, starts a second time after SIGCONT, and takes up to 0.2 s to leave. What stays Textual's is the meaning of keys.
"""

import asyncio
import codecs
import contextlib
import contextvars
import fcntl
import os
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, assert_never, cast

from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import (
    KITTY_DISAMBIGUATE_ESCAPE_CODES,
    KITTY_REPORT_ALL_KEYS,
    KITTY_REPORT_ASSOCIATED_TEXT,
    LinuxDriver,
)
from textual.geometry import Size
from textual.message import Message

from chatops.tui.cells import anchored, encoder
from chatops.tui.intake import ESCAPE, Intake, Pasted, Piece, Sequence, Typed
from chatops.tui.outlet import Outlet

if TYPE_CHECKING:
    from textual.app import App

_TICK_S = 0.05
"""How long the key thread sleeps while the begin of a sequence waits for its rest."""
_JOIN_S = 0.005
"""Silence after which what was read is taken for one stroke: a key takes longer to press, a paste does not."""
_JOIN_MOST_S = 0.1
_CHUNK = 1 << 16
_PARTING_S = 0.5
"""How long leaving waits for a terminal that takes nothing."""
_SETTLE_S = 0.1
"""After the last change of size: the window may have been cut and grown faster than anybody drew."""

_KEYBOARD = KITTY_DISAMBIGUATE_ESCAPE_CODES | KITTY_REPORT_ALL_KEYS | KITTY_REPORT_ASSOCIATED_TEXT
_MOUSE = ("1000", "1003", "1015", "1006")
_TAKE = (
    "\x1b[?1049h"
    + "".join(f"\x1b[?{mode}h" for mode in _MOUSE)
    + "\x1b[?25l\x1b[?1004h\x1b[?2004h\x1b[?7l"
    + ("" if constants.DISABLE_KITTY_KEY else f"\x1b[>{_KEYBOARD}u")
)
"""Another screen, mouse, no cursor, focus reports, bracketed paste, no line breaks, keyboard protocol."""
_SEND_NOTHING = "".join(f"\x1b[?{mode}l" for mode in (*_MOUSE, "1004", "2004"))
_GIVE_BACK = (
    _SEND_NOTHING
    + "\x1b[?2026l\x1b[?7h"
    + ("" if constants.DISABLE_KITTY_KEY else "\x1b[<u")
    + "\x1b]22;\x07\x1b[0m\x1b[?1049l\x1b[?25h"
)
"""The same backwards, and an end to a frame that was cut off."""
_TAKE_AGAIN = ("" if constants.DISABLE_KITTY_KEY else "\x1b[<u") + _TAKE
"""Keyboard modes are a stack: what is put on it again has to be taken off first."""
_ASK = "\x1b[?2026$p\x1b[?2004$p"
"""Whether it draws whole frames at once, and whether it marks pastes."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""What a terminal would obey if a paste were shown as it came; line ends and tabs stay."""


class _KeyParser(XTermParser):
    """What characters and sequences mean. What it is given is whole, so that it never has to wait for more."""

    @property
    def waits(self) -> bool:
        """Whether the last sequence has no meaning that it knows, unless more follows."""
        return self._timeout_time is not None

    def settle(self) -> Iterable[Message]:
        """The keys that the last text ended with, now that nothing follows."""
        if self.waits:
            self._timeout_time = 0.0
            yield from self.tick()


class TerminalDriver(LinuxDriver):
    """Needs a terminal on standard input and output. `charset` is a Python codec.

    `lost` is called, on the event loop, when the terminal is gone; `redraw` when all of it has to be drawn again.
    """

    def __init__(
        self,
        app: "App[Any]",
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
        charset: str = "utf-8",
        lost: Callable[[], None] | None = None,
        redraw: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        # Textual has set handlers that act between any two instructions; these here act between two steps of the loop.
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        self._out = (sys.__stdout__ or sys.__stderr__).fileno()  # type: ignore[union-attr]
        self._encode = encoder(charset)
        # Whoever types into a terminal of a C locale may well have one that sends UTF-8; nothing else can be meant.
        self._typed_as = "utf-8" if charset == "ascii" else charset
        self._when_lost = lost or self._exit_app
        self._redraw = redraw or (lambda: None)
        self._outlet: Outlet | None = None
        self._wake_write: int | None = None
        self._before: list[Any] | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._is_lost = False
        self.stands_still = False
        """Whether the terminal did not even take the last words: whoever writes to it now waits for it."""
        # Threads know nothing of the app that is running.
        self._context = contextvars.copy_context()

    # Output

    def write(self, data: str) -> None:
        """Write, without waiting for the terminal; nothing is written while another program has it."""
        if self._outlet is not None:
            self._outlet.write(anchored(data))

    def skips_frame(self) -> bool:
        """Whether the terminal lags so far behind that a frame is to be left out; `redraw` makes up for it."""
        return self._outlet is not None and self._outlet.skips_frame()

    def shown_for(self) -> float:
        """For how many seconds the person can have seen what was drawn last; 0 while the terminal lags behind."""
        return self._outlet.shown_for() if self._outlet is not None else 0.0

    # Taking and giving back

    def start_application_mode(self) -> None:
        """Take the terminal and begin to read keys."""
        if self._outlet is not None:
            return
        # In the background this stops the process until it is brought to the front.
        self._before = self._settings()
        self._make_raw()
        self._outlet = Outlet(
            self._out,
            encode=self._encode,
            caught_up=lambda: self._later(self._redraw),
            lost=lambda: self._later(self._terminal_lost),
        )
        self.write(_TAKE + _ASK)
        self._listen()
        wake, self._wake_write = os.pipe()
        self._key_thread = threading.Thread(target=self._read_keys, args=(wake,), name="terminal-input", daemon=True)
        self._key_thread.start()
        self._tell_size()

    def stop_application_mode(self) -> None:
        """Give the terminal back; again and again does no harm."""
        outlet, self._outlet = self._outlet, None
        if outlet is None:
            return
        # First what sends by itself is switched off; what it has still sent is thrown away with the keys.
        outlet.write(_SEND_NOTHING)
        self.disable_input()
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self._before)
        self.stands_still = not outlet.close(_GIVE_BACK, patience=_PARTING_S)

    def disable_input(self) -> None:
        """End the key thread; keys that were not read are thrown away, so that no shell runs them."""
        wake, self._wake_write = self._wake_write, None
        if wake is None:
            return
        self._loop.remove_signal_handler(signal.SIGWINCH)
        if self._settling is not None:
            self._settling.cancel()
        os.close(wake)
        if self._key_thread is not None:
            self._key_thread.join()
        with contextlib.suppress(termios.error):
            termios.tcflush(self.fileno, termios.TCIFLUSH)

    def close(self) -> None:
        """Let go of the signals too."""
        self.stop_application_mode()
        for number in (signal.SIGTSTP, signal.SIGCONT):
            self._loop.remove_signal_handler(number)

    def suspend_application_mode(self) -> None:
        """Give the terminal to another program for a while."""
        self.stop_application_mode()

    def _settings(self) -> list[Any] | None:
        with contextlib.suppress(termios.error):
            settings = termios.tcgetattr(self.fileno)
            termios.tcsetattr(self.fileno, termios.TCSANOW, settings)
            return settings
        return None

    def _make_raw(self) -> None:
        if self._before is None:
            return
        raw = [*self._before[:6], [*self._before[6]]]
        raw[0] = self._patch_iflag(raw[0])
        raw[3] = self._patch_lflag(raw[3])
        raw[6][termios.VMIN] = 1
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.fileno, termios.TCSANOW, raw)

    # Signals

    def _listen(self) -> None:
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)
        self._loop.add_signal_handler(signal.SIGTSTP, self.stop_process)
        self._loop.add_signal_handler(signal.SIGCONT, self._continued)

    def stop_process(self, *, group: bool = False) -> None:
        """Give the terminal to the shell and stop until somebody says ``fg``; `group`: all of the job, as ctrl+z does.

        Where no shell could say that (a window of its own for the app) the kernel does not stop anything.
        """
        self.stop_application_mode()
        self._loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(0 if group else os.getpid(), signal.SIGTSTP)
        # Here the process stands still, and goes on.
        self.start_application_mode()
        self._redraw()

    def _continued(self) -> None:
        """Somebody stopped the process and let it go on: a shell may have drawn and set the terminal meanwhile."""
        if self._outlet is not None:
            self._make_raw()
            self.write(_TAKE_AGAIN)
            self._tell_size()
            self._redraw()

    def _resized(self) -> None:
        self._tell_size()
        if self._settling is not None:
            self._settling.cancel()
        self._settling = self._loop.call_later(_SETTLE_S, self._redraw)

    def _tell_size(self) -> None:
        size = Size(*self._get_terminal_size())
        self._later(lambda: self._app.post_message(events.Resize(size, size)))

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and rows as the terminal says; COLUMNS and LINES may be from another window."""
        with contextlib.suppress(OSError):
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(self._out, termios.TIOCGWINSZ, b"\0" * 8))
            if rows and columns:
                return columns, rows
        return 80, 24

    # Input

    def _read_keys(self, wake: int) -> None:
        try:
            self._read_until(wake)
        except OSError:
            self._later(self._terminal_lost)
        finally:
            os.close(wake)

    def _read_until(self, wake: int) -> None:
        parser = _KeyParser(self._debug)
        # tmux marks pastes and does not answer whether it does.
        intake = Intake(marks_pastes="TMUX" in os.environ)
        decode = codecs.getincrementaldecoder(self._typed_as)(errors="replace").decode
        while True:
            ready, _, _ = select.select([self.fileno, wake], [], [], _TICK_S if intake.waits else None)
            if wake in ready:
                return
            found: list[Piece]
            if self.fileno in ready:
                data = self._stroke()
                if not data:
                    self._later(self._terminal_lost)
                    return
                found = intake.feed(decode(data), time.monotonic())
            else:
                found = intake.rest(time.monotonic())
            for piece in found:
                if not self._hand_on(piece, parser):
                    parser = _KeyParser(self._debug)

    def _stroke(self) -> bytes:
        """What was sent in one go, be it in several parts."""
        data = os.read(self.fileno, _CHUNK)
        end = time.monotonic() + _JOIN_MOST_S
        while data and not data.startswith(b"\x1b") and time.monotonic() < end:
            if not select.select([self.fileno], [], [], _JOIN_S)[0]:
                break
            more = os.read(self.fileno, _CHUNK)
            if not more:
                break
            data += more
        return data

    def _hand_on(self, piece: Piece, parser: "_KeyParser") -> bool:
        """Turn a piece into events. False: the parser does not know the sequence and still waits for its end."""
        match piece:
            case Pasted(text=text):
                self.process_message(events.Paste(_CONTROL.sub("", text)))
            case Typed(text=text) if text == ESCAPE:
                self.process_message(events.Key("escape", ESCAPE))
            case Typed(text=text):
                for event in (*parser.feed(text), *parser.settle()):
                    self.process_message(event)
            case Sequence(text=text):
                for event in parser.feed(text):
                    self.process_message(event)
                return not parser.waits
            case _ as never:
                assert_never(never)
        return True

    # The app

    def _terminal_lost(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._when_lost()

    def _exit_app(self) -> None:
        self._app.exit()

    def _later(self, act: Callable[[], object]) -> None:
        """On the event loop, soon; from any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(cast(Callable[[], None], act), context=self._context)
