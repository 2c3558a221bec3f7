"""Index of the user's documents: SQLite's FTS5, in a file of the data folder. Runs in a process of its own.

The index is a cache. Before each search it is brought up to date: files with another size or time than the indexed ones
are read again, those that are gone are dropped. One file is one transaction, so what was read stays when the process is
stopped. A file that may keep its parser busy is marked before it is read. If the process dies then, the next one finds
the mark and leaves the file out until it changes.

Folders are walked by descriptors, and no symbolic link is followed. Hidden files and files that may hold secrets are
left out. `passages` reads a document; limits apply to the process, and `_FILE_S` to each document.
"""

import os
import re
import signal
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.names import is_secret, may_hold_secrets
from chatops.toolkit.counting import count_work
from chatops.toolkit.output import without_surrogates
from chatops.tools.passages import ENDINGS, TEXT_ENDINGS, Content, DocumentError, NoReaderError, read_document

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
_NEVER_CHANGED = -1
"""Stored as the time of change of a file that the next search is to read again: no file has this time."""
_SCHEMA = """
CREATE TABLE folder (path TEXT PRIMARY KEY, used INTEGER NOT NULL);
CREATE TABLE file (id INTEGER PRIMARY KEY, folder TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL,
  time INTEGER NOT NULL, problem TEXT NOT NULL, UNIQUE (folder, path));
CREATE TABLE place (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, name TEXT NOT NULL);
CREATE INDEX place_file ON place (file);
CREATE VIRTUAL TABLE passage USING fts5 (text, tokenize = 'porter unicode61 remove_diacritics 2');
"""


class Hit(TypedDict):
    """A passage that a search found."""

    path: str
    place: str
    """Its place in the document."""
    text: str


class Found(TypedDict):
    """Result of a search, as JSON passes it to the process of chatops."""

    hits: list[Hit]
    """The best first."""
    files: int
    """Number of files in the index of the folders that were searched."""
    left: int
    """Number of files that are not read yet."""
    problems: list[str]
    """Sentences about folders and files."""


def search_documents(
    index: str, folders: list[str], protected: list[str], words: list[str], max_hits: int, seconds: float
) -> Found:
    """Bring the index of `folders` up to date for at most `seconds`, and search it for `words`, any of which may match.

    Raises sqlite3.Error.
    """
    signal.signal(signal.SIGALRM, _raise_too_long)
    with closing(_open_index(Path(index))) as db:
        update = _Update(db, protected=frozenset(protected), deadline=time.monotonic() + seconds)
        # A folder that cannot be read is not searched: what the index has of it may be old.
        folders = [folder for folder in folders if update.index_folder(folder)]
        _drop_unused_folders(db)
        marks = ",".join("?" * len(folders))
        for path, problem in db.execute(
            f"SELECT path, problem FROM file WHERE problem != '' AND folder IN ({marks}) ORDER BY path", folders
        ):
            update.problems.append(f"{path}: {problem}")
        (files,) = db.execute(f"SELECT count(*) FROM file WHERE folder IN ({marks})", folders).fetchone()
        hits = list(_best_passages(db, folders, words, max_hits))
    return {"hits": hits, "files": files, "left": update.left, "problems": update.problems}


def query_of(words: Sequence[str]) -> str:
    """Return the FTS5 query for any of `words`, each as a quoted string, so that none of them is syntax."""
    parts = (part for word in words for part in _WORD.findall(word))
    return " OR ".join(f'"{part}"' for part in list(dict.fromkeys(parts))[:MAX_WORDS])


def _open_index(path: Path) -> sqlite3.Connection:
    """Open the index. It is made again if it is damaged or of another version."""
    os.umask(0o077)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _connect(path)
    except sqlite3.DatabaseError:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file, with tables if it is new. Raises sqlite3.DatabaseError if it is of another version."""
    db = sqlite3.connect(path, timeout=10.0, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_INDEX_VERSION}; COMMIT;")
        elif version != _INDEX_VERSION:
            raise sqlite3.DatabaseError("another version")
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    with db:
        db.execute("BEGIN IMMEDIATE")
        yield


@frozen_dataclass
class _Document:
    """A file to index, as a walk finds it."""

    path: str
    """Relative to the folder that is walked."""
    name: str
    descriptor: int
    """Of the folder that it is in. The walk closes it when it continues."""
    size: int
    time_ns: int


@dataclass
class _Update:
    """Brings the index up to date, folder by folder, and records what could not be indexed."""

    db: sqlite3.Connection
    protected: frozenset[str]
    """Paths that no tool may read."""
    deadline: float
    """Time (`time.monotonic`) from which on no document is read."""
    left: int = 0
    """Number of changed files that there was no time to read."""
    problems: list[str] = field(default_factory=list)

    def index_folder(self, folder: str) -> bool:
        """Index what has changed in a folder. Return False if it cannot be read."""
        self.db.execute("INSERT OR REPLACE INTO folder VALUES (?, ?)", (folder, int(time.time())))
        indexed = {
            path: (size, time_ns)
            for path, size, time_ns in self.db.execute("SELECT path, size, time FROM file WHERE folder = ?", (folder,))
        }
        try:
            top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self.problems.append(f"{folder} cannot be read: {error.strerror}")
            return False
        present: dict[str, tuple[int, int]] = {}
        is_complete = True
        try:
            for document in self._walk(top, folder):
                if len(present) == MAX_FILES:
                    self.problems.append(f"{folder} has more than {MAX_FILES:,} documents; the others are left out")
                    break
                if time.monotonic() > self.deadline + _WALK_S:
                    self.problems.append(f"{folder} is too large to be looked through in time")
                    is_complete = False
                    break
                present[document.path] = (document.size, document.time_ns)
            changed = {path for path, state in present.items() if indexed.get(path) != state}
            if changed:
                self._index_changed(folder, top, changed)
        finally:
            os.close(top)
        for path in indexed.keys() - present.keys() if is_complete else ():
            with _transaction(self.db):
                _drop_file(self.db, folder, path)
        return True

    def _index_changed(self, folder: str, top: int, changed: set[str]) -> None:
        """Read the changed files in a second walk: only while one continues are the folders of its files open."""
        unread = len(changed)
        with count_work("reading documents", unit="document", total=unread) as counter:
            for document in self._walk(top, folder):
                if time.monotonic() > self.deadline:
                    break
                if document.path in changed:
                    unread -= 1
                    with suppress(OSError):
                        _index_file(self.db, folder, document)
                    counter.add()
        self.left += unread

    def _walk(self, top: int, folder: str) -> Iterator[_Document]:
        """Yield each file to index below `folder`, whose descriptor is `top`."""
        for here, folders, names, descriptor in os.fwalk(".", follow_symlinks=False, dir_fd=top):
            below = os.path.normpath(here)
            kept = sorted(
                name
                for name in folders
                if name not in _SKIPPED and _may_be_read(below, name, folder, self.protected, is_file=False)
            )
            folders[:] = kept if below.count("/") < MAX_DEPTH else []
            for name in sorted(names):
                if os.path.splitext(name)[1].lower() not in ENDINGS:
                    continue
                if not _may_be_read(below, name, folder, self.protected, is_file=True):
                    continue
                try:
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    path = os.path.normpath(os.path.join(below, name))
                    size, time_ns = status.st_size, status.st_mtime_ns
                    yield _Document(path=path, name=name, descriptor=descriptor, size=size, time_ns=time_ns)


def _may_be_read(below: str, name: str, folder: str, protected: frozenset[str], *, is_file: bool) -> bool:
    """Return False for what no tool may read: hidden files, protected paths, and names of secrets."""
    parts = [part.casefold() for part in os.path.normpath(os.path.join(below, name)).split("/")]
    if name.startswith(".") or not name.isprintable():
        return False
    if os.path.normpath(os.path.join(folder, below, name)) in protected or is_secret(parts):
        return False
    return not (is_file and may_hold_secrets(parts))


def _index_file(db: sqlite3.Connection, folder: str, document: _Document) -> None:
    """Index one file. A problem is stored with it, so that the file is not tried again before it changes."""
    ending = os.path.splitext(document.name)[1].lower()
    try:
        handle = os.open(document.name, _OPEN_FLAGS, dir_fd=document.descriptor)
    except OSError:
        return
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return
        # Of the file that is open: it may be another one than the walk has found.
        read = replace(document, size=status.st_size, time_ns=status.st_mtime_ns)
        if ending not in TEXT_ENDINGS:
            _store_file(db, folder, read, Content(problem=_INTERRUPTED))
        try:
            content = _read_in_time(file, ending=ending)
        except NoReaderError as error:
            # The extra may be there at the next search.
            read, content = replace(read, time_ns=_NEVER_CHANGED), Content(problem=str(error))
    _store_file(db, folder, read, content)


def _read_in_time(file: BinaryIO, *, ending: str) -> Content:
    """Read a document for at most `_FILE_S`. Raises NoReaderError."""
    try:
        signal.alarm(_FILE_S)
        return read_document(file, ending=ending)
    except NoReaderError:
        raise
    except DocumentError as error:
        return Content(problem=str(error))
    except (Exception, _TooLongError):
        # Whatever a parser raises for a hostile document.
        return Content(problem=_INTERRUPTED)
    finally:
        signal.alarm(0)


def _store_file(db: sqlite3.Connection, folder: str, document: _Document, content: Content) -> None:
    """Replace what the index has of a file."""
    with _transaction(db):
        _drop_file(db, folder, document.path)
        file = db.execute(
            "INSERT INTO file (folder, path, size, time, problem) VALUES (?, ?, ?, ?, ?)",
            (folder, document.path, document.size, document.time_ns, content.problem),
        ).lastrowid
        for passage in content.passages:
            row = db.execute("INSERT INTO place (file, name) VALUES (?, ?)", (file, passage.place)).lastrowid
            db.execute("INSERT INTO passage (rowid, text) VALUES (?, ?)", (row, without_surrogates(passage.text)))


def _drop_file(db: sqlite3.Connection, folder: str, path: str) -> None:
    row = db.execute("SELECT id FROM file WHERE folder = ? AND path = ?", (folder, path)).fetchone()
    if row is not None:
        db.execute("DELETE FROM passage WHERE rowid IN (SELECT id FROM place WHERE file = ?)", row)
        db.execute("DELETE FROM place WHERE file = ?", row)
        db.execute("DELETE FROM file WHERE id = ?", row)


def _drop_unused_folders(db: sqlite3.Connection) -> None:
    old = [path for (path,) in db.execute("SELECT path FROM folder WHERE used < ?", (time.time() - _UNUSED_S,))]
    for folder in old:
        with _transaction(db):
            for (path,) in db.execute("SELECT path FROM file WHERE folder = ?", (folder,)).fetchall():
                _drop_file(db, folder, path)
            db.execute("DELETE FROM folder WHERE path = ?", (folder,))


def _best_passages(db: sqlite3.Connection, folders: list[str], words: list[str], max_hits: int) -> Iterator[Hit]:
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
