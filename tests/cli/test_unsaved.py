"""Messages of a headless run if the store takes nothing more, or another process took over the turn."""

import pytest

from chatops.domain.errors import ConflictError, StoreError
from chatops.engine.effects import TurnStep
from chatops.store.store import Store
from tests.support.command_line import CommandLine


def refuse_after_first(monkeypatch: pytest.MonkeyPatch, error: StoreError) -> None:
    """From the second step on the store refuses."""
    commit = Store.commit
    done: list[TurnStep] = []

    def refusing(self: Store, step: TurnStep, lease: str) -> None:
        if done:
            raise error
        commit(self, step, lease)
        done.append(step)

    monkeypatch.setattr(Store, "commit", refusing)


def test_a_full_disk_is_a_failure_told_once_and_the_turn_can_be_resumed(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        refuse_after_first(full, StoreError("The disk is full.", advice="Make room, then go on."))
        ran = chatops("-p", "read note.txt", "--output-format", "json")
    assert ran.code == 1
    assert ran.json["status"] == "failed"
    assert ran.err.count("The disk is full.") == 1
    assert f"chatops resume {ran.json['session_id']}" in ran.err
    resumed = chatops("resume", ran.json["session_id"])
    assert resumed.code == 0
    assert "due on Friday" in resumed.out


def test_a_turn_that_another_process_took_over_is_told_in_its_own_words(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_after_first(monkeypatch, ConflictError("The turn has gone on elsewhere."))
    ran = chatops("-p", "read note.txt")
    assert ran.code == 1
    assert ran.err.count("Another process has resumed this session") == 1
    assert "could not be started" not in ran.err
