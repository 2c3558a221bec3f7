"""Which registry is in force: lookup, the last good copy, the site's ceiling, and what the person is told.

Nothing gets wider because a file broke: a broken file leaves its last good copy in force, and without one
the packaged default at level viewer.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import chatops
from chatops.config.paths import Paths, write_private
from chatops.config.registry_read import MAX_BYTES, json_schema, read_registry
from chatops.config.site import SITE_REGISTRY, SitePlace, load_site
from chatops.config.workflow_files import Workflows, find_workflows, folder_of, packaged_workflows, strangers
from chatops.domain.errors import ConfigError
from chatops.domain.rights import AccessLevel
from chatops.policy.registry import KeySource, ModelSpec, ModelType, Registry, RoleSpec
from chatops.policy.resolve import Registries

__all__ = [
    "SITE_REGISTRY",
    "Loaded",
    "json_schema",
    "load_registry",
    "packaged_registry",
    "read_registry",
    "with_built_in_models",
]

REGISTRY_VARIABLE = "CHATOPS_REGISTRY"
FILE_NAME = "model_registry.json"
DEFAULT_OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    """What a registry was looked up with, to look it up again."""

    path: Path | None
    workspace: Path
    paths: Paths
    env: tuple[tuple[str, str], ...]
    site: SitePlace
    packaged: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The registries in force and how they came to be."""

    registry: Registry
    """The person's (or the packaged one), with the models that always exist."""
    site: Registry | None
    path: Path
    """The file that was looked up, readable or not."""
    broken: ConfigError | None = None
    """Why that file could not be used; headless ends with exit code 2."""
    access_cap: AccessLevel | None = None
    """Set when a broken file left only the packaged default."""
    notices: tuple[str, ...] = ()
    """What the person is told: warnings with their places, an ignored workspace registry."""
    stamp: tuple[str, ...] = ()
    """Changes when one of the files changes."""
    lookup: _Lookup

    @property
    def registries(self) -> Registries:
        """As `resolve_grant` takes them."""
        return (self.site, self.registry)

    def workflows(self) -> Workflows:
        """What there is to run: those of the registries, of the files beside them, as the files are now, and those
        that come with chatops."""
        return find_workflows(
            site=self.site,
            own=self.registry,
            site_place=self.lookup.site,
            folder=self.workflow_folder,
            packaged=packaged_workflows(),
        )

    @property
    def workflow_folder(self) -> Path:
        """Where the person's workflow files are, whether or not there are any."""
        return folder_of(self.path, paths=self.lookup.paths, packaged=self.lookup.packaged)

    def reload_if_changed(self) -> "Loaded | None":
        """The registries anew if a file has changed since, else None. Never raises.

        A file that has gone (an editor may be writing it) or a site registry that can no longer be trusted
        leaves in force what was, with the reason in `broken` and `notices`.
        """
        stamp = _stamp(self.lookup, self.path)
        gone = not os.path.lexists(self.path)
        if stamp == self.stamp and (gone or _choose(self.lookup) == self.path):
            return None
        if gone:
            return self._still_in_force(ConfigError(f"{self.path} is gone."), stamp=stamp)
        try:
            return _load(self.lookup)
        except ConfigError as error:
            return self._still_in_force(error, stamp=stamp)

    def _still_in_force(self, error: ConfigError, *, stamp: tuple[str, ...]) -> "Loaded":
        told = f"{error} What was read before stays in force."
        return replace(self, broken=error, notices=(told,), stamp=stamp)


def packaged_registry() -> Path:
    """The registry that comes with chatops: inside a wheel, else at the top of the checkout."""
    package = Path(chatops.__file__).parent
    inside = package / "_data" / FILE_NAME
    return inside if inside.is_file() else package.parent / FILE_NAME


def load_registry(
    *,
    path: Path | None,
    workspace: Path,
    paths: Paths,
    env: Mapping[str, str],
    site: SitePlace | None = None,
    packaged: Path | None = None,
) -> Loaded:
    """Look up and read the registry: `path` (the flag), the environment, the person's folder, the packaged one.

    Raises ConfigError for a named file that does not exist and for a site registry that cannot be trusted. A
    file that exists and is broken does not raise: see `Loaded.broken`. `site` and `packaged` are for tests.
    """
    wanted = {REGISTRY_VARIABLE, "OPENAI_BASE_URL", "OPENAI_MODEL"}
    return _load(
        _Lookup(
            path=path,
            workspace=workspace,
            paths=paths,
            env=tuple(sorted((name, value) for name, value in env.items() if name in wanted)),
            site=site if site is not None else SitePlace(),
            packaged=packaged if packaged is not None else packaged_registry(),
        )
    )


def _load(lookup: _Lookup) -> Loaded:
    site = load_site(lookup.site)
    path = _choose(lookup)
    stamp = _stamp(lookup, path)
    notices: list[str] = []
    broken: ConfigError | None = None
    cap: AccessLevel | None = None
    try:
        data = _read(path)
        registry = read_registry(data, source=str(path))
        _keep(lookup.paths, path, data, notices)
        notices.extend(_loose_mode(path))
    except ConfigError as error:
        broken = error
        registry, cap, note = _instead(lookup, path)
        notices.append(f"{error} {note}")
    notices.extend(registry.warnings)
    notices.extend(site.warnings if site is not None else ())
    notices.extend(_workspace_notice(lookup, path))
    used = folder_of(path, paths=lookup.paths, packaged=lookup.packaged)
    notices.extend(strangers(lookup.workspace, used=used))
    return Loaded(
        registry=with_built_in_models(registry, env=dict(lookup.env)),
        site=site,
        path=path,
        broken=broken,
        access_cap=cap,
        notices=tuple(notices),
        stamp=stamp,
        lookup=lookup,
    )


def _choose(lookup: _Lookup) -> Path:
    """The file to use. A link that leads nowhere counts as a file: it is broken, not absent."""
    named = dict(lookup.env).get(REGISTRY_VARIABLE, "")
    for path, what in ((lookup.path, "--registry"), (Path(named) if named else None, f"${REGISTRY_VARIABLE}")):
        if path is not None:
            if not os.path.lexists(path):
                raise ConfigError(
                    f"{what} names {path}, and there is no such file.",
                    advice=f"Give another file, or leave {what} out to use your own registry.",
                )
            return path.absolute()
    own = lookup.paths.registry
    return own if _may_be_there(own) else lookup.packaged


def _may_be_there(path: Path) -> bool:
    """Whether there is such a file, or no telling: what cannot be looked at is broken, and not absent."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} is not a plain file.", advice="Put a registry file there.")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}.", advice="Check the file and its rights."
        ) from None


def _instead(lookup: _Lookup, path: Path) -> tuple[Registry, AccessLevel | None, str]:
    """What is in force in place of a broken file, the level it is capped at, and the words for it."""
    kept = _kept(lookup.paths, path)
    if kept is not None:
        return kept, None, "The last version of it that could be read stays in force."
    note = "There is no earlier version of it, so the built-in registry is used, at level viewer."
    try:
        return read_registry(_read(lookup.packaged), source=str(lookup.packaged)), AccessLevel.VIEWER, note
    except ConfigError:
        return _bare(), AccessLevel.VIEWER, note


def _bare() -> Registry:
    """What is left when even the packaged file is damaged: talking, and nothing else."""
    roles = (RoleSpec(name="assistant", tools=()),)
    return Registry(source="built in", digest="built in", roles=roles)


def _copy_of(paths: Paths, path: Path) -> Path:
    return paths.last_good / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"


def _keep(paths: Paths, path: Path, data: bytes, notices: list[str]) -> None:
    """Keep a copy with its digest; only a copy that matches its digest is ever used."""
    copy = hashlib.sha256(data).hexdigest().encode() + b"\n" + data
    target = _copy_of(paths, path)
    try:
        if target.is_file() and target.read_bytes() == copy:
            return
        write_private(target, copy)
    except (ConfigError, OSError) as error:
        notices.append(f"No copy of the registry could be kept in case it breaks later: {error}")


def _kept(paths: Paths, path: Path) -> Registry | None:
    try:
        with _copy_of(paths, path).open("rb") as file:
            digest, _, data = file.read(MAX_BYTES + 100).partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() != digest:
            return None
        return read_registry(data, source=f"{path} (last good copy)")
    except (OSError, ConfigError):
        return None


def _loose_mode(path: Path) -> list[str]:
    try:
        mode = path.stat().st_mode
    except OSError:
        return []
    if mode & stat.S_IWOTH:
        return [f"{path} can be written by everyone on this machine. Close it: chmod o-w {path}"]
    return []


def _workspace_notice(lookup: _Lookup, used: Path) -> list[str]:
    """One line for a registry in the workspace, unless it is the one in use or the packaged one."""
    found = lookup.workspace / FILE_NAME
    try:
        if not found.is_file() or found.samefile(used):
            return []
        if _read(found) == _read(lookup.packaged):
            return []
    except (OSError, ConfigError):
        pass
    return [f"{FILE_NAME} in this workspace is ignored: a workspace does not set models, roles or rights."]


def _stamp(lookup: _Lookup, path: Path) -> tuple[str, ...]:
    marks = []
    for file in (lookup.site.path, path):
        try:
            status = file.stat()
            marks.append(f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}")
        except OSError as error:
            marks.append(f"error {error.errno}")
    return tuple(marks)


def with_built_in_models(registry: Registry, *, env: Mapping[str, str]) -> Registry:
    """`env`, `demo` and `claude_cli` always exist; a model of that name in the file replaces them."""
    built_in = (
        ModelSpec(
            name="env",
            api_url=env.get("OPENAI_BASE_URL") or DEFAULT_OPENAI_URL,
            model_name=env.get("OPENAI_MODEL", ""),
            label="from the environment",
            key=KeySource(env="OPENAI_API_KEY"),
        ),
        ModelSpec(name="demo", type=ModelType.DEMO, model_name="demo", label="demo (no real model)"),
        ModelSpec(name="claude_cli", type=ModelType.CLI, command=("claude", "-p"), label="Claude CLI"),
    )
    missing = tuple(model for model in built_in if registry.model(model.name) is None)
    return replace(registry, models=(*registry.models, *missing))
