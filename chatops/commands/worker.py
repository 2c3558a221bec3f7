"""``chatops worker``, ``chatops queue`` and ``--queue``: turns and runs that workers drive."""

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from chatops.commands.context import find_session, open_stored, options, show_list
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.domain.ids import SessionId
from chatops.domain.wording import plural
from chatops.headless.screen import screen, when
from chatops.startup import answer_keys_first, settle_collector
from chatops.store.queue import QueuedRow, WorkerRow, workspace_name
from chatops.store.store import Store
from chatops.toolkit.threads import DaemonThreadExecutor
from chatops.wiring.stored import Storage, open_store

_REFUSED_OPTIONS = (
    *("background", "contain", "approve", "budget", "max_rounds", "max_iterations", "max_retries", "summary"),
    *("add_dir", "access"),
)
"""Options of a turn or run that ``--queue`` refuses. The registry of the worker decides instead."""


def run(arguments: Namespace) -> int:
    """Drive turns of the queue until the process is told to stop. Exit code 0."""
    from chatops.wiring.worker import Worker

    chosen, folders, view = options(arguments), _folders(arguments.folders or ()), screen()
    if chosen.workspace is not None:
        raise ConfigError("--workspace DIR is not for a worker.", advice="chatops worker --workspace ID=DIR")

    async def work() -> None:
        asyncio.get_running_loop().set_default_executor(DaemonThreadExecutor())
        worker = Worker(store, folders, slots=arguments.concurrency, registry=chosen.registry, say=view.say)
        view.say(f"Worker for {', '.join(sorted(folders))}: {plural(arguments.concurrency, 'turn')} at a time.")
        # Turns that begin are prepared in threads, and those that go on must not wait for them.
        answer_keys_first()
        settle_collector()
        await worker.run()

    with open_store(registry=chosen.registry) as store:
        store.must_be_shared()
        asyncio.run(work())
    return 0


def _folders(named: Sequence[str]) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for text in named:
        name, equals, folder = text.partition("=")
        if not equals or not Path(folder).expanduser().is_dir():
            raise ConfigError(f"--workspace {text}: there is no such folder.", advice="Write it as ID=DIR.")
        folders[workspace_name(name)] = Path(folder).expanduser().resolve()
    if not folders:
        raise ConfigError("No workspace was named.", advice="chatops worker --workspace ID=DIR")
    return folders


def queue_prompt(arguments: Namespace, prompt: str, *, workflow: str = "") -> int:
    """Put a prompt into the queue of workspace ``--queue``, with ``-r`` into a session there, and print its id.

    With `workflow`, it is the request of a run.
    """
    chosen = vars(arguments)
    in_session = not workflow and arguments.session is not None
    not_for_queue = {
        "-c": chosen.get("last"),
        "-r and --role": in_session and arguments.role,
        "-r and --model": in_session and arguments.model,
        "--on-approval": arguments.on_approval != "pause",
        **{f"--{name.replace('_', '-')}": chosen.get(name) not in (None, False, [], ()) for name in _REFUSED_OPTIONS},
    }
    if refused := next((name for name, is_given in not_for_queue.items() if is_given), ""):
        raise ConfigError(
            f"--queue does not go with {refused}: the registry of the worker says what the turn may do.",
            advice="It takes --role and --model, or -p and -r with a session that you have queued.",
        )
    workspace_name(arguments.queue)
    with open_stored(arguments, storage=Storage.NEEDED) as opened:
        if in_session:
            session_id = _queue_in_session(opened.store, arguments, prompt)
        else:
            session_id = opened.store.queue_turn(
                prompt,
                workspace=arguments.queue,
                role=arguments.role or "",
                model=arguments.model or "",
                workflow=workflow,
            )
        workers = [worker for worker in opened.store.workers() if arguments.queue in worker.workspaces]
    view = screen()
    if arguments.output_format == "text":
        view.line(session_id)
    else:
        view.json({"session_id": session_id})
    if not workers:
        view.say(f"No worker of {arguments.queue} is alive; it waits for one: chatops queue list")
    return 0


def _queue_in_session(store: Store, arguments: Namespace, prompt: str) -> SessionId:
    session = find_session(store, arguments.session)
    if session.queue != arguments.queue:
        where = f"in the queue of {session.queue}" if session.queue else "in no queue"
        raise ConfigError(f"Session {session.id} is {where}.", advice="To queue a session of its own, leave -r out.")
    store.queue_further(session.id, prompt)
    return session.id


def _cancel(arguments: Namespace) -> int:
    with open_stored(arguments, storage=Storage.NEEDED) as opened:
        opened.store.must_be_shared()
        session_id = find_session(opened.store, arguments.id).id
        if not opened.store.cancel_queued(session_id):
            raise ConfigError(
                f"Nothing of session {session_id} waits for a worker.",
                advice="If a worker has taken it: deny what it asks for, chatops approvals list.",
            )
    screen().answer(f"Cancelled: {session_id}")
    return 0


def queue(arguments: Namespace) -> int:
    """Run the chosen action of ``chatops queue``."""
    return {"cancel": _cancel, "sweep": _sweep}.get(arguments.action, _list)(arguments)


def _sweep(arguments: Namespace) -> int:
    """Create missing hints, by which workers find turns that can go on, and delete those that lead to no such turn."""
    with open_stored(arguments, storage=Storage.NEEDED) as opened:
        opened.store.must_be_shared()
        created, deleted = opened.store.sweep()
    screen().answer(f"{plural(created, 'hint')} made, {deleted} deleted.")
    return 0


def _list(arguments: Namespace) -> int:
    with open_stored(arguments) as opened:
        opened.store.must_be_shared()
        rows, workers = opened.store.queued(), opened.store.workers()
    described = [(row, *_state_and_reason(row, workers)) for row in rows]
    lines = [
        (row.session.id, state, row.workspace, row.requester, when(row.session.created_at), why)
        for row, state, why in described
    ]
    values: list[JsonValue] = [
        {
            "session_id": row.session.id,
            "state": state,
            "workspace": row.workspace,
            "requester": row.requester,
            "created_at": row.session.created_at,
            "hinted": row.hinted,
            "why": why,
        }
        for row, state, why in described
    ]
    alive = "; ".join(
        f"{worker.host} pid {worker.pid}: {', '.join(worker.workspaces)} ({worker.slots})" for worker in workers
    )
    header = ("ID", "STATE", "WORKSPACE", "FOR", "SINCE", "ABOUT")
    notes = [f"Workers: {alive or 'none is alive.'}"]
    return show_list(arguments, values, header, lines, notes=notes, empty="Nothing is queued.")


def _state_and_reason(row: QueuedRow, workers: Sequence[WorkerRow]) -> tuple[str, str]:
    """Return the state of a session of the queue, and who drives it or what it waits for; "" if it is ready."""
    if row.lease is not None:
        return "running", f"{row.lease.holder.host} pid {row.lease.holder.pid}"
    if not row.runnable:
        waits_for_review = row.session.run is not None and row.session.active_turn is None
        review = f"a review: chatops workflow show {row.session.id}"
        return "waiting", review if waits_for_review else "a decision: chatops approvals list"
    of_workspace = [worker for worker in workers if row.workspace in worker.workspaces]
    if not of_workspace:
        return "no worker", f"no worker of {row.workspace} is alive"
    refusals = [f"{worker.host}: {why}" for worker in of_workspace if (why := worker.refused.get(row.session.id))]
    return ("no worker", "; ".join(refusals)) if len(refusals) == len(of_workspace) else ("ready", "")
