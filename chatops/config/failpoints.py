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
from typing import Literal, get_args

VARIABLE = "CHATOPS_FAILPOINT"


TurnPoint = Literal[
    # A step of the turn: about to be stored, stored but for the end of the transaction, stored, told.
    "before_commit",
    "in_commit",
    "after_commit",
    "after_publish",
    # A model: about to be asked, a piece of its reply has come, its reply is complete.
    "before_model",
    "in_stream",
    "after_model",
    # A call has been looked at: before the question, and again before it starts.
    "after_inspect",
    # A tool: its intent is stored, it has returned.
    "before_tool",
    "after_tool",
]
OtherPoint = Literal[
    # A conversation is stored and nothing is said in it; a message that was kept is about to begin a turn.
    "after_create",
    "sending_kept",
    # Another door: a decision is stored but for the end of the transaction; the turn has found it and not taken it.
    "in_posting",
    "decision_found",
    # A command's process is there; a file's new content lies beside it, has taken its place.
    "after_spawn",
    "before_rename",
    "after_rename",
    # After a restart the world was asked what became of a started call.
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
