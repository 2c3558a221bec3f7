"""`kill -9` at every place between the approval of a deployment and the end of the run, in the workflow components on
the demo model: however it dies, the flow is deployed exactly once, and the file says so.
"""

import json

import pytest

from chatops.config.failpoints import VARIABLE, Failpoint
from tests.e2e.fork_server import ForkServer
from tests.e2e.installation import Installation
from tests.support.command_line import Ran

KILLED = -9
DEPLOYED = "flows/webhook-posts-chat.json"
AGAIN = 2
"""Commands after the kill: the first ends the run, the second changes nothing."""
REACHED: dict[Failpoint, int] = {
    "after_commit": 9,
    "before_tool": 2,
    "after_tool": 2,
    "after_model": 2,
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


class Deployment:
    """A run that waits for its deployment, which has been approved."""

    def __init__(self, installation: Installation, fork_server: ForkServer) -> None:
        self._installation = installation
        self._fork_server = fork_server
        paused = self("workflow", "run", "components", "a webhook that posts to chat", "--output-format", "json")
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
    def version(self) -> int:
        """Return how often the flow was deployed."""
        file = self._installation.workspace / DEPLOYED
        return int(json.loads(file.read_text())["version"]) if file.exists() else 0


@pytest.mark.more
@pytest.mark.some(1)
@pytest.mark.parametrize(("place", "number"), POINTS)
def test_a_deployment_killed_there_takes_place_once(
    place: str, number: int, installation: Installation, fork_server: ForkServer
) -> None:
    deployment = Deployment(installation, fork_server)
    assert deployment.resume(dying=f"{place}:{number}").code == KILLED
    assert deployment.version <= 1
    codes = [deployment.resume().code for _ in range(AGAIN)]
    assert set(codes) == {0}, codes
    assert deployment.version == 1
    shown = deployment("workflow", "show", deployment.run, "--output-format", "json").json
    assert shown["status"] == "answered" and json.loads(shown["answer"])["file"] == DEPLOYED
    outcomes = [one["outcome"] for one in shown["calls"] if one["tool"] == "component_deploy"]
    assert outcomes == ["success"]


@pytest.mark.more
@pytest.mark.parametrize(
    "place", [pytest.param(name, marks=[] if name == ALWAYS else [pytest.mark.kill]) for name in REACHED]
)
def test_there_is_no_later_place_to_die(place: Failpoint, installation: Installation, fork_server: ForkServer) -> None:
    assert Deployment(installation, fork_server).resume(dying=f"{place}:{REACHED[place] + 1}").code == 0
