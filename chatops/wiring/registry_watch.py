"""The registry in force while the program runs and its files change.

What a changed file takes away counts from the next call on. What it adds waits until the user reloads the registry, or
for the next start: rights never grow just because a file was written. A broken file changes nothing.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace

from chatops.config.registry import Loaded
from chatops.domain.errors import ConfigError
from chatops.domain.rights import AccessLevel
from chatops.policy.registry import Registries, Registry, RoleSpec
from chatops.runtime.settings import RegistryNews


class RegistryWatch:
    """The registries in force, and a newer version that is not in force yet. May be used from any thread."""

    def __init__(self, loaded: Loaded, *, roles: Sequence[RoleSpec] = (), access: AccessLevel | None = None) -> None:
        """Start with the registries read at startup.

        `roles` exist where the user's registry has none of their name, with the models of the default role. `access`
        is the command line's level.
        """
        self._roles = tuple(roles)
        self._access = access
        self.loaded = loaded
        """The registries in force."""
        self.coming: Loaded | None = None
        """The registry read since. It already takes rights away but does not grant any yet."""
        self.broken: ConfigError | None = loaded.broken
        """Error of the current file; None if it can be used."""
        self.broken_note = loaded.broken_note
        """The same for the user, with what is in force instead; empty if the file can be used."""
        self._newest = loaded
        self._looking = threading.Lock()

    @property
    def registries(self) -> Registries:
        """The registries in force: of site and user."""
        return self._with_roles(self.loaded)

    @property
    def coming_registries(self) -> Registries | None:
        """Those of the newer version, if there is one."""
        return None if self.coming is None else self._with_roles(self.coming)

    @property
    def access_cap(self) -> AccessLevel | None:
        """The highest level that command line and site permit; None: any."""
        caps = [cap for cap in (self._access, self.loaded.access_cap) if cap is not None]
        return min(caps, default=None)

    def _with_roles(self, loaded: Loaded) -> Registries:
        site, own = loaded.registries
        default = own.role(own.default_role)
        further = tuple(
            role if default is None else replace(role, models=default.models)
            for role in self._roles
            if own.role(role.name) is None
        )
        return (site, replace(own, roles=(*own.roles, *further)) if further else own)

    def look(self) -> RegistryNews | None:
        """Reread changed files. Returns None if they say nothing new, or if another thread is doing this."""
        if not self._looking.acquire(blocking=False):
            return None
        try:
            changed = self._newest.reload_if_changed()
            return None if changed is None else self._take(changed)
        finally:
            self._looking.release()

    def put_in_force(self) -> None:
        """Put the last version read in force, as the user asked. Raises ConfigError if the file is broken."""
        with self._looking:
            if self.broken is not None:
                raise self.broken
            if self.coming is not None:
                self.loaded, self.coming = self.coming, None

    def _take(self, changed: Loaded) -> RegistryNews:
        was_broken, self._newest = self.broken is not None, changed
        self.broken = changed.broken
        self.broken_note = f"{changed.broken} The previous version stays in force." if changed.broken else ""
        if changed.broken is not None:
            return RegistryNews(notices=(self.broken_note,))
        cured = ("The registry can be read again.",) if was_broken else ()
        if _says_the_same(changed, self.loaded):
            self.loaded, self.coming = changed, None
            return RegistryNews(notices=cured)
        self.coming = changed
        return RegistryNews(notices=(*cured, *(one for one in changed.notices if one not in self.loaded.notices)))


def _says_the_same(one: Loaded, other: Loaded) -> bool:
    same = [_meaning(new) == _meaning(old) for new, old in zip(one.registries, other.registries, strict=True)]
    return all(same) and one.access_cap == other.access_cap


def _meaning(registry: Registry | None) -> Registry | None:
    """Return a registry without what depends only on its location or spelling."""
    return None if registry is None else replace(registry, source="", digest="", warnings=())
