"""Open the application for a command, and print the notices about its configuration."""

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from chatops.commands.context import in_its_workspace, options
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.headless.screen import forget_messages, screen
from chatops.policy.grant import Grant
from chatops.toolkit.threads import DaemonThreadExecutor
from chatops.wiring.app import App
from chatops.wiring.stored import Options, Storage


@contextmanager
def open_app(
    arguments: Namespace, *, via: str = "headless", broken_ok: bool = False, storage: Storage = Storage.NEEDED
) -> Iterator[App]:
    """Open the application for a command that opens no session, and close it afterwards.

    Notices are printed first, with `broken_ok` last. `broken_ok` also accepts a broken registry: it is for commands
    whose answer does not depend on the registry, or that are there to examine it.

    Raises the ConfigError of a broken registry, unless `broken_ok`.
    """
    opened = App(options(arguments, via=via, storage=storage))
    try:
        if not broken_ok:
            print_notices(opened)
        yield opened
    finally:
        if broken_ok:
            # Even if the command failed.
            with suppress(ChatopsError):
                for notice in (*opened.paths.notices, *opened.store.notices):
                    screen().say(notice)
        asyncio.run(opened.aclose())


def with_app(
    arguments: Namespace,
    work: Callable[[App], Awaitable[int]],
    *,
    via: str = "headless",
    session: str = "",
    broken_ok: bool = False,
    storage: Storage = Storage.NEEDED,
) -> int:
    """Run `work` with the application, for a command that runs a session. Closing happens in the same event loop.

    With `session`, the workspace is that of the session, whatever the current folder is. `broken_ok` as in `open_app`.
    """
    chosen = options(arguments, via=via, storage=storage)
    return run_app(in_its_workspace(chosen, session) if session else chosen, work, broken_ok=broken_ok)


def run_app(chosen: Options, work: Callable[[App], Awaitable[int]], *, broken_ok: bool = False) -> int:
    """Run `work` with the application under these options. `broken_ok` as in `open_app`."""
    forget_messages()

    async def run() -> int:
        asyncio.get_running_loop().set_default_executor(DaemonThreadExecutor())
        opened = App(chosen)
        try:
            if not broken_ok:
                print_notices(opened)
            return await work(opened)
        finally:
            await opened.aclose()

    return asyncio.run(run())


def print_notices(opened: App) -> None:
    """Print the notices about the configuration, and about the role that is named or the default.

    Raises the registry's ConfigError: with no user at the screen, a broken file stops the command.
    """
    if opened.loaded.broken is not None:
        raise opened.loaded.broken
    role = opened.options.role or opened.loaded.registry.default_role
    try:
        notices = opened.notices(opened.grant_for(role))
    except ConfigError:
        # There is no such role or model, or not yet such a tool: the command says so if it needs it.
        notices = opened.notices()
    view = screen()
    for notice in notices:
        view.say(notice)


def print_use_notices(opened: App, grant: Grant) -> None:
    """Print the notices about role and models of a run, except those that were printed already."""
    view = screen()
    for notice in opened.notices(grant):
        view.say_once(notice)
