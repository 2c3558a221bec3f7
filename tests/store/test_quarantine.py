"""A file that is damaged, deleted or replaced: what can be read is there afterwards, and nothing goes in silence."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.errors import NotSavedError, UnreadableError
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import Message, NoticeMessage
from chatops.engine.effects import TurnStep
from chatops.engine.inputs import DecideCall
from chatops.engine.state import CallState
from chatops.store.health import Severity, findings
from chatops.store.identity import copied_key
from chatops.store.process_identity import this_process
from chatops.store.recovery import copy_without_turns
from chatops.store.schema import SCHEMA_VERSION
from chatops.store.store import Store
from chatops.store.store_file import REPLACED
from tests.store import storekit as kit
from tests.store.damage import MESSAGES, PAGE, filled, flip, pages_of, spoil_index, waiting
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chatops.db"


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text if isinstance(message, NoticeMessage) else kit_text(message) for message in messages]


def kit_text(message: Message) -> str:
    return str(getattr(message, "text", ""))


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "other.db"


@pytest.mark.fault("E04")
@pytest.mark.parametrize("content", [b"not a database at all, but some text " * 40, b"x" * 5000])
def test_a_file_that_is_not_a_database_is_quarantined_and_reported(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    for number in (1, 2):
        path.write_bytes(content)
        with closing(Store(path)) as store:
            (notice,) = store.notices
            assert f"moved to {path}.bad-{number}, and a new one was made" in notice
            assert "Nothing of it could be read" in notice
            store.create_session(workspace="/w", role="coder", persona="p")
            assert kit.problems(store) == []
        assert path.with_name(f"chatops.db.bad-{number}").read_bytes() == content
        path.unlink()


@pytest.mark.some(3)
@pytest.mark.parametrize("at", [33, 50, *range(0, 48, 6)])
def test_a_changed_byte_in_the_schema_of_an_index_costs_nothing(path: Path, at: int) -> None:
    """SQLite quotes the schema in its messages, and Python's module cannot decode a byte of 0x80 and more."""
    session_ids = filled(path, sessions=1)
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"CREATE INDEX messages_by_parent") + at)
        file.write(b"\xb5")
    assert [one for one in findings(path) if one.severity is Severity.FAIL]
    with closing(Store(path)) as store:
        assert "moved to" in store.notices[0]
        assert len(texts(store.history(session_ids[0]))) >= MESSAGES
        assert not kit.problems(store)


@pytest.mark.more
@pytest.mark.parametrize(("damaged", "lost"), [((5,), 8), ((4, 6, 9), 40)], ids=["one page", "several pages"])
def test_flipped_pages_cost_what_lies_between_them_and_nothing_else(
    path: Path, damaged: tuple[int, ...], lost: int
) -> None:
    one, other = filled(path)
    leaves = pages_of(path, "messages")
    flip(path, *(leaves[number] for number in damaged))
    before = path.read_bytes()
    with closing(Store(path)) as store:
        (notice,) = store.notices
        assert "was damaged; it was moved to" in notice
        assert "some rows could not" in notice
        assert kit.problems(store) == []
        for session_id in (one, other):
            # In their order, from the first to the last, less those that are lost.
            numbers = [int(text.split()[1]) for text in texts(store.history(session_id)) if text.startswith("text")]
            assert numbers == sorted(numbers)
            assert (numbers[0], numbers[-1]) == (0, MESSAGES - 1)
            assert MESSAGES - lost <= len(numbers) < MESSAGES
        assert [one.pending.call.id for one in store.pending_calls()] == [f"{other}.1.1.1"]
        assert store.load_turn(store.session(other).active_turn or TurnId("")).session_id == other
    assert Path(f"{path}.bad-1").read_bytes() == before


def test_rows_out_of_order_end_the_copy_and_do_not_repeat(path: Path) -> None:
    one, other = filled(path)
    start = (pages_of(path, "messages")[5] - 1) * PAGE
    data = bytearray(path.read_bytes())
    cells = int.from_bytes(data[start + 3 : start + 5], "big")
    pointers = [data[start + 8 + 2 * n : start + 10 + 2 * n] for n in range(cells)]
    data[start + 8 : start + 8 + 2 * cells] = b"".join(pointers[1:] + pointers[:1])
    path.write_bytes(data)
    with closing(Store(path)) as store:
        assert "was damaged" in store.notices[0]
        assert all(len(store.history(session_id)) >= MESSAGES - 8 for session_id in (one, other))


@pytest.mark.some(1)
@pytest.mark.parametrize("table", ["sessions", "turns", "pending", "settings", "journal"])
def test_a_lost_table_leaves_the_messages_and_nothing_that_could_run(path: Path, table: str) -> None:
    one, other = filled(path)
    flip(path, *pages_of(path, table))
    with closing(Store(path)) as store:
        assert "was damaged" in store.notices[0]
        for session_id in (one, other):
            assert len(texts(store.history(session_id))) >= MESSAGES
        info = store.session(other)
        if table in ("sessions", "turns"):
            assert (info.active_turn, info.pending, store.pending_calls()) == (None, 0, [])
            lost = "1 unfinished turn could not be restored: pending calls there do not run"
            assert (lost in store.notices[0]) is (table == "turns")
        else:
            assert info.active_turn == f"{other}.1"
        # It can be gone on with.
        if info.active_turn is None:
            assert waiting(store, other)


def damaged_with_a_log(path: Path) -> SessionId:
    """A damaged file whose last message is in its write-ahead log only, as after a kill."""
    one, _ = filled(path)
    page = pages_of(path, "settings")[0]
    script = (
        "import os, sys; from pathlib import Path; from chatops.store.store import Store\n"
        "from tests.store import storekit as kit\n"
        "store = Store(Path(sys.argv[1]))\n"
        "store.append_message(sys.argv[2], kit.user(sys.argv[2], 'in the log', 5000))\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path), one], cwd=ROOT, check=True)
    assert Path(f"{path}-wal").stat().st_size
    flip(path, page)
    return one


@pytest.mark.some(1)
@pytest.mark.parametrize("name_changes", range(4))
def test_a_kill_during_quarantine_loses_nothing(path: Path, name_changes: int) -> None:
    one = damaged_with_a_log(path)
    script = (
        "import os, sys; from pathlib import Path; from chatops.store.store import Store\n"
        "left, places = int(sys.argv[2]), [os.link, os.replace]\n"
        "def killed_later(place):\n"
        "    def change(*names):\n"
        "        global left\n"
        "        if left == 0: os._exit(9)\n"
        "        left -= 1\n"
        "        place(*names)\n"
        "    return change\n"
        "os.link, os.replace = map(killed_later, places)\n"
        "Store(Path(sys.argv[1])).close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path), str(name_changes)], cwd=ROOT)
    # The link, the log, the new file: the last number comes to the end.
    assert done.returncode == (9 if name_changes < 3 else 0)
    with closing(Store(path)) as store:
        assert len(store.history(one)) >= MESSAGES
        assert kit.problems(store) == []
        said = texts(store.history(one))
    assert not [file.name for file in path.parent.iterdir() if ".new-" in file.name]
    rows, _ = copy_without_turns(Path(f"{path}.bad-1"), unsaved="only a copy")
    with closing(Store(rows)) as bad:
        # A log that was moved is not read any more, but goes with the file that has its name.
        assert "in the log" in (texts(bad.history(one))[-1], said[-1])


def test_damage_in_an_open_file_is_repaired_when_it_is_met(path: Path) -> None:
    one, _ = filled(path)
    page = pages_of(path, "messages")[6]
    with closing(Store(path)) as store:
        flip(path, page)
        with pytest.raises(NotSavedError, match="was damaged; it was moved to") as caught:
            store.history(one)
        assert caught.value.advice == "Try again."
        assert MESSAGES - 8 <= len(store.history(one)) < MESSAGES
        store.append_message(one, kit.user(one, "afterwards", 6000))
        assert texts(store.history(one))[-1] == "afterwards"
        assert len(store.notices) == 1


def test_damage_in_an_index_is_repaired_once_and_costs_nothing(path: Path) -> None:
    """A quick check does not see it: the file opens, and a statement that needs the index fails."""
    one, _ = filled(path)
    spoil_index(path, "sqlite_autoindex_messages_1")
    with closing(Store(path)) as store:
        assert store.notices == ()
        with pytest.raises(NotSavedError, match="was damaged; it was moved to"):
            store.history(one)
        assert len(store.history(one)) == MESSAGES
        store.append_message(one, kit.user(one, "afterwards", 6000))
        assert kit.problems(store) == []
        assert len(store.notices) == 1


@pytest.mark.more
def test_two_processes_repair_a_file_once(path: Path) -> None:
    filled(path)
    flip(path, pages_of(path, "messages")[6])
    script = (
        "import sys; from pathlib import Path; from chatops.store.store import Store\n"
        "sys.stdin.readline()\n"
        "store = Store(Path(sys.argv[1]))\n"
        "print(len(store.notices), len(store.sessions()))\n"
    )
    pipe = subprocess.PIPE
    crowd = [
        subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        for _ in range(3)
    ]
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = sorted(process.communicate(timeout=PATIENCE)[0] for process in crowd)
    assert said == ["0 2\n", "0 2\n", "1 2\n"]
    assert [file.name for file in path.parent.iterdir() if "bad" in file.name] == ["chatops.db.bad-1"]


@pytest.mark.fault("E11")
@pytest.mark.parametrize("gone", ["deleted", "with its log", "its log", "its index", "with its folder"])
def test_a_deleted_file_is_written_again_from_the_open_connection(path: Path, gone: str) -> None:
    with closing(Store(path)) as store:
        session_id = store.create_session(workspace="/w", role="coder", persona="p").id
        store.append_message(session_id, kit.user(session_id, "before", 1))
        call = waiting(store, session_id)
        match gone:
            case "with its folder":
                shutil.rmtree(path.parent)
            case "with its log":
                for file in path.parent.iterdir():
                    file.unlink()
            case "its log":
                Path(f"{path}-wal").unlink()
            case "its index":
                Path(f"{path}-shm").unlink()
            case _:
                path.unlink()
        assert texts(store.history(session_id)) == ["before", "List it"]
        (notice,) = store.notices
        assert "deleted while chatops ran; it was written again" in notice
        store.set_setting("after", "it")
        assert [one.pending.call.id for one in store.pending_calls()] == [call]
        assert kit.problems(store) == []
        assert path.stat().st_mode & 0o777 == 0o600
    with closing(Store(path)) as store:
        assert store.notices == ()
        assert store.setting("after") == "it"
        assert texts(store.history(session_id)) == ["before", "List it"]
        assert store.journal(TurnId(f"{session_id}.1")) == []
        assert [one.pending.call.id for one in store.pending_calls()] == [call]


def test_two_processes_with_a_deleted_file_continue_with_the_same_new_one(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = store.create_session(workspace="/w", role="coder", persona="p").id
        script = (
            "import sys; from pathlib import Path; from chatops.store.store import Store\n"
            "store = Store(Path(sys.argv[1]))\n"
            "print('open', flush=True)\n"
            "sys.stdin.readline()\n"
            "store.set_setting('theirs', 'kept')\n"
            "print(len(store.notices))\n"
        )
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", script, str(path)]
        with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            path.unlink()
            store.append_message(session_id, kit.user(session_id, "ours", 1))
            assert other.communicate("go\n", timeout=PATIENCE)[0] == "1\n"
        assert store.setting("theirs") == "kept"
        assert texts(store.history(session_id)) == ["ours"]


def test_sessions_of_a_replaced_file_continue_in_memory_and_its_rows_are_kept(path: Path, scratch: Path) -> None:
    with closing(Store(scratch)) as other:
        theirs = other.create_session(workspace="/w", role="coder", persona="p", title="theirs").id
        other.append_message(theirs, kit.user(theirs, "from the other", 1))
    with closing(Store(path)) as store:
        ours = store.create_session(workspace="/w", role="coder", persona="p").id
        store.append_message(ours, kit.user(ours, "stored", 1))
        call = waiting(store, ours)
        lease = store.acquire_lease(ours, this_process())
        scratch.rename(path)
        assert texts(store.history(ours)) == ["stored", "List it"]
        assert [one.pending.call.id for one in store.pending_calls()] == [call]
        (notice,) = store.notices
        assert "was replaced while chatops ran" in notice
        assert f"--store {path}.old-1" in notice
        assert store.unsaved == REPLACED
        turn = store.session(ours).active_turn
        assert turn is not None
        store.commit(TurnStep(state=replace(store.load_turn(turn), seq=2, phase=kit.finished())), lease)
        store.append_message(ours, kit.user(ours, "in memory", 2), lease)
        assert texts(store.history(ours))[-1] == "in memory"
        assert len(store.notices) == 1
    old, _ = copy_without_turns(Path(f"{path}.old-1"), unsaved="a copy")
    with closing(Store(old)) as copy:
        assert texts(copy.history(ours))[:2] == ["stored", "List it"]
    with closing(Store(path)) as store:
        assert kit.problems(store) == []
        assert [info.id for info in store.sessions()] == [theirs]
        assert store.notices == ()


def test_a_call_that_ran_before_an_earlier_copy_was_put_back_asks_again_there(path: Path, scratch: Path) -> None:
    with closing(Store(path)) as store:
        session = store.create_session(workspace="/w", role="coder", persona="p").id
        call = waiting(store, session)
        assert store.post_decision(DecideCall(call_id=call, digest="d1", decision=Approved(), by=kit.ANA))
        shutil.copy(path, scratch)
        shutil.copy(f"{path}-wal", f"{scratch}-wal")
        turn = store.session(session).active_turn
        assert turn is not None
        started = kit.then(
            TurnStep(state=store.load_turn(turn)),
            kit.in_round(CallState(call=kit.a_call(turn), status=kit.started())),
            effects=(kit.run(kit.a_call(turn)),),
            decisions=(kit.record(kit.a_call(turn), by=kit.ANA),),
        )
        store.commit(started)
        for suffix in ("-shm", "-wal", ""):
            Path(f"{path}{suffix}").unlink()
        for suffix in ("-wal", ""):
            Path(f"{scratch}{suffix}").rename(f"{path}{suffix}")
        assert [row.call_id for row in store.journal(turn)] == [call]
        assert store.unsaved == REPLACED
    with closing(Store(path)) as store:
        assert [(one.pending.call.id, one.decided) for one in store.pending_calls()] == [(call, None)]
        assert store.setting(copied_key(turn)) == "1"


def test_a_renamed_file_gives_its_rows_and_its_log_leaves_the_name(path: Path, scratch: Path) -> None:
    Store(scratch).close()
    with closing(Store(path)) as store:
        ours = store.create_session(workspace="/w", role="coder", persona="p").id
        store.append_message(ours, kit.user(ours, "stored", 1))
        path.rename(path.with_name("away.db"))
        scratch.rename(path)
        assert texts(store.history(ours)) == ["stored"]
        assert f"--store {path}.old-1" in store.notices[0]
    with closing(Store(path)) as store:
        assert store.sessions() == []
    with closing(Store(Path(f"{path}.old-1"))) as store:
        assert texts(store.history(ours)) == ["stored"]


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000])
def test_a_file_replaced_by_no_store_is_left_alone_until_chatops_starts_again(path: Path, content: bytes) -> None:
    with closing(Store(path)) as store:
        ours = store.create_session(workspace="/w", role="coder", persona="p").id
        store.append_message(ours, kit.user(ours, "stored", 1))
        path.unlink()
        path.write_bytes(content)
        assert texts(store.history(ours)) == ["stored"]
        assert store.unsaved == REPLACED
    assert path.read_bytes() == content
    with closing(Store(Path(f"{path}.old-1"))) as store:
        assert texts(store.history(ours)) == ["stored"]


def test_a_file_replaced_by_one_of_a_newer_version_is_left_alone(path: Path, scratch: Path) -> None:
    Store(scratch).close()
    with closing(sqlite3.connect(scratch)) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = scratch.read_bytes()
    with closing(Store(path)) as store:
        scratch.rename(path)
        assert store.sessions() == []
        assert store.unsaved == REPLACED
    assert path.read_bytes() == before
    with pytest.raises(UnreadableError, match="newer"):
        Store(path)


def test_reading_a_file_leaves_it_and_its_folder_as_they_are(path: Path) -> None:
    one, other = filled(path)
    flip(path, pages_of(path, "messages")[5])
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.parent.iterdir()}
    rows, salvage = copy_without_turns(path, unsaved="only a copy")
    with closing(Store(rows)) as copy:
        assert copy.unsaved == "only a copy"
        assert 0 < salvage.messages < 2 * MESSAGES
        assert not salvage.whole
        # A copy is for reading: nothing in it can be gone on with.
        assert (copy.session(other).active_turn, copy.pending_calls()) == (None, [])
        copy.append_message(one, kit.user(one, "only here", 7000))
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.parent.iterdir()} == before


def test_reading_a_file_that_is_not_there_finds_nothing_and_makes_none(path: Path) -> None:
    rows, salvage = copy_without_turns(path, unsaved="")
    with closing(Store(rows)) as copy:
        assert copy.sessions() == []
    assert salvage.text == "There was nothing in it."
    assert not path.parent.exists()
