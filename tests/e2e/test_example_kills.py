"""`kill -9` at every place between the approval of an edit and the question of the gate, in the workflow code-change on
the demo model: however it dies, the edit is made exactly once, and the file says so.
"""

import pytest

from chatops.config.failpoints import VARIABLE, Failpoint
from tests.e2e.fork_server import ForkServer
from tests.e2e.installation import Installation
from tests.support.command_line import Ran

KILLED = -9
PAUSED = 3
EDIT = 'replace "Helo" with "Hello, not Helo" in greet.py'
"""Making it twice shows: each time adds a word."""
AGAIN = 2
"""Commands after the kill: the first reaches the gate, the second changes nothing."""
REACHED: dict[Failpoint, int] = {
    "after_commit": 8,
    "before_tool": 1,
    "after_tool": 1,
    "after_model": 1,
    "before_run_commit": 1,
    "in_run_commit": 1,
    "after_run_commit": 1,
}
"""How often the run reaches each failpoint after the approval."""
ALWAYS = "after_commit"
"""The place that is tried in the default tier, the first time, the last, and half way; all in the tier of kills."""
POINTS = [
    pytest.param(
        name,
        number,
        id=f"{name}-{number}",
        marks=[] if name == ALWAYS and number in (1, (times + 1) // 2, times) else [pytest.mark.kill],
    )
    for name, times in REACHED.items()
    for number in range(1, times + 1)
]


class Change:
    """A run that waits for its edit, which has been approved."""

    def __init__(self, installation: Installation, fork_server: ForkServer) -> None:
        self._installation = installation
        self._fork_server = fork_server
        self._file = installation.workspace / "greet.py"
        self._file.write_text('print("Helo")\n')
        paused = self("workflow", "run", "code-change", EDIT, "--output-format", "json")
        assert paused.code == 3, paused.err
        self.run = str(paused.json["session_id"])
        assert self("approvals", "approve", paused.json["pending"][0]["id"]).code == 0

    def __call__(self, *arguments: str, dying: str = "") -> Ran:
        env = {"CHATOPS_HOME": str(self._installation.home), VARIABLE: dying}
        return self._fork_server.run(*arguments, cwd=self._installation.workspace, env=env)

    def resume(self, *, dying: str = "") -> Ran:
        """Go on with it."""
        return self("workflow", "resume", self.run, dying=dying)

    @property
    def edits(self) -> int:
        """How often the edit was made."""
        return self._file.read_text().count("not")


@pytest.mark.more
@pytest.mark.some(1)
@pytest.mark.parametrize(("place", "number"), POINTS)
def test_an_edit_killed_there_takes_place_once(
    place: str, number: int, installation: Installation, fork_server: ForkServer
) -> None:
    change = Change(installation, fork_server)
    assert change.resume(dying=f"{place}:{number}").code == KILLED
    assert change.edits <= 1
    codes = [change.resume().code for _ in range(AGAIN)]
    assert set(codes) == {PAUSED}, codes
    assert change.edits == 1
    shown = change("workflow", "show", change.run, "--output-format", "json").json
    outcomes = [one["outcome"] for one in shown["calls"] if one["tool"] == "file_edit"]
    assert outcomes == ["invalid", "success"]
    assert [one["tool"] for one in shown["pending"]] == ["shell_exec"]


@pytest.mark.more
@pytest.mark.parametrize(
    "place", [pytest.param(name, marks=[] if name == ALWAYS else [pytest.mark.kill]) for name in REACHED]
)
def test_there_is_no_later_place_to_die(place: Failpoint, installation: Installation, fork_server: ForkServer) -> None:
    dying = f"{place}:{REACHED[place] + 1}"
    assert Change(installation, fork_server).resume(dying=dying).code == PAUSED
