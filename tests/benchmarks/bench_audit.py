"""CPU time of judging logged calls again and of the log: ``pytest -s -m bench tests/benchmarks/bench_audit.py``.

Not collected by default. The floor of the first is `audit verify` of the same rows, that of the second the commits that
the rows belong to.
"""

import io
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops.store import audit, turns
from chatops.store.audit import link
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.bench

CALLS = 10_000
MOST_S = 5.0
MOST_FLOORS = 12.0
"""Times the CPU time of `audit verify` that replaying the same rows may take."""
MOST_SHARE = 0.5
"""Share of a commit that its rows of the log may take."""
PROMPTS = (
    *("run `touch {}`", "run `ls -la src/{} | head`", "run `git log -5 {}`", "run `grep -rn {} . > out.txt`"),
    *("read note.txt", "list .", "write text to {}", "search invoice"),
)


@pytest.fixture
def chatops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    (tmp_path / "note.txt").write_text("The invoice is due on Friday.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return CommandLine(tmp_path, capsys)


def multiplied(file: Path, prompts: int) -> None:
    """Log each verdict again in sessions of its own, about other files, until there are `CALLS`."""
    with closing(sqlite3.connect(file)) as raw, raw:
        found = [row[0] for row in raw.execute('SELECT body FROM audit WHERE body LIKE \'%"kind":"verdict"%\'')]
        assert len(found) == prompts
        raw.execute("DELETE FROM audit")
        chain = ""
        for number in range(CALLS):
            entry = json.loads(found[number % len(found)].replace("{}", f"file{number}.txt"))
            session, place = f"20260101-000000-{number // 100:04}", number % 100 + 1
            body = json.dumps(
                entry | {"session": session, "number": place}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
            )
            chain = link("" if place == 1 else chain, body)
            columns = "(session_id, number, body, chain) VALUES (?, ?, ?, ?)"
            raw.execute(f"INSERT INTO audit {columns}", (session, place, body, chain))


def cpu(run: Callable[[], Any]) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


def test_ten_thousand_logged_calls_are_judged_again_within_seconds(chatops: CommandLine, chatops_home: Path) -> None:
    for prompt in PROMPTS:
        chatops("-p", prompt, "--role", "coder", "--on-approval", "deny")
    multiplied(chatops_home / "data" / "chatops.db", len(PROMPTS))
    assert chatops("audit", "verify").code == 0
    floor = cpu(lambda: chatops("audit", "verify"))
    registry = chatops.workspace / "r.json"
    rule = {"tool": "shell_exec", "match": ["touch", "*"], "verdict": "allow"}
    roles = {"coder": {"tools": ["shell_exec", "file_read"], "rules": [rule]}}
    users = {"*": {"access_level": "operator"}}
    registry.write_text(json.dumps({"version": 3, "default_role": "coder", "roles": roles, "users": users}))
    found: dict[str, Any] = {}
    words = ("--registry", str(registry), "policy", "replay", "--output-format", "json")
    seconds = cpu(lambda: found.update(chatops(*words).json))
    ratio = seconds / floor
    print(f"\n{found['judged']:,} calls judged in {seconds:.2f} s, {ratio:.1f} times what verifying them takes")
    assert found["judged"] == CALLS and found["differing"] > CALLS / 4
    assert seconds < MOST_S and ratio < MOST_FLOORS


def test_the_rows_of_the_log_take_a_part_of_a_commit(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {"rows": 0.0, "commits": 0.0}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                spent[name] += time.thread_time() - begun

        return run

    monkeypatch.setattr(audit, "append_step", timed("rows", audit.append_step))
    monkeypatch.setattr(turns.Turns, "commit", timed("commits", turns.Turns.commit))
    for number in range(12):
        chatops("-p", " then ".join(f"search word{place}{number}" for place in "abcd"), "--role", "coder")
    rows = len(chatops("audit", "export").out.splitlines())
    share = spent["rows"] / spent["commits"]
    print(f"\n{rows} rows, {spent['rows'] / rows * 1e6:.0f} µs each: {share:.0%} of the commits")
    assert rows > 100 and share < MOST_SHARE
