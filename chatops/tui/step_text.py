"""Texts about a step of a workflow run. They are not sanitised; the code that shows them does that."""

from collections.abc import Iterator

from chatops.domain.events import TurnStatus
from chatops.domain.wording import as_fields
from chatops.engine.workflow.state import AttemptRecord, AwaitingReview, CheckingGate, WorkflowState
from chatops.engine.workflow.view import StepView
from chatops.policy.workflow import CommandGate, Gate, StepSpec


def step_text(run: WorkflowState, view: StepView) -> str:
    """Return the output of a step, or why it has none, and the result of each of its attempts."""
    index = view.number - 1
    spec = run.spec.step(index)
    lines = [f"{view.word or view.mark.value}", *_fact_lines(spec)]
    output = _step_output(run, index)
    if output:
        lines += ["", "Output", *(f"  {line}" for line in as_fields(output).split("\n"))]
    if view.refusal:
        lines += ["", "Not accepted because", *(f"  {line}" for line in view.refusal.split("\n"))]
    records = [record for record in run.attempts if record.step == index]
    if records:
        lines += ["", "Attempts", *(line for record in records for line in _attempt_lines(record))]
    return "\n".join(lines)


def attempts_text(run: WorkflowState, step: int) -> list[str]:
    """Return one line per attempt at a step that was not accepted, with the reason."""
    failed = [record for record in run.attempts if record.step == step and record.status is not TurnStatus.ANSWERED]
    return [f"attempt {record.attempt}{_failed_gate(record)}: {' '.join(record.detail.split())}" for record in failed]


def _step_output(run: WorkflowState, index: int) -> str:
    """Return the accepted result, or the answer that waits for its gates or for the user."""
    phase = run.phase
    if isinstance(phase, AwaitingReview | CheckingGate) and phase.step == index:
        return phase.answer
    return next((output.text for output in run.outputs if output.step == index), "")


def _fact_lines(spec: StepSpec) -> Iterator[str]:
    facts = [
        ("role", spec.role),
        ("model", spec.model),
        ("tools", "all of the role" if spec.tools is None else ", ".join(spec.tools) or "none"),
        ("has to pass", ", ".join(dict.fromkeys(check.tool for check in spec.validations))),
        ("gates", ", ".join(f"{gate.name} ({_gate_words(gate)})" for gate in spec.gates)),
        ("review", "the user accepts the answer" if spec.review else ""),
    ]
    width = max(len(f"{label}: ") for label, _ in facts)
    return (f"{label + ':':<{width}}{text}" for label, text in facts if text)


def _gate_words(gate: Gate) -> str:
    return gate.command if isinstance(gate, CommandGate) else "pattern"


def _attempt_lines(record: AttemptRecord) -> Iterator[str]:
    usage = record.usage
    tokens = f", {usage.input_tokens + usage.output_tokens:,} tokens" if usage is not None else ""
    yield f"  attempt {record.attempt}{_failed_gate(record)}: {record.status.value}{tokens}"
    if record.detail:
        yield from (f"      {line}" for line in record.detail.split("\n"))


def _failed_gate(record: AttemptRecord) -> str:
    return f", gate {record.gate}" if record.gate else ""
