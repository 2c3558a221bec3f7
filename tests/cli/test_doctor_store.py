"""`chatops doctor` reports on the store and never changes it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops.engine.state import CallState
from chatops.store import health
from chatops.store.backup import make_backup
from chatops.store.base import Holder
from chatops.store.editor_answers import editors, note_answer
from chatops.store.opening import backup_of
from chatops.store.process_identity import this_process
from chatops.store.schema import SCHEMA_VERSION
from chatops.store.store import Store
from chatops.wiring.doctor import store_checks
from tests.store import storekit as kit
from tests.store.damage import filled
from tests.support.command_line import CommandLine

DEAD = Holder(host="box", pid=2**22 + 1, boot_id="", pid_started="")


@pytest.fixture
def path(chatops_home: Path) -> Path:
    return chatops_home / "data" / "chatops.db"


def store_lines(path: Path) -> list[dict[str, Any]]:
    """As `chatops doctor --output-format json` has them."""
    return [{"grade": check.grade.value, "text": check.text, "advice": check.advice} for check in store_checks(path)]


@pytest.mark.parametrize("stored", ["{", "[1]", '{"zed": [["soon"], 0]}'])
def test_doctor_says_where_damaged_answers_of_editors_are(chatops: CommandLine, path: Path, stored: str) -> None:
    with closing(Store(path)) as store:
        store.set_setting("editors", stored)
    ran = chatops("doctor", "--output-format", "json")
    assert [line["text"] for line in ran.json if line["name"] == "editors"] == [
        f"The answers of editors in {path} are damaged."
    ]
    with closing(Store(path)) as store:
        note_answer(store, "zed 1", seconds=2.0, void=False)
        assert dict(editors(store)) == {"zed 1": ([2.0], 0)}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def graded(lines: list[dict[str, Any]], grade: str) -> str:
    return "\n".join(f"{line['text']} {line['advice']}" for line in lines if line["grade"] == grade)


def test_doctor_creates_no_store(path: Path) -> None:
    assert [(line["grade"], "does not exist yet" in line["text"]) for line in store_lines(path)] == [("ok", True)]
    assert not path.exists()


@pytest.mark.parametrize("home", ["a-file", "a-file/below", "link"])
def test_doctor_reports_a_folder_that_cannot_be_written_whatever_its_permissions(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "link").symlink_to("/nowhere/at/all")
    monkeypatch.setenv("CHATOPS_HOME", str(tmp_path / home))
    ran = chatops("doctor", "--output-format", "json")
    failed = [line for line in ran.json if line["grade"] == "fail"]
    assert ran.code == 1
    assert [line["name"] for line in failed] == ["folders", "folders", "folders", "store"]
    assert all("CHATOPS_HOME" in line["advice"] for line in failed)


def test_doctor_reports_a_folder_at_the_path_of_the_store(path: Path) -> None:
    path.mkdir(parents=True)
    assert "is a folder" in graded(store_lines(path), "fail")


def test_doctor_does_not_advise_to_run_doctor(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("not a database, but a text", encoding="utf-8")
    said = graded(store_lines(path), "fail")
    assert "renames it" in said and "doctor" not in said


def test_doctor_shows_size_version_and_pending_work_of_a_sound_store(chatops: CommandLine, path: Path) -> None:
    filled(path)
    before = contents(path.parent)
    report = chatops("doctor", "--output-format", "json").json
    lines = [line for line in report if line["name"] == "store"]
    assert [{key: line[key] for key in ("grade", "text", "advice")} for line in lines] == store_lines(path)
    assert {line["grade"] for line in lines} == {"ok"}
    said = graded(lines, "ok")
    assert f"version {SCHEMA_VERSION}, 2 sessions, 241 messages" in said
    assert "kB" in said
    assert "1 call pending, 1 unfinished turn chatops approvals list" in said
    assert "free on its disk" in said
    assert contents(path.parent) == before


@pytest.mark.parametrize("content", [b"no database", b""])
def test_doctor_reports_a_file_that_is_not_a_store_and_leaves_it(content: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content * 1000)
    store_lines(path)
    assert path.read_bytes() == content * 1000
    assert [file.name for file in path.parent.iterdir() if file.is_file()] == [path.name]


def test_doctor_fails_for_a_newer_store_and_leaves_it(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = contents(path.parent)
    assert f"version {SCHEMA_VERSION + 1}, this one reads up to {SCHEMA_VERSION}" in graded(store_lines(path), "fail")
    assert contents(path.parent) == before


def test_doctor_reports_permissions_quarantined_files_and_the_log(path: Path) -> None:
    filled(path)
    path.chmod(0o644)
    Path(f"{path}.bad-1").write_bytes(b"x" * 2000)
    with closing(Store(path)) as store:
        store.set_setting("a", "b")
        path.chmod(0o644)
        lines = store_lines(path)
    assert f"Others may read {path}. Run: chmod 600 {path}" in graded(lines, "warn")
    assert f"chatops sessions list --store {path}.bad-1" in graded(lines, "warn")
    assert "are still in the write-ahead log" in graded(lines, "ok")


def test_doctor_names_the_backup_and_a_store_too_large_for_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    assert "backup" not in str(store_lines(path))
    assert make_backup(path, idle=lambda: True)
    assert f"in {backup_of(path)}" in graded(store_lines(path), "ok")
    monkeypatch.setattr(health, "MAX_BACKUP_BYTES", 10_000)
    assert f"There is no backup: {path} is larger than 10.0 kB." in graded(store_lines(path), "warn")


def test_doctor_names_a_call_whose_process_died(path: Path) -> None:
    with closing(Store(path, alive=lambda holder: holder != DEAD)) as store:
        session_id = store.create_session(workspace="/w", role="coder", persona="p").id
        turn = store.next_turn_id(session_id)
        step = kit.begun(store, turn, session_id)
        call = kit.a_call(turn)
        store.commit(kit.then(step, kit.in_round(CallState(call=call, status=kit.started())), effects=(kit.run(call),)))
        lease = store.acquire_lease(session_id, this_process())
        # Whoever runs it still lives.
        assert "no result" not in graded(store_lines(path), "warn")
        store.release_lease(session_id, this_process(), lease)
        store.acquire_lease(session_id, DEAD)
        said = graded(store_lines(path), "warn")
        assert ", 1 session, 1 message " in f"{graded(store_lines(path), 'ok')} "
    assert f"1 call was started and has no result: shell_exec in {session_id}. To see what is known" in said


def test_single_damaged_rows_are_named(path: Path) -> None:
    one, other = filled(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE messages SET body = '{broken' WHERE id = ?", (kit.user(one, n=3).id,))
        raw.execute("UPDATE turns SET state = '[]'")
    said = graded(store_lines(path), "warn")
    assert f"1 message is damaged and shown as such: {kit.user(one, n=3).id}." in said
    assert f"1 unfinished turn is damaged and cannot be resumed: {other}." in said
    assert "chatops sessions fork SESSION" in said
