"""``chatops jobs``, and ``-p … --background``: turns that continue in the background.

A job runs as ``chatops jobs resume ID --foreground`` in a process of its own, see `wiring.jobs`.

The user's ``notify`` program hears what a job waits for, or how it ended. The registry of the user or of the site names
the program. Its failure is logged, and changes nothing.
"""

import asyncio
import json
import logging
import os
import signal
import time
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from chatops.commands.application import open_app, print_use_notices, run_app
from chatops.commands.context import find_session, open_stored, options, show_list
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ChatopsError, ConfigError, NoSuchSessionError, SessionBusyError, SessionHeldError
from chatops.domain.events import Published, TurnFinished, TurnPaused, TurnStatus
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sanitize import reveal
from chatops.headless.formats import OutputFormat, short_line
from chatops.headless.pending import next_steps, pending_json
from chatops.headless.run import ExitCode, OnApproval, resume_turn, show_end
from chatops.headless.screen import at_words, screen, when
from chatops.runtime.descriptions import call_line
from chatops.runtime.session import Session
from chatops.sandbox.process import clean_environment
from chatops.store.base import JobRow
from chatops.store.process_identity import this_process
from chatops.store.store import Store
from chatops.tools.clipboard import DISPLAY
from chatops.wiring.app import App
from chatops.wiring.job_binding import (
    FOREIGN_OPTIONS,
    bind_here,
    has_own_options,
    moved_folders,
    on_approval_of,
    options_of,
    why_not_here,
)
from chatops.wiring.jobs import (
    Job,
    JobState,
    job_of,
    move_to_background,
    start_process,
    starter_of_this_process,
    wait_for_lease,
)
from chatops.wiring.not_started import NotStarted, WhyNot
from chatops.wiring.stored import Options, Storage, open_store

log = logging.getLogger(__name__)

POLL_S = 0.3
"""Seconds between two reads of a job that another process runs. Each costs a query of the store."""
_NOTIFIER_TIMEOUT_S = 10.0
"""Seconds until the program is killed. The job waits for it meanwhile."""
_DESKTOP_VARIABLES = (*DISPLAY, "DBUS_SESSION_BUS_ADDRESS")
"""Variables that ``notify-send`` and the like need."""


def run(arguments: Namespace) -> int:
    """Run the chosen action."""
    actions = {"show": _show, "wait": _wait, "cancel": _cancel, "resume": _resume}
    return actions.get(arguments.action, _list)(arguments)


# Listing


def _list(arguments: Namespace) -> int:
    with open_stored(arguments) as opened:
        jobs = [job_of(opened.store, row) for row in opened.store.jobs()]
    rows = [
        (job.id, job.state.value, when(job.row.session.updated_at), job.folder, job.title, job.about) for job in jobs
    ]
    header = ("ID", "STATE", "CHANGED", "FOLDER", "TITLE", "ABOUT")
    return show_list(arguments, [as_json(job) for job in jobs], header, rows, empty="No jobs.")


def as_json(job: Job) -> dict[str, JsonValue]:
    """Return a job for scripts."""
    return {
        "session_id": job.id,
        "turn_id": job.row.turn_id,
        "title": job.row.session.title,
        "state": job.state.value,
        "why": job.why,
        "pending": [pending_json(pending) for pending in job.pending],
        "pid": job.lease.holder.pid if job.lease is not None else None,
        "workspace": job.row.session.workspace,
        "role": job.row.session.role,
        "created_at": job.row.created_at,
        "updated_at": job.row.session.updated_at,
    }


def _show(arguments: Namespace) -> int:
    with open_stored(arguments) as opened:
        job = job_of(opened.store, find_job(opened.store, arguments.id))
    view = screen()
    if arguments.output_format == "json":
        view.json(as_json(job))
        return 0
    facts = {
        "Job": job.id,
        "Title": job.title,
        "State": ": ".join(filter(None, (job.state.value, job.about))),
        "Role": job.row.session.role,
        "Folder": job.folder,
        "Started": when(job.row.created_at),
    }
    view.answer(at_words("\n".join(f"{name + ':':<9} {value}" for name, value in facts.items()), view.out))
    view.say(_advice(job))
    return 0


def _advice(job: Job) -> str:
    """Return what a user can do with a job now."""
    match job.state:
        case JobState.WAITING:
            return at_words(next_steps(job.pending, then="the job continues by itself"), screen().err)
        case JobState.RUNNING:
            return f"To wait for it: chatops jobs wait {job.id}\nTo stop it: chatops jobs cancel {job.id}"
        case JobState.NOT_STARTED | JobState.INTERRUPTED:
            return f"To start it: chatops jobs resume {job.id}"
        case _:
            return f"To read it: chatops sessions show {job.id}"


def find_job(store: Store, name: str) -> JobRow:
    """Return the job of a session, by id or unique prefix. Raises ConfigError if it is none."""
    info = find_session(store, name)
    if (row := store.job(info.id)) is None:
        raise ConfigError(
            f"Session {info.id} is no job: its last turn was not started in the background.",
            advice="chatops jobs list shows the jobs.",
        )
    return row


# Waiting and cancelling


def _wait(arguments: Namespace) -> int:
    with open_stored(arguments, storage=Storage.NEEDED) as opened:
        row = find_job(opened.store, arguments.id)
        job = _wait_until_stopped(opened.store, row.session.id)
        if job.state.is_over:
            opened.store.update_job(job.id, seen=True)
    return _print_end(arguments, job)


def _wait_until_stopped(store: Store, session_id: SessionId) -> Job:
    """Return the job once it does not run any more. Raises NoSuchSessionError if it disappears."""
    while (row := store.job(session_id)) is not None:
        job = job_of(store, row)
        if job.state is not JobState.RUNNING:
            return job
        time.sleep(POLL_S)
    raise NoSuchSessionError(f"Job {session_id} is gone: its session went on, or was deleted.")


def _print_end(arguments: Namespace, job: Job) -> int:
    """Print a job that does not run, as ``-p`` does, and return the exit code of ``-p``."""
    view = screen()
    if job.turn is None or job.state in (JobState.NOT_STARTED, JobState.INTERRUPTED):
        if arguments.output_format == "json":
            view.json(as_json(job))
        why = f": {job.why}" if job.why else ""
        view.say(f"Job {job.id} is {job.state.value}{why}.\n{_advice(job)}")
        return ExitCode.ERROR
    output = OutputFormat(arguments.output_format)
    if job.state is JobState.WAITING:
        if output is OutputFormat.JSON:
            view.json(as_json(job))
        view.say(_advice(job))
        return ExitCode.PAUSED
    return show_end(job.turn, workspace=job.row.session.workspace, screen=view, output=output, expected=True)


def _cancel(arguments: Namespace) -> int:
    """Stop a job: its process does that if there is one, else this one."""
    with open_stored(arguments) as opened:
        row = find_job(opened.store, arguments.id)
        opened.store.must_be_own(row.session.id)
        data = opened.paths.data

    async def work(opened: App) -> int:
        store, has_asked = opened.store, False
        while not (job := job_of(store, find_job(store, row.session.id))).state.is_over:
            if job.lease is None:
                await _stop_here(opened, job.id)
            elif not has_asked:
                has_asked = True
                store.ask_to_stop(job.id)
            await asyncio.sleep(POLL_S if job.lease is not None else 0)
        store.update_job(job.id, seen=True)
        ended = job.state.value
        screen().answer(f"{'Cancelled' if job.state is JobState.CANCELLED else f'It has ended ({ended})'}: {job.id}")
        return 0

    chosen = options_of(row) if has_own_options(opened.store, row) else Options(workspace=data, via="headless")
    # A job can be stopped even if its folder or registry is gone. The data folder stands in: no tool may work there.
    if chosen.workspace is not None and not chosen.workspace.is_dir():
        chosen = replace(chosen, workspace=data)
    if chosen.registry is not None and not chosen.registry.is_file():
        chosen = replace(chosen, registry=None)
    return run_app(chosen, work, broken_ok=True)


async def _stop_here(opened: App, session_id: SessionId) -> None:
    try:
        session = await opened.open_session(session_id, attended=False)
    except SessionHeldError:
        return
    await session.stop_turn()
    await session.settle()
    await session.aclose()


# Starting


async def begin_job(opened: App, session: Session, prompt: str, arguments: Namespace) -> int:
    """Store the turn of a prompt, start its process and print the session's id. The session is closed here.

    Raises SessionBusyError if the last turn is not over, ChatopsError if nothing can be stored.
    """
    if session.unfinished:
        raise SessionBusyError(
            "The prompt was not sent: the last turn of this session is not finished.",
            advice=f"Finish it first with: chatops resume {session.session_id}",
        )
    await session.quiesce()
    await session.submit(prompt)
    session_id = await move_to_background(opened, session, session.aclose, on_approval=arguments.on_approval)
    if arguments.output_format == "text":
        screen().line(session_id)
    else:
        screen().json({"session_id": session_id})
    return 0


def _resume(arguments: Namespace) -> int:
    with open_app(arguments) as opened:
        row = find_job(opened.store, arguments.id)
        if (starter := starter_of_this_process()) is not None:
            wait_for_lease(opened.store, row, starter=starter)
        if not has_own_options(opened.store, row):
            raise ChatopsError(
                f"Job {row.session.id} was not started: {FOREIGN_OPTIONS}.",
                advice=f"To continue it with your own options: chatops resume {row.session.id}",
            )
        job = job_of(opened.store, row)
        if job.lease is not None and job.lease.holder != this_process():
            screen().say(f"Job {job.id} is open in process {job.lease.holder.pid} already.")
            return 0
    if job.state.is_over:
        raise ChatopsError(f"Job {job.id} has ended: {job.state.value}.", advice=_advice(job))
    if job.state is JobState.WAITING:
        screen().say(_advice(job))
        return ExitCode.PAUSED
    try:
        return run_app(
            options_of(row),
            lambda opened: _resume_here(opened, row, arguments, by_user=starter is None),
        )
    except Exception as error:
        # The list of jobs says why, also to a user who was not there.
        with open_store(registry=options(arguments).registry) as store:
            store.update_job(row.session.id, not_started=str(NotStarted(WhyNot.FAILED, str(error) or repr(error))))
        raise


async def _resume_here(opened: App, row: JobRow, arguments: Namespace, *, by_user: bool) -> int:
    """Start the job, or say why it must not start here.

    A job starts only on the host, boot, folder, sandbox and addresses that it is bound to. A start `by_user` binds it
    to those of now. Any other start, as after a decision, does not: another folder may be at its path by now.
    """
    store, view = opened.store, screen()
    bound = await asyncio.to_thread(bind_here, opened, row) if by_user else replace(row, not_started="", seen=False)
    if (why := await asyncio.to_thread(why_not_here, store, bound)) is not None:
        store.update_job(row.session.id, not_started=str(why))
        view.say(f"Job {row.session.id} was not started: {why.sentence}.")
        return ExitCode.ERROR
    for path in moved_folders(row, bound):
        view.say(f"Another folder is at {short_line(path)} now than when the job was started.")
    store.put_job(bound)
    if arguments.foreground:
        return await _run_job(opened, bound)
    pid = await asyncio.to_thread(start_process, store, bound)
    view.answer(f"Started: {row.session.id} (pid {pid})")
    return 0


async def _run_job(opened: App, row: JobRow) -> int:
    """Continue a job until it is over or needs the user. Return the exit code of ``-p``.

    A second process finds the session taken, or nothing to do, and ends quietly.
    """
    view, store, last_decided, code = screen(), opened.store, None, 0
    while True:
        try:
            session = await opened.open_session(row.session.id, attended=False)
        except SessionHeldError:
            return code
        if session.unfinished:
            print_use_notices(opened, session.grant())
            on_approval, events = OnApproval(on_approval_of(row)), list[Published]()
            notified = {(pending.call.id, pending.digest) for pending in session.pending}
            unsubscribe = session.subscribe(events.append)
            code = await resume_turn(session, screen=view, output=OutputFormat.TEXT, on_approval=on_approval)
            unsubscribe()
            if session.taken_over is None:
                await _notify_user(opened, row, events, notified=notified)
        await session.aclose()
        # A process that posted a decision before the lease was released found the lease taken, and started nothing. A
        # decision that is still there after a second try cannot be applied.
        decided = [call for call in store.pending_calls(session_id=row.session.id) if call.decided is not None]
        if not decided or decided == last_decided:
            return code
        last_decided = decided


async def _notify_user(
    opened: App, row: JobRow, events: Sequence[Published], *, notified: Collection[tuple[CallId, str]]
) -> None:
    """Tell the user's program what a job waits for, or how it ended, unless the job is on a screen.

    `notified`: calls by id and digest that waited already, so that the user has heard of them.
    """
    registries = opened.configuration.now().known
    command = next((registry.notify for registry in registries if registry.notify), ())
    if not command or opened.store.is_followed(row.session.id):
        return
    title = reveal(opened.store.session(row.session.id).title, newlines=False)
    about: dict[str, JsonValue] = {"session_id": row.session.id, "title": title}
    for published in events:
        match published.event:
            case TurnPaused(pending=pending):
                for waiting in pending:
                    call = waiting.call
                    if (call.id, waiting.digest) not in notified:
                        facts = {"id": call.id, "tool": call.name, "summary": call_line(call, waiting.facts)}
                        await _run_notifier(command, {"event": "waits", **about, "call": facts})
            case TurnFinished(result=TurnStatus.ANSWERED):
                await _run_notifier(command, {"event": "ended", **about})
            case TurnFinished(result=TurnStatus.FAILED | TurnStatus.LIMIT):
                await _run_notifier(command, {"event": "failed", **about})
            case _:
                pass


async def _run_notifier(command: Sequence[str], message: Mapping[str, JsonValue]) -> None:
    """Run `command` with `message` as one line of JSON on its standard input, and end it in `_NOTIFIER_TIMEOUT_S`.

    The JSON is ASCII: text of a model must not steer a terminal or a program that reads lines. Variables that may hold
    a key are left out: the program gets those that a command of the shell tool gets, and those of the desktop.
    """
    null = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=null,
            stderr=null,
            cwd="/",
            env=clean_environment(os.environ)
            | {name: os.environ[name] for name in _DESKTOP_VARIABLES if name in os.environ},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        log.warning("the program %s of notify cannot be started: %s", command[0], error)
        return
    try:
        async with asyncio.timeout(_NOTIFIER_TIMEOUT_S):
            await process.communicate(json.dumps(message).encode() + b"\n")
    except TimeoutError:
        log.warning("the program %s of notify did not end within %g s", command[0], _NOTIFIER_TIMEOUT_S)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        log.warning("the program %s of notify ended with status %s", command[0], process.returncode)
