"""/compact: a summary that the user sees, edits and takes back; what the model gets instead of the messages before."""

import pytest

from tests.e2e.installation import Installation, registry
from tests.support.fake_openai import Completion, FakeOpenAI, Hang, Raw, SeenRequest, error, says


def answer(request: SeenRequest) -> Completion:
    if "Summarise our session" in request.last_user:
        return says("We talked about invoices. Open: pay.")
    return says(f"Answer to {request.last_user}.")


def contents(request: SeenRequest) -> list[str]:
    return [message["content"] for message in request.messages if message["role"] != "system"]


def test_a_summary_is_shown_edited_and_sent_instead_of_what_was_said(installation: Installation) -> None:
    with FakeOpenAI(answer) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("one")
            terminal.wait_for("Answer to one.")
            terminal.say("/compact the amounts")
            terminal.wait_for("Compact the session")
            terminal.wait_for("We talked about invoices.")
            terminal.send(" 42 euros.")
            terminal.press("ctrl+s")
            terminal.wait_for("The model gets the summary instead of everything above.")
            # The answer and the summary.
            terminal.wait_for("22 in 14 out")
            terminal.kill9()
        asked = server.requests[-1]
        assert "Keep in particular: the amounts" in asked.last_user
        assert asked.body["tool_choice"] == "none"
        with installation.open("-c") as terminal:
            terminal.wait_for("The model gets the summary instead of everything above.")
            terminal.say("two")
            terminal.wait_for("Answer to two.")
            summary, taken, last = contents(server.requests[-1])
            assert summary.endswith("We talked about invoices. Open: pay. 42 euros.")
            assert (taken, last) == ("I continue from this summary.", "two")
            terminal.say("/compact undo")
            terminal.wait_for("The model gets all messages above again.")
            terminal.say("three")
            terminal.wait_for("Answer to three.")
        assert contents(server.requests[-1]) == ["one", "Answer to one.", "two", "Answer to two.", "three"]
        assert server.violations == []


@pytest.mark.more
def test_nothing_changes_if_the_user_goes_back_or_there_is_no_summary(installation: Installation) -> None:
    never = Raw(steps=(Hang(),))
    with installation.chat(
        [says("Hello."), says("A summary."), error(400, "no"), never, says("Again.")], role="assistant"
    ) as (server, terminal):
        terminal.say("/compact")
        terminal.wait_for("There is nothing to summarise yet")
        terminal.press("ctrl+c")
        terminal.say("one")
        terminal.wait_for("Hello.")
        terminal.say("/compact")
        terminal.wait_for("A summary.")
        terminal.press("escape")
        terminal.wait_gone("A summary.")
        terminal.say("/compact")
        terminal.wait_for("There is no summary:")
        terminal.press("escape")
        terminal.wait_gone("There is no summary:")
        terminal.say("/compact")
        terminal.wait_for("The model writes a summary.")
        terminal.press("escape")
        terminal.wait_gone("The model writes a summary.")
        terminal.say("/compact undo")
        terminal.wait_for("The session is not compacted.")
        terminal.say("two")
        terminal.wait_for("Again.")
    assert contents(server.requests[-1]) == ["one", "Hello.", "two"]
