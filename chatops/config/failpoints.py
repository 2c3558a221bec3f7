"""Failpoints: named places where a test can kill this process. Inactive by default.

``CHATOPS_FAILPOINT=after_commit:3`` kills this process with SIGKILL when `after_commit` is reached for the third time.
Nothing is flushed, closed or reported, as in a power cut. With ``after_commit:3+15`` the process is killed 15 ms later,
wherever it is then.

The module is in this package because tools and the store may import it.
"""

import os
import signal
import threading
from collections import Counter
from typing import Literal, get_args

VARIABLE = "CHATOPS_FAILPOINT"

TurnPoint = Literal[
    # A step of the turn: before its commit, before the transaction ends, after the commit, after publishing.
    "before_commit",
    "in_commit",
    "after_commit",
    "after_publish",
    # A model call: before the request, after each part of its text, after the reply is complete.
    "before_model",
    "in_stream",
    "after_model",
    # A call was inspected: before the question, and again before it starts.
    "after_inspect",
    # A tool: after its intent is stored, after it has returned.
    "before_tool",
    "after_tool",
]
OtherPoint = Literal[
    # A session is stored but has no messages; a queued message is about to start a turn.
    "after_create",
    "sending_kept",
    # What was only in memory is written to the store's file, whose transaction has not ended.
    "in_late_save",
    # All rows of a session are in a copy of the store, and the transaction has not ended.
    "in_store_copy",
    # A decision from another process: before its transaction ends; found by the turn but not applied yet.
    "in_posting",
    "decision_found",
    # A command's process was started; a file's new content is beside it, has replaced it.
    "after_spawn",
    "before_rename",
    "after_rename",
    # A file's earlier content is kept; what an undo puts back is listed.
    "kept",
    "undo_listed",
    # Each step of a contained turn's copy, of freezing its changes and of applying them.
    "contained",
    # A delegated call: its session is stored, its turn was started or resumed.
    "child_created",
    "child_started",
    # A decision about a call of a job is stored: before the job is started again; before its process has the lease.
    "before_job_start",
    "job_started",
    # After a restart, a tool was asked whether a started call took effect.
    "after_reconcile",
]
RunPoint = Literal["before_run_commit", "in_run_commit", "after_run_commit"]
Failpoint = TurnPoint | OtherPoint | RunPoint

NAMES: tuple[str, ...] = get_args(TurnPoint)
"""Failpoints that every turn with a call reaches."""
OTHER_NAMES: tuple[str, ...] = get_args(OtherPoint)
"""Failpoints that only some turns reach."""
RUN_NAMES: tuple[str, ...] = get_args(RunPoint)
"""Failpoints of a workflow run, in addition to those of its turns."""

_reached: Counter[str] = Counter()


def reach(name: Failpoint) -> None:
    """Mark a failpoint as reached; kill this process, now or later, if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    _reached[name] += 1
    place, _, when = wanted.partition(":")
    number, _, later_ms = when.partition("+")
    if place != name or _reached[name] != int(number or 1):
        return
    if later_ms:
        timer = threading.Timer(float(later_ms) / 1000, _kill_process)
        timer.daemon = True
        timer.start()
    else:
        _kill_process()


def _kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
