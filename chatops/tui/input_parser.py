"""Input parser: separates keys from pastes and joins sequences that arrived in parts.

Theory of operation
-------------------
`InputParser` gets decoded text in the chunks in which it was read, and the time. It returns whole tokens: `Typed`
characters, one `EscapeSequence`, or one `Pasted` text. What is not complete yet is held back, and `flush` returns it
once it has waited long enough. The parser reads no clock and no terminal, so that its tests can choose every chunk and
every pause.

Two rules must hold on the slowest line: a mouse report never turns up as text, and no character of a paste ever acts as
a key. An approval dialog is answered with single letters, so the second one is a matter of security.

- A paste is recognised by its marks (bracketed paste). Its text may itself contain an end mark. What follows an end
  mark at once is therefore held back until there is silence: with another end mark it is part of the paste, otherwise
  keys.
- On terminals that do not mark pastes, a "flood" counts as a paste: more text at once than can be typed, up to the next
  silence. Terminals known to mark pastes get a higher limit, because a script may send some lines as keys.
- An escape alone is the Esc key only after `ESCAPE_S` seconds of silence. If the rest of a mouse report comes later
  still, it is dropped. The start of a longer sequence waits for `HOLD_SEQUENCE_S` seconds. The start of an answer of
  the terminal never becomes a key, and neither does its rest if that comes at once then.

Why not a library: Textual's parser takes parts of a sequence for typed text if they arrive more than a tenth of a
second apart. It makes one event of a paste with marks, but one without marks becomes a key for each character. Those of
prompt_toolkit, blessed and curses belong to their own event loops and key tables, and none recognises such a paste
either. The meaning of a whole sequence is still Textual's.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chatops.domain.frozen_dataclass import frozen_dataclass

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
ESCAPE = "\x1b"
ESCAPE_S = 0.1
"""Seconds after which a lone escape is the Esc key."""
SEPARATE_KEY_S = 0.02
"""Seconds after an escape from which on input is a separate key. Terminals send both bytes of an Alt key at once."""
HOLD_SEQUENCE_S = 2.0
"""Seconds that the start of a longer sequence waits for its rest."""
FLOOD_LENGTH = 512
_FLOOD_LINES = 2
"""At least this many characters or line ends at once are a paste, on a terminal without bracketed paste."""
_FLOOD_LINES_MARKED = 4
"""The same for terminals known to mark pastes. Fewer line ends at once are keys, from a slow line or a script."""
FLOOD_PAUSE_S = 0.1
"""Seconds of silence that end such a paste."""
_INTERRUPT = "\x03"
_STRING_START = r"(?:\]|P[\d>!$+@|]|_G)"
"""Starts of the answers that end with a string terminator. Other letters after an escape were typed after Esc."""
_SEQUENCE = re.compile(
    r"\x1b\[M[\s\S]{3}"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1bO[ -~]"
    rf"|\x1b{_STRING_START}[^\x07\x1b]*(?:\x07|\x1b\\)"
)
_CUT_SHORT = re.compile(rf"\x1b(?:|\[M[\s\S]{{0,2}}|\[[0-?]*[ -/]*|[OP_]|{_STRING_START}[^\x07\x1b]{{0,4096}}\x1b?)\Z")
_MAY_CONTINUE = r"[\[O\]\x1b]|P(?:[\d>!$+@|]|\Z)|_(?:G|\Z)"
"""Characters after an escape that may be the rest of a sequence which a slow line has cut."""
_AFTER_ESCAPE = re.compile(r"\x1b([^\x1b])?([^\x1b]*)")
_ANSWER_START = r"\x1b(?:\]\d|P[\d>!$+@|]|_G)"
"""Start of an answer of the terminal, which no keys send."""
_ANSWER_REST = r"[ -~]{0,4096}(?:\x07|\x1b\\)"
_ANSWER_END = r"\\"
_UNFINISHED_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*(?=\x1b)")
"""An unfinished sequence followed by another one. It is dropped."""
_PASTE_MARKS_ON = re.compile(r"\x1b\[\?2004;[13]\$y")
"""The terminal's answer that bracketed paste is on."""
_MOUSE_REST = r"\[<\d+;\d+;\d+[Mm]"
_LINE_END = re.compile(r"\r\n|\r|\n")


@frozen_dataclass(kw_only=False)
class Typed:
    """Keys that send characters. An escape before a character is the Alt key, `ESCAPE` alone is the Esc key."""

    text: str


@frozen_dataclass(kw_only=False)
class EscapeSequence:
    """One whole escape sequence: a key, the mouse, or an answer of the terminal."""

    text: str


@frozen_dataclass(kw_only=False)
class Pasted:
    """A whole paste, as it was sent."""

    text: str


InputToken = Typed | EscapeSequence | Pasted


@frozen_dataclass(kw_only=False)
class _Held:
    """The start of a sequence or of the end mark of a paste, until its rest comes."""

    text: str
    since: float


@dataclass(slots=True)
class _Paste:
    """A paste with marks that has started and not ended."""

    chunks: list[str]
    at: float
    """Time of its last chunk."""


@dataclass(slots=True)
class _Flood:
    """Text that counts as a paste or as keys once there is silence."""

    chunks: list[str]
    at: float
    """Time of its last chunk that is no mouse movement."""
    after_paste: bool
    """True if it followed the end of a paste directly.

    It may be keys. It may also be the rest of a paste that contains an end mark itself; then the real end mark is still
    to come, at once.
    """

    def add(self, text: str, now: float) -> None:
        """Add a chunk. Mouse movement must not delay keys."""
        self.chunks.append(text)
        if not self.after_paste or _SEQUENCE.sub("", text):
            self.at = now


class InputParser:
    """The input parser. `now` is monotonic seconds and must never decrease."""

    def __init__(self, *, marks_pastes: bool = False, alt_acts: Callable[[str], bool] = lambda key: False) -> None:
        """Create the parser.

        `marks_pastes`: the terminal is known to mark pastes. `alt_acts` returns True if Alt and a character are a key
        that acts.

        The parser also learns that the terminal does, from a marked paste or the answer to ``CSI ? 2004 $ p``.
        """
        self._max_lines = _FLOOD_LINES_MARKED if marks_pastes else _FLOOD_LINES
        self._alt_acts = alt_acts
        self._held: _Held | None = None
        self._paste: _Paste | None = None
        self._flood: _Flood | None = None
        self._late_rest: str | None = None
        """Pattern of the rest of a sequence that was given up, with which the next text may begin. It is dropped."""

    @property
    def marks_pastes(self) -> bool:
        """True if the terminal is known to mark pastes."""
        return self._max_lines == _FLOOD_LINES_MARKED

    @property
    def waits(self) -> bool:
        """True if text is held back that `flush` may return later."""
        return self._held is not None or self._flood is not None

    def feed(self, text: str, now: float) -> list[InputToken]:
        """Parse `text` together with what was held back. Return the complete tokens."""
        found: list[InputToken] = []
        flood = self._flood
        if flood is not None and now - flood.at < FLOOD_PAUSE_S:
            if PASTE_BEGIN not in text:
                flood.add(text, now)
                return []
            if flood.after_paste:
                # Nothing can have been typed between two pastes in the same instant.
                before, begin, text = text.partition(PASTE_BEGIN)
                flood.chunks.append(before)
                flood.after_paste = False
                text = begin + text
        self._end_flood(found, now)
        held = self._held
        if held is not None and self._paste is None and held.text == ESCAPE:
            if self._is_next_key(text, now - held.since):
                found.append(Typed(ESCAPE))
                held = None
        text, self._held = (held.text if held is not None else "") + text, None
        while text:
            if self._paste is not None:
                text = self._parse_paste(self._paste, text, found, now)
                continue
            typed, begin, text = text.partition(PASTE_BEGIN)
            self._parse_typed(typed, found, now)
            if begin:
                # An unfinished sequence before the paste is dropped.
                self._held, self._paste = None, _Paste([], now)
                self._max_lines = _FLOOD_LINES_MARKED
        return found

    def flush(self, now: float) -> list[InputToken]:
        """Return held-back text that will not be completed any more. Call it from time to time while `waits`."""
        found: list[InputToken] = []
        if self._flood is not None and now - self._flood.at >= FLOOD_PAUSE_S:
            self._end_flood(found, now)
        held = self._held
        if held is None or self._paste is not None:
            return found
        if now - held.since >= (ESCAPE_S if held.text == ESCAPE else HOLD_SEQUENCE_S):
            self._held, self._late_rest = None, _rest_pattern(held.text)
            if self._late_rest is None or held.text == ESCAPE:
                found.append(Typed(held.text))
        return found

    def _is_next_key(self, text: str, gap: float) -> bool:
        """Return True if `text`, read `gap` seconds after an escape, is not the rest of a sequence or of an Alt key."""
        if gap >= SEPARATE_KEY_S:
            return text in ("P", "_") or not re.match(_MAY_CONTINUE, text)
        return not re.match(_MAY_CONTINUE, text) and not self._alt_acts(text[0])

    def _parse_paste(self, paste: _Paste, text: str, found: list[InputToken], now: float) -> str:
        """Consume the paste's part of `text`, and what follows its end. Return the rest."""
        body, end, after = text.partition(PASTE_END)
        if text == _INTERRUPT and now - paste.at >= FLOOD_PAUSE_S:
            # ctrl+c ends the paste of a terminal that sends no end mark, so that the keyboard stays usable. Without
            # silence before it, it is a character of the paste.
            end, body = PASTE_END, ""
        paste.at = now
        if not end:
            kept = max((size for size in range(1, len(PASTE_END)) if body.endswith(PASTE_END[:size])), default=0)
            paste.chunks.append(body[: len(body) - kept])
            self._held = _Held(body[len(body) - kept :], now) if kept else None
            return ""
        found.append(Pasted("".join([*paste.chunks, body])))
        between, begin, rest = after.partition(PASTE_BEGIN)
        self._paste, self._flood = None, _Flood([between], now, after_paste=not begin)
        if begin:
            self._end_flood(found, now)
            self._paste = _Paste([], now)
        return rest

    def _parse_typed(self, text: str, found: list[InputToken], now: float) -> None:
        late = re.match(self._late_rest, text) if self._late_rest is not None else None
        if late is not None:
            text = text[late.end() :]
        if _PASTE_MARKS_ON.search(text):
            self._max_lines = _FLOOD_LINES_MARKED
            text = _PASTE_MARKS_ON.sub("", text)
        text = _UNFINISHED_SEQUENCE.sub("", text)
        if not text:
            return
        self._late_rest = None
        plain = _SEQUENCE.sub("", text)
        if len(plain) >= FLOOD_LENGTH or len(_LINE_END.findall(plain)) >= self._max_lines:
            self._flood = self._flood or _Flood([], now, after_paste=False)
            self._flood.add(text, now)
            return
        if cut := _CUT_SHORT.search(text):
            self._held = _Held(cut[0], now)
            text = text[: cut.start()]
        found += self._tokens(text)

    def _take_flood(self) -> str:
        flood, self._flood = self._flood, None
        return "".join(flood.chunks) if flood is not None else ""

    def _end_flood(self, found: list[InputToken], now: float) -> None:
        may_be_keys = self._flood is not None and self._flood.after_paste
        text = self._take_flood()
        if may_be_keys and PASTE_END not in text:
            self._parse_typed(text, found, now)
            # Too much to have been typed. It has waited for silence already, and newer input must not come before it.
            text = self._take_flood()
        if text := _SEQUENCE.sub("", text):
            found.append(Pasted(text))

    def _tokens(self, text: str) -> Iterator[Typed | EscapeSequence]:
        at = 0
        for sequence in _SEQUENCE.finditer(text):
            yield from self._keys(text[at : sequence.start()])
            yield EscapeSequence(sequence[0])
            at = sequence.end()
        yield from self._keys(text[at:])

    def _keys(self, text: str) -> Iterator[Typed]:
        """Yield typed text. An escape before it is the Esc key, unless it makes an Alt key with the first letter."""
        before, _, _ = text.partition(ESCAPE)
        if before:
            yield Typed(before)
        for found in _AFTER_ESCAPE.finditer(text, len(before)):
            first, rest = found[1] or "", found[2]
            alt = first and (not rest or self._alt_acts(first))
            yield Typed(ESCAPE + first if alt else ESCAPE)
            if after := rest if alt else first + rest:
                yield Typed(after)


def _rest_pattern(start: str) -> str | None:
    """Return the pattern of what may still come of a sequence with this start; None for a start of no known rest."""
    if start == ESCAPE:
        return _MOUSE_REST
    if not re.match(_ANSWER_START, start):
        return None
    return _ANSWER_END if start.endswith(ESCAPE) else _ANSWER_REST
