"""Stands between the app and a command outside a sandbox, so that nothing the command starts outlives it.

Runs as a script of its own (``python -I -S supervisor.py STATUS_FD PARENT ARGV…``) with the standard library
only. It is the subreaper of the command's whole tree: what double-forks or calls setsid becomes its child
and is killed. It writes one line to STATUS_FD: ``exit N STOPPED`` with the wait status of the command and the
number of processes that were left of it. On SIGTERM, or when the app dies, it kills the tree at once.
"""

import ctypes
import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # At run time they would cost each command some milliseconds.
    from collections.abc import Callable, Collection

MAX_FILE = 4 * 1024**3
"""Bytes of one file that a command may write; there are no core files at all."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFT_GRACE_S = 0.15
"""What the shell started and that ends right after it (a pipe's last reader) is no survivor."""
_KILL_S = 3.0
_HELD = 200
"""Processes that are held at once: descriptors are few."""
_BY_NUMBER = -1
_AWAITED = (signal.SIGTERM, signal.SIGCHLD)
"""Blocked from the start, so that none of them is missed."""


def descendants(root: int) -> list[int]:
    """Every living process below `root`, by the parents that /proc names; zombies are none."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as handle:
                state, parent = handle.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != b"Z":
            below.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    ready = [root]
    while ready:
        children = below.get(ready.pop(), [])
        found += children
        ready += children
    return found


def signal_all(find: "Callable[[], Collection[int]]", number: int) -> set[int]:
    """Send a signal to what `find` finds, and say to which it was sent.

    Each process is held by a descriptor and then looked for once more, so that a number which has come to mean another
    process meanwhile is not hit. Where there are no such descriptors (before Linux 5.3) numbers have to do.
    """
    reached: set[int] = set()
    ready = sorted(find())
    for start in range(0, len(ready), _HELD):
        held: dict[int, int] = {}
        try:
            for process in ready[start : start + _HELD]:
                try:
                    held[process] = os.pidfd_open(process)
                except ProcessLookupError:
                    continue
                except (AttributeError, OSError):
                    held[process] = _BY_NUMBER
            for process in held.keys() & set(find()):
                try:
                    if held[process] == _BY_NUMBER:
                        os.kill(process, number)
                    else:
                        signal.pidfd_send_signal(held[process], number)
                except OSError:
                    continue
                reached.add(process)
        finally:
            for descriptor in held.values():
                if descriptor != _BY_NUMBER:
                    os.close(descriptor)
    return reached


def kill_below(root: int, *, seconds: float, reap: bool = False) -> None:
    """Kill the whole tree: stopped first, so that none can fork away, then killed, until none is left.

    `reap` only where every child of this process belongs to the tree.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not descendants(root):
            if reap:
                _reap()
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            signal_all(lambda: descendants(root), number)
        if reap:
            _reap()
        time.sleep(0.002)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _end_of(child: int) -> int:
    """Wait for the end of the command, and give its wait status; on SIGTERM the tree is killed, and this process ends.

    Both are waited for in one call: a handler that is called just before a wait begins would not end it.
    """
    while True:
        if signal.sigwait(_AWAITED) == signal.SIGTERM:
            kill_below(os.getpid(), seconds=_KILL_S, reap=True)
            os._exit(0)
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == child:
                return status
            if not process:
                break


def _start(argv: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_FSIZE, MAX_FILE)
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        os.write(2, f"{argv[0]}: {error}\n".encode())
    os._exit(127)


def _limit(name: int, most: int) -> None:
    """Lower a limit; one that is lower already stays."""
    hard = resource.getrlimit(name)[1]
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(name, (limit, limit))


def main() -> None:
    """Run the command, report its end, leave nothing behind."""
    status_fd, parent, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return
    os.set_inheritable(status_fd, False)
    child = _start(argv)
    # Our own ends of the output pipe are closed, so that its end means: no process of the command has it.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    status = _end_of(child)
    left = len(descendants(os.getpid()))
    deadline = time.monotonic() + _LEFT_GRACE_S
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        _reap()
        left = len(descendants(os.getpid()))
    kill_below(os.getpid(), seconds=_KILL_S, reap=True)
    os.write(status_fd, f"exit {status} {left}\n".encode())


if __name__ == "__main__":
    main()
