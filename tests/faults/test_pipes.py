"""The reader of the output leaves early, or there is no output at all (D18)."""

import subprocess
import sys

import pytest

from tests.faults.entry_points import Pipe
from tests.support.command_line import program_environment
from tests.support.waiting import PATIENCE


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
