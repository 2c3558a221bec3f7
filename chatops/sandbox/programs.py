"""Find a program that the user has installed, and what a sandbox has to show so that it runs.

Programs of pipx, `uv tool` and npm are links (``~/.local/bin/NAME``) into an environment elsewhere. The links are
followed one by one, and the environments on the way are shown, read-only, if their layout is known: a virtual
environment with the installation that it is based on, an installation of Python or Node, the folder of an npm package.
Of anything else the program's file alone is shown. A link in the workspace that leads out of it is not followed,
because a command may have made it. Home folders and places of credentials are never shown.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from chatops.sandbox.toolchains import SYSTEM, base_of, is_node, is_python, is_venv, may_be_shown, virtual_environment

_MOST_LINKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
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
    found = shutil.which(name, path=os.pathsep.join(workspace_last(entries, workspace=workspace)))
    return Path(found) if found is not None else None


def workspace_last(entries: Iterable[str], *, workspace: Path) -> list[str]:
    """Return entries of PATH with those of the workspace last: whoever made that folder, or a command, filled them.

    A virtual environment that the user has activated keeps its place.
    """
    active = os.path.realpath(os.path.join(os.environ.get("VIRTUAL_ENV") or "/", "bin"))

    def last(entry: str) -> bool:
        real = os.path.realpath(entry)
        return real != active and Path(real).is_relative_to(os.path.realpath(workspace))

    return sorted(entries, key=last)


def program_at(path: Path, *, workspace: Path) -> Program:
    """Return the program or script at an absolute path, and what has to be shown for it."""
    path = Path(os.path.normpath(path))
    runs, shown = path, dict[Path, None]()
    places = tuple(_places(path, workspace=workspace))
    for place in places:
        if environment := _environment(place, workspace=workspace):
            runs = runs if shown else place
            shown |= dict.fromkeys(environment)
    if not shown and may_be_shown(path) and not places[-1].is_symlink():
        # By its own name too, which some programs look at.
        shown = dict.fromkeys((path, places[-1]))
    seen = (*SYSTEM, workspace)
    hidden = (place for place in shown if not any(place.is_relative_to(one) for one in seen))
    return Program(path=runs, shown=tuple(place for place in hidden if may_be_shown(place)))


def _places(path: Path, *, workspace: Path) -> Iterator[Path]:
    """Yield the places that a path leads to, one for each link at its end, with the folders before it resolved.

    Ends early at a link of the workspace that leads out of it.
    """
    done, left, links = Path("/"), list(path.parts[:0:-1]), 0
    while left:
        part = left.pop()
        if part == "..":
            done = done.parent
            continue
        place = done / part
        if not left:
            yield place
        if not place.is_symlink():
            done = place
            continue
        links += 1
        leaves = place.is_relative_to(workspace) and not Path(os.path.realpath(place)).is_relative_to(workspace)
        if leaves or links > _MOST_LINKS:
            return
        target = Path(os.readlink(place))
        done = Path("/") if target.is_absolute() else done
        left += target.parts[:0:-1] if target.is_absolute() else target.parts[::-1]


def _environment(program: Path, *, workspace: Path) -> tuple[Path, ...]:
    """Return what has to be shown of the environment that a program is installed in; empty if none is recognised."""
    root = program.parent.parent
    if program.parent.name == "bin":
        if is_venv(root):
            return (root, *base_of(root, workspace=workspace))
        if is_python(root) or is_node(root):
            return (root,)
    package = _package(program)
    return (package,) if package is not None else ()


def _package(program: Path) -> Path | None:
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
    return [Path(os.path.normpath(package / one)) for one in (*programs, about.get("main")) if isinstance(one, str)]
