"""Contents of the store as another process reads them at a moment: all of it must survive a kill."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

LOOK_S = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Rows that never go away again."""

    messages: frozenset[str] = frozenset()
    started: frozenset[tuple[str, int]] = frozenset()
    """Attempts, by call and number."""
    ended: frozenset[tuple[str, int]] = frozenset()
    """Attempts whose outcome is stored."""
    decided: frozenset[tuple[str, str]] = frozenset()
    """Decisions, by call and what it was about: taken by the turn, or left for it."""
    kept: frozenset[str] = frozenset()
    """Texts that wait to be sent."""
    said: frozenset[str] = frozenset()
    """Texts of the user's messages."""
    drafts: frozenset[str] = frozenset()
    """Texts typed and not sent, as stored."""
    steps: dict[str, int] = field(default_factory=dict)
    """Progress of each turn."""

    def missing_in(self, later: "Ledger") -> list[str]:
        """Return the entries that are missing in `later`."""
        gone = [
            *(f"message {one}" for one in self.messages - later.messages),
            *(f"attempt {one}" for one in self.started - later.started),
            *(f"outcome of {one}" for one in self.ended - later.ended),
            *(f"decision on {one}" for one in self.decided - later.decided),
            *(f"kept text {one!r}" for one in self.kept - later.kept - later.said),
        ]
        back = (f"step {seq} of turn {turn}" for turn, seq in self.steps.items() if later.steps.get(turn, -1) < seq)
        return [*gone, *back]


def read(path: Path) -> Ledger | None:
    """The rows as stored now; None if there is no store yet. Leaves no trace on it."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as raw:
            raw.execute("BEGIN")
            attempts = raw.execute("SELECT call_id, attempt, outcome FROM journal").fetchall()
            said = raw.execute("SELECT json_extract(body, '$.text') FROM messages WHERE kind = 'user'").fetchall()
            decided = raw.execute("SELECT call_id, digest FROM decisions UNION SELECT call_id, digest FROM posted")
            return Ledger(
                messages=frozenset(row[0] for row in raw.execute("SELECT id FROM messages")),
                started=frozenset((row[0], row[1]) for row in attempts),
                ended=frozenset((row[0], row[1]) for row in attempts if row[2] is not None),
                decided=frozenset((row[0], row[1]) for row in decided),
                kept=frozenset(row[0] for row in raw.execute("SELECT text FROM queued_texts")),
                said=frozenset(row[0] for row in said),
                drafts=frozenset(row[0] for row in raw.execute("SELECT value FROM settings WHERE key LIKE '%draft:%'")),
                steps=dict(raw.execute("SELECT turn_id, seq FROM turns").fetchall()),
            )
    except sqlite3.OperationalError:
        return None


@contextmanager
def watching(path: Path) -> Iterator[list[Ledger]]:
    """Reads on and on within the block; the list holds the last rows that were read."""
    seen = [Ledger()]
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            with contextlib.suppress(sqlite3.Error):
                seen[0] = read(path) or seen[0]

    watcher = threading.Thread(target=look, name="ledger")
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def left_to_say(path: Path) -> str:
    """Return the expected resume summary, derived from the rows alone; empty if no session is unfinished."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as raw:
        if raw.execute("PRAGMA user_version").fetchone() == (0,):
            # Killed before it had any tables.
            return ""
        found = raw.execute(
            "SELECT turns.turn_id, phase FROM sessions JOIN turns ON turns.turn_id = sessions.active_turn"
        ).fetchone()
        if found is None:
            return ""
        turn, phase = found
        tools = raw.execute("SELECT tool FROM journal WHERE turn_id = ? AND outcome IS NULL", (turn,)).fetchall()
        waiting = raw.execute(
            "SELECT count(*) FROM pending WHERE turn_id = ? AND call_id NOT IN (SELECT call_id FROM posted)", (turn,)
        ).fetchone()[0]
    if any(tool in ("shell_exec", "note_down") for (tool,) in tools):
        return "outcome unknown"
    if tools:
        return "interrupted while running"
    if waiting:
        return "waiting for your approval of"
    return "reply cut off" if phase == "awaiting_model" else r"interrupted before|in another terminal"
