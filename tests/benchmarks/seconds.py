"""Print the table of seconds per folder of tests: ``python -m tests.benchmarks.seconds REPORT``.

`REPORT` is written by ``pytest -n auto --junitxml REPORT``. The seconds of a test include its fixtures. Tests run in
parallel, so their sum, in the last row, is larger than the time of the whole run.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def table(report: Path) -> list[str]:
    """Return the lines of the table, the slowest folder first."""
    seconds: Counter[str] = Counter()
    count: Counter[str] = Counter()
    root = ElementTree.parse(report).getroot()
    for case in root.iter("testcase"):
        folder = case.get("classname", "").split(".")[1]
        seconds[folder] += float(case.get("time", "0"))  # type: ignore[assignment]
        count[folder] += 1
    rows = [
        f"| `{folder}/` | {count[folder]:,} | {f'{spent:.0f}' if spent >= 1 else '< 1'} |"
        for folder, spent in seconds.most_common()
    ]
    whole = sum(float(suite.get("time", "0")) for suite in root.iter("testsuite"))
    last = f"| all | {count.total():,} | {sum(seconds.values()):.0f}, in {whole:.0f} s |"
    return ["| folder | tests | seconds |", "|---|---|---|", *rows, last]


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]))))
