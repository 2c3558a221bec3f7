"""The registry in force: lookup, last good copy, reload, and notices for the user.

Theory of operation

Two registries apply at the same time. The site registry is the ceiling for everyone on the machine. If it exists but
cannot be trusted, loading raises ConfigError and nothing starts. The other one is the user's.
`load_registry` takes the first of these files:

- the one named by ``--registry``
- the one named by ``$CHATOPS_REGISTRY``
- the user's own, in the config folder
- the packaged one

A named file that does not exist is an error. A file that exists but cannot be used (unreadable, invalid, a dangling
link) is broken, which is not the same as absent: the lookup does not continue with the next file.

Nothing gets wider because a file broke. Every registry that could be read is copied to the data folder, by its path and
with its SHA-256 digest. For a broken file this is in force instead:

- its last good copy, if the copy matches its digest
- otherwise the packaged registry, capped at level viewer (`Loaded.access_cap`)
- if that is damaged as well, a role without any tool, capped at level viewer

`Loaded.broken` keeps the error: the chat shows it as a notice, headless commands end with exit code 2.

`Loaded.reload_if_changed` compares device, inode, size and times of both files. It never raises: if the user's file is
gone (an editor may be writing it) or the site registry can no longer be trusted, the values read before stay in force.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from chatops.config.document import Located, MalformedFileError, parse
from chatops.config.paths import REGISTRY_VARIABLE, Paths, is_shared, packaged_registry, plain_file, write_private
from chatops.config.registry_read import MAX_BYTES, read_registry
from chatops.config.site_files import SitePlace, UntrustedFileError, read_trusted
from chatops.config.workflow_files import Unusable, Workflows, find_workflows, packaged_workflows, user_workflow_folder
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import ASSUMED_WINDOW
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import AccessLevel
from chatops.policy.registry import ModelSpec, ModelType, Price, Registries, Registry, RegistryWarning, RoleSpec
from chatops.policy.verdicts import Key
from chatops.policy.workflow import Definition

DEFAULT_OPENAI_URL = "https://api.openai.com/v1"


@frozen_dataclass
class _Lookup:
    """Arguments of a lookup, kept to repeat it on a reload."""

    path: Path | None
    paths: Paths
    env: tuple[tuple[str, str], ...]
    site: SitePlace
    packaged: Path
    by_name: bool

    def display_name(self, path: Path) -> str:
        """Return how sentences name the registry `path`."""
        return path.name if self.by_name else str(path)


@frozen_dataclass
class Loaded:
    """The registries in force, and how they were found."""

    registry: Registry
    """The user's (or the packaged) registry, with the models that always exist."""
    site: Registry | None
    path: Path
    """The file that was looked up, even if it is broken."""
    broken: ConfigError | None = None
    """Error of that file if it cannot be used; headless commands end with exit code 2."""
    broken_note: str = ""
    """Text of `broken` for the user, naming the registry in force instead. It is one of the notices."""
    access_cap: AccessLevel | None = None
    """Set if only the packaged registry could replace a broken file."""
    warnings: tuple[RegistryWarning, ...] = ()
    """Warnings of both files, with their positions."""
    stamp: tuple[str, ...] = ()
    """State of the files on disk, to notice when one of them changes."""
    lookup: _Lookup

    @property
    def notices(self) -> tuple[RegistryWarning, ...]:
        """Everything that the user has to know about the files."""
        return (*((RegistryWarning(self.broken_note),) if self.broken_note else ()), *self.warnings)

    @property
    def registries(self) -> Registries:
        """Site and own registry, as `resolve_grant` takes them."""
        return (self.site, self.registry)

    def is_set_up(self, model: ModelSpec) -> bool:
        """Return False for a model as chatops brings it. The demo needs nothing."""
        return model.type is ModelType.DEMO or model not in _packaged_models(self.lookup.packaged)

    def place(self, key: Key) -> tuple[str, int | None]:
        """Return the file that `key` is in, and the line there, or the nearest one; no line if the file has changed."""
        if not key:
            return "", None
        # The first part of a key names the registry, the others lead to the place in it.
        registry, path = self.registry, self.path
        if key[0] == "site" and self.site is not None:
            registry, path = self.site, self.lookup.site.path
        places = _positions_in(path, registry.digest)
        return registry.source, places.place(key[1:])[0] if places is not None else None

    def workflows(self, *, from_workspace: Sequence[Definition | Unusable] = ()) -> Workflows:
        """Find the workflows in the registries, in the files beside them now, and the packaged ones.

        `from_workspace` as in `find_workflows`.
        """
        return find_workflows(
            site=self.site,
            own=self.registry,
            site_place=self.lookup.site,
            folder=self.workflow_folder,
            packaged=packaged_workflows(),
            from_workspace=from_workspace,
        )

    @property
    def workflow_folder(self) -> Path:
        """Folder of the user's workflow files, which may not exist."""
        return user_workflow_folder(self.path, paths=self.lookup.paths, packaged=self.lookup.packaged)

    def reload_if_changed(self) -> "Loaded | None":
        """Load the registries again if a file has changed, otherwise return None. Never raises.

        If that fails, the values read before stay in force, with the reason in `broken` and `notices`.
        """
        stamp = _file_stamp(self.lookup, self.path)
        gone = not _may_be_there(self.path)
        try:
            # Another file is chosen once the user has a registry of their own in place of the packaged one.
            if stamp == self.stamp and (gone or _choose_file(self.lookup) == self.path):
                return None
            if gone:
                raise ConfigError(f"{self.lookup.display_name(self.path)} is gone.")
            return _load(self.lookup)
        except ConfigError as error:
            notice = f"{error} The version read before stays in force."
            return replace(self, broken=error, broken_note=notice, warnings=(), stamp=stamp)


def load_registry(
    *,
    path: Path | None,
    paths: Paths,
    env: Mapping[str, str],
    site: SitePlace | None = None,
    packaged: Path | None = None,
    by_name: bool = False,
) -> Loaded:
    """Find and read the registry: `path` (the flag), the environment, the user's own, or the packaged one.

    A file that exists and is broken does not raise: see `Loaded.broken`. `site` and `packaged` are for tests. If
    `by_name`, sentences about the file name it without its folders, for a chat that shows them in a few lines.

    Raises ConfigError for a named file that does not exist and for a site registry that cannot be trusted.
    """
    variables = {REGISTRY_VARIABLE, "OPENAI_BASE_URL", "OPENAI_MODEL"}
    return _load(
        _Lookup(
            path=path,
            paths=paths,
            env=tuple(sorted((name, value) for name, value in env.items() if name in variables)),
            site=site if site is not None else SitePlace(),
            packaged=packaged if packaged is not None else packaged_registry(),
            by_name=by_name,
        )
    )


@frozen_dataclass
class _Own:
    """The registry in force for the user: that of the file, or what replaces it if it is broken.

    The fields are those of `Loaded`; `notices` are the warnings besides those of the registry itself.
    """

    registry: Registry
    notices: tuple[str, ...] = ()
    broken: ConfigError | None = None
    broken_note: str = ""
    access_cap: AccessLevel | None = None


def _load(lookup: _Lookup) -> Loaded:
    site = _load_site(lookup.site)
    path = _choose_file(lookup)
    # Taken before the file is read, so that a change from then on is noticed.
    stamp = _file_stamp(lookup, path)
    own = _load_own(lookup, path)
    registry = own.registry
    if site is not None and site.sandbox is not None:
        registry = _without_links_past_ceiling(registry, site.sandbox)
    return Loaded(
        registry=with_built_in_models(registry, env=dict(lookup.env)),
        site=site,
        path=path,
        broken=own.broken,
        broken_note=own.broken_note,
        access_cap=own.access_cap,
        warnings=(*map(RegistryWarning, own.notices), *registry.warnings, *(site.warnings if site is not None else ())),
        stamp=stamp,
        lookup=lookup,
    )


def _load_own(lookup: _Lookup, path: Path) -> _Own:
    try:
        data = _read(path)
        registry = read_registry(data, source=lookup.display_name(path))
    except ConfigError as error:
        return _replacement_for(lookup, path, error)
    shared = _access_notices(path) if path != lookup.packaged else ()
    return _Own(registry=registry, notices=(*_keep_copy(lookup.paths, path, data), *shared))


def _replacement_for(lookup: _Lookup, path: Path, error: ConfigError) -> _Own:
    """Return what is in force instead of the file `path`, which is broken by `error`."""
    if (last_good := _last_good_copy(lookup, path)) is not None:
        note = f"{error} The last version of it that could be read stays in force."
        return _Own(registry=last_good, broken=error, broken_note=note)
    note = f"{error} There is no earlier version of it, so the built-in registry is used, at level viewer."
    try:
        registry = read_registry(_read(lookup.packaged), source=str(lookup.packaged))
    except ConfigError:
        # Allow nothing but chatting.
        bare = RoleSpec(name="assistant", tools=())
        registry = Registry(source="built in", digest="built in", roles=(bare,))
    return _Own(registry=registry, broken=error, broken_note=note, access_cap=AccessLevel.VIEWER)


def _load_site(place: SitePlace) -> Registry | None:
    """Return the site registry, or None if there is none. Raises ConfigError if it cannot be trusted."""
    try:
        os.lstat(place.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _site_error(place.path, f"it cannot be inspected ({error.strerror})") from None
    try:
        data = read_trusted(place, most=MAX_BYTES)
    except UntrustedFileError as error:
        raise _site_error(place.path, str(error)) from None
    return read_registry(data, source=str(place.path), site=True)


def _site_error(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"The site registry {path} is not used, because {why}; chatops does not start without it.",
        advice="Ask the administrator of this machine: file and folders have to belong to root, writable by root only.",
    )


def _without_links_past_ceiling(registry: Registry, ceiling: SandboxSpec) -> Registry:
    """Return the registry without those paths of its sandbox that lead, through a link, out of what the site permits.

    The ceiling compares paths as they are written, so it would let them pass. A warning is added for each.
    """
    warnings: list[RegistryWarning] = []

    def limited(spec: SandboxSpec) -> SandboxSpec:
        out_read = _paths_leading_out(spec.read, (*ceiling.read, *ceiling.write))
        out_write = _paths_leading_out(spec.write, ceiling.write)
        warnings.extend(
            RegistryWarning(f"The sandbox does not get {path}: a link leads out of what the site permits.")
            for path in (*out_read, *out_write)
        )
        read = tuple(path for path in spec.read if path not in out_read)
        return replace(spec, read=read, write=tuple(path for path in spec.write if path not in out_write))

    servers = tuple(replace(server, sandbox=limited(server.sandbox)) for server in registry.servers)
    sandbox = registry.sandbox and limited(registry.sandbox)
    return replace(registry, sandbox=sandbox, servers=servers, warnings=(*warnings, *registry.warnings))


def _paths_leading_out(paths: tuple[str, ...], permitted: tuple[str, ...]) -> list[str]:
    """Return the paths that are in a permitted folder as they are written, and in none once links are followed."""
    real = [os.path.realpath(folder) for folder in permitted]
    return [
        path
        for path in paths
        if any(Path(path).is_relative_to(folder) for folder in permitted)
        and not any(Path(os.path.realpath(path)).is_relative_to(folder) for folder in real)
    ]


def _choose_file(lookup: _Lookup) -> Path:
    """Return the file to use. A dangling link counts as a file that is broken, not as an absent one."""
    named = dict(lookup.env).get(REGISTRY_VARIABLE, "")
    for path, what in ((lookup.path, "--registry"), (Path(named) if named else None, f"${REGISTRY_VARIABLE}")):
        if path is not None:
            if not _may_be_there(path):
                raise ConfigError(
                    f"{what} names {path}, which does not exist.",
                    advice=f"Give another file, or leave {what} out to use your own registry.",
                )
            return path.absolute()
    own = lookup.paths.registry
    return own if _may_be_there(own) else lookup.packaged


def _may_be_there(path: Path) -> bool:
    """Return True if the file exists or cannot be looked at: in that case it is broken, not absent."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


@lru_cache(maxsize=1)
def _packaged_models(packaged: Path) -> tuple[ModelSpec, ...]:
    return with_built_in_models(read_registry(_read(packaged), source=str(packaged)), env={}).models


def _read(path: Path) -> bytes:
    try:
        with plain_file(path, follow=True) as (file, _):
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}.", advice="Check the file and its permissions."
        ) from None


@lru_cache(maxsize=4)
def _positions_in(path: Path, digest: str) -> Located | None:
    """Return the positions in a registry, or None if the file is not, or not any more, what was read."""
    try:
        data = _read(path)
        return parse(data.decode("utf-8-sig")) if hashlib.sha256(data).hexdigest() == digest else None
    except (ConfigError, ValueError, MalformedFileError):
        return None


def _keep_copy(paths: Paths, path: Path, data: bytes) -> tuple[str, ...]:
    """Store a copy of a good registry with its digest; return a notice if that fails.

    A copy that does not match its digest is never used.
    """
    copy = hashlib.sha256(data).hexdigest().encode() + b"\n" + data
    target = paths.last_good_copy(path)
    try:
        if target.is_file() and target.read_bytes() == copy:
            return ()
        write_private(target, copy)
    except (ConfigError, OSError) as error:
        return (f"No copy of the registry could be kept in case it breaks later: {error}",)
    return ()


def _last_good_copy(lookup: _Lookup, path: Path) -> Registry | None:
    try:
        with lookup.paths.last_good_copy(path).open("rb") as file:
            # The digest on its line takes less than 100 bytes.
            digest, _, data = file.read(MAX_BYTES + 100).partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() != digest:
            return None
        return read_registry(data, source=f"{lookup.display_name(path)} (last good copy)")
    except (OSError, ConfigError):
        return None


def _access_notices(path: Path) -> Iterator[str]:
    """Yield what the user has to know if others could change the registry, or its folder."""
    with suppress(OSError):
        for place in (path, path.resolve().parent):
            status = place.stat()
            if is_shared(status):
                yield f"{place} can be written by everyone on this machine. Restrict it: chmod o-w {place}"
            elif status.st_uid not in (0, os.getuid()):
                yield f"{place} belongs to another user, who decides with the registry what your models may do."
                return


def _file_stamp(lookup: _Lookup, path: Path) -> tuple[str, ...]:
    marks = []
    for file in (lookup.site.path, path):
        try:
            status = file.stat()
            marks.append(f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}")
        except OSError as error:
            marks.append(f"error {error.errno}")
    return tuple(marks)


def with_built_in_models(registry: Registry, *, env: Mapping[str, str]) -> Registry:
    """Add the models `env`, `demo` and `claude_cli` unless the file defines a model of that name."""
    built_in = (
        ModelSpec(
            name="env",
            api_url=env.get("OPENAI_BASE_URL") or DEFAULT_OPENAI_URL,
            model_name=env.get("OPENAI_MODEL", ""),
            label="from the environment",
            api_key_env="OPENAI_API_KEY",
        ),
        ModelSpec(
            name="demo",
            type=ModelType.DEMO,
            model_name="demo",
            price=Price(),
            label="demo (no real model)",
            context_window=ASSUMED_WINDOW,
        ),
        ModelSpec(name="claude_cli", type=ModelType.CLI, command=("claude", "-p"), label="Claude CLI"),
    )
    missing = tuple(model for model in built_in if registry.model(model.name) is None)
    return replace(registry, models=(*registry.models, *missing))
