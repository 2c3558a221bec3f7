"""The sandbox of the site registry binds everywhere it is asked for, and an edited registry counts at once."""

import asyncio
import json
import os

import pytest

from chatops.domain.ids import CallId, SessionId
from chatops.domain.tools import CallFacts, ToolCall
from chatops.wiring.app import App
from chatops.wiring.doctor import run_checks
from tests.support.no_sandbox import without_sandbox
from tests.tools.running import needs_sandbox
from tests.wiring.conftest import Bench


def inspected(app: App, **arguments: object) -> CallFacts:
    tool = app.catalog.get("shell_exec")
    assert tool is not None
    call = ToolCall(id=CallId("c.1.1"), name="shell_exec", arguments=json.dumps(arguments))
    return asyncio.run(tool.inspect(call, app.limits.context(SessionId("s"), call.id, tool=tool)))


def test_what_the_site_requires_binds_the_tool_the_note_and_doctor(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    bench.write(sandbox={"require": "none", "network": True})
    bench.write_site(sandbox={"require": "bubblewrap"})
    app = bench.app()
    assert "require a sandbox" in inspected(app, command="true").refusal
    assert app.limits.sandbox().network is False
    assert str(app.limits.sandbox_note()) == "sandbox: off (bubblewrap is not installed); commands are refused"
    (found,) = [check for check in asyncio.run(run_checks(app, model="demo")) if check.name == "sandbox"]
    assert found.grade == "fail"


def test_a_registry_edited_while_the_app_runs_counts_for_the_next_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    bench.write()
    app = bench.app()
    assert inspected(app, command="true").refusal == ""
    bench.write(sandbox={"require": "bubblewrap"})
    assert "require a sandbox" in inspected(app, command="true").refusal


@needs_sandbox
def test_doctor_tries_the_sandbox_in_the_folder_where_commands_run(bench: Bench) -> None:
    bench.write()
    app = bench.app()

    def grade() -> tuple[str, str]:
        (found,) = [check for check in asyncio.run(run_checks(app, model="demo")) if check.name == "sandbox"]
        return found.grade, found.text

    before = set(app.workspace.iterdir())
    assert grade()[0] == "ok"
    assert set(app.workspace.iterdir()) == before
    for number in range(1_001):
        os.mkfifo(app.workspace / f"pipe{number}")
    found, text = grade()
    assert found == "fail"
    assert "more than 1,000 sockets, pipes and devices" in text
