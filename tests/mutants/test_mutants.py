"""Hand-made mistakes in engine and policy that the tests must notice: each one is a way to lose a promise."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.workflows import WORKFLOWS

ROOT = Path(__file__).parents[2]


MUTANTS = (
    Mutant(
        promise="a turn that has reached its budget asks",
        file="engine/budgets.py",
        before="if (used := spent(state, limit)) >= permitted:",
        after="if (used := spent(state, limit)) >= most + 100:",
    ),
    Mutant(
        promise="only a person lets a turn go beyond its budget",
        file="engine/budgets.py",
        before="(decision == Approved() and by.is_person)",
        after="decision == Approved()",
    ),
    Mutant(
        promise="an unknown price is not taken for nothing",
        file="engine/budgets.py",
        before='(limit == "cost" and not target.priced) or ',
        after="",
    ),
    Mutant(
        promise="a no to more spends no more",
        file="engine/rounds.py",
        before="more = result.outcome is Outcome.SUCCESS",
        after="more = True",
    ),
    Mutant(
        promise="of several budgets the strictest counts",
        file="policy/budget.py",
        before="cost=min((budget.cost",
        after="cost=max((budget.cost",
        tests=("tests/policy/test_grant.py",),
    ),
    Mutant(
        promise="a decision names the digest it was made on",
        file="engine/turn.py",
        before="isinstance(status, AwaitingDecision) and status.digest == digest",
        after="isinstance(status, AwaitingDecision)",
    ),
    Mutant(
        promise="a late result of another attempt is ignored",
        file="engine/turn.py",
        before="isinstance(status, Started) and status.attempt == attempt",
        after="isinstance(status, Started)",
    ),
    Mutant(
        promise="a stale reply is ignored",
        file="engine/turn.py",
        before="or phase.round_id != ended.round_id",
        after="",
    ),
    Mutant(
        promise="only a failed turn can be retried",
        file="engine/view.py",
        before=" and state.phase.result is TurnStatus.FAILED",
        after="",
    ),
    Mutant(
        promise="what was approved is compared with what would run",
        file="engine/inspection.py",
        before="return calls.call_digest(draft, call, facts) == status.digest",
        after="return True",
    ),
    Mutant(
        promise="the digest binds what the target held",
        file="engine/calls.py",
        before="        list(facts.hashes),\n",
        after="",
    ),
    Mutant(
        promise="an approval is judged by the role in force",
        file="engine/calls.py",
        before="for grant in ((draft.state.grant,) if draft.state.grant == then else (then, draft.state.grant))",
        after="for grant in (then,)",
    ),
    Mutant(
        promise="a call is judged by the role it was proposed under",
        file="engine/calls.py",
        before="for grant in ((draft.state.grant,) if draft.state.grant == then else (then, draft.state.grant))",
        after="for grant in (draft.state.grant,)",
    ),
    Mutant(
        promise="invalid arguments never reach the user",
        file="engine/inspection.py",
        before="    elif facts.problems:\n        phase =",
        after="    elif False:\n        phase =",
    ),
    Mutant(
        promise="nothing overtakes an earlier call that can change what it reads",
        file="engine/calls.py",
        before="return _is_read_only(draft, calls[index]) and all(_is_read_only(draft, call) for call in unsettled)",
        after="return _is_read_only(draft, calls[index])",
    ),
    Mutant(
        promise="what is not read-only waits for every earlier call",
        file="engine/calls.py",
        before="    if not unsettled:\n        return True\n",
        after="    return True\n",
    ),
    Mutant(
        promise="the same call is not run for the third time in a row",
        file="engine/inspection.py",
        before="return same >= MAX_SAME",
        after="return same > MAX_SAME",
    ),
    Mutant(
        promise="an edit is shown again before it runs",
        file="engine/inspection.py",
        before="calls.ask_user(draft, index, facts, AskReason.EDITED, why=why, attempt=attempt, interruption=earlier)",
        after="""bound = calls.call_digest(draft, call, facts)
    status = Permitted(facts=facts, digest=bound, verdict=Verdict.ASK, decided_by="")
    draft.set_status(index, status)""",
    ),
    Mutant(
        promise="a call that may have taken effect is not repeated by itself",
        file="engine/recovery.py",
        before="elif spec is not None and (spec.read_only or spec.idempotent) and not stopping and not elsewhere:",
        after="elif spec is not None and not stopping and not elsewhere:",
    ),
    Mutant(
        promise="an approval lets nothing run in a copy of the store",
        file="engine/recovery.py",
        before="as status if calls.may_have_run_elsewhere(draft, index):",
        after="as status if False:",
    ),
    Mutant(
        promise="what a rule permits is asked for in a copy of the store",
        file="engine/inspection.py",
        before="case Verdict.ALLOW if calls.may_have_run_elsewhere(draft, index):",
        after="case Verdict.ALLOW if False:",
    ),
    Mutant(
        promise="on recovery the stored rights are met with today's",
        file="engine/recovery.py",
        before="draft.set_grant(draft.state.grant.intersection(grant))",
        after="draft.set_grant(draft.state.grant)",
    ),
    Mutant(
        promise="one closing call is reserved",
        file="engine/rounds.py",
        before="ask_model(draft, purpose=Purpose.CLOSE if round_limits.has_reached_limit(draft) else Purpose.GATHER)",
        after="ask_model(draft)",
    ),
    Mutant(
        promise="calls of the closing reply are ignored",
        file="engine/replies.py",
        before="if gathering and _calls_tools(draft, reply):",
        after="if _calls_tools(draft, reply):",
    ),
    Mutant(
        promise="the third round of only invalid calls counts",
        file="engine/round_limits.py",
        before="elif counters.repairs < FREE_REPAIRS and",
        after="elif counters.repairs <= FREE_REPAIRS and",
    ),
    Mutant(
        promise="a mistake that is made again is no free repair",
        file="engine/round_limits.py",
        before=" and not _repeats_mistake(counters)",
        after="",
    ),
    Mutant(
        promise="a mistake counts once in a round",
        file="engine/inspection.py",
        before="before.times + (before.request != counters.requests)",
        after="before.times + 1",
    ),
    Mutant(
        promise="what the reader repaired asks the user",
        file="engine/inspection.py",
        before="(*call.repairs, *facts.repairs)",
        after="facts.repairs",
    ),
    Mutant(
        promise="what inspection repaired asks the user",
        file="engine/inspection.py",
        before="(*call.repairs, *facts.repairs)",
        after="call.repairs",
    ),
    Mutant(
        promise="an edit that cannot run leaves the repairs as they were",
        file="engine/inspection.py",
        before=", repairs=before.repairs)",
        after=")",
    ),
    Mutant(
        promise="no rule answers for a call that had to be repaired",
        file="policy/grant.py",
        before='"the call had to be repaired" if facts.repairs else facts.needs_user',
        after="facts.needs_user",
        tests=("tests/policy",),
    ),
    Mutant(
        promise="no remembered rule answers for a call that had to be repaired",
        file="policy/remembered.py",
        before="    if facts.repairs:\n",
        after="    if False:\n",
        tests=("tests/policy",),
    ),
    Mutant(
        promise="a rule for a folder answers in no other folder",
        file="policy/remembered.py",
        before="(not rule.folder or rule.folder != folder)",
        after="not rule.folder",
        tests=("tests/policy",),
    ),
    Mutant(
        promise="a rule for a tool that has changed answers nothing",
        file="policy/remembered.py",
        before="(rule.definition or lasting or facts.credentials) and rule.definition != _bound_to(facts)",
        after="lasting and not rule.definition",
        tests=("tests/policy",),
    ),
    Mutant(
        promise="a rule answers nothing where its scope is switched off",
        file="policy/remembered.py",
        before="if rule.scope not in scopes:",
        after="if not scopes:",
        tests=("tests/policy",),
    ),
    Mutant(
        promise="a lasting rule for a program answers only in a sandbox",
        file="policy/remembered.py",
        before="if not facts.sandboxed:",
        after="if False:",
        tests=("tests/policy",),
    ),
    Mutant(
        promise="a rule for everywhere does not run code of the folder",
        file="shell/harmless.py",
        before=" or words[0] in RUN_WORKSPACE_CODE",
        after="",
        tests=("tests/policy", "tests/shell"),
    ),
    Mutant(
        promise="what a rule allowed is in the decision log",
        file="engine/calls.py",
        before="if judgement.rule is not None and status.verdict is not Verdict.ASK:",
        after="if False:",
        tests=("tests/engine",),
    ),
    Mutant(
        promise="repairs have a cap per turn",
        file="engine/round_limits.py",
        before=" or counters.repairs_total >= MAX_REPAIRS",
        after="",
    ),
    Mutant(
        promise="a backup is asked before the first token only",
        file="engine/replies.py",
        before="if not failure.started and failure.kind",
        after="if failure.kind",
    ),
    Mutant(
        promise="no backup for what another model would meet too",
        file="engine/replies.py",
        before="failure.kind in OTHER_MODEL_MAY_HELP and _switch_to_backup(draft)",
        after="_switch_to_backup(draft)",
    ),
    Mutant(
        promise="a reply cut off is not sent again in its own turn",
        file="engine/rounds.py",
        before=" if at < last_user_message or not _is_broken_off(m)]",
        after="]",
    ),
    Mutant(
        promise="the strictest verdict counts",
        file="policy/grant.py",
        before="deciding = max(reasons,",
        after="deciding = min(reasons,",
        tests=("tests/policy", "tests/engine"),
    ),
    Mutant(
        promise="a child is compared with the strictest of its caller's verdicts",
        file="policy/verdicts.py",
        before="return max(verdicts,",
        after="return min(verdicts,",
        tests=("-m", "more or not more", "-o", "faulthandler_timeout=0", "tests/policy/test_delegation.py"),
    ),
    Mutant(
        promise="a rule of another role is suspended",
        file="policy/grant.py",
        before="if rule.role != self.role or rule.tool != tool",
        after="if rule.tool != tool",
        tests=("tests/policy", "tests/engine"),
    ),
    Mutant(
        promise="a standing answer never answers a deny",
        file="policy/grant.py",
        before="if deciding.verdict is not Verdict.ASK or self.approvers(tool):",
        after="if deciding.verdict is Verdict.ALLOW or self.approvers(tool):",
        tests=("tests/policy", "tests/engine"),
    ),
)


def test_each_mutant_finds_its_place() -> None:
    for mutant in (*MUTANTS, *WORKFLOWS):
        text = (ROOT / "chatops" / mutant.file).read_text()
        assert text.count(mutant.before) == 1, f"bring this mutant up to date: {mutant.promise}"


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", (*MUTANTS, *WORKFLOWS), ids=lambda mutant: mutant.promise.replace(" ", "-"))
def test_the_mistake_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    for name in ("chatops", "tests", "pyproject.toml", "model_registry.json", "personas"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    file = tmp_path / "chatops" / mutant.file
    file.write_text(file.read_text().replace(mutant.before, mutant.after))
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *mutant.tests],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CI": "true"},
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 1, f"nothing noticed that this no longer holds: {mutant.promise}\n{tested.stdout}"
