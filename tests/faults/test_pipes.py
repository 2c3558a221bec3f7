"""The reader of the output leaves early, or there is no output at all (D18)."""

import subprocess
import sys

import pytest

from tests.faults.entry_points import Pipe
from tests.support.command_line import program_environment
from tests.support.fake_openai import says
from tests.support.waiting import PATIENCE

LONG = "a line of the answer\n" * 5_000
"""More than a pipe holds."""


def shell(pipe: Pipe, line: str) -> subprocess.CompletedProcess[str]:
    """A line of shell in which CHATOPS is the program; the exit code is the program's, whatever follows in the pipe."""
    program = " ".join([sys.executable, "-m", "chatops", *pipe.installation.flags])
    return subprocess.run(
        ["bash", "-c", line.replace("CHATOPS", program)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=pipe.installation.workspace,
        env=program_environment() | {"CHATOPS_HOME": str(pipe.installation.home)},
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.more
@pytest.mark.fault("D18")
@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("CHATOPS -p hello | head -1; exit ${PIPESTATUS[0]}", "a line of the answer\n"),
        ("CHATOPS -p hello --output-format stream-json | head -1; exit ${PIPESTATUS[0]}", '{"type": "turn_started"'),
        ("CHATOPS -p hello >&-", ""),
    ],
    ids=["text", "stream-json", "closed"],
)
def test_a_turn_ends_quietly_and_is_saved_when_nobody_reads_it(pipe: Pipe, line: str, first: str) -> None:
    pipe.provider.script(says(LONG, pieces=100))
    done = shell(pipe, line)
    assert done.returncode in (0, 141)
    assert done.stdout.startswith(first) and done.stdout.count("\n") <= 1
    assert done.stderr == ""
    assert pipe.installation.session().messages == 2
    pipe.assert_well()
    assert [message["content"] for message in pipe.provider.requests[-1].messages][2] == LONG


@pytest.mark.some(1)
@pytest.mark.fault("D18")
@pytest.mark.parametrize("command", ["sessions list", "--help"])
def test_a_command_ends_quietly_when_nobody_reads_it(pipe: Pipe, command: str) -> None:
    assert pipe.ask("hello").code == 0
    # The reader has gone before the first word.
    done = shell(pipe, f"exec 3> >(:); wait $!; CHATOPS {command} >&3")
    assert done.returncode in (0, 141)
    assert (done.stdout, done.stderr) == ("", "")
    pipe.assert_well()
