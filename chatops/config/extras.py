"""The extras of chatops: say what is missing, and the command that adds it to a copy installed in this way.

pipx and `uv tool` own the environment that they made, so they have to add to it; what is installed past `uv tool` is
gone with its next upgrade. Where chatops came from, such as a checkout or a wheel, is in ``direct_url.json``: no
command relies on an index that has chatops.

Extensions are entry points of installed packages: `installed_entries`.
"""

import json
import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

DISTRIBUTION = "chatops-tui"
"""Name on an index. The import package and the command are called ``chatops``."""
_REQUIREMENT_OF_EXTRA = re.compile(r"""(?P<requirement>[^;]+?)\s*;\s*extra == ['"](?P<extra>[^'"]+)['"]""")
_UVX_FOLDER = "archive-v"
"""Folder of the environments that `uvx` makes, with a number after it."""


def not_installed(extra: str) -> str:
    """Return a clause that says that an extra is not installed, and the command that installs it."""
    return f"the extra {extra} is not installed; `{install_command(extra)}` installs it"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this copy, for a shell."""
    return shlex.join(_install_words(extra, prefix=Path(sys.prefix)))


def _install_words(extra: str, *, prefix: Path) -> list[str]:
    distribution = _distribution()
    if distribution is None:
        checkout = Path(__file__).resolve().parents[2]
        return [*_installer_words(), "-e", f"{checkout}[{extra}]"]
    matches = [_REQUIREMENT_OF_EXTRA.fullmatch(line) for line in distribution.requires or ()]
    packages = [match["requirement"] for match in matches if match is not None and match["extra"] == extra]
    if (prefix / "pipx_metadata.json").is_file():
        return ["pipx", "inject", prefix.name, *packages]
    if (prefix / "uv-receipt.toml").is_file() and (source := _install_source(distribution)):
        return ["uv", "tool", "install", *_tool_install_words(extra, source=source, receipt=prefix / "uv-receipt.toml")]
    if prefix.parent.name.startswith(_UVX_FOLDER) and (source := _install_source(distribution)):
        return ["uvx", "--from", _requirement(source, (extra,)), "chatops"]
    return [*_installer_words(), *packages]


def _distribution() -> "Distribution | None":
    from importlib.metadata import distributions  # slow to import

    # See `installed_entries`: a relative entry means the current folder, which may be hostile.
    return next(iter(distributions(path=list(filter(os.path.isabs, sys.path)), name=DISTRIBUTION)), None)


def _installer_words() -> list[str]:
    """Return what installs into this environment. One that uv made has no pip.

    With -P a pip.py of the current folder is not run.
    """
    if find_spec("pip") is None:
        return ["uv", "pip", "install", "--python", sys.executable]
    return [sys.executable, "-P", "-m", "pip", "install"]


def _install_source(distribution: "Distribution") -> str:
    """Return where this copy came from: a URL, a folder if it is editable, the name if that was an index.

    Empty if it is no longer there.
    """
    text = distribution.read_text("direct_url.json")
    if text is None:
        return DISTRIBUTION
    origin: dict[str, Any] = json.loads(text)
    url = str(origin["url"])
    if "vcs_info" in origin:
        return f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if not url.startswith("file:"):
        return url
    path = unquote(urlsplit(url).path)
    if not os.path.exists(path):
        return ""
    return path if origin.get("dir_info", {}).get("editable") else url


def _requirement(source: str, extras: tuple[str, ...]) -> str:
    """Return the requirement of chatops with `extras` from `source`."""
    chosen = f"[{','.join(extras)}]"
    if source.startswith("/"):
        return f"{source}{chosen}"
    return f"{DISTRIBUTION}{chosen}" + (f" @ {source}" if source != DISTRIBUTION else "")


def _tool_install_words(extra: str, *, source: str, receipt: Path) -> list[str]:
    """Return the words for `uv tool install`, which makes the environment again: what it has besides is named too."""
    extras, others = {extra}, list[str]()
    import tomllib  # 0.7 MB of memory from the start of each chat on, for a message that few ever see

    for requirement in tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]:
        if requirement["name"] == DISTRIBUTION:
            extras.update(requirement.get("extras", ()))
        else:
            others += ["--with", requirement["name"] + requirement.get("specifier", "")]
    return [*others, *(["-e"] if source.startswith("/") else []), _requirement(source, tuple(sorted(extras)))]


ENGINES = "chatops.models"
"""Group of engines: ``NAME = MODULE:FUNCTION``, a function that makes the `ModelClient` of a `ModelSpec`."""
TOOLS = "chatops.tools"
"""Group of tools: ``NAME = MODULE:TOOL``, a tool or a list of them."""


def installed_entries(group: str) -> "tuple[EntryPoint, ...]":
    """Return the entry points of a group. Looks only for its name first: reading all of them takes long.

    An entry of the import path that is not absolute means the current folder, where others may have put anything: no
    package is looked for there. `chatops.safe_path` has taken out the absolute entry that ``python -m`` adds.
    """
    mark = f"[{group}]".encode()
    folders = list(filter(os.path.isabs, dict.fromkeys(sys.path)))
    for folder in folders:
        for file in Path(folder).glob("*.dist-info/entry_points.txt"):
            try:
                if mark in file.read_bytes():
                    return _entry_points_of(group, folders)
            except OSError:
                continue
    return ()


def _entry_points_of(group: str, folders: list[str]) -> "tuple[EntryPoint, ...]":
    from importlib.metadata import distributions  # slow to import

    # Of a package that is installed twice only the first one can be imported.
    packages = {package.name: package for package in reversed(list(distributions(path=folders)))}
    return tuple(entry for package in packages.values() for entry in package.entry_points.select(group=group))
