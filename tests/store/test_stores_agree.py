"""A store that is moved into its file answers like one that stays in memory, whatever is done in whatever order."""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chatops.domain.decisions import Principal
from chatops.domain.errors import StoreError
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.tools import Outcome
from chatops.engine.effects import TurnStep
from chatops.engine.state import CallState, CallStatus, Inspecting, TurnState
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.state import RunningStep, RunPhase
from chatops.store import audit
from chatops.store.base import Holder
from chatops.store.connection import Connection
from chatops.store.late_file import LateFile
from chatops.store.store import Store
from tests.store import runkit as run
from tests.store import storekit as kit

T = TypeVar("T")

picks = st.integers(0, 5)


class StoresAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1_795_256_112.0
        self.message_numbers = itertools.count(1)
        # Closed when it is collected.
        self.memory = kit.memory_rows(path=Path(self.folder.name) / "chatops.db", unsaved="disk full")
        self.late = self.store(LateFile(self.memory, notice="n"))
        self.ram = self.store(kit.memory_rows())
        self.ids: list[SessionId] = []
        self.steps: list[TurnStep] = []
        self.runs: dict[SessionId, WorkflowStep] = {}

    def teardown(self) -> None:
        for store in (self.late, self.ram):
            rows = store.audit()
            assert audit.verify(rows, ())[0] == []
            said = [audit.entry_of(row.body) for row in rows]
            logged = [(row["call_id"], row["digest"], row["by"]["uid"]) for row in said if row["kind"] == "decision"]
            decided = [(row.call_id, row.digest, row.by.uid) for row in store.decisions(limit=10_000)]
            assert sorted(logged) == sorted(decided), "a decision without its row in the log, or a row without one"
        self.late.close()
        self.folder.cleanup()

    def store(self, rows: Connection) -> Store:
        return Store(rows, clock=lambda: self.now, process=process, new_id=numbered())

    def both(self, act: Callable[[Store], T]) -> T | None:
        """Do the same to both; they give the same answer or refuse with the same kind of error."""
        answers: list[T | type[StoreError]] = []
        for store in (self.late, self.ram):
            try:
                answers.append(act(store))
            except StoreError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
        return None if isinstance(answers[0], type) else answers[0]

    def session_id(self, pick: int) -> SessionId:
        return self.ids[pick % len(self.ids)] if self.ids else SessionId("none")

    @rule(passed=st.sampled_from([1.0, -3600.0]))
    def wait(self, passed: float) -> None:
        self.now += passed

    @rule()
    def save(self) -> None:
        self.late.save()
        assert self.late.unsaved == ""

    @rule(workspace=st.sampled_from(["/a", "/b\udcff"]), title=st.sampled_from(["", "T"]))
    def create(self, workspace: str, title: str) -> None:
        made = self.both(lambda store: store.create_session(workspace=workspace, role="r", persona="p", title=title))
        assert made is not None
        self.ids.append(made.id)

    @rule(pick=picks, text=st.sampled_from(["hello\nyou", "\ud83d", "  "]))
    def append(self, pick: int, text: str) -> None:
        message = kit.user(f"x{next(self.message_numbers)}", text)
        self.both(lambda store: store.append_message(self.session_id(pick), message))

    @rule(pick=picks, back=st.none() | st.integers(0, 4))
    def fork(self, pick: int, back: int | None) -> None:
        session_id = self.session_id(pick)
        history = self.both(lambda store: store.history(session_id)) or ()
        before = None if back is None else history[back].id if back < len(history) else MessageId("strange")
        made = self.both(lambda store: store.fork_session(session_id, before=before))
        if made is not None:
            self.ids.append(made.id)

    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        session_id = self.session_id(pick)
        self.both(lambda store: store.delete_session(session_id))
        self.ids = [each for each in self.ids if each != session_id]

    @rule(pick=picks, role=st.none() | st.just("reviewer"), title=st.none() | st.just("New"))
    def update(self, pick: int, role: str | None, title: str | None) -> None:
        self.both(lambda store: store.update_session(self.session_id(pick), role=role, title=title))

    @rule(pick=picks, kept=st.booleans())
    def begin_turn(self, pick: int, kept: bool) -> None:
        session_id = self.session_id(pick)
        info = self.both(lambda store: store.session(session_id))
        turn = self.both(lambda store: store.next_turn_id(session_id))
        if info is not None and turn is not None:
            self.commit(replace(kit.first(turn, session_id, parent=info.head), takes_queued=kept))

    @rule(
        pick=picks,
        first=st.integers(0, 5),
        second=st.integers(0, 5),
        digest=st.sampled_from(["d1", "d2"]),
        decide=st.booleans(),
        grant=st.booleans(),
        say=st.booleans(),
        close=st.booleans(),
    )
    def go_on(
        self, pick: int, first: int, second: int, digest: str, decide: bool, grant: bool, say: bool, close: bool
    ) -> None:
        """Any step after any committed one: most are refused, and then both refuse."""
        if not self.steps:
            return
        before = self.steps[-1 - pick % len(self.steps)]
        turn = before.state.turn_id
        calls = [kit.a_call(turn, n) for n in (1, 2)]
        statuses: list[CallStatus] = [
            Inspecting(),
            kit.awaiting(digest),
            kit.awaiting(digest),
            kit.started(),
            kit.settled(Outcome.FAILED),
        ]
        chosen = [statuses[n] for n in (first, second) if n < len(statuses)]
        states = [CallState(call=call, status=status) for call, status in zip(calls, chosen, strict=False)]
        runs = [kit.run(each.call, attempt=first + 1) for each in states if each.status.kind == "started"]
        message = (kit.assistant(turn, n=100 + next(self.message_numbers)),) if say else ()
        self.commit(
            kit.then(
                before,
                kit.in_round(*states) if states else kit.finished(),
                *message,
                effects=tuple(runs),
                decisions=(kit.record(calls[0], digest=digest),) if decide else (),
                rules=(kit.remembered(source=calls[0].id),) if grant else (),
                results=(kit.closing(calls[0], attempt=second + 1),) if close else (),
            )
        )

    @rule(pick=picks)
    def repeat(self, pick: int) -> None:
        if self.steps:
            self.commit(self.steps[-1 - pick % len(self.steps)], new=False)

    @rule(pick=picks)
    def repeat_the_bare_state(self, pick: int) -> None:
        if self.steps:
            self.commit(TurnStep(state=self.steps[-1 - pick % len(self.steps)].state), new=False)

    def commit(self, step: TurnStep, *, new: bool = True) -> None:
        stored: list[bool] = []

        def act(store: Store) -> None:
            store.commit(step)
            stored.append(True)

        self.both(act)
        if new and stored:
            self.steps.append(step)

    @rule(
        pick=picks,
        index=st.integers(1, 2),
        digest=st.sampled_from(["d1", "d2"]),
        by=st.sampled_from([kit.ANA, kit.BEN]),
    )
    def decide(self, pick: int, index: int, digest: str, by: Principal) -> None:
        if self.steps:
            call = kit.a_call(self.steps[-1 - pick % len(self.steps)].state.turn_id, index)
            answer = replace(kit.decided(call, digest=digest), by=by)
            self.both(lambda store: store.post_decision(answer))

    @rule(pick=picks, phase=st.sampled_from(["running", "review", "over"]), again=st.booleans())
    def go_on_with_a_run(self, pick: int, phase: str, again: bool) -> None:
        """The next step of a run, or the same one again; the first makes a session a run."""
        session_id = self.session_id(pick)
        before = self.runs.get(session_id)
        if before is not None and again:
            self.both(lambda store: store.commit_run(before))
            return
        number = 1 if before is None else before.state.turns + 1
        phases: dict[str, RunPhase] = {
            "running": run.running(number, session_id=session_id),
            "review": run.review(),
            "over": run.over(),
        }
        state = run.state(phases[phase], session_id, seq=number - 1, turns=number)
        step = run.asks(state) if phase == "running" else WorkflowStep(state=state)
        stored: list[bool] = []

        def act(store: Store) -> None:
            store.commit_run(step)
            stored.append(True)

        self.both(act)
        if stored:
            self.runs[session_id] = step

    @rule(pick=picks)
    def begin_the_turn_of_a_run(self, pick: int) -> None:
        step = self.runs.get(self.session_id(pick))
        if step is not None and isinstance(step.state.phase, RunningStep):
            first = kit.first(step.state.phase.turn_id, step.state.session_id)
            self.commit(replace(first, state=replace(first.state, contract=run.kept())))

    @rule(pick=picks, end=st.booleans())
    def say_a_word(self, pick: int, end: bool) -> None:
        word = run.CANCELLED if end else run.accepted()
        self.both(lambda store: store.post_review(self.session_id(pick), word))

    @rule(pick=picks)
    def revoke(self, pick: int) -> None:
        given = self.both(lambda store: [row.rule for row in store.rules(session_id=self.session_id(pick))]) or ()
        self.both(lambda store: [store.revoke_rule(rule.id) for rule in given[:1]])

    @rule(pick=picks, text=st.sampled_from(["a", "b"]))
    def keep_text(self, pick: int, text: str) -> None:
        self.both(lambda store: store.queue_message(self.session_id(pick), text))

    @rule(pick=picks)
    def take_text(self, pick: int) -> None:
        self.both(lambda store: store.take_queued_message(self.session_id(pick), into="draft"))

    @invariant()
    def both_tell_the_same(self) -> None:
        self.both(lambda store: store.sessions())
        self.both(lambda store: store.runs())
        self.both(lambda store: store.pending_calls())
        self.both(lambda store: store.decisions())
        for session_id in self.ids[-3:]:
            self.both(partial(history_and_rules, session_id=session_id))
            self.both(partial(run_and_words, session_id=session_id))
        for step in self.steps[-3:]:
            self.both(partial(load, turn=step.state.turn_id))
            self.both(partial(journal_and_posted, turn=step.state.turn_id))


def history_and_rules(store: Store, *, session_id: SessionId) -> tuple[object, ...]:
    return (
        store.session(session_id),
        store.history(session_id),
        tuple(row.rule for row in store.rules(session_id=session_id)),
        store.queued_messages(session_id),
    )


def run_and_words(store: Store, *, session_id: SessionId) -> tuple[object, ...]:
    return store.load_run(session_id), store.posted_reviews(session_id)


def load(store: Store, *, turn: TurnId) -> TurnState:
    return store.load_turn(turn)


def journal_and_posted(store: Store, *, turn: TurnId) -> tuple[object, ...]:
    return store.journal(turn), store.posted_decisions(turn)


def numbered() -> Callable[[float], SessionId]:
    """Ids that both stores make alike, and never again."""
    numbers = itertools.count(1)
    return lambda now: SessionId(f"session-{next(numbers):04}-x")


def process() -> Holder:
    return Holder(host="box", pid=7, boot_id="b", pid_started="1")


TestStoresAgree = StoresAgree.TestCase
TestStoresAgree.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
