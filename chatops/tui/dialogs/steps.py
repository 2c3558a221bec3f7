"""The list of a run's steps, for opening the output of one."""

from chatops.domain.sanitize import sanitize
from chatops.tui.dialogs.picker import Choice, Picker, columns
from chatops.tui.status.status_line import count
from chatops.tui.workflow.lines import clock
from chatops.tui.workflow.view import RunView, StepView

_LONGEST_PREVIEW = 120


def step_picker(view: RunView) -> Picker:
    """Return the picker for a step whose output is shown. The key is the step's index."""
    choices = [
        Choice(
            key=str(one.number - 1),
            text=columns((str(one.number), 2), (one.name, 16), (one.word or one.mark.value, 13), (_cost(one), 24)),
            find=one.name,
            preview=" ".join(one.detail.split())[:_LONGEST_PREVIEW] or _checks(one),
            current=one.number - 1 == view.at,
        )
        for one in view.steps
    ]
    title = f"Steps of {sanitize(view.workflow, newlines=False)}"
    return Picker(title, choices=choices, hint="shows what it gave", empty="No step.")


def _cost(step: StepView) -> str:
    parts = [f"{count(step.tokens)} tokens"] if step.tokens is not None else []
    return ", ".join([*parts, clock(step.seconds)] if step.seconds is not None else parts)


def _checks(step: StepView) -> str:
    return ", ".join(f"{one.name}: {one.mark.value}" for one in (*step.validations, *step.gates))
