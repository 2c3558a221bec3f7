"""A store of another version, of two chats at once, that is deleted or replaced in use; clocks that jump."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chatops.store.schema import SCHEMA_VERSION
from chatops.store.store import Store
from tests.e2e.installation import EFFECT, Installation
from tests.faults.entry_points import Pipe, Provider, flat
from tests.faults.storage.chats import contents, goes_well, ready
from tests.store import storekit as kit
from tests.support.fake_openai import call, calls


@pytest.mark.more
@pytest.mark.fault("E06")
def test_a_store_of_a_newer_version(installation: Installation, provider: Provider, pipe: Pipe, path: Path) -> None:
    assert pipe.ask("hello").code == 0
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    path.chmod(0o640)
    before, when = contents(path.parent), path.stat().st_mtime_ns
    newer = rf"version {SCHEMA_VERSION + 1}, this one reads up to {SCHEMA_VERSION}"
    message = rf"made by a newer chatops \({newer}\); it was not opened"
    with installation.open("--role", "coder", cols=400) as terminal:
        assert terminal.wait_exit() == 1
        assert re.search(message, flat(terminal.text()))
        assert "Update chatops" in flat(terminal.text())
    for arguments in (["-p", "hello"], ["sessions", "list"], ["approvals", "list"], ["doctor"]):
        ran = pipe.run(*arguments)
        assert ran.code == 1
        assert re.search(message, flat(ran.err + ran.out))
    assert (contents(path.parent), path.stat().st_mtime_ns, path.stat().st_mode & 0o777) == (before, when, 0o640)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("E10")
def test_two_chats_in_one_store(installation: Installation, provider: Provider, path: Path) -> None:
    with installation.open("--role", "coder") as one, installation.open("--role", "coder") as other:
        chats = [ready(installation, provider, terminal) for terminal in (one, other)]
        for number, chat in enumerate(chats):
            chat.say(f"begin {number}")
            chat.wait_for(f"You said: begin {number}")
        with closing(sqlite3.connect(path, isolation_level=None)) as third:
            third.execute("BEGIN IMMEDIATE")
            for number, chat in enumerate(chats):
                chat.terminal.send(f"meanwhile {number}")
                chat.terminal.wait_for(f"meanwhile {number}")
                chat.terminal.press("enter")
                # It was taken out of the line where it was typed, and waits for its turn to be stored.
                chat.terminal.wait_gone(f"meanwhile {number}")
            third.execute("COMMIT")
        for number, chat in enumerate(chats):
            chat.wait_for(f"You said: meanwhile {number}")
        for _ in range(3):
            for chat in chats:
                chat.assert_well()
        assert all(b"locked" not in terminal.raw for terminal in (one, other))


@pytest.mark.more
@pytest.mark.fault("E11")
def test_a_store_that_is_replaced_in_use(
    installation: Installation, provider: Provider, pipe: Pipe, path: Path
) -> None:
    assert pipe.ask("in the backup").code == 0
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as raw, closing(sqlite3.connect(backup)) as copy:
        raw.backup(copy)
    with installation.open("--role", "coder") as terminal:
        chat = ready(installation, provider, terminal)
        chat.say("only in the old one")
        chat.wait_for("You said: only in the old one")
        backup.rename(path)
        chat.wait_for("The session store was replaced while chatops ran")
        # Talk goes on, and nothing is approved that could not be recorded.
        chat.say("run it", calls(call("shell_exec", command=EFFECT)))
        terminal.dialog()
        terminal.press("a")
        chat.wait_for("Not approved: nothing can be saved")
        terminal.decide("d")
        chat.wait_for("You said: run it")
        chat.assert_well()
    assert installation.count == 0
    listed = pipe.run("sessions", "list", "--store", f"{path}.old-1")
    assert "only in the old one" in listed.out
    there = pipe.run("sessions", "list").out
    assert "in the backup" in there and "only in the old one" not in there
    pipe.assert_well()


YEAR = 365 * 86_400


@pytest.mark.more
@pytest.mark.fault("E17")
def test_clocks_that_jump(installation: Installation, provider: Provider, pipe: Pipe, path: Path) -> None:
    now = 1_800_000_000.0
    times = [now, now + 86_400, now - 86_400, now - 10 * YEAR, now + 3600, now - 3600]
    path.parent.mkdir(mode=0o700, parents=True)
    made = []
    for number, time in enumerate(times):
        with closing(Store(path, clock=lambda time=time: time)) as store:  # type: ignore[misc]
            info = store.create_session(
                workspace=str(installation.workspace), role="coder", persona="", title=f"T{number}"
            )
            store.append_message(info.id, kit.user(info.id, f"said {number}", number))
            made.append(info.id)
    with closing(Store(path, clock=lambda: now - 5 * YEAR)) as store:
        store.append_message(made[2], kit.user(made[2], "said last of all", 9))
    listed = pipe.run("sessions", "list", "--output-format", "json").json
    assert [one["title"] for one in listed] == ["T2", "T5", "T4", "T3", "T1", "T0"]
    with installation.open("-c") as terminal:
        chat = ready(installation, provider, terminal)
        shown = chat.wait_for("said last of all")
        assert shown.index("said 2") < shown.index("said last of all")
        goes_well(chat, path)
    pipe.assert_well()
