"""The configuration in force while the program runs and its files change.

Theory of operation

The registry is read at the start and by ``/reload``. In between its files are only watched: what a changed file takes
away counts from the next verdict on, what it adds waits for the user. So rights never grow just because a file was
written, and a broken file changes nothing.

A `Configuration` is an immutable value of one moment with both: the registries in force and those of a changed file. A
right exists if both give it. `ConfigurationFiles.now` looks at the files and returns the value. Ask for it again after
each wait, because a denial may have come in the meantime.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from chatops.config.own_tools import OwnToolsTrust
from chatops.config.paths import SITE_REGISTRY, Paths
from chatops.config.prompt_files import Personas, Skills, join_skills, load_personas, load_skills, skills_of
from chatops.config.registry import Loaded, load_registry
from chatops.config.trust import TrustedWorkspace, WorkspaceTrust
from chatops.config.workspace_files import Item
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.known_keys import add_known_keys
from chatops.domain.names import SECRET_NAME, looks_secret
from chatops.domain.tools import AccessLevel, ToolSpec
from chatops.policy.registry import Registries, Registry, RoleSpec


@frozen_dataclass
class Configuration:
    """What is configured at one moment. Not to be kept over a wait."""

    registries: Registries
    """The registries in force: of site and user."""
    changed: Registries | None = None
    """Those of files that have changed since. They take rights away already but do not grant any yet."""
    broken: str = ""
    """Why a changed file cannot be used, and what is in force instead; empty if it can."""
    access_cap: AccessLevel | None = None
    """The lower of the command line's level and `Loaded.access_cap`, set if a broken file is replaced; None: no cap."""
    own_folders: tuple[Path, ...] = ()
    """The application's own folders, which no tool may touch."""
    registry_files: tuple[Path, ...] = ()
    """The user's registry and the folder of workflow files beside it, which no tool may touch either."""
    trusted: TrustedWorkspace
    """What the workspace brings, as far as the user trusts it."""
    skills: Skills
    personas: Personas

    @property
    def both(self) -> tuple[Registries, ...]:
        """The registries in force, and the changed ones if there are any: a right needs all of them."""
        return (self.registries,) if self.changed is None else (self.registries, self.changed)

    @property
    def known(self) -> tuple[Registry, ...]:
        """The registries in force that exist, the user's first."""
        return tuple(registry for registry in reversed(self.registries) if registry is not None)

    def protected_paths(self) -> tuple[Path, ...]:
        """Return the paths that no tool may touch, resolved.

        They are the application's own folders, both registries, the workflow files, and every key file that a model
        names.
        """
        keys = (
            Path(model.key.file).expanduser().resolve()
            for registries in self.both
            for registry in registries
            if registry is not None
            for model in registry.models
            if model.key.file
        )
        own = (path.resolve() for path in self.registry_files)
        return tuple(dict.fromkeys((*self.own_folders, *own, SITE_REGISTRY, *keys)))

    def timeout_of(self, tool: ToolSpec) -> float:
        """Return the time limit of a tool in seconds: the shortest that a registry sets, else the tool's own."""
        limits = [
            setting.timeout_s
            for registries in self.both
            for registry in registries
            if registry is not None
            for name, setting in registry.tools
            if name == tool.name and setting.timeout_s
        ]
        return min(limits, default=tool.timeout_s)


class ConfigurationFiles:
    """The files that the configuration is read from. May be used from any thread."""

    def __init__(
        self,
        paths: Paths,
        *,
        workspace: Path,
        registry: Path | None,
        environ: Mapping[str, str],
        by_name: bool,
        roles: Sequence[RoleSpec] = (),
        access: AccessLevel | None = None,
        on_change: Callable[[Sequence[str]], None],
    ) -> None:
        """Read registries and trust. `registry` is the file that the command line names; None: see `load_registry`.

        `roles` exist where the user's registry has none of their name, with the models of the default role. `access`
        is the command line's level. `on_change` is called when a file has changed, with notices for the user. If
        `by_name`, sentences about the registry name it without its folders.

        Raises ConfigError.
        """
        self._paths = paths
        self._workspace = workspace
        self._environ = environ
        self._roles = tuple(roles)
        self._access = access
        self._on_change = on_change
        self.loaded = load_registry(path=registry, paths=paths, env=environ, by_name=by_name)
        """The registries in force, as they were read."""
        self._newest = self.loaded
        """The registries as last read."""
        self._look_lock = threading.Lock()
        self.trust = WorkspaceTrust(workspace, folder=paths.trust, loaded=self.loaded)
        """Trust in the files of the workspace."""
        self.own_tools = OwnToolsTrust(paths.tools, folder=paths.trust)
        """Trust in the user's own tools."""
        self._skills: tuple[tuple[Item, ...], Skills] | None = None
        self._make_configuration = self._with_registries(self.loaded, broken=self.loaded.broken_note)
        """Makes a configuration with the registries as last read. Replaced as a whole, as other threads read it."""

    @cached_property
    def _personas(self) -> Personas:
        return load_personas(self._paths)

    def now(self) -> Configuration:
        """Return the configuration of this moment, after a look at the files."""
        self.look()
        return self._make_configuration(trusted=self.trust.in_force, skills=self.skills(), personas=self._personas)

    def look(self) -> None:
        """Reread files that have changed. Does nothing while another thread is doing this."""
        notices = self._reread_registries()  # None: nothing has changed. Empty: something has, without a notice.
        try:
            if self.trust.reread_record():
                notices = notices or ()
        except ConfigError as error:
            notices = (*(notices or ()), error.full)
        if notices is not None:
            self._on_change(notices)

    def reload(self, *, also: Callable[[], object]) -> None:
        """Put the registry as it is now in force, including what it adds. Read skills and trusted files again.

        `also` is called before the sessions are notified. Raises ConfigError if the registry is broken.
        """
        # Not `look`: it would tell of a change that is in force a moment later.
        notices = self._reread_registries() or ()
        try:
            with self._look_lock:
                if self._newest.broken is not None:
                    raise self._newest.broken
                self.loaded = self._newest
                self._make_configuration = self._with_registries(self.loaded)
            self.own_tools.reread()
            self.trust.reread()
            self._skills = None
            also()
        finally:
            self._on_change(notices)

    def skills(self, *, fresh: bool = False) -> Skills:
        """Return the skills of the user and of the trusted workspace. `fresh`: read the user's again."""
        trusted = self.trust.in_force.skills
        if self._skills is not None and not fresh:
            read_from, skills = self._skills
            if read_from is trusted:
                return skills
        of_workspace = skills_of(trusted, source=str(self._workspace / ".chatops" / "skills"))
        skills = join_skills(load_skills(self._paths.skills), of_workspace)
        self._skills = (trusted, skills)
        return skills

    def trust_notices(self, *, asks: bool) -> tuple[str, ...]:
        """Return what is not trusted; nothing if a chat (`asks`) asks about it, as its question says more."""
        kinds = (self.own_tools, self.trust)
        asked = asks and any(kind.question.is_open for kind in kinds)
        return () if asked else tuple(notice for kind in kinds for notice in kind.notices())

    def _reread_registries(self) -> tuple[str, ...] | None:
        """Reread changed registries, and return notices for the user; None if they are as they were.

        Does nothing while another thread is doing this.
        """
        if not self._look_lock.acquire(blocking=False):
            return None
        try:
            read = self._newest.reload_if_changed()
            return None if read is None else self._take_newest(read)
        finally:
            self._look_lock.release()

    def _take_newest(self, read: Loaded) -> tuple[str, ...]:
        was_broken, self._newest = self._newest.broken is not None, read
        if read.broken is not None:
            note = f"{read.broken} The previous version stays in force."
            self._make_configuration = partial(self._make_configuration, broken=note)
            return (note,)
        cured = ("The registry can be read again.",) if was_broken else ()
        if _have_same_rights(read, self.loaded):
            self.loaded = read
            self._make_configuration = self._with_registries(read)
            return cured
        self._make_configuration = self._with_registries(self.loaded, changed=read)
        return (*cured, *(warning.text for warning in read.warnings if warning not in self.loaded.warnings))

    def _with_registries(
        self, loaded: Loaded, *, changed: Loaded | None = None, broken: str = ""
    ) -> partial[Configuration]:
        for registry in (*loaded.registries, *(changed.registries if changed is not None else ())):
            if registry is not None:
                add_known_keys(*_keys_of(registry, self._environ))
        return partial(
            Configuration,
            registries=self._with_roles(loaded),
            changed=None if changed is None else self._with_roles(changed),
            broken=broken,
            access_cap=min((cap for cap in (self._access, loaded.access_cap) if cap is not None), default=None),
            own_folders=self._paths.protected,
            registry_files=(loaded.path, loaded.workflow_folder),
        )

    def _with_roles(self, loaded: Loaded) -> Registries:
        site, own = loaded.registries
        default = own.role(own.default_role)
        further = tuple(
            role if default is None else role.with_models_of(default)
            for role in self._roles
            if own.role(role.name) is None
        )
        return (site, replace(own, roles=(*own.roles, *further)) if further else own)


_SERVICE_KEYS = ("OPENAI_API_KEY", "WOLFRAM_APP_ID", "BRAVE_API_KEY", "TAVILY_API_KEY")
"""Environment variables with keys of services that built-in models and tools use."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _keys_of(registry: Registry, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys that the registry and the variables that it names hold. Files and commands are read later."""
    credentials = registry.sandbox.credentials if registry.sandbox is not None else ()
    models = registry.models
    names = (*_SERVICE_KEYS, *(model.key.env for model in models), *(credential.env for credential in credentials))
    yield from (environ[name] for name in names if name in environ)
    for given in (*(model.headers for model in models), *(server.headers for server in registry.servers)):
        for name, text in given:
            yield from _secret_words(text, environ) if SECRET_NAME.search(name) else ()
    for server in registry.servers:
        # Not SECRET_NAME, as for headers: it is found in GIT_AUTHOR_NAME too, whose value would be masked as a key.
        for name, text in server.env:
            yield from _secret_words(text, environ) if looks_secret(name) else ()
    yield from (model.key.literal for model in models)


def _secret_words(text: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the words of a value that can be keys: ``Bearer KEY`` has one. A path or an address is none."""
    for word in _VARIABLE.sub(lambda found: environ.get(found[1], ""), text).split():
        if "://" not in word and not os.path.exists(word):
            yield word


def _have_same_rights(read: Loaded, before: Loaded) -> bool:
    same = [
        _without_place(new) == _without_place(old) for new, old in zip(read.registries, before.registries, strict=True)
    ]
    return all(same) and read.access_cap == before.access_cap


def _without_place(registry: Registry | None) -> Registry | None:
    """Return a registry without what depends only on its location or spelling."""
    return None if registry is None else replace(registry, source="", digest="", warnings=())
