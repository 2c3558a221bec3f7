"""Values of the app that are read often: from memory, written behind. Only this process's writes are seen, but for
what is asked for fresh."""

from collections import Counter

from chatops.runtime.offload import Offload
from chatops.store.base import Store


class Settings:
    """A cache over the store's settings, so that nothing waits for the disk on the event loop twice."""

    def __init__(self, store: Store, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self._known: dict[str, str | None] = {}
        self._unwritten: Counter[str] = Counter()

    def get(self, key: str) -> str | None:
        """The value; None if there is none."""
        if key not in self._known:
            self._known[key] = self._store.setting(key)
        return self._known[key]

    def fresh(self, key: str) -> str | None:
        """The value, also if another process has written it; one of this process that is not written yet is newer."""
        if not self._unwritten[key]:
            self._known[key] = self._store.setting(key)
        return self._known[key]

    def set(self, key: str, value: str) -> None:
        """Keep a value; it is written in its turn, a failure is only logged."""
        self._known[key] = value
        self._unwritten[key] += 1
        self._offload.later(self._write, key, value)

    def _write(self, key: str, value: str) -> None:
        self._store.set_setting(key, value)
        self._unwritten[key] -= 1
