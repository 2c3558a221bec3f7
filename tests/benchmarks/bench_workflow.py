"""CPU time of the workflow machines per iteration: ``pytest -s tests/benchmarks/bench_workflow.py``.

Not collected by default. An iteration is one model call with its tool call, or an answer that is given back: all that
the engine does for it, without store, model and tools.
"""

import time
from collections.abc import Callable

import pytest

from chatops.domain.ids import MessageId
from chatops.domain.messages import AssistantMessage, Message, UserMessage
from chatops.domain.model import ModelReply
from chatops.engine.contract import StepContract
from chatops.engine.state import Finished
from chatops.policy.workflow import Validation
from tests.engine.runs import RunWorld, a_step
from tests.engine.steps import BY_COMPONENT, SCHEMA, calls, says, step_grant, validate
from tests.engine.world import World, raw

pytestmark = pytest.mark.bench

MOST_MS = 1.0
ROUNDS = 50
CONTRACT = StepContract(output_schema=SCHEMA, validations=(BY_COMPONENT, Validation(tool="validate_full")))


def best(work: Callable[[], object], *, repeat: int = 5) -> float:
    """CPU seconds of the fastest of some runs."""
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def turn(history: tuple[Message, ...]) -> None:
    """A turn of `ROUNDS` iterations: changes, validations, and answers that are given back."""
    world = World.begin(step_grant(max_rounds=ROUNDS), contract=CONTRACT, history=history)
    said: list[ModelReply] = [
        calls(raw("configure", f'{{"n":{n}}}')) if n % 3 == 0 else calls(validate(f"c{n}")) if n % 3 == 1 else says(7)
        for n in range(ROUNDS)
    ]
    world.drain(*said, says({"component": "c1"}))
    assert isinstance(world.state.phase, Finished)
    assert len(world.requests) == ROUNDS + 1


def test_an_iteration_of_a_step_costs_less_than_a_millisecond() -> None:
    history: tuple[Message, ...] = tuple(
        message
        for n in range(100)
        for message in (
            UserMessage(id=MessageId(f"s.0.m{2 * n}"), text="word " * 200),
            AssistantMessage(id=MessageId(f"s.0.m{2 * n + 1}"), text="word " * 200),
        )
    )
    alone = best(lambda: turn(())) / ROUNDS * 1e3
    after_much = best(lambda: turn(history)) / ROUNDS * 1e3
    print(f"\nper iteration: {alone:.2f} ms, {after_much:.2f} ms with 200 messages before it")
    assert alone < MOST_MS
    assert after_much < MOST_MS


def test_a_turn_of_a_run_costs_less_than_a_millisecond() -> None:
    steps = [a_step(f"step{n}", max_attempts=3) for n in range(20)]

    def run() -> None:
        world = RunWorld.begin(*steps)
        for _ in steps:
            world.fail("no luck " * 50)
            world.end(answer="x" * 4_000)

    cost = best(run) / (2 * len(steps)) * 1e3
    print(f"\nper turn of a run of 20 steps: {cost:.2f} ms")
    assert cost < MOST_MS
