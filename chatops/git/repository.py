"""Checks and settings that keep a reading git command from running programs of its repository.

Theory of operation

A folder that someone else packed comes with its own configuration, hooks and attributes, and ``git status`` obeys them:
file system monitors, filters, external diffs, text converters, pagers. Two independent measures prevent that:

- `why_not_harmless` finds the repository in the way git does and returns the first thing in it that is not known to be
  harmless. In that case no rule answers for the command.
- `without_programs` runs git with settings and options under which it starts no program, in case the first measure
  overlooked something.

The checks are allow-lists: an unknown setting, a layout that git might not take for a repository, or a file that cannot
be parsed counts as harmful. Only a plain work tree passes. A bare layout does not, because git would obey its
configuration.

Sources: git-config(1), gitattributes(5), githooks(5), gitrepository-layout(5), and ``setup_git_directory_gently`` in
git's setup.c.
"""

import contextlib
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.git.index import SUBMODULE, Tracked, index_entries
from chatops.shell.harmless import reader_word_count
from chatops.toolkit.survey import holds_credentials, sensitive

OLDEST = (2, 38)
"""First git version with ``safe.bareRepository``."""
MAX_CONFIG = 200_000
"""Bytes; a longer file cannot be judged."""
MAX_INDEX = 64_000_000
"""Bytes; a longer file cannot be judged."""

_OBJECT_FORMAT = "extensions.objectformat"
_VERSION_S = 10.0
"""Seconds for ``git --version``. A git that takes longer is not harmless."""
_MAX_NAME = 40
"""Maximum number of characters of a setting that a reason quotes."""
_HEAD = re.compile(rb"(?:ref:\s*refs/\S.*|[0-9a-f]{40}(?:[0-9a-f]{24})?)\s*", re.DOTALL)
_VERSION = re.compile(rb"git version (\d+)\.(\d+)")
_FILTER = re.compile(rb"(?:^|\s)filter(?:=|\s|$)")
_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\\n]|\\.)*)")?\s*\]')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=(.*))?")
_HARMLESS = frozenset(
    "core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.ignorecase core.symlinks"
    " core.precomposeunicode core.autocrlf core.safecrlf core.eol core.quotepath core.abbrev core.compression"
    " core.sharedrepository core.untrackedcache core.preloadindex core.longpaths core.protecthfs core.protectntfs"
    " core.commitgraph core.multipackindex core.sparsecheckout core.sparsecheckoutcone core.checkstat core.trustctime"
    " remote.url remote.pushurl remote.fetch remote.push remote.mirror remote.tagopt remote.prune remote.gh-resolved"
    " branch.remote branch.merge branch.rebase branch.pushremote branch.description branch.autosetupmerge"
    " branch.autosetuprebase branch.sort branch.github-pr-owner-number branch.vscode-merge-base"
    " user.name user.email user.signingkey user.useconfigonly init.defaultbranch pull.rebase pull.ff push.default"
    " push.followtags push.autosetupremote fetch.prune fetch.parallel fetch.prunetags rebase.autostash"
    " rebase.autosquash merge.conflictstyle merge.ff merge.renames rerere.enabled rerere.autoupdate"
    " submodule.url submodule.active submodule.recurse submodule.fetchjobs gc.auto pack.threads"
    " index.version index.threads feature.manyfiles advice.detachedhead commit.gpgsign tag.gpgsign tag.sort"
    " status.showuntrackedfiles status.short status.branch status.submodulesummary diff.renames diff.algorithm"
    " diff.colormoved diff.mnemonicprefix diff.noprefix log.date log.decorate log.follow log.abbrevcommit"
    " extensions.objectformat extensions.refstorage lfs.repositoryformatversion".split()
)
"""Settings as section and key in lower case. The subsection (the name of a remote or branch) does not matter."""
_HELPER = "::"
"""In the address of a remote: a program that fetches is named before it."""
_LOGIN_IN_URL = re.compile(r"://[^/\s]*@")
_COLOURS = "color."
_READ_HOOKS = ("post-index-change", "fsmonitor-watchman", "reference-transaction")
"""Hooks that reading commands run: a status refreshes the index."""
_SAFE_CONFIG = (
    ("safe.bareRepository", "explicit"),
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.pager", "cat"),
    ("log.showSignature", "false"),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("status.submoduleSummary", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("submodule.recurse", "false"),
    ("protocol.allow", "never"),
    # With threads git reads an index by a table of offsets, which can lead to others than `tracked_entries` finds.
    ("index.threads", "1"),
)
"""Settings on the command's environment; they override those of the repository and of the user."""
_READS_WORK_TREE = frozenset({"diff", "grep"})
"""Subcommands that show the content of files in the work tree, besides committed content."""
_SAFE_OPTIONS = {
    # Only the flag wins over the `ignore` of .gitmodules. In a submodule git obeys the configuration of that.
    "status": ("--ignore-submodules=all",),
    "diff": ("--ignore-submodules=all", "--no-ext-diff", "--no-textconv"),
    **dict.fromkeys(("log", "show"), ("--no-ext-diff", "--no-textconv")),
    "blame": ("--no-textconv",),
}
"""Options by subcommand: no setting switches these programs off."""


@frozen_dataclass
class WorkTree:
    """A plain work tree and the folders of its git data."""

    tree: Path
    git_dir: Path
    """The folder that ``.git`` is or names."""
    common_dir: Path
    """The folder with objects and refs: `git_dir`, or the one of the main work tree."""


def why_not_harmless(cwd: Path, *, program: str, workspace: Path) -> str:
    """Return why `program`, a git run in `cwd`, may start programs of the repository; empty if it cannot.

    A repository that leads out of the `workspace` is not harmless either: git would show what is there.
    Only the repository's own settings count. The user's settings are the user's choice.
    """
    try:
        if _version(program, os.stat(program).st_mtime_ns) < OLDEST:
            return f"{program} is older than {OLDEST[0]}.{OLDEST[1]} and cannot ignore bare repositories"
        repository = find_repository(cwd)
        reason = _location_risk(repository, workspace=workspace) or _config_risk(repository) or _hooks_risk(repository)
        return reason or _index_risk(repository, tracked_entries(repository))
    except _NotAWorkTreeError as error:
        return str(error)
    except (OSError, ValueError, IndexError):
        return "the repository's configuration cannot be read"


def reads_only(argv: tuple[str, ...]) -> bool:
    """Return True if `argv` starts git directly with a subcommand that only reads."""
    return argv[:1] == ("git",) and reader_word_count(argv) > 0


def password_in_remotes(argv: tuple[str, ...], *, cwd: Path) -> Path | None:
    """Return the configuration whose passwords `argv` may show: git prints the addresses of remotes as they are."""
    if argv[:2] != ("git", "remote"):
        return None
    try:
        config = find_repository(cwd).common_dir / "config"
    except (_NotAWorkTreeError, OSError, ValueError):
        return None
    return config if holds_credentials(config) else None


def without_programs(argv: tuple[str, ...], *, cwd: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the arguments and the environment with which a reading git command starts no other program.

    Tracked files that may hold secrets are excluded from what it reads in the work tree. They cannot be hidden like
    untracked ones, because git would show them as removed.

    Raises ToolFailedError if the repository has changed since `why_not_harmless` checked it.
    """
    environment = {
        "GIT_CONFIG_COUNT": str(len(_SAFE_CONFIG)),
        "GIT_PAGER": "cat",
        "GIT_ATTR_NOSYSTEM": "1",
        # A status would write the refreshed index and run a hook for that.
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
    }
    for number, (key, value) in enumerate(_SAFE_CONFIG):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    excluded: list[str] = []
    try:
        repository = find_repository(cwd)
        if argv[1] in _READS_WORK_TREE:
            excluded = [f":(exclude,top,literal){path}" for path in _sensitive_paths(repository)]
    except (_NotAWorkTreeError, OSError, ValueError, IndexError) as error:
        raise ToolFailedError("The repository has changed since the check. The command was not run.") from error
    # Keep git from finding a repository above the one that was checked.
    environment["GIT_CEILING_DIRECTORIES"] = str(repository.tree.parent)
    return (*argv[:2], *_SAFE_OPTIONS.get(argv[1], ()), *argv[2:], *excluded), environment


def config_for_reading(config: Path) -> str:
    """Return a repository's settings for commands that only read it: the harmless keys, URLs without passwords."""
    try:
        lines = _read_text(config).removeprefix("\ufeff").split("\n")
    except (OSError, ValueError):
        return ""
    kept, section = [], ""
    for line in map(str.strip, lines):
        heading, entry = _SECTION.fullmatch(line), _ENTRY.fullmatch(line)
        if heading is not None:
            section = heading[1].lower()
            if any(key.startswith(f"{section}.") for key in _HARMLESS):
                kept.append(_LOGIN_IN_URL.sub("://", line))
        elif entry is not None and f"{section}.{entry[1].lower()}" in _HARMLESS and _HELPER not in line:
            kept.append(f"\t{_LOGIN_IN_URL.sub('://', line)}")
    # A value that goes on in the next line is left out.
    return "".join(f"{line}\n" for line in kept if not line.endswith("\\"))


def _sensitive_paths(repository: WorkTree) -> list[str]:
    """Return the tracked paths that may hold secrets, and links that took the place of tracked folders."""
    paths = dict.fromkeys(entry.path for entry in tracked_entries(repository))
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    # A search follows a link in place of a tracked folder.
    refused = [folder for folder in sorted(folders) if stat.S_ISLNK(_mode(repository.tree / folder))]
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if sensitive(repository.tree / path, workspace=repository.tree):
                refused.append(path)
    return refused


class _NotAWorkTreeError(Exception):
    """The folder is not a plain work tree; the text says why, as a clause."""


def find_repository(cwd: Path) -> WorkTree:
    """Return the repository that git finds from `cwd`.

    Raises `_NotAWorkTreeError` unless it is a plain work tree, and OSError.
    """
    for folder in (cwd, *cwd.parents):
        entry = folder / ".git"
        mode = _mode(entry)
        if stat.S_ISDIR(mode):
            if _mode(entry / "HEAD"):
                return _plain_work_tree(folder, entry)
            # Without a HEAD git does not take it for a repository and searches on: in the folder itself, then above it.
        elif stat.S_ISREG(mode):
            text = _read_text(entry)
            if not text.startswith("gitdir: "):
                raise _NotAWorkTreeError(f"{entry} names no repository")
            return _plain_work_tree(folder, _follow(folder, text.removeprefix("gitdir: ")))
        elif mode:
            raise _NotAWorkTreeError(f"{entry} is neither a folder nor a file")
        if _mode(folder / "HEAD") and any(_mode(folder / name) for name in ("objects", "commondir")):
            raise _NotAWorkTreeError(f"{folder} looks like a bare repository, whose configuration git would follow")
    raise _NotAWorkTreeError(f"{cwd} is not in a work tree")


def _plain_work_tree(tree: Path, git_dir: Path) -> WorkTree:
    """Return the repository if git is certain to accept it. Otherwise git would search on and find another one.

    Raises `_NotAWorkTreeError`.
    """
    common_dir = git_dir
    if _mode(git_dir / "commondir"):
        common_dir = _follow(git_dir, _read_text(git_dir / "commondir"))
    folders = (git_dir, common_dir, common_dir / "objects", common_dir / "refs")
    usual = all(stat.S_ISDIR(_mode(folder)) for folder in folders) and stat.S_ISREG(_mode(git_dir / "HEAD"))
    if not usual or not _HEAD.fullmatch(_read_bytes(git_dir / "HEAD", limit=MAX_CONFIG)):
        raise _NotAWorkTreeError(f"{git_dir} is not the repository of an ordinary work tree")
    return WorkTree(tree=tree, git_dir=git_dir, common_dir=common_dir)


def _follow(folder: Path, text: str) -> Path:
    """Return the path that git reads in a file with `text`: links are followed before a ``..`` behind them."""
    return Path(os.path.realpath(folder / text.rstrip("\r\n")))


def _mode(path: Path) -> int:
    """Return the mode of the file at `path` without following links; 0 if there is none."""
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


@cache
def _version(program: str, changed: int) -> tuple[int, int]:
    """Return the version of `program`. `changed` is its modification time, so that an upgrade is noticed."""
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSION_S, env={}, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = _VERSION.match(done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _location_risk(repository: WorkTree, *, workspace: Path) -> str:
    """Look at where the data lies. A linked work tree lies elsewhere than its repository, which knows of it."""
    git_dir, common_dir, dot_git = repository.git_dir, repository.common_dir, repository.tree / ".git"
    if git_dir != dot_git or common_dir != git_dir:
        # As `git worktree add` makes it: data in COMMON/worktrees/NAME, whose `gitdir` leads back here.
        back = _follow(git_dir, _read_text(git_dir / "gitdir")) if _mode(git_dir / "gitdir") else None
        is_linked = back == dot_git and common_dir in (git_dir, git_dir.parent.parent)
        if not is_linked and not (git_dir.is_relative_to(workspace) and common_dir.is_relative_to(workspace)):
            return f"its data is in {common_dir}, outside the workspace"
    objects = common_dir / "objects"
    if _mode(objects / "info" / "alternates"):
        return "the repository uses objects of another repository"
    with os.scandir(objects) as entries:
        if any(entry.is_symlink() for entry in entries):
            return f"{objects} contains links to objects elsewhere"
    return ""


def _config_risk(repository: WorkTree) -> str:
    for folder in dict.fromkeys((repository.git_dir, repository.common_dir)):
        for name in ("config", "config.worktree"):
            if _mode(folder / name) and (key := _first_unknown(_read_text(folder / name))):
                return f"the repository's configuration sets {key}, which can make git run a program"
    return ""


def _hooks_risk(repository: WorkTree) -> str:
    for folder in dict.fromkeys((repository.git_dir, repository.common_dir)):
        for hook in _READ_HOOKS:
            if os.access(folder / "hooks" / hook, os.X_OK):
                return f"the repository has the hook {hook}, which git runs"
    return ""


def _index_risk(repository: WorkTree, entries: tuple[Tracked, ...]) -> str:
    """Check what the index names: submodules bring their own configuration, attributes can name filters."""
    folders = {""}
    attributes = [folder / "info" / "attributes" for folder in (repository.git_dir, repository.common_dir)]
    for entry in entries:
        if entry.mode == SUBMODULE:
            return "the repository has submodules, whose configuration git follows too"
        folder, _, name = entry.path.rpartition("/")
        if name.casefold() == ".gitattributes" and not _mode(repository.tree / entry.path):
            # git then uses the version in the index, which is not read here.
            return f"{entry.path} is missing, and it may name filters"
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    attributes += [repository.tree / folder / ".gitattributes" for folder in sorted(folders)]
    for file in attributes:
        if not _mode(file):
            continue
        lines = _read_bytes(file, limit=MAX_CONFIG).split(b"\n")
        if any(_FILTER.search(line) for line in lines if not line.lstrip().startswith(b"#")):
            return f"{file} names a filter, which is a program"
    return ""


def tracked_entries(repository: WorkTree) -> tuple[Tracked, ...]:
    """Return the entries of the index, including those of a shared index. Raises ValueError, IndexError or OSError."""
    config = repository.common_dir / "config"
    formats = [value for key, value in _settings(_read_text(config)) if key == _OBJECT_FORMAT] if _mode(config) else []
    id_bytes = 32 if formats[-1:] == ["sha256"] else 20
    files = (repository.git_dir / "index", *repository.git_dir.glob("sharedindex.*"))
    contents = (_read_bytes(file, limit=MAX_INDEX) for file in files if _mode(file))
    return tuple(entry for data in contents for entry in index_entries(data, id_bytes=id_bytes))


def _read_text(path: Path) -> str:
    return _read_bytes(path, limit=MAX_CONFIG).decode("utf-8", "strict")


def _read_bytes(path: Path, *, limit: int) -> bytes:
    if not path.is_file():
        raise ValueError("not a regular file")
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError("too long")
    return data


def _first_unknown(text: str) -> str:
    """Return the first setting that is not known to be harmless, including one that only a laxer parser would see."""
    for key, value in _settings(text):
        if key not in _HARMLESS and not key.startswith(_COLOURS):
            return key
        if key.startswith(("remote.", "submodule.")) and _HELPER in value:
            return f"{key} to a helper program"
        if key == _OBJECT_FORMAT and value not in {"sha1", "sha256"}:
            return f"{key} to {value[:_MAX_NAME]}"
    return ""


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield section and key of each setting, and its value as written. What is unclear is yielded as a key."""
    section = ""
    # For git only a line feed ends a line; splitting elsewhere would yield other sections than git sees.
    for raw in text.removeprefix("\ufeff").split("\n"):
        line = raw.strip()
        if heading := _SECTION.match(line):
            # `[a.b]` is an old spelling of `[a "b"]`.
            section, dot, _ = heading[1].lower().partition(".")
            if section == "extensions" and (dot or heading[2] is not None):
                yield line[:_MAX_NAME], ""
            line = line[heading.end() :].strip()
        elif line.startswith("["):
            yield line[:_MAX_NAME], ""
            continue
        if not line or line[0] in "#;":
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None or line.endswith("\\"):
            yield f"{section}: {line[:_MAX_NAME]}", ""
            continue
        yield f"{section}.{entry[1].lower()}", (entry[2] or "").strip()
