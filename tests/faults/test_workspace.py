"""A workspace with a name that could mislead, and one that goes while a chat works in it."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.installation import EFFECT, Installation
from tests.faults.entry_points import FaultyChat, Pipe, Provider, patient_registry
from tests.support.fake_openai import call, calls, says

NAME = "größe 漢字 no sandbox\nnetwork   no"
SHOWN = '"{parent}/größe 漢字 no sandbox␊network   no"'
"""As one path, however it is read: quoted, its line break visible."""


@pytest.fixture
def odd(tmp_path: Path, chatops_home: Path, provider: Provider) -> Installation:
    """A workspace whose name holds letters of two alphabets, spaces and a line break that would fake a label."""
    installation = Installation.with_note(tmp_path / NAME, chatops_home)
    installation.use(patient_registry(provider.server.url))
    return installation


@pytest.mark.more
@pytest.mark.fault("E19")
def test_a_path_that_could_mislead_is_shown_as_one_and_works(odd: Installation, provider: Provider) -> None:
    shown = SHOWN.format(parent=odd.workspace.parent)
    with odd.open("--role", "coder") as terminal:
        terminal.ready("coder")
        chat = FaultyChat(odd, provider, terminal)
        chat.say("write it down", calls(call("shell_exec", command=EFFECT)), says("Understood."))
        assert squeezed(f"writes count.txt runs in {shown} sandbox bubblewrap") in squeezed(terminal.dialog())
        terminal.press("a")
        terminal.wait_for("Understood.")
        assert odd.count == 1
        chat.say("edit it", calls(call("file_edit", path="note.txt", old="Friday", new="Monday")), says("Edited."))
        edited = f'{shown[:-1]}/note.txt"'
        terminal.dialog()
        terminal.press("v")
        terminal.wait_for("touches")
        assert squeezed(f"touches {edited}") in squeezed(terminal.dialog())
        terminal.press("a")
        terminal.wait_for("Edited.")
        assert "Monday" in (odd.workspace / "note.txt").read_text()
        chat.assert_well()
    # The same without a terminal: the paused call says where it would run, and an approval from there works.
    pipe = Pipe(odd, provider)
    paused = pipe.ask("again", calls(call("shell_exec", command=EFFECT)), says("Understood."), more=("-c",))
    assert paused.code == 3
    with odd.store() as store:
        (waiting,) = store.pending_calls()
    described = pipe.run("approvals", "show", waiting.pending.call.id)
    assert f"Runs in:      {shown}" in described.out
    assert pipe.run("approvals", "approve", waiting.pending.call.id).code == 0
    assert pipe.run("resume", waiting.session_id).code == 0
    assert odd.count == 2
    pipe.assert_well()


def squeezed(text: str) -> str:
    """Without the white space, and so however it was wrapped."""
    return re.sub(r"\s", "", text)


@pytest.mark.more
@pytest.mark.fault("E20")
def test_a_workspace_that_goes_is_told_no_tool_runs_and_it_may_come_back(chat: FaultyChat, provider: Provider) -> None:
    workspace = chat.installation.workspace
    chat.say("write it down", calls(call("shell_exec", command=EFFECT)), says("Understood."))
    chat.terminal.dialog()
    shutil.rmtree(workspace)
    gone = rf"The workspace {re.escape(str(workspace))} is gone: no tool runs until it exists again"
    chat.wait_for(gone)
    # Approved all the same, it is looked at again and does not run.
    chat.terminal.press("a")
    chat.terminal.wait_for("Understood.")
    chat.wait_for(r"not run, denied: .*is gone")
    chat.say("read it", calls(call("file_read", path="note.txt")), says("I see."))
    chat.terminal.wait_for("I see.")
    assert not workspace.exists()
    (result,) = provider.requests[-1].tool_results[-1:]
    assert "is gone" in result
    chat.assert_well()
    workspace.mkdir()
    chat.wait_for(rf"The workspace {re.escape(str(workspace))} exists again")
    chat.say("write it down", calls(call("shell_exec", command=EFFECT)), says("Understood at last."))
    chat.terminal.dialog()
    chat.terminal.press("a")
    chat.terminal.wait_for("Understood at last.")
    assert chat.installation.count == 1
    chat.assert_well()


@pytest.mark.fault("E20")
def test_a_start_in_a_folder_that_is_gone_says_so(installation: Installation, provider: Provider) -> None:
    installation.use(patient_registry(provider.server.url))
    ran = Pipe(installation, provider).run("-p", "hello", "--workspace", os.fspath(installation.workspace / "never"))
    assert ran.code == 2
    assert "is not a folder" in ran.err
