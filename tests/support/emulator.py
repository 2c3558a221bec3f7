"""A terminal without a process: bytes a program writes go in, a screen and the terminal's answers come out."""

import base64
import codecs
import re
import unicodedata
import zlib
from dataclasses import dataclass, replace

import pyte

_SEQUENCE = re.compile(
    r"\x1b\[(?P<params>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b(?P<opener>[PX^_])(?P<text>[^\x1b]*)\x1b\\"
    r"|\x1b(?P<short>[ -/]*[0-OQ-WYZ\\`-~])"
)
_LONGEST_SEQUENCE = 1 << 16
_PRIVATE_MODES_DRAWN = frozenset({"6", "7", "25"})
_WHOLE_FRAMES = "2026"
_ALTERNATE_SCREEN = frozenset({"47", "1047", "1049"})
_ON_AT_FIRST = frozenset({"7", "25"})
"""Private modes that a terminal starts with: automatic line breaks and a visible cursor."""
_MODE_NAMES = {
    "7": "no line breaks",
    "25": "hidden cursor",
    "1000": "mouse clicks",
    "1002": "mouse drags",
    "1003": "mouse motion",
    "1004": "focus reports",
    "1006": "mouse coordinates",
    "1015": "mouse coordinates (urxvt)",
    "1016": "mouse pixels",
    "1049": "alternate screen",
    "2004": "bracketed paste",
    "2026": "held-back frames",
    "2048": "size reports",
}
PLACEHOLDER = "\U0010eeee"
_FUSED = {*range(0x300, 0x305), *range(0x306, 0x30D), 0x30F, 0x311, 0x313, 0x314, 0x342}
MARKS = [
    chr(code)
    for code in range(0x300, 0x618)
    if unicodedata.combining(chr(code)) == 230 and not unicodedata.decomposition(chr(code)) and code not in _FUSED
]
"""The marks for rows and columns by the rule in kitty's ``rowcolumn-diacritics.txt``."""
_COLOURS = {"10": "dddd/dddd/dddd", "11": "1e1e/1e1e/1e1e", "12": "dddd/dddd/dddd"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One character on the screen. Colours are names, or six hexadecimal digits; "default" is the terminal's own."""

    text: str
    foreground: str
    background: str
    marked: bool
    """Bold, underlined or in reverse: told from plain text without a colour."""

    def with_text(self, text: str) -> "Cell":
        """Return the cell with another character."""
        return replace(self, text=text)


@dataclass(frozen=True, slots=True)
class Image:
    """An image that a kitty-like terminal keeps: its size in pixels and in cells, and its pixels in RGBA."""

    size: tuple[int, int]
    cells: tuple[int, int]
    pixels: bytes


class Emulator:
    """An xterm-like terminal without the kitty keyboard protocol, as `kitty` with its graphics protocol.

    It answers what programs ask a terminal at start (attributes, name, cursor, modes, colours, size), draws what
    pyte can draw, and drops every other sequence whole, so that none of it shows up as text.
    """

    def __init__(self, *, columns: int, rows: int, kitty: bool = False) -> None:
        """An empty screen; sizes are in cells."""
        self.images: dict[int, Image] = {}
        """The images that the terminal keeps, by their ids."""
        self.deleted: list[int] = []
        self._kitty = kitty
        self._command: dict[str, str] = {}
        """The graphics command of which further data is awaited."""
        self.title = ""
        """Set by the program (OSC 0 and 2)."""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._frame: list[str] | None = None
        """Screen shown while the program writes the next frame (synchronized output, mode 2026)."""
        self._answers: list[str] = []
        self._rows: list[str] | None = None
        """The rows as text, as long as nothing has changed: they are asked for far more often."""
        self._modes = dict.fromkeys(_ON_AT_FIRST, True)
        self._keyboards = 0
        """Number of stacked keyboard modes (kitty's protocol)."""
        self._pointer = ""

    def feed(self, data: bytes) -> bytes:
        """Take the program's next bytes, cut anywhere; returns what the terminal says back."""
        text = self._held + self._decoder.decode(data)
        position = 0
        while (escape := text.find("\x1b", position)) >= 0:
            self._draw(text[position:escape])
            found = _SEQUENCE.match(text, escape)
            if found is None and len(text) - escape < _LONGEST_SEQUENCE:
                position = escape
                break
            position = escape + 1
            if found is not None:
                self._obey(found)
                position = found.end()
        else:
            self._draw(text[position:])
            position = len(text)
        self._held = text[position:]
        answers, self._answers = self._answers, []
        return "".join(answers).encode()

    def resize(self, *, columns: int, rows: int) -> None:
        """Change the size; what no longer fits is cut off."""
        self._rows = None
        self._screen.resize(lines=rows, columns=columns)

    def lines(self) -> list[str]:
        """The rows of the screen from top to bottom, without the blanks at their ends: always a whole frame."""
        return self._drawn() if self._frame is None else self._frame

    def left_on(self) -> list[str]:
        """Terminal modes that the program changed and did not restore, by name."""
        changed = [number for number, on in self._modes.items() if on != (number in _ON_AT_FIRST)]
        names = [_MODE_NAMES.get(number, f"mode {number}") for number in sorted(changed, key=int)]
        names += ["keyboard protocol"] if self._keyboards else []
        return names + (["pointer shape"] if self._pointer not in ("", "default") else [])

    def cells(self) -> list[list[Cell]]:
        """The characters of the screen with their looks, row by row."""
        return [
            [_cell(self._screen.buffer[row][column]) for column in range(self._screen.columns)]
            for row in range(self._screen.lines)
        ]

    def _drawn(self) -> list[str]:
        if self._rows is None:
            # The second cell of a wide character is empty.
            columns, buffer = range(self._screen.columns), self._screen.buffer
            self._rows = ["".join(buffer[y][x].data for x in columns).rstrip() for y in range(self._screen.lines)]
        return self._rows

    def cursor(self) -> tuple[int, int]:
        """Row and column, counted from 0."""
        return self._screen.cursor.y, self._screen.cursor.x

    def _draw(self, text: str) -> None:
        if text:
            self._rows = None
            self._stream.feed(text)

    def _obey(self, found: re.Match[str]) -> None:
        if found["final"] is not None:
            self._control(found[0], found["params"], found["between"] + found["final"])
        elif found["osc"] is not None:
            self._operating_system_command(found["osc"])
        elif found["short"] is not None:
            self._draw(found[0])
        elif found["opener"] == "_" and found["text"].startswith("G") and self._kitty:
            self._graphics_command(found["text"][1:])
        elif found["text"].startswith("+q") or found["text"].startswith("$q"):
            self._answers.append(f"\x1bP0{found['text'][0]}r\x1b\\")

    def _control(self, sequence: str, params: str, final: str) -> None:
        match params, final:
            case "" | "0", "c":
                self._answers.append("\x1b[?62;22c")
            case ">" | ">0", "c":
                self._answers.append("\x1b[>1;10;0c")
            case ">" | ">0", "q":
                self._answers.append(f"\x1bP>|{'kitty(0.35.2)' if self._kitty else 'pytest(1)'}\x1b\\")
            case "5", "n":
                self._answers.append("\x1b[0n")
            case "6" | "?6", "n":
                row, column = self.cursor()
                self._answers.append(f"\x1b[{params[:-1]}{row + 1};{column + 1}R")
            case "18", "t":
                self._answers.append(f"\x1b[8;{self._screen.lines};{self._screen.columns}t")
            case mode, "$p" if mode.startswith("?"):
                self._answers.append(f"\x1b[{mode};{2 if mode == '?2026' else 0}$y")
            case mode, "h" | "l" if mode.startswith("?"):
                self._private_modes(mode[1:].split(";"), final)
            case _, "u" if params.startswith((">", "<")):
                by = 1 if params[0] == ">" else -int(params[1:] or "1")
                self._keyboards = max(0, self._keyboards + by)
            case _, "r" | "s" | "u" if params.startswith(("?", "=")):
                pass
            case _ if final in pyte.Stream.csi and re.fullmatch(r"[0-9;]*", params):
                self._draw(sequence)

    def _graphics_command(self, text: str) -> None:
        """Obey a command of kitty's graphics protocol. AssertionError for one that names a file or may be answered."""
        keys, _, data = text.partition(";")
        given = dict(part.split("=", 1) for part in keys.split(","))
        if self._command:
            assert given.keys() <= {"q", "m"}, text[:100]
            self._command["data"] += data
        else:
            self._command = {**given, "data": data}
        assert len(data) <= 4096 and given.get("t", "d") == "d", text[:100]
        if given.get("m") == "1":
            return
        command, self._command = self._command, {}
        if command["a"] == "q":
            self._answers.append(f"\x1b_Gi={command['i']};OK\x1b\\")
            return
        assert command["q"] == "2", "the terminal would answer"
        if command["a"] == "d":
            assert command["d"] == "I"
            self.images.pop(int(command["i"]), None)
            self.deleted.append(int(command["i"]))
            return
        assert (command["a"], command["U"], command["f"], command["o"]) == ("T", "1", "32", "z")
        width, height = int(command["s"]), int(command["v"])
        pixels = zlib.decompress(base64.b64decode(command["data"], validate=True))
        assert len(pixels) == 4 * width * height
        cells = int(command["c"]), int(command["r"])
        self.images[int(command["i"])] = Image(size=(width, height), cells=cells, pixels=pixels)

    def pictured(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """Return the cells in which a part of an image is seen, by row and column: its id, the part's row and column.

        Whatever the cells say, there is nothing to see of an image that the terminal does not keep.
        """
        found = {}
        for y, row in enumerate(self.cells()):
            for x, cell in enumerate(row):
                if cell.text[:1] != PLACEHOLDER or len(cell.text) != 3 or len(cell.foreground) != 6:
                    continue
                number, (down, across) = int(cell.foreground, 16), (MARKS.index(mark) for mark in cell.text[1:])
                image = self.images.get(number)
                if image is not None and across < image.cells[0] and down < image.cells[1]:
                    found[y, x] = (number, down, across)
        return found

    def _private_modes(self, modes: list[str], final: str) -> None:
        self._modes.update(dict.fromkeys(modes, final == "h"))
        if _WHOLE_FRAMES in modes:
            self._frame = self._drawn() if final == "h" else None
        if _ALTERNATE_SCREEN.intersection(modes):
            # One buffer for both: a program that leaves its full screen leaves an empty one.
            self._draw("\x1b[m\x1b[2J\x1b[H")
        for mode in _PRIVATE_MODES_DRAWN.intersection(modes):
            self._draw(f"\x1b[?{mode}{final}")

    def _operating_system_command(self, command: str) -> None:
        number, _, value = command.partition(";")
        if number in {"0", "2"}:
            self.title = value
        elif number == "22":
            self._pointer = value
        elif number in _COLOURS and value == "?":
            self._answers.append(f"\x1b]{number};rgb:{_COLOURS[number]}\x1b\\")


def _cell(char: pyte.screens.Char) -> Cell:
    marked = bool(char.bold or char.underscore or char.reverse)
    front, back = (char.bg, char.fg) if char.reverse else (char.fg, char.bg)
    return Cell(text=char.data, foreground=front, background=back, marked=marked)
