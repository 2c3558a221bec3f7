"""Prints the figures: faults passed, and what the kills came to, one line each.

    .venv/bin/python -m tests.faults            what the default tests can say, some minutes
    .venv/bin/python -m tests.faults --kill     with hundreds of kills and every process trick, an hour

Further arguments go to pytest.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.faults.catalogue import IDS, NOT_HERE, SILENT

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Run the tests that bear on faults, and print; 0 if nothing bad was found and every fault was tried."""
    kill = "--kill" in arguments
    rest = [argument for argument in arguments if argument != "--kill"]
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder) / "tally.json"
        chosen = ["-m", "fault or kill" if kill else "fault and not kill"]
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "4", *chosen, "--tally", str(tally), *rest],
            cwd=_ROOT,
            check=False,
        )
        found = json.loads(tally.read_text())
    print("\n".join(lines(found)))
    return 0 if is_well(found) else 1


def lines(found: dict[str, Any]) -> list[str]:
    """One line per figure, then one per fault that is not counted as passed, with the reason."""
    passed = [fault for fault in IDS if _passed(found, fault)]
    silent = [fault for fault in sorted(SILENT) if fault not in passed]
    report = [f"faults passed: {len(passed)} of {len(IDS)} ({100 * len(passed) / len(IDS):.1f} %)"]
    report.append(f"silent faults passed: {len(SILENT) - len(silent)} of {len(SILENT)}")
    report += [f"{name}: {bad} of {of}" for name, (bad, of) in sorted(found["figures"].items())]
    report += [f"  {fault} not passed: {_why(found, fault)}" for fault in IDS if fault not in passed]
    return report


def is_well(found: dict[str, Any]) -> bool:
    """Return True if every fault without a reason to be left out passed, and nothing bad was counted."""
    open_ones = [fault for fault in IDS if not _passed(found, fault) and fault not in NOT_HERE]
    return not open_ones and not any(bad for bad, _ in found["figures"].values())


def _passed(found: dict[str, Any], fault: str) -> bool:
    return fault not in NOT_HERE and fault in found["passed"] and fault not in found["failed"]


def _why(found: dict[str, Any], fault: str) -> str:
    if fault in NOT_HERE:
        return NOT_HERE[fault].reason
    if fault in found["failed"]:
        return f"failed in {', '.join(found['failed'][fault])}"
    if fault in found["skipped"]:
        return f"skipped in {', '.join(found['skipped'][fault])}"
    return "no test of it was run"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
