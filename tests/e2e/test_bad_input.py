"""Whatever is wrong, on the screen: a clear sentence with the next step, nothing lost, no traceback.

`tests/cli/test_bad_input.py` has the same for scripts.
"""

import re

import pytest

from tests.e2e.installation import ChatTerminal, Installation, registry
from tests.support.fake_openai import Call, FakeOpenAI, call, calls, says


def shows(terminal: ChatTerminal, *said: str) -> str:
    """Wait until all of it can be read, wherever lines are broken; the text without frames and breaks."""

    def plain(text: str) -> str:
        return " ".join(re.sub(r"[│╭╮╰╯─▌]", " ", text).split())

    shown = terminal.wait_until(lambda text: all(part in plain(text) for part in said), what=f"{said!r} to show")
    assert "Traceback" not in shown
    return plain(shown)


def test_a_broken_registry_is_told_with_its_place_and_leaves_a_viewer(installation: Installation) -> None:
    installation.use('{\n  "roles": {,}\n}')
    with installation.open() as terminal:
        shown = shows(terminal, "registry.json, line 2, column 13", "built-in registry is used, at level viewer")
        assert "/registry.json" not in shown.replace(" ", ""), "the folders of the file take lines that are needed"
        terminal.wait_for("assistant · level viewer")
        terminal.say("run `printf x >> count.txt`")
        shows(terminal, "(demo)")
    assert installation.count == 0


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--role", "codr"], ["There is no role 'codr'", "coder"], 2),
        (["-r", "nope"], ["There is no session 'nope'", "chatops sessions list"], 1),
    ],
    ids=["role", "session"],
)
def test_what_cannot_be_opened_ends_with_the_reason_on_the_terminal(
    arguments: list[str], said: list[str], code: int, installation: Installation
) -> None:
    with installation.open(*arguments) as terminal:
        assert terminal.wait_exit() == code
        shows(terminal, *said)


def test_a_refused_connection_loses_nothing(installation: Installation) -> None:
    installation.use(registry("http://127.0.0.1:9/v1"))
    with installation.open() as terminal:
        terminal.ready("assistant")
        terminal.say("a long thought")
        shows(terminal, "Nothing listens at 127.0.0.1:9", "Start the server", "Press R to retry", "a long thought")


def test_calls_that_cannot_run_are_shown_and_told_and_never_asked_about(installation: Installation) -> None:
    script = [
        calls(Call(name="file_read", arguments="{not json at all", id="a")),
        calls(call("fil_read", path="note.txt", id="b")),
        calls(call("shell_exec", command="printf x >> count.txt", id="c")),
        calls(call("file_read", path="note.txt", id="d")),
        says("It is due on Friday."),
    ]
    with FakeOpenAI(script) as server:
        installation.use(registry(server.url, users={"*": {"access_level": "user"}}))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("when is it due?")
            shown = shows(terminal, "It is due on Friday.", "access level user")
        malformed, unknown, above, fine = server.requests[-1].tool_results
        assert server.violations == []
        assert "shell_exec" not in server.requests[0].tool_names
    assert shown.count("not run") == 3
    assert "not valid JSON" in malformed
    assert "Did you mean file_read" in unknown
    assert "Not permitted: shell_exec (access level user)" in above
    assert "Friday" in fine
    assert installation.count == 0
