"""The recipes in docs/, line by line in a shell, against servers on loopback."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel
from tests.readme.shell import follow
from tests.support import document
from tests.support.cases import for_each
from tests.support.command_line import program
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says
from tests.support.no_sandbox import at_level

DOCS = document.DOCS
PAGES = sorted(DOCS.glob("*.md"))


def a_model(name: str, *, model: str) -> FakeOpenAI:
    """A server that greets, and calls whatever tool it is offered when `doctor` asks."""

    def reply(request: SeenRequest) -> Completion:
        if request.tool_names and not request.tool_results and "hello" not in request.last_user:
            return calls(call(request.tool_names[0]))
        return says(f"Hello from {name}.")

    return FakeOpenAI(reply, strict=False, models=(model,))


@pytest.fixture
def home(folder: Path, path_with_chatops: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what chatops stores, beside the workspace. `python3` is this interpreter, as in an active venv."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    home = folder.parent / "home"
    monkeypatch.setenv("CHATOPS_HOME", str(home))
    return home


def test_local_models(folder: Path, home: Path) -> None:
    with a_model("qwen3", model="qwen3") as server:
        replaced = {"http://127.0.0.1:11434": server.root}
        for block in ("connect", "doctor"):
            follow(block, folder, page=DOCS / "local-models.md", replaced=replaced)


@pytest.mark.more
def test_a_gateway(folder: Path, home: Path) -> None:
    (folder / "site.json").write_text("\n".join(document.block("site", page=DOCS / "gateway.md")))
    with a_model("the gateway", model="team") as server:
        replaced = {"https://gateway.example.org": server.root}
        for block in ("connect", "check", "audit"):
            follow(block, folder, page=DOCS / "gateway.md", replaced=replaced)
        assert server.requests[-1].headers["authorization"] == "Bearer key-of-ana"
    assert "key-of-ana" not in (home / "config" / "model_registry.json").read_text()


@pytest.mark.more
def test_a_policy_in_ci(folder: Path, home: Path) -> None:
    page = DOCS / "rights.md"
    (folder / "policy.json").write_text("\n".join(document.block("cases", page=page)))
    follow("cases: test", folder, page=page)


@pytest.mark.more
def test_a_ci_job_that_pauses(folder: Path, path_with_chatops: str) -> None:
    # A file of its own that tools must not touch, in a folder that they must not touch either.
    config = folder / ".chatops-home" / "config"
    config.mkdir(parents=True, mode=0o700)
    shutil.copy(DOCS.parent / "model_registry.json", config)
    page = DOCS / "ci-approval.md"
    known = follow("ask", folder, page=page)
    follow("decide", folder, page=page, known=known)


@pytest.mark.more
def test_approvals_over_ssh(folder: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ssh build COMMAND` runs the command in a shell, in the other account's home folder."""
    programs = tmp_path / "ssh-bin"
    programs.mkdir()
    (programs / "ssh").write_text(f'#!/bin/sh\nshift\ncd {folder} && exec sh -c "$*"\n')
    (programs / "ssh").chmod(0o755)
    (folder / "project").mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    page = DOCS / "approvals-over-ssh.md"
    known = follow("start", folder, page=page)
    follow("decide", folder, page=page, known=known)


@pytest.mark.more
def test_an_mcp_server(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_level(SandboxLevel.HARD, monkeypatch)
    (folder / "tides.py").write_text("\n".join(document.block("mcp: server")))
    (folder / "registry.json").write_text("\n".join(document.block("mcp: registry")))
    follow("mcp: try", folder)


@pytest.mark.more
def test_a_server_in_an_environment_outside_the_workspace_is_seen(
    folder: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_level(SandboxLevel.HARD, monkeypatch)
    script = tmp_path / "tides.py"
    script.write_text("\n".join(document.block("mcp: server")))
    assert program("mcp", "add", "tides", sys.executable, str(script), cwd=folder).code == 0
    checked = program("mcp", "check", "tides", cwd=folder)
    assert "tides__high_tide" in checked.out, checked.out


@pytest.mark.parametrize(("page", "block"), [("local-models.md", "registry"), ("gateway.md", "site")])
def test_registries_can_be_used(page: str, block: str, folder: Path, home: Path) -> None:
    text = "\n".join(document.block(block, page=DOCS / page))
    (folder / "registry.json").write_text(text)
    ran = program("registry", "check", "registry.json", cwd=folder)
    assert ran.code == 0, ran.err
    assert page == "gateway.md" or "0 warnings" in ran.out


@for_each("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in document.links(page=page):
        assert (page.parent / target).exists(), target
