"""The power fails while a process commits (fault D22): what it had acknowledged is there, and nothing is damaged.

A disk keeps what it was told to keep, and of all that was written since then any part. So a committing process is
stopped at a random moment, its file and its write-ahead log are copied as they are, and the log is cut at every 512
bytes behind its last acknowledged commit, or blocks behind it are replaced by others. As long as nothing of a log has
been copied into the file, it is cut anywhere: then everything must be there whose commit lies before the cut.

    .venv/bin/python -m pytest -m kill -n 4 tests/store/test_power_loss.py
"""

import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from chatops.domain.ids import SessionId, TurnId
from chatops.engine.effects import TurnStep
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.support.figures import Count

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("CHATOPS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
BLOCK = 512
HEADER, FRAME_HEADER = 32, 24
"""Bytes, see "WAL-mode File Format", section 4."""
_BACKFILLED, _BEING_BACKFILLED = 96, 128
"""Offset in the index of the numbers of frames copied to the file, and being copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A commit that has returned: the log with that `salt` held `frames` frames then."""

    what: str
    turn: TurnId
    salt: str
    frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Writes handed to the operating system by a moment, and commits acknowledged by then."""

    file: bytes
    log: bytes
    index: bytes
    acknowledged: tuple[Acknowledged, ...]

    def end_of(self, one: Acknowledged) -> int:
        """Number of log bytes that a commit needs; 0 if it is in the file."""
        page = int.from_bytes(self.log[8:12], "big")
        return HEADER + one.frames * (FRAME_HEADER + page) if one.salt == self.log[16:24].hex() else 0

    @property
    def synced(self) -> int:
        """Up to where a disk has been told to keep the log."""
        return max(self.end_of(one) for one in self.acknowledged)

    @property
    def untouched(self) -> bool:
        """Return True if nothing of this log has been copied into the file."""
        counts = (int.from_bytes(self.index[at : at + 4], sys.byteorder) for at in (_BACKFILLED, _BEING_BACKFILLED))
        return not any(counts)

    def before(self, cut: int) -> tuple[Acknowledged, ...]:
        """Return the commits that must be there if the log ends at `cut`."""
        return tuple(one for one in self.acknowledged if self.end_of(one) <= cut)


class Committer:
    """A process that commits without end, and is stopped when so much has been acknowledged."""

    def __init__(self, path: Path, session_id: SessionId) -> None:
        command = [sys.executable, "-m", "tests.store.committer", str(path), session_id, "where"]
        self._path = path
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._rest = b""
        self._acknowledged: list[Acknowledged] = []
        assert self._process.stdin is not None and self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        self._child = 0

    def __enter__(self) -> "Committer":
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._child, signal.SIGKILL)
        self._process.communicate()

    def after(self, further: int) -> Moment:
        """The moment at which that many more commits have been acknowledged, or a little later."""
        wanted = len(self._acknowledged) + further
        while len(self._acknowledged) < wanted:
            select.select([self._out], [], [], 30)
            assert self._read(), "the committing process says nothing"
        os.kill(self._child, signal.SIGSTOP)
        _wait_stopped(self._child)
        try:
            contents = [Path(f"{self._path}{suffix}").read_bytes() for suffix in ("", "-wal", "-shm")]
            while self._read():
                pass
        finally:
            os.kill(self._child, signal.SIGCONT)
        file, log, index = contents
        return Moment(file=file, log=log, index=index, acknowledged=tuple(self._acknowledged))

    def _read(self) -> bool:
        try:
            data = os.read(self._out, 1 << 16)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            what, *words = line.decode().split()
            if what == "pid":
                self._child = int(words[0])
            else:
                turn, salt, frames = words
                self._acknowledged.append(Acknowledged(what=what, turn=TurnId(turn), salt=salt, frames=int(frames)))
        return bool(data)


def _wait_stopped(pid: int) -> None:
    """A process stops only at its way back from the kernel: a write that is under way comes to its end first."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "Tt":
        pass


@contextmanager
def committing(folder: Path) -> Iterator[Committer]:
    """A new store in which one session goes on and on."""
    path = folder / "chatops.db"
    with closing(Store(path)) as store:
        session_id = store.create_session(workspace="/w", role="coder", persona="default").id
    with Committer(path, session_id) as running:
        yield running


@dataclass(slots=True, kw_only=True)
class Losses:
    """Results of all cuts."""

    tried: int = 0
    lost: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def add_to(self, figure: Count) -> None:
        """Count them, and fail if there is one."""
        figure("acknowledged rows lost (power loss)", bad=len(self.lost), of=self.tried)
        figure("integrity failures (power loss)", bad=len(self.damaged), of=self.tried)
        assert (self.lost, self.damaged) == ([], []), f"seed {SEED}"


def open_after(moment: Moment, log: bytes, folder: Path, losses: Losses, *, cut: int) -> None:
    """Start again with what the disk has, compare, and go on."""
    path = folder / "chatops.db"
    folder.mkdir(mode=0o700)
    path.write_bytes(moment.file)
    Path(f"{path}-wal").write_bytes(log)
    losses.tried += 1
    kept = moment.before(cut)
    with closing(Store(path)) as store:
        losses.damaged += [f"{cut}: {complaint}" for complaint in (*store.notices, *kit.problems(store))]
        gone = missing(path, kept)
        losses.lost += [f"{cut}: {one}" for one in gone]
        if kept and not gone:
            session_id = SessionId(kept[-1].turn.rpartition(".")[0])
            last = store.session(session_id).last_turn
            assert last is not None
            assert store.load_turn(last).turn_id == last
            go_on(store, session_id)
    shutil.rmtree(folder)


def missing(path: Path, kept: Sequence[Acknowledged]) -> list[Acknowledged]:
    """The acknowledged commits that are not there as a whole."""
    with closing(sqlite3.connect(path)) as raw:
        steps = dict(raw.execute("SELECT turn_id, seq FROM turns"))
        attempts = dict(raw.execute("SELECT turn_id, coalesce(outcome, '') FROM journal"))
        said = {row[0] for row in raw.execute("SELECT turn_id FROM messages WHERE kind = 'user'")}
    wanted = {"begun": (0, None), "started": (1, ""), "done": (2, "success")}
    gone: list[Acknowledged] = []
    for one in kept:
        seq, outcome = wanted[one.what]
        there = one.turn in said and steps.get(one.turn, -1) >= seq
        if not there or (outcome is not None and attempts.get(one.turn) not in (outcome, "success")):
            gone.append(one)
    return gone


def go_on(store: Store, session_id: SessionId) -> None:
    """End the turn that was under way, and begin another."""
    unfinished = store.session(session_id).active_turn
    if unfinished is not None:
        state = store.load_turn(unfinished)
        store.commit(TurnStep(state=replace(state, seq=state.seq + 1, phase=kit.finished())))
    turn = store.next_turn_id(session_id)
    store.commit(kit.first(turn, session_id, parent=store.session(session_id).head))
    assert store.session(session_id).active_turn == turn


def edges(first: int, last: int) -> range:
    """The multiples of 512 from `first` on, up to `last`."""
    return range(-(-first // BLOCK) * BLOCK, last + 1, BLOCK)


def torn(log: bytes, *, synced: int, chance: random.Random) -> bytes:
    """The log with some blocks behind `synced` as they were before, empty, or with something in them."""
    first = -(-synced // BLOCK) * BLOCK
    kept = bytearray(log[: chance.choice(edges(first, max(first, len(log))))])
    for at in edges(first, len(kept) - 1):
        match chance.randrange(4):
            case 0:
                kept[at : at + BLOCK] = bytes(len(kept[at : at + BLOCK]))
            case 1:
                kept[at : at + BLOCK] = chance.randbytes(len(kept[at : at + BLOCK]))
            case _:
                pass
    return bytes(kept)


def lose_power(
    folder: Path, losses: Losses, chance: random.Random, *, commits: int, deep: int, behind: int, blocks: int
) -> None:
    """One moment: cut at `deep` edges anywhere if that is fair, at `behind` edges behind what is synced, and `blocks`
    times with other blocks there."""
    with committing(folder / "live") as running:
        moment = running.after(commits)
    synced, end = moment.synced, len(moment.log)
    cuts = [*edges(synced, end)][:behind]
    if moment.untouched:
        anywhere = edges(0, synced)
        cuts += anywhere if deep >= len(anywhere) else chance.sample(anywhere, deep)
    for cut in cuts:
        open_after(moment, moment.log[:cut], folder / "after", losses, cut=cut)
    for _ in range(blocks):
        open_after(moment, torn(moment.log, synced=synced, chance=chance), folder / "after", losses, cut=synced)


@pytest.mark.fault("D22")
def test_a_cut_log_has_everything_that_lies_before_the_cut(tmp_path: Path, figure: Count) -> None:
    losses = Losses()
    lose_power(tmp_path, losses, random.Random(SEED), commits=4, deep=60, behind=60, blocks=4)
    losses.add_to(figure)
    assert losses.tried > 50


@pytest.mark.fault("D22")
@pytest.mark.kill
@pytest.mark.parametrize("number", range(40))
def test_nothing_acknowledged_is_lost_when_the_power_fails(number: int, tmp_path: Path, figure: Count) -> None:
    losses, chance = Losses(), random.Random(f"{SEED} {number}")
    commits = chance.choice((chance.randint(1, 40), chance.randint(1, 500)))
    lose_power(tmp_path, losses, chance, commits=commits, deep=40, behind=40, blocks=20)
    losses.add_to(figure)
