"""Progress of a workflow run as lines on stderr: one line per event that is worth one."""

from collections.abc import Callable

from chatops.domain.events import (
    AnswerRefused,
    GateChecked,
    Published,
    ReviewRequested,
    RoundStarted,
    Status,
    StepFinished,
    StepStarted,
    ToolFinished,
    TurnFinished,
    WorkflowFinished,
    WorkflowStarted,
)
from chatops.domain.usage import Usage, total
from chatops.engine import findings
from chatops.engine.state import TurnState
from chatops.engine.tracker import Stand, standings
from chatops.engine.workflow.state import RunFinished, WorkflowState
from chatops.headless.formats import progress
from chatops.headless.screen import Screen

SHOWN = 200
"""Most characters of a reason in a line."""


class Progress:
    """Prints where a run is: ``step 2/3 configure: iteration 4/10, validations 1 passed, 1 failing, 1,234 tokens``."""

    def __init__(self, screen: Screen, *, turn: Callable[[], TurnState | None]) -> None:
        """Create the progress printer. `turn` returns the current turn as committed."""
        self._screen = screen
        self._turn = turn
        self._steps: tuple[str, ...] = ()
        self._at = ""
        self._spent: Usage | None = None

    def resumed(self, run: WorkflowState) -> None:
        """Restore steps and token counts of a stored run that is resumed."""
        self._steps = tuple(step.name for step in run.spec.steps)
        for record in run.attempts:
            self._spent = total(self._spent, record.usage)
        if not isinstance(run.phase, RunFinished):
            self._go_to(run.phase.step)

    def event(self, published: Published) -> None:
        """Print one line for an event, or nothing."""
        match published.event:
            case WorkflowStarted(workflow=workflow, steps=steps, id=run_id):
                self._steps = steps
                self._screen.say(f"workflow {workflow}: {', '.join(steps)} (run {run_id})")
            case StepStarted(step=step, attempt=attempt, attempts=attempts):
                self._go_to(step)
                self._say(f"attempt {attempt}" + (f" of {attempts}" if attempt <= attempts else ""))
            case RoundStarted():
                self._round()
            case AnswerRefused(why=why):
                self._say(f"the answer is not accepted: {one_line(why)}")
            case GateChecked(gate=gate, status=status, detail=detail):
                word = "passed" if status is Status.SUCCESS else f"did not pass: {one_line(detail)}"
                self._say(f"gate {gate} {word}")
            case StepFinished(result=result, detail=detail):
                self._say(result.value + (f": {one_line(detail)}" if detail else ""))
            case ReviewRequested(reason=reason):
                self._say(f"waits for a person ({reason})")
            case WorkflowFinished(result=result):
                self._screen.say(f"workflow {result}, {tokens(self._spent)}")
            case ToolFinished(tool=tool, status=Status.ERROR, content=content) if content.startswith(findings.HEADING):
                found = "; ".join(f"{one.property}: {one.message}" for one in findings.told(tool, content))
                self._screen.say(f"{tool}: failed: {one_line(found)}")
            case TurnFinished(usage=usage):
                self._spent = total(self._spent, usage)
            case _:
                progress(self._screen, published)

    def _go_to(self, step: int) -> None:
        self._at = f"step {step + 1}/{len(self._steps)} {self._steps[step]}"

    def _say(self, text: str) -> None:
        self._screen.say(f"{self._at}: {text}")

    def _round(self) -> None:
        turn = self._turn()
        if turn is None or turn.contract is None or not self._at:
            return
        most = turn.grant.max_rounds
        number = turn.counters.rounds + 1
        parts = [f"iteration {number}/{most}" if number <= most else "closing call"]
        stands = [one.stand for one in standings(turn.contract, turn.messages, turn.grant)]
        if stands:
            passed, never = stands.count(Stand.PASSED), stands.count(Stand.NEVER)
            parts.append(f"validations {passed} passed, {len(stands) - passed - never} failing, {never} not called")
        spent = total(self._spent, turn.usage)
        self._say(", ".join([*parts, tokens(spent)]))


def tokens(usage: Usage | None) -> str:
    """Return the number of tokens spent, in words."""
    return "no tokens counted" if usage is None else f"{usage.input_tokens + usage.output_tokens:,} tokens"


def one_line(text: str) -> str:
    """Return the beginning of a text, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN else f"{flat[:SHOWN]}…"
