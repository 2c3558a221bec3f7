"""A tool that is given up when it may have taken effect: nobody says that it has failed, and it is not called again."""

import asyncio

import pytest

from chatops import Step, Workflow, tool
from tests.api.conftest import Stage, answers
from tests.support.fake_openai import call, calls, says

GAVE_UP = says('{"success": false, "result": null, "reasoning": "no word of the shop"}')


def test_a_call_that_ran_out_of_time_may_have_taken_effect(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.runtime.performer.GRACE_S", 0.0)
    orders: list[str] = []

    @tool(verdict="allow", timeout_s=0.01)
    async def order(part: str) -> None:
        """Order a part."""
        orders.append(part)
        await asyncio.Event().wait()

    server = stage.plays(
        calls(call("order", part="timer")),
        calls(call("order", part="two timers")),
        GAVE_UP,
        calls(call("order", part="timer")),
        answers("asked"),
    )
    workflow = Workflow("buy", [Step("buy", "Order it.", tools=[order], once=[order])])
    result = workflow.run("a timer", model="fake", workspace=stage.workspace)
    assert (result.success, orders) == (True, ["timer"])
    first, second = server.requests[2].tool_results
    assert "it took too long. It is not known whether it took effect" in first
    assert "may be called once in this step" in second
    assert "may be called once in this step" in server.requests[4].tool_results[-1]
