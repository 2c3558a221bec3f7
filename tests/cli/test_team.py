"""Commands on one store in PostgreSQL, as two machines would give them."""

import json
import sys
from pathlib import Path

import pytest

from chatops.config.paths import packaged_registry
from tests.support.command_line import CommandLine
from tests.support.postgres import find_programs, server


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_a_call_waits_is_decided_and_runs_from_one_database(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as running:
        registry = tmp_path / "team.json"
        registry.write_text(json.dumps({**json.loads(packaged_registry().read_text()), "store": running.url}))
        monkeypatch.setenv("CHATOPS_REGISTRY", str(registry))
        session, call = chatops.paused("write hello to out.txt")
        # Another machine has other folders, and may name the same database in another way.
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        monkeypatch.setenv("CHATOPS_HOME", str(tmp_path / "other"))
        assert call in chatops("approvals", "list").out
        assert chatops("approvals", "approve", call).code == 0
        resumed = chatops("resume", session)
        assert (resumed.code, (chatops.workspace / "out.txt").read_text()) == (0, "hello"), resumed.err
        assert session in chatops("sessions", "list").out
        checked = chatops("doctor").out
        assert f"postgresql:///postgres?host={running.folder}: PostgreSQL" in checked
        background = chatops("-p", "hello", "--background")
        assert (background.code, "others can write to the store" in background.err) == (1, True)
        running.stop()
        refused = chatops("-p", "hello")
        assert (refused.code != 0, "cannot be reached" in refused.err) == (True, True)
        running.start()
        assert chatops("sessions", "delete", session, "--yes").code == 0
        assert session not in chatops("sessions", "list", "--all").out
    assert list(tmp_path.rglob("chatops.db")) == []


def test_what_is_no_address_of_a_database_is_refused(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATOPS_STORE", "/tmp/chatops.db")
    refused = chatops("sessions", "list")
    assert (refused.code, "CHATOPS_STORE names no database" in refused.err) == (2, True)


def test_without_the_extra_the_command_that_installs_it_is_named(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATOPS_STORE", "postgresql://localhost/t")
    monkeypatch.setitem(sys.modules, "chatops.store.postgres", None)
    refused = chatops("sessions", "list")
    assert (refused.code, "the extra team is not installed" in refused.err) == (2, True)


def test_a_registry_that_names_a_database_and_breaks_leaves_no_session_in_a_file(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "chatops.store.postgres", None)
    registry, wanted = tmp_path / "r.json", '{"version": 3, "store": "postgresql://localhost/t"'
    registry.write_text(wanted)
    # Without an earlier version that could be read, what the file says stops the command.
    assert chatops("--registry", str(registry), "sessions", "list").code == 2
    registry.write_text(wanted + "}")
    missing = "The store is a database, and the extra team is not installed"
    assert missing in chatops("--registry", str(registry), "sessions", "list").err
    registry.write_text('{"version": 3')
    assert missing in chatops("--registry", str(registry), "sessions", "list").err
    assert list(tmp_path.rglob("chatops.db")) == []
