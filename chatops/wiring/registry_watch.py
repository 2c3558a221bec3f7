"""Which registry counts while the program runs, when its files change under it.

What a changed file takes away counts from the next call on. What it adds waits for the person's word, or for the next
start: nothing gets wider because somebody, or something, wrote a file. A file that breaks changes nothing.
"""

import threading
from dataclasses import replace

from chatops.config.registry import Loaded
from chatops.domain.errors import ConfigError
from chatops.policy.registry import Registry
from chatops.runtime.rights import RegistryNews


class RegistryWatch:
    """The registries in force, and those that have been read since and are not. May be asked from any thread."""

    def __init__(self, loaded: Loaded) -> None:
        """Begin with what was read at the start."""
        self.loaded = loaded
        """In force."""
        self.coming: Loaded | None = None
        """Read since: counts for what it takes away, and not yet for what it adds."""
        self.broken: ConfigError | None = loaded.broken
        """Why the file as it is now cannot be used."""
        self.broken_note = next((one for one in loaded.notices if one.startswith(str(loaded.broken))), "")
        """The same for the person, with what is in force instead; empty if it can be used."""
        self._newest = loaded
        self._looking = threading.Lock()

    def look(self) -> RegistryNews | None:
        """Take account of what the files say by now; None if they say nothing new, or if another thread is looking."""
        if not self._looking.acquire(blocking=False):
            return None
        try:
            changed = self._newest.reload_if_changed()
            return None if changed is None else self._take(changed)
        finally:
            self._looking.release()

    def put_in_force(self) -> None:
        """The person's word: from now on what has been read counts. Raises ConfigError if the file is broken."""
        with self._looking:
            if self.broken is not None:
                raise self.broken
            if self.coming is not None:
                self.loaded, self.coming = self.coming, None

    def _take(self, changed: Loaded) -> RegistryNews:
        was_broken, self._newest = self.broken is not None, changed
        self.broken = changed.broken
        self.broken_note = f"{changed.broken} What was in force before stays in force." if changed.broken else ""
        if changed.broken is not None:
            return RegistryNews(told=(self.broken_note,))
        cured = ("The registry can be read again.",) if was_broken else ()
        if _says_the_same(changed, self.loaded):
            self.loaded, self.coming = changed, None
            return RegistryNews(told=cured)
        self.coming = changed
        return RegistryNews(told=(*cured, *(one for one in changed.notices if one not in self.loaded.notices)))


def _says_the_same(one: Loaded, other: Loaded) -> bool:
    same = [_meaning(new) == _meaning(old) for new, old in zip(one.registries, other.registries, strict=True)]
    return all(same) and one.access_cap == other.access_cap


def _meaning(registry: Registry | None) -> Registry | None:
    """A registry without what only its place or its spelling sets."""
    return None if registry is None else replace(registry, source="", digest="", warnings=())
