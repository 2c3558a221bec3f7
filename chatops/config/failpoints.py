"""Named places where the process can be made to die, for tests of what survives it. Off unless asked for.

``CHATOPS_FAILPOINT=after_commit:3`` kills this process with SIGKILL when `after_commit` is reached for the third time:
nothing is flushed, closed or said, as in a power cut. With ``after_commit:3+15`` that happens 15 ms later, wherever the
process is by then.

It stands this far down so that tools and the store may say where they are.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Literal, get_args

VARIABLE = "CHATOPS_FAILPOINT"


class Phase(IntEnum):
    """How far a turn with one gated call is, as the list of faults counts (D01 is a death in P0, D11 one in P10)."""

    TYPED = 0
    """Typed, not sent."""
    ASKED = 1
    """The request is sent, no byte has come."""
    STREAMING = 2
    """Text of the reply is coming."""
    PROPOSED = 3
    """The call is complete and not yet checked."""
    WAITING = 4
    """The dialog is open."""
    APPROVED = 5
    """Approved, not started."""
    RUNNING = 6
    """The intent to run it is stored; the tool may have begun."""
    RETURNED = 7
    """The tool has ended, its result is not stored."""
    RECORDED = 8
    """The result is stored, the next request is not sent."""
    CONCLUDING = 9
    """The next reply is coming."""
    DONE = 10
    """The turn is over."""


TurnPoint = Literal[
    "before_commit",
    "in_commit",
    "after_commit",
    "after_publish",
    "before_model",
    "in_stream",
    "after_model",
    "after_inspect",
    "before_tool",
    "after_tool",
]
OtherPoint = Literal[
    "after_create",
    "sending_kept",
    "in_posting",
    "decision_found",
    "after_spawn",
    "before_rename",
    "after_rename",
    "after_reconcile",
]
RunPoint = Literal["before_run_commit", "in_run_commit", "after_run_commit"]
Failpoint = TurnPoint | OtherPoint | RunPoint

NAMES: tuple[str, ...] = get_args(TurnPoint)
"""The places of every turn with a call."""
OTHER_NAMES: tuple[str, ...] = get_args(OtherPoint)
"""Places that only some turns come to."""
RUN_NAMES: tuple[str, ...] = get_args(RunPoint)
"""The places of a run of a workflow, beside those of its turns."""

_COMMITS = (
    Phase.TYPED,
    Phase.PROPOSED,
    Phase.WAITING,
    Phase.APPROVED,
    Phase.RETURNED,
    Phase.RECORDED,
    Phase.CONCLUDING,
    Phase.DONE,
)
PHASES: Mapping[Failpoint, tuple[Phase, ...]] = {
    # A step of the turn: about to be stored, stored but for the end of the transaction, stored, told.
    "before_commit": _COMMITS,
    "in_commit": _COMMITS,
    "after_commit": (*_COMMITS, Phase.RUNNING),
    "after_publish": (*_COMMITS, Phase.RUNNING),
    # A model: about to be asked, a piece of its reply has come, its reply is complete.
    "before_model": (Phase.TYPED, Phase.RECORDED),
    "in_stream": (Phase.STREAMING, Phase.CONCLUDING),
    "after_model": (Phase.PROPOSED, Phase.CONCLUDING),
    # A call has been looked at: before the question, and again before it starts.
    "after_inspect": (Phase.PROPOSED, Phase.APPROVED),
    # A tool: its intent is stored, it has returned.
    "before_tool": (Phase.RUNNING,),
    "after_tool": (Phase.RETURNED,),
    # A conversation is stored and nothing is said in it; a message that was kept is about to begin a turn.
    "after_create": (Phase.TYPED,),
    "sending_kept": (Phase.TYPED,),
    # Another door: a decision is stored but for the end of the transaction; the turn has found it and not taken it.
    "in_posting": (Phase.WAITING,),
    "decision_found": (Phase.APPROVED,),
    # A command's process is there; a file's new content lies beside it, has taken its place.
    "after_spawn": (Phase.RUNNING,),
    "before_rename": (Phase.RUNNING,),
    "after_rename": (Phase.RUNNING,),
    # After a restart the world was asked what became of a started call.
    "after_reconcile": (Phase.RUNNING, Phase.RETURNED),
}
"""When a turn comes to each place."""

_reached: Counter[str] = Counter()


def reach(name: Failpoint) -> None:
    """Say that a place is reached; dies here, or some milliseconds later, if the environment asks for it."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    _reached[name] += 1
    place, _, when = wanted.partition(":")
    number, _, later_ms = when.partition("+")
    if place != name or _reached[name] != int(number or 1):
        return
    if later_ms:
        timer = threading.Timer(float(later_ms) / 1000, _die)
        timer.daemon = True
        timer.start()
    else:
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
