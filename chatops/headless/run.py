"""Run one turn without a UI: wait until it is paused or over, print, return the exit code.

No user can be asked: a call that needs approval pauses the turn, which is stored, or is denied. A gated
call never runs unasked, and nothing is ever read from the terminal.
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
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import pending_calls, turn_status
from chatops.headless.formats import OutputFormat, Reporter, reporter, short_line
from chatops.headless.pending import next_steps
from chatops.headless.report import NOT_SAVED, TurnReport, report
from chatops.headless.screen import Screen
from chatops.headless.stop_signals import StopSignals
from chatops.runtime.descriptions import way_to_continue
from chatops.runtime.session import Session

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
    with print_events(session, screen, printer):
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
def print_events(session: Session, screen: Screen, printer: Reporter) -> Iterator[None]:
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
