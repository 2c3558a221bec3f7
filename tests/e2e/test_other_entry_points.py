"""Another terminal answers while the chat's dialog is open."""

import json
import os
import re

import pytest

from chatops.domain.decisions import Approved
from tests.e2e.installation import EFFECT, TITLE, Installation, answers_each_call_once
from tests.support.fake_openai import Completion, SeenRequest, call, calls, says


def asks(request: SeenRequest) -> Completion:
    """Asks for the effect until there is a result."""
    return says("Understood.") if request.tool_results else calls(call("shell_exec", command=EFFECT))


@pytest.mark.more
def test_the_dialog_closes_by_itself_and_the_turn_goes_on(installation: Installation) -> None:
    with installation.chat(asks) as (server, terminal):
        terminal.say("write it down")
        terminal.dialog()
        (waiting,) = json.loads(installation.run("approvals", "list", "--output-format", "json").out)
        done = installation.run("approvals", "approve", waiting["id"])
        assert done.code == 0, done.err
        terminal.wait_for("Understood.")
        terminal.wait_gone(TITLE)
        seen = re.compile(r"Answered elsewhere: .*approved.* via.* approvals")
        terminal.wait_until(lambda text: seen.search(" ".join(text.split())) is not None, what="who answered")
        again = installation.run("approvals", "approve", waiting["id"])
        assert again.code == 1
        assert re.search(r"it was approved by uid \d+.* via approvals on .* at \d\d:\d\d:\d\d", again.err)
    assert answers_each_call_once(server.requests[-1])
    assert installation.count == 1
    with installation.store() as store:
        (decision,) = store.decisions()
    assert decision.by.via == "approvals"
    assert decision.by.uid == os.getuid()
    assert decision.by.host == os.uname().nodename
    assert decision.decided_at > 0
    assert isinstance(decision.decision, Approved)
    listed = installation.run("audit", "list")
    assert "via approvals" in listed.out
