"""`kill -9` of the chat on a real terminal, hundreds of times, at random moments of a gated turn; prints figures.

    .venv/bin/python -m pytest -m kill -s tests/kill    (about 3 s a kill)

Half of the kills strike a random while after something a person can see (the start, a message sent, the dialog, the
approval), half at a random one of the places where a step is stored or performed. After each the chat is started
again with ``-c`` and goes on as a person would: approve what asks, never run again what may have run, send the
message again if it is not there. ``CHATOPS_KILLS`` and ``CHATOPS_KILL_SEED`` set how many, and which.
"""

import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

from chatops.config.failpoints import NAMES, VARIABLE
from chatops.domain.ids import TurnId
from chatops.domain.messages import Message, UserMessage
from chatops.domain.tools import Outcome
from tests.e2e.desk import APPROVE, ChatTerminal, Desk, registry
from tests.support import processes
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says

KILLS = int(os.environ.get("CHATOPS_KILLS", "300"))
SEED = int(os.environ.get("CHATOPS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
UNKNOWN = "u tell the model it is unknown"
EMPTY = "Message (Enter sends"
MOMENTS = ("start", "sent", "dialog", "approved", "effect", "answer")
LATEST_S = 0.7
"""How long after such a moment a kill strikes at most."""
PATIENCE_S = 20.0
"""A chat that has come to none of its moments by then is stuck."""
LOOK_S = 0.01
AGAIN_S = 3.0
"""A person does not press the same key again before that."""
BATCH = 10
KILLED = -9

pytestmark = pytest.mark.kill


def model(request: SeenRequest) -> Completion:
    """For the message ``effect N`` one line N more in a file, and then a word about it."""
    last = max(place for place, message in enumerate(request.messages) if message["role"] == "user")
    number = request.last_user.removeprefix("effect ")
    if any(message["role"] == "tool" for message in request.messages[last:]):
        return says(f"finished {number}.")
    return calls(call("shell_exec", command=f"echo {number} >> effects.txt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """When the next kill strikes."""

    moment: str = ""
    delay_s: float = 0.0
    failpoint: str = ""


@dataclass(slots=True, kw_only=True)
class Figures:
    """What came of it."""

    kills: int = 0
    turns: int = 0
    unknown: int = 0
    where: Counter[str] = field(default_factory=Counter)
    twice: list[str] = field(default_factory=list)
    """Effects that came about more than once."""
    missing: list[str] = field(default_factory=list)
    """Effects that did not come about although nothing says that their outcome is unknown."""
    again: list[str] = field(default_factory=list)
    """Attempts after the first, which nobody asked for."""
    lost: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """All that must not be."""
        kinds = (self.twice, self.missing, self.again, self.lost, self.damage, self.refused, self.crashes, self.stuck)
        return [fault for kind in kinds for fault in kind]

    def add(self, other: "Figures") -> None:
        """Add another batch's figures."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def __str__(self) -> str:
        where = ", ".join(f"{name} {count}" for name, count in sorted(self.where.items()))
        return "\n".join(
            [
                f"{self.kills} kills ({where})",
                f"effects > 1: {len(self.twice)} of {self.turns}; outcome unknown: {self.unknown}; "
                f"missing: {len(self.missing)}; attempts nobody asked for: {len(self.again)}",
                f"acknowledged rows lost: {len(self.lost)}; store damaged: {len(self.damage)}; "
                f"requests a strict server refuses: {len(self.refused)}; "
                f"crashes: {len(self.crashes)}; stuck: {len(self.stuck)}",
            ]
        )


class Person:
    """Follows the screen and answers; `effect N` is sent until N is finished, then N + 1."""

    def __init__(self, desk: Desk, terminal: ChatTerminal, *, number: int) -> None:
        self._desk = desk
        self._terminal = terminal
        self._sent = False
        self._pressed = 0.0
        self.number = number
        self.moments: dict[str, float] = {}

    def until(self, over: Callable[["Person"], bool]) -> bool:
        """Act until `over`, or until the program is gone (True) by itself."""
        while not over(self):
            if not processes.running(self._terminal.pid):
                return True
            self._act(self._terminal.text())
            time.sleep(LOOK_S)
        return False

    def _act(self, text: str) -> None:
        if "coder · " in text:
            self._reach("start")
        if self._desk_has_effect():
            self._reach("effect")
        if APPROVE in text or UNKNOWN in text:
            self._reach("dialog")
            self._press("u" if UNKNOWN in text else "a")
            self._reach("approved")
            return
        if f"finished {self.number}." in text and "working" not in text:
            self._reach("answer")
            self.number += 1
            self._sent = False
        elif "coder · " in text and not self._sent and not self._begun(text):
            if EMPTY not in text:
                # A key that came too late for the dialog, or what was being typed when it was killed.
                self._terminal.press("backspace")
                return
            self._terminal.say(f"effect {self.number}")
            self._sent = True
            self._reach("sent")

    def _press(self, key: str) -> None:
        if time.monotonic() > self._pressed + AGAIN_S:
            self._pressed = time.monotonic()
            self._terminal.press(key)

    def _begun(self, text: str) -> bool:
        return f"effect {self.number}" in text or "waiting" in text or "working" in text

    def _desk_has_effect(self) -> bool:
        return str(self.number) in effects(self._desk.workspace)

    def _reach(self, moment: str) -> None:
        self.moments.setdefault(moment, time.monotonic())


def effects(workspace: Path) -> list[str]:
    """The lines that were written."""
    file = workspace / "effects.txt"
    return file.read_text().splitlines() if file.exists() else []


def plan(chance: random.Random) -> Plan:
    """At random: after something that can be seen, or where a step is stored or performed."""
    if chance.random() < 0.5:
        return Plan(moment=chance.choice(MOMENTS), delay_s=chance.uniform(0, LATEST_S))
    return Plan(failpoint=f"{chance.choice(NAMES)}:{chance.randint(1, 6)}")


def strikes(wanted: Plan, begun: float) -> Callable[[Person], bool]:
    """Whether the time has come; a failpoint strikes by itself, or never in a turn that is over too soon."""

    def over(person: Person) -> bool:
        now = time.monotonic()
        if now > begun + PATIENCE_S:
            return True
        at = person.moments.get(wanted.moment or "answer")
        return at is not None and now >= at + wanted.delay_s

    return over


@pytest.fixture(scope="module")
def totals() -> Iterator[Figures]:
    """The figures of all batches, printed at the end."""
    figures = Figures()
    yield figures
    print(f"\nseed {SEED}: {figures}")


@pytest.mark.parametrize("batch", range(-(-KILLS // BATCH)))
def test_an_effect_comes_about_at_most_once_whenever_the_chat_is_killed(
    batch: int, desk: Desk, totals: Figures
) -> None:
    chance = random.Random(SEED + batch)
    figures = Figures()
    number = 1
    with FakeOpenAI(model) as server:
        desk.use(registry(server.url))
        for _ in range(min(BATCH, KILLS - batch * BATCH)):
            number = one_kill(desk, plan(chance), figures, number)
        number = finish(desk, number)
        figures.refused += server.violations
    judge(desk, figures, number)
    totals.add(figures)
    assert figures.faults == [], f"seed {SEED}, batch {batch}: {figures}"


def one_kill(desk: Desk, wanted: Plan, figures: Figures, number: int) -> int:
    """Start the chat, go on, kill it; the number of the effect that is due now."""
    with desk.open("-c", "--role", "coder", env={VARIABLE: wanted.failpoint}) as terminal:
        begun = time.monotonic()
        person = Person(desk, terminal, number=number)
        gone = person.until(strikes(wanted, begun))
        if gone and (code := terminal.wait_exit()) != KILLED:
            figures.crashes.append(f"exit {code} after {wanted}:\n{terminal.text()}")
        elif not gone and time.monotonic() > begun + PATIENCE_S:
            figures.stuck.append(f"after {wanted}:\n{terminal.text()}")
        terminal.kill9()
        text = terminal.text()
    figures.kills += 1
    figures.where[wanted.moment or wanted.failpoint.partition(":")[0]] += 1
    figures.lost += lost(desk, text)
    with desk.store() as store:
        figures.damage += store.check()
    return person.number


def lost(desk: Desk, text: str) -> list[str]:
    """What had been on the screen as said or done and is not in the store."""
    with desk.store() as store:
        history: list[Message] = []
        for info in store.sessions():
            history += store.history(info.id)
            if info.active_turn is not None:
                history += store.load_turn(info.active_turn).messages
        done = [row.arguments for turn in turns_of(history) for row in store.journal(turn) if row.outcome is not None]
    said = {message.text for message in history if isinstance(message, UserMessage)}
    missing = [shown for shown in re.findall(r"❯ (effect \d+)$", text, re.MULTILINE) if shown not in said]
    ran = re.findall(r"✓ shell_exec +(echo \d+ >> effects\.txt)", text)
    return [*missing, *(command for command in ran if not any(command in arguments for arguments in done))]


def turns_of(history: Sequence[Message]) -> list[TurnId]:
    """The turns that messages belong to."""
    return sorted({TurnId(turn) for message in history if (turn := message.id.rpartition(".m")[0])})


def finish(desk: Desk, number: int) -> int:
    """One last start, undisturbed, until what is open is finished; the number after it."""
    with desk.open("-c", "--role", "coder") as terminal:
        person = Person(desk, terminal, number=number)
        deadline = time.monotonic() + PATIENCE_S
        person.until(lambda someone: someone.number > number or time.monotonic() > deadline)
        assert person.number > number, terminal.text()
    return person.number


def judge(desk: Desk, figures: Figures, number: int) -> None:
    """Compare what was written with what the journal says."""
    with desk.store() as store:
        history = [message for info in store.sessions() for message in store.history(info.id)]
        rows = [row for turn in turns_of(history) for row in store.journal(turn)]
    written = Counter(effects(desk.workspace))
    unknown = {row.arguments for row in rows if row.outcome is Outcome.UNKNOWN}
    figures.turns += number - 1
    figures.unknown += len(unknown)
    figures.twice += [line for line, count in written.items() if count > 1]
    figures.again += [str(row) for row in rows if row.attempt > 1]
    for due in range(1, number):
        if str(due) not in written and not any(f"echo {due} >>" in arguments for arguments in unknown):
            figures.missing.append(str(due))
