"""A workspace with a file in it, and commands run there."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, Reply, error
from tests.support.workflows import Scripted, WorkflowInstallation


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: empty but for `note.txt`."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "note.txt").write_text("The invoice is due on Friday.\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return folder


@pytest.fixture
def chatops(workspace: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Commands run in the workspace."""
    return CommandLine(workspace, capsys)


@pytest.fixture
def scripted(chatops: CommandLine) -> Iterator[Scripted]:
    """A workflow's installation whose server says what the test gives."""
    replies: list[Reply] = []
    with FakeOpenAI(lambda request: replies.pop(0) if replies else error(500, "the script is over")) as server:

        def installation(*script: Reply) -> WorkflowInstallation:
            replies.extend(script)
            return WorkflowInstallation(chatops, server.url)

        yield installation, server
        assert server.violations == []
        assert replies == []
