"""A writer in the way, several processes at once, and processes that are killed while they write."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.tools import Outcome
from chatops.engine.effects import TurnStep
from chatops.engine.state import Finished
from chatops.store.opening import must_be_ours
from chatops.store.schema import migrate
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.store.filekit import a_session
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def test_a_writer_in_the_way_is_waited_for(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        script = (
            "import sqlite3, sys, time\n"
            "raw = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "raw.execute('BEGIN IMMEDIATE')\n"
            "print('held', flush=True)\n"
            "time.sleep(0.3)\n"
            "raw.execute('COMMIT')\n"
        )
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            assert store.history(session_id) == ()
            store.append_message(session_id, kit.user(session_id))
        assert store.history(session_id) == (kit.user(session_id),)


def test_a_writer_that_never_lets_go_is_a_sentence(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        store._rows.one("PRAGMA busy_timeout = 20")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked"):
                store.append_message(session_id, kit.user(session_id))
            other.execute("ROLLBACK")
        store.append_message(session_id, kit.user(session_id))


def test_other_writers_are_waited_for_as_long_as_they_commit(path: Path) -> None:
    with closing(Store(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        session_id = a_session(store)
        store._rows.one("PRAGMA busy_timeout = 1")
        other.execute("BEGIN IMMEDIATE")
        turns = iter(range(20))

        def take_turns(statement: str) -> None:
            if statement == "PRAGMA data_version":
                other.execute("UPDATE sessions SET activity = activity + 1")
                other.execute("COMMIT")
                if next(turns, None) is not None:
                    other.execute("BEGIN IMMEDIATE")

        store._rows._raw.set_trace_callback(take_turns)
        store.append_message(session_id, kit.user(session_id))
        store._rows._raw.set_trace_callback(None)
        assert next(turns, None) is None, "the others had all their turns first"
        assert store.history(session_id) == (kit.user(session_id),)


@pytest.mark.more
def test_several_processes_may_make_the_store_at_once(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from chatops.store.store import Store\n"
        "sys.stdin.readline()\n"
        "store = Store(Path(sys.argv[1]))\n"
        "print(store.create_session(workspace='/w', role='r', persona='p').id, store.notices)\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    pipe = subprocess.PIPE
    crowd = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=PATIENCE)[0].split() for process in crowd]
    assert [notices for _, notices in said] == ["()"] * 4
    with closing(Store(path)) as store:
        assert len({store.session(SessionId(made)).id for made, _ in said}) == 4


def test_a_store_that_is_made_while_it_is_looked_at_is_ours(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as looking, closing(sqlite3.connect(path, isolation_level=None)) as making:
        looking.set_trace_callback(lambda statement: migrate(making) if "sqlite_master" in statement else None)
        must_be_ours(looking, path)


def test_of_two_processes_on_one_turn_one_wins_and_there_is_one_intent(path: Path) -> None:
    with closing(Store(path)) as store:
        for _ in range(3):
            session_id = a_session(store)
            turn = store.next_turn_id(session_id)
            store.commit(kit.first(turn, session_id))
            command = [sys.executable, "-m", "tests.store.racer", str(path), turn]
            pipe = subprocess.PIPE
            racers = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
            for racer in racers:
                assert racer.stdout is not None
                assert racer.stdout.readline() == "ready\n"
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write("go\n")
                racer.stdin.flush()
            said = sorted(racer.communicate(timeout=PATIENCE)[0] for racer in racers)
            assert said == ["conflict\n", "won\n"]
            assert len(store.journal(turn)) == 1
            assert store.load_turn(turn).seq == 1


def test_no_kill_loses_what_was_acknowledged(path: Path) -> None:
    chance = random.Random(7)
    with closing(Store(path)) as store:
        session_ids = [a_session(store), a_session(store)]
    begun: dict[SessionId, list[TurnId]] = {session_id: [] for session_id in session_ids}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.store.committer", str(path)]
    victims = {
        session_id: subprocess.Popen([*command, session_id], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        for session_id in session_ids
    }
    for _ in range(4):
        for victim in victims.values():
            assert victim.stdin is not None
            victim.stdin.write("go\n")
            victim.stdin.flush()
        acknowledged = {id_: _killed(victim, after_s=chance.uniform(0, 0.02)) for id_, victim in victims.items()}
        for session_id, commits in acknowledged.items():
            begun[session_id] += [turn for what, turn in commits if what == "begun"]
            with closing(Store(path)) as store:
                for what, turn in commits[-5:]:
                    _must_be_stored(store, what, turn)
                _finish(store, session_id)
    for victim in victims.values():
        victim.communicate(timeout=PATIENCE)
    with closing(Store(path)) as store:
        assert kit.problems(store) == []
        for session_id in session_ids:
            stored = [message.id for message in store.history(session_id) if message.kind == "user"]
            # A turn that was killed before it was acknowledged may be there as well; none may be missing.
            assert [turn for turn in stored if turn.removesuffix(".m1") in set(begun[session_id])] == [
                f"{turn}.m1" for turn in begun[session_id]
            ]


def _killed(victim: subprocess.Popen[str], *, after_s: float) -> list[tuple[str, TurnId]]:
    """Kill the committing child some time after its first commit; what it had acknowledged by then."""
    assert victim.stdout is not None
    word, pid = victim.stdout.readline().split()
    assert word == "pid"
    acknowledged = [victim.stdout.readline()]
    time.sleep(after_s)
    # On a busy machine the other one may keep the lock for too long: this child has ended with an error then.
    with suppress(ProcessLookupError):
        os.kill(int(pid), signal.SIGKILL)
    acknowledged += iter(victim.stdout.readline, "ended\n")
    return [(what, TurnId(turn)) for what, turn in (line.split() for line in acknowledged)]


def _must_be_stored(store: Store, what: str, turn: TurnId) -> None:
    # The state of a turn is pruned when another one follows.
    with closing(sqlite3.connect(store.path)) as raw:
        (seq,) = raw.execute("SELECT seq FROM turns WHERE turn_id = ?", (turn,)).fetchone()
    rows = store.journal(turn)
    assert seq >= {"begun": 0, "started": 1, "done": 2}[what]
    assert len(rows) == (0 if seq == 0 else 1)
    if what == "done":
        assert rows[0].outcome is Outcome.SUCCESS


def _finish(store: Store, session_id: SessionId) -> None:
    """Whatever a kill left behind can be resumed."""
    unfinished = store.session(session_id).active_turn
    if unfinished is not None:
        state = store.load_turn(unfinished)
        store.commit(TurnStep(state=replace(state, seq=state.seq + 1, phase=kit.finished())))
        assert isinstance(store.load_turn(unfinished).phase, Finished)
