"""The program with errors of its own built in, for tests: what raises is named by what is said.

    python -m tests.faults.accident MODE [ARGUMENTS OF CHATOPS]

`later`: a message with the word "breaks" and the name of a part makes that part raise once. `start`: the screen cannot
be put together. `always`: from the message "breaks always" on nothing can be drawn any more.
"""

import sys
from collections.abc import Callable
from typing import Any

import chatops.runtime.session
import chatops.tui.screens.chat
import chatops.tui.status
import chatops.tui.transcript.layout
import chatops.tui.transcript.projector
import chatops.tui.transcript.transcript
from chatops.__main__ import main

_broken: set[str] = set()


def _raising(owner: Any, name: str, part: str, *, times: int = 1) -> None:
    """Make a method raise as often as said, once somebody has said that this part breaks."""
    method: Callable[..., Any] = getattr(owner, name)
    left = [times]
    # A function of its own for each part: errors from the same line are shown once in a while only.
    scope: dict[str, Any] = {}
    exec(f"def fail(): raise RuntimeError('the {part} is broken')", scope)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if part in _broken and left[0]:
            left[0] -= 1
            scope["fail"]()
        return method(*arguments, **named)

    setattr(owner, name, wrapped)


def _listen() -> None:
    session: Any = chatops.runtime.session.Session
    submit = session.submit

    async def hearing(self: Any, text: str, **named: Any) -> Any:
        if "breaks" in text:
            _broken.update(text.split())
        if "worker" in text.split():
            raise RuntimeError("the worker is broken")
        return await submit(self, text, **named)

    session.submit = hearing


def _build_in(mode: str) -> None:
    if mode == "start":
        _broken.add("start")
        _raising(chatops.tui.screens.chat.ChatScreen, "compose", "start")
        return
    _listen()
    _raising(chatops.tui.transcript.projector.Projector, "feed_all", "handler")
    _raising(chatops.tui.status.StatusLine, "show", "widget")
    _raising(chatops.tui.transcript.layout, "block_lines", "drawing", times=2)
    _raising(chatops.tui.transcript.transcript.Transcript, "render_lines", "always", times=-1)


if __name__ == "__main__":
    _build_in(sys.argv.pop(1))
    sys.exit(main())
