"""`kill -9` at each step around the rows of the log about a command and a contained apply: decision, start and end.

After each kill, and at the end, the chain is whole, the rows are those of what is stored about the calls, and nothing
has taken effect without a `start` row that a row before it permits (`verdict.faults_of_log`).
"""

import pytest

from tests.e2e.installation import Installation
from tests.kill.scene import Scene
from tests.kill.stage import Stage
from tests.kill.verdict import faults_of_log, journal
from tests.tools.running import needs_sandbox

POINTS = ("before_commit", "in_commit", "after_commit", "after_inspect", "before_tool", "after_tool", "decision_found")
KILLED = -9

pytestmark = [pytest.mark.kill, pytest.mark.usefixtures("own_tool")]


class Effect:
    """A call that waits for a decision: what it does, and how often it has done it."""

    def __init__(self, stage: Stage, kind: str, number: int) -> None:
        self.stage, self.kind = stage, kind
        self.file = stage.installation.workspace / f"{kind}-{number}.txt"
        words = {"command": f"run `echo x >> {self.file.name}`", "apply": f"write x to {self.file.name}"}[kind]
        contained = ("--contain",) if kind == "apply" else ()
        ran = stage.run("-p", words, "--role", "coder", "--output-format", "json", *contained)
        assert ran.code == 3, ran.err
        self.session, asked = ran.json["session_id"], ran.json["pending"][0]
        assert asked["tool"] == {"command": "shell_exec", "apply": "contained_apply"}[kind]
        self.call = asked["id"]
        self.digest = stage.run("approvals", "show", self.call, "--output-format", "json").json["digest"]

    def count(self) -> int:
        return self.file.read_text().count("x") if self.file.exists() else 0

    def starts(self) -> int:
        return sum(row.call_id == self.call for row in journal(self.stage))

    def checked(self) -> None:
        assert faults_of_log(self.stage) == []
        assert self.count() <= self.starts(), "an effect without its row"

    def decided(self, point: str = "") -> int:
        words = ("approvals", "approve", self.call, "--digest", self.digest)
        code = self.stage.command(*words, point=point).ended().code
        self.checked()
        return code

    def gone_on_with(self, point: str = "") -> int:
        code = self.stage.command("resume", self.session, point=point).ended().code
        self.checked()
        return code


@needs_sandbox
@pytest.mark.parametrize("point", [*POINTS, "after_spawn", "contained"])
@pytest.mark.parametrize("kind", ["command", "apply"])
def test_no_effect_is_without_its_row_and_no_row_without_what_it_says(
    kind: str, point: str, installation: Installation
) -> None:
    stage = Stage(installation, Scene(installation.workspace))
    number = 0
    while True:
        number += 1
        effect = Effect(stage, kind, number)
        if effect.decided(f"in_posting:{number}") == KILLED:
            # A decision whose transaction was not over is none.
            assert effect.decided() == 0
        if effect.gone_on_with(f"{point}:{number}") != KILLED:
            break
        ended = effect.gone_on_with()
        # A command of unknown outcome waits for its user; an apply finds out itself.
        assert (ended, effect.count()) == (0, 1) or (ended == 3 and kind == "command" and effect.starts() == 1)
    assert effect.count() == 1 and (number > 1 or point in ("after_spawn", "contained", "decision_found"))
    print(f"{kind}, {point}: {number - 1} kills")
