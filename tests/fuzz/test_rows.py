"""Rows of the store with anything in them: each command answers in words, and nothing runs that nobody approved."""

import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from chatops.domain.canonical import canonical
from tests.e2e.installation import Installation
from tests.fuzz.bounded import altered, hold
from tests.mcp.test_servers import RAW
from tests.support.command_line import CommandLine

EVIL = "\x1b]0;EVIL\x07\x9b2J\u202e[red]"
LEAVES = [
    *(None, True, 0, 1, -1, 2**31, 2**63 - 1, 10**400, 1e308, float("nan"), float("inf"), "", "x", EVIL, "\x00"),
    *("\ud800", "..", "/etc/passwd", "x" * 20_000, "$SESSION", "$CALL", [], {}, [None], {"kind": "martian"}),
    {"kind": "user"},
]
DATA = [
    *(b"", b"\xff\xfe", b"\x00", b"{", b"[" * 50_000, b'{"a":' * 5_000, b"\xed\xa0\x80", b"nan"),
    b"[" + b"9" * 6_000 + b"]",
]
COMMANDS = [
    "sessions list --all",
    "sessions list --all --output-format json",
    "sessions show $SESSION",
    "sessions search invoice --all",
    "sessions export $SESSION --format md",
    "sessions export $SESSION --format html",
    "sessions export $SESSION --format jsonl",
    "sessions export $SESSION --format openai",
    "sessions fork $SESSION",
    "sessions rename $SESSION other",
    "sessions delete $SESSION",
    "approvals list",
    "approvals list --output-format json",
    "approvals show $CALL",
    "approvals show $CALL --output-format json",
    "approvals deny $CALL",
    "resume $SESSION",
    "jobs list",
    "jobs show $SESSION",
    "audit list",
    "audit list --output-format json",
    "audit verify",
    "audit export",
    "policy list",
    "policy replay",
    "workflow list",
    "doctor",
    "-p hello -r $SESSION",
    "-p hello -c",
]


@dataclass(frozen=True)
class Damage:
    """A value that is changed: `at` chooses table, row and column by numbers or names, `how` says to what."""

    at: tuple[int | str, int, int | str]
    how: Any


HOW = st.one_of(
    st.tuples(st.just("within"), st.integers(0, 400), st.sampled_from(LEAVES)),
    st.tuples(st.just("whole"), st.just(0), st.sampled_from([*LEAVES, *DATA])),
    st.tuples(st.just("cut"), st.integers(1, 400), st.none()),
    st.tuples(st.just("other"), st.integers(0, 40), st.none()),
)
DAMAGES = st.lists(st.builds(Damage, st.tuples(*[st.integers(0, 60)] * 3), HOW), min_size=1, max_size=3)
EXAMPLES = st.tuples(DAMAGES, st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=4), st.integers(0, 9))


def chosen(names: list[str], by: int | str) -> str:
    return by if isinstance(by, str) else names[by % len(names)]


KEPT = [
    ([Damage((table, 0, column), ("whole", 0, 2**63 - 1))], [command, command + " --output-format json"], 0)
    for table, column, command in [
        ("pending", "requested_at", "approvals list"),
        ("rules", "made_at", "policy list"),
        ("leases", "since", "jobs list"),
        ("posted", "decided_at", "audit list"),
    ]
]


KEPT += [([Damage(("audit", 5, "body"), ("within", 312, None))], ["audit list", "policy replay"], 0)]


class Rows:
    """A store with a session of each kind, which every example begins with."""

    def __init__(self, chatops: CommandLine, home: Path) -> None:
        self.chatops, self.home, self.path = chatops, home, home / "data" / "chatops.db"
        assert chatops("-p", "read note.txt", "--role", "coder").code == 0
        waiting = [chatops.paused(f"run `touch {chatops.workspace}/effect{number}`") for number in range(2)]
        assert chatops("approvals", "deny", waiting[1][1]).code == 0
        with closing(self.opened()) as raw, raw:
            (answered,) = raw.execute("SELECT id FROM sessions ORDER BY seq LIMIT 1").fetchone()
            turn = raw.execute("SELECT turn_id FROM turns").fetchone()[0]
            raw.execute("INSERT INTO queued_texts (session_id, text) VALUES (?, 'later')", (answered,))
            raw.execute(
                "INSERT INTO jobs (session_id, turn_id, options, uid, host, boot_id, folder, level, created_at)"
                " VALUES (?, ?, '{}', 0, 'h', 'b', '/', 0, 1.0)",
                (answered, turn),
            )
            raw.execute(
                "INSERT INTO rules (scope, role, tool, pattern, source_call, by_uid, made_at)"
                """ VALUES ('role', 'coder', 'shell_exec', '{"kind":"argv","words":["git","status"]}', 'c', 0, 1.0)"""
            )
            raw.execute(
                "INSERT INTO leases (session_id, host, pid, boot_id, pid_started, since, expires_at, machine, token)"
                " VALUES (?, 'h', 1, 'b', 's', 1.0, 2.0, 'm', 't')",
                (answered,),
            )
        with closing(self.opened()) as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            names = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
            self.tables = [name for (name,) in names if raw.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
        self.sessions, self.calls = [answered, *(one for one, _ in waiting)], [one for _, one in waiting]
        self.whole = self.path.read_bytes()

    def opened(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def restore(self) -> None:
        for file in self.path.parent.glob("chatops.db*"):
            if file.is_file():
                file.unlink()
        self.path.write_bytes(self.whole)

    def damage(self, one: Damage) -> str:
        """Damage a row, and return what was and is in it."""
        table = chosen(self.tables, one.at[0])
        with closing(self.opened()) as raw, suppress(sqlite3.IntegrityError, OverflowError), raw:
            raw.execute("PRAGMA foreign_keys = OFF")
            columns = [(row[1], row[2]) for row in raw.execute(f"PRAGMA table_info({table})")]
            column = chosen([name for name, _ in columns], one.at[2])
            keys = [name for name in ("seq", "turn_id", "session_id", "key", "id") if name in dict(columns)]
            rows = raw.execute(f"SELECT {keys[0]}, {column}, * FROM {table} ORDER BY 1").fetchall()
            _, value, *rest = rows[one.at[1] % len(rows)]
            changed = self.changed(value, one.how, [other for _, other, *_ in rows])
            if isinstance(changed, str) and "\ud800" in changed:
                changed = changed.encode("utf-8", "surrogatepass")
            # A number such as `seq` is that of a row in its session only.
            same = " AND ".join(f"{name} IS ?" for name, _ in columns)
            raw.execute(f"UPDATE {table} SET {column} = ? WHERE {same}", (changed, *rest))
        return f"{rest}{changed}"

    def changed(self, value: Any, how: tuple[str, int, Any], others: list[Any]) -> Any:
        kind, at, by = how
        if isinstance(by, str):
            by = self.named(by, at)
        match kind:
            case "other":
                return others[at % len(others)]
            case "cut":
                return value[: len(value) * at // 400] if isinstance(value, str | bytes) else None
            case "within" if isinstance(value, str):
                with suppress(ValueError):
                    new = altered(json.loads(value), at, by)
                    with suppress(ValueError, RecursionError):
                        # Rows of the log count as damaged in any other form.
                        return canonical(new)
                    return json.dumps(new)
        if isinstance(by, list | dict | bool):
            return json.dumps(by)
        return by

    def named(self, text: str, number: int) -> str:
        session, call = self.sessions[number % len(self.sessions)], self.calls[number % len(self.calls)]
        return text.replace("$SESSION", session).replace("$CALL", call)

    def hold(self, example: tuple[list[Damage], list[str], int]) -> None:
        damages, commands, number = example
        self.restore()
        for one in damages:
            self.damage(one)
        for command in commands:
            ran = self.chatops(*(self.named(word, number) for word in command.split()))
            shown = f"{command}\n{ran.out}\n{ran.err}"
            assert ran.code in range(5), shown
            assert "unexpected error" not in shown and "Traceback" not in shown, shown
            assert not any(sign in shown for sign in RAW), shown
            assert not list(self.chatops.workspace.glob("effect*")), shown

    def open(self, example: tuple[list[Damage], int]) -> None:
        """Open the chat on a session. One that no damaged row names is shown."""
        damages, number = example
        self.restore()
        damaged = "".join(map(self.damage, damages))
        session, words = list(zip(self.sessions, ("note.txt", "effect0", "effect1"), strict=True))[number % 3]
        with Installation(self.chatops.workspace, self.home).open("-r", session, "--role", "coder") as chat:
            text = chat.wait_until(lambda text: "ctx " in text or not chat.processes(), what="the chat or its end")
            if opened := bool(chat.processes()):
                chat.wait_quiet(0.5)
                text = chat.text()
                chat.press("ctrl+q")
            chat.wait_exit()
            text = text if opened else chat.text()
            shown = f"{text}\n{chat.raw.decode(errors='replace')}"
        assert "unexpected error" not in shown and "Traceback" not in shown, text
        assert "EVIL" not in chat.title
        assert text.strip()
        assert not list(self.chatops.workspace.glob("effect*")), shown
        if session not in damaged:
            assert opened and words in text, text


@pytest.fixture
def rows(chatops_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Iterator[Rows]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "note.txt").write_text("The invoice is due on Friday.\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    yield Rows(CommandLine(folder, capsys), chatops_home)


@pytest.mark.more
def test_no_row_makes_a_command_fail_without_words_or_runs_anything(rows: Rows) -> None:
    hold(rows.hold, EXAMPLES, kept=KEPT, few=8)


@pytest.mark.more
def test_the_chat_starts_whatever_is_in_a_row_and_shows_the_rest(rows: Rows) -> None:
    kept = [([Damage(("leases", 0, column), ("whole", 0, []))], 1) for column in ("since", "pid")]
    hold(rows.open, st.tuples(DAMAGES, st.integers(0, 9)), kept=kept, few=3)
