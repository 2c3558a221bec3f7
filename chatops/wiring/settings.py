"""Values of the app that are read often: from memory, written behind. Only this process's writes are seen, but for
what is asked for fresh."""

from chatops.runtime.offload import Offload
from chatops.store.base import Store


class Settings:
    """A cache over the store's settings, so that nothing waits for the disk on the event loop twice."""

    def __init__(self, store: Store, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self._known: dict[str, str | None] = {}
        self._wanted: dict[str, int] = {}
        """How often a key was set here: only the event loop counts this, and only the store's thread the next."""
        self._written: dict[str, int] = {}
        """Which of those was written last."""

    def get(self, key: str) -> str | None:
        """The value; None if there is none."""
        if key not in self._known:
            self._known[key] = self._store.setting(key)
        return self._known[key]

    def fresh(self, key: str) -> str | None:
        """The value, also if another process has written it; one of this process that is not written yet is newer."""
        if self._wanted.get(key) == self._written.get(key):
            self._known[key] = self._store.setting(key)
        return self._known[key]

    def set(self, key: str, value: str) -> None:
        """Keep a value; it is written in its turn, a failure is only logged."""
        self._known[key] = value
        number = self._wanted[key] = self._wanted.get(key, 0) + 1
        self._offload.later(self._write, key, value, number)

    def _write(self, key: str, value: str, number: int) -> None:
        self._store.set_setting(key, value)
        self._written[key] = number
