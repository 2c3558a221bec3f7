"""Workers of one queue that are killed, stopped and cut off, each on a host of its own.

    CHATOPS_WORKER_TURNS=200 CHATOPS_WORKER_KILLS=40 .venv/bin/python -m pytest -m kill -s tests/kill/test_workers.py

A host is a network namespace with a machine id of its own, and all of them have one name. A cable, which can be pulled,
joins it to the network of the database and the model. What runs there is an ordinary user. Each call adds a line to a
file; a line that is there twice is a second effect. The tests print what they have measured. ``CHATOPS_WORKER_TURNS``
and ``CHATOPS_WORKER_KILLS`` are how many turns and kills there are, ``CHATOPS_KILL_SEED`` which.
"""

import ctypes
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from chatops.domain.ids import SessionId
from chatops.domain.tools import AccessLevel
from chatops.runtime.lease import LEASE_S
from chatops.store.postgres import Postgres
from chatops.store.store import Store
from tests.kill.approver import approve_all
from tests.store.test_connections import free_port, use_certificate
from tests.support.command_line import program_environment, registry_for
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, says
from tests.support.postgres import AS_NOBODY, Server, find_programs, server
from tests.support.sockets import CERTIFICATES
from tests.support.waiting import PATIENCE

TURNS = int(os.environ.get("CHATOPS_WORKER_TURNS", "24"))
KILLS = int(os.environ.get("CHATOPS_WORKER_KILLS", "8"))
SEED = int(os.environ.get("CHATOPS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
_NEEDED = (
    "unshare -nm ip link add eth0 type veth peer name eth1".split(),
    # Through another program, as `faketime` starts it.
    [*AS_NOBODY, "env", sys.executable, "-c", ""],
)
MAY_MAKE_HOSTS = not os.getuid() and not any(
    subprocess.run(command, capture_output=True, check=False).returncode for command in _NEEDED
)
FAKETIME = shutil.which("faketime")
TAKEOVER_S = LEASE_S + 12
DECISIONS = 5

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed"),
    pytest.mark.skipif(not MAY_MAKE_HOSTS, reason="it needs the right to make networks, and a Python for nobody"),
]


def script(request: SeenRequest) -> Reply:
    """``line NAME SECONDS`` adds a line and takes its time; anything else is answered."""
    word, _, rest = request.last_user.partition(" ")
    if word != "line" or request.tool_results:
        return says("done")
    name, _, seconds = rest.partition(" ")
    return calls(call("shell_exec", command=f"echo {name} >> effects.txt; sleep {seconds}; echo {name}"))


HERE = "10.77.0.1"
"""The address of the database and the model in the network of a test."""
_CLONE_NEWNET = 0x40000000
HOST = f"""
set -e
mount --bind "$1" /etc/machine-id
ip link add eth0 type veth peer name "$2" netns {os.getpid()}
ip addr add "$3/16" dev eth0
ip link set lo up
ip link set eth0 up
nsenter --target {os.getpid()} --net ip link set "$2" master hosts up
shift 3
exec {shlex.join(AS_NOBODY)} "$@"
"""


@contextmanager
def network() -> Iterator[None]:
    """Move this thread into a network of its own, to which hosts can be joined. What it starts is there too."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as before:
        assert libc.unshare(_CLONE_NEWNET) == 0
        try:
            for what in (
                "link set lo up",
                "link add hosts type bridge",
                f"addr add {HERE}/16 dev hosts",
                "link set hosts up",
            ):
                subprocess.run(["ip", *what.split()], check=True)
            yield
        finally:
            assert libc.setns(before.fileno(), _CLONE_NEWNET) == 0


class Team:
    """A database, a model and workers on hosts of their own."""

    def __init__(self, running: Server, port: int, model: str) -> None:
        self.server = running
        self._address = (
            f"postgresql://chatops@localhost:{port}/postgres?hostaddr={HERE}&sslrootcert={CERTIFICATES / 'ca.pem'}"
        )
        self.folder, self.workspace = running.folder, running.folder / "repo"
        self.workspace.mkdir()
        shutil.chown(self.workspace, "nobody")
        self._registry = registry_for(self.workspace, model, tools=["shell_exec"])
        self._started: list[subprocess.Popen[bytes]] = []
        self._cables: dict[int, str] = {}

    def store(self) -> Store:
        """The store, as a member uses it."""
        return Store(Postgres(self.server.url))

    def put(self, *prompts: str, by: str = "chatops") -> list[str]:
        """Queue these prompts of a role of the database."""
        store = Store(Postgres(self.server.url.replace("chatops@", f"{by}@")))
        try:
            return [store.queue_turn(one, workspace="repo", role="coder", model="") for one in prompts]
        finally:
            store.close()

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process on a host of its own."""
        machine, number = self.folder / uuid.uuid4().hex, len(self._started)
        machine.write_text(f"{machine.name}\n")
        home, cable = self.folder / f"home-{machine.name}", f"host{number}"
        home.mkdir()
        shutil.chown(home, "nobody")
        environment = program_environment() | {
            "HOME": str(home),
            "CHATOPS_HOME": str(home / "chatops"),
            "CHATOPS_STORE": self._address,
        }
        host = (str(machine), cable, f"10.77.{1 + number // 250}.{1 + number % 250}")
        with (self.folder / "said.txt").open("ab") as said:
            process = subprocess.Popen(
                ["unshare", "-nm", "sh", "-c", HOST, "sh", *host, *command],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self._started.append(process)
        self._cables[process.pid] = cable
        return process

    def pull(self, process: subprocess.Popen[bytes]) -> None:
        """Pull the cable of a host: packets vanish, and nobody is told."""
        subprocess.run(["ip", "link", "set", self._cables[process.pid], "down"], check=True)

    def plug(self, process: subprocess.Popen[bytes]) -> None:
        """Put the cable of a host back."""
        subprocess.run(["ip", "link", "set", self._cables[process.pid], "up"], check=True)

    def worker(self, *before: str, slots: int = 2) -> subprocess.Popen[bytes]:
        """Start a worker, by what stands `before` the command."""
        flags = ("--registry", self._registry, "--workspace", f"repo={self.workspace}", "--concurrency", str(slots))
        return self.start(*before, sys.executable, "-m", "chatops", "worker", *flags)

    def decide(self, word: str, call_id: str) -> subprocess.Popen[bytes]:
        """Start the command that decides a call."""
        chatops = (sys.executable, "-m", "chatops", "--registry", self._registry)
        return self.start(*chatops, "approvals", word, call_id)

    def approver(self) -> subprocess.Popen[bytes]:
        """Start what approves all that waits."""
        return self.start(sys.executable, "-m", "tests.kill.approver")

    def rows(self, sql: str) -> list[Any]:
        """Read from the database; nothing while it is away."""
        try:
            with psycopg.connect(self.server.url, autocommit=True) as link:
                return link.execute(sql.encode()).fetchall()
        except psycopg.OperationalError:
            return []

    def one(self, sql: str) -> Any:
        """Read one value; None while the database is away."""
        return next((row[0] for row in self.rows(sql)), None)

    @property
    def open(self) -> Any:
        """How many turns are not over; None while the database is away."""
        return self.one(
            "SELECT count(*) FROM chatops.queue q JOIN chatops.sessions s ON s.id = q.session_id WHERE "
            "s.active_turn IS NOT NULL OR s.id IN (SELECT session_id FROM chatops.queued_texts)"
        )

    @property
    def effects(self) -> Counter[str]:
        """How often each line was written."""
        file = self.workspace / "effects.txt"
        return Counter(file.read_text().split() if file.exists() else ())

    def end(self) -> None:
        """Kill what was started."""
        for process in self._started:
            # faketime has a child.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def team() -> Iterator[Team]:
    """A team without workers yet."""
    port = free_port()
    with network(), server(port=port, address=HERE) as running, FakeOpenAI(script, address=HERE) as fake:
        use_certificate(running, "good")
        made = Team(running, port, fake.url)
        try:
            yield made
        finally:
            made.end()


def wait_until(holds: Callable[[], object], what: str) -> float:
    """Wait for what other processes do. Return the seconds that it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + PATIENCE, what
        time.sleep(0.05)
    return time.monotonic() - began


def test_kills_of_workers_approvers_and_the_database_cost_no_turn_and_repeat_no_call(team: Team) -> None:
    chance, taken_over, over = random.Random(SEED), list[float](), threading.Event()
    killed: dict[int, float] = {}

    def watch() -> None:
        """Measure how long the sessions of a killed worker stay without another owner."""
        owners: dict[str, int] = {}
        while not over.wait(0.1):
            now = dict(team.rows("SELECT session_id, pid FROM chatops.leases"))
            for session, pid in now.items() | owners.items():
                if owners.get(session) == pid and now.get(session) not in (pid, None) and pid in killed:
                    taken_over.append(time.monotonic() - killed[pid])
            owners = now if now or team.open is not None else owners

    team.put(*(f"line n{number} 0.3" for number in range(TURNS)))
    workers, approvers = [team.worker() for _ in range(3)], [team.approver()]
    watcher = threading.Thread(target=watch)
    watcher.start()
    began, counts = time.monotonic(), Counter[str]()
    wait_until(lambda: team.effects, "the first call runs")
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.2, 2.5))
        what = chance.choices(("worker", "approver", "database"), (7, 2, 1))[0]
        if what == "database":
            counts[what] += 1
            team.server.stop("immediate")
            team.server.start()
            continue
        group, again = (workers, team.worker) if what == "worker" else (approvers, team.approver)
        victim = group.pop(chance.randrange(len(group)))
        if pulled := chance.random() < 0.5:
            # As if the power failed: the database is not told that nobody is there.
            team.pull(victim)
        counts[what + " without power" * pulled] += 1
        killed[victim.pid] = time.monotonic()
        victim.kill()
        victim.wait()
        group.append(again())
    wait_until(lambda: team.open == 0, f"every turn ends (seed {SEED})")
    took = time.monotonic() - began
    over.set()
    watcher.join()
    twice = {name: number for name, number in team.effects.items() if number > 1}
    outcomes = Counter(str(row[0]) for row in team.rows("SELECT outcome FROM chatops.journal"))
    attempts = team.one("SELECT max(n) FROM (SELECT count(*) AS n FROM chatops.journal GROUP BY call_id) AS c")
    slowest = max(taken_over, default=0.0)
    print(
        f"\n{TURNS} turns, kills {dict(counts)}, seed {SEED}: {took:.0f} s, outcomes {dict(outcomes)}, "
        f"{len(team.effects)} effects, twice {twice}, takeovers {len(taken_over)}, slowest {slowest:.1f} s"
    )
    assert (twice, attempts) == ({}, 1)
    # What has succeeded has taken effect, and what has not is shown as unknown.
    assert outcomes.total() == TURNS
    assert outcomes["success"] <= len(team.effects)
    assert set(outcomes) <= {"success", "unknown"}
    assert slowest <= TAKEOVER_S


def test_a_worker_that_was_stopped_beyond_its_lease_and_goes_on_has_no_second_effect(team: Team) -> None:
    stopped = team.worker()
    team.put("line stopped 60")
    wait_until(lambda: approve_waiting(team), "the call waits")
    wait_until(lambda: team.effects["stopped"], "the tool runs")
    stopped.send_signal(signal.SIGSTOP)
    other = team.worker()
    took = wait_until(lambda: "unknown" in str(team.one("SELECT body FROM chatops.pending")), "another one takes it")
    wait_until(lambda: not team.one("SELECT count(*) FROM chatops.leases"), "it waits")
    # The first owner gets it back, while its tool still runs.
    other.send_signal(signal.SIGSTOP)
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: approve_waiting(team), "the call is left unknown")
    wait_until(lambda: team.open == 0, "the turn is over")
    team.put("line after 0")
    wait_until(lambda: approve_waiting(team), "the stopped worker goes on with others")
    wait_until(lambda: team.open == 0, "the turn is over")
    assert stopped.poll() is None
    assert team.effects == {"stopped": 1, "after": 1}
    print(f"\ntaken over {took:.1f} s after SIGSTOP")
    assert took <= TAKEOVER_S


def test_of_two_decisions_one_wins_and_rights_that_were_taken_meanwhile_hold(team: Team) -> None:
    owner = Postgres(team.server.url)
    store = Store(owner)
    with psycopg.connect(team.server.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE ana LOGIN")
    owner.grant("ana", AccessLevel.OPERATOR)
    worker = team.worker(slots=4)
    team.put(*(f"line n{number} 0" for number in range(DECISIONS)))
    (hers,) = team.put("line revoked 0", by="ana")
    wait_until(lambda: team.one("SELECT count(*) FROM chatops.pending") == DECISIONS + 1, "all calls wait")
    wait_until(lambda: not team.one("SELECT count(*) FROM chatops.leases"), "nobody owns them")
    worker.send_signal(signal.SIGSTOP)
    calls_of = {row.session_id: str(row.pending.call.id) for row in store.pending_calls()}
    revoked, ends = calls_of.pop(SessionId(hers)), Counter[tuple[int, ...]]()
    for one in calls_of.values():
        deciding = [team.decide(word, one) for word in ("approve", "deny")]
        ends[tuple(sorted(process.wait() for process in deciding))] += 1
    assert team.decide("approve", revoked).wait() == 0
    owner.grant("ana", AccessLevel.VIEWER)
    store.close()
    worker.send_signal(signal.SIGCONT)
    wait_until(lambda: team.open == 0, "all is over")
    print(f"\n{DECISIONS} calls approved and denied at once: exit codes {dict(ends)}, {len(team.effects)} effects")
    said = (team.folder / "said.txt").read_text()
    assert (ends, said.count("The first decision counts.")) == ({(0, 1): DECISIONS}, DECISIONS)
    assert team.effects.total() == said.count("Approved: ") - 1
    assert "revoked" not in team.effects


@pytest.mark.skipif(FAKETIME is None, reason="faketime is not installed")
def test_a_tool_that_outlives_its_lease_runs_once_beside_a_worker_whose_clock_is_ahead(team: Team) -> None:
    owner = team.worker()
    team.put(f"line long {LEASE_S + 10:.0f}")
    wait_until(lambda: approve_waiting(team), "the call waits")
    wait_until(lambda: team.effects["long"], "the tool runs")
    ahead = team.worker(str(FAKETIME), "-f", "+60s")
    took = wait_until(lambda: team.open == 0, "the turn is over")
    assert (owner.poll(), ahead.poll()) == (None, None)
    assert team.effects == {"long": 1}
    assert team.rows("SELECT outcome, pid FROM chatops.journal") == [("success", owner.pid)]
    print(f"\n{took:.0f} s after its start the tool of {LEASE_S + 10:.0f} s had ended, with 1 effect")


def test_a_worker_that_cannot_renew_stops_its_tool_and_works_again_when_the_network_is_back(team: Team) -> None:
    cut_off = team.worker()
    team.put("line cut 301.5")
    wait_until(lambda: approve_waiting(team), "the call waits")
    wait_until(lambda: _running("sleep 301.5"), "the tool runs")
    team.pull(cut_off)
    began = time.monotonic()
    stopped = wait_until(lambda: not _running("sleep 301.5"), "the tool is stopped")
    other = team.worker()
    wait_until(lambda: "unknown" in str(team.one("SELECT body FROM chatops.pending")), "another one takes it")
    took = time.monotonic() - began
    wait_until(lambda: approve_waiting(team), "the call is left unknown")
    wait_until(lambda: team.open == 0, "the turn is over")
    other.kill()
    other.wait()
    wait_until(lambda: time.monotonic() > began + 60, "the network is away for a minute")
    team.put("line after 0")
    team.plug(cut_off)
    back = wait_until(lambda: team.one("SELECT count(*) FROM chatops.pending"), "the call waits")
    wait_until(lambda: approve_waiting(team), "the call waits")
    wait_until(lambda: team.open == 0, "the turn is over")
    assert cut_off.poll() is None
    assert team.effects == {"cut": 1, "after": 1}
    print(
        f"\ntool stopped {stopped:.1f} s after the cut, taken over {took:.1f} s after it, "
        f"works {back:.1f} s after its end"
    )
    assert stopped <= LEASE_S
    assert took <= TAKEOVER_S
    assert back <= 12


def _running(words: str) -> bool:
    """Return True if a process has these words in its command line."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if words.replace(" ", "\0") in file.read_text(errors="replace"):
                return True
    return False


@pytest.mark.parametrize("how", ["fast", "immediate", "cut"])
def test_a_database_that_is_away_under_load_needs_no_restarted_worker(team: Team, how: str) -> None:
    workers = [team.worker() for _ in range(2)]
    approver = team.approver()
    team.put(*(f"line n{number} 0.2" for number in range(TURNS)))
    wait_until(lambda: len(team.effects) >= TURNS // 4, "a part has run")
    if how == "cut":
        for process in (*workers, approver):
            team.pull(process)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 60, "the network is away for a minute")
        for process in (*workers, approver):
            team.plug(process)
    else:
        team.server.stop(how)
        team.server.start()
    before = team.effects.total()
    took = wait_until(lambda: team.effects.total() > before, "work goes on")
    wait_until(lambda: team.open == 0, "every turn ends")
    outcomes = Counter(str(row[0]) for row in team.rows("SELECT outcome FROM chatops.journal"))
    print(f"\n{how}: next effect {took:.1f} s after it is back; {dict(outcomes)}")
    assert [process.poll() for process in (*workers, approver)] == [None] * 3
    assert max(team.effects.values()) == 1
    assert outcomes.total() == TURNS
    assert how == "cut" or outcomes == {"success": TURNS}
    assert took <= 12


def test_waiting_turns_hold_nothing_lost_hints_are_found_and_decisions_pass_new_turns(team: Team) -> None:
    waiting, new, decisions = TURNS * 5, TURNS + TURNS // 2, 20
    team.put(*(f"line n{number} 0" for number in range(waiting)))
    # Before any worker could look: no hint is left.
    assert team.rows("DELETE FROM chatops.hints RETURNING 1")
    workers = [team.worker(slots=3) for _ in range(2)]
    found = wait_until(lambda: team.one("SELECT count(*) FROM chatops.pending") == waiting, "all calls wait")
    wait_until(lambda: not team.one("SELECT count(*) FROM chatops.leases"), "nobody owns them")
    links = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'chatops'"
    threads = [len(list(Path(f"/proc/{process.pid}/task").iterdir())) for process in workers]
    connections = team.one(links)
    commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    # Servers count what they did with a delay.
    time.sleep(15)
    first = team.one(commits)
    time.sleep(20)
    idle = (team.one(commits) - first) / 20 / len(workers)
    team.put(*(f"text {number}" for number in range(new)))
    store = team.store()
    for left in range(decisions):
        approve_all(store, but=waiting - 1 - left)
        time.sleep(0.25)
    store.close()
    pending = team.one("SELECT count(*) FROM chatops.queued_texts")
    wait_until(lambda: team.one("SELECT count(*) FROM chatops.journal WHERE outcome IS NOT NULL") == decisions, "run")
    wait_until(lambda: not team.one("SELECT count(*) FROM chatops.queued_texts"), "new turns are taken")
    delays = sorted(
        1000 * float(row[0])
        for row in team.rows(
            "SELECT j.started_at - d.decided_at FROM chatops.journal j JOIN chatops.decisions d USING (call_id)"
        )
    )
    p50, p95 = statistics.median(delays), delays[int(len(delays) * 0.95) - 1]
    print(
        f"\n{waiting} turns wait, found without hints in {found:.0f} s: {connections} connections and {threads} "
        f"threads of {len(workers)} workers; {idle:.1f} transactions/s for an idle one; decision to start beside "
        f"{new} new turns ({pending} of them left at the end): p50 {p50:.0f} ms, p95 {p95:.0f} ms"
    )
    assert connections == 2 * len(workers)
    assert idle <= 5


def approve_waiting(team: Team) -> int:
    """Decide what waits. Return how many calls."""
    store = team.store()
    try:
        return approve_all(store)
    finally:
        store.close()
