"""``chatops -p``: one prompt, one answer."""

import asyncio
import os
import select
import stat
import sys
from argparse import Namespace
from typing import TextIO

from chatops.commands.application import print_use_notices, with_app
from chatops.commands.context import find_session, last_session
from chatops.commands.workspace import FOLDER_ADVICE, too_broad
from chatops.domain.errors import ConfigError, SessionBusyError
from chatops.domain.ids import SessionId
from chatops.headless.formats import OutputFormat
from chatops.headless.run import OnApproval, ask
from chatops.headless.screen import Screen, screen
from chatops.startup import settle_collector
from chatops.store.base import SessionInfo
from chatops.wiring.app import App
from chatops.wiring.stored import Storage

MAX_INPUT_BYTES = 4_000_000
"""Standard input may be this long: more than any model takes, so more is a mistake."""
COLLECT_AFTER_S = 1.0
"""Seconds from opening the session until the garbage collector runs: by then the request's modules are imported."""
SAY_WAITING_AFTER_S = 3.0
"""Seconds before chatops tells the user that it waits for standard input."""


def run(arguments: Namespace) -> int:
    """Run the prompt and return the exit code, see `chatops --help`.

    The prompt is read to its end first, so that no store is open while standard input is awaited.
    """
    if arguments.session == "":
        raise ConfigError("With -p, -r needs a session.", advice="chatops sessions list shows them; -c takes the last.")
    if arguments.queue is None:
        check_folder(arguments.session or getattr(arguments, "workspace", None))
    view = screen()
    prompt = read_prompt(arguments.prompt, sys.stdin, view)
    if arguments.queue is not None:
        from chatops.commands.worker import queue_prompt

        return queue_prompt(arguments, prompt)

    async def work(app: App) -> int:
        session = await app.open_session(_session_id(app, arguments), attended=False, attaches=arguments.prompt)
        if arguments.contain:
            await session.actions.contain()
        print_use_notices(app, session.grant())
        withheld = app.rights.withheld(session.grant().role, but=app.catalog.unavailable)
        for notice in (*app.servers.failures(), *withheld):
            view.say(notice)
        if arguments.background:
            from chatops.commands.jobs import begin_job

            return await begin_job(app, session, prompt, arguments)
        asyncio.get_running_loop().call_later(COLLECT_AFTER_S, settle_collector)
        return await ask(
            session,
            prompt,
            screen=view,
            output=OutputFormat(arguments.output_format),
            on_approval=OnApproval(arguments.on_approval),
        )

    # The process of a background turn reads it from the store, so that has to work. Any other turn may go unsaved.
    storage = Storage.NEEDED if arguments.background else Storage.WANTED
    return with_app(arguments, work, session=arguments.session or "", storage=storage)


def check_folder(named: str | None) -> None:
    """Raise ConfigError if the current folder is too broad for a workspace, unless the user has named one."""
    if not named and (what := too_broad(".")):
        raise ConfigError(
            f"This folder is {what}, and there is no terminal to confirm it on.",
            advice=f"{FOLDER_ADVICE} (. for this one)",
        )


def read_prompt(argument: str, stdin: TextIO | None, view: Screen, *, usage: str = 'chatops -p "PROMPT"') -> str:
    """Return the argument, or standard input, or both: the input then follows as context.

    `stdin` is None in a process that was started without one. Raises ConfigError, which names `usage`, if the prompt is
    empty.
    """
    piped = _read_piped(stdin, view, needed=not argument) if stdin is not None else ""
    if argument.strip() and piped.strip():
        return f"{argument}\n\nStandard input:\n\n{piped}"
    prompt = argument if argument.strip() else piped
    if not prompt.strip():
        raise ConfigError("The prompt is empty.", advice=f"Give one: {usage}, or pipe it in.")
    return prompt


def _session_id(app: App, arguments: Namespace) -> SessionId | None:
    if arguments.session:
        return _require_chat(find_session(app.store, arguments.session)).id
    if arguments.last:
        return _require_chat(last_session(app.store, app.workspace)).id
    return None


def _require_chat(info: SessionInfo) -> SessionInfo:
    """Raise SessionBusyError for a workflow run that is not over: it takes no prompts."""
    if (run := info.unfinished_run) is not None:
        raise SessionBusyError(
            f"Session {info.id} is a run of workflow {run.workflow} that is not over; the prompt was not sent.",
            advice=f"To continue: chatops resume {info.id}",
        )
    return info


def _read_piped(stdin: TextIO, view: Screen, *, needed: bool) -> str:
    """Return what was piped or redirected in. A terminal is never read: the user would not know that chatops waits."""
    try:
        descriptor = stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        # No file of the system stands behind it: a caller inside the process has replaced it.
        return stdin.read() if needed else ""
    if stdin.isatty() or not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    if not select.select([descriptor], [], [], SAY_WAITING_AFTER_S)[0]:
        view.say("Waiting for standard input to end; < /dev/null if there is nothing to read.")
    try:
        data = stdin.buffer.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"Standard input cannot be read: {error.strerror or error}.",
            advice="< /dev/null if there is nothing to read.",
        ) from error
    if len(data) > MAX_INPUT_BYTES:
        raise ConfigError(
            f"Standard input is larger than {MAX_INPUT_BYTES} bytes.",
            advice="Put it into a file and name the file instead.",
        )
    return data.decode("utf-8", "replace").removeprefix("\ufeff")
