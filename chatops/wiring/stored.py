"""The user's store: the file, or a copy of it in memory if it cannot or must not be written. And the settings in it.

The log is one rotating file of the user, 0600. Nothing is ever logged to the screen.

`Options` has the options of the command line, and the workspace that they name.
"""

import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum, auto
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.paths import REGISTRY_VARIABLE, SITE_REGISTRY, Paths, find_paths, plain_file
from chatops.domain.decisions import Principal
from chatops.domain.errors import ConfigError, NotSavedError, StoreError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.known_keys import without_keys
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import AccessLevel
from chatops.policy.budget import NO_BUDGET, Budget
from chatops.policy.resolve import User
from chatops.store.base import SessionInfo
from chatops.store.connection import Connection
from chatops.store.late_file import LateFile
from chatops.store.opening import must_have_room
from chatops.store.recovery import copy_without_turns, empty_in_memory, open_readable
from chatops.store.store import Store
from chatops.store.store_file import StoreFile
from chatops.toolkit.confine import home_folders, why_not_for_commands

if TYPE_CHECKING:
    from chatops.runtime.services import WorkerThread


STORE_VARIABLE = "CHATOPS_STORE"
"""Environment variable with the address of a database for the sessions."""


class Storage(Enum):
    """How much a command depends on the store."""

    NEEDED = auto()
    """Everything it does has to be stored, or is not done."""
    WANTED = auto()
    """A session: if nothing can be stored, it continues in memory and says so."""
    READ = auto()
    """Read-only: the file is not touched, and the readable part of a damaged one is available."""


@contextmanager
def open_store(storage: Storage = Storage.NEEDED, *, registry: Path | None = None) -> Iterator[Store]:
    """Yield the user's store, and close it in any case. `registry` is the file of ``--registry``.

    Raises ConfigError without a home folder, and StoreError.
    """
    paths = find_paths(os.environ)
    paths.prepare()
    store = make_store(None, paths, storage, registry=registry)
    try:
        yield store
    finally:
        store.close()


def make_store(file: Path | None, paths: Paths, storage: Storage, *, registry: Path | None = None) -> Store:
    """Return the store in `file`, by default the user's: in the database that is named, or in its usual file.

    A file is created if it is missing and `storage` is not READ. Raises StoreError, and ConfigError for a database.
    """
    if file is None and (address := database_address(paths, registry)):
        reason = "the store is only read" if storage is Storage.READ else ""
        return Store(_connect_database(address, unsaved=reason))
    path = file or paths.store
    match storage:
        case Storage.NEEDED:
            return Store(path)
        case Storage.WANTED:
            return _open_writable(path)
        case Storage.READ:
            return _open_readable(path)


def database_address(paths: Paths, registry: Path | None = None) -> str:
    """Return the address of the database that holds the sessions; empty if a file does.

    The environment names it, else the site's registry, else the user's. Raises ConfigError.
    """
    address = os.environ.get(STORE_VARIABLE, "").strip()
    if address and not address.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            f"{STORE_VARIABLE} names no database.", advice=f"Such as: {STORE_VARIABLE}=postgresql://host/database"
        )
    own = (registry or Path(os.environ.get(REGISTRY_VARIABLE) or paths.registry)).absolute()
    # Reading a registry takes longer than all else that a list of sessions needs, and few name a store.
    if address or not any(map(_may_name_store, (SITE_REGISTRY, own, paths.last_good_copy(own)))):
        return address
    from chatops.config.registry import load_registry

    loaded = load_registry(path=registry, paths=paths, env=os.environ)
    named = (loaded.site.store if loaded.site is not None else "") or loaded.registry.store
    if not named and loaded.broken is not None:
        # The sessions must not go into a file only because the registry broke.
        raise loaded.broken
    return named


def _may_name_store(path: Path) -> bool:
    try:
        with plain_file(path, follow=True) as (file, _):
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    # In JSON the key may also be spelled with escapes.
    return b'"store"' in data or b"\\u" in data


def open_address(address: str) -> Connection:
    """Open the store at ``sqlite://PATH``, which must exist, or ``postgresql://…``. Raises ConfigError, StoreError."""
    path = sqlite_path(address)
    return _connect_database(address) if path is None else StoreFile(path)


def sqlite_path(address: str) -> Path | None:
    """Return the file at ``sqlite://PATH``, which must exist; None for ``postgresql://…``. Raises ConfigError."""
    if address.startswith(("postgresql://", "postgres://")):
        return None
    path = Path(address.removeprefix("sqlite://")).expanduser()
    if not address.startswith("sqlite://") or not path.is_file():
        raise ConfigError(
            f"{address} names no store.", advice="Write sqlite:///FOLDER/chatops.db, or postgresql://host/database."
        )
    return path


def _connect_database(address: str, *, unsaved: str = "") -> Connection:
    try:
        from chatops.store.postgres import Postgres  # only where a database is named
    except ImportError:
        from chatops.config.extras import not_installed

        raise ConfigError(f"The store is a database, and {not_installed('team')}.") from None
    return Postgres(address, unsaved=unsaved, keyring=_keyring_password)


def _keyring_password(place: str) -> str:
    """Return the password of a database from the system's keyring; empty if there is none."""
    try:
        return str(import_module("keyring").get_password("chatops", place) or "")
    except Exception:  # The package may be absent, and backends may raise any exception.
        return ""


def _open_writable(path: Path) -> Store:
    try:
        store = Store(path)
    except NotSavedError as error:
        return _copy_to_memory(path, error)
    try:
        must_have_room(path)
    except NotSavedError as error:
        store.close()
        return _copy_to_memory(path, error)
    return store


def _open_readable(path: Path) -> Store:
    rows, salvage = open_readable(path, unsaved="the store is only read")
    if salvage is not None and not salvage.whole:
        rows.notices.append(f"The session store {path} is damaged. {salvage.text}")
    return Store(rows)


def _copy_to_memory(path: Path, why: NotSavedError) -> Store:
    """Return a copy of the store in memory, an empty one if the file cannot even be read.

    `Store.save` moves it into the file once that can be written.
    """
    try:
        rows, _ = copy_without_turns(path, unsaved=why.reason)
    except StoreError:
        rows = Connection(empty_in_memory(), path=path, unsaved=why.reason)
    notice = f"{why} Nothing from now on is kept when chatops ends, and no call can be approved. {why.advice}"
    return Store(LateFile(rows, notice=notice))


class Settings:
    """Application settings that are read often: cached in memory, written in the background.

    The event loop waits for the disk only once per key. Only this process's writes are seen, except through `fresh`.
    """

    def __init__(self, store: Store, worker: "WorkerThread") -> None:
        self._store = store
        self._worker = worker
        self._known: dict[str, str | None] = {}
        self._times_set: dict[str, int] = {}
        """How many times each key was set here. Only the event loop changes it."""
        self._times_written: dict[str, int] = {}
        """How many of these values were written, by key. Only the store's thread changes it."""

    def get(self, key: str) -> str | None:
        """Return the value; None if there is none."""
        if key not in self._known:
            self._known[key] = self._store.setting(key)
        return self._known[key]

    def fresh(self, key: str) -> str | None:
        """Return the value, including one written by another process, unless this process has a newer one to write."""
        if self._times_set.get(key) == self._times_written.get(key):
            self._known[key] = self._store.setting(key)
        return self._known[key]

    def set(self, key: str, value: str) -> None:
        """Keep a value and queue it for writing. A failure is only logged."""
        self._known[key] = value
        number = self._times_set[key] = self._times_set.get(key, 0) + 1
        self._worker.later(self._write, key, value, number)

    def _write(self, key: str, value: str, number: int) -> None:
        self._store.set_setting(key, value)
        self._times_written[key] = number


@frozen_dataclass
class Options:
    """Options of the command line."""

    registry: Path | None = None
    workspace: Path | None = None
    access: AccessLevel | None = None
    role: str | None = None
    model: str | None = None
    max_rounds: int | None = None
    budget: Budget = NO_BUDGET
    """What a turn may spend before it asks: ``--budget``."""
    approvals: tuple[str, ...] = ()
    """Rules in the syntax of ``--approve``, for this run."""
    summary: bool = False
    sandbox: SandboxSpec = NARROWEST
    """Folders that commands may see or write in addition: ``--add-dir``."""
    storage: Storage = Storage.NEEDED
    store: Path | None = None
    """A file to read instead of the user's store."""
    via: str = "tui"
    """The UI that decisions are recorded under: ``tui``, ``headless``, ``approvals``, ``acp`` or ``python``."""
    client: str = ""
    """The editor that passes decisions on, with its version, for the record."""


def added_folders(texts: Sequence[str]) -> SandboxSpec:
    """Return what ``--add-dir DIR[:ro]`` lets commands see and write. Raises ConfigError."""
    read: list[str] = []
    write: list[str] = []
    for text in texts:
        name = text.removesuffix(":ro")
        folder = Path(name).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError(f"--add-dir {name}: there is no such folder.", advice="Name a folder that exists.")
        if any(home.is_relative_to(folder) for home in home_folders()):
            raise ConfigError(
                f"--add-dir {name}: commands would see your home folder.", advice="Name a folder inside of it."
            )
        if fault := why_not_for_commands((str(folder),), protected=find_paths(os.environ).protected):
            raise ConfigError(f"--add-dir {name}: {fault[0].lower()}{fault[1:]}", advice="Name another folder.")
        (read if text.endswith(":ro") else write).append(str(folder))
    return SandboxSpec(read=tuple(read), write=tuple(write))


def workspace_of(folder: Path | None) -> Path:
    """Return the workspace: `folder`, or the current one. Raises ConfigError if there is no such folder."""
    try:
        wanted = folder or Path.cwd()
    except FileNotFoundError:
        raise ConfigError(
            "The folder you are in has been deleted.", advice="Go to another, or name one with --workspace DIR."
        ) from None
    if not wanted.is_dir():
        raise ConfigError(f"The workspace {wanted} is not a folder.", advice="Name one with --workspace DIR.")
    return wanted.resolve()


def refuse_queued(session: SessionInfo) -> None:
    """Raise ConfigError for a session that only workers drive."""
    if session.queue:
        raise ConfigError(
            f"Session {session.id} is in the queue: the workers of {session.queue} drive it, and nobody else does.",
            advice=f"chatops queue list shows where it is, chatops approvals list what it waits for, chatops sessions "
            f"show {session.id} what was said. To continue in a copy: chatops sessions fork {session.id}",
        )


def in_session_workspace(options: Options, session: SessionInfo) -> Options:
    """Return `options` with the workspace of a session: what was approved there must not run in another one.

    Raises ConfigError if that folder is gone, if `options` name another one, or if only workers drive the session.
    """
    refuse_queued(session)
    home = Path(session.workspace)
    if options.workspace is not None and options.workspace.resolve() != home:
        raise ConfigError(
            f"Session {session.id} belongs to {home}, not to {options.workspace}.",
            advice="Leave --workspace out, or start a new session there.",
        )
    if not home.is_dir():
        raise ConfigError(
            f"Session {session.id} belongs to {home}, and that folder is gone.",
            advice=f"Put it back, or only read the session: chatops sessions show {session.id}",
        )
    return replace(options, workspace=home)


def principal_of(user: User, *, via: str, client: str = "", member: str = "") -> Principal:
    """Return the identity that decisions of this process are recorded under. `client` takes the place of a terminal."""
    try:
        tty = client or os.ttyname(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):
        tty = ""
    return Principal(uid=user.uid, login=user.login, host=socket.gethostname(), tty=tty, via=via, member=member)


LOG_FILE = "chatops.log"
MAX_LOG_BYTES = 1_000_000
MAX_OLD_LOGS = 3
CHATTY_LIBRARIES = ("asyncio", "httpcore", "httpx", "httpx2", "markdown_it", "openai")
"""Libraries that log too much, including addresses and headers."""


def start_logging(folder: Path) -> None:
    """Send the log to `folder`, or nowhere if that cannot be written. Idempotent."""
    root = logging.getLogger()
    if any(isinstance(handler, _LogFile) for handler in root.handlers):
        return
    root.addHandler(_LogFile(folder / LOG_FILE))
    root.setLevel(logging.INFO)
    for name in CHATTY_LIBRARIES:
        logging.getLogger(name).setLevel(logging.ERROR)


class _LogFile(logging.Handler):
    """Rotating file that only the user can read. Errors of logging itself are dropped.

    The file, and the module that rotates it, are opened with the first record: most commands log nothing.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: logging.Handler | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._file is None:
            try:
                self._file = _open_log(self._path)
            except OSError:
                # No file can be opened now, not even that of the module. The next record tries again.
                return
        self._file.handle(record)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def _open_log(path: Path) -> logging.Handler:
    from logging.handlers import RotatingFileHandler

    class PrivateFile(RotatingFileHandler):
        def _open(self):  # type: ignore[no-untyped-def]
            def opener(path: str, flags: int) -> int:
                return os.open(path, flags, 0o600)

            return open(self.baseFilename, self.mode, encoding=self.encoding, errors="backslashreplace", opener=opener)

        def handleError(self, record: logging.LogRecord) -> None:
            """Ignore the error: a full disk is reported where it matters."""

    handler = PrivateFile(path, maxBytes=MAX_LOG_BYTES, backupCount=MAX_OLD_LOGS, encoding="utf-8", delay=True)
    handler.setFormatter(_Visible("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    return handler


class _Visible(logging.Formatter):
    """Formatter that replaces keys, and control characters of models, tools and servers: the log is safe to print."""

    def format(self, record: logging.LogRecord) -> str:
        return without_keys(sanitize(super().format(record)))
