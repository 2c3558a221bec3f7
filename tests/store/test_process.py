"""Checks if a recorded process is still alive."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.store import process_identity as processes
from chatops.store.base import Holder
from chatops.store.process_identity import is_alive, this_process


def test_this_process_is_alive_and_one_with_another_start_or_boot_is_not() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert is_alive(me)
    assert not is_alive(replace(me, pid_started=f"{me.pid_started}9"))
    assert not is_alive(replace(me, boot_id="another boot"))
    assert not is_alive(replace(me, pid=0))
    assert not is_alive(replace(me, pid=2**40))


def test_a_container_and_its_machine_are_different_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boot = processes._BOOT_ID.read_text().strip()
    monkeypatch.setattr(processes, "_FIRST_NAMESPACE", processes._NAMESPACE.stat().st_ino)
    assert processes._read_boot_id() == boot
    monkeypatch.setattr(processes, "_FIRST_NAMESPACE", 1)
    assert processes._read_boot_id() == f"{boot}/{processes._NAMESPACE.stat().st_ino}"
    monkeypatch.setattr(processes, "_NAMESPACE", tmp_path / "none")
    assert processes._read_boot_id() == boot


def test_a_process_that_ended_is_dead_even_before_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(Holder(host="h", pid=ended.pid, boot_id="", pid_started=""))
    assert not is_alive(Holder(host="h", pid=ended.pid, boot_id="", pid_started=""))
