"""Benchmark of a team's database, and a simulation of its growth: ``python -m tests.benchmarks.team``.

Processes of their own drive turns over HTTP and a PostgreSQL of this machine that flushes each commit to the disk. A
turn reads four files of 3 KB, writes one after an approval, and answers with 600 characters. Prints turns and
commits a second, rows and bytes of a turn, and what a year of a team comes to. Then the rows are multiplied until they
are those of ``--turns`` turns, and of ``--waiting`` turns that wait, and what people wait for is measured again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg

from chatops import Chat
from chatops.store.postgres import Postgres
from chatops.store.store import Store
from tests.support.command_line import program_environment
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, says
from tests.support.postgres import Server, server

PEOPLE, TURNS_A_DAY, DAYS = 20, 30, 220
IDS = ("id", "parent_id", "session_id", "turn_id", "call_id", "head", "active_turn", "last_turn", "forked_from")
COUNTED = ("messages", "turns", "turn_grants", "journal", "decisions", "audit", "settings", "sessions")
_NOTE = "".join(f"{number:04}: what a program prints is longer than what people say\n" for number in range(48))


def reply(request: SeenRequest) -> Reply:
    """Four calls that read, one that writes, then the answer."""
    done = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            break
        done += message["role"] == "tool"
    if done < 4:
        return calls(call("file_read", path=f"note{done}.txt"))
    if done == 4:
        return calls(call("file_write", path=f"out-{time.time_ns()}.txt", content=_NOTE[:1000]))
    return says("word " * 120)


def drive(turns: int, folder: Path) -> None:
    """Drive so many turns in sessions of ten; with 0, one that waits."""
    chat = None
    for number in range(max(1, turns)):
        if number % 10 == 0 or chat is None:
            chat = Chat(role="coder", workspace=folder, registry=folder.parent / "registry.json")
        replied = chat.send(f"do what number {number} says, and tell me what came of it")
        assert len(replied.pending) == 1, replied
        (asked,) = replied.pending
        if turns:
            asked.approve(digest=asked.digest)
            assert chat.resume().status == "answered"


def played(running: Server, folder: Path, turns: int, processes: int) -> float:
    """Drive turns in so many processes; the seconds."""
    environment = program_environment() | {"CHATOPS_STORE": running.url, "CHATOPS_HOME": str(folder.parent / "home")}
    command = [sys.executable, "-m", "tests.benchmarks.team", "--drive", str(turns), str(folder)]
    began = time.monotonic()
    started = [subprocess.Popen(command, env=environment) for _ in range(processes)]
    assert [process.wait() for process in started] == [0] * processes
    return time.monotonic() - began


def counts(database: psycopg.Connection[tuple[int, ...]]) -> dict[str, tuple[int, int]]:
    """Rows and bytes of each table, with its indexes."""
    found = {}
    for table in COUNTED:
        row = database.execute(f"SELECT count(*), pg_total_relation_size('{table}') FROM {table}".encode()).fetchone()
        assert row is not None
        found[table] = (row[0], row[1])
    return found


def multiply(database: psycopg.Connection[tuple[int, ...]], times: int, which: str) -> None:
    """Copy the rows of the sessions that fit a condition so many times, under other ids."""
    chosen = f"SELECT id FROM sessions WHERE {which}"
    database.execute("SET session_replication_role = replica")
    database.execute(f"CREATE TEMP TABLE chosen AS {chosen}".encode())
    database.execute("CREATE TEMP TABLE chosen_turns AS SELECT turn_id FROM turns WHERE session_id IN (TABLE chosen)")
    for table in ("messages", "turns", "turn_grants", "journal", "pending", "decisions", "audit", "sessions"):
        found = database.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'chatops' AND table_name = %s",
            (table,),
        ).fetchall()
        own = () if table == "turns" else ("seq",)
        names = [str(name) for (name,) in found if name not in own]
        values = ", ".join(
            f"{name} || 'x' || n" if name in IDS else f"{name} + n * 1000" if name == "activity" else name
            for name in names
        )
        of = "turn_id IN (TABLE chosen_turns)" if table == "journal" else "session_id IN (TABLE chosen)"
        of = "id IN (TABLE chosen)" if table == "sessions" else of
        order = "turn_id" if table == "turns" else "t.seq"
        database.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} t, generate_series(1, {times}) n "
            f"WHERE {of} ORDER BY n, {order}".encode()
        )
    database.execute("DROP TABLE chosen, chosen_turns")
    database.execute("ANALYZE")


def milliseconds(work: Callable[[], object], runs: int = 5) -> float:
    """The median of some runs."""
    found = []
    for _ in range(runs):
        began = time.monotonic()
        work()
        found.append(1000 * (time.monotonic() - began))
    return sorted(found)[runs // 2]


def ceiling(address: str, writers: int, seconds: float = 5.0) -> float:
    """Return how many commits a second so many connections get stored that do nothing else."""
    end, done = time.monotonic() + seconds, [0] * writers

    def write(number: int) -> None:
        with closing(Store(Postgres(address))) as store:
            while time.monotonic() < end:
                store.set_setting(f"writer {number}", "1")
                done[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds


def waits(store: Store, title: str) -> None:
    """Print how long people wait for lists, searches and commits."""
    (session, *_) = store.sessions(limit=1)
    figures = {
        "commit": milliseconds(lambda: store.set_setting("a", "1"), 30),
        "sessions list": milliseconds(lambda: store.sessions(limit=200)),
        "history of one": milliseconds(lambda: store.history(session.id)),
        "approvals list": milliseconds(store.pending_calls),
        "search": milliseconds(lambda: store.search("nothing like this"), 1),
    }
    print(f"{title:34}", "  ".join(f"{name} {figure:,.1f} ms" for name, figure in figures.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=1_000)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--processes", type=int, default=max(2, os.cpu_count() or 1))
    parser.add_argument("--drive", nargs=2)
    chosen = parser.parse_args()
    if chosen.drive:
        drive(int(chosen.drive[0]), Path(chosen.drive[1]))
        return
    with (
        tempfile.TemporaryDirectory() as scratch,
        FakeOpenAI(reply, strict=False) as model,
        server(durable=True) as running,
    ):
        folder = Path(scratch) / "work"
        folder.mkdir()
        for number in range(4):
            (folder / f"note{number}.txt").write_text(_NOTE)
        spec = {"type": "openai", "api_url": model.url, "model_name": "m"}
        registry = {
            "version": 3,
            "default_role": "coder",
            "models": {"fake": spec},
            "roles": {"coder": {"primary": "fake", "tools": ["file_read", "file_write", "shell_exec"]}},
            "users": {"*": {"access_level": "operator"}},
        }
        (Path(scratch) / "registry.json").write_text(json.dumps(registry))
        with closing(Store(Postgres(running.url))) as store, psycopg.connect(running.url, autocommit=True) as database:
            database.execute("SET search_path = chatops")
            measure(running, folder, store, database, chosen)


def measure(
    running: Server,
    folder: Path,
    store: Store,
    database: psycopg.Connection[tuple[int, ...]],
    chosen: argparse.Namespace,
) -> None:
    """Measure, multiply, and measure again."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    for writers in (1, 4, 16):
        print(f"{writers} writers: {ceiling(running.url, writers):.0f} commits/s", flush=True)
    before, changes = counts(database), store.data_version()
    seconds = played(running, folder, chosen.sample, chosen.processes)
    turns, after = chosen.sample * chosen.processes, counts(database)
    commits = store.data_version() - changes
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = usage.ru_utime + usage.ru_stime
    print(
        f"{chosen.processes} processes: {turns / seconds:.1f} turns/s, {commits / seconds:.0f} commits/s, "
        f"{commits / turns:.0f} commits and {used / turns:.2f} s of CPU a turn"
    )
    year, total, rows = PEOPLE * TURNS_A_DAY * DAYS, 0, 0
    for table, (count, size) in after.items():
        count, size = count - before[table][0], size - before[table][1]
        total, rows = total + size, rows + count
        size, yearly = size / turns / 1000, count / turns * year
        print(f"  {table:12} {count / turns:7.2f} rows {size:8.1f} kB a turn {yearly:12,.0f} rows a year")
    print(f"  in all {rows / turns:.0f} rows and {total / turns / 1000:.0f} kB a turn")
    print(f"{PEOPLE} people with {TURNS_A_DAY} turns on {DAYS} days: {year:,} turns a year", end="")
    print(f", {rows / turns * year:,.0f} rows, {total / turns * year / 1e9:.1f} GB", flush=True)
    played(running, folder, 0, 1)
    waits(store, f"with {turns} turns")
    began = time.monotonic()
    multiply(database, chosen.turns // turns, "active_turn IS NULL")
    multiply(database, chosen.waiting, "active_turn IS NOT NULL")
    size = sum(size for _, size in counts(database).values())
    print(f"multiplied in {time.monotonic() - began:.0f} s; {size / 1e9:.2f} GB", flush=True)
    waits(store, f"with {chosen.turns:,} turns, {chosen.waiting:,} waiting")
    seconds = played(running, folder, chosen.sample, chosen.processes)
    print(f"{chosen.processes} processes: {turns / seconds:.1f} turns/s, load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
