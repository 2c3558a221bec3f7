"""Faults of the disk and of the store: full, read-only, missing, damaged, newer, older, shared, taken away."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chatops.domain.ids import TurnId
from chatops.domain.messages import AssistantMessage, UserMessage
from chatops.store.reading import look_at
from chatops.store.schema import SCHEMA_VERSION
from chatops.store.sqlite import SqliteStore
from tests.e2e.desk import EFFECT, ChatTerminal, Desk
from tests.faults import places
from tests.faults.doors import FaultyChat, Pipe, Provider, flat, patient_registry
from tests.store import storekit as kit
from tests.store.damage import flip, pages_of
from tests.support.command_line import Ran
from tests.support.fake_openai import call, calls

STORES = Path(__file__).parents[1] / "data" / "stores"
mounts = pytest.mark.skipif(not places.can_mount(), reason="this user may not mount anything in a namespace of its own")


@pytest.fixture
def desk(desk: Desk, provider: Provider) -> Desk:
    """The desk, its registry pointing at the provider."""
    desk.use(patient_registry(provider.server.url))
    return desk


@pytest.fixture
def path(desk: Desk) -> Path:
    return desk.home / "data" / "chatops.db"


def ready(desk: Desk, provider: Provider, terminal: ChatTerminal) -> FaultyChat:
    terminal.ready("coder")
    return FaultyChat(desk, provider, terminal)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def goes_well(chat: FaultyChat, path: Path) -> None:
    """The next turn works, and is stored to its end: from here on the chat may be killed."""
    chat.assert_well()

    def at_rest(_: str) -> bool:
        rows, _salvage = look_at(path, unsaved="only read")
        with closing(SqliteStore(rows)) as store:
            return all(info.active_turn is None for info in store.sessions())

    chat.terminal.wait_until(at_rest, what="the turn to be stored")


def said(path: Path) -> list[str]:
    """The beginnings of what was said in the one conversation of a store."""
    rows, _ = look_at(path, unsaved="only read")
    with closing(SqliteStore(rows)) as store:
        (info,) = store.sessions()
        history = store.history(info.id)
    return [m.text[:20] for m in history if isinstance(m, UserMessage | AssistantMessage) and m.text]


@mounts
@pytest.mark.fault("E01")
def test_a_full_disk_in_the_chat(desk: Desk, provider: Provider, tmp_path: Path) -> None:
    with (
        places.Mounts(desk, places.small_disk(desk.home, size="2m")) as disk,
        places.open_chat(desk, "--role", "coder", before=disk.before) as terminal,
    ):
        chat = ready(desk, provider, terminal)
        chat.say("before")
        chat.wait_for("You said: before")
        filler = places.fill(disk.seen(desk.home))
        # What was typed is taken, the answer comes, and the banner says what it is worth.
        banner = "Disk full: this turn is not saved. No call is approved or run until it is"
        for word in ("first", "second"):
            chat.say(f"{word} {'x' * 90}")
            chat.wait_for(f"You said: {word}")
            chat.wait_for(banner)
        chat.say("now run it", calls(call("shell_exec", command=EFFECT)))
        terminal.dialog()
        terminal.press("a")
        chat.wait_for("Your answer was not taken. Disk full")
        assert re.search(banner, flat(terminal.text()))
        assert desk.count == 0
        filler.unlink()
        terminal.wait_gone("this turn is not saved")
        terminal.press("a")
        chat.wait_for("You said: now run it")
        assert desk.count == 1
        chat.assert_well()
        asked = ["before", f"first {'x' * 14}", f"second {'x' * 13}", "now run it"]
        assert [text for text in said(disk.store(tmp_path)) if not text.startswith(("You said", "still"))] == asked


@mounts
@pytest.mark.fault("E01")
def test_a_full_disk_without_a_screen(desk: Desk, provider: Provider) -> None:
    with places.Mounts(desk, places.small_disk(desk.home, size="2m")) as disk:

        def run(*arguments: str) -> Ran:
            return places.run(desk, *arguments, before=disk.before)

        assert run("-p", "hello").code == 0
        filler = places.fill(disk.seen(desk.home))
        ran = run("-p", "tell me", "-c")
        # What is stored is gone on with, and that nothing is added to it is said beforehand.
        assert (ran.code, ran.out) == (0, "You said: tell me\n")
        assert re.search(r"Disk full: this is not saved to .*What is said now is gone when chatops ends", flat(ran.err))
        filler.unlink()
        again = run("-p", "and now?", "-c")
        assert (again.code, again.out) == (0, "You said: and now?\n")
        assert provider.server.violations == []


@mounts
@pytest.mark.fault("E02")
def test_a_read_only_home(desk: Desk, provider: Provider, pipe: Pipe) -> None:
    assert pipe.ask("from before").code == 0
    before = contents(desk.home / "data")
    with (
        places.Mounts(desk, places.read_only(desk.home)) as disk,
        places.open_chat(desk, "-c", "--role", "coder", before=disk.before) as terminal,
    ):
        chat = ready(desk, provider, terminal)
        chat.wait_for("Not saving: home is read-only")
        # What is stored can be read and gone on with, in memory.
        chat.wait_for("You said: from before")
        chat.assert_well()
        chat.say("run it", calls(call("shell_exec", command=EFFECT)))
        terminal.dialog()
        terminal.press("a")
        chat.wait_for(r"Not approved: nothing can be saved \(home is read-only\)")
        terminal.press("d")
        chat.wait_for("You said: run it")
        assert desk.count == 0
        chat.assert_well()
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
        assert "Not saved: this conversation. Not saving: home is read-only." in terminal.text()

        ran = places.run(desk, "-p", "without a screen", before=disk.before)
        assert (ran.code, ran.out) == (0, "You said: without a screen\n")
        assert "Not saving: home is read-only" in ran.err
        provider.script(calls(call("shell_exec", command=EFFECT)))
        gated = places.run(desk, "-p", "run it", before=disk.before)
        assert gated.code == 0
        assert "nothing can be saved here, so it cannot wait" in str(provider.requests[-1].messages[-1])
        listed = places.run(desk, "sessions", "list", before=disk.before)
        assert (listed.code, "from before" in listed.out) == (0, True)
    assert contents(desk.home / "data") == before
    assert desk.count == 0
    pipe.assert_well()


@pytest.mark.fault("E03")
def test_a_home_that_is_not_there(desk: Desk, provider: Provider, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    env = {"CHATOPS_HOME": "", "HOME": str(tmp_path / "nobody"), "TMPDIR": str(temporary)}
    with desk.open("--role", "coder", env=env) as terminal:
        chat = ready(desk, provider, terminal)
        chat.wait_for(r"The home folder .* is not there\. Conversations are kept in")
        (place,) = temporary.glob("chatops-*")
        goes_well(chat, place / "data" / "chatops.db")
    assert [folder.stat().st_mode & 0o777 for folder in (place, place / "data")] == [0o700, 0o700]
    ran = places.run(desk, "-p", "again", "-c", before=["env"], env=env)
    assert (ran.code, ran.out) == (0, "You said: again\n")
    assert f"Conversations are kept in {place}" in ran.err
    assert said(place / "data" / "chatops.db")[-2:] == ["again", "You said: again"]


@pytest.mark.skipif(not places.can_mount(), reason="this user cannot be another one for a while")
@pytest.mark.fault("E03")
@pytest.mark.parametrize("what", ["unset", "closed"])
def test_a_user_without_a_home(what: str, desk: Desk, provider: Provider, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    home = tmp_path / "closed"
    home.mkdir(mode=0)
    unset = ["-u", "HOME"] if what == "unset" else []
    somebody = ["unshare", "--map-user=54321", "env", "-u", "CHATOPS_HOME", *unset, f"TMPDIR={temporary}"]
    before = [*somebody, *([f"HOME={home}"] if what == "closed" else [])]
    ran = places.run(desk, "-p", "hello", before=before)
    assert (ran.code, ran.out) == (0, "You said: hello\n"), ran.err
    why = "There is no home folder for this user." if what == "unset" else "is out of reach"
    assert why in ran.err
    assert f"Conversations are kept in {temporary}/chatops-54321" in ran.err
    assert (temporary / "chatops-54321").stat().st_mode & 0o777 == 0o700


@pytest.mark.fault("E04")
def test_a_store_that_is_no_database(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True)
    path.write_bytes(b"Once upon a time " * 500)
    with desk.open("--role", "coder") as terminal:
        chat = ready(desk, provider, terminal)
        chat.wait_for(r"The session store was damaged; it was moved to .*, and a new one was made")
        goes_well(chat, path)
    path.write_bytes(b"And again " * 500)
    ran = pipe.ask("hello")
    assert (ran.code, ran.out) == (0, "You said: hello\n")
    assert re.search(r"damaged; it was moved to \S+\.bad-2, and a new one was made", flat(ran.err))
    assert [Path(f"{path}.bad-{n}").read_bytes()[:4] for n in (1, 2)] == [b"Once", b"And "]
    pipe.assert_well()


def long_ago(desk: Desk, count: int, *, length: int) -> str:
    """A conversation of so many messages in this workspace; its id."""
    with desk.store() as store:
        info = store.create_session(workspace=str(desk.workspace), role="coder", persona="", title="Long ago")
        for n in range(count):
            store.append_message(info.id, kit.user(info.id, f"text {n} {'x' * length}", n))
    return info.id


@pytest.mark.fault("E05")
def test_a_store_with_a_flipped_page(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
    session = long_ago(desk, 60, length=700)
    flip(path, pages_of(path, "messages")[-2])
    looked = pipe.run("sessions", "export", session)
    assert looked.code == 0
    assert "is damaged" in looked.err
    assert all(f"text {n} " in looked.out for n in (0, 59))
    with desk.open("-r", session) as terminal:
        chat = ready(desk, provider, terminal)
        chat.wait_for(r"was damaged; it was moved to .*, and a new one was made\. 1 conversation with")
        goes_well(chat, path)
    exported = pipe.run("sessions", "export", session)
    assert (exported.code, exported.err) == (0, "")
    assert "This message is damaged and cannot be shown." in exported.out
    assert all(f"text {n} " in exported.out for n in (0, 59))
    old = pipe.run("sessions", "show", session, "--store", f"{path}.bad-1")
    assert "text 59 " in old.out
    pipe.assert_well()


@pytest.mark.fault("E06")
def test_a_store_of_a_newer_version(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
    assert pipe.ask("hello").code == 0
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    path.chmod(0o640)
    before, when = contents(path.parent), path.stat().st_mtime_ns
    newer = rf"version {SCHEMA_VERSION + 1}, this one reads up to {SCHEMA_VERSION}"
    told = rf"made by a newer chatops \({newer}\); it was not opened"
    with desk.open("--role", "coder", cols=400) as terminal:
        assert terminal.wait_exit() == 1
        assert re.search(told, flat(terminal.text()))
        assert "Update chatops" in flat(terminal.text())
    for arguments in (["-p", "hello"], ["sessions", "list"], ["approvals", "list"], ["doctor"]):
        ran = pipe.run(*arguments)
        assert ran.code == 1
        assert re.search(told, flat(ran.err + ran.out))
    assert (contents(path.parent), path.stat().st_mtime_ns, path.stat().st_mode & 0o777) == (before, when, 0o640)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    pipe.assert_well()


@pytest.mark.fault("E07")
@pytest.mark.parametrize(
    ("store", "checkpoint"), [*((file.stem, 0) for file in sorted(STORES.glob("v*.db"))), ("v1", 2)]
)
def test_a_store_of_an_older_version(
    store: str, checkpoint: int, desk: Desk, provider: Provider, pipe: Pipe, path: Path
) -> None:
    path.parent.mkdir(mode=0o700, parents=True)
    shutil.copy(STORES / f"{store}.db", path)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE sessions SET workspace = ?", (str(desk.workspace),))
        ((session,),) = raw.execute("SELECT id FROM sessions WHERE title = 'Notes, kept'").fetchall()
        if checkpoint:
            # No program of that time was ever given to anybody; its form holds all that the one before does.
            raw.execute("UPDATE turns SET version = ?", (checkpoint,))
    registry = patient_registry(provider.server.url)
    registry["roles"]["coder"]["tools"] = ["file_read", "scratch_write", "scratch_read", "web_fetch"]
    desk.use({**registry, "tools": {"scratch_write": {"verdict": "ask"}}})
    assert "Please keep a note." in pipe.run("sessions", "show", session).out
    for verb, call_id in (("approve", f"{session}.2.1.1"), ("deny", f"{session}.2.1.2")):
        assert "to be" in pipe.run("approvals", "show", call_id).out
        assert pipe.run("approvals", verb, call_id).code == 0
    resumed = pipe.run("resume", session, "--output-format", "json")
    if resumed.code == 3:
        # The tool's schema has changed since then: what was approved is shown again as it is now.
        (again,) = resumed.json["pending"]
        assert again["id"] == f"{session}.2.1.1"
        assert pipe.run("approvals", "approve", again["id"]).code == 0
        resumed = pipe.run("resume", session, "--output-format", "json")
    assert resumed.code == 0, resumed.err
    outcomes = {one["id"]: (one["outcome"], one["decided_by"]) for one in resumed.json["calls"]}
    assert outcomes[f"{session}.2.1.1"][0] == "success"
    assert outcomes[f"{session}.2.1.2"][0] == "denied"
    with desk.store() as opened:
        assert [row.outcome for row in opened.journal(TurnId(f"{session}.2"))] == ["success"]
    pipe.assert_well()


@pytest.mark.fault("E08")
def test_damaged_rows(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
    session = long_ago(desk, 8, length=10)
    with closing(sqlite3.connect(path)) as raw, raw:
        huge = f'{{"id":"{kit.user(session, n=3).id}","text":"{"y" * 17_000_000}","kind":"user"}}'
        for n, body in ((1, "{broken"), (3, huge), (5, b"\xff\xfe\x00"), (6, 42)):
            raw.execute("UPDATE messages SET body = ? WHERE id = ?", (body, kit.user(session, n=n).id))
    with desk.open("-r", session, rows=60) as terminal:
        chat = ready(desk, provider, terminal)
        shown = chat.wait_for(r"text 7 ")
        assert shown.count("This message is damaged and cannot be shown.") == 4
        assert all(f"text {n} " in shown for n in (0, 2, 4, 7))
        goes_well(chat, path)
    for style in ("md", "html", "jsonl", "openai"):
        exported = pipe.run("sessions", "export", session, "--format", style)
        assert exported.code == 0
        assert all(f"text {n} " in exported.out for n in (0, 2, 4, 7))
    assert "4 messages are damaged and are shown as such" in pipe.run("doctor").out
    assert pipe.ask("and on", more=("-r", session)).code == 0
    pipe.assert_well()


@pytest.mark.fault("E08")
def test_a_damaged_turn(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
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
    assert desk.count == 0
    pipe.assert_well()


@pytest.mark.fault("E10")
def test_two_chats_in_one_store(desk: Desk, provider: Provider, path: Path) -> None:
    with desk.open("--role", "coder") as one, desk.open("--role", "coder") as other:
        chats = [ready(desk, provider, terminal) for terminal in (one, other)]
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


@pytest.mark.fault("E11")
def test_a_store_that_is_deleted_while_it_is_used(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
    with desk.open("--role", "coder") as terminal:
        chat = ready(desk, provider, terminal)
        chat.say("before")
        chat.wait_for("You said: before")
        for file in path.parent.glob("chatops.db*"):
            file.unlink()
        chat.wait_for("The session store was deleted while chatops ran; it was written again")
        goes_well(chat, path)
        assert said(path)[:2] == ["before", "You said: before"]
    pipe.assert_well()


@pytest.mark.fault("E11")
def test_a_store_that_is_replaced_while_it_is_used(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
    assert pipe.ask("in the backup").code == 0
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as raw, closing(sqlite3.connect(backup)) as copy:
        raw.backup(copy)
    with desk.open("--role", "coder") as terminal:
        chat = ready(desk, provider, terminal)
        chat.say("only in the old one")
        chat.wait_for("You said: only in the old one")
        backup.rename(path)
        chat.wait_for("The session store was replaced while chatops ran; the one that is there now is used")
        goes_well(chat, path)
    listed = pipe.run("sessions", "list", "--store", f"{path}.old-1")
    assert "only in the old one" in listed.out
    assert "in the backup" in pipe.run("sessions", "list").out
    pipe.assert_well()


@mounts
@pytest.mark.fault("E12")
def test_a_network_drive(desk: Desk, provider: Provider, pipe: Pipe, path: Path, tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"29 22 0:26 / {desk.home} rw,relatime shared:11 - nfs4 filer:/export/home rw,vers=4.2\n"
    )
    drive = places.on_network_drive(table)
    with places.open_chat(desk, "--role", "coder", before=drive) as terminal:
        chat = ready(desk, provider, terminal)
        chat.wait_for(r"is on a network drive \(nfs4\)")
        goes_well(chat, path)
        assert not Path(f"{path}-wal").exists()
    # The numbers of the format for writing and reading: 1 without a write-ahead log.
    assert path.read_bytes()[18:20] == b"\x01\x01"
    ran = places.run(desk, "-p", "hello", "-c", before=drive)
    assert (ran.code, ran.out) == (0, "You said: hello\n")
    assert "is on a network drive (nfs4)" in ran.err
    assert "is on a network drive (nfs4)" in places.run(desk, "doctor", before=drive).out
    assert path.read_bytes()[18:20] == b"\x01\x01"
    pipe.assert_well()


@pytest.mark.fault("E16")
@pytest.mark.parametrize("files", [7, 32])
def test_few_open_files_without_a_screen(files: int, desk: Desk, provider: Provider, pipe: Pipe) -> None:
    assert pipe.ask("before").code == 0
    provider.script(calls(*(call("file_read", path="note.txt", id=f"c{n}") for n in range(8))))
    ran = places.run(desk, "-p", "read it", "-c", before=few_files(files))
    assert "Traceback" not in ran.err
    if files < 32:
        assert re.search("too many open files", flat(ran.err), re.IGNORECASE)
    else:
        assert (ran.code, ran.out) == (0, "You said: read it\n")
    with desk.store() as store:
        assert store.check() == []
    pipe.assert_well()


@pytest.mark.fault("E16")
def test_few_open_files_in_the_chat(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
    with places.open_chat(desk, "--role", "coder", before=few_files(10)) as terminal:
        ready(desk, provider, terminal).wait_for(r"Not saving: too many open files.*Allow more of them: ulimit -n")
    with places.open_chat(desk, "--role", "coder", before=few_files(32)) as terminal:
        chat = ready(desk, provider, terminal)
        chat.say("run it", calls(call("shell_exec", command=EFFECT)))
        terminal.dialog()
        terminal.press("a")
        chat.wait_for("You said: run it")
        assert desk.count == 1
        goes_well(chat, path)
    with desk.store() as store:
        assert store.check() == []
    pipe.assert_well()


def few_files(most: int) -> list[str]:
    """What to put before a command that may have so many files open."""
    return ["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh"]


YEAR = 365 * 86_400


@pytest.mark.fault("E17")
def test_clocks_that_jump(desk: Desk, provider: Provider, pipe: Pipe, path: Path) -> None:
    now = 1_800_000_000.0
    times = [now, now + 86_400, now - 86_400, now - 10 * YEAR, now + 3600, now - 3600]
    path.parent.mkdir(mode=0o700, parents=True)
    made = []
    for number, time in enumerate(times):
        with closing(SqliteStore(path, clock=lambda time=time: time)) as store:  # type: ignore[misc]
            info = store.create_session(workspace=str(desk.workspace), role="coder", persona="", title=f"T{number}")
            store.append_message(info.id, kit.user(info.id, f"said {number}", number))
            made.append(info.id)
    with closing(SqliteStore(path, clock=lambda: now - 5 * YEAR)) as store:
        store.append_message(made[2], kit.user(made[2], "said last of all", 9))
    listed = pipe.run("sessions", "list", "--output-format", "json").json
    assert [one["title"] for one in listed] == ["T2", "T5", "T4", "T3", "T1", "T0"]
    with desk.open("-c") as terminal:
        chat = ready(desk, provider, terminal)
        shown = chat.wait_for("said last of all")
        assert shown.index("said 2") < shown.index("said last of all")
        goes_well(chat, path)
    pipe.assert_well()


@pytest.mark.fault("E18")
@pytest.mark.parametrize("umask", ["000", "077"])
def test_files_are_closed_whatever_the_umask(
    umask: str, desk: Desk, provider: Provider, pipe: Pipe, path: Path
) -> None:
    (desk.workspace.parent / "registry.json").chmod(0o666)
    shutil.rmtree(desk.home)
    before = ["sh", "-c", f'umask {umask}; exec "$@"', "sh"]
    with places.open_chat(desk, "--role", "coder", before=before) as terminal:
        chat = ready(desk, provider, terminal)
        chat.wait_for("can be written by everyone on this machine")
        chat.say("write it down", calls(call("scratch_write", text="a note")))
        chat.wait_for("You said: write it down")
        goes_well(chat, path)
        modes = {(file.is_dir(), file.stat().st_mode & 0o777) for file in (desk.home, *desk.home.rglob("*"))}
        assert modes == {(True, 0o700), (False, 0o600)}
        assert sorted(file.name[10:] for file in path.parent.glob("chatops.db*")) == ["", "-shm", "-wal"]
    ran = pipe.ask("hello")
    assert (ran.code, "can be written by everyone on this machine" in ran.err) == (0, True)
    assert "can be written by everyone on this machine" in pipe.run("doctor").out
