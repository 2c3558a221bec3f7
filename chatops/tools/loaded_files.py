"""Find the files of the workspace that a command runs or loads: an approval is bound to them.

A change of one asks again. They are files that the command names, files that its programs are known to load
(`shell.program_effects.LOADS`), and files that those name in turn, such as an included Makefile or a script of
``package.json``. Programs can load further files. So the dialog says which files an approval is bound to, and that it
covers no others.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from chatops.domain.errors import ToolFailedError
from chatops.shell.effects import Effects, effects
from chatops.shell.harmless import is_interpreter
from chatops.shell.program_effects import LOADS
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, opened_file

# The limits keep the inspection of a hostile workspace short. What lies beyond them is not bound.
_MAX_LOADED = 60
"""Maximum number of files that an approval is bound to."""
_MAX_WORDS = 200
"""Maximum number of words of the command that are looked up as files."""
_MAX_LOOKUPS = 2_000
"""Maximum number of paths that are looked up for one command."""
_MAX_ENTRIES = 5_000
"""Maximum number of entries of folders that are searched for ``conftest.py``."""
_MAX_DEPTH = 3
"""Maximum depth at which files named in files are followed."""
_MAX_DIGESTED_BYTES = 4_000_000
"""Size of a file up to which its content is digested; of a larger one its inode, size and time are."""
_MAX_SEARCHED_BYTES = 200_000
"""Size of a file up to which it is searched for names of further files."""
_SCRIPT_ENDINGS = frozenset({".sh", ".bash", ".py", ".js", ".mjs", ".cjs", ".ts", ".pl", ".rb", ".lua", ".php", ".mk"})
_LOADED_NAMES = frozenset(os.path.basename(name) for loads in LOADS.values() for name in loads.names)
"""Names of files that some program loads by itself."""
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "build", "dist"})
"""Folders in which no ``conftest.py`` of the workspace is looked for."""
_WORD = re.compile(r"[\w./~+@%:-]+")
_INCLUDES = re.compile(
    r"^[ \t]*(?:-include|sinclude|include|import\??|mod|source|\.|-r|-c|-e|FROM|extends)[ \t=:]+(.+)$", re.MULTILINE
)
"""Lines with which files of build tools load others."""
_TAKES_A_WORD = re.compile(r"[-+]\w*[oO]|-[WXIr]|--(?:rcfile|init-file|require|import)")
"""Options of an interpreter that may take the next word as their value, so that word may not be the script."""


def loaded_files(command: str, *, words: tuple[str, ...], cwd: Path, context: ToolContext) -> tuple[str, ...]:
    """Return the files as ``<path> <digest>``. `words` are those of a simple command, else empty."""
    files = _Files(cwd=cwd, context=context)
    # Of another command, all that could be a path is looked up.
    named = (words or tuple(_WORD.findall(command)))[:_MAX_WORDS]
    interpreted = set(_interpreted_words(named))
    for word in named:
        files.add(os.path.join(cwd, word), runs=word in interpreted)
    for path in _files_of_programs(effects(command), cwd=cwd, context=context):
        files.add(path, runs=True)
    return tuple(files.entries.values())


def _files_of_programs(command: Effects, *, cwd: Path, context: ToolContext) -> Iterator[str]:
    """Yield the files that the programs load by themselves, from `cwd` and from folders that the command names."""
    arguments = (word for argv in command.argvs for word in argv[1:])
    # Also the folder in `--rootdir=FOLDER`.
    words = dict.fromkeys(part for word in arguments for part in (word, word.partition("=")[2]))
    folders = [str(cwd)]
    for word in list(words)[:_MAX_WORDS]:
        folder = os.path.realpath(os.path.join(cwd, word)) if word else ""
        if folder and os.path.isdir(folder) and Path(folder).is_relative_to(context.workspace):
            folders.append(folder)
    for program in command.loaders:
        if (loads := LOADS.get(program)) is None:
            continue
        for folder in dict.fromkeys(folders):
            above = (str(place) for place in Path(folder).parents if place.is_relative_to(context.workspace))
            for place in (folder, *above) if loads.upwards else (folder,):
                yield from (os.path.join(place, name) for name in loads.names)
            if loads.tests:
                yield from _conftests(folder)


def _conftests(folder: str) -> Iterator[str]:
    """Yield the files that pytest loads below `folder`."""
    entries = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        entries += len(folders) + len(files)
        if entries > _MAX_ENTRIES:
            return
        if "conftest.py" in files:
            yield os.path.join(place, "conftest.py")


def _interpreted_words(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the words that an interpreter before them may run as files, whatever their names are."""
    for start, program in enumerate(words):
        if is_interpreter(program.rsplit("/", 1)[-1]):
            for before, word in pairwise(words[start:]):
                if word.startswith(("-", "+")):
                    continue
                yield word
                # After such an option, this word may be its value and the next one the file.
                if _TAKES_A_WORD.fullmatch(before) is None:
                    break


@dataclass(kw_only=True)
class _Files:
    """The files found so far."""

    cwd: Path
    context: ToolContext
    entries: dict[str, str] = field(default_factory=dict)
    """``<path> <digest>`` by the path that was looked up."""
    lookups: int = 0

    def add(self, path: str, *, runs: bool, depth: int = 0) -> None:
        """Add the file at `path` and those that it names. `runs`: it is run or loaded whatever its name is."""
        path = os.path.normpath(path)
        self.lookups += 1
        if path in self.entries or len(self.entries) >= _MAX_LOADED or self.lookups > _MAX_LOOKUPS:
            return
        if not os.path.lexists(path):
            return
        place = locate(path, context=self.context)
        if place.info is None:  # The file may not be read.
            self._add_identity(path, runs=runs)
            return
        if not stat.S_ISREG(place.info.st_mode):
            return
        data = self._read(place.path)
        if data is None:
            self._add_identity(path, runs=runs)
            return
        is_script = runs or place.path.name in _LOADED_NAMES or place.path.suffix in _SCRIPT_ENDINGS
        if not is_script and not place.info.st_mode & 0o111 and not data.startswith(b"#!"):
            return
        self.entries[path] = f"{place.path} {hashlib.sha256(data).hexdigest()}"
        if depth < _MAX_DEPTH and len(data) <= _MAX_SEARCHED_BYTES:
            self._follow(data.decode("utf-8", "replace"), folder=place.path.parent, depth=depth)

    def _read(self, path: Path) -> bytes | None:
        """Return the content of a file; None for a large one."""
        # If it has been replaced meanwhile, what is there now may not be readable for the model.
        with suppress(OSError, ToolFailedError):
            with opened_file(path, context=self.context) as opened, open(opened, "rb", closefd=False) as file:
                data = file.read(_MAX_DIGESTED_BYTES + 1)
                return data if len(data) <= _MAX_DIGESTED_BYTES else None
        return None

    def _add_identity(self, path: str, *, runs: bool) -> None:
        """Add a file whose content is not read by what can still be compared: where links lead, its size and time."""
        try:
            info = os.stat(path)
        except OSError:
            return
        if stat.S_ISREG(info.st_mode) and (runs or info.st_mode & 0o111):
            identity = f"{os.path.realpath(path)} {info.st_dev} {info.st_ino} {info.st_size} {info.st_mtime_ns}"
            self.entries[path] = f"{path} {hashlib.sha256(os.fsencode(identity)).hexdigest()}"

    def _follow(self, text: str, *, folder: Path, depth: int) -> None:
        """Add the files that a loaded file includes, and the scripts that it names."""
        included = {name for line in _INCLUDES.findall(text) for name in _WORD.findall(line)}
        named = (word for word in _WORD.findall(text) if os.path.splitext(word)[1] in _SCRIPT_ENDINGS)
        for name in dict.fromkeys((*sorted(included), *named)):
            for base in dict.fromkeys((folder, self.cwd)):
                self.add(os.path.join(base, name), runs=name in included, depth=depth + 1)
