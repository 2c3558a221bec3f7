"""The log: one rotating file of the user, 0600. Nothing is ever logged to the screen."""

import logging
import os
from pathlib import Path

from chatops.domain.sanitize import sanitize

FILE = "chatops.log"
SIZE = 1_000_000
KEPT = 3
CHATTY = ("asyncio", "httpcore", "httpx", "httpx2", "markdown_it", "openai")
"""Libraries that log too much, including addresses and headers."""


def start_logging(folder: Path) -> None:
    """Send the log to `folder`, or nowhere if that cannot be written. Idempotent."""
    root = logging.getLogger()
    if any(isinstance(handler, _LogFile) for handler in root.handlers):
        return
    root.addHandler(_LogFile(folder / FILE))
    root.setLevel(logging.INFO)
    for name in CHATTY:
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
                self._file = _opened(self._path)
            except OSError:
                # No file can be opened now, not even that of the module. The next record tries again.
                return
        self._file.handle(record)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def _opened(path: Path) -> logging.Handler:
    from logging.handlers import RotatingFileHandler

    class PrivateFile(RotatingFileHandler):
        def _open(self):  # type: ignore[no-untyped-def]
            def opener(path: str, flags: int) -> int:
                return os.open(path, flags, 0o600)

            return open(self.baseFilename, self.mode, encoding=self.encoding, errors="backslashreplace", opener=opener)

        def handleError(self, record: logging.LogRecord) -> None:
            """Ignore the error: a full disk is reported where it matters."""

    handler = PrivateFile(path, maxBytes=SIZE, backupCount=KEPT, encoding="utf-8", delay=True)
    handler.setFormatter(_Visible("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    return handler


class _Visible(logging.Formatter):
    """Formatter that replaces control characters of models, tools and servers, so that the log is safe to print."""

    def format(self, record: logging.LogRecord) -> str:
        return sanitize(super().format(record))
