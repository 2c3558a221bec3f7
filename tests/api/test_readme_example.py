"""The program that the README shows, run as it stands there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.conftest import Stage, answers
from tests.support import document
from tests.support.fake_openai import call, calls
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


def test_the_readmes_program_proves_its_plan_asks_and_prints_the_result(stage: Stage) -> None:
    lines = document.block("python")
    assert len([line for line in lines if line.strip()]) <= 22
    program = stage.workspace / "trip.py"
    program.write_text("\n".join(lines))
    server = stage.plays(
        calls(call("check_days", days=5)),
        answers({"city": "Lisbon", "days": 5}),
        calls(call("check_days", days=2)),
        answers({"city": "Lisbon", "days": 2}),
        calls(call("book", city="Lisbon", days=2)),
        answers("booked: 2 days in Lisbon"),
        roles={"assistant": {}, "python": {"primary": "fake"}},
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=stage.workspace,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input="yes\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "book? booked: 2 days in Lisbon\n"
    assert server.violations == [] and len(server.requests) == 6
    refused = server.requests[2].messages[-1]["content"]
    assert "validations have not all passed" in refused and "at most 3" in refused
    assert json.loads(server.requests[4].body["messages"][1]["content"].split("\n")[-2]) == {
        "city": "Lisbon",
        "days": 2,
    }


@pytest.mark.more
@pytest.mark.parametrize(
    ("typed", "printed"),
    [("yes", "(demo) booked: 2 days in Lisbon"), ("no", "Step book failed: (demo) the trip was not booked")],
)
def test_the_readmes_program_runs_on_the_demo(typed: str, printed: str, tmp_path: Path, chatops_home: Path) -> None:
    program = tmp_path / "trip.py"
    program.write_text("\n".join(document.block("python")))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=f"{typed}\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"book? {printed}")
    assert done.stdout.count("book?") == 1
