"""The chat: shows the screen at once and loads everything else in the background."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from chatops.commands.workspace import FOLDER_ADVICE, confirm_workspace
from chatops.config.paths import find_paths
from chatops.config.settings import UserSettings, load_settings
from chatops.domain.charset import charset_of
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.ids import SessionId
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural
from chatops.startup import answer_keys_first
from chatops.tui.app import ChatopsApp
from chatops.tui.screens.drafts import append_to_draft
from chatops.tui.terminal import TerminalTraits, detect_terminal

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from chatops.runtime.view import SessionView
    from chatops.store.unsent import Unsent
    from chatops.tui.screens.chat import ChatScreen
    from chatops.wiring.first_session import FirstSession

USAGE = 2
MAX_OPENING_S = 30.0
"""Seconds that leaving waits for a session to open, if what the user typed is to be kept in it as a draft."""


def run(arguments: "Namespace") -> int:
    """Run the chat. Exit code 2 if this terminal cannot show it, or the user does not confirm the workspace."""
    traits = detect_terminal(os.environ, is_terminal=sys.stdin.isatty() and sys.stdout.isatty())
    if traits.problem:
        sys.stderr.write(f"chatops: {traits.problem}\n")
        return USAGE
    # A named session works in its own workspace, which was confirmed when it started.
    if not arguments.session and not confirm_workspace(getattr(arguments, "workspace", None) or "."):
        sys.stderr.write(f"chatops: nothing was started. {FOLDER_ADVICE}\n")
        return USAGE
    answer_keys_first()
    asyncio.run(_chat(arguments, traits))


async def _chat(arguments: "Namespace", traits: TerminalTraits) -> NoReturn:
    """Run screen, session and shutdown in one event loop, then end the process."""
    opening: list[asyncio.Task[FirstSession]] = []
    """The task that opens the session, once the screen has asked for it."""

    async def opener() -> "FirstSession":
        # Registry, store and tools: loaded only once the screen is there, and off its event loop.
        await asyncio.to_thread(import_module, "chatops.wiring.first_session")
        if not opening:
            opening.append(asyncio.ensure_future(_open(arguments)))
        # It outlives the screen: a draft may have to be kept in the session that it opens.
        return await asyncio.shield(opening[0])

    keep_unsent = _unsent_keeper(arguments)
    charset = charset_of({}, stream=sys.stdout.encoding)
    settings, themes = _load_screen_settings()
    screen = ChatopsApp(
        opener,
        theme=settings.theme,
        themes=themes,
        keys=settings.keys,
        problem=settings.problem,
        notifications=settings.notifications,
        reduced_motion=settings.reduced_motion,
        traits=traits,
        charset=charset,
        keep_unsent=keep_unsent,
        chooses=arguments.session == "",  # ``-r`` without a session
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # As if the user had left: the terminal is restored, pending calls stay pending.
        loop.add_signal_handler(number, screen.leave)
    unsent, is_draft = "", False
    try:
        await screen.run_async()
    finally:
        unsent = screen.chat.unsent_text
        is_draft = bool(unsent) and screen.failure is None and await keep_as_draft(unsent, opener)
        for task in opening:
            await _close(task)
        if is_draft:
            keep_unsent(())
    code = _print_last_words(screen)
    if unsent and not is_draft and not screen.terminal_unresponsive:
        with suppress(OSError):
            sys.stdout.write(f"Not sent:\n{sanitize(unsent)}\n")
    _end_process(code)


def _load_screen_settings() -> "tuple[UserSettings, Path | None]":
    """Return the user's settings for the screen, which the first paint needs, and the folder of the user's themes."""
    try:
        paths = find_paths(os.environ)
        return load_settings(paths.settings), paths.themes
    except ChatopsError:
        # The opener meets the same error and reports it.
        return UserSettings(), None


def _unsent_keeper(arguments: "Namespace") -> "Callable[[Sequence[str]], bool]":
    """Return a function that stores messages sent before there is a session. It imports its modules on first use."""

    @cache
    def file() -> "Unsent":
        from chatops.store.unsent import Unsent

        return Unsent(find_paths(os.environ), Path(getattr(arguments, "workspace", None) or ".").resolve())

    def keep_unsent(texts: "Sequence[str]") -> bool:
        try:
            return file().keep(texts)
        except (ChatopsError, OSError):
            return False

    return keep_unsent


async def keep_as_draft(text: str, opener: "Callable[[], Awaitable[FirstSession]]") -> bool:
    """Keep text typed before there was a session as a draft of the one that `opener` returns.

    Returns False if it could not be kept.
    """
    try:
        async with asyncio.timeout(MAX_OPENING_S):
            opened = await opener()
    except (ChatopsError, TimeoutError):
        return False
    append_to_draft(text, opened.workspace.user, opened.session)
    return True


def _print_last_words(screen: ChatopsApp) -> int:
    """Print the last messages on the restored terminal, and return the exit code. Raises the fault of the screen."""
    if screen.terminal_unresponsive:
        return 1 if screen.fault or screen.failure else 0
    if screen.fault is not None:
        raise screen.fault
    failure = screen.failure
    if failure is not None:
        sys.stderr.write(sanitize(f"chatops: {failure}\n{failure.advice}".strip() + "\n"))
        return USAGE if isinstance(failure, ConfigError) else 1
    session = screen.chat.session.session_id if screen.chat.opened else ""
    if session:
        # The terminal may be gone.
        with suppress(OSError):
            sys.stdout.write(_resume_words(screen.chat) + "\n")
    return screen.return_code or 0


def _resume_words(chat: "ChatScreen") -> str:
    """Return what waits in the session, or goes on, and how to resume it; or what of it is not saved."""
    session = chat.session
    if not session.unsaved:
        kept = "   (your draft is kept)" if chat.has_draft else ""
        left = [*_waiting_sentences(session), *([chat.goes_on] if chat.goes_on else [])]
        return "\n".join([*left, f"To continue: chatops -r {session.session_id}{kept}"])
    what = "this session" if session.in_memory_only else "the end of this session"
    return f"Not saved: {what}. {session.unsaved.partition('.')[0]}."


def _waiting_sentences(session: "SessionView") -> "Iterator[str]":
    """Yield what waits for the user in a session that this process has owned, in sentences."""
    if session.is_followed:
        return
    if session.state is not None and session.unfinished:
        from chatops.runtime.descriptions import turn_summary  # 5 ms, for which the shell's prompt would wait

        left = turn_summary(session.state, {})
        yield f"{left[0].upper()}{left[1:]}."
    if queued := len(session.snapshot().queued):
        yield f"{plural(queued, 'message')} {'is' if queued == 1 else 'are'} queued."


def _end_process(code: int) -> NoReturn:
    """End the process, once the session, its children and the store are closed and the terminal is restored.

    The interpreter's own shutdown frees a long session object by object and waits for imports that still run in a
    thread, which delays the shell's prompt noticeably.
    """
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


async def _open(arguments: "Namespace") -> "FirstSession":
    from chatops.commands.context import in_its_workspace, options
    from chatops.wiring.first_session import open_for_tui
    from chatops.wiring.stored import Storage

    chosen = options(arguments, via="tui", storage=Storage.WANTED)
    if arguments.session:
        chosen = await asyncio.to_thread(in_its_workspace, chosen, arguments.session)
    return await open_for_tui(
        chosen,
        session=SessionId(arguments.session) if arguments.session else None,
        last=arguments.last,
        pick=arguments.session == "",
    )


async def _close(opening: "asyncio.Task[FirstSession]") -> None:
    if not opening.done():
        opening.cancel()
    try:
        opened = await opening
    except (ChatopsError, asyncio.CancelledError):
        return
    await opened.workspace.aclose()
