"""Run the user's ``notify`` program, which hears what a turn in the background waits for, or how it ended.

The registry of the user or of the site names the program. Its failure is logged, and changes nothing.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from chatops.domain.canonical import JsonValue
from chatops.sandbox.process import clean_environment
from chatops.tools.clipboard import DISPLAY

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""Seconds until the program is killed. The job waits for it meanwhile."""
_DESKTOP_VARIABLES = (*DISPLAY, "DBUS_SESSION_BUS_ADDRESS")
"""Variables that ``notify-send`` and the like need."""


async def run_notifier(command: Sequence[str], message: Mapping[str, JsonValue]) -> None:
    """Run `command` with `message` as one line of JSON on its standard input. It and its processes end in `TIMEOUT_S`.

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
        async with asyncio.timeout(TIMEOUT_S):
            await process.communicate(json.dumps(message).encode() + b"\n")
    except TimeoutError:
        log.warning("the program %s of notify did not end within %g s", command[0], TIMEOUT_S)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        log.warning("the program %s of notify ended with status %s", command[0], process.returncode)
