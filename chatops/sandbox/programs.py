"""Find a program that the user has installed, and what a sandbox has to show so that it runs.

Programs of pipx, `uv tool` and npm are links (``~/.local/bin/NAME``) into an environment elsewhere. The links are
followed one by one, and the environments on the way are shown, read-only, if their layout is known: a virtual
environment with the installation that it is based on, an installation of Python or Node, the folder of an npm package.
Of anything else the program's file alone is shown. A link in the workspace that leads out of it is not followed,
because a command may have made it. Home folders and places of credentials are never shown.

`find_toolchains` finds the virtual environment and the toolchains that a sandboxed command needs, outside of the system
folders. They are shown read-only: the active virtual environment, and the installations that programs of PATH lead to.
A folder is shown only if it has the layout of an installation (``lib/python3.X/os.py`` and the like), so that a link in
a hostile workspace cannot make another folder visible. A home folder, or a folder with a home folder in it, is never
shown.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.toolkit.confine import home_folders, home_secrets

_MAX_LINKS = 40
"""Links that are followed to a program, as many as Linux follows itself."""
SYSTEM_FOLDERS = tuple(map(Path, ("/usr", "/etc", "/opt")))
SYSTEM_LINKS = tuple(map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")))
"""Links into ``/usr`` on most systems, folders on others."""
SYSTEM = (*SYSTEM_FOLDERS, *SYSTEM_LINKS)
"""All that every sandbox shows of the system."""
_TOOLCHAIN_PROGRAMS = ("python3", "python", "node", "npm", "cargo", "rustc", "go", "uv", "deno", "bun")
_PYTHON = re.compile(r"python3\.\d+t?")
_PYENV_PARTS = ("bin", "libexec", "shims", "versions", "version", "plugins")


@frozen_dataclass
class Program:
    """A program, and what has to be shown for it."""

    path: Path
    """Absolute, and visible if `shown` is: links to it may not be."""
    shown: tuple[Path, ...] = ()
    """Outside of the system folders and of the workspace."""


def find_program(name: str, *, workspace: Path, cwd: Path | None = None) -> Program | None:
    """Return the program called `name`, see `look_up`, or None if there is none."""
    found = look_up(name, workspace=workspace, cwd=cwd)
    return program_at(found, workspace=workspace) if found is not None else None


def look_up(name: str, *, workspace: Path, cwd: Path | None = None) -> Path | None:
    """Return the absolute path of the program called `name`, which may be a link, or None if there is none.

    A bare name is looked up in the virtual environment and on the PATH of chatops, see `workspace_last`. `cwd`, by
    default the workspace, is where other relative names start.
    """
    if "/" in name:
        place = Path(os.path.normpath((cwd or workspace) / name))
        return place if os.access(place, os.X_OK) and place.is_file() else None
    entries = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
    if venv := virtual_environment(workspace, os.environ):
        entries.insert(0, str(venv / "bin"))
    path = shutil.which(name, path=os.pathsep.join(workspace_last(entries, workspace=workspace)))
    return Path(path) if path is not None else None


def workspace_last(entries: Iterable[str], *, workspace: Path) -> list[str]:
    """Return the entries of PATH, those in the workspace last: a command or the folder's author may have written there.

    A virtual environment that the user has activated keeps its place.
    """
    active = os.path.realpath(os.path.join(os.environ.get("VIRTUAL_ENV") or "/", "bin"))

    def lies_in_workspace(entry: str) -> bool:
        real = os.path.realpath(entry)
        return real != active and Path(real).is_relative_to(os.path.realpath(workspace))

    return sorted(entries, key=lies_in_workspace)


def program_at(path: Path, *, workspace: Path) -> Program:
    """Return the program or script at an absolute path, and what has to be shown for it."""
    path = Path(os.path.normpath(path))
    program, shown = path, dict[Path, None]()
    places = tuple(_places_on_the_way(path, workspace=workspace))
    for place in places:
        if environment := _installed_in(place, workspace=workspace):
            # The first environment on the way counts: its program runs in it, by the link there.
            program = program if shown else place
            shown |= dict.fromkeys(environment)
    if not shown and may_be_shown(path) and not places[-1].is_symlink():
        # By its own name too, which some programs look at.
        shown = dict.fromkeys((path, places[-1]))
    hidden = (place for place in shown if not _lies_below(place, (*SYSTEM, workspace)))
    return Program(path=program, shown=tuple(place for place in hidden if may_be_shown(place)))


def _places_on_the_way(path: Path, *, workspace: Path) -> Iterator[Path]:
    """Yield the places that a path leads to, one for each link at its end, with the folders before it resolved.

    Ends early at a link of the workspace that leads out of it.
    """
    # The parts that follow `folder`, the next one at the end.
    folder, parts_left, links = Path("/"), list(path.parts[:0:-1]), 0
    while parts_left:
        part = parts_left.pop()
        if part == "..":
            folder = folder.parent
            continue
        place = folder / part
        if not parts_left:
            yield place
        if not place.is_symlink():
            folder = place
            continue
        links += 1
        leaves = place.is_relative_to(workspace) and not Path(os.path.realpath(place)).is_relative_to(workspace)
        if leaves or links > _MAX_LINKS:
            return
        target = Path(os.readlink(place))
        folder = Path("/") if target.is_absolute() else folder
        parts_left += target.parts[:0:-1] if target.is_absolute() else target.parts[::-1]


def _installed_in(program: Path, *, workspace: Path) -> tuple[Path, ...]:
    """Return what has to be shown of the environment that a program is installed in; empty if none is recognised."""
    root = program.parent.parent
    if program.parent.name == "bin":
        if is_venv(root):
            return (root, *base_of(root, workspace=workspace))
        if is_python(root) or is_node(root):
            return (root,)
    package = _npm_package(program)
    return (package,) if package is not None else ()


def _npm_package(program: Path) -> Path | None:
    """Return the folder of an npm package that holds a program and all that it imports, or None."""
    modules = next((place for place in reversed(program.parents) if place.name == "node_modules"), None)
    if modules is not None:
        if modules.parent.name != "lib" or (modules.parent / "package.json").is_file():
            return modules  # Of a project: what the package imports lies beside it.
        scope, *rest = program.relative_to(modules).parts
        return modules / scope / rest[0] if scope.startswith("@") and len(rest) > 1 else modules / scope
    # A folder that was linked into node_modules (`npm link`, `npm install --global FOLDER`).
    folder = next((place for place in program.parents if (place / "package.json").is_file()), None)
    return folder if folder is not None and program in _entry_points(folder) else None


def _entry_points(package: Path) -> list[Path]:
    """Return the programs that an npm package names."""
    try:
        about = json.loads((package / "package.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(about, dict):
        return []
    named = about.get("bin")
    programs = list(named.values()) if isinstance(named, dict) else [named]
    return [
        Path(os.path.normpath(package / entry)) for entry in (*programs, about.get("main")) if isinstance(entry, str)
    ]


@frozen_dataclass
class Toolchains:
    """Programs of the user that commands see."""

    shown: tuple[Path, ...] = ()
    """Absolute paths, read-only."""
    path: tuple[str, ...] = ()
    """Entries of PATH, before those of the system."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the programs need."""


def find_toolchains(workspace: Path, environ: Mapping[str, str]) -> Toolchains:
    """Return the virtual environment and toolchains of `environ`, the environment of this process."""
    rustup = environ.get("RUSTUP_HOME", "")
    found = _toolchains_of_path(environ.get("PATH", ""), workspace=workspace, rustup=rustup, homes=home_folders())
    venv = virtual_environment(workspace, environ)
    if venv is None:
        return replace(found, shown=outermost(found.shown, workspace=workspace))
    shown = dict.fromkeys((venv, *filter(may_be_shown, base_of(venv, workspace=workspace)), *found.shown))
    return Toolchains(
        shown=outermost(tuple(shown), workspace=workspace),
        path=(str(venv / "bin"), *found.path),
        environment={**found.environment, "VIRTUAL_ENV": str(venv)},
    )


def outermost(places: tuple[Path, ...], *, workspace: Path) -> tuple[Path, ...]:
    """Return the places that no other place, and no system folder, contains.

    bwrap cannot mount on a link in a read-only folder. What lies in the workspace is mounted over it, on its own.
    """
    inside = {place: place.is_relative_to(workspace) for place in (*SYSTEM, *places)}

    def contained(place: Path) -> bool:
        others = (other for other in inside if inside[other] is inside[place])
        return any(place.is_relative_to(other) and (place != other or place in SYSTEM) for other in others)

    return tuple(place for place in places if not contained(place))


@lru_cache(maxsize=16)
def _toolchains_of_path(path: str, *, workspace: Path, rustup: str, homes: tuple[Path, ...]) -> Toolchains:
    """Return the toolchains that PATH leads to. Cached, because it takes milliseconds; `homes` is part of the key."""
    shown: dict[Path, None] = {}
    entries: dict[str, None] = {}
    variables: dict[str, str] = {}
    for entry in path.split(os.pathsep):
        folder = Path(entry)
        # A program in the workspace can be written by the model. Only its virtual environment counts.
        if not folder.is_absolute() or _lies_below(folder, (*SYSTEM, workspace)):
            continue
        if Path(os.path.realpath(folder)).is_relative_to(workspace):
            continue
        for name in _TOOLCHAIN_PROGRAMS:
            if (program := shutil.which(name, path=entry)) is None:
                continue
            found = _installation_of(Path(program), rustup=rustup)
            variables |= found.variables
            if found.shown and all(place in shown or may_be_shown(place) for place in found.shown):
                shown |= dict.fromkeys(found.shown)
                entries[entry] = None
    return Toolchains(shown=tuple(shown), path=tuple(entries), environment=variables)


def display_names(toolchains: Toolchains) -> tuple[str, ...]:
    """Return the shown paths for display: several of one folder as ``FOLDER/{A,B}``, because not all of it is shown."""
    below: dict[Path, list[str]] = {}
    for place in toolchains.shown:
        below.setdefault(place.parent, []).append(place.name)
    return tuple(
        f"{folder}/{{{','.join(names)}}}" if len(names) > 1 else str(folder / names[0])
        for folder, names in below.items()
    )


def virtual_environment(workspace: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the active virtual environment, else the ``.venv`` of the workspace unless that is a link."""
    active = environ.get("VIRTUAL_ENV", "")
    if os.path.isabs(active) and is_venv(Path(os.path.realpath(active))):
        return Path(os.path.realpath(active))
    own = workspace / ".venv"
    return own if not own.is_symlink() and is_venv(own) else None


def is_venv(place: Path) -> bool:
    """Return True for a virtual environment that may be shown."""
    return (place / "pyvenv.cfg").is_file() and os.access(place / "bin" / "python", os.X_OK) and may_be_shown(place)


def base_of(venv: Path, *, workspace: Path) -> Iterator[Path]:
    """Yield the installation that the interpreter of a virtual environment belongs to, and the links on the way.

    A link that leads into the workspace is not followed: a command may have made what is there.
    """
    link = venv / "bin" / "python"
    for _ in range(_MAX_LINKS):
        if not link.is_symlink():
            return
        link = link.parent / os.readlink(link)
        folder = Path(os.path.realpath(link.parent))
        if folder.is_relative_to(workspace) and not folder.is_relative_to(venv):
            return
        root = folder.parent
        if root != venv and is_python(root) and not root.is_relative_to(workspace):
            # Through the folder's own name too: a link such as ``cpython-3.12`` leads to an exact version. Without
            # its ``..`` the name can lead elsewhere.
            name = Path(os.path.normpath(link.parent)).parent
            same = os.path.realpath(name) == str(root) and not name.is_relative_to(workspace)
            yield from dict.fromkeys((name, root) if same else (root,))


@frozen_dataclass
class _Installation:
    """Folders and variables that a program of PATH needs; none if its installation is not recognised."""

    shown: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def _installation_of(program: Path, *, rustup: str) -> _Installation:
    folder = program.parent
    if folder.name == "shims" and all((folder.parent / name).is_dir() for name in ("versions", "libexec")):
        return _pyenv(folder.parent)
    if folder.name == "bin" and (folder / "rustup").exists():
        return _rustup(folder, Path(rustup) if rustup else folder.parent.parent / ".rustup")
    return _Installation(shown=tuple(_plain_installation(program)))


def _pyenv(root: Path) -> _Installation:
    shown = tuple(root / name for name in _PYENV_PARTS if (root / name).exists())
    return _Installation(shown=shown, variables={"PYENV_ROOT": str(root)})


def _rustup(programs: Path, root: Path) -> _Installation:
    """Return the toolchains of rustup at `root`, whose `programs` are links to it."""
    if not (root / "toolchains").is_dir():
        return _Installation()
    settings = root / "settings.toml"
    return _Installation(
        shown=(programs, root / "toolchains", *([settings] if settings.is_file() else [])),
        variables={"RUSTUP_HOME": str(root), "CARGO_HOME": str(programs.parent)},
    )


def _plain_installation(program: Path) -> Iterator[Path]:
    """Yield what has to be shown for a program that a link, or its own place, leads to."""
    prefix, real = program.parent.parent, Path(os.path.realpath(program))
    root = real.parent.parent
    if _lies_below(real, SYSTEM):
        return
    is_go = (root / "src" / "runtime").is_dir() and (root / "pkg" / "tool").is_dir()
    if is_python(root) or is_node(root) or is_go or (root / "lib" / "rustlib").is_dir():
        yield root
        if not _lies_below(program, (root,)):
            yield prefix if program.parent.name == "bin" and is_venv(prefix) else program
    elif is_node(Path(os.path.realpath(prefix))):
        # npm is a link to lib/node_modules/npm/bin/npm-cli.js.
        yield Path(os.path.realpath(prefix))
    elif real.name in ("uv", "deno", "bun"):
        # Each is one file.
        yield from dict.fromkeys((program, real))


def is_python(root: Path) -> bool:
    """Return True for an installation of Python."""
    try:
        names = os.listdir(root / "lib")
    except OSError:
        return False
    return any(_PYTHON.fullmatch(name) and (root / "lib" / name / "os.py").is_file() for name in names)


def is_node(root: Path) -> bool:
    """Return True for an installation of Node."""
    return (root / "bin" / "node").is_file() and (root / "include" / "node").is_dir()


def may_be_shown(place: Path) -> bool:
    """Return True unless `place` is a home folder, contains one, or is or contains a place of credentials."""
    real = Path(os.path.realpath(place))
    hidden = (*home_folders(), *home_secrets())
    inside = any(real.is_relative_to(secret) for secret in home_secrets())
    return not inside and not any(folder.is_relative_to(spot) for folder in hidden for spot in (real, place))


def _lies_below(place: Path, folders: tuple[Path, ...]) -> bool:
    return any(place.is_relative_to(folder) for folder in folders)
