"""Keys pressed in haste over a dialog: each counts for what was on the screen when it was pressed, or is named."""

import asyncio
import random
import re
from dataclasses import dataclass, field
from functools import cached_property

import pytest
from textual.events import Key
from textual.geometry import Region

from chatops.domain.decisions import Approved, Decision, Rejected
from chatops.domain.events import ApprovalRequested, AskReason
from chatops.domain.ids import CallId
from chatops.tui.dialogs.contained import ContainedScreen
from chatops.tui.dialogs.key_gate import MISSED_S, PAUSE_S, REPEAT_S, KeyGate
from tests.support.waiting import until
from tests.tui.app.fakes import ROUND, FakeSession, long_facts, pending_call
from tests.tui.app.support_app import Stage, stage
from tests.tui.app.test_contained_dialog import asked as contained
from tests.tui.app.test_contained_dialog import taken as answers

SHOWN = re.compile(r"(\d) of \d")
GAPS = (0.0, 0.03, 0.06, 0.1, 0.25, 0.3, 0.45, 0.55, 0.8, 1.1, 2.1)
KEYS = ("d", "d", "d", "d", "a", "a", "a", "s", "tab", "shift+tab", "down", "v", "x")


def asked(count: int) -> FakeSession:
    """Return a session with that many pending calls."""
    return FakeSession(pending=[pending_call(number) for number in range(1, count + 1)])


def decided(running: Stage) -> list[tuple[int, Decision]]:
    return [(int(one.call_id.rpartition(".")[2]), one.decision) for one in running.session.taken]


async def press(running: Stage, *strokes: tuple[float, str]) -> None:
    """Press keys, each so many seconds after the one before."""
    for gap, key in strokes:
        running.clock.pass_(gap)
        await running.app._press_keys([key])
        await running.settle()


async def test_calls_are_denied_in_a_row_and_each_key_is_for_the_call_on_the_screen() -> None:
    async with stage(asked(3)) as running:
        await press(running, (1.0, "d"), (0.25, "d"), (0.8, "a"))
        assert decided(running) == [(1, Rejected()), (2, Rejected()), (3, Approved())]


async def test_a_key_that_comes_too_early_is_named_until_the_next_one() -> None:
    async with stage(asked(3)) as running:
        await press(running, (1.0, "d"))
        place = running.dialog.payload.region
        await press(running, (0.3, "a"))
        assert decided(running) == [(1, Rejected())]
        assert "not taken: a, too early" in running.text
        assert running.dialog.payload.region == place, "no line moves"
        running.clock.pass_(5)
        await running.settle()
        assert "not taken: a, too early" in running.text
        await press(running, (0.1, "down"))
        assert "not taken" not in running.text
        await press(running, (0.0, "a"))
        assert decided(running) == [(1, Rejected()), (2, Approved())]


async def test_keys_typed_before_a_dialog_is_drawn_are_in_the_message_however_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late: list[KeyGate] = []
    session, drawn = FakeSession(), KeyGate.drawn
    async with stage(session) as running:
        monkeypatch.setattr(KeyGate, "drawn", lambda gate, subject, now: late.append(gate))
        session.ask(pending_call())
        await until(lambda: late)
        running.clock.pass_(1.0)
        running.dialog._end_pause()
        await running.app._press_keys(["a"])
        await until(lambda: running.draft == "a" or "not taken" in running.text)
        assert (running.draft, running.session.taken) == ("a", [])
        drawn(late[0], late[0].subject, running.clock())
        await press(running, (1.0, "a"))
        assert decided(running) == [(1, Approved())]


def bright_keys(running: Stage) -> set[str]:
    """Return the keys that the legend of the dialog does not dim."""
    legend = running.dialog.query_one("#dialog-keys")
    strips = legend.render_lines(Region(0, 0, *legend.size))
    return {segment.text for strip in strips for segment in strip if segment.style and segment.style.bold}


async def test_the_legend_dims_the_keys_that_do_not_act_yet() -> None:
    async with stage(asked(2)) as running:
        assert not bright_keys(running), "just opened"
        running.clock.pass_(1.0)
        await until(lambda: {"a", "s", "A", "d", "Esc", "Tab", "v"} <= bright_keys(running))
        await press(running, (1.0, "d"))
        assert "a approve once" in running.text and "Keys act after a short pause." in running.text
        assert {"d", "D", "Esc", "Tab", "v"} <= bright_keys(running) and not {"a", "s", "c"} & bright_keys(running)
        await press(running, (0.1, "a"))
        assert not {"a", "d"} & bright_keys(running), "after a key that was not taken, d waits too"
        running.clock.pass_(0.6)
        await until(lambda: {"a", "d"} <= bright_keys(running))
        assert "s" not in bright_keys(running) and "Keys act after" not in running.text
        running.clock.pass_(MISSED_S)
        await until(lambda: "s" in bright_keys(running))
        await press(running, (0.05, "down"), (0.05, "tab"), (0.05, "tab"), (0.05, "escape"))
        assert not running.dialog_is_open, "what decides nothing never waits for that"


async def test_a_narrow_window_says_in_place_of_the_keys_that_they_wait() -> None:
    async with stage(asked(1), size=(40, 12)) as running:
        assert "Keys act after a short pause." in running.text and "approve" not in running.text.replace("Approve", "")
        running.clock.pass_(1.0)
        await until(lambda: "a" in bright_keys(running))
        assert "Keys act after" not in running.text


async def test_a_key_that_decides_nothing_does_not_wait_for_one_that_came_too_early() -> None:
    async with stage(asked(3)) as running:
        await press(running, (1.0, "down"))
        running.app.redraw()
        await running.settle()
        await press(running, (0.3, "A"))
        assert "not taken: A, too early" in running.text
        await press(running, (0.25, "tab"))
        assert decided(running) == [] and "2 of 3" in running.text


@pytest.mark.parametrize("missed", ["d", "tab"])
async def test_after_a_key_that_was_not_taken_the_next_one_does_not_approve_what_that_one_was_for(missed: str) -> None:
    async with stage(asked(3)) as running:
        await press(running, (0.3, missed), (0.8, "a"), (0.8, "a"), (1.9, "s"))
        assert decided(running) == []
        await press(running, (MISSED_S + 0.2, "s"))
        assert [number for number, _ in decided(running)] == [1]


async def test_a_key_that_was_not_taken_may_be_pressed_again_after_the_pause() -> None:
    async with stage(asked(3)) as running:
        await press(running, (1.0, "a"), (0.4, "a"), (0.6, "a"), (0.6, "a"))
        assert decided(running) == [(1, Approved()), (2, Approved()), (3, Approved())]


async def test_a_call_that_a_key_brought_up_is_approved_after_the_pause_only() -> None:
    async with stage(asked(2)) as running:
        await press(running, (1.0, "tab"), (0.4, "a"))
        assert decided(running) == [] and "2 of 2" in running.text
        await press(running, (0.6, "a"))
        assert decided(running) == [(2, Approved())]


@pytest.mark.parametrize("interval", [0.033, pytest.param(0.09, marks=pytest.mark.more)])
async def test_a_key_that_is_held_down_denies_one_call_and_types_nothing(interval: float) -> None:
    assert interval < REPEAT_S
    async with stage(asked(3)) as running:
        await press(running, (1.0, "d"))
        running.clock.pass_(0.25)
        for _ in range(12):
            running.clock.pass_(interval)
            running.app.post_message(Key("d", "d"))
        await running.settle()
        assert decided(running) == [(1, Rejected())] and running.draft == ""
        assert re.search("not taken: d, (held down|too early)", running.text), "a busy machine may see it let go"
        await press(running, (0.6, "d"))
        assert decided(running) == [(1, Rejected()), (2, Rejected())]


async def test_a_text_that_begins_with_a_letter_twice_is_text() -> None:
    async with stage(asked(2)) as running:
        running.clock.pass_(5)
        for key in "ddl":
            running.app.post_message(Key(key, key))
        while running.draft != "ddl":
            await running.pilot.pause(0.01)
        assert decided(running) == []


async def test_an_end_that_has_just_come_on_the_screen_is_approved_after_the_pause_only() -> None:
    async with stage(FakeSession(pending=[pending_call(facts=long_facts(60))])) as running:
        await press(running, (1.0, "G"), (0.3, "a"))
        assert decided(running) == [] and "not taken: a, too early" in running.text
        await press(running, (0.6, "a"))
        assert decided(running) == [(1, Approved())]


@pytest.mark.parametrize("change", ["decided elsewhere", "changed", "came first", "drawn again"])
async def test_all_keys_wait_when_another_call_is_shown_without_a_key(change: str) -> None:
    first, second, third = (pending_call(number) for number in (1, 2, 3))
    session = FakeSession(pending=[second, third])
    async with stage(session) as running:
        if change == "came first":
            session.change(pending=())
            session.ask(first, second, third)
        else:
            running.clock.pass_(1.0)
            if change == "drawn again":
                running.app.redraw()
            elif change == "changed":
                again = pending_call(2, digest="new", reason=AskReason.CHANGED, facts=long_facts(3))
                session.change(pending=(again, third))
                session.publish(ApprovalRequested(id=again.call.id, parent_id=ROUND, pending=again))
            else:
                session.decided_elsewhere(second.call.id, Rejected())
        await running.settle()
        await press(running, (0.3, "tab"), (0.1, "d"))
        assert decided(running) == []
        assert "not taken: d, too early" in running.text or running.draft
        await press(running, (0.6, "d"))
        expected = {"came first": 1, "changed": 2, "drawn again": 2, "decided elsewhere": 3}[change]
        assert decided(running) == [(expected, Rejected())]


async def test_an_answer_that_was_not_stored_does_not_make_the_next_key_answer_the_same_call() -> None:
    async with stage(asked(2)) as running:
        running.session.stale = True
        await press(running, (1.0, "d"))
        running.session.stale, running.session.taken = False, []
        await press(running, (0.8, "a"))
        assert decided(running) == []


class Slow(FakeSession):
    """A session whose store answers once `go` is set."""

    @cached_property
    def go(self) -> asyncio.Event:
        return asyncio.Event()

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        await self.go.wait()
        return await super().decide(call_id, digest=digest, decision=decision)


async def test_a_single_call_is_not_asked_about_while_its_answer_is_stored() -> None:
    slow = Slow(pending=[pending_call()])
    async with stage(slow) as running:
        running.clock.pass_(1.0)
        await running.app._press_keys(["a"])
        await until(lambda: ": sending" in running.text)
        assert "Approve" not in running.text and "next call" not in running.text
        slow.go.set()
        await running.settle()
        assert decided(running) == [(1, Approved())]


async def test_keys_that_are_pressed_while_an_answer_is_stored_are_named() -> None:
    slow = Slow(pending=[pending_call(1), pending_call(2)])
    async with stage(slow) as running:
        running.clock.pass_(1.0)
        for key in "da":
            await running.app._press_keys([key])
            while running.dialog.key_held:
                await running.pilot.pause(0.01)
            running.clock.pass_(0.3)
        assert "not taken: a, this call is decided" in running.text
        slow.go.set()
        await running.settle()
        await press(running, (0.8, "s"))
        assert decided(running) == [(1, Rejected())]


async def test_a_contained_turn_is_discarded_after_the_pause_only() -> None:
    async with contained() as running:
        await press(running, (0.3, "d"), (0.6, "tab"), (0.8, "a"), (1.0, "a"))
        assert answers(running) == [], "a was meant for what follows"
        assert isinstance(running.app.screen, ContainedScreen)
        await press(running, (MISSED_S + 0.2, "d"))
        assert answers(running) == [Rejected()]


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [(48, 16), (80, 24)])
async def test_a_dialog_that_goes_on_below_names_a_key_that_goes_there(size: tuple[int, int]) -> None:
    async with stage(FakeSession(pending=[pending_call(facts=long_facts(60))]), size=size) as running:
        assert "Space more below · G end" in running.text
        await press(running, (1.0, "G"))
        assert "echo line 60" in running.text and "more below" not in running.text
        await press(running, (0.1, "g"))
        assert "echo line 1 " in f"{running.text} ".replace("\n", " ") and "Space more below · G end" in running.text


async def test_the_contained_dialog_names_pgdn_because_space_ticks() -> None:
    async with contained(size=(80, 16)) as running:
        assert "PgDn more below · G end" in running.text
        await press(running, (1.0, "G"))
        assert "more below" not in running.text
        await press(running, (0.1, "g"))
        assert "PgDn more below · G end" in running.text


# Random keys


@dataclass
class Haste:
    """Presses random keys and takes down which call was on the screen then, and since when."""

    running: Stage
    chance: random.Random
    shown: int = 0
    since: float = 0.0
    presses: list[tuple[str, int, float]] = field(default_factory=list)
    """Each key with the call on the screen and the seconds for which it had been there."""

    def look(self) -> None:
        found = SHOWN.search(self.running.text) if self.running.dialog_is_open else None
        number = int(found[1]) if found else 1 if self.running.dialog_is_open else 0
        if number != self.shown:
            self.shown, self.since = number, self.running.clock()

    async def press(self) -> None:
        self.look()
        self.running.clock.pass_(self.chance.choice(GAPS))
        if self.chance.random() < 0.5:
            await self.running.settle()
        else:
            await asyncio.sleep(self.chance.uniform(0, 0.15))
        if self.chance.random() < 0.1 and (waiting := self.running.session.now.pending):
            self.running.session.decided_elsewhere(self.chance.choice(waiting).call.id, Rejected())
        self.look()
        key = self.chance.choice(KEYS)
        self.presses.append((key, self.shown, self.running.clock() - self.since))
        await self.running.app._press_keys([key])


class Latent(FakeSession):
    """A session whose store takes its time."""

    chance = random.Random(1)

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        return await super().decide(call_id, digest=digest, decision=decision)


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(30))
async def test_no_key_decides_another_call_than_the_one_that_was_on_the_screen(seed: int) -> None:
    chance = random.Random(seed)
    session = Latent(pending=[pending_call(number) for number in range(1, chance.randint(1, 5) + 1)])
    async with stage(session) as running:
        haste = Haste(running, chance)
        for _ in range(20):
            if not running.dialog_is_open:
                break
            await haste.press()
        await running.settle()
        left = list(haste.presses)
        for number, decision in decided(running):
            keys = ("d",) if isinstance(decision, Rejected) else ("a",) if decision == Approved() else ("s",)
            least = 0.0 if keys == ("d",) else PAUSE_S
            meant = [one for one in left if one[0] in keys and one[1] == number and one[2] >= least]
            assert meant, f"{decision} of call {number} by none of {haste.presses}"
            left.remove(meant[0])
