"""A store that is no database, has a damaged page, damaged rows or a damaged turn."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.installation import EFFECT, Installation
from tests.faults.entry_points import Pipe, Provider, flat
from tests.faults.storage.chats import goes_well, ready
from tests.store import storekit as kit
from tests.store.damage import flip, pages_of
from tests.support.fake_openai import call, calls


@pytest.mark.more
@pytest.mark.fault("E04")
def test_a_store_that_is_no_database(installation: Installation, provider: Provider, pipe: Pipe, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True)
    path.write_bytes(b"Once upon a time " * 500)
    with installation.open("--role", "coder") as terminal:
        chat = ready(installation, provider, terminal)
        chat.wait_for(r"The session store was damaged; it was moved to .*, and a new one was made")
        goes_well(chat, path)
    path.write_bytes(b"And again " * 500)
    ran = pipe.ask("hello")
    assert (ran.code, ran.out) == (0, "You said: hello\n")
    assert re.search(r"damaged; it was moved to \S+\.bad-2, and a new one was made", flat(ran.err))
    assert [Path(f"{path}.bad-{n}").read_bytes()[:4] for n in (1, 2)] == [b"Once", b"And "]
    pipe.assert_well()


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


@pytest.mark.more
@pytest.mark.fault("E08")
def test_damaged_rows(installation: Installation, provider: Provider, pipe: Pipe, path: Path) -> None:
    session = long_ago(installation, 8, length=10)
    with closing(sqlite3.connect(path)) as raw, raw:
        huge = f'{{"id":"{kit.user(session, n=3).id}","text":"{"y" * 17_000_000}","kind":"user"}}'
        for n, body in ((1, "{broken"), (3, huge), (5, b"\xff\xfe\x00"), (6, 42)):
            raw.execute("UPDATE messages SET body = ? WHERE id = ?", (body, kit.user(session, n=n).id))
    with installation.open("-r", session, rows=60) as terminal:
        chat = ready(installation, provider, terminal)
        shown = chat.wait_for(r"text 7 ")
        assert shown.count("This message is damaged and cannot be shown.") == 4
        assert all(f"text {n} " in shown for n in (0, 2, 4, 7))
        goes_well(chat, path)
    for style in ("md", "html", "jsonl", "openai"):
        exported = pipe.run("sessions", "export", session, "--format", style)
        assert exported.code == 0
        assert all(f"text {n} " in exported.out for n in (0, 2, 4, 7))
    assert "4 messages are damaged and shown as such" in pipe.run("doctor").out
    assert pipe.ask("and on", more=("-r", session)).code == 0
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
