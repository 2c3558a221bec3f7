"""The log file contains nothing that acts on a terminal when printed."""

import logging
from pathlib import Path

import pytest

from chatops.wiring.stored import start_logging

HOSTILE = "\x1b]52;c;Q0FOQVJZ\x07 \x9b2J \u202e \r spoofed"


def test_nothing_raw_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    start_logging(tmp_path)
    try:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("chatops.test").exception("a tool said %s", HOSTILE)
    finally:
        for handler in root.handlers:
            handler.close()
        root.setLevel(level)
    text = (tmp_path / "chatops.log").read_text("utf-8")
    assert "a tool said" in text and "spoofed" in text
    assert not any(char in text for char in "\x1b\x07\x9b\u202e\r")
    assert (tmp_path / "chatops.log").stat().st_mode & 0o077 == 0
