"""A run of a workflow on a real terminal: gated and killed in the dialog, failed and tried again, reviewed, left."""

from collections.abc import Iterator
from typing import Any

import pytest

from chatops.domain.ids import SessionId
from chatops.domain.tools import Outcome
from chatops.engine.workflow.state import RunFinished, RunResult, WorkflowState
from chatops.runtime.workflow import turns_of
from chatops.store.base import JournalRow
from tests.e2e.installation import EFFECT, TITLE, ChatTerminal, Installation, answers_each_call_once, registry
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls
from tests.support.workflows import answer, gave_up, step

FAILURE = "There is no key for the stage."


def model(request: SeenRequest) -> Completion:
    """Finds at once, writes with one gated call, deploys once it is told the key, tells."""
    if "Do find." in request.system:
        return answer("a place to write")
    if "Do write." in request.system:
        return answer("written") if request.tool_results else calls(call("shell_exec", command=EFFECT))
    if "Do deploy." in request.system:
        return answer("deployed") if "the key is 7" in request.last_user else gave_up(FAILURE)
    return answer({"told": "shorter" if "Say it shorter." in request.last_user else "at length"})


def workflows() -> dict[str, Any]:
    return {
        "release": {"steps": [step("find"), step("write", tools=["shell_exec"]), step("tell")]},
        "stage": {"steps": [step("deploy", on_fail="ask", max_step_retries=1, may_skip=True), step("tell")]},
        "report": {"steps": [step("tell", review=True)]},
    }


@pytest.fixture
def server(installation: Installation) -> Iterator[FakeOpenAI]:
    """A strict server, and a registry with workflows that use it."""
    with FakeOpenAI(model) as running:
        installation.use({**registry(running.url), "workflows": workflows()})
        yield running
        assert running.violations == []


def begin(terminal: ChatTerminal, name: str) -> None:
    terminal.ready("coder")
    terminal.say(f"/workflow run {name} ship it")


def the_run(installation: Installation) -> WorkflowState:
    with installation.store() as store:
        (info,) = store.runs()
        return store.load_run(info.id)


def journal(installation: Installation) -> list[JournalRow]:
    """Every attempt at a call of the run."""
    run = the_run(installation)
    with installation.store() as store:
        return [row for turn in turns_of(store, run) for row in store.journal(turn.turn_id)]


def ended(installation: Installation) -> RunResult | None:
    phase = the_run(installation).phase
    return phase.result if isinstance(phase, RunFinished) else None


def run_id(installation: Installation) -> SessionId:
    return the_run(installation).session_id


def test_killed_in_a_dialog_inside_a_step_it_goes_on_there_and_takes_effect_once(
    installation: Installation, server: FakeOpenAI
) -> None:
    with installation.open("--role", "coder") as before:
        begin(before, "release")
        shown = before.dialog()
        assert EFFECT in shown
        before.press("escape")
        before.wait_for("1 approval pending – ctrl+g")
        before.wait_for("✓ 1 find")
        before.wait_for("? 2 write  decision pending")
        before.press("ctrl+g")
        before.dialog()
        before.kill9()
    assert installation.count == 0
    asked = len(server.requests)
    with installation.open("-r", run_id(installation)) as after:
        assert after.dialog() == shown
        assert len(server.requests) == asked, "the model was asked again although its reply was stored"
        after.press("a")
        after.wait_for("Run ended: answered.")
        after.wait_gone(TITLE)
        for line in ("Step 1: find", "Step 2: write", "Step 3: tell"):
            after.wait_for(line)
    assert installation.count == 1
    assert [(row.attempt, row.outcome) for row in journal(installation)] == [(1, Outcome.SUCCESS)]
    assert all(answers_each_call_once(request) for request in server.requests)
    assert ended(installation) is RunResult.ANSWERED


@pytest.mark.more
def test_plain_chatops_after_a_crash_names_what_waits_in_the_run_and_ctrl_g_opens_it(
    installation: Installation, server: FakeOpenAI
) -> None:
    with installation.open("--role", "coder") as before:
        begin(before, "report")
        before.wait_for("Review step tell")
        before.kill9()
    with installation.open() as after:
        after.wait_for("1 run of a workflow needs your review (report) – ctrl+g")
        after.press("ctrl+g")
        after.wait_for("a accept")
        after.press("a")
        after.wait_for("Run ended: answered.")
    assert ended(installation) is RunResult.ANSWERED
    assert len(server.requests) == 1


@pytest.mark.more
def test_a_failed_step_is_tried_again_with_what_the_user_says(installation: Installation, server: FakeOpenAI) -> None:
    with installation.open("--role", "coder") as terminal:
        begin(terminal, "stage")
        terminal.wait_for("e try again with instructions")
        assert FAILURE in terminal.text()
        terminal.press("escape")
        terminal.wait_for("Step deploy failed, decision pending – ctrl+g")
        terminal.press("ctrl+g")
        terminal.wait_for("e try again with instructions")
        terminal.press("r")
        # The same again, for nothing has changed: the step asks anew.
        terminal.wait_for("attempt      2")
        terminal.wait_for("e try again with instructions")
        terminal.press("e")
        terminal.wait_for("ctrl+s tries again")
        terminal.send("the key is 7")
        terminal.wait_for("the key is 7")
        terminal.press("ctrl+s")
        terminal.wait_for("Run ended: answered.")
        terminal.wait_for("✓ stage answered")
    assert [record.attempt for record in the_run(installation).attempts] == [1, 2, 3, 1]
    assert "the key is 7" in server.requests[2].last_user
    assert FAILURE in server.requests[2].last_user
