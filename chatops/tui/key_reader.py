"""Reads keys and pastes from the terminal in a thread, and makes events of them.

Bytes are decoded, and an `InputParser` separates keys, escape sequences and pastes, whatever the chunks they arrived
in. Only whole tokens reach Textual's parser (`KeyParser`), which is replaced if it still waits for more after one.
"""

import codecs
import os
import re
import select
import threading
import time
from collections.abc import Callable
from typing import assert_never

from textual import events
from textual.message import Message

from chatops.tui.input_parser import ESCAPE, EscapeSequence, InputParser, InputToken, Pasted, Typed
from chatops.tui.keys import alt_acts
from chatops.tui.textual_internals import KeyParser

_POLL_S = 0.05
"""Seconds between checks while an incomplete sequence waits for its rest."""
_BURST_GAP_S = 0.005
"""Seconds of silence that end one burst of input. Two key presses are further apart, parts of a paste are not."""
_BURST_MAX_S = 0.1
"""Seconds after which a burst is passed on although more comes. With more, keys on a busy line show late."""
_READ_BYTES = 1 << 16
"""Bytes per read: a paste of this size is one."""
_ALT_KEY = re.compile(r"\x1b([0-9=-])")
"""Alt keys that Textual takes for the signs which a Mac keyboard types with them, such as 2 for ™."""
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
"""Control characters that a terminal would obey if a paste were shown as it came. Line ends and tabs stay."""


class KeyReader:
    """Reads from one file descriptor until `stop`. All callbacks are called in its thread."""

    def __init__(
        self,
        descriptor: int,
        *,
        charset: str,
        typed_ahead: int,
        takes_text: Callable[[], bool],
        on_event: Callable[[Message], object],
        on_answer: Callable[[str], object],
        on_lost: Callable[[], object],
    ) -> None:
        """Start reading. For `takes_text` see `TerminalDriver`. `on_answer` gets the answers of the terminal."""
        self._descriptor = descriptor
        # A user of a C locale may well have a terminal that sends UTF-8. Nothing else can be meant.
        self._typed_as = "utf-8" if charset == "ascii" else charset
        self.typed_ahead = typed_ahead
        """Bytes not read yet that were typed before the app took the terminal."""
        self._takes_text = takes_text
        self._on_event = on_event
        self._on_answer = on_answer
        self._on_lost = on_lost
        wake, self._wake_write = os.pipe()
        # The thread ends when the other end of the pipe is closed.
        self._thread = threading.Thread(target=self._run, args=(wake,), name="terminal-input", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        os.close(self._wake_write)
        self._thread.join()

    def _run(self, wake: int) -> None:
        try:
            self._read_until(wake)
        except OSError:
            self._on_lost()
        finally:
            os.close(wake)

    def _read_until(self, wake: int) -> None:
        key_parser = KeyParser()
        # tmux marks pastes, but does not answer the query for it.
        input_parser = InputParser(marks_pastes="TMUX" in os.environ, alt_acts=alt_acts)
        decode = codecs.getincrementaldecoder(self._typed_as)(errors="replace").decode
        while True:
            ready, _, _ = select.select([self._descriptor, wake], [], [], _POLL_S if input_parser.waits else None)
            if wake in ready:
                return
            found: list[InputToken]
            if self._descriptor in ready:
                data = self._read_typed_ahead() or self._read_burst(input_parser)
                if not data:
                    self._on_lost()
                    return
                found = input_parser.feed(decode(data), time.monotonic())
            else:
                found = input_parser.flush(time.monotonic())
            for token in found:
                if not self._post_events(token, key_parser):
                    key_parser = KeyParser()

    def _read_typed_ahead(self) -> bytes:
        """Read what was typed ahead.

        The terminal has changed each Enter to a line end. Several in a row count as one. Several lines stay as they
        are: they may be a paste, which no terminal marked yet.
        """
        waiting, self.typed_ahead = self.typed_ahead, 0
        data = os.read(self._descriptor, waiting) if waiting else b""
        typed = re.sub(rb"[\r\n]+", b"\r", data)
        return typed if typed.count(b"\r") == 1 else data

    def _read_burst(self, parser: InputParser) -> bytes:
        """Read one burst of input, even if it arrives in several parts.

        A single key is not waited for more if it cannot be the start of a paste, or if that would make no difference.
        In a text field that holds for Enter too, which would wait 5 ms otherwise. What it costs: on a terminal that
        marks no pastes, one that begins with a line end and arrives byte by byte sends the text that stands there.
        """
        data = os.read(self._descriptor, _READ_BYTES)
        is_text = data.isalnum() or data == b"\r"
        if len(data) == 1 and (parser.marks_pastes or (is_text and self._takes_text())):
            return data
        end = time.monotonic() + _BURST_MAX_S
        while data and not data.startswith(b"\x1b") and time.monotonic() < end:
            if not select.select([self._descriptor], [], [], _BURST_GAP_S)[0]:
                break
            more = os.read(self._descriptor, _READ_BYTES)
            if not more:
                break
            data += more
        return data

    def _post_events(self, token: InputToken, parser: KeyParser) -> bool:
        """Turn a token into events. Return False if the parser does not know the sequence and waits for more."""
        match token:
            case Pasted(text=text):
                self._on_event(events.Paste(re.sub(_CONTROL, "", text)))
            case Typed(text=text) if text == ESCAPE:
                self._on_event(events.Key("escape", ESCAPE))
            case Typed(text=text) if alt_key := _ALT_KEY.fullmatch(text):
                self._on_event(events.Key(f"alt+{alt_key[1]}", None))
            case Typed(text=text):
                for event in (*parser.feed(text), *parser.settle()):
                    self._on_event(event)
            case EscapeSequence(text=text) if text.startswith(("\x1b]", "\x1bP", "\x1b_")):
                # An answer of the terminal. None is a key.
                self._on_answer(text)
            case EscapeSequence(text=text):
                for event in parser.feed(text):
                    self._on_event(event)
                return not parser.waits
            case _ as never:
                assert_never(never)
        return True
