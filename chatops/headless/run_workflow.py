"""Run a workflow without a UI: wait until it is paused or over, print, return the exit code. A review waits."""

from dataclasses import replace

from chatops.domain.errors import ChatopsError
from chatops.domain.events import TurnStatus
from chatops.domain.wording import readable
from chatops.engine.view import pending_calls
from chatops.engine.workflow.inputs import Review, TryAgain
from chatops.engine.workflow.state import AwaitingReview, CheckingGate, ReviewReason, WorkflowState
from chatops.headless.formats import OutputFormat, Reporter, reporter, short_line
from chatops.headless.pending import next_steps
from chatops.headless.report import RunReport, run_report
from chatops.headless.run import ExitCode, OnApproval, deny_all, exit_code, print_events
from chatops.headless.screen import Screen
from chatops.headless.stop_signals import StopSignals
from chatops.runtime.workflow import WorkflowRun


async def drive_run(
    run: WorkflowRun,
    *,
    screen: Screen,
    output: OutputFormat,
    on_approval: OnApproval,
    summary: bool,
    review: Review | None = None,
    chosen: tuple[int, int] | None = None,
) -> int:
    """Start the run or resume it.

    `review` is the user's review of what the run waits for. With `chosen`, a step and an attempt counted from 1, it
    counts for nothing else. Without `review`, a stopped run is resumed, and a run that waits for one is printed again.
    """
    printer = reporter(output, screen, summary=summary, turn=lambda: run.session.state)
    if run.stored:
        printer.resumed(run.session.state, run=run.state)
    stop = StopSignals(run.session.cancel)
    with print_events(run.session, screen, printer):
        with stop.listening():
            settled = await stop.unless_terminated(_settle_run(run, review, chosen, on_approval))
        result = run_report(
            run.state, await run.turns(), workspace=str(run.session.workspace), blocked_by=run.blocked_by
        )
        if run.blocked_by is not None and result.pending:
            # A decision that was posted is taken once the run can continue.
            undecided = await run.undecided()
            result = replace(result, pending=tuple(call for call in result.pending if call.call.id in undecided))
        if settled is None and not run.over:
            return _print_stopped_run(result, run, screen, printer)
        printer.finished(result)
        _print_further_of_run(result, run, screen)
        return ExitCode.INTERRUPTED if stop.any_came else exit_code(result.status)


async def _settle_run(
    run: WorkflowRun, review: Review | None, chosen: tuple[int, int] | None, on_approval: OnApproval
) -> WorkflowState:
    """Run until nothing more happens without the user, and return the run as it is then.

    Raises ChatopsError if the review does not apply.
    """
    awaited = run.pending_review
    if review is None and awaited is not None and awaited.reason in (ReviewReason.STOPPED, ReviewReason.UNANSWERED):
        # Resuming repeats a step that the user stopped or no model could answer.
        review = TryAgain()
    if review is not None:
        await _apply_review(run, review, chosen)
    await run.resume()
    await run.settle()
    while on_approval is OnApproval.DENY and (state := run.session.state) and (waiting := pending_calls(state)):
        if not await deny_all(run.session, waiting):
            break
        await run.settle()
    return run.state


async def _apply_review(run: WorkflowRun, review: Review, chosen: tuple[int, int] | None) -> None:
    target = review_target(run.state, chosen)
    if not await run.review(review, step=target.step, attempt=target.attempt):
        name = run.state.spec.step(target.step).name
        raise ChatopsError(
            f"Step {name} cannot be reviewed like that now; nothing was done.", advice=review_steps(run.state)
        )


def review_target(run: WorkflowState, chosen: tuple[int, int] | None) -> AwaitingReview:
    """Return what a review refers to.

    Raises ChatopsError if the run does not wait for a review, or waits for one of another step or attempt than
    `chosen`: a review of an earlier answer must not be applied to a later one.
    """
    target = run.phase
    if not isinstance(target, AwaitingReview):
        raise ChatopsError(
            f"Run {run.session_id} is not waiting for a review.",
            advice=f"To see its state: chatops workflow show {run.session_id}",
        )
    if chosen is not None and chosen != _step_and_attempt(target):
        step, attempt = chosen
        raise ChatopsError(
            f"Run {run.session_id} is not waiting for a review of step {step}, attempt {attempt}; nothing was done.",
            advice=review_steps(run),
        )
    return target


def _step_and_attempt(target: AwaitingReview) -> tuple[int, int]:
    """Return step and attempt as users see them, both counted from 1."""
    return target.step + 1, target.attempt


def _print_stopped_run(result: RunReport, run: WorkflowRun, screen: Screen, printer: Reporter) -> int:
    """Print the run as it is stored, after a signal."""
    printer.broken_off("stopped by a signal")
    advice = f"To continue: {run.way_to_continue}"
    stopped = replace(
        result, status=TurnStatus.CANCELLED, reason="stopped", detail="Stopped by a signal.", advice=advice
    )
    printer.finished(stopped)
    screen.say(f"Stopped. {advice}")
    return ExitCode.INTERRUPTED


def _print_further_of_run(result: RunReport, run: WorkflowRun, screen: Screen) -> None:
    """Print what the user has to know besides the result."""
    match result.status:
        case TurnStatus.ANSWERED:
            if result.detail:
                screen.say(result.detail)
        case TurnStatus.PAUSED:
            if (error := run.blocked_by) is not None:
                screen.say_once(f"The run is blocked: {error} {error.advice}".strip())
            if result.review is not None:
                screen.say(review_steps(run.state))
            elif result.pending:
                screen.say(_approval_text(result, run))
        case TurnStatus.LIMIT | TurnStatus.FAILED:
            screen.say_once(f"{short_line(result.detail or 'The run failed.')} {result.advice}".strip())
            if not run.over:
                screen.say(f"When that is fixed: {run.way_to_continue}")
            else:
                screen.say(f"To see what each step did: chatops workflow show {result.session_id}")
        case TurnStatus.CANCELLED:
            screen.say(f"Cancelled. To see what was done: chatops workflow show {result.session_id}")
        case TurnStatus.RUNNING:
            screen.say(f"To continue: {run.way_to_continue}")


def _approval_text(result: RunReport, run: WorkflowRun) -> str:
    steps, phase = next_steps(result.pending, then=run.way_to_continue), run.state.phase
    if not isinstance(phase, CheckingGate):
        return steps
    step = run.state.spec.step(phase.step)
    return f"The answer of step {step.name} has to pass the gate {step.gates[phase.gate].name}: a command.\n{steps}"


def review_steps(run: WorkflowState) -> str:
    """Return what the user is asked about a step, and the exact commands that answer."""
    target = run.phase
    if not isinstance(target, AwaitingReview):
        return ""
    step = run.spec.step(target.step)
    number, attempt = _step_and_attempt(target)

    def resume(word: str) -> str:
        return f"chatops workflow resume {run.session_id} --{word} --attempt {number}.{attempt}"

    lines = [_review_sentence(step.name, target)]
    if target.answer:
        lines += [f"  {line}" for line in readable(target.answer).splitlines()]
    if target.reason is ReviewReason.REVIEW:
        lines.append(f"Accept it: {resume('accept')}")
    lines.append(f"Retry the step: {resume('retry')}    (--tell TEXT says what is missing)")
    if step.may_skip and target.reason is not ReviewReason.REVIEW:
        lines.append(f"Skip the step: {resume('skip')}")
    lines.append(f"End the run: {resume('stop')}")
    return "\n".join(lines)


def _review_sentence(step: str, target: AwaitingReview) -> str:
    match target.reason:
        case ReviewReason.REVIEW:
            return f"Paused: the answer of step {step} needs your review."
        case ReviewReason.FAILED:
            return f"Paused: step {step} failed at attempt {target.attempt}: {short_line(target.detail)}"
        case ReviewReason.STOPPED:
            return f"Paused: step {step} was stopped."
        case ReviewReason.UNANSWERED:
            return f"Failed: no model answered for step {step}: {short_line(target.detail)}"
