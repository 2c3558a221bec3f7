"""Needs of a command that its sandbox lacks, predicted from its words, and what the user can grant."""

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.sandbox import NARROWEST, SandboxLevel, SandboxSpec
from chatops.domain.tools import CallFacts
from chatops.tools.shell import shell_tools
from tests.tools.running import needs_sandbox
from tests.tools.toolkit import context_for, inspected

pytestmark = needs_sandbox


async def facts_of(
    command: str,
    workspace: Path,
    *,
    spec: SandboxSpec = NARROWEST,
    ceiling: SandboxSpec | None = None,
    best: SandboxLevel = SandboxLevel.HARD,
) -> CallFacts:
    context = replace(context_for(workspace), sandbox=spec, ceiling=ceiling)
    return await inspected(shell_tools(best)[0], context, {"command": command})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A workspace with a repository whose remote is reached by HTTP."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text('[remote "origin"]\n\turl = http://127.0.0.1:8123/x.git\n')
    return tmp_path


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("git commit -m x", SandboxSpec(git="commit")),
        ("git config a.b c && git add a", SandboxSpec(git="writable")),
        ("git push", SandboxSpec(git="commit", hosts=("127.0.0.1:8123",))),
        ("curl https://a.example/b", SandboxSpec(hosts=("a.example",))),
        ("pip install x", SandboxSpec(network=True)),
        ("ssh box ls", SandboxSpec(network=True)),
        ("git status && echo hi > a", NARROWEST),
        ("echo x >> ~/.ssh/authorized_keys; cp a ~/.netrc; touch /x; echo x > /etc/passwd.d/y", NARROWEST),
    ],
)
async def test_what_the_words_tell(command: str, extra: SandboxSpec, repository: Path) -> None:
    found = await facts_of(command, repository)
    assert found.extra == extra
    assert bool(found.extra_sandbox) is bool(found.lacks) is (extra != NARROWEST)
    assert found.extra_sandbox != found.sandbox


async def test_a_push_to_a_folder_lacks_no_network(repository: Path) -> None:
    (repository / ".git" / "config").write_text('[remote "origin"]\n\turl = ../shop.git\n')
    assert (await facts_of("git push", repository)).extra == SandboxSpec(git="commit")


async def test_what_it_has_is_not_lacking(repository: Path) -> None:
    spec = SandboxSpec(git="commit", hosts=("127.0.0.1:8123", "*.example"))
    for command in ("git push", "curl http://a.example", "pip install x"):
        assert (await facts_of(command, repository, spec=spec)).lacks == ()
    wide = SandboxSpec(git="writable", network=True)
    assert (await facts_of("git remote add a b; pip install x", repository, spec=wide)).lacks == ()


async def test_the_ceiling_takes_from_what_is_offered(repository: Path) -> None:
    found = await facts_of("git push", repository, ceiling=SandboxSpec(git="commit"))
    assert found.extra == SandboxSpec(git="commit") and len(found.lacks) == 2
    found = await facts_of("git push", repository, ceiling=SandboxSpec(hosts=("other.example",)))
    assert found.extra == NARROWEST and found.lacks


async def test_a_program_and_a_folder_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, other = tmp_path / "ws", tmp_path / "other"
    workspace.mkdir()
    tool = other / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    assert (await facts_of("mytool --x", workspace)).extra == SandboxSpec(read=(str(other),))
    assert (await facts_of("echo x > /usr/share/log", workspace)).extra == SandboxSpec(write=("/usr/share",))
    assert (await facts_of("echo x > /tmp/log", workspace)).lacks == (), "it has its own"


async def test_a_link_to_a_program_of_npm_needs_the_whole_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, package = tmp_path / "ws", tmp_path / "prefix" / "lib" / "node_modules" / "mytool"
    workspace.mkdir()
    script, link = package / "dist" / "index.js", tmp_path / "links" / "mytool"
    for place in (script, link):
        place.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    link.symlink_to(script)
    monkeypatch.setenv("PATH", f"{link.parent}:{os.environ['PATH']}")
    assert set((await facts_of("mytool", workspace)).extra.read) == {str(package), str(link.parent)}


async def test_no_home_folder_for_a_program_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, workspace = tmp_path / "home", tmp_path / "ws"
    workspace.mkdir()
    tool = home / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    assert (await facts_of("mytool", workspace)).extra == SandboxSpec(read=(str(tool.parent),))
    assert (await facts_of("echo x > ~/log", workspace)).extra == NARROWEST


async def test_a_call_without_a_sandbox_lacks_nothing(repository: Path) -> None:
    assert (await facts_of("git push", repository, best=SandboxLevel.NONE)).lacks == ()
    weaker = await facts_of("git push", repository, best=SandboxLevel.LANDLOCK)
    assert weaker.extra in (SandboxSpec(network=True), NARROWEST), "no proxy, and .git is writable"


@pytest.mark.parametrize("command", ["git fetch", "cat .git/config"])
async def test_settings_of_git_that_are_a_pipe_do_not_stop_the_inspection(command: str, repository: Path) -> None:
    config = repository / ".git" / "config"
    config.unlink()
    os.mkfifo(config)
    try:
        async with asyncio.timeout(60):
            assert (await facts_of(command, repository)).extra.hosts == ()
    finally:
        os.close(os.open(config, os.O_RDWR | os.O_NONBLOCK))


async def test_settings_of_git_are_read_through_no_link(repository: Path) -> None:
    config = repository / ".git" / "config"
    config.symlink_to(config.rename(repository / "other"))
    assert (await facts_of("git fetch", repository)).extra == SandboxSpec(git="commit", network=True)


@pytest.mark.parametrize("place", ["tool", ".ssh/tool", "bin/tool"])
async def test_a_link_of_the_workspace_offers_no_folder_with_more_in_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, workspace = tmp_path / "home", tmp_path / "ws"
    workspace.mkdir()
    monkeypatch.setenv("HOME", str(home))
    tool = home / place
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (workspace / "run").symlink_to(tool)
    (workspace / "beside").symlink_to(shutil.copy(tool, tmp_path / "beside"))
    assert (await facts_of("./run", workspace)).extra.read == ((str(home / "bin"),) if "bin" in place else ())
    assert (await facts_of("./beside", workspace)).extra == NARROWEST


@pytest.mark.parametrize(
    "host", ["*.example.org", "*", "ev\u202eil.org", "a\u200b.org", "a\x1b]0;x\x07.org", "127.0.0.1"]
)
async def test_only_the_name_of_one_host_is_offered(host: str, tmp_path: Path) -> None:
    found = await facts_of(f"curl 'http://{host}/x' https://a.example/b", tmp_path)
    assert found.extra == SandboxSpec(hosts=("a.example",))
