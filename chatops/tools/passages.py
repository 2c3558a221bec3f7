"""Documents as passages with their places: Markdown, text, HTML, and PDF with the extra ``[pdf]``.

A document may be made to keep its reader busy, or to confuse it: the caller sets a time limit, and expects any
exception.
"""

import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from chatops.config.extras import not_installed
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.toolkit.output import is_binary
from chatops.tools.page import PageReader, decode_page

TEXT_ENDINGS = frozenset({".md", ".markdown", ".txt", ".text", ".rst", ".org", ".adoc", ".tex"})
HTML_ENDINGS = frozenset({".html", ".htm", ".xhtml"})
PDF_ENDINGS = frozenset({".pdf"})
ENDINGS = TEXT_ENDINGS | HTML_ENDINGS | PDF_ENDINGS
MAX_BYTES = 4_000_000
"""Bytes of a text or page that are read; the rest is left out."""
MAX_PDF_BYTES = 64_000_000
"""Bytes of a PDF. A larger one is not read, because its table of contents is at its end."""
MAX_PAGES = 2_000
"""Pages of one PDF."""
MAX_PASSAGES = 5_000
"""Passages of one document."""
PASSAGE = 1_200
"""Characters after which a passage ends at the next line."""
_MAX_PASSAGE = 2 * PASSAGE
"""Characters at which a passage ends, also within a paragraph."""


class DocumentError(Exception):
    """A document cannot be read; the text says why, as a clause."""


class NoReaderError(DocumentError):
    """The extra that reads such documents is not installed."""


@frozen_dataclass(kw_only=False)
class Passage:
    """A part of a document."""

    place: str
    """``lines 3 to 9`` or ``page 2``."""
    text: str


@frozen_dataclass
class Content:
    """Passages read from a document."""

    passages: tuple[Passage, ...] = ()
    problem: str = ""
    """Parts that were left out, or the reason why nothing could be read, as a clause; empty: all was read."""


def read_document(file: BinaryIO, *, ending: str) -> Content:
    """Return the content of an open document.

    Raises DocumentError, and whatever else a parser raises for a document that is made to confuse it.
    """
    size = os.fstat(file.fileno()).st_size
    is_pdf, problem = ending in PDF_ENDINGS, ""
    found = _pdf_passages(file, size=size) if is_pdf else _split_passages(_lines_of(file, ending=ending))
    passages = tuple(islice(found, MAX_PASSAGES + 1))
    if len(passages) > MAX_PASSAGES:
        problem = f"only the first {MAX_PASSAGES:,} passages were read"
    elif size > MAX_BYTES and not is_pdf:
        problem = f"only the first {MAX_BYTES:,} bytes were read"
    return Content(passages=passages[:MAX_PASSAGES], problem=problem)


def _lines_of(file: BinaryIO, *, ending: str) -> Iterable[tuple[int, str]]:
    """Return the lines of a text or page with their numbers, from 1."""
    data = file.read(MAX_BYTES)
    if is_binary(data):
        raise DocumentError("it is not text")
    text = decode_page(data, charset="")
    return _html_lines(text) if ending in HTML_ENDINGS else enumerate(text.split("\n"), 1)


def _split_passages(lines: Iterable[tuple[int, str]]) -> Iterator[Passage]:
    """Yield passages of whole lines. One ends before a heading or after a blank line if it is long enough."""
    taken: list[tuple[int, str]] = []
    size = 0
    for number, line in lines:
        for part in _split_line(line.rstrip()):
            is_blank = not part.strip()
            may_end = size >= PASSAGE and (is_blank or part.startswith("#"))
            if taken and (may_end or size + len(part) > _MAX_PASSAGE):
                yield _joined(taken)
                taken, size = [], 0
            # A passage begins with text, and of several empty lines it has one.
            if is_blank and (not taken or not taken[-1][1]):
                continue
            taken.append((number, part))
            size += len(part) + 1
    if taken:
        yield _joined(taken)


def _split_line(line: str) -> Iterator[str]:
    """Yield a line in parts of at most `PASSAGE` characters."""
    yield line[:PASSAGE]
    for begin in range(PASSAGE, len(line), PASSAGE):
        yield line[begin : begin + PASSAGE]


def _joined(lines: Sequence[tuple[int, str]]) -> Passage:
    numbers = [number for number, line in lines if line.strip()]
    first, last = numbers[0], numbers[-1]
    place = f"line {first}" if first == last else f"lines {first} to {last}"
    return Passage(place, "\n".join(line for _, line in lines).strip())


class _LocatedReader(PageReader):
    """Keeps with each of the `pieces` of text the line of the page that it comes from, in `places`.

    Tags make pieces too, such as line breaks. They get the place of the text that follows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: list[int] = []

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        self.places += [self.getpos()[0]] * (len(self.pieces) - len(self.places))


def _html_lines(html: str) -> Iterator[tuple[int, str]]:
    reader = _LocatedReader()
    reader.feed(html)
    reader.close()
    reader.places += [0] * (len(reader.pieces) - len(reader.places))
    # `number` is that of the first line of the page with text of `line`.
    line, number = "", 1
    for piece, place in zip(reader.pieces, reader.places, strict=True):
        for index, part in enumerate(piece.split("\n")):
            if index:
                yield number, " ".join(line.split())
                line = ""
            if not line.strip() and part.strip():
                number = max(number, place)
            line += f" {part}" if index and part else part
    yield number, " ".join(line.split())


def _pdf_passages(file: BinaryIO, *, size: int) -> Iterator[Passage]:
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
        for chunk in _split_passages(enumerate(page.extract_text().split("\n"), 1)):
            yield Passage(f"page {number}", chunk.text)
