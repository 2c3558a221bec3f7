"""The command line: parse it, run the command, turn errors into a sentence and an exit code.

Heavy modules are imported only where they are needed: ``--help`` and ``--version`` load this module and the parser,
and only the chat loads a screen.
"""

import os
import sys
from typing import TYPE_CHECKING

from chatops.commands.parser import handler, parse
from chatops.domain import __version__
from chatops.domain.errors import ChatopsError, ConfigError, ConflictError, NoSuchSessionError, SessionHeldError
from chatops.domain.sanitize import sanitize
from chatops.startup import pause_collector, starting_line, without_module

if TYPE_CHECKING:
    from argparse import Namespace

    from chatops.headless.screen import Screen

ERROR, USAGE, INTERRUPTED = 1, 2, 130

NO_TERMINAL = (
    "chatops: the chat needs a terminal.\n"
    'In scripts: chatops -p "PROMPT"   (the prompt may also come from standard input)\n'
    "chatops --help shows the rest.\n"
)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    An error that a user can cause never shows a traceback; a bug is logged and printed as one sentence. A command whose
    output could not be written has failed.
    """
    code = _exit_code(argv)
    _screen().show_progress(None)
    return code or (ERROR if _screen().is_lost else 0)


def _exit_code(argv: list[str] | None) -> int:
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ChatopsError as error:
        return _print_error(error, arguments)
    except Exception as error:
        return _report_bug(error)


def _run(arguments: "Namespace") -> int:
    if arguments.version:
        _screen().line(f"chatops {__version__}")
        return 0
    if arguments.command is None:
        return _chat(arguments)
    if arguments.command == "connect":
        # Its modules take a while, and then the server. The address is not named, because a secret may stand in it.
        _screen().say("Connecting …")
    elif arguments.command == "doctor":
        _screen().show_start("Checking what is set up")
    return handler(arguments)(arguments)


def _chat(arguments: "Namespace") -> int:
    pause_collector()
    if arguments.prompt is not None:
        _screen().show_start("Starting")
        from chatops.commands import ask

        return ask.run(arguments)
    if option := _option_that_needs_prompt(arguments):
        _screen().say(f"chatops: {option} works with -p only. chatops --help shows how it is used.")
        return USAGE
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        _screen().say(NO_TERMINAL)
        return USAGE
    # Textual's text area would load it, and no field of ours highlights code: 2 ms of the start.
    with without_module("tree_sitter"), starting_line():
        from chatops.commands import chat

    return chat.run(arguments)


def _option_that_needs_prompt(arguments: "Namespace") -> str:
    """Return the first option given that has an effect only with ``-p``; empty if there is none."""
    given = {
        "--output-format": arguments.output_format != "text",
        "--approve": bool(arguments.approve),
        "--on-approval": arguments.on_approval != "pause",
        "--max-rounds": arguments.max_rounds is not None,
        "--budget": bool(arguments.budget),
        "--summary": arguments.summary,
        "--contain": arguments.contain,
        "--background": arguments.background,
        "--queue": arguments.queue is not None,
    }
    return next((flag for flag, is_given in given.items() if is_given), "")


def _print_error(error: ChatopsError, arguments: "Namespace") -> int:
    session = getattr(arguments, "session", None) or ""
    advice = error.advice
    if isinstance(error, NoSuchSessionError):
        advice = advice or "chatops sessions list shows them."
    elif isinstance(error, SessionHeldError):
        advice = advice or "Use it there, or close it there first."
    elif isinstance(error, ConflictError):
        advice = advice or f"Another window has continued it. To see: chatops sessions show {session}".rstrip()
    _screen().say(f"chatops: {error}\n" + (f"{advice}\n" if advice else ""))
    return USAGE if isinstance(error, ConfigError) else ERROR


def _report_bug(error: Exception) -> int:
    """Report our own error in one sentence; the traceback goes to the log or, with CHATOPS_DEBUG, to stderr."""
    import logging
    import traceback

    from chatops.domain.known_keys import without_keys

    if os.environ.get("CHATOPS_DEBUG"):
        # Users put this traceback into bug reports.
        _screen().say(without_keys("".join(traceback.format_exception(error))))
        return ERROR
    log = logging.getLogger("chatops")
    if log.hasHandlers():
        # Without a log file the logging module would print the traceback itself.
        log.error("unexpected error", exc_info=error)
    text = sanitize(without_keys(f"{type(error).__name__}: {error}"), newlines=False)
    _screen().say(
        f"chatops: unexpected error: {text}\n"
        "Nothing stored is lost. For a bug report, run it again with CHATOPS_DEBUG=1."
    )
    return ERROR


def _screen() -> "Screen":
    """Return the process's own streams. Nothing fails if they cannot be written."""
    from chatops.headless.screen import screen

    return screen()
