"""A program's own tool that runs commands is judged, shown and remembered like shell_exec."""

import shlex
import subprocess
from typing import Any

import pytest

from chatops import Step, ToolRegistry, Workflow, tool
from chatops.domain.endings import Ending
from chatops.domain.errors import ConfigError
from chatops.domain.ids import SessionId
from chatops.domain.messages import ToolMessage
from chatops.domain.tools import Outcome
from chatops.engine.replay import replay
from chatops.tui.transcript.blocks import ToolCardBlock
from chatops.tui.transcript.projector import Projector
from chatops.wiring.stored import open_store
from tests.api.conftest import Stage, answers
from tests.support.fake_openai import call, calls

RUN = calls(call("run", line="echo hello"))


@tool(command="line")
def run(line: str) -> "subprocess.CompletedProcess[str]":
    """Run a command line."""
    return subprocess.run(shlex.split(line), capture_output=True, text=True, check=False)


@tool
def quiet(line: str) -> str:
    """Do something with a line that nothing is declared about."""
    return line


def flow(*tools: Any) -> Workflow:
    return Workflow("own", [Step("go", "Go.", tools=list(tools), max_step_retries=1)])


def results(session: str) -> list[ToolMessage]:
    with open_store() as store:
        return [one for one in store.history(SessionId(session)) if isinstance(one, ToolMessage)]


def played(stage: Stage, *replies: Any, **users: Any) -> Any:
    stage.plays(*replies, answers("done"), users={"*": {"access_level": "operator", **users}})
    return flow(run, quiet).run("go", model="fake", workspace=stage.workspace)


@pytest.mark.parametrize("rule", ["run:echo hello", "run:echo *"])
def test_a_rule_is_a_pattern_of_words(stage: Stage, rule: str) -> None:
    done = played(stage, RUN, confirm_allow=[rule])
    (result,) = results(done.session_id)
    assert (done.success, result.content) == (True, "hello")
    assert result.decided_by == f"confirm_allow {rule}"


@pytest.mark.parametrize("rule", ["run:echo", "run:ls *", "run:echo hello there"])
def test_a_pattern_of_other_words_answers_nothing(stage: Stage, rule: str) -> None:
    (pending,) = played(stage, RUN, confirm_allow=[rule]).pending
    assert pending.facts.argv == ("echo", "hello")


def test_a_rule_without_a_pattern_answers_nothing(stage: Stage) -> None:
    assert played(stage, RUN, confirm_allow=["run"]).pending


def test_a_rule_of_a_role_is_read_once_the_tool_is_known(stage: Stage) -> None:
    rules = [{"tool": "run", "match": ["echo", "*"], "verdict": "allow"}]
    stage.plays(RUN, answers("done"), roles={"worker": {"primary": "fake", "rules": rules}})
    done = flow(run).run("go", model="fake", workspace=stage.workspace, role="worker")
    assert done.success, done.pending


def test_a_tool_that_declares_nothing_has_no_words_that_a_rule_could_allow(stage: Stage) -> None:
    asked = played(stage, calls(call("quiet", line="echo hello")), confirm_allow=["quiet:echo hello"])
    (pending,) = asked.pending
    assert (pending.facts.argv, pending.facts.command) == ((), "")


def test_what_runs_is_shown_with_its_sandbox_and_every_other_command_asks(stage: Stage) -> None:
    (pending,) = played(stage, calls(call("run", line="echo a; echo b"))).pending
    facts = pending.facts
    assert (facts.command, facts.argv, facts.network) == ("echo a; echo b", (), True)
    assert facts.sandbox.startswith("off")


def test_the_card_says_how_the_program_ended(stage: Stage) -> None:
    stage.plays(calls(call("run", line="false")), answers("done"))
    done = flow(run).run("go", model="fake", workspace=stage.workspace, on_approval=lambda pending: True)
    (result,) = results(done.session_id)
    assert result.facts.ending == Ending(exit_code=1), result.content
    assert result.content.startswith("[exit code 1]")
    assert result.facts.reads_workspace
    with open_store() as store:
        messages = store.history(SessionId(done.session_id))
    blocks = Projector().load(replay(messages, None, session_id=SessionId(done.session_id), role="", model=""))
    (card,) = [block for block in blocks if isinstance(block, ToolCardBlock)]
    assert card.end.ended_because == "exit code 1"


def test_the_items_of_a_list_that_a_tool_returns_are_counted(stage: Stage) -> None:
    @tool(verdict="allow", min_access="viewer", counts="port")
    def ports(coast: str) -> list[str]:
        """Return the ports of a coast."""
        return [f"{coast} 1", f"{coast} 2"]

    stage.plays(calls(call("ports", coast="west")), answers("done"))
    (result,) = results(flow(ports).run("go", model="fake", workspace=stage.workspace).session_id)
    assert (result.outcome, result.facts.count) == (Outcome.SUCCESS, 2)


def test_a_validation_that_runs_whatever_the_model_writes_is_refused(stage: Stage) -> None:
    stage.plays(answers("done"))
    step = Step("go", "Go.", tools=[run], validation_tools=[{"tool": "run", "passes_when": {"exit_code": 0}}])
    with pytest.raises(ConfigError, match="passes with whatever the model runs"):
        Workflow("own", [step]).run("go", model="fake", workspace=stage.workspace)


def test_a_tool_with_a_schema_declares_the_same(stage: Stage) -> None:
    registry = ToolRegistry()
    schema = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}
    registry.register("run", "Run a command line.", schema, run.function, command="line")
    stage.plays(RUN, answers("done"))
    workflow = Workflow("own", [Step("go", "Go.", max_step_retries=1)], tools=registry)
    (pending,) = workflow.run("go", model="fake", workspace=stage.workspace).pending
    assert pending.facts.argv == ("echo", "hello")


def test_the_file_of_a_call_is_confined_and_its_host_is_named(stage: Stage) -> None:
    @tool(path="file", writes="{file}", verdict="allow")
    def save(file: str) -> str:
        """Save a file."""
        return "saved"

    @tool(url="address")
    def get(address: str) -> str:
        """Get a page."""
        return "page"

    stage.plays(
        calls(call("save", file="../out.txt"), call("save", file="in.txt")),
        calls(call("get", address="http://a.org/x")),
    )
    asked = flow(save, get).run("go", model="fake", workspace=stage.workspace)
    (pending,) = asked.pending
    assert (pending.call.name, pending.facts.hosts) == ("get", ("a.org",))
    outside, inside = results(asked.session_id)
    assert (outside.outcome, outside.facts.wrote) == ("denied", "")
    assert (inside.outcome, inside.facts.wrote) == ("success", "in.txt")


@pytest.mark.parametrize("declared", [{"command": "words"}, {"command": "line", "code": "line"}])
def test_a_declaration_that_does_not_fit_the_function_is_refused(declared: Any) -> None:
    with pytest.raises(ConfigError):
        tool(**declared)(run.function)
