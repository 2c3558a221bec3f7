"""Budgets from the command line: a reached limit is a question that only a person answers."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chatops.api.chat import Chat
from chatops.config.failpoints import VARIABLE
from chatops.domain.errors import ChatopsError
from chatops.domain.events import TurnStatus
from tests.support.command_line import CommandLine, Ran, program
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says
from tests.support.workflows import answer, step

PRICE = {"input": 2.0, "output": 5.0}
USED = {"prompt_tokens": 100_000, "completion_tokens": 10_000}
"""Costs 0.25."""


def reads(number: int, **options: Any) -> Completion:
    return calls(call("file_read", path="note.txt", offset=number), **{"usage": USED, **options})


class At:
    """An installation whose model costs 0.25 a reply."""

    def __init__(self, chatops: CommandLine, server: FakeOpenAI) -> None:
        self.chatops, self.server = chatops, server
        self.file = chatops.workspace.parent / "registry.json"
        self.define()

    def define(self, *, price: dict[str, float] | None = PRICE, role: object = None, **more: object) -> None:
        model = {"type": "openai", "api_url": self.server.url, "model_name": "m", **({"price": price} if price else {})}
        coder = {"primary": "qwen-big", "tools": ["file_read"], **({"budget": role} if role else {})}
        value = {
            "version": 3,
            "default_role": "coder",
            "models": {"qwen-big": model},
            "roles": {"coder": coder},
            **more,
        }
        self.file.write_text(json.dumps({"users": {"*": {"access_level": "operator"}}, **value}))

    def __call__(self, *arguments: str) -> Ran:
        return self.chatops("--registry", str(self.file), *arguments)

    def run(self, *arguments: str) -> Ran:
        return self("-p", "work", "--output-format", "json", *arguments)

    def asked(self, *arguments: str) -> tuple[str, dict[str, Any]]:
        """Run up to the question: the session and the question."""
        ran = self.run(*arguments)
        assert ran.code == 3, ran.err
        (pending,) = ran.json["pending"]
        assert pending["tool"] == "budget_extend"
        return ran.json["session_id"], pending


def work(request: SeenRequest) -> Completion:
    """Read five times, then answer."""
    done = sum(message["role"] == "tool" for message in request.messages)
    return reads(done + 1) if done < 5 else says("Done.", usage=USED)


@pytest.fixture
def at(chatops: CommandLine) -> Iterator[At]:
    with FakeOpenAI(work) as server:
        yield At(chatops, server)
        assert server.violations == []


def test_a_reached_limit_waits_as_a_call_does_and_a_yes_goes_on(at: At) -> None:
    ran = at.run("--budget", "cost=0.50")
    assert ran.code == 3 and ran.json["status"] == "paused" and len(at.server.requests) == 2
    (pending,) = ran.json["pending"]
    assert pending["why"] == "cost 0.50 of 0.50: qwen-big 0.50; 2 rounds with 2 file_read"
    assert "Go on for 0.50 more?" in ran.err and f"chatops approvals approve {pending['id']}" in ran.err
    assert "Go on for 0.50 more?" in at("approvals", "list").out
    shown = at("approvals", "show", pending["id"])
    assert "this turn may cost 1.00 in all, then it asks again" in shown.out and "No rule answers this" in shown.out
    value = at("approvals", "show", pending["id"], "--output-format", "json").json
    assert [one["key"] for one in value["offers"]] == ["a"] and value["reason"] == "budget"
    assert at("approvals", "approve", pending["id"], "--edit", '{"more": 99}').code == 1
    assert at("approvals", "approve", pending["id"], "--done").code == 1
    assert at("approvals", "approve", pending["id"], "--digest", value["digest"][:16]).code == 0
    again = at("resume", ran.json["session_id"], "--output-format", "json")
    assert again.code == 3 and len(at.server.requests) == 4, "the same amount once more"
    assert again.json["pending"][0]["arguments"]["of"] == 1.0
    assert at("approvals", "approve", again.json["pending"][0]["id"]).code == 0
    ended = at("resume", ran.json["session_id"], "--output-format", "json")
    assert ended.code == 0 and ended.json["answer"] == "Done." and ended.json["usage"]["cost"] == 1.5
    for asked in (pending, again.json["pending"][0]):
        assert at.chatops.logged(asked["id"]) == ["verdict ask", "decision approved"], "nothing starts"


def test_headless_denial_is_a_limit_that_says_so(at: At) -> None:
    ran = at.run("--budget", "cost=0.50", "--on-approval", "deny")
    assert ran.code == 4 and ran.json["status"] == "limit" and len(at.server.requests) == 2
    assert ran.err.count("cost 0.50 of 0.50: qwen-big 0.50") == ran.err.count("Nothing more is spent") == 1


def test_nothing_but_a_person_answers(at: At) -> None:
    refused = at.run("--budget", "cost=0.50", "--approve", "budget_extend")
    assert refused.code == 2 and "no tool 'budget_extend'" in refused.err and not at.server.requests
    at.define(users={"*": {"access_level": "admin", "confirm_allow": ["budget_extend"]}})
    at.asked("--budget", "cost=0.50")
    chat = Chat(role="coder", registry=at.file, workspace=at.chatops.workspace, budget="cost=0.50")
    (asked,) = chat.send("work").pending
    assert "Go on for 0.50 more?" in asked.text
    with pytest.raises(ChatopsError, match="Only a user decides"):
        asked.approve(digest=asked.digest)
    asked.deny()
    assert chat.resume().status is TurnStatus.LIMIT


def test_the_command_line_and_a_role_can_only_narrow(at: At) -> None:
    at.define(budget={"cost": 0.5})
    assert at.asked("--budget", "cost=99,minutes=60")[1]["arguments"]["of"] == 0.5
    at.define(budget={"cost": 0.5}, role={"cost": 99, "tokens": 110_000})
    _, pending = at.asked()
    assert pending["why"] == "110,000 of 110,000 tokens: qwen-big 110,000; 1 round with 1 file_read"
    at.define(budget={"cost": 9})
    session, first = at.asked("--budget", "cost=0.25")
    assert at("approvals", "approve", first["id"]).code == 0
    resumed = at("resume", session, "--output-format", "json")
    assert resumed.json["pending"][0]["arguments"]["of"] == 0.5, "what -p was given holds for the turn"


def test_a_registry_in_the_folder_sets_no_budget(at: At, workspace: Path) -> None:
    at.define(budget={"cost": 0.25})
    (workspace / "model_registry.json").write_text(json.dumps({"version": 3, "budget": {"cost": 99}}))
    assert at.asked()[1]["arguments"]["of"] == 0.25


@pytest.mark.parametrize("price", [None, {"input": 10.0}, {"output": 10.0, "cached_input": 1.0}])
def test_an_unknown_price_asks_before_anything_is_sent(at: At, price: dict[str, float] | None) -> None:
    """One half of a price is no price: the other half would count as zero."""
    at.define(price=price, budget={"cost": 5})
    checked = at("registry", "check", str(at.file)).out + at("registry", "check", str(at.file)).err
    assert ("a price needs input and output" in checked) is (price is not None)
    session, pending = at.asked()
    assert not at.server.requests
    assert pending["why"] == "the price of qwen-big is not known, so the budget (cost 5.00) cannot be kept"
    assert "Go on with qwen-big, whose price is not known?" in at("approvals", "list").out
    assert at("approvals", "approve", pending["id"]).code == 0
    ended = at("resume", session, "--output-format", "json")
    assert ended.code == 0 and ended.json["usage"]["cost"] is None and len(at.server.requests) == 6
    refused = at.run("--on-approval", "deny")
    assert refused.code == 4 and refused.json["answer"] == "" and len(at.server.requests) == 6


def test_a_request_that_the_background_process_sends_first_does_not_count_as_cut_off(at: At) -> None:
    started = at("-p", "work", "--background", "--budget", "cost=0.50", "--output-format", "json")
    job = started.json["session_id"]
    assert at("jobs", "wait", job).code == 3
    (pending,) = at("approvals", "list", "--output-format", "json").json
    assert "not counted" not in pending["why"] and pending["why"].startswith("cost 0.50 of 0.50")
    assert "sent again" not in at("sessions", "show", job).out


def test_a_demo_costs_nothing(at: At) -> None:
    assert at.run("--model", "demo", "--budget", "cost=0.01").code == 0


@pytest.mark.parametrize("text", ["cost=0", "cost=x", "euro=1", "cost=1,cost=2"])
def test_what_is_no_budget_is_a_usage_error(at: At, text: str) -> None:
    ran = at.run("--budget", text)
    assert ran.code == 2 and "--budget" in ran.err and not at.server.requests


def test_what_is_in_force_is_listed(at: At) -> None:
    at.define(budget={"cost": 0.5}, role={"minutes": 3})
    assert "Budget:       cost 0.50, 3 minutes a turn, then it asks" in at("roles", "show", "coder").out
    assert at("roles", "show", "coder", "--output-format", "json").json["budget"] == {
        "cost": 0.5,
        "tokens": None,
        "minutes": 3.0,
    }


def test_the_steps_of_a_workflow_spend_one_budget(chatops: CommandLine) -> None:
    replies = [replace(answer(f"step {number}"), usage=USED) for number in (1, 2, 3)]
    with FakeOpenAI(replies) as server:
        at = At(chatops, server)
        at.define(workflows={"flow": {"description": "A test", "steps": [step("one"), step("two"), step("three")]}})
        flow = ("workflow", "run", "flow", "go", "--output-format", "json")
        paused = at(*flow, "--budget", "cost=0.25")
        assert paused.code == 3 and len(server.requests) == 1, paused.err
        assert paused.json["pending"][0]["why"] == "cost 0.25 of 0.25: qwen-big 0.25; 1 round"
        assert at("approvals", "approve", paused.json["pending"][0]["id"]).code == 0
        run = ("workflow", "resume", paused.json["session_id"], "--output-format", "json")
        again = at(*run)
        assert again.code == 3 and len(server.requests) == 2
        assert again.json["pending"][0]["why"] == "cost 0.50 of 0.50: qwen-big 0.50; 2 rounds"
        assert at("approvals", "deny", again.json["pending"][0]["id"]).code == 0
        ended = at(*run)
        assert ended.code == 4 and len(server.requests) == 2, "no further attempt after a no"


POINTS = ("before_commit", "in_commit", "after_commit", "after_publish")


@pytest.mark.more
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("at_step", (1, 3, 5, 7))
def test_killed_anywhere_it_never_spends_beyond_a_limit_that_nobody_raised(
    at: At, point: str, at_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, base = at.chatops.workspace, ("--registry", str(at.file))
    monkeypatch.setenv(VARIABLE, f"{point}:{at_step}")
    ran = program(*base, "-p", "work", "--budget", "cost=0.50", "--output-format", "json", cwd=workspace)
    monkeypatch.delenv(VARIABLE)
    (session,) = [row["id"] for row in at("sessions", "list", "--output-format", "json").json] or [""]
    if not session:
        assert ran.code == -signal.SIGKILL
        return
    # A request that was cut off is sent again: at most one for each kill.
    resumed = program(*base, "resume", session, "--output-format", "json", cwd=workspace)
    assert resumed.code == 3, resumed.err
    assert len(at.server.requests) <= 3
    (pending,) = json.loads(resumed.out)["pending"]
    assert pending["arguments"]["spent"] == 0.5
    assert at("approvals", "approve", pending["id"]).code == 0
    monkeypatch.setenv(VARIABLE, f"{point}:2")
    program(*base, "resume", session, cwd=workspace)
    monkeypatch.delenv(VARIABLE)
    after = program(*base, "resume", session, "--output-format", "json", cwd=workspace)
    (second,) = json.loads(after.out)["pending"]
    assert second["arguments"]["of"] == 1.0, "the decision was taken once"
    assert second["id"] != pending["id"] and len(at.server.requests) <= 6
