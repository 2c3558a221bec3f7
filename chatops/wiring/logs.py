"""The log: one rotating file of the user, 0600. Nothing is ever logged to the screen."""

import logging
import os
from logging.handlers import RotatingFileHandler
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
    if any(isinstance(handler, _PrivateFile | logging.NullHandler) for handler in root.handlers):
        return
    handler: logging.Handler
    try:
        handler = _PrivateFile(folder / FILE, maxBytes=SIZE, backupCount=KEPT, encoding="utf-8", delay=True)
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(_Visible("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)


class _Visible(logging.Formatter):
    """Formatter that replaces control characters of models, tools and servers, so that the log is safe to print."""

    def format(self, record: logging.LogRecord) -> str:
        return sanitize(super().format(record))


class _PrivateFile(RotatingFileHandler):
    """Rotating file that only the user can read. Its own errors are dropped."""

    def _open(self):  # type: ignore[no-untyped-def]
        def opener(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, self.mode, encoding=self.encoding, errors="backslashreplace", opener=opener)

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error: a full disk is reported where it matters."""
