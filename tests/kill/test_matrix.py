"""`kill -9` in every phase of a gated turn, at both entry points, at random places and moments; then on to the end.

    .venv/bin/python -m tests.faults --kill                          all figures
    .venv/bin/python -m pytest -m kill -n 4 tests/kill/test_matrix.py

Phases are those of `tests.kill.strikes.Phase`. About half of the kills strike at a named place of the program,
or some milliseconds after it, the others a random while after something that can be seen. After each the program is
started again, what it says of what was left is read, and the turn is gone on with as a user would: what asks is
approved, what may have run is never run again. ``CHATOPS_KILLS`` is the number of kills for each phase and entry
point (30), ``CHATOPS_KILL_SEED`` repeats a run.
"""

import os
import random

import pytest

from tests.e2e.installation import Installation
from tests.kill.play import of_phase, play
from tests.kill.scene import Scene
from tests.kill.stage import Stage
from tests.kill.strikes import EntryPoint, Phase, kind_for, strike
from tests.support.figures import Count

KILLS = int(os.environ.get("CHATOPS_KILLS", "30"))
SEED = int(os.environ.get("CHATOPS_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
BATCH = 5

pytestmark = [pytest.mark.kill, pytest.mark.usefixtures("own_tool")]


@pytest.mark.parametrize("batch", range(-(-KILLS // BATCH)))
@pytest.mark.parametrize("phase", [pytest.param(phase, id=f"P{phase.value}", marks=of_phase(phase)) for phase in Phase])
@pytest.mark.parametrize("entry_point", EntryPoint)
def test_killed_in_this_phase_nothing_is_lost_or_done_twice(
    entry_point: EntryPoint,
    phase: Phase,
    batch: int,
    installation: Installation,
    figure: Count,
) -> None:
    chance = random.Random(f"{SEED} {entry_point} {phase} {batch}")
    faults: list[str] = []
    kills = 0
    number = 1
    with Scene(installation.workspace).playing() as scene:
        installation.use(scene.registry())
        stage = Stage(installation, scene)
        while kills < min(BATCH, KILLS - batch * BATCH):
            wanted = strike(entry_point, phase, chance)
            case = play(stage, entry_point, wanted, number=number, kind=kind_for(wanted, chance), chance=chance)
            number += 2
            faults += case.faults
            if not case.killed:
                break
            kills += 1
            case.add_to(figure)
    assert faults == [], f"seed {SEED}: {len(faults)} faults\n" + "\n".join(faults)
