"""Workflows from registries, files and the package, and which one of a name counts.

The order is: the site registry, the machine's folder, the user's registry, the user's folder, the packaged workflows,
those of the workspace that the user trusts. The first definition of a name counts, so a user cannot replace a workflow
of the machine, nor a workspace any other. A packaged workflow is offered only if the registries have the roles that it
names. A file that others could have written is not read.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from chatops.config.paths import PACKAGE, Paths, plain_file
from chatops.config.site_files import SitePlace, UntrustedFileError, read_trusted
from chatops.config.workspace_files import MAX_BYTES, MAX_FILES, WORKFLOWS, Item, is_workflow_name
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize
from chatops.policy.registry import Registry
from chatops.policy.resolve import role_names
from chatops.policy.workflow import Definition


@frozen_dataclass
class Unusable:
    """A workflow file that cannot be used. It still occupies its name."""

    name: str
    error: ConfigError


@frozen_dataclass
class Workflows:
    """The workflows that can be run."""

    found: tuple[Definition, ...]
    unusable: tuple[Unusable, ...] = ()
    notices: tuple[str, ...] = ()
    """Notices for the user: definitions that have no effect."""

    def get(self, name: str) -> Definition:
        """Return the workflow of that name.

        Raises ConfigError with what is wrong with its file, or with the nearest names.
        """
        for definition in self.found:
            if definition.name == name:
                return definition
        for unusable in self.unusable:
            if unusable.name == name:
                raise unusable.error
        names = [definition.name for definition in self.found]
        near = get_close_matches(name, names, n=3)
        advice = "There are no workflows here; `chatops workflow schema` describes one."
        if names:
            advice = f"Did you mean {' or '.join(near)}?" if near else f"Workflows here: {', '.join(names)}."
        raise ConfigError(f"There is no workflow {name!r}.", advice=advice)


def packaged_workflows() -> Path:
    """Return the folder of the packaged workflows."""
    return PACKAGE / "_data" / WORKFLOWS


def user_workflow_folder(registry: Path, *, paths: Paths, packaged: Path) -> Path:
    """Return the folder of the user's workflow files: beside the registry in force, or beside the user's own."""
    return (paths.registry if registry == packaged else registry).parent / WORKFLOWS


def find_workflows(
    *,
    site: Registry | None,
    own: Registry,
    site_place: SitePlace | None,
    folder: Path,
    packaged: Path | None = None,
    from_workspace: Sequence[Definition | Unusable] = (),
) -> Workflows:
    """Find all workflows, each name once.

    The machine's files are beside `site_place`, the user's in `folder`, chatops' own in `packaged`, without
    those that name a role which the registries do not have. `from_workspace` are those of the trusted workspace. Never
    raises for a broken file.
    """
    taken: dict[str, str] = {}
    usable: list[Definition] = []
    unusable: list[Unusable] = []
    notices: list[str] = []

    def add(workflow: Definition | Unusable) -> None:
        where = workflow.spec.source if isinstance(workflow, Definition) else str(workflow.error)
        if workflow.name in taken:
            first = taken[workflow.name]
            notices.append(f"Workflow {workflow.name} of {where} has no effect: {first} defines it first.")
            return
        taken[workflow.name] = where
        if isinstance(workflow, Definition):
            usable.append(workflow)
        else:
            unusable.append(workflow)

    for workflow in _workflows_before_packaged(site, own, site_place, folder):
        add(workflow)
    known_roles = role_names((site, own))
    for path in _workflow_files(packaged) if packaged is not None else ():
        # A workflow of the same name from a registry or a file replaces it without a notice.
        offered = None if path.stem in taken else _read_definition(path, Path.read_bytes)
        if isinstance(offered, Definition) and all(step.role in known_roles for step in offered.spec.steps):
            usable.append(offered)
        # A workspace cannot take the name of one, not even where its role is missing.
        taken.setdefault(path.stem, "chatops itself")
    for workflow in from_workspace:
        add(workflow)
    return Workflows(found=tuple(usable), unusable=tuple(unusable), notices=tuple(notices))


def workspace_workflow(item: Item, workspace: Path) -> Definition | Unusable:
    """Return the workflow in a trusted file of the workspace, from the bytes that are trusted."""
    return _read_definition(workspace / item.path, lambda _: item.data)


def _workflows_before_packaged(
    site: Registry | None, own: Registry, site_place: SitePlace | None, folder: Path
) -> Iterator[Definition | Unusable]:
    if site is not None:
        yield from site.workflows
    if site_place is not None:
        for path in _workflow_files(site_place.path.parent / WORKFLOWS):
            yield _read_definition(path, lambda file: read_trusted(replace(site_place, path=file), most=MAX_BYTES))
    yield from own.workflows
    for path in _workflow_files(folder):
        yield _read_definition(path, _read_user_file)


def _read_definition(path: Path, read: Callable[[Path], bytes]) -> Definition | Unusable:
    from chatops.config.workflow_read import read_workflow  # slow to import, and a chat does not need it

    # A file name may contain a line break.
    shown = sanitize(str(path), newlines=False)
    name = sanitize(path.stem, newlines=False)
    try:
        return read_workflow(read(path), source=shown, most=MAX_BYTES)
    except (UntrustedFileError, OSError) as error:
        fault = error if isinstance(error, UntrustedFileError) else f"it cannot be read ({error.strerror})"
        message = sanitize(f"{shown} is not used: {fault}.", newlines=False)
        return Unusable(name=name, error=ConfigError(message, advice="Correct it, or remove the file."))
    except ConfigError as error:
        return Unusable(name=name, error=error)


def _read_user_file(path: Path) -> bytes:
    """Read a user's file.

    Raises UntrustedFileError if it is not the user's or root's, or can be written by everyone, and OSError.
    """
    _check_owner(path.parent, os.stat(path.parent))
    with plain_file(path, follow=True) as (file, status):
        _check_owner(path, status)
        return file.read(MAX_BYTES + 1)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.getuid(), 0):
        raise UntrustedFileError(f"{path} belongs to another user")
    if status.st_mode & stat.S_IWOTH:
        raise UntrustedFileError(f"{path} can be written by everyone on this machine (chmod o-w {path})")


def _workflow_files(folder: Path) -> list[Path]:
    """Return the definition files in a folder, sorted, so that the order does not depend on the file system."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    fitting = [name for name in names if is_workflow_name(name)]
    return [folder / name for name in fitting[:MAX_FILES]]
