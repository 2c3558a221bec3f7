"""Another role in the middle of a conversation, and while a call is pending."""

import pytest

from chatops.domain.tools import Outcome
from tests.e2e.installation import (
    ALLOWED_TO_CODER,
    ALLOWED_TO_RESEARCHER,
    CODER_SAYS,
    EFFECT,
    RESEARCHER_SAYS,
    TITLE,
    ChatTerminal,
    Installation,
    answers_each_call_once,
    lines_with,
    registry,
)
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says


def switch(terminal: ChatTerminal, role: str) -> None:
    """ctrl+r, the role's name, Enter."""
    terminal.press("ctrl+r")
    terminal.wait_for("type to filter")
    terminal.send(role)
    terminal.press("enter")


@pytest.mark.more
def test_the_next_request_has_the_other_role_s_prompt_and_tools(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"Answer to {request.last_user}.")) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "researcher") as terminal:
            terminal.ready("researcher")
            terminal.say("the first question")
            terminal.wait_for("Answer to the first question.")
            switch(terminal, "coder")
            terminal.ready("coder")
            divider = terminal.wait_for("researcher → coder")
            terminal.say("the second question")
            terminal.wait_for("Answer to the second question.")
            terminal.wait_gone("Esc stops")
            terminal.kill9()
        with installation.open("-c") as terminal:
            terminal.ready("coder")
            assert lines_with(terminal.wait_for("Answer to the second"), ["researcher → coder", "shell_exec"])
        first, second = server.requests
        assert server.violations == []
    assert sorted(first.tool_names) == sorted(ALLOWED_TO_RESEARCHER)
    assert sorted(second.tool_names) == sorted(ALLOWED_TO_CODER)
    assert first.system.endswith(f"--- Role Context ---\n{RESEARCHER_SAYS}")
    assert second.system.endswith(f"--- Role Context ---\n{CODER_SAYS}")
    assert second.system.count("--- Role Context ---") == 1
    assert RESEARCHER_SAYS not in second.system
    assert second.messages[1:3] == [
        {"role": "user", "content": "the first question"},
        {"role": "assistant", "content": "Answer to the first question."},
    ]
    (line,) = lines_with(divider, ["researcher → coder"])
    for change in ("+ file_search, file_edit, shell_exec", "− web_fetch"):
        assert change in line
    assert "file_read" not in line


def writes(request: SeenRequest) -> Completion:
    """Asks for the effect until there is a result."""
    return says("Understood.") if request.tool_results else calls(call("shell_exec", command=EFFECT))


@pytest.mark.some(1)
@pytest.mark.parametrize(("role", "effects"), [("operator", 1), ("researcher", 0)])
def test_a_role_switch_while_a_call_waits_then_decide(role: str, effects: int, installation: Installation) -> None:
    """Under a role that has the tool `a` runs it; under one that has not, only denying is offered."""
    with installation.chat(writes) as (server, terminal):
        terminal.say("write it down")
        terminal.dialog()
        terminal.press("escape")
        terminal.wait_for("1 approval pending – ctrl+g")
        switch(terminal, role)
        terminal.wait_for(f"coder → {role}")
        assert installation.count == 0
        terminal.press("ctrl+g")
        shown = terminal.dialog("a approve once" if effects else "d deny")
        assert "Approve Shell?" in shown or "Not permitted now: Shell" in shown
        assert "coder (local)" in shown
        assert ("Denied by: tools of role researcher" in shown) is (effects == 0)
        assert ("a approve once" in shown) is (effects == 1)
        if not effects:
            assert "Roles coder or operator could run" in shown
        terminal.press("a" if effects else "d")
        terminal.wait_for("Understood.")
        assert TITLE not in terminal.text()
    last = server.requests[-1]
    assert installation.count == effects
    assert len(server.requests) == 2
    (result,) = last.tool_results
    assert ("Denied by the user" in result) is (effects == 0)
    assert answers_each_call_once(last)
    assert ("shell_exec" in last.tool_names) is bool(effects)
    outcomes = [row.outcome for row in installation.journal()]
    assert outcomes == [Outcome.SUCCESS] * effects
