"""`kill -9` in every phase of a gated turn, at both doors, at random places and moments; then on to the end.

    .venv/bin/python -m tests.faults --kill                          all figures
    .venv/bin/python -m pytest -m kill -n 4 tests/kill/test_matrix.py

Phases are those of `tests.kill.strikes.Phase`. About half of the kills strike at a named place of the program,
or some milliseconds after it, the others a random while after something that can be seen. After each the program is
started again, what it says of what was left is read, and the turn is gone on with as a person would: what asks is
approved, what may have run is never run again. ``CHATOPS_KILLS`` is how many kills there are for each phase and door
(30), ``CHATOPS_KILL_SEED`` repeats a run.
"""

import os
import random

import pytest

from tests.e2e.desk import Desk
from tests.e2e.zygote import Zygote
from tests.kill.play import of_phase, play
from tests.kill.scene import Scene
from tests.kill.stage import Stage
from tests.kill.strikes import Door, Phase, kind_for, strike
from tests.support.figures import Count

KILLS = int(os.environ.get("CHATOPS_KILLS", "30"))
SEED = int(os.environ.get("CHATOPS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
BATCH = 5

pytestmark = pytest.mark.kill


@pytest.mark.parametrize("batch", range(-(-KILLS // BATCH)))
@pytest.mark.parametrize("phase", [pytest.param(phase, id=f"P{phase.value}", marks=of_phase(phase)) for phase in Phase])
@pytest.mark.parametrize("door", Door)
def test_killed_in_this_phase_nothing_is_lost_or_done_twice(
    door: Door, phase: Phase, batch: int, desk: Desk, zygote: Zygote, figure: Count
) -> None:
    chance = random.Random(f"{SEED} {door} {phase} {batch}")
    faults: list[str] = []
    kills = 0
    number = 1
    with Scene(desk.workspace).playing() as scene:
        desk.use(scene.registry())
        stage = Stage(desk, scene, zygote)
        while kills < min(BATCH, KILLS - batch * BATCH):
            wanted = strike(door, phase, chance)
            case = play(stage, door, wanted, number=number, kind=kind_for(wanted, chance), chance=chance)
            number += 2
            faults += case.faults
            if case.killed:
                kills += 1
                case.add_to(figure)
    assert faults == [], f"seed {SEED}: {len(faults)} faults\n" + "\n".join(faults)
