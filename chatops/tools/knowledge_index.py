"""Index of the user's documents: SQLite's FTS5, in a file of the data folder. Runs in a process of its own.

The index is a cache. Before each search it is brought up to date: files with another size or time than the indexed ones
are read again, those that are gone are dropped. One file is one transaction, so what was read stays when the process is
stopped. A file that may keep its parser busy is marked before it is read. If the process dies then, the next one finds
the mark and leaves the file out until it changes.

Folders are walked by descriptors, and no symbolic link is followed. Hidden files and files that may hold secrets are
left out.

Documents are read as passages with their places: Markdown, text, HTML, and PDF with the extra ``[pdf]``. Limits apply
to the reading process: a document may be made to keep its reader busy.
"""

import importlib
import os
import re
import signal
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from chatops.config.extras import not_installed
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.names import is_secret, may_hold_secrets
from chatops.toolkit.counting import count_work
from chatops.toolkit.output import is_binary, without_surrogates
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
MAX_FILES = 20_000
"""Files of one folder that are indexed."""
MAX_DEPTH = 24
"""Folders inside each other."""
MAX_WORDS = 32
"""Words of one search."""
_INDEX_VERSION = 1
_FILE_S = 20
"""Seconds for one file."""
_WALK_S = 15.0
"""Seconds beyond the limit in which files are still counted."""
_UNUSED_S = 30 * 86_400
"""Seconds after which a folder that no search has named is dropped from the index."""
_MAX_CANDIDATES = 60
"""Passages that are looked at for one search; some are the same text in folders that overlap."""
_MAX_FROM_ONE_FILE = 3
"""Passages of one file that are returned for one search."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WORD = re.compile(r"\w+")
_INTERRUPTED = "reading it took too long or failed"
"""Problem of a file, also while it is read: so it stays if the process is killed meanwhile."""
_TRY_AGAIN = -1
"""Time of change of a file that the next search tries again."""
_SCHEMA = """
CREATE TABLE folder (path TEXT PRIMARY KEY, used INTEGER NOT NULL);
CREATE TABLE file (id INTEGER PRIMARY KEY, folder TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL,
  time INTEGER NOT NULL, problem TEXT NOT NULL, UNIQUE (folder, path));
CREATE TABLE place (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, name TEXT NOT NULL);
CREATE INDEX place_file ON place (file);
CREATE VIRTUAL TABLE passage USING fts5 (text, tokenize = 'porter unicode61 remove_diacritics 2');
"""


def search_documents(
    index: str, folders: list[str], protected: list[str], words: list[str], max_hits: int, seconds: float
) -> JsonValue:
    """Bring the index of `folders` up to date for at most `seconds`, and search it for `words`, any of which may match.

    Returns ``hits`` (path, place, text; the best first), ``files`` (number indexed), ``left`` (number not read yet),
    and ``problems`` (sentences about folders and files). Raises sqlite3.Error.
    """
    signal.signal(signal.SIGALRM, _raise_too_long)
    report = _Report()
    with closing(_open_index(Path(index))) as db:
        deadline = time.monotonic() + seconds
        # A folder that cannot be read is not searched: what the index has of it may be old.
        hidden = frozenset(protected)
        folders = [folder for folder in folders if _update_folder(db, folder, hidden, deadline=deadline, report=report)]
        _drop_unused_folders(db)
        marks = ",".join("?" * len(folders))
        for path, problem in db.execute(
            f"SELECT path, problem FROM file WHERE problem != '' AND folder IN ({marks}) ORDER BY path", folders
        ):
            report.problems.append(f"{path}: {problem}")
        (files,) = db.execute(f"SELECT count(*) FROM file WHERE folder IN ({marks})", folders).fetchone()
        hits: list[JsonValue] = list(_best_passages(db, folders, words, max_hits))
    return {"hits": hits, "files": files, "left": report.left, "problems": list(report.problems)}


@dataclass
class _Report:
    """Record of what a search could not index."""

    left: int = 0
    """Number of changed files that there was no time to read."""
    problems: list[str] = field(default_factory=list)


def query_of(words: Sequence[str]) -> str:
    """Return the FTS5 query for any of `words`, each as a quoted string, so that none of them is syntax."""
    parts = (part for word in words for part in _WORD.findall(word))
    return " OR ".join(f'"{part}"' for part in list(dict.fromkeys(parts))[:MAX_WORDS])


def _open_index(path: Path) -> sqlite3.Connection:
    """Open the index. It is made again if it is damaged or of another version."""
    os.umask(0o077)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for last in (False, True):
        db = sqlite3.connect(path, timeout=10.0, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = OFF")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_INDEX_VERSION}; COMMIT;")
            elif version != _INDEX_VERSION:
                raise sqlite3.DatabaseError("another version")
            return db
        except sqlite3.DatabaseError:
            db.close()
            if last:
                raise
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
    raise AssertionError


def _update_folder(
    db: sqlite3.Connection, folder: str, protected: frozenset[str], *, deadline: float, report: _Report
) -> bool:
    """Index what has changed in a folder. Return False if it cannot be read."""
    db.execute("INSERT OR REPLACE INTO folder VALUES (?, ?)", (folder, int(time.time())))
    known = {
        path: (size, mtime_ns)
        for path, size, mtime_ns in db.execute("SELECT path, size, time FROM file WHERE folder = ?", (folder,))
    }
    seen: set[str] = set()
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        report.problems.append(f"{folder} cannot be read: {error.strerror}")
        return False
    complete, changed = True, set[str]()
    try:
        for path, _, _, status in _walk_documents(top, folder, protected, report):
            seen.add(path)
            if time.monotonic() > deadline + _WALK_S:
                report.problems.append(f"{folder} is too large to be looked through in time")
                complete = False
                break
            if known.get(path) != (status.st_size, status.st_mtime_ns):
                changed.add(path)
        if changed:
            _index_changed(db, folder, top, protected, changed, deadline=deadline, report=report)
    finally:
        os.close(top)
    for path in known.keys() - seen if complete else ():
        with db:
            db.execute("BEGIN IMMEDIATE")
            _drop_file(db, folder, path)
    return True


def _index_changed(
    db: sqlite3.Connection,
    folder: str,
    top: int,
    protected: frozenset[str],
    changed: set[str],
    *,
    deadline: float,
    report: _Report,
) -> None:
    """Read the changed files in a second walk: only while one continues are the folders of its files open."""
    unread = len(changed)
    with count_work("reading documents", unit="document", total=unread) as counter:
        for path, descriptor, name, _ in _walk_documents(top, folder, protected, _Report()):
            if time.monotonic() > deadline:
                break
            if path in changed:
                unread -= 1
                with suppress(OSError):
                    _index_file(db, folder, path, descriptor, name)
                counter.add()
    report.left += unread


def _walk_documents(
    top: int, folder: str, protected: frozenset[str], report: _Report
) -> Iterator[tuple[str, int, str, os.stat_result]]:
    """Yield of each file to index the path relative to the folder, the open folder it is in, its name and state."""
    count = 0
    for here, folders, names, descriptor in os.fwalk(".", follow_symlinks=False, dir_fd=top):
        below = os.path.normpath(here)
        kept = sorted(
            name
            for name in folders
            if name not in _SKIPPED and _may_be_read(below, name, folder, protected, is_file=False)
        )
        folders[:] = kept if below.count("/") < MAX_DEPTH else []
        for name in sorted(names):
            if os.path.splitext(name)[1].lower() not in ENDINGS:
                continue
            if not _may_be_read(below, name, folder, protected, is_file=True):
                continue
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            count += 1
            if count > MAX_FILES:
                report.problems.append(f"{folder} has more than {MAX_FILES:,} documents; the others are left out")
                return
            yield os.path.normpath(os.path.join(below, name)), descriptor, name, status


def _may_be_read(below: str, name: str, folder: str, protected: frozenset[str], *, is_file: bool) -> bool:
    """Return False for what no tool may read: hidden files, protected paths, and names of secrets."""
    parts = [part.casefold() for part in os.path.normpath(os.path.join(below, name)).split("/")]
    if name.startswith(".") or not name.isprintable():
        return False
    if os.path.normpath(os.path.join(folder, below, name)) in protected or is_secret(parts):
        return False
    return not (is_file and may_hold_secrets(parts))


def _index_file(db: sqlite3.Connection, folder: str, path: str, descriptor: int, name: str) -> None:
    """Index one file. A problem is stored with it, so that the file is not tried again before it changes."""
    ending = os.path.splitext(name)[1].lower()
    try:
        handle = os.open(name, _OPEN_FLAGS, dir_fd=descriptor)
    except OSError:
        return
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return
        key = (folder, path, status.st_size, status.st_mtime_ns)
        if ending not in TEXT_ENDINGS:
            with db:
                db.execute("BEGIN IMMEDIATE")
                _store_file(db, key, _INTERRUPTED, [])
        try:
            signal.alarm(_FILE_S)
            passages, problem = passages_of(file, ending=ending)
        except NoReaderError as error:
            # The extra may be there at the next search.
            passages, problem = [], str(error)
            key = (folder, path, status.st_size, _TRY_AGAIN)
        except DocumentError as error:
            passages, problem = [], str(error)
        except (Exception, RecursionError, _TooLongError):
            # Whatever a parser raises for a hostile document.
            passages, problem = [], _INTERRUPTED
        finally:
            signal.alarm(0)
    with db:
        db.execute("BEGIN IMMEDIATE")
        _store_file(db, key, problem, [(passage.place, passage.text) for passage in passages])


def _store_file(
    db: sqlite3.Connection, key: tuple[str, str, int, int], problem: str, passages: list[tuple[str, str]]
) -> None:
    """Replace what the index has of a file. `key` is its folder, path, size and time of change."""
    folder, path, size, at = key
    _drop_file(db, folder, path)
    file = db.execute(
        "INSERT INTO file (folder, path, size, time, problem) VALUES (?, ?, ?, ?, ?)", (folder, path, size, at, problem)
    ).lastrowid
    for place, text in passages:
        row = db.execute("INSERT INTO place (file, name) VALUES (?, ?)", (file, place)).lastrowid
        db.execute("INSERT INTO passage (rowid, text) VALUES (?, ?)", (row, without_surrogates(text)))


def _drop_file(db: sqlite3.Connection, folder: str, path: str) -> None:
    row = db.execute("SELECT id FROM file WHERE folder = ? AND path = ?", (folder, path)).fetchone()
    if row is not None:
        db.execute("DELETE FROM passage WHERE rowid IN (SELECT id FROM place WHERE file = ?)", row)
        db.execute("DELETE FROM place WHERE file = ?", row)
        db.execute("DELETE FROM file WHERE id = ?", row)


def _drop_unused_folders(db: sqlite3.Connection) -> None:
    old = [path for (path,) in db.execute("SELECT path FROM folder WHERE used < ?", (time.time() - _UNUSED_S,))]
    for folder in old:
        with db:
            db.execute("BEGIN IMMEDIATE")
            for (path,) in db.execute("SELECT path FROM file WHERE folder = ?", (folder,)).fetchall():
                _drop_file(db, folder, path)
            db.execute("DELETE FROM folder WHERE path = ?", (folder,))


def _best_passages(db: sqlite3.Connection, folders: list[str], words: list[str], max_hits: int) -> Iterator[JsonValue]:
    marks = ",".join("?" * len(folders))
    # The best passages of each file, so that one file full of the words does not crowd out the others.
    found = db.execute(
        "SELECT file.folder, file.path, best.name, passage.text FROM ("
        " SELECT place.id, place.file, place.name, passage.rank AS score,"
        " row_number() OVER (PARTITION BY place.file ORDER BY passage.rank) AS number"
        " FROM passage JOIN place ON place.id = passage.rowid WHERE passage MATCH ?) AS best"
        " JOIN passage ON passage.rowid = best.id JOIN file ON file.id = best.file"
        f" WHERE best.number <= {_MAX_FROM_ONE_FILE} AND file.folder IN ({marks})"
        f" ORDER BY best.score LIMIT {_MAX_CANDIDATES}",
        (query_of(words), *folders),
    )
    # Folders may overlap, so a passage may be found twice.
    taken: dict[str, set[str]] = {}
    for folder, path, place, text in found:
        texts = taken.setdefault(os.path.join(folder, path), set())
        if text not in texts and len(texts) < _MAX_FROM_ONE_FILE and max_hits > 0:
            texts.add(text)
            max_hits -= 1
            yield {"path": os.path.join(folder, path), "place": place, "text": text}


class _TooLongError(BaseException):
    """Not an Exception, so that a parser that catches everything does not catch it."""


def _raise_too_long(signum: int, frame: Any) -> None:
    raise _TooLongError


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


def passages_of(file: BinaryIO, *, ending: str) -> tuple[list[Passage], str]:
    """Return the passages of an open document, and what was left out, as a clause; empty: nothing was.

    Raises DocumentError, and whatever else a parser raises for a document that is made to confuse it.
    """
    size = os.fstat(file.fileno()).st_size
    if ending in PDF_ENDINGS:
        return _limit_passages(_pdf_passages(file, size=size))
    data = file.read(MAX_BYTES)
    if is_binary(data):
        raise DocumentError("it is not text")
    text = decode_page(data, charset="")
    lines = _html_lines(text) if ending in HTML_ENDINGS else enumerate(text.split("\n"), 1)
    found, left_out = _limit_passages(_split_passages(lines))
    return found, left_out or (f"only the first {MAX_BYTES:,} bytes were read" if size > MAX_BYTES else "")


def _limit_passages(passages: Iterable[Passage]) -> tuple[list[Passage], str]:
    read: list[Passage] = []
    for passage in passages:
        if len(read) == MAX_PASSAGES:
            return read, f"only the first {MAX_PASSAGES:,} passages were read"
        read.append(passage)
    return read, ""


def _split_passages(lines: Iterable[tuple[int, str]]) -> Iterator[Passage]:
    """Yield passages of whole lines. One ends before a heading or after a blank line if it is long enough."""
    taken: list[str] = []
    first = last = size = 0
    for number, line in lines:
        for part in _split_line(line.rstrip()):
            ends = not part.strip() or part.startswith("#")
            if taken and (size + len(part) > _MAX_PASSAGE or (size >= PASSAGE and ends)):
                yield Passage(_line_range(first, last), "\n".join(taken).strip())
                taken, size = [], 0
            if not part.strip() and (not taken or not taken[-1]):
                continue
            first = number if not taken else first
            last = number if part.strip() else last
            taken.append(part)
            size += len(part) + 1
    if text := "\n".join(taken).strip():
        yield Passage(_line_range(first, last), text)


def _split_line(line: str) -> Iterator[str]:
    """Yield a line in parts of at most `PASSAGE` characters."""
    yield line[:PASSAGE]
    for begin in range(PASSAGE, len(line), PASSAGE):
        yield line[begin : begin + PASSAGE]


def _line_range(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"


class _LocatedReader(PageReader):
    """Keeps with each piece of text the line of the page that it comes from."""

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
