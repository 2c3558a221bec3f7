"""Whatever is done to the rows of the log, an anchor finds it up to its last row, and says it in words."""

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatops.store.audit import link
from chatops.store.backup import make_backup
from tests.support.command_line import CommandLine
from tests.support.properties import examples

COLUMNS = "session_id, number, body, chain"
Row = tuple[str, int, str, str]
"""Session, number, body and chain."""


class Log:
    """A store with a session, trust that was given and revoked, and a session that was deleted."""

    def __init__(self, chatops: CommandLine, folder: Path) -> None:
        self.chatops, self.folder = chatops, folder
        self.sessions = [self.finished(), self.finished()]
        (chatops.workspace / "AGENTS.md").write_text("Be brief.")
        digest = chatops("trust").err.split("--digest ")[1].split()[0]
        for words in (("--digest", digest), ("--revoke",)):
            assert chatops("trust", *words).code == 0
        assert chatops("sessions", "delete", self.sessions.pop(), "--yes").code == 0
        self.file = next(Path(os.environ["CHATOPS_HOME"]).rglob("chatops.db"))
        self.anchor = self.exported("anchor.jsonl")
        self.proven = self.read()
        # What comes after the anchor is not proven by it.
        assert chatops("-r", self.sessions[0], "-p", "read note.txt").code == 0
        self.now = self.read()

    def finished(self) -> str:
        session, call = self.chatops.paused("run `touch made.txt`")
        assert self.chatops("approvals", "approve", call).code == 0
        assert self.chatops("resume", session).code == 0
        return session

    def exported(self, name: str, *more: str) -> Path:
        file = self.folder / name
        assert self.chatops("audit", "export", "-o", str(file), *more).code == 0
        return file

    def read(self) -> list[Row]:
        with closing(sqlite3.connect(self.file)) as rows:
            return rows.execute(
                "SELECT session_id, number, body, chain FROM audit ORDER BY session_id, number"
            ).fetchall()

    def write(self, rows: list[Row]) -> None:
        """Put these rows in the place of all; whoever writes the file is not held by its constraints."""
        with closing(sqlite3.connect(self.file)) as raw, raw:
            raw.execute("DROP TABLE audit")
            raw.execute("CREATE TABLE audit (seq INTEGER PRIMARY KEY, session_id, number, body, chain)")
            raw.executemany(f"INSERT INTO audit ({COLUMNS}) VALUES (?, ?, ?, ?)", rows)

    def verify(self, anchor: Path) -> tuple[int, str]:
        ran = self.chatops("audit", "verify", "--anchor", str(anchor))
        return ran.code, ran.out + ran.err


@pytest.fixture
def log(chatops: CommandLine, tmp_path: Path) -> Iterator[Log]:
    yield Log(chatops, tmp_path)


CHANGES = ("remove", "change", "swap", "insert", "cut", "duplicate", "head", "move", "drop session", "rename session")


def tampered(rows: list[Row], draw: st.DataObject) -> list[Row]:
    """Change rows once, as chance has it."""
    rows, place = list(rows), draw.draw(st.integers(0, len(rows) - 1))
    session, number, body, chain = rows[place]
    other = draw.draw(st.integers(0, len(rows) - 1))
    match draw.draw(st.sampled_from(CHANGES)):
        case "remove":
            del rows[place]
        case "change":
            was = draw.draw(
                st.sampled_from(("approved", "ask", "success", '"at":1', "allow", "uid", "trusted", "start"))
            )
            rows[place] = (session, number, body.replace(was, was[:-1] + "X"), chain)
        case "swap":
            rows[place], rows[other] = rows[other], rows[place]
            rows = [(*row[:1], old[1], *row[2:]) for row, old in zip(rows, sorted(rows), strict=True)]
        case "insert":
            rows.insert(place, (session, number, rows[other][2], chain))
        case "cut":
            rows = [row for row in rows if row[0] != session or row[1] < number]
        case "duplicate":
            rows.insert(place, rows[place])
        case "head":
            rows[place] = (session, number, body, link(chain, body))
        case "move":
            rows[place] = (rows[other][0], number, body, chain)
        case "drop session":
            rows = [row for row in rows if row[0] != session]
        case _:
            rows = [(rows[other][0] if row[0] == session else row[0], *row[1:]) for row in rows]
    return rows


def chained_anew(rows: list[Row]) -> list[Row]:
    """Number and chain rows as a program would that knows how."""
    out: list[Row] = []
    last: dict[str, tuple[int, str]] = {}
    for session, _, body, _ in rows:
        number, before = last.get(session, (0, ""))
        body = re.sub(r'"number":\d+', f'"number":{number + 1}', body)
        body = re.sub(r'"session":"[^"]*"', f'"session":"{session}"', body)
        last[session] = (number + 1, link(before, body))
        out.append((session, number + 1, body, last[session][1]))
    return out


def test_no_tampering_below_the_anchor_stays_unseen(log: Log) -> None:
    """A signed export is such an anchor: its signature says that it is the one that was made."""
    seen = {True: 0, False: 0}

    @settings(max_examples=examples(25, among=10), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        rows = log.now
        for _ in range(data.draw(st.integers(1, 3))):
            rows = tampered(rows, data) if rows else rows
        if data.draw(st.booleans()):
            rows = chained_anew(rows)
        log.write(rows)
        code, said = log.verify(log.anchor)
        kept = set(log.proven) <= set(rows) and len({row[:2] for row in rows}) == len(rows)
        seen[kept] += 1
        if not kept:
            assert code == 1 and said.startswith("FAULT  "), said
        elif sorted(rows) == log.now:
            assert code == 0, said

    holds()
    assert seen[False]
    log.write(log.now)
    assert log.verify(log.anchor)[0] == 0


def test_an_anchor_that_does_not_belong_to_the_store_is_told_in_words(log: Log, tmp_path: Path) -> None:
    assert make_backup(log.file, idle=lambda: True)
    (backup,) = (file for file in log.file.parent.rglob("*backup*") if file.is_file())
    added = log.finished()
    later, session = log.exported("later.jsonl"), log.sessions[0]
    shutil.copy(backup, log.file)
    assert log.verify(log.anchor)[0] == 0
    code, said = log.verify(later)
    none = f"session {added}: row 1 is in the anchor, and the log has none of it: removed, or this is an older copy"
    assert code == 1 and none in said, "a backup that was restored is older than the anchor"
    assert said.count(added) == 1, "one fault a session says it"
    log.write(log.proven)
    code, said = log.verify(later)
    (*_, last) = (row[1] for row in log.proven if row[0] == session)
    assert code == 1 and f"session {session}: row {last + 1} is in the anchor, and the log ends at row {last}: " in said
    cut = tmp_path / "cut.jsonl"
    cut.write_text(later.read_text()[:-30])
    code, said = log.verify(cut)
    assert code == 2 and "is no anchor: line " in said and "expected a JSON object" in said
    assert log.verify(tmp_path / "none.jsonl")[0] == 2


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_signed_export_that_was_cut_proves_less_and_its_signature_says_so(log: Log, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signed = log.exported("signed.jsonl", "--sign", str(key))
    assert f"{len(log.now)} rows proven by the anchor" in log.verify(signed)[1]
    check = ["ssh-keygen", "-Y", "check-novalidate", "-n", "chatops-audit", "-s", f"{signed}.sig"]

    def signature() -> int:
        return subprocess.run(check, input=signed.read_bytes(), check=False, capture_output=True).returncode

    assert signature() == 0
    signed.write_text("".join(signed.read_text().splitlines(keepends=True)[:-3]))
    assert f"{len(log.now) - 3} rows proven by the anchor, 3 written after it or not in it" in log.verify(signed)[1]
    assert signature() != 0
