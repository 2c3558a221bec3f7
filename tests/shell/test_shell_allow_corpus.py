"""Every shell case of the attack corpus: nothing harmful is allowed by a pattern, no control asks."""

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from chatops.domain.tools import CallFacts
from chatops.policy.patterns import matches
from chatops.policy.rule_syntax import parse_rule
from chatops.shell.simple_command import simple_words
from tests.support.cases import for_each

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "shell_allow_rule.jsonl").read_text().splitlines()
]
PLACES = {"WS": "/home/ana/project", "OUT": "/home/ana/outside", "HOME": "/home/ana"}


def filled(text: str) -> str:
    """The command with its placeholders replaced."""
    for name, value in PLACES.items():
        text = text.replace(f"{{{name}}}", value)
    while text.startswith("@@REPEAT") or "@@REPEAT|" in text:
        before, _, rest = text.partition("@@REPEAT|")
        count, _, rest = rest.partition("|")
        piece, _, after = rest.partition("@@")
        text = before + piece * int(count) + after
    return text


def allowed(case: dict[str, Any]) -> bool:
    """Return True if one of the case's patterns answers for its command."""
    names = sorted([*case["setup"].get("files", {}), *case["setup"].get("symlinks", {})])

    def expand(glob: str) -> tuple[str, ...]:
        return tuple(name for name in names if fnmatchcase(name, glob) and not name.startswith("."))

    arguments = {name: filled(value) for name, value in case["arguments"].items()}
    facts = CallFacts(
        arguments=json.dumps(arguments),
        cwd=PLACES["WS"],
        command=arguments["command"],
        argv=simple_words(arguments["command"], expand=expand),
    )
    return any(matches(parse_rule(f"shell_exec:{rule}")[1], facts) for rule in case["policy"]["shell_allow"])


@for_each("case", CASES, ids=lambda case: str(case["id"]))
def test_the_pattern_decides_as_expected(case: dict[str, Any]) -> None:
    accepted = {case["expected"], *case.get("also_ok", [])}
    said = "runs" if allowed(case) else "asks"
    assert said in accepted, case["arguments"]


def test_the_corpus_is_there() -> None:
    assert len(CASES) == 69
    assert sum(case["expected"] == "runs" for case in CASES) == 10
