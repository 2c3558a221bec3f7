"""What moves: the sign where the answer will come, and the cards of calls that run."""

import asyncio
from dataclasses import replace

from textual.app import App, ComposeResult

from chatops.domain.events import (
    CallProgressed,
    CallProposed,
    CallStreamed,
    Event,
    Published,
    ReasoningDelta,
    RoundStarted,
    Status,
    TextDelta,
    ThoughtFinished,
    TurnFinished,
    TurnStatus,
)
from chatops.domain.ids import CallId
from chatops.domain.progress import Progress
from chatops.tui.theme import SPINNER
from chatops.tui.transcript.blocks import AnswerBlock, CardStatus, Op, Put, ToolCardBlock, UserBlock
from chatops.tui.transcript.transcript import Transcript
from tests.support.waiting import PATIENCE
from tests.tui.app.fakes import ROUND, SESSION, TURN, Clock, FakeSession, pending_call
from tests.tui.app.support_app import screen_text, stage

STARTED = RoundStarted(id=ROUND, parent_id=TURN, model="local")
ENDED = TurnFinished(id=TURN, parent_id=SESSION, status=Status.SUCCESS, result=TurnStatus.ANSWERED, answer="")
CARD = ToolCardBlock(id="call", tool="shell_exec", arguments='{"command":"make"}', status=CardStatus.RUNNING)


def says(text: str) -> TextDelta:
    return TextDelta(id=f"{ROUND}.thought", parent_id=ROUND, text=text)


class Host(App[None]):
    """An app with a transcript that is as full as its window, in which a turn runs."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, *, moves: bool = True) -> None:
        super().__init__()
        self.clock = Clock()
        self.moves = moves

    def compose(self) -> ComposeResult:
        yield Transcript(clock=self.clock)

    def on_mount(self) -> None:
        self.transcript.set_blocks([UserBlock(id=f"u{number}", text=f"message {number}") for number in range(30)])
        self.transcript.show_sign(running=True, role="coder")
        self.happens(STARTED)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def shown(self) -> list[str]:
        return [self.transcript.render_line(y).text.rstrip() for y in range(self.transcript.size.height)]

    def happens(self, event: Event, *ops: Op) -> None:
        self.transcript.sign.follow([Published(at=0, event=event)], now=self.clock())
        self.transcript.apply(ops)

    def passes(self, seconds: float) -> None:
        self.clock.pass_(seconds)
        self.transcript.tick(second=True)


async def test_the_sign_shows_time_and_tokens_and_goes_when_text_flows_without_moving_any_line() -> None:
    app = Host()
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.pause()
        assert app.shown[-1].strip() in SPINNER and app.shown[-3].endswith("message 29")
        app.happens(ReasoningDelta(id=f"{ROUND}.thought", parent_id=ROUND, text="x" * 50))
        app.happens(says("\n"))
        app.passes(3)
        assert app.shown[-1].strip()[1:] == " 3 s · 13 tokens · Esc to stop"
        app.happens(CallStreamed(id=f"{ROUND}.thought", parent_id=ROUND, characters=400))
        app.passes(1)
        assert app.shown[-1].strip()[1:] == " 4 s · 113 tokens · Esc to stop"
        before = app.shown
        app.happens(says("Hi"), Put(block=AnswerBlock(id="a", text="Hi", open=True)))
        assert app.shown[:-1] == before[:-1] and app.shown[-1].strip() == "Hi"


async def test_a_call_that_is_written_is_named_with_its_file_and_the_time_is_that_of_the_reply() -> None:
    app = Host()
    async with app.run_test(size=(70, 10)):
        app.passes(20)
        app.happens(STARTED)
        written = CallStreamed(id=f"{ROUND}.thought", parent_id=ROUND, characters=400, tool="file_write")
        app.happens(replace(written, path="a.py"))
        app.passes(2)
        assert app.shown[-1].strip()[1:] == " writing file_write a.py · 2 s · 100 tokens · Esc to stop"
        app.happens(replace(written, path="\x1b" + "x" * 99))
        app.passes(1)
        assert " writing file_write ␛xxx" in app.shown[-1]
        assert app.shown[-1].endswith("… · 3 s · 200 tokens · Esc to stop")
        app.happens(STARTED)
        app.passes(2)
        assert app.shown[-1].strip()[1:] == " 2 s · Esc to stop"


async def test_a_long_wait_for_the_first_token_says_what_is_awaited_where_there_is_room() -> None:
    for width in (70, 40):
        app = Host()
        async with app.run_test(size=(width, 10)):
            app.passes(2)
            assert "waiting" not in app.shown[-1]
            app.passes(2)
            assert app.shown[-1].endswith("4 s · Esc to stop") and ("waiting for the model" in app.shown[-1]) is (
                width == 70
            )
            app.happens(ReasoningDelta(id=f"{ROUND}.thought", parent_id=ROUND, text="x"))
            assert "waiting" not in app.shown[-1]


async def test_the_sign_comes_back_when_text_stalls_and_its_end_moves_no_line() -> None:
    app = Host()
    async with app.run_test(size=(60, 10)):
        app.happens(says("Hi"), Put(block=AnswerBlock(id="a", text="Hi", open=True)))
        app.passes(1)
        assert app.shown[-1].strip() == "Hi"
        app.passes(1)
        assert app.shown[-3].strip() == "Hi" and app.shown[-1].endswith("2 s · 1 token · Esc to stop")
        app.happens(says(" there"))
        assert app.shown[-1].endswith("Esc to stop"), "it does not come and go beneath text that is read"
        app.happens(ENDED)
        assert app.shown[-3].strip() == "Hi" and not app.shown[-1]
        app.transcript.apply([Put(block=UserBlock(id="next", text="Thanks"))])
        assert app.shown[-1].endswith("Thanks") and app.shown[-3].strip() == "Hi"


async def test_a_reply_that_gets_no_more_data_says_for_how_long_until_some_comes() -> None:
    for event in (says("Hi"), CallStreamed(id=f"{ROUND}.thought", parent_id=ROUND, characters=8)):
        app = Host()
        async with app.run_test(size=(60, 10)):
            app.passes(20)
            app.happens(event)
            app.passes(4)
            assert "no data" not in app.shown[-1]
            app.passes(8)
            assert app.shown[-1].strip()[1:] == " no data for 12 s · Esc to stop"
            app.happens(event)
            app.passes(1)
            assert "33 s · " in app.shown[-1]
            app.happens(ThoughtFinished(id=f"{ROUND}.thought", parent_id=ROUND, status=Status.SUCCESS, text="Hi"))
            app.passes(12)
            assert "no data" not in app.shown[-1]


async def test_the_view_of_a_user_who_has_scrolled_away_stays() -> None:
    app = Host()
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.pause()
        app.transcript.action_page_up()
        before = app.shown
        app.passes(5)
        app.happens(says("Hi"), Put(block=AnswerBlock(id="a", text="Hi", open=True)))
        app.passes(5)
        app.happens(ENDED)
        assert app.shown == before


async def test_the_card_of_a_running_call_moves_and_then_stands_still() -> None:
    app = Host()
    async with app.run_test(size=(60, 10)):
        proposed = CallProposed(id=CallId("call"), parent_id=ROUND, tool="shell_exec", arguments=CARD.arguments)
        app.happens(proposed, Put(block=CARD))
        signs = set()
        for _ in range(len(SPINNER)):
            app.passes(1 / 8)
            assert app.shown[-1].endswith("running"), "no sign of an answer besides"
            signs.add(app.shown[-1].strip()[0])
        assert signs == set(SPINNER)
        app.transcript.apply([Put(block=ToolCardBlock(id="call", tool="shell_exec", arguments="{}"))])
        assert app.transcript.moves
        app.happens(ENDED)
        assert not app.transcript.moves


async def test_where_nothing_moves_words_say_at_once_what_is_awaited() -> None:
    app = Host(moves=False)
    async with app.run_test(size=(70, 10)):
        assert app.shown[-1].strip() == "waiting for the model"
        app.passes(1)
        assert app.shown[-1].strip() == "waiting for the model · 1 s · Esc to stop"


async def test_with_reduced_motion_only_seconds_are_shown() -> None:
    app = Host(moves=False)
    async with app.run_test(size=(60, 10)):
        app.happens(ReasoningDelta(id=f"{ROUND}.thought", parent_id=ROUND, text="x" * 50))
        app.passes(0.5)
        assert not app.shown[-1]
        app.passes(2.5)
        assert app.shown[-1].strip() == "3 s · Esc to stop"
        app.transcript.apply([Put(block=CARD)])
        assert app.shown[-1].strip().startswith("» Shell")


def so_far(done: int, total: int, *, since: float = 0.0) -> Progress:
    return Progress(what="comparing files", done=done, total=total, unit="file", since=since, counted_since=since)


async def test_long_work_of_a_command_shows_a_bar_and_the_rest_and_goes() -> None:
    app = Host()
    async with app.run_test(size=(90, 10)):
        app.happens(ENDED)
        since = app.clock()
        app.transcript.show_work(so_far(0, 400, since=since))
        app.passes(0.15)
        assert app.transcript.moves and not app.shown[-1], "work that is over at once shows no bar"
        app.passes(4.85)
        app.transcript.show_work(so_far(100, 400, since=since))
        app.passes(1)
        assert app.shown[-1].strip()[1:] == f" comparing files  {'█' * 5}{'─' * 16}  100 of 400 files · about 20 s left"
        app.transcript.show_work(None)
        assert not app.shown[-1]
        assert not app.transcript.sign.running


async def test_a_card_shows_how_far_its_call_is_while_it_is_inspected_or_runs() -> None:
    app = Host()
    async with app.run_test(size=(90, 10)):
        card = replace(CARD, status=CardStatus.UNSETTLED)
        app.happens(CallProposed(id=CallId("call"), parent_id=ROUND, tool=card.tool, arguments=""), Put(block=card))

        def copied(progress: Progress | None) -> None:
            event = CallProgressed(id=CallId("call"), parent_id=ROUND, progress=progress)
            app.transcript.follow_calls([Published(at=0, event=event)])

        assert app.shown[-1].strip()[0] in SPINNER, "what is checked may take long"
        copied(so_far(0, 400, since=app.clock()))
        app.passes(0.15)
        assert app.shown[-1].endswith("make"), "no word of a result"
        copied(so_far(100, 400, since=app.clock() - 7))
        app.passes(0.25)
        assert app.shown[-1].strip() == f"comparing files  {'█' * 5}{'─' * 16}  100 of 400 files · about 20 s left"
        assert app.shown[-2].strip()[0] in SPINNER
        copied(None)
        assert app.shown[-1].endswith("make") and app.shown[-1].strip()[0] in SPINNER, "it has not started yet"
        app.transcript.apply([Put(block=replace(CARD, status=CardStatus.SETTLED))])
        copied(so_far(200, 400, since=app.clock() - 7))
        app.passes(1)
        assert "400" not in "".join(app.shown), "a call that was given up may still work"


async def test_a_call_that_was_never_settled_stands_still_when_no_turn_works() -> None:
    app = Host()
    async with app.run_test(size=(90, 10)):
        app.happens(ENDED, Put(block=replace(CARD, status=CardStatus.UNSETTLED)))
        app.transcript.show_sign(running=False, role="coder")
        app.passes(1)
        assert app.shown[-1].strip().startswith("… Shell")


async def test_with_reduced_motion_progress_is_words_that_change_once_a_second() -> None:
    app = Host(moves=False)
    async with app.run_test(size=(90, 10)):
        app.happens(ENDED)
        app.clock.pass_(1)
        since = app.clock() - 3
        for done in (100, 200):
            app.transcript.show_work(so_far(done, 400, since=since))
            app.transcript.tick(second=False)
            assert app.shown[-1].strip().startswith("comparing files  100 of 400 files · ")
        app.passes(1)
        assert app.shown[-1].strip() == "comparing files  200 of 400 files · a few seconds left"


async def test_a_timer_runs_while_something_does_also_behind_help_but_not_while_a_dialog_is_waited_for() -> None:
    session = FakeSession()
    async with stage(session) as running:
        ticker = running.app.chat._ticker

        async def wait_until(*, ticks: bool) -> None:
            async with asyncio.timeout(PATIENCE):
                while ticker.ticks is not ticks:
                    await running.pilot.pause(0.01)

        await wait_until(ticks=False)
        session.start_turn("run the tests")
        await wait_until(ticks=True)
        await running.press("f1")
        running.clock.pass_(7)
        async with asyncio.timeout(PATIENCE):
            while " 8 s" not in screen_text(running.app, running.app.chat):
                await running.pilot.pause(0.01)
        await running.press("escape")
        session.ask(pending_call())
        await wait_until(ticks=False)
