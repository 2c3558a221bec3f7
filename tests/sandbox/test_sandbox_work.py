"""Ordinary work succeeds in the sandbox: virtual environments, toolchains, commits; and nothing gets wider by it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chatops.domain.errors import ToolFailedError
from chatops.domain.sandbox import SandboxSpec
from chatops.git.user_config import filtered_config
from chatops.sandbox import git_access
from chatops.sandbox.git_access import own_repository, stage_for
from chatops.sandbox.mount_points import mount_points
from chatops.sandbox.programs import display_names, find_toolchains
from chatops.toolkit.confine import home_folders
from chatops.tools.shell import shell_tools
from tests.tools.running import needs_sandbox
from tests.tools.toolkit import context_for, done, inspected

pytestmark = needs_sandbox
(SHELL,) = shell_tools()
COMMIT = SandboxSpec(git="commit")


async def ran(workspace: Path, command: str, spec: SandboxSpec = COMMIT) -> str:
    result = await done(SHELL, context_for(workspace, sandbox=spec), {"command": command})
    return f"{result.outcome} {result.content}"


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def status(folder: Path, *words: str) -> int:
    return subprocess.run(["git", *words], cwd=folder, check=False, capture_output=True).returncode


def subprocess_shell(folder: Path, command: str) -> None:
    subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    (folder / ".gitconfig").write_text(
        '[user]\n\tname = Ann\n\temail = ann@example.org\n[credential]\n\thelper = "!cat /etc/passwd"\n'
        "[http]\n\textraHeader = Authorization: token abc\n[include]\n\tpath = other\n"
        '[url "https://ann:pw@example.org/"]\n\tinsteadOf = x:\n[url "https://example.org/"]\n\tinsteadOf = e:\n'
        '[alias]\n\tst = status\n\tevil = "!touch pwned"\n'
        "[core]\n\tsshCommand = evil\n\thooksPath = /evil\n\tautocrlf = input\n"
    )
    yield folder


@pytest.fixture
def repository(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "a.txt").write_text("two\n")
    return folder


async def test_a_commit_works_and_shows_in_the_real_repository(repository: Path) -> None:
    assert "success" in await ran(repository, "git checkout -qb work && git commit -qam second && git log --oneline")
    assert git(repository, "log", "--format=%s %an <%ae>", "-1", "work") == "second Ann <ann@example.org>\n"
    assert git(repository, "status", "--porcelain", "--branch") == "## work\n"
    assert git(repository, "fsck") == ""
    assert "work" in git(repository, "reflog", "-1", "--format=%gs %D")


async def test_a_merge_with_a_conflict_is_carried_over(repository: Path) -> None:
    git(repository, "commit", "-qam", "second")
    git(repository, "checkout", "-qb", "other", "HEAD~1")
    (repository / "a.txt").write_text("three\n")
    git(repository, "commit", "-qam", "third")
    assert "CONFLICT" in await ran(repository, "git merge main")
    assert "both modified" in git(repository, "status")
    assert "success" in await ran(repository, "echo both > a.txt; git add . && git commit -qm merged")
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "command",
    [
        "git config core.hooksPath /tmp/evil",
        "git config --worktree core.fsmonitor evil",
        "mkdir -p .git/hooks; printf '#!/bin/sh\\n' > .git/hooks/pre-commit",
        "echo evil > .git/info/attributes",
        "echo /etc > .git/objects/info/alternates",
        "mv .git/hooks .git/old; mkdir .git/hooks; echo x > .git/hooks/post-checkout",
        "echo ../evil > .git/commondir",
        "echo 'exec evil' > .git/config.worktree",
        "mkdir .git/rebase-merge; echo 'exec evil' > .git/rebase-merge/git-rebase-todo",
        "rm -rf .git/modules; mkdir -p .git/modules/x; echo x > .git/modules/x/config",
        "ln -sf /etc/passwd .git/MERGE_MSG",
        "echo 'ref: ../../evil' > .git/HEAD",
        "rm -f .git/index; ln -s /etc/shadow .git/index",
        "mv .git other; git init -q .",
    ],
)
async def test_a_command_that_may_commit_changes_no_settings_of_git(repository: Path, command: str) -> None:
    (repository / ".git" / "modules").mkdir()

    def protected() -> dict[str, str]:
        skipped = ("objects/", "refs/", "logs/", "index")
        files = [path for path in (repository / ".git").rglob("*") if path.is_file() or path.is_symlink()]
        names = {str(path.relative_to(repository / ".git")): path for path in files}
        return {
            name: os.readlink(path) if path.is_symlink() else path.read_bytes().hex()
            for name, path in names.items()
            if not name.startswith(skipped) or name.startswith("objects/info")
        }

    before = protected()
    await ran(repository, command)
    assert protected() == before
    assert (repository / ".git" / "index").is_file() or "index" in command
    assert not (repository / ".git" / "index").is_symlink()


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("rm .git/logs/HEAD; ln -s {out}/rc .git/logs/HEAD", "logs/HEAD"),
        ("rm -rf .git/refs/heads; ln -s {out} .git/refs/heads", "refs/heads"),
        ("mv .git/objects/pack .git/objects/pk; ln -s {out} .git/objects/pack", "objects/pack"),
        ("mkdir .git/refs/heads/d; ln -s {out} .git/refs/heads/d/e; chmod 0 .git/refs/heads/d", "refs/heads/d/e"),
        ("printf 'ref: refs/heads/../../../../out/W\\n' > .git/refs/heads/main", "refs/heads/main"),
        ("ln -s {out}/rc .git/logs/x; kill -9 $$", "logs/x"),
        ("printf 'ref: refs/heads/../../../../out/W\\n' > .git/HEAD", ".git/HEAD"),
        ("printf 'ref: refs/heads/../../../../../out/rc\\n' > .git/HEAD", ".git/HEAD"),
        ("printf 'ref: refs/heads/../../../../out/W\\n' > .git/ORIG_HEAD", ".git/ORIG_HEAD"),
    ],
)
async def test_nothing_in_the_repository_leads_the_next_git_outside(
    repository: Path, tmp_path: Path, command: str, named: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "rc").write_text("mine\n")
    assert named in await ran(repository, command.format(out=out))
    store = repository / ".git"
    assert not [path for path in store.rglob("*") if path.is_symlink()]
    for words in ("commit -q --allow-empty -m x", "branch y", "reset -q HEAD"):
        status(repository, *words.split())
    assert [path.read_text() for path in out.iterdir()] == ["mine\n"]


@pytest.mark.some(2)
@pytest.mark.parametrize("place", ["objects", "refs", "logs", "objects/info", "refs/heads", "logs/HEAD"])
async def test_a_repository_that_leads_elsewhere_gives_no_access_to_commit(
    repository: Path, tmp_path: Path, place: str
) -> None:
    out, store = tmp_path / "out", repository / ".git"
    (store / place).rename(out)
    before = sorted(out.rglob("*"))
    (store / place).symlink_to(out)
    with pytest.raises(ToolFailedError, match=rf"commit.*\.git/{place}|\.git/{place} .*commit"):
        await ran(repository, "echo ran > ran")
    assert not (repository / "ran").exists()
    assert sorted(out.rglob("*")) == before
    assert "success" in await ran(repository, "echo ran > ran", SandboxSpec())


async def test_an_index_that_is_too_large_is_named(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_access, "_MAX_COPIED_BYTES", 60)
    with pytest.raises(ToolFailedError, match="index is too large to be copied"):
        await ran(repository, "echo ran > ran")


@pytest.mark.parametrize(
    "name",
    ["a..b", "a//b", "a.lock", "a.lock/b", ".a", "a/.b", "a/", "a.", "a@{b", "a b", "a~", "../tags/a", "../../a", ""],
)
@pytest.mark.more
async def test_only_a_valid_branch_becomes_head(repository: Path, name: str) -> None:
    assert status(repository, "check-ref-format", f"refs/heads/{name}")
    await ran(repository, f"printf 'ref: refs/heads/{name}\\n' > .git/HEAD")
    assert (repository / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"


@pytest.mark.more
@pytest.mark.parametrize("name", ["a.b", "a/b-c", "größe", "a.locked", "a@b", "@", "a.lock.b", "{a}"])
async def test_each_valid_branch_becomes_head(repository: Path, name: str) -> None:
    assert not status(repository, "check-ref-format", f"refs/heads/{name}")
    assert "success" in await ran(
        repository, f"git checkout -q --orphan '{name}' || git symbolic-ref HEAD refs/heads/{name}"
    )
    assert (repository / ".git" / "HEAD").read_text() == f"ref: refs/heads/{name}\n"


@pytest.mark.parametrize("name", ["refs/heads/../../hooks/x", "refs/heads/x.lock", "refs/heads/x\\ny", "../x"])
async def test_packed_references_of_invalid_names_do_not_stop_the_users_git(repository: Path, name: str) -> None:
    seen = await ran(repository, f"printf '%s {name}\\n' $(git rev-parse HEAD) >> .git/packed-refs")
    assert "not taken over: .git/packed-refs" in seen
    assert "main" in git(repository, "branch", "--all")


async def test_packed_references_are_taken_over(repository: Path) -> None:
    assert "success" in await ran(repository, "git tag -a -m x größe/1.0 && git branch a.b && git pack-refs --all")
    assert not [path for path in (repository / ".git" / "refs").rglob("*") if path.is_file()]
    assert git(repository, "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/a.b",
        "refs/heads/main",
        "refs/tags/größe/1.0",
    ]


INNER = "git init -q {0} && git -C {0} -c user.name=a -c user.email=b@c commit -q --allow-empty -m x"
EVIL = "core.fsmonitor 'touch {out}/ran; false'"


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "indexed", ["git add src", "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),src"]
)
@pytest.mark.parametrize("before", ["", "rm {index}", "git update-index --index-version 4"])
async def test_a_new_repository_does_not_become_a_submodule(
    repository: Path, tmp_path: Path, indexed: str, before: str
) -> None:
    subprocess_shell(repository, before.format(index=".git/index"))
    out = tmp_path / "out"
    out.mkdir()
    command = f"{INNER.format('src')} && git -C src config {EVIL.format(out=out)}; {indexed}"
    assert "submodule" in await ran(repository, command)
    assert "src" not in git(repository, "ls-files").split()
    git(repository, "status")
    assert not list(out.iterdir())


@pytest.fixture
def with_submodule(repository: Path, tmp_path: Path) -> Path:
    subprocess_shell(tmp_path, INNER.format("origin"))
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "origin"), "d/sub")
    git(repository, "commit", "-qm", "sub")
    return repository


@pytest.mark.some(2)
@pytest.mark.parametrize("spec", [COMMIT, SandboxSpec()], ids=["commit", "protect"])
@pytest.mark.parametrize(
    "change",
    [
        "echo 'gitdir: ../../evil' > d/sub/.git",
        "rm -f d/sub/.git; mv evil d/sub/.git",
        "mv d/sub old; mkdir d/sub; echo 'gitdir: ../../evil' > d/sub/.git",
        "mv d old; mkdir -p d/sub; echo 'gitdir: ../../evil' > d/sub/.git",
    ],
)
async def test_the_repository_of_a_submodule_stays(
    with_submodule: Path, tmp_path: Path, change: str, spec: SandboxSpec
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    evil = f"cp -r .git/modules/d/sub evil; git config -f evil/config {EVIL}"
    evil += "; git config -f evil/config core.worktree ../d/sub"
    await ran(with_submodule, f"{evil.format(out=out)}; {change}; echo x > d/sub/new", spec)
    assert (with_submodule / "evil").is_dir()
    assert (with_submodule / "d" / "sub" / "new").is_file()
    git(with_submodule, "status")
    assert not list(out.iterdir())


async def test_a_folder_without_a_repository_does_not_become_a_bare_one(tmp_path: Path, home: Path) -> None:
    workspace, out = tmp_path / "plain", tmp_path / "out"
    workspace.mkdir()
    out.mkdir()
    bare = "git init -q --bare b; mv b/objects b/refs b/config .; rm -rf HEAD; cp b/HEAD HEAD; mv b/HEAD ."
    await ran(workspace, f"{bare}; git config -f config core.bare false; git config -f config {EVIL.format(out=out)}")
    assert (workspace / "objects").is_dir()
    assert not (workspace / "HEAD").exists()
    assert status(workspace, "-c", "core.worktree=.", "status")
    assert not list(out.iterdir())


async def test_shell_patterns_work_in_a_folder_without_a_repository(tmp_path: Path, home: Path) -> None:
    workspace = tmp_path / "plain"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\n")
    assert await ran(workspace, "cat * > .out && wc -l * && grep -c one *") == (
        "success 0 HEAD\n1 a.txt\n1 total\nHEAD:0\na.txt:1"
    )
    assert (workspace / ".out").read_text() == "one\n"
    # What the sandbox mounted on is gone.
    assert sorted(os.listdir(workspace)) == [".out", "a.txt"]


def test_git_of_a_repository_above_sees_no_mount_point(repository: Path) -> None:
    below = repository / "below"
    below.mkdir()
    before = git(repository, "status", "--porcelain")
    with mount_points(below):
        assert sorted(os.listdir(below)) == [".chatops", ".git", "HEAD"]
        assert git(repository, "status", "--porcelain") == before
    assert os.listdir(below) == []


async def test_settings_behind_a_link_give_no_sandbox(tmp_path: Path, home: Path) -> None:
    workspace = tmp_path / "plain"
    workspace.mkdir()
    (workspace / ".chatops").symlink_to("elsewhere")
    with pytest.raises(ToolFailedError, match=r"\.chatops is a link"):
        await ran(workspace, "rm .chatops; mkdir .chatops", SandboxSpec())
    assert (workspace / ".chatops").is_symlink()


async def test_a_file_that_the_user_changes_meanwhile_is_left_alone(repository: Path) -> None:
    def meanwhile(text: str) -> None:
        if "ready" in text:
            (repository / "b.txt").write_text("mine")
            git(repository, "add", "b.txt")

    context = context_for(repository, sandbox=COMMIT, output=meanwhile)
    command = "git add a.txt; echo ready; while ! [ -e b.txt ]; do sleep 0.05; done; sleep 0.3"
    result = await done(SHELL, context, {"command": command})
    assert ".git/index" in result.content
    assert "b.txt" in git(repository, "diff", "--cached", "--name-only")


async def test_without_leave_git_is_read_only_also_where_there_is_none(repository: Path, tmp_path: Path) -> None:
    refused = await ran(repository, "git commit -qam second", SandboxSpec())
    assert "Read-only file system" in refused
    assert '"git": "commit"' in refused
    empty = tmp_path / "empty"
    empty.mkdir()
    await ran(empty, "git init -q .; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit")
    assert os.listdir(empty) == []
    assert "success" in await ran(empty, "git init -q .", SandboxSpec(git="writable"))


async def test_a_worktree_commits_into_its_repository(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked), "-b", "topic")
    (linked / "a.txt").write_text("topic\n")
    assert "success" in await ran(linked, "git commit -qam topic")
    assert git(repository, "log", "--format=%s", "-1", "topic") == "topic\n"
    assert git(linked, "status", "--porcelain") == ""
    await ran(linked, f"echo x > {repository}/.git/hooks/pre-commit; git config core.hooksPath /evil")
    assert "evil" not in (repository / ".git" / "config").read_text()
    assert not (repository / ".git" / "hooks" / "pre-commit").exists()


@pytest.mark.more
def test_the_lock_that_another_git_takes_after_the_index_is_left_to_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, lock = os.rename, repository / ".git" / "index.lock"

    def renamed(source: Path, target: Path) -> None:
        rename(source, target)
        if source == lock:
            lock.write_text("of another git")

    with stage_for(own_repository(repository), "commit") as stage:
        assert stage is not None
        (stage.folder / "index").write_bytes((stage.folder / "index").read_bytes() + b"x")
        monkeypatch.setattr(os, "rename", renamed)
        assert stage.finish() == ()
    assert lock.read_text() == "of another git"


@pytest.mark.more
@pytest.mark.parametrize("shared", ["../..", "../../", "", None, ".", "/", "../../.."])
def test_a_worktree_counts_only_if_its_commondir_leads_to_its_repository(
    shared: str | None, repository: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked), "-b", "topic")
    commondir = repository / ".git" / "worktrees" / "linked" / "commondir"
    commondir.unlink()
    if shared is not None:
        commondir.write_text(f"{shared}\n")
    assert (own_repository(linked) is not None) is (shared in ("../..", "../../"))


@pytest.mark.parametrize("kind", ["forged file", "link"])
async def test_another_repository_does_not_become_visible(repository: Path, tmp_path: Path, kind: str) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    if kind == "link":
        (hostile / ".git").symlink_to(repository / ".git")
    else:
        git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
        (hostile / ".git").write_text(f"gitdir: {repository}/.git/worktrees/linked\n")
    assert "one" not in await ran(hostile, "git show HEAD:a.txt")
    assert (hostile / ".git").is_symlink() or "gitdir" in (hostile / ".git").read_text()


async def test_settings_of_git_come_without_credentials(repository: Path, home: Path) -> None:
    seen = await ran(repository, "cat ~/.gitconfig; git config --list")
    assert "Ann" in seen
    assert "autocrlf" in seen
    assert "https://example.org/" in seen
    for hidden in ("token", "helper", ":pw@", "evil", "include", "sshCommand"):
        assert hidden not in filtered_config().decode()
    assert ":pw@" not in seen


def python_in(venv: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)


async def test_the_virtual_environment_of_the_workspace_is_used_and_read_only(tmp_path: Path) -> None:
    python_in(tmp_path / ".venv")
    seen = await ran(tmp_path, "python -c 'import sys; print(sys.prefix)'; touch .venv/x; echo $VIRTUAL_ENV")
    assert f"{tmp_path}/.venv\n" in seen
    assert "Read-only file system" in seen
    wide = SandboxSpec(write=(str(tmp_path / ".venv"),))
    assert "success" in await ran(tmp_path, "touch .venv/x", wide)


async def test_the_active_virtual_environment_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv, workspace = tmp_path / "envs" / "mine", tmp_path / "ws"
    workspace.mkdir()
    python_in(venv)
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    assert str(venv) in await ran(workspace, "python -c 'import sys; print(sys.prefix)'")
    facts = await inspected(SHELL, context_for(workspace), {"command": "python -V"})
    assert str(venv) in facts.sandbox


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("active", [False, True])
async def test_the_virtual_environment_that_was_activated_for_another_folder_works(
    own: bool, active: bool, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, other, workspace = home / "versions" / "3", home / "other" / ".venv", tmp_path / "ws"
    workspace.mkdir()
    like_python(base)
    (other / "bin").mkdir(parents=True)
    (other / "pyvenv.cfg").touch()
    (other / "bin" / "python3").symlink_to(base / "bin" / "python")
    (other / "bin" / "python").symlink_to("python3")
    if own:
        python_in(workspace / ".venv")
    if active:
        monkeypatch.setenv("VIRTUAL_ENV", str(other))
    monkeypatch.setenv("PATH", f"{other / 'bin'}:{os.environ['PATH']}")
    seen = await ran(workspace, "command -v python3")
    assert str(workspace / ".venv" if own and not active else other) in seen
    assert "success" in seen


def linked_venv(ws: Path, out: Path) -> None:
    python_in(out / "venv")
    (ws / ".venv").symlink_to(out / "venv")


def link_to_secrets(ws: Path, out: Path) -> None:
    python_in(ws / ".venv")
    (ws / ".venv" / "bin" / "python").unlink()
    (out / "secrets" / "bin").mkdir(parents=True)
    (out / "secrets" / "bin" / "python").write_text("#!/bin/sh\n")
    (out / "secrets" / "bin" / "python").chmod(0o755)
    (ws / ".venv" / "bin" / "python").symlink_to(out / "secrets" / "bin" / "python")


def like_python(root: Path) -> None:
    for folder in (root / "bin", root / "lib" / "python3.11"):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "lib" / "python3.11" / "os.py").touch()
    (root / "bin" / "python").write_text("#!/bin/sh\n")
    (root / "bin" / "python").chmod(0o755)


def up_through_a_link(ws: Path, out: Path) -> None:
    # ``ws/link/../../…`` is the workspace for the kernel, and / once ``..`` is removed from the text.
    private, up = out / "private", len(ws.parts)
    private.mkdir(parents=True)
    like_python(ws / private.relative_to("/"))
    deep = ws.joinpath(*("d" * up))
    deep.mkdir(parents=True)
    (ws / "link").symlink_to(deep)
    python_in(ws / ".venv")
    (ws / ".venv" / "bin" / "python").unlink()
    (ws / ".venv" / "bin" / "python").symlink_to(f"{ws}/link/{'../' * up}{private.relative_to('/')}/bin/python")


def by_a_link_of_the_workspace(ws: Path, out: Path) -> None:
    like_python(out / "private")
    python_in(ws / ".venv")
    (ws / ".venv" / "bin" / "python").unlink()
    (ws / ".venv" / "bin" / "python").symlink_to("../../python")
    (ws / "python").symlink_to(out / "private" / "bin" / "python")


@pytest.mark.parametrize("made", [linked_venv, link_to_secrets, up_through_a_link, by_a_link_of_the_workspace])
def test_a_link_in_the_workspace_makes_no_other_folder_visible(
    tmp_path: Path, made: Callable[[Path, Path], None]
) -> None:
    ws, out = tmp_path / "ws", tmp_path / "out"
    ws.mkdir()
    made(ws, out)
    assert not [path for path in find_toolchains(ws, {"PATH": "/usr/bin"}).shown if path.is_relative_to(out)]


def test_toolchains_are_found_where_path_leads_and_home_never_is(tmp_path: Path, home: Path) -> None:
    node = home / ".nvm" / "versions" / "node" / "v20"
    shims, cargo = home / ".pyenv" / "shims", home / ".cargo" / "bin"
    for folder in (node / "include" / "node", home / ".pyenv" / "versions", home / ".pyenv" / "libexec"):
        folder.mkdir(parents=True)
    (home / ".rustup" / "toolchains").mkdir(parents=True)
    for program in (node / "bin" / "node", shims / "python3", cargo / "cargo", cargo / "rustup", home / "bin" / "node"):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (home / "include" / "node").mkdir(parents=True)
    (home / ".cargo" / "credentials.toml").write_text("token")
    path = os.pathsep.join(map(str, (node / "bin", shims, cargo, home / "bin", tmp_path / "ws" / "bin", "relative")))
    found = find_toolchains(tmp_path / "ws", {"PATH": path})
    assert {node, shims, cargo, home / ".rustup" / "toolchains"} <= set(found.shown)
    shown = f"{home}/.pyenv/{{"
    assert str(home / ".pyenv") not in display_names(found) and any(
        one.startswith(shown) for one in display_names(found)
    )
    assert not set(home_folders()) & set(found.shown)
    assert home / ".cargo" not in found.shown
    assert set(found.path) == {str(node / "bin"), str(shims), str(cargo)}


async def test_a_program_of_the_workspace_does_not_stand_in_for_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\necho PWNED\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert "PWNED" not in await ran(tmp_path, "git --version")
