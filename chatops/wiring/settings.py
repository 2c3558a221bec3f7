"""Application settings that are read often: cached in memory, written in the background.

Only this process's writes are seen, except through `fresh`.
"""

from chatops.runtime.worker import WorkerThread
from chatops.store.base import Store


class Settings:
    """A cache over the store's settings, so that the event loop waits for the disk only once per key."""

    def __init__(self, store: Store, worker: WorkerThread) -> None:
        self._store = store
        self._worker = worker
        self._known: dict[str, str | None] = {}
        self._wanted: dict[str, int] = {}
        """Number of times that a key was set here. Only the event loop changes it, only the store's thread the next."""
        self._written: dict[str, int] = {}
        """Which of those was written last."""

    def get(self, key: str) -> str | None:
        """Return the value; None if there is none."""
        if key not in self._known:
            self._known[key] = self._store.setting(key)
        return self._known[key]

    def fresh(self, key: str) -> str | None:
        """Return the value, including one written by another process, unless this process has a newer one to write."""
        if self._wanted.get(key) == self._written.get(key):
            self._known[key] = self._store.setting(key)
        return self._known[key]

    def set(self, key: str, value: str) -> None:
        """Keep a value and queue it for writing. A failure is only logged."""
        self._known[key] = value
        number = self._wanted[key] = self._wanted.get(key, 0) + 1
        self._worker.later(self._write, key, value, number)

    def _write(self, key: str, value: str, number: int) -> None:
        self._store.set_setting(key, value)
        self._written[key] = number
