"""The transcript shows the effect of a call, live and after a restart."""

from tests.e2e.installation import Installation, registry
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says

SOURCE = "def main():\n\n    print('hello')\n"
EDIT = call("file_edit", path="hello.py", old="print('hello')", new="print('hello, world')")
READS = [call("file_read", path=path) for path in ("note.txt", "hello.py")]


def replies(request: SeenRequest) -> Completion:
    if not request.tool_results:
        return calls(*READS)
    return calls(EDIT) if len(request.tool_results) == 2 else says("Done.")


def test_an_edit_shows_its_change_and_reads_share_a_line_also_after_a_restart(installation: Installation) -> None:
    (installation.workspace / "hello.py").write_text(SOURCE)
    with FakeOpenAI(replies) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("greet the world")
            terminal.decide("a")
            live = terminal.wait_for("Done.")
        with installation.open("-c") as terminal:
            again = terminal.wait_for("Done.")
    for shown in (live, again):
        lines = [" ".join(line.split()) for line in shown.splitlines()]
        assert "✓ Edit hello.py +1 −1 approved ·" in " ".join(lines)
        at = lines.index("1 def main():")
        assert lines[at : at + 4] == ["1 def main():", "2", "3 − print('hello')", "3 + print('hello, world')"]
        assert any(line.startswith("✓ Read note.txt, hello.py 4 lines ") for line in lines)
    assert "hello, world" in (installation.workspace / "hello.py").read_text()
