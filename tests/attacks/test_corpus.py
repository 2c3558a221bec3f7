"""The attack corpus against the whole app; prints the figures of what it ran.

All of it: ``pytest -m attacks -s tests/attacks``. A sample is in the default tier.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chatops.sandbox.confinement import probe
from tests.attacks.command_cases import command_cases
from tests.attacks.judge import RUNS, accepted, broken, outcome_of
from tests.attacks.rule_cases import rule_cases
from tests.attacks.sandbox_cases import sandbox_cases
from tests.attacks.stage import Stage, all_cases

RULES = rule_cases()
COMMANDS = command_cases()
SANDBOX = sandbox_cases()
CASES = [*all_cases(), *RULES, *COMMANDS, *SANDBOX]
SKIPPED = {
    "typed_before_dialog": "played on a terminal in test_terminal.py",
    "terminal": "needs the screen: tests/tui and tests/e2e",
    "quit_after_s": "quitting is played in tests/e2e",
    "sigkill_at": "tests/e2e/test_kill_points.py kills at every commit",
    "change_tool_definition": "there are no foreign tools whose definition could change",
    "switch_role_after_call": "needs a switch between two calls of one reply: engine tests",
}
CORRECTED = {
    "SSRF-039": "the address that was checked is dialled, so a second answer of the name server changes nothing",
    "SSRF-042": "a page is text to the tool: nothing in it is followed",
}
"""Cases that may run here as long as no invariant breaks, and why."""
SAMPLE = frozenset(
    """ROLE-002 ROLE-045 ROLE-047 ROLE-048 FORG-001 FORG-014 FORG-021 FORG-028 FORG-033 PATH-033 PATH-041 PATH-042
    SHEL-021 SHEL-074 SHEL-119 SSRF-001 SSRF-039 SSRF-042 SSRF-057 SECR-022 SECR-024 BIND-001 BIND-003
    BIND-004 BIND-011 BIND-014 BIND-016 BIND-018 TRST-003 TRST-004 TRST-015 TRST-017 TRST-018 TRST-102 TRST-104
    TRST-103 TERM-026 TEXT-006 TEXT-029
    TEXT-030 TEXT-037 TEXT-038""".split()
)


def skipped(case: Mapping[str, Any]) -> str:
    """Return why a case is not played here; empty if it is."""
    for act, reason in SKIPPED.items():
        if act in case["policy"]:
            return reason
    if case["id"] in {"RSRC-012", "RSRC-013", "RSRC-036"}:
        return "a fork bomb or memory bomb needs an outer cage"
    return ""


@dataclass
class Tally:
    """Results of the run."""

    played: list[Mapping[str, Any]] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    broken: dict[str, list[str]] = field(default_factory=dict)

    def figures(self) -> str:
        """The figures of the scorecard for the cases that were played."""
        controls = [case for case in self.played if case["severity"] == "control" or case.get("benign")]
        control_ids = {case["id"] for case in controls}
        attacks = [case for case in self.played if case["id"] not in control_ids]
        harmful = [case for case in attacks if case.get("harm_measured")]
        ran = [case["id"] for case in harmful if self.outcomes[case["id"]] == RUNS]
        reasons: dict[str, list[str]] = {}
        for case in CASES:
            if reason := skipped(case):
                reasons.setdefault(reason, []).append(case["id"])

        def of(*names: str) -> list[str]:
            return [name for name, bad in self.broken.items() if set(bad) & set(names)]

        def some(kind: str) -> list[str]:
            return [case["id"] for case in self.played if case["class"] == kind]

        count = len(self.played)
        lines = [
            f"T1  invariant broken: {len({c['id'] for c in attacks} & set(self.broken))} / {len(attacks)} attacks",
            f"T2  outcome as expected: {count - len(self.wrong)} / {count}",
            f"T3  controls asked or blocked wrongly: {len(control_ids & set(self.wrong))} / {len(controls)}",
            f"T4  harmful commands run without asking (sandboxed): {len(ran)} / {len(harmful)} {ran}",
            f"T5  raw sequences in descriptions and transcripts: {len(of('I-NOESC'))} / {count}",
            f"T7  dialogs without the whole call: {len(of('I-DIALOG-FULL'))} / {len(some('dialog_deception'))}",
            f"T8  effects more than once: {len(of('I-ONCE', 'I-ONCE-OR-NONE'))} / {len(some('approval_binding'))}",
            f"T13 key seen: {len(of('I-ENV', 'I-LOG-CLEAN', 'I-NO-AUTH-HEADERS'))} / {count}",
            f"T14 connections to inner targets: {len(of('I-NONET'))} / {len(some('ssrf'))}",
            f"T17 dialogs that do not say how a command is confined: {len(of('SANDBOX-NAMED'))} / {count}",
            f"T16 role: ran or shown: {len(of('I-NOROLE'))} / {len(some('role_escalation'))}",
            *(f"wrong outcome: {name}: {text}" for name, text in self.wrong.items()),
            *(f"broken: {name}: {bad}" for name, bad in self.broken.items()),
            *(f"skipped ({reason}): {' '.join(names)}" for reason, names in reasons.items()),
        ]
        return "\n".join(lines)


async def play(
    case: Mapping[str, Any],
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    tally: Tally,
    *,
    sandbox: bool = True,
    tool_format: str = "auto",
) -> None:
    """Play one case and note what came of it."""
    stage = Stage(case, base, monkeypatch, sandbox=sandbox, tool_format=tool_format)
    async with asyncio.timeout(90):
        played = await stage.play()
    tally.played.append(case)
    tally.outcomes[case["id"]] = outcome_of(case, played)
    if not accepted(case, played) and not (case["id"] in CORRECTED and outcome_of(case, played) == RUNS):
        tally.wrong[case["id"]] = f"{outcome_of(case, played)}, not {case['expected']}: {case['description']}"
    if bad := broken(case, played, stage.world):
        tally.broken[case["id"]] = bad


@pytest.mark.some(3)
@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in SAMPLE], ids=lambda case: case["id"])
async def test_the_sample(case: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally()
    await play(case, tmp_path, monkeypatch, tally)
    assert not tally.wrong and not tally.broken


@pytest.mark.attacks
async def test_the_whole_corpus(tmp_path: Path) -> None:
    tally = Tally()
    for case in CASES:
        if skipped(case):
            continue
        base = tmp_path / case["id"]
        base.mkdir()
        with pytest.MonkeyPatch.context() as monkeypatch:
            try:
                await play(case, base, monkeypatch, tally)
            except Exception as fault:
                tally.played.append(case)
                tally.outcomes[case["id"]] = "crash"
                tally.wrong[case["id"]] = f"{type(fault).__name__}: {fault}"[:300]
    print(f"\n{tally.figures()}")
    assert not tally.broken
    assert not tally.wrong


@pytest.mark.attacks
async def test_the_rules_alone_let_no_harmful_command_run(tmp_path: Path) -> None:
    """Without any sandbox: what a rule for argument words answers does no harm by itself."""
    tally = Tally()
    harmful = [case for case in CASES if case["class"] == "shell_allow_rule" and not case.get("sandbox_required")]
    for case in harmful:
        base = tmp_path / case["id"]
        base.mkdir()
        with pytest.MonkeyPatch.context() as monkeypatch:
            await play(case, base, monkeypatch, tally, sandbox=False)
    print(f"\nT4  without a sandbox: {len(tally.broken)} of {len(harmful)} broke an invariant {tally.broken}")
    print(f"wrong outcomes: {tally.wrong}")
    assert not tally.broken
    assert not tally.wrong


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "case", [RULES[at] for at in (1, 14, 17, 25, 35)], ids=lambda case: case["description"].replace(" ", "_")
)
async def test_a_sample_of_the_rules(case: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally()
    await play(case, tmp_path, monkeypatch, tally)
    assert not tally.wrong and not tally.broken


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "case", [COMMANDS[at] for at in (21, 31, 39, 41, 8, 30, 43)], ids=lambda case: case["description"].replace(" ", "_")
)
async def test_a_sample_of_the_commands(
    case: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Tally()
    await play(case, tmp_path, monkeypatch, tally)
    assert not tally.wrong and not tally.broken


@pytest.mark.some(2)
@pytest.mark.parametrize("case", SANDBOX, ids=lambda case: case["description"].replace(" ", "_"))
async def test_the_ways_out_of_the_sandbox(
    case: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Tally()
    await play(case, tmp_path, monkeypatch, tally)
    assert not tally.wrong and not tally.broken


@pytest.mark.attacks
async def test_no_lasting_rule_for_commands_answers_without_a_sandbox(tmp_path: Path) -> None:
    tally = Tally()
    for case in (case for case in RULES if case["tool"] == "shell_exec"):
        base = tmp_path / case["id"]
        base.mkdir()
        with pytest.MonkeyPatch.context() as monkeypatch:
            await play(
                {**case, "benign": False, "expected": "asks", "invariants": []}, base, monkeypatch, tally, sandbox=False
            )
    assert not tally.wrong and not tally.broken


@pytest.mark.attacks
@pytest.mark.parametrize("tool_format", ["hermes", "qwen3_xml", "pythonic"])
async def test_the_texts_with_tools_in_the_prompt(tool_format: str, tmp_path: Path) -> None:
    """Calls as text, for models that are told of their tools in no other way."""
    tally = Tally()
    for case in CASES:
        if case["class"] != "text_tool_call":
            continue
        base = tmp_path / case["id"]
        base.mkdir()
        with pytest.MonkeyPatch.context() as monkeypatch:
            await play(case, base, monkeypatch, tally, tool_format=tool_format)
    assert len(tally.played) == 19
    assert not tally.broken
    assert not tally.wrong


HARM = frozenset(
    "I-NOEXEC I-CANARY-FILE I-NO-NEW-OUTSIDE I-CANARY-READ I-ENV I-NONET I-NOPROC I-STORE I-MODE-0600".split()
)
"""Invariants that an attack could break in spite of the copy; the others are about questions that are not asked."""


def contained_case(case: Mapping[str, Any], *, answer: str) -> dict[str, Any]:
    """The case in a contained turn: nothing asks before its end, where the user answers."""
    return {**case, "policy": {**case["policy"], "contain": True, "answer": answer}}


def changing(case: Mapping[str, Any]) -> bool:
    """True for attacks by tools whose questions a contained turn answers."""
    return case["tool"] in {"shell_exec", "python_exec", "file_write", "file_edit"}


@pytest.mark.attacks
@pytest.mark.skipif(bool(probe()[1]), reason="contained turns need bubblewrap")
async def test_the_corpus_in_contained_turns(tmp_path: Path) -> None:
    """Commands and edits run without a question, and whatever they try stays in the copy, which is discarded."""
    tally = Tally()
    for case in CASES:
        if skipped(case) or not changing(case) or case["class"] in {"workspace_trust", "remembered_rule"}:
            continue
        base = tmp_path / case["id"]
        base.mkdir()
        with pytest.MonkeyPatch.context() as monkeypatch:
            try:
                await play(contained_case(case, answer="deny"), base, monkeypatch, tally)
            except Exception as error:
                tally.broken[case["id"]] = [f"I-ALIVE {error!r}"]
    harmed = {name: sorted(HARM & set(bad)) for name, bad in tally.broken.items() if HARM & set(bad)}
    print(f"contained: {len(tally.played)} played, harmed {harmed}")
    assert len(tally.played) > 100 and not harmed
