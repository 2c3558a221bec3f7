"""Run one turn, or a workflow, without a UI: wait until it is paused or over, print, return the exit code.

No user can be asked: a call that needs approval pauses the turn or run, which is stored, or is denied. A review waits.
A gated call never runs unasked, and nothing is ever read from the terminal.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum, StrEnum
from functools import partial

from chatops.domain.decisions import Rejected
from chatops.domain.errors import ChatopsError, NotSavedError, unsaved_sentence
from chatops.domain.events import PendingCall, Published, TurnPaused, TurnStarted, TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import readable
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import pending_calls, turn_status
from chatops.engine.workflow.inputs import Review, TryAgain
from chatops.engine.workflow.state import AwaitingReview, CheckingGate, ReviewReason, WorkflowState
from chatops.headless.formats import OutputFormat, Reporter, reporter, short_line
from chatops.headless.pending import next_steps
from chatops.headless.report import NOT_SAVED, RunReport, TurnReport, report, run_report
from chatops.headless.screen import Screen
from chatops.headless.stop_signals import StopSignals
from chatops.runtime.descriptions import way_to_continue
from chatops.runtime.session import Session
from chatops.runtime.workflow import WorkflowRun

NO_USER = "no user is there to approve it"
CANNOT_WAIT = "nothing can be saved here, so it cannot wait for approval"


class ExitCode(IntEnum):
    """Exit code of the command."""

    ANSWERED = 0
    ERROR = 1
    USAGE = 2
    PAUSED = 3
    LIMIT = 4
    INTERRUPTED = 130


class OnApproval(StrEnum):
    """Treatment of a call that no rule answers."""

    PAUSE = "pause"
    DENY = "deny"


async def ask(session: Session, prompt: str, *, screen: Screen, output: OutputFormat, on_approval: OnApproval) -> int:
    """Send `prompt` and run the turn. If the last turn is still open, do not send the prompt."""
    before = session.state
    printer = reporter(output, screen)
    if before is not None and turn_status(before) in (TurnStatus.PAUSED, TurnStatus.RUNNING):
        return _print_occupied(session, before, screen, printer)

    def name_files(published: Published) -> None:
        if isinstance(published.event, TurnStarted):
            for file in published.event.files:
                screen.say(short_line(file.attachment))

    unsubscribe = session.subscribe(name_files)
    try:
        begin = partial(session.submit, prompt)
        return await _drive_turn(session, begin, screen=screen, printer=printer, on_approval=on_approval)
    finally:
        unsubscribe()


async def resume_turn(session: Session, *, screen: Screen, output: OutputFormat, on_approval: OnApproval) -> int:
    """Resume the stored turn: apply posted decisions, and print the calls that are still pending again."""
    printer = reporter(output, screen)
    if session.state is not None:
        printer.resumed(session.state)
    return await _drive_turn(session, session.resume, screen=screen, printer=printer, on_approval=on_approval)


def show_end(state: TurnState, *, workspace: str, screen: Screen, output: OutputFormat, expected: bool = False) -> int:
    """Print the result of a turn that is over, and return its exit code. Say that it is over, unless `expected`."""
    if not expected:
        screen.say("The last turn of this session has already ended:")
    return _print_end(report(state, workspace=workspace), screen, reporter(output, screen), over=True)


@frozen_dataclass
class _Settled:
    """A turn that is paused or over."""

    state: TurnState | None
    """None if no turn was started."""
    could_not_wait: tuple[PendingCall, ...] = ()
    """The calls that should have paused it, and were denied because nothing can be stored."""

    @property
    def is_over(self) -> bool:
        return self.state is not None and isinstance(self.state.phase, Finished)


async def _drive_turn(
    session: Session,
    begin: Callable[[], Awaitable[object]],
    *,
    screen: Screen,
    printer: Reporter,
    on_approval: OnApproval,
) -> int:
    stop = StopSignals(session.cancel)
    with _print_events(session, screen, printer):
        try:
            with stop.listening():
                settled = await stop.unless_terminated(_settle_turn(session, begin, on_approval))
        except NotSavedError as error:
            return _print_no_turn(error, screen, printer)
        settled = settled or _Settled(state=session.state)
        if stop.terminated and not settled.is_over:
            return _print_stopped_turn(session, settled.state, screen, printer)
        if settled.state is None:
            return _print_no_turn(session.blocked_by, screen, printer)
        result = report(settled.state, workspace=session.snapshot().workspace, blocked_by=session.blocked_by)
        if settled.could_not_wait and result.status is TurnStatus.ANSWERED:
            tools = ", ".join(dict.fromkeys(call.call.name for call in settled.could_not_wait))
            detail = f"Not run: {tools} needs approval, and {CANNOT_WAIT}. {session.unsaved}"
            result = replace(result, status=TurnStatus.FAILED, reason=NOT_SAVED, detail=detail)
        code = _print_end(result, screen, printer, over=settled.is_over, blocked_by=session.blocked_by)
        return ExitCode.INTERRUPTED if stop.any_came else code


@contextmanager
def _print_events(session: Session, screen: Screen, printer: Reporter) -> Iterator[None]:
    """Print the events of the session inside the block, and why it ended if it raises."""
    unsubscribe = session.subscribe(printer.event)
    try:
        yield
    except BaseException as error:
        printer.broken_off(str(error) or type(error).__name__)
        raise
    finally:
        screen.show_progress(None)
        unsubscribe()


async def _settle_turn(session: Session, begin: Callable[[], Awaitable[object]], on_approval: OnApproval) -> _Settled:
    """Run the turn until it is paused or over."""
    await begin()
    state, could_not_wait = await session.settle(), list[PendingCall]()
    # A pending call is approved from another process, so it has to be stored.
    denies = on_approval is OnApproval.DENY or session.in_memory_only
    reason = CANNOT_WAIT if session.in_memory_only else NO_USER
    while denies and state is not None and (waiting := pending_calls(state)):
        if on_approval is OnApproval.PAUSE:
            could_not_wait += waiting
        if not await deny_all(session, waiting, reason=reason):
            break
        state = await session.settle()
    return _Settled(state=state, could_not_wait=tuple(could_not_wait))


async def deny_all(session: Session, waiting: tuple[PendingCall, ...], *, reason: str = NO_USER) -> bool:
    """Deny the pending calls. Return True unless all of them were decided in another process before."""
    accepted = [
        await session.decide(call.call.id, digest=call.digest, decision=Rejected(reason=reason)) for call in waiting
    ]
    return any(accepted)


def _print_stopped_turn(session: Session, state: TurnState | None, screen: Screen, printer: Reporter) -> int:
    """Print the turn as it is stored, after a signal."""
    printer.broken_off("stopped by a signal")
    if state is not None:
        printer.finished(report(state, workspace=session.snapshot().workspace))
    if session.session_id:
        screen.say(f"Stopped. To continue: chatops resume {session.session_id}")
    else:
        screen.say("Stopped before anything was stored.")
    return ExitCode.INTERRUPTED


def _print_no_turn(error: ChatopsError | None, screen: Screen, printer: Reporter) -> int:
    """Report that there is no turn here: another process owns the session now, or no turn was started."""
    if error is None:
        error = ChatopsError("The turn could not be started.", advice="chatops doctor shows what is wrong.")
    printer.broken_off(str(error))
    # Use the session's own wording, so that say_once prints it only once.
    problem = unsaved_sentence(error) if isinstance(error, NotSavedError) else str(error)
    screen.say_once(f"{problem} {error.advice}".strip())
    return ExitCode.ERROR


def _print_occupied(session: Session, state: TurnState, screen: Screen, printer: Reporter) -> int:
    """Print the open turn as if it had just stopped; send nothing."""
    session_id = session.snapshot().session_id
    screen.say("The prompt was not sent: the last turn of this session is not finished.")
    waiting = pending_calls(state)
    printer.resumed(state)
    if waiting:
        paused = TurnPaused(id=state.turn_id, parent_id=state.session_id, pending=waiting)
        printer.event(Published(at=time.time(), event=paused))
    printer.finished(report(state, workspace=session.snapshot().workspace))
    if waiting:
        screen.say(next_steps(waiting, then=way_to_continue(session_id)))
        return ExitCode.PAUSED
    screen.say(f"Finish it first with: chatops resume {session_id}")
    return ExitCode.ERROR


def _print_end(
    result: TurnReport, screen: Screen, printer: Reporter, *, over: bool, blocked_by: ChatopsError | None = None
) -> int:
    printer.finished(result)
    _print_further(result, screen, unsaved=blocked_by is not None and not over)
    if blocked_by is not None and over:
        screen.say_once(f"{unsaved_sentence(blocked_by)} {blocked_by.advice}".strip())
        return ExitCode.ERROR
    return exit_code(result.status)


def _print_further(result: TurnReport, screen: Screen, *, unsaved: bool) -> None:
    """Print what the user has to know besides the answer and was not printed as it happened."""
    match result.status:
        case TurnStatus.ANSWERED:
            return
        case TurnStatus.PAUSED:
            screen.say(next_steps(result.pending, then=way_to_continue(result.session_id)))
        case TurnStatus.LIMIT if screen.out.isatty() and result.detail and result.answer.startswith(result.detail):
            screen.say_once(result.advice)  # The answer on the same screen begins with the rest.
        case TurnStatus.LIMIT:
            screen.say_once(f"{result.detail or 'A limit was reached.'} {result.advice}".strip())
        case TurnStatus.FAILED:
            screen.say_once(f"{result.detail or 'The turn failed.'} {result.advice}".strip())
            if unsaved:
                screen.say(f"When it can be saved again: chatops resume {result.session_id}")
            elif result.reason != NOT_SAVED:
                screen.say(f"Everything is saved. To continue: chatops -r {result.session_id}")
        case TurnStatus.CANCELLED | TurnStatus.RUNNING:
            screen.say(f"Stopped. The session is {result.session_id}.")


def exit_code(status: TurnStatus) -> ExitCode:
    """Return the exit code for the status of a turn or a workflow run."""
    match status:
        case TurnStatus.ANSWERED:
            return ExitCode.ANSWERED
        case TurnStatus.PAUSED:
            return ExitCode.PAUSED
        case TurnStatus.LIMIT:
            return ExitCode.LIMIT
        case TurnStatus.FAILED:
            return ExitCode.ERROR
        case TurnStatus.CANCELLED | TurnStatus.RUNNING:
            return ExitCode.INTERRUPTED


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
    with _print_events(run.session, screen, printer):
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
