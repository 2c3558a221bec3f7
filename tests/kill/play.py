"""One kill from start to end: the turn is started, killed, judged, resumed, and judged again."""

import random

import pytest

from tests.kill import at_screen, at_shell
from tests.kill.stage import Stage, StuckError
from tests.kill.strikes import EntryPoint, Phase, Strike
from tests.kill.verdict import Case, in_the_end


def play(
    stage: Stage, entry_point: EntryPoint, wanted: Strike, *, number: int, kind: str, chance: random.Random
) -> Case:
    """Everything that was found; faults are in the case and not raised."""
    case = Case(strike=wanted, kind=kind, number=number)
    at = at_screen if entry_point is EntryPoint.SCREEN else at_shell
    before = len(stage.scene.server.requests)
    try:
        at.killed(stage, case)
        if chance.random() < 0.5:
            # Meanwhile the user goes on working: what was written must not come back.
            stage.scene.replace_written(number)
        at.gone_on_with(stage, case)
    except StuckError as error:
        case.other.append(str(error))
    in_the_end(stage, case, before)
    return case


def of_phase(phase: Phase) -> pytest.MarkDecorator:
    """The mark of a test of deaths in that phase."""
    return pytest.mark.fault(f"D{phase + 1:02}")
