"""``@path`` in a message attaches the file: what the model gets, what the screen shows, what is left out."""

import pytest

from tests.e2e.installation import Installation, registry
from tests.support.fake_openai import FakeOpenAI, call, calls, says


def test_a_named_file_is_sent_with_the_message_and_stays_as_it_was(installation: Installation) -> None:
    (installation.workspace / "big.txt").write_text("x" * 70_000)
    (installation.workspace / "src").mkdir()
    (installation.workspace / "src" / "main.py").write_text("print(1)\n")
    with FakeOpenAI(lambda request: says(f"Answer {len(request.messages)}.")) as server:
        installation.use(registry(server.url))
        with installation.open() as terminal:
            terminal.ready("assistant")
            terminal.say("what is in @note.txt, @src and @big.txt? ask @alice ")
            terminal.wait_for("attached: note.txt (30 bytes)")
            terminal.wait_for("attached: big.txt (70,000 bytes, the beginning)")
            terminal.wait_for("Answer 2.")
            (installation.workspace / "note.txt").write_text("Changed.\n")
            terminal.say("and now")
            terminal.wait_for("Answer 4.")
        with installation.open("-c") as terminal:
            terminal.wait_for("attached: note.txt (30 bytes)")
    first, second = server.requests
    assert second.messages[1] == first.messages[1]
    content = first.last_user
    assert content.startswith("what is in @note.txt")
    assert "note.txt [" in content and "The invoice is due on Friday." in content
    assert "main.py 9 bytes" in content
    assert "first 65,536 of 70,000 bytes" in content
    assert "alice [" not in content
    assert second.last_user == "and now"


@pytest.mark.more
def test_a_web_search_asks_after_a_file_was_attached(
    installation: Installation,
) -> None:
    with FakeOpenAI([calls(call("web_search", query="when is it due")), says("Done.")]) as server:
        contents = registry(server.url)
        contents["roles"]["assistant"]["tools"] = ["web_search"]
        installation.use(contents)
        with installation.open(env={"CHATOPS_SEARXNG_URL": "http://127.0.0.1:9"}) as terminal:
            terminal.ready("assistant")
            terminal.say("look up @note.txt ")
            terminal.wait_for("Approve Web search")
            terminal.press("escape")
