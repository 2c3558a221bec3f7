"""Read documents as passages with their places: Markdown, text, HTML, and PDF with the extra ``[pdf]``.

Runs in a process of its own with limits, see `tools.knowledge_index`: a document may be made to keep its reader busy.
"""

import importlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from chatops.config.extras import not_installed
from chatops.toolkit.output import is_binary
from chatops.tools.page import PageReader, decoded

TEXT_ENDINGS = frozenset({".md", ".markdown", ".txt", ".text", ".rst", ".org", ".adoc", ".tex"})
HTML_ENDINGS = frozenset({".html", ".htm", ".xhtml"})
PDF_ENDINGS = frozenset({".pdf"})
ENDINGS = TEXT_ENDINGS | HTML_ENDINGS | PDF_ENDINGS
MAX_BYTES = 4_000_000
"""Bytes of a text or page that are read; the rest is left out."""
MAX_PDF_BYTES = 64_000_000
"""Bytes of a PDF. A larger one is not read, because its table of contents is at its end."""
MAX_PAGES = 2_000
MAX_PASSAGES = 5_000
"""Passages of one document."""
PASSAGE = 1_200
"""Characters after which a passage ends at the next line."""
_LONGEST = 2 * PASSAGE


class DocumentError(Exception):
    """A document cannot be read; the text says why, as a clause."""


class NoReaderError(DocumentError):
    """The extra that reads such documents is not installed."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document."""

    place: str
    """``lines 3 to 9`` or ``page 2``."""
    text: str


def passages_of(file: BinaryIO, *, ending: str) -> tuple[list[Passage], str]:
    """Return the passages of an open document, and what was left out, as a clause; empty: nothing was.

    Raises DocumentError, and whatever else a parser raises for a document that is made to confuse it.
    """
    size = os.fstat(file.fileno()).st_size
    if ending in PDF_ENDINGS:
        return _limited(_pages(file, size=size))
    data = file.read(MAX_BYTES)
    if is_binary(data):
        raise DocumentError("it is not text")
    text = decoded(data, charset="")
    lines = _html_lines(text) if ending in HTML_ENDINGS else enumerate(text.split("\n"), 1)
    found, left_out = _limited(_chunks(lines))
    return found, left_out or (f"only the first {MAX_BYTES:,} bytes were read" if size > MAX_BYTES else "")


def _limited(passages: Iterable[Passage]) -> tuple[list[Passage], str]:
    found: list[Passage] = []
    for passage in passages:
        if len(found) == MAX_PASSAGES:
            return found, f"only the first {MAX_PASSAGES:,} passages were read"
        found.append(passage)
    return found, ""


def _chunks(lines: Iterable[tuple[int, str]]) -> Iterator[Passage]:
    """Yield passages of whole lines. One ends before a heading or after a blank line if it is long enough."""
    taken: list[str] = []
    first = last = size = 0
    for number, line in lines:
        for part in _parts(line.rstrip()):
            ends = not part.strip() or part.startswith("#")
            if taken and (size + len(part) > _LONGEST or (size >= PASSAGE and ends)):
                yield Passage(_lines(first, last), "\n".join(taken).strip())
                taken, size = [], 0
            if not part.strip() and (not taken or not taken[-1]):
                continue
            first = number if not taken else first
            last = number if part.strip() else last
            taken.append(part)
            size += len(part) + 1
    if text := "\n".join(taken).strip():
        yield Passage(_lines(first, last), text)


def _parts(line: str) -> Iterator[str]:
    """Yield a line in parts of at most `PASSAGE` characters."""
    yield line[:PASSAGE]
    for begin in range(PASSAGE, len(line), PASSAGE):
        yield line[begin : begin + PASSAGE]


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"


class _Located(PageReader):
    """Notes for each piece of text the line of the page that it comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[int] = []

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        self.places += [self.getpos()[0]] * (len(self.pieces) - len(self.places))


def _html_lines(html: str) -> Iterator[tuple[int, str]]:
    reader = _Located()
    reader.feed(html)
    reader.close()
    reader.places += [0] * (len(reader.pieces) - len(reader.places))
    line, place = "", 1
    for piece, found in zip(reader.pieces, reader.places, strict=True):
        for index, part in enumerate(piece.split("\n")):
            if index:
                yield place, " ".join(line.split())
                line = ""
            if not line.strip() and part.strip():
                place = max(place, found)
            line += f" {part}" if index and part else part
    yield place, " ".join(line.split())


def _pages(file: BinaryIO, *, size: int) -> Iterator[Passage]:
    try:
        # An optional dependency, so it is imported here.
        pypdf: Any = importlib.import_module("pypdf")
    except ImportError:
        raise NoReaderError(f"it is a PDF, and {not_installed('pdf')}") from None
    if size > MAX_PDF_BYTES:
        raise DocumentError(f"it is larger than {MAX_PDF_BYTES:,} bytes")
    reader = pypdf.PdfReader(file, strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise DocumentError("it needs a password")
    for number, page in enumerate(reader.pages, 1):
        if number > MAX_PAGES:
            return
        for chunk in _chunks(enumerate(page.extract_text().split("\n"), 1)):
            yield Passage(f"page {number}", chunk.text)
