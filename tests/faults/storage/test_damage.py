"""A store that has a damaged page or a damaged turn."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.installation import EFFECT, Installation
from tests.faults.entry_points import Pipe, Provider
from tests.faults.storage.chats import goes_well, ready
from tests.store import storekit as kit
from tests.store.damage import flip, pages_of
from tests.support.fake_openai import call, calls


def long_ago(installation: Installation, count: int, *, length: int) -> str:
    """A conversation of so many messages in this workspace; its id."""
    with installation.store() as store:
        info = store.create_session(workspace=str(installation.workspace), role="coder", persona="", title="Long ago")
        for n in range(count):
            store.append_message(info.id, kit.user(info.id, f"text {n} {'x' * length}", n))
    return info.id


@pytest.mark.more
@pytest.mark.fault("E05")
def test_a_store_with_a_flipped_page(installation: Installation, provider: Provider, pipe: Pipe, path: Path) -> None:
    session = long_ago(installation, 60, length=700)
    flip(path, pages_of(path, "messages")[-2])
    looked = pipe.run("sessions", "export", session)
    assert looked.code == 0
    assert "is damaged" in looked.err
    assert all(f"text {n} " in looked.out for n in (0, 59))
    with installation.open("-r", session) as terminal:
        chat = ready(installation, provider, terminal)
        chat.wait_for(r"was damaged; it was moved to .*, and a new one was made\. 1 session with")
        goes_well(chat, path)
    exported = pipe.run("sessions", "export", session)
    assert (exported.code, exported.err) == (0, "")
    assert all(f"text {n} " in exported.out for n in (0, 59))
    old = pipe.run("sessions", "show", session, "--store", f"{path}.bad-1")
    assert "text 59 " in old.out
    pipe.assert_well()


@pytest.mark.fault("E08")
def test_a_damaged_turn(installation: Installation, provider: Provider, pipe: Pipe, path: Path) -> None:
    paused = pipe.ask("run it", calls(call("shell_exec", command=EFFECT)), more=("--output-format", "json"))
    session = paused.json["session_id"]
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE turns SET state = '{\"phase\":7}'")
    refused = pipe.run("resume", session)
    assert refused.code == 1
    assert f"chatops sessions fork {session}" in refused.err
    assert "run it" in pipe.run("sessions", "show", session).out
    copy = pipe.run("sessions", "fork", session).out.strip()
    assert pipe.ask("go on", more=("-r", copy)).out == "You said: go on\n"
    assert installation.count == 0
    pipe.assert_well()
