"""System prompt of a step: its own instructions, then a description of what is enforced.

The order, the validations and the form of the answer are generated from the definition. The engine enforces them
whether the model follows the prompt or not.
"""

from collections.abc import Iterator

from chatops.policy.workflow import StepSpec, Subject, Validation, WorkflowSpec

_IN_ORDER = "Follow this workflow in order. Do NOT skip steps or go back."
_VOID = "A pass counts for exactly what was validated. A later change makes it void: validate again after it."


def step_prompt(spec: WorkflowSpec, step: StepSpec) -> str:
    """Return the layer ``workflow step`` of the system prompt: the step's own prompt and the generated parts."""
    place = spec.steps.index(step) + 1
    head = f"You work on step {place} of {len(spec.steps)}, {step.name}, of the workflow {spec.name}."
    parts = [step.system_prompt.strip(), head, _order(step), _validations(step), _answer(step)]
    return "\n\n".join(part for part in parts if part)


def _order(step: StepSpec) -> str:
    """Return the numbered list of the step's tools. The order is enforced when a call is made."""
    validators = list(dict.fromkeys(one.tool for one in step.validations))
    lines = [_call(step, tool) for tool in step.order]
    lines += [_call(step, tool) for tool in step.once if tool not in step.order]
    lines += [f"Validate: call {tool}" for tool in validators if tool not in step.order]
    if validators:
        back = " (do NOT go back to step 1)" if step.order or step.once else ""
        lines.append(f"If validation fails: FIX and re-validate{back}")
    if not lines:
        return ""
    numbered = [f"{number}. {line}" for number, line in enumerate([*lines, "Give your final answer"], start=1)]
    return "\n".join([_IN_ORDER, *numbered])


def _call(step: StepSpec, tool: str) -> str:
    return f"Call {tool}{' (ONCE)' if tool in step.once else ''}"


def _validations(step: StepSpec) -> str:
    if not step.validations:
        return ""
    lines = [f"- {line}" for validation in step.validations for line in _validation(validation)]
    head = "Your final answer is accepted only when these have been called AND have passed:"
    return "\n".join([head, *lines, _VOID])


def _validation(validation: Validation) -> Iterator[str]:
    if not validation.subject:
        yield validation.tool
        return
    named = [_subject(subject) for subject in validation.subject]
    yield f"{validation.tool}, with {' and '.join(named)}"


def _subject(subject: Subject) -> str:
    if not subject.pointer:
        return f"every {subject.argument} that you validate"
    return f"{subject.argument} as at {subject.pointer} in your result (each one, if that is a list)"


def _answer(step: StepSpec) -> str:
    lines = [
        "Your final answer is ONLY one JSON object, with no markdown and no text around it:",
        '{"success": true, "result": …, "reasoning": "one sentence"}',
    ]
    if step.output_schema:
        lines.append(f"`result` has to fit this JSON Schema: {step.output_schema}")
    lines += [
        "If the step cannot be done, answer this; claim success only for what you have seen succeed:",
        '{"success": false, "result": null, "reasoning": "why"}',
    ]
    return "\n".join(lines)
