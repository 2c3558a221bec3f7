"""Run a workflow without a UI until it is over or needs the user; print, return the exit code.

No user can be asked: a call that needs approval pauses the run, which is stored, or is denied. A review waits.
"""

from dataclasses import replace
from typing import assert_never

from chatops.domain.errors import ChatopsError
from chatops.domain.events import TurnStatus
from chatops.engine.view import pending_calls
from chatops.engine.workflow.inputs import Review, TryAgain
from chatops.engine.workflow.state import AwaitingReview, CheckingGate, ReviewReason, WorkflowState
from chatops.headless.formats import OutputFormat, Reporter, one_line, readable, reporter
from chatops.headless.pending import next_steps
from chatops.headless.report import RunReport, run_report
from chatops.headless.run import ExitCode, OnApproval, Stop, deny_all, exit_code
from chatops.headless.screen import Screen
from chatops.runtime.workflow import WorkflowRun


async def drive(
    run: WorkflowRun,
    *,
    screen: Screen,
    output: OutputFormat,
    on_approval: OnApproval,
    summary: bool,
    review: Review | None = None,
    about: tuple[int, int] | None = None,
) -> int:
    """Start the run or resume it.

    `review` is the user's review of what the run waits for; `about` limits it to one step and attempt, both counted
    from 1. Without `review`, a stopped run is resumed, and a run that waits for a review is printed again.
    """
    printer = reporter(output, screen, summary=summary, turn=lambda: run.session.state)
    if run.stored:
        printer.resumed(run.session.state, run=run.state)
    stop = Stop()
    unsubscribe = run.session.subscribe(printer.event)
    try:
        with stop.listening():
            stop.on_interrupt = run.session.cancel
            settled = await stop.first(_settled(run, review, about, on_approval))
        result = run_report(
            run.state, await run.turns(), workspace=str(run.session.workspace), blocked_by=run.blocked_by
        )
        if run.blocked_by is not None and result.pending:
            # A decision that was posted is taken once the run can continue.
            undecided = await run.undecided()
            result = replace(result, pending=tuple(one for one in result.pending if one.call.id in undecided))
        if settled is None and not run.over:
            return _stopped(result, run, screen, printer)
        printer.finished(result)
        _explain(result, run, screen)
        return ExitCode.INTERRUPTED if stop.interrupted or stop.terminated else exit_code(result.status)
    except BaseException as error:
        printer.broke(str(error) or type(error).__name__)
        raise
    finally:
        unsubscribe()


async def _settled(
    run: WorkflowRun, review: Review | None, about: tuple[int, int] | None, on_approval: OnApproval
) -> bool:
    """Run until nothing more happens without the user, then return True.

    Raises ChatopsError if the review does not apply.
    """
    word = review or _implied(run.pending_review)
    if word is not None:
        await _say(run, word, about)
    await run.resume()
    await run.settle()
    while on_approval is OnApproval.DENY and (state := run.session.state) and (waiting := pending_calls(state)):
        if not await deny_all(run.session, waiting):
            break
        await run.settle()
    return True


async def _say(run: WorkflowRun, word: Review, about: tuple[int, int] | None) -> None:
    wanted = reviewed(run.state, about)
    if not await run.review(word, step=wanted.step, attempt=wanted.attempt):
        name = run.state.spec.step(wanted.step).name
        raise ChatopsError(
            f"Step {name} cannot be reviewed like that now; nothing was done.", advice=review_steps(run.state)
        )


def reviewed(run: WorkflowState, about: tuple[int, int] | None) -> AwaitingReview:
    """Return what a review refers to.

    Raises ChatopsError if the run does not wait for a review, or waits for one of another step or attempt than `about`:
    a review of an earlier answer must not be applied to a later one.
    """
    wanted = run.phase
    if not isinstance(wanted, AwaitingReview):
        raise ChatopsError(
            f"Run {run.session_id} is not waiting for a review.",
            advice=f"To see its state: chatops workflow show {run.session_id}",
        )
    if about is not None and about != _about(wanted):
        step, attempt = about
        raise ChatopsError(
            f"Run {run.session_id} is not waiting for a review of step {step}, attempt {attempt}; nothing was done.",
            advice=review_steps(run),
        )
    return wanted


def _about(wanted: AwaitingReview) -> tuple[int, int]:
    return wanted.step + 1, wanted.attempt


def _implied(wanted: AwaitingReview | None) -> Review | None:
    """Return the review that resuming implies: repeat a step that the user stopped or no model could answer."""
    again = (ReviewReason.STOPPED, ReviewReason.UNANSWERED)
    return TryAgain() if wanted is not None and wanted.reason in again else None


def _stopped(result: RunReport, run: WorkflowRun, screen: Screen, printer: Reporter) -> int:
    """Print the run as it is stored, after a signal."""
    printer.broke("stopped by a signal")
    stopped = replace(
        result,
        status=TurnStatus.CANCELLED,
        reason="stopped",
        detail="Stopped by a signal.",
        advice=_to_continue(run),
    )
    printer.finished(stopped)
    screen.say(f"Stopped. {_to_continue(run)}")
    return ExitCode.INTERRUPTED


def _to_continue(run: WorkflowRun) -> str:
    return f"To continue: {run.way_to_continue}"


def _explain(result: RunReport, run: WorkflowRun, screen: Screen) -> None:
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
                screen.say(_approvals(result, run))
        case TurnStatus.LIMIT | TurnStatus.FAILED:
            screen.say_once(f"{one_line(result.detail or 'The run failed.')} {result.advice}".strip())
            if not run.over:
                screen.say(f"When that is fixed: {run.way_to_continue}")
            else:
                screen.say(f"To see what each step did: chatops workflow show {result.session_id}")
        case TurnStatus.CANCELLED:
            screen.say(f"Cancelled. To see what was done: chatops workflow show {result.session_id}")
        case TurnStatus.RUNNING:
            screen.say(_to_continue(run))
        case never:
            assert_never(never)


def _approvals(result: RunReport, run: WorkflowRun) -> str:
    steps, phase = next_steps(result.pending, then=run.way_to_continue), run.state.phase
    if not isinstance(phase, CheckingGate):
        return steps
    step = run.state.spec.step(phase.step)
    return f"The answer of step {step.name} has to pass the gate {step.gates[phase.gate].name}: a command.\n{steps}"


def review_steps(run: WorkflowState) -> str:
    """Return what the user is asked about a step, and the exact commands that answer."""
    wanted = run.phase
    if not isinstance(wanted, AwaitingReview):
        return ""
    step = run.spec.step(wanted.step)
    number, attempt = _about(wanted)

    def resume(word: str) -> str:
        return f"chatops workflow resume {run.session_id} --{word} --attempt {number}.{attempt}"

    lines = [_asked(step.name, wanted)]
    if wanted.answer:
        lines += [f"  {line}" for line in readable(wanted.answer).splitlines()]
    if wanted.reason is ReviewReason.REVIEW:
        lines.append(f"Accept it: {resume('accept')}")
    lines.append(f"Retry the step: {resume('retry')}    (--tell TEXT says what is missing)")
    if step.may_skip and wanted.reason is not ReviewReason.REVIEW:
        lines.append(f"Skip the step: {resume('skip')}")
    lines.append(f"End the run: {resume('stop')}")
    return "\n".join(lines)


def _asked(step: str, wanted: AwaitingReview) -> str:
    match wanted.reason:
        case ReviewReason.REVIEW:
            return f"Paused: the answer of step {step} needs your review."
        case ReviewReason.FAILED:
            return f"Paused: step {step} failed at attempt {wanted.attempt}: {one_line(wanted.detail)}"
        case ReviewReason.STOPPED:
            return f"Paused: step {step} was stopped."
        case ReviewReason.UNANSWERED:
            return f"Paused: no model answered for step {step}: {one_line(wanted.detail)}"
