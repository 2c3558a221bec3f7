"""Output of running tools is kept for a while: bounded, private, by attempt."""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from chatops.domain.ids import CallId, SessionId
from chatops.store.tool_outputs import HEAD, LEFT_OUT, SHOWN_HEAD, SHOWN_TAIL, TAIL, Outputs

SESSION = SessionId("20261121-101512-k3f9")
CALL = CallId(f"{SESSION}.1.1.1")
OTHER = CallId(f"{SESSION}.1.1.2")


def test_what_is_put_out_is_shown_and_kept(tmp_path: Path) -> None:
    shown: list[str] = []
    take = Outputs(tmp_path / "running").keeping(CALL, 1, shown.append)
    for text in ("one\n", "", "two \ud83d\n"):
        take(text)
    assert shown == ["one\n", "", "two \ud83d\n"]
    assert Outputs(tmp_path / "running").read(CALL, 1) == "one\ntwo ?\n"
    assert Outputs(tmp_path / "running").read(CALL, 2) == ""


def test_outputs_are_private(tmp_path: Path) -> None:
    Outputs(tmp_path / "running").keeping(CALL, 1, print)("secret")
    (file,) = (tmp_path / "running").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.more
def test_of_much_output_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "running")
    take = outputs.keeping(CALL, 1, lambda text: None)
    for number in range(40_000):
        take(f"{number:05}\n")
    (file,) = (tmp_path / "running").iterdir()
    assert file.stat().st_size <= 2 * (HEAD + TAIL)
    text = outputs.read(CALL, 1)
    assert len(text) == SHOWN_HEAD + len(LEFT_OUT) + SHOWN_TAIL
    assert text.startswith("00000\n00001\n")
    assert text.endswith("39998\n39999\n")
    assert text.count("left out") == 1


def test_nothing_is_left_where_the_app_died_while_it_cut_an_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise OSError

    outputs = Outputs(tmp_path / "running")
    monkeypatch.setattr(Path, "replace", dies)
    outputs.keeping(CALL, 1, lambda text: None)("x" * 100_000)
    assert len(list((tmp_path / "running").iterdir())) == 2
    assert len(outputs.read(CALL, 1)) == SHOWN_HEAD + len(LEFT_OUT) + SHOWN_TAIL
    outputs.forget(CALL)
    assert list((tmp_path / "running").iterdir()) == []


def test_lines_of_many_threads_are_all_there(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "running")
    take = outputs.keeping(CALL, 1, lambda text: None)
    threads = [threading.Thread(target=take, args=(f"line {number}\n",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outputs.read(CALL, 1).splitlines()) == sorted(f"line {number}" for number in range(20))


def test_a_call_or_a_session_is_forgotten_and_no_other(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "running")
    foreign = CallId("20261121-101512-k3f.1.1.1")
    for call in (CALL, OTHER, foreign):
        for attempt in (1, 2):
            outputs.keeping(call, attempt, print)(f"{call} {attempt}")
    outputs.forget(OTHER)
    outputs.forget_others(SESSION, [(CALL, 2)])
    kept = [(call, attempt) for call in (CALL, OTHER, foreign) for attempt in (1, 2) if outputs.read(call, attempt)]
    assert kept == [(CALL, 2), (foreign, 1), (foreign, 2)]


def test_an_id_is_never_a_path(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "running")
    call = CallId("../../escaped.1.1.1")
    outputs.keeping(call, 1, print)("text")
    assert outputs.read(call, 1) == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["running"]


def test_what_cannot_be_kept_is_shown_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "running").write_text("in the way")
    shown: list[str] = []
    Outputs(tmp_path / "running").keeping(CALL, 1, shown.append)("text")
    assert shown == ["text"]


def a_pipe(file: Path) -> None:
    os.mkfifo(file)


def another_file(file: Path) -> None:
    secret = file.parent.parent / "secret"
    secret.write_text("secret")
    file.symlink_to(secret)


def a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("put", [a_pipe, another_file, a_device, Path.mkdir])
def test_what_a_tool_put_in_the_place_of_its_output_is_not_read_and_holds_nothing_up(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    outputs = Outputs(tmp_path / "running")
    take = outputs.keeping(CALL, 1, lambda text: None)
    take("one")
    (file,) = (tmp_path / "running").iterdir()
    file.unlink()
    put(file)
    take("two")
    assert outputs.read(CALL, 1) == ""


def test_of_an_output_that_was_made_endless_no_more_is_read_than_is_ever_kept(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "running")
    take = outputs.keeping(CALL, 1, lambda text: None)
    take("begun\n")
    (file,) = (tmp_path / "running").iterdir()
    os.truncate(file, 1 << 40)
    assert outputs.read(CALL, 1).startswith("begun\n")
    take("over")
    assert file.stat().st_size <= HEAD + len(LEFT_OUT.encode()) + TAIL
    assert outputs.read(CALL, 1).endswith("over")
