"""``/pending --all``, key by key: what is shown of all sessions, what reaches the store, and what never does."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from chatops.contained.text import Change, ContainedReview
from chatops.domain.canonical import canonical
from chatops.domain.decisions import Approved, Decision, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError
from chatops.domain.events import AskReason, Denial, PendingCall
from chatops.domain.ids import CallId, SessionId
from chatops.domain.tools import CONTAINED_APPLY, CallFacts
from chatops.tui.dialogs.all_pending import AllPendingScreen
from chatops.tui.dialogs.approval import ApprovalScreen
from chatops.tui.dialogs.key_gate import PAUSE_S
from chatops.wiring.all_pending import WaitingCall
from tests.tui.app.dialog_scenes import budget
from tests.tui.app.fakes import (
    OTHER,
    SESSION,
    FakeAllPending,
    FakeSession,
    FakeWorkspace,
    long_facts,
    pending_call,
    shell_facts,
    waiting_call,
)
from tests.tui.app.support_app import Stage, stage

DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n \n-a = 1\n+a = 2 \u202e\n"
CHANGES = ContainedReview(
    head="2 changed",
    notes=("Ran in the copy:", "  shell_exec make: success"),
    changes=(
        Change(path="a.py", title="change a.py", lines=("  mode 644 becomes 755",), diff=DIFF),
        Change(path="b.py", title="change b.py", lines=(), diff=DIFF, conflict="changed in the workspace"),
    ),
)


def in_session(number: int, **more: object) -> WaitingCall:
    """Return a call of a session of its own."""
    pending = pending_call(facts=shell_facts(f"echo {number}"), digest=f"digest-{number}")
    session = SessionId(f"20261120-09100{number % 10}-a1b{number}")
    values: dict[str, object] = {"pending": pending, "session_id": session, "title": f"title-{number}", **more}
    return waiting_call(**values)  # type: ignore[arg-type]


def changes(*, undo: bool = False, found: ContainedReview | str = CHANGES) -> WaitingCall:
    """Return the question about the changes of a contained turn."""
    given = canonical({"turn": "t.c0", "undo": True} if undo else {"turn": "t.c0", "list": 1})
    facts = CallFacts(arguments=given, workspace="/ws", paths=("/ws/a.py",))
    return waiting_call(pending_call(tool=CONTAINED_APPLY, facts=facts, digest="list-1"), changes=found)


@asynccontextmanager
async def all_pending(
    *calls: WaitingCall,
    size: tuple[int, int] = (80, 24),
    at: FakeAllPending | None = None,
    session: FakeSession | None = None,
) -> AsyncIterator[Stage]:
    """The app with ``/pending --all`` open, and each key taken."""
    at = at or FakeAllPending(*calls)
    async with stage(session, workspace=FakeWorkspace(everywhere=at), size=size) as running:
        running.app.chat.composer.set_text("/pending --all")
        await running.press("enter")
        await running.press("home")
        yield running


def decided(running: Stage) -> list[tuple[str, Decision]]:
    return [(call.pending.digest, decision) for call, decision in running.workspace.everywhere.taken]


def words(running: Stage) -> str:
    """Return the text on the screen in one line, without its frames."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", running.text).split())


def is_open(running: Stage) -> bool:
    return isinstance(running.app.screen, AllPendingScreen)


async def test_it_lists_the_calls_of_all_sessions_with_the_whole_sheet_of_one() -> None:
    second = in_session(2, folder="/home/ana/in\u202evoices", title="why\x1b[2J late")
    async with all_pending(in_session(1), second) as running:
        assert "Approve Shell?" in running.text and "coder (local) · 1 of 2, 2 undecided" in running.text
        assert re.search(r"> 10 min ago +Shell  echo 1 +workspace +coder +title-1", running.text)
        assert re.search(r"  10 min ago +Shell  echo 2 +in<U\+202E>v… +coder +why", running.text)
        await running.press("tab")
        assert "session      why␛[2J late" in running.text and "asked        2025-" in running.text
        assert 'folder       "/home/ana/in<U+202E>voices"' in running.text
        assert "asks because tool setting: shell_exec asks" in running.text


@pytest.mark.some(2)
@pytest.mark.parametrize(("key", "decision"), [("a", Approved()), ("d", Rejected())])
async def test_calls_are_decided_one_after_the_other_without_opening_their_sessions(
    key: str, decision: Decision
) -> None:
    async with all_pending(in_session(1), in_session(2)) as running:
        await running.press(key)
        assert decided(running) == [("digest-1", decision)]
        assert is_open(running) and "echo 2" in running.text
        word = "Approved" if key == "a" else "Denied"
        assert f"{word}: Shell echo 1. No process has the session open. To continue it: chatops" in words(running)
        await running.press(key)
        assert decided(running) == [("digest-1", decision), ("digest-2", decision)]
        assert not is_open(running) and words(running).count("To continue it: chatops resume X") == 2
        assert running.session.taken == []


async def test_a_denial_has_a_reason_for_the_model() -> None:
    async with all_pending(in_session(1), in_session(2)) as running:
        await running.press("D")
        await running.answer("use the mirror", "enter")
        assert decided(running) == [("digest-1", Rejected(reason="use the mirror"))]


@pytest.mark.more
async def test_what_needs_the_session_itself_is_not_offered_and_its_keys_do_nothing() -> None:
    async with all_pending(in_session(1), in_session(2)) as running:
        for key in ("s", "S", "r", "+", "e", "E", "R", "c", "A", "y", "n", "space", "u", "m"):
            await running.press(key)
            assert decided(running) == [] and is_open(running), key
        assert "this session" not in running.text and "edit" not in running.text
        await running.press("x", "a")
        assert decided(running) == [("digest-1", Approved())], "and the dialog was taking keys all the time"


async def test_a_call_is_approved_only_after_all_of_it_was_on_the_screen() -> None:
    call = in_session(1, pending=pending_call(facts=long_facts(60), digest="long"))
    async with all_pending(call, in_session(2)) as running:
        assert "a read on first:" in running.text
        await running.press("a")
        assert decided(running) == []
        await running.press("G", "a")
        assert decided(running) == [("long", Approved())]


async def test_what_the_rights_of_now_deny_is_not_approved() -> None:
    denied = replace(in_session(1).pending, denial=Denial(role="coder", by="site", could_run=("operator",)))
    call = replace(in_session(1), pending=denied)
    async with all_pending(call, in_session(2)) as running:
        assert "Not permitted now: Shell" in running.text and "a approve" not in running.text
        await running.press("a")
        assert decided(running) == [] and "Denied by: site" in running.text
        await running.press("x", "d")
        assert decided(running) == [("digest-1", Rejected())]


async def test_a_denial_that_came_meanwhile_is_said_and_the_call_stays_undecided() -> None:
    async with all_pending(in_session(1), in_session(2)) as running:
        running.workspace.everywhere.refuse = ChatopsError("It cannot run now, as coder.")
        await running.press("a")
        assert "It cannot run now, as coder." in running.text and "1 of 2, 2 undecided" in running.text


@pytest.mark.parametrize(("key", "decision"), [("u", Rejected()), ("m", MarkedDone())])
async def test_an_unknown_outcome_is_left_unknown_or_marked_as_done_but_not_run_again(
    key: str, decision: Decision
) -> None:
    unknown = replace(in_session(1).pending, reason=AskReason.OUTCOME_UNKNOWN, why="interrupted")
    async with all_pending(replace(in_session(1), pending=unknown), in_session(2)) as running:
        assert "u tell the model it is unknown" in running.text and "run it again" not in running.text
        await running.press("a", "R", "d", "x")
        assert decided(running) == []
        await running.press(key)
        assert decided(running) == [("digest-1", decision)]


async def test_a_question_about_a_budget_is_answered_too() -> None:
    async with all_pending(waiting_call(replace(budget(), digest="more")), in_session(2)) as running:
        assert "Go on for" in running.text and "d end the turn" in running.text
        await running.press("G", "a")
        assert decided(running) == [("more", Approved())]


async def test_changes_of_a_contained_turn_are_applied_once_all_of_them_were_on_the_screen() -> None:
    async with all_pending(changes(), in_session(2)) as running:
        assert "Apply the changes of this turn?" in running.text
        await running.press("a")
        assert decided(running) == []
        await running.press("G")
        assert "2 + a = 2 <U+202E>" in running.text and "In conflict, stays as it is" in running.text
        await running.press("a")
        assert decided(running) == [("list-1", Approved())]


async def test_a_conflict_that_arises_meanwhile_is_marked_and_has_to_be_read() -> None:
    """Two children have changed one file, and the changes of the other one were applied."""
    lost = replace(CHANGES, changes=tuple(replace(one, conflict="changed in the workspace") for one in CHANGES.changes))
    async with all_pending(changes(), in_session(2)) as running:
        await running.press("G")
        assert "a apply 1 of 1" in running.text
        running.workspace.everywhere.list_(changes(found=lost), in_session(2))
        await running.settle()
        assert "The changes differ from those that were shown." in words(running)
        running.clock.pass_(3.0)
        await running.press("G", "a")
        assert "[!] change a.py" in running.text and "a apply 0 of 0" in running.text
        await running.press("a")
        assert "Nothing can be applied: all changes are in conflict." in running.text and decided(running) == []


async def test_single_files_of_a_contained_turn_are_applied() -> None:
    one, conflict = CHANGES.changes
    more = replace(CHANGES, changes=(conflict, one, replace(one, path="c.py", title="change c.py")))
    async with all_pending(changes(found=more), in_session(2)) as running:
        await running.press("G")
        assert "a apply 2 of 2" in running.text and "t ticks" in running.text
        await running.press("t")
        assert "in conflict and stays as it is" in running.text, "the first file"
        await running.press("n", "t")
        assert "> [ ] change a.py" in running.text and "a apply 1 of 2" in running.text
        await running.press("n", "t", "a")
        assert decided(running) == [] and "Nothing is ticked. d: discard all." in running.text
        await running.press("t", "p", "n", "a")
        assert decided(running) == [("list-1", Approved(only=("c.py",)))]
        await running.press("x", "t", "n")
        assert "Only changes of a contained turn have files" in running.text and "ticks" not in running.text


async def test_what_was_unticked_stays_so_when_the_list_is_opened_again() -> None:
    async with all_pending(changes(), size=(80, 40)) as running:
        await running.press("t", "escape")
        running.app.chat.composer.set_text("/pending --all")
        await running.press("enter", "home")
        assert "[ ] change a.py" in running.text and "a apply 0 of 1" in running.text


async def test_changes_are_discarded_after_the_pause_only_and_sent_back_with_a_reason() -> None:
    async with all_pending(in_session(1), changes()) as running:
        await running.press("d")
        await running.type_fast("d")
        assert decided(running) == [("digest-1", Rejected())] and "not taken: d, too early" in running.text
        running.clock.pass_(3.0)
        await running.press("D")
        await running.answer("keep the old name", "enter")
        assert decided(running)[1:] == [("list-1", Rejected(reason="keep the old name", send_back=True))]


async def test_changes_that_cannot_be_read_are_not_decided() -> None:
    async with all_pending(changes(found="the list is gone\x1b[2J"), in_session(2)) as running:
        assert "The changes cannot be shown: the list is gone␛[2J" in running.text and "a approve" not in running.text
        await running.press("G", "a", "d", "D")
        assert decided(running) == [] and is_open(running)


async def test_an_undo_is_applied_or_left_and_cannot_be_sent_back() -> None:
    async with all_pending(changes(undo=True), in_session(2)) as running:
        assert "Undo these changes?" in running.text and "d leave them applied" in running.text
        await running.press("D")
        assert "An undo cannot be sent back" in running.text
        await running.press("G", "a")
        assert decided(running) == [("list-1", Approved())]


@pytest.mark.parametrize("pending", [pending_call(), changes().pending])
async def test_a_call_of_the_session_that_is_open_here_is_decided_in_its_own_dialog(pending: PendingCall) -> None:
    own = waiting_call(pending, session_id=SESSION)
    session = FakeSession()
    async with all_pending(own, in_session(2), session=session) as running:
        assert "this session" in running.text and "a approve" not in running.text
        session.change(pending=(pending_call(),))
        await running.press("G", "a", "d", "D", "x")
        assert decided(running) == [] and session.taken == [] and is_open(running)
        await running.press("enter")
        assert isinstance(running.app.screen, ApprovalScreen)
        await running.press("a")
        assert [one.decision for one in session.taken] == [Approved()]


async def test_enter_opens_the_session_with_its_dialog() -> None:
    other = FakeSession(pending=[pending_call()])
    other.change(session_id=OTHER)
    async with all_pending(waiting_call(pending_call()), in_session(2)) as running:
        running.workspace.others[OTHER] = other
        await running.press("enter")
        assert running.app.chat.session is other and running.dialog_is_open
        assert decided(running) == []


async def test_a_session_of_another_folder_is_not_opened_here() -> None:
    async with all_pending(in_session(1, folder="/home/ana/invoices"), in_session(2)) as running:
        await running.press("enter")
        assert is_open(running) and "It works in /home/ana/invoices. Open it there: chatops -r 2026" in words(running)


@pytest.mark.parametrize("change", ["new", "decided elsewhere", "another was decided elsewhere", "changed"])
async def test_all_keys_wait_when_the_list_changes_without_a_key(change: str) -> None:
    first, second, third = in_session(1), in_session(2), in_session(3)
    async with all_pending(first, second) as running:
        again = replace(first, pending=replace(first.pending, digest="digest-new", reason=AskReason.CHANGED))
        running.workspace.everywhere.list_(
            *{
                "new": (first, second, third),
                "decided elsewhere": (second,),
                "another was decided elsewhere": (first,),
                "changed": (again, second),
            }[change]
        )
        await running.settle()
        await running.type_fast("d", "tab", "d")
        assert decided(running) == [] and "not taken" in running.text
        running.clock.pass_(3.0)
        await running.press("d")
        shown = {"decided elsewhere": "digest-2", "changed": "digest-new"}.get(change, "digest-1")
        assert decided(running) == [(shown, Rejected())]


async def test_a_call_that_comes_while_a_reason_is_written_does_not_lose_it() -> None:
    async with all_pending(in_session(1), in_session(2)) as running:
        await running.press("D")
        running.workspace.everywhere.list_(in_session(1), in_session(2), in_session(3))
        await running.answer("not now", "enter")
        assert decided(running) == [("digest-1", Rejected(reason="not now"))]


async def test_an_answer_that_came_second_does_not_count() -> None:
    async with all_pending(in_session(1), in_session(2)) as running:
        running.workspace.everywhere.calls = (in_session(2),)
        await running.press("a")
        assert decided(running) == [] and "The call no longer waits for this decision." in running.text


async def test_without_a_call_there_is_no_desk_and_calls_of_this_session_have_its_dialog() -> None:
    async with all_pending() as running:
        assert not is_open(running) and "No call waits for a decision, in any session." in running.text
    session, at = FakeSession(), FakeAllPending(waiting_call(pending_call(), session_id=SESSION))
    at.lost = ["Session X was interrupted while running make. To decide: chatops resume X"]
    async with all_pending(at=at, session=session) as running:
        assert not is_open(running) and "To decide: chatops resume X" in words(running)
    async with stage(workspace=FakeWorkspace()) as running:
        running.app.chat.composer.set_text("/pending --everything")
        await running.press("enter")
        assert "Usage: /pending [--all]" in running.text


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_all_keys_stay_on_the_screen(size: tuple[int, int]) -> None:
    async with all_pending(*map(in_session, range(1, 9)), size=size) as running:
        await running.press("G", "g")
        for key in ("a approve once", "d deny", "Enter open its session", "Esc later", "Tab next call"):
            assert key in running.text, f"{key!r} is missing:\n{running.text}"


# Random keys

SHOWN = re.compile(r"(\d+) of \d+")
GAPS = (0.0, 0.03, 0.06, 0.1, 0.25, 0.3, 0.45, 0.55, 0.8, 1.1, 2.1)
KEYS = ("d", "d", "d", "d", "a", "a", "a", "u", "tab", "shift+tab", "down", "v", "x", "enter")


class Latent(FakeAllPending):
    """A store that takes its time."""

    chance = random.Random(1)

    async def decide(self, call: WaitingCall, decision: Decision) -> str:
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        return await super().decide(call, decision)


@dataclass
class Haste:
    """Presses random keys, and lets other processes ask and decide; notes what was on the screen, and since when."""

    running: Stage
    at: Latent
    chance: random.Random
    made: int
    shown: int = 0
    since: float = 0.0
    changed: float = 0.0
    """When the list has changed without a key."""
    presses: list[tuple[str, int, float, float]] = field(default_factory=list)
    """Each key with the call on the screen, the seconds for which it had been there, and since the list has changed."""

    def look(self) -> None:
        found = SHOWN.search(self.running.text) if is_open(self.running) else None
        number = int(found[1]) if found else 0
        if number != self.shown:
            self.shown, self.since = number, self.running.clock()

    def change(self) -> None:
        """Let another process ask, decide, or change what it asks."""
        calls = list(self.at.calls)
        match self.chance.choice(("ask", "decide", "change")):
            case "decide" if len(calls) > 1:
                calls.remove(self.chance.choice(calls))
            case "change" if calls:
                at = self.chance.randrange(len(calls))
                digest = f"{calls[at].pending.digest}+"
                calls[at] = replace(calls[at], pending=replace(calls[at].pending, digest=digest))
            case _:
                self.made += 1
                calls.append(in_session(self.made, folder="/elsewhere"))
        self.at.list_(*calls)
        self.changed = self.running.clock()

    async def press(self) -> None:
        self.look()
        self.running.clock.pass_(self.chance.choice(GAPS))
        if self.chance.random() < 0.5:
            await self.running.settle()
        else:
            await asyncio.sleep(self.chance.uniform(0, 0.15))
        if self.chance.random() < 0.15:
            self.change()
        self.look()
        now, key = self.running.clock(), self.chance.choice(KEYS)
        self.presses.append((key, self.shown, now - self.since, now - self.changed))
        await self.running.app._press_keys([key])


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(40))
async def test_no_key_decides_a_call_that_was_not_on_the_screen(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(2, 5)
    at = Latent(*(in_session(number, folder="/elsewhere") for number in range(1, count + 1)))
    async with all_pending(at=at) as running:
        haste = Haste(running, at, chance, made=count, shown=1, since=running.clock() - 2.0)
        for _ in range(20):
            if not is_open(running):
                break
            await haste.press()
        await running.settle()
        left = list(haste.presses)
        for digest, decision in decided(running):
            number = int(digest.partition("-")[2].rstrip("+"))
            key, least = ("d", 0.0) if isinstance(decision, Rejected) else ("a", PAUSE_S)
            meant = [
                one for one in left if one[0] == key and one[1] == number and one[2] >= least and one[3] >= PAUSE_S
            ]
            assert meant, f"{decision} of call {number} by none of {haste.presses}"
            left.remove(meant[0])


async def test_the_digest_of_an_answer_is_that_of_the_screen() -> None:
    first = in_session(1)
    async with all_pending(first, in_session(2)) as running:
        changed = replace(first, pending=replace(first.pending, digest="digest-new"))
        # The store knows of the change before the dialog has read it.
        running.workspace.everywhere.calls = (changed, in_session(2))
        await running.press("a")
        assert decided(running) == []
        assert first.pending.call.id == CallId(f"{first.session_id}.1.1.1")
