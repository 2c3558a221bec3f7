"""Texts about workflows and runs. They are unsanitised; the code that shows them sanitises them."""

import json
from collections.abc import Iterator, Sequence

from chatops.domain.canonical import json_or_text
from chatops.domain.events import TurnStatus
from chatops.domain.wording import as_fields
from chatops.engine.workflow.state import AttemptRecord, AwaitingReview, CheckingGate, RunFinished, WorkflowState
from chatops.engine.workflow.view import StepView
from chatops.policy.workflow import CommandGate, StepSpec
from chatops.wiring.rows import RunRow, WorkflowRow

USAGE = "/workflow run NAME QUERY"


def step_text(run: WorkflowState, view: StepView) -> str:
    """Return the output of a step, or why it has none, and the result of each of its attempts."""
    index = view.number - 1
    spec = run.spec.step(index)
    lines = [f"{view.word or view.mark.value}", *_facts(spec)]
    output = _output(run, index)
    if output:
        lines += ["", "Output", *(f"  {line}" for line in as_fields(output).split("\n"))]
    if view.refusal:
        lines += ["", "Not accepted because", *(f"  {line}" for line in view.refusal.split("\n"))]
    records = [one for one in run.attempts if one.step == index]
    if records:
        lines += ["", "Attempts", *(line for one in records for line in _record(one))]
    return "\n".join(lines)


def readable(text: str) -> str:
    """Return JSON pretty-printed, as the user accepts it; any other text as it is."""
    value = json_or_text(text) if text[:1] in ("{", "[") else text
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def listing(workflows: Sequence[WorkflowRow], runs: Sequence[RunRow]) -> str:
    """Return the list of workflows, and of the runs that have not ended."""
    lines: list[str] = []
    for row in workflows:
        if row.problem:
            lines += [row.name, *(f"  cannot be used: {line}" for line in row.problem.split("\n")), ""]
        else:
            lines += [
                f"{row.name}: {' → '.join(row.steps)}",
                *([f"  {row.description}"] if row.description else []),
                "",
            ]
    if not workflows:
        lines += ["None is defined. Define one under workflows in the registry, or as a file beside it.", ""]
    lines += ["Unfinished runs"]
    lines += [f"  {row.id}   {row.state}, {row.when}\n    {row.title}" for row in runs] or ["  none"]
    lines += ["", f"{USAGE} starts one. /workflow resume ID resumes one."]
    return "\n".join(lines)


def attempts_text(run: WorkflowState, step: int) -> list[str]:
    """Return one line per attempt at a step that was not accepted, with the reason."""
    failed = [one for one in run.attempts if one.step == step and one.status is not TurnStatus.ANSWERED]
    return [f"attempt {one.attempt}{_gate(one)}: {' '.join(one.detail.split())}" for one in failed]


def _output(run: WorkflowState, index: int) -> str:
    """Return the accepted result, or the answer that waits for its gates or for the user."""
    phase = run.phase
    if isinstance(phase, AwaitingReview | CheckingGate) and phase.step == index:
        return phase.answer
    given = next((one.text for one in run.outputs if one.step == index), "")
    if not given and isinstance(phase, RunFinished) and index == len(run.spec.steps) - 1:
        return phase.answer
    return given


def _facts(spec: StepSpec) -> Iterator[str]:
    facts = [
        ("role", spec.role),
        ("model", spec.model),
        ("tools", "all of the role" if spec.tools is None else ", ".join(spec.tools) or "none"),
        ("has to pass", ", ".join(dict.fromkeys(one.tool for one in spec.validations))),
        ("gates", ", ".join(f"{one.name} ({_tested(one)})" for one in spec.gates)),
        ("review", "the user accepts the answer" if spec.review else ""),
    ]
    return (f"{label + ':':<13}{text}" for label, text in facts if text)


def _tested(gate: object) -> str:
    return gate.command if isinstance(gate, CommandGate) else "pattern"


def _record(record: AttemptRecord) -> Iterator[str]:
    usage = record.usage
    tokens = f", {usage.input_tokens + usage.output_tokens:,} tokens" if usage is not None else ""
    yield f"  attempt {record.attempt}{_gate(record)}: {record.status.value}{tokens}"
    if record.detail:
        yield from (f"      {line}" for line in record.detail.split("\n"))


def _gate(record: AttemptRecord) -> str:
    return f", gate {record.gate}" if record.gate else ""
