"""Run one unsandboxed command and kill everything that it leaves behind.

Theory of operation

A process group cannot contain a command, because setsid leaves it. In the sandbox a PID namespace contains it. Outside
of the sandbox this script runs between the app and the command as a child subreaper (PR_SET_CHILD_SUBREAPER, prctl(2)):
a process whose parent has ended, as after a double fork, becomes a child of this one and not of init. So all processes
of the command stay below this process, even after setsid, and can be found in ``/proc``.

It is started as ``python -I -S supervisor.py STATUS_FD PARENT LIMITS ARGV…``. LIMITS is empty, or what
`landlock.confine_encoded` reads to confine the command. It uses the standard library only, because
imports delay each command. The steps:

- Block SIGTERM and SIGCHLD, become a subreaper, and request SIGTERM for the death of the app (PR_SET_PDEATHSIG). Then
  exit if PARENT is no longer the parent: the app died before the request.
- Fork the command into its own session, with limits on core files and file sizes. With LIMITS a thread does what the
  filter of the command leaves to this process.
- Close the own ends of the output pipe, so that end of file means that no process of the command holds it.
- Wait for SIGTERM or SIGCHLD with sigwait. A signal handler would miss a signal just before the wait.
- When the command has ended, give the others `_LEFT_GRACE_S` to end, kill the rest, and write one line to STATUS_FD:
  ``exit N STOPPED``, with the command's wait status and the number of processes that were left.
- On SIGTERM, from the app or because it died, kill the tree at once and exit without that line.

Killing. All processes are stopped first, so that none can fork away, then killed. This repeats until none is found. A
process is held by a pidfd and looked up again before it is signalled, because its id may have been reused.

Own network. As ``python -I -S supervisor.py --own-network FD PORT ARGV…`` the script supervises nothing: it puts itself
into a new network (a network namespace) with only a loopback device, makes a listening socket on ``127.0.0.1:PORT``
there, sends it over the unix socket FD, and becomes ARGV. A socket belongs to the namespace that it was made in, so the
app accepts connections of the program there and opens those to the outside in its own network. The program has no other
way out, and needs no relay.

If the supervisor itself is killed, the line is missing. The app then finds the remaining processes by the mark in their
environment, see `sandbox.orphans`.
"""

import _thread
import ctypes
import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing them at run time would delay each command by some milliseconds.
    import _socket
    import signal
    from collections.abc import Callable, Collection
    from types import ModuleType
else:
    import _signal as signal  # The module around it makes enums, which takes 7 ms.

MAX_FILE = 4 * 1024**3
"""Maximum number of bytes of one file that a command may write. Core files are not written at all."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFT_GRACE_S = 0.15
"""Seconds for processes that end right after the command (a pipe's last reader); they do not count as left."""
_KILL_S = 3.0
"""Seconds after which killing a tree is given up."""
_MAX_HELD = 200
"""Maximum number of processes that are held at once, because descriptors are limited."""
_SOL_SOCKET, _SCM_RIGHTS = 1, 1
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8914, 0x1 | 0x40
OWN_NETWORK = "--own-network"
_AWAITED = (signal.SIGTERM, signal.SIGCHLD)
"""Signals that are blocked from the start, so that none of them is missed."""


def descendants(root: int) -> list[int]:
    """Return all descendants of `root` by the parent ids in /proc, without zombies."""
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
    parents = [root]
    while parents:
        children = below.get(parents.pop(), [])
        found += children
        parents += children
    return found


def signal_all(find: "Callable[[], Collection[int]]", number: int) -> set[int]:
    """Send a signal to the processes that `find` returns, and return those that got it.

    Each process is held by a descriptor (pidfd) and looked up once more before it is signalled, so that a reused
    process id is not hit. Before Linux 5.3 there are no such descriptors, so the id is used.
    """
    reached: set[int] = set()
    to_signal = sorted(find())
    for start in range(0, len(to_signal), _MAX_HELD):
        # The descriptor of each process by its id; None for one that is signalled by its id.
        held: dict[int, int | None] = {}
        try:
            for process in to_signal[start : start + _MAX_HELD]:
                try:
                    held[process] = os.pidfd_open(process)
                except ProcessLookupError:
                    continue
                except (AttributeError, OSError):
                    held[process] = None
            for process in held.keys() & set(find()):
                descriptor = held[process]
                try:
                    if descriptor is None:
                        os.kill(process, number)
                    else:
                        signal.pidfd_send_signal(descriptor, number)
                except OSError:
                    continue
                reached.add(process)
        finally:
            for descriptor in held.values():
                if descriptor is not None:
                    os.close(descriptor)
    return reached


def kill_below(root: int, *, seconds: float, reap: bool = False) -> None:
    """Kill all descendants of `root`: stop them first so that none can fork away, and repeat until none is left.

    `reap` only if every child of this process belongs to the tree.
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


def _wait_for_end(child: int) -> int:
    """Wait until the command ends and return its wait status. On SIGTERM kill the tree and exit.

    One call waits for both signals: a handler that ran just before a wait would not interrupt the wait.
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


def _start_command(argv: list[str], limits: str) -> int:
    """Fork the command, confined if `limits` are given, and return its process id."""
    ends = __import__("_socket").socketpair() if limits else None
    landlock = _import_landlock() if limits else None
    child = os.fork()
    if child:
        if ends and landlock:
            ends[1].close()
            _thread.start_new_thread(_serve_filter, (ends[0], landlock, limits))
        return child
    try:
        os.setsid()
        _lower_limit(resource.RLIMIT_CORE, 0)
        _lower_limit(resource.RLIMIT_FSIZE, MAX_FILE)
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if ends and landlock:
            listener = landlock.confine_encoded(limits)
            ends[1].sendmsg([b"x"], [(_SOL_SOCKET, _SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))])
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        os.write(2, f"{argv[0]}: {error}\n".encode())
    os._exit(127)


def _serve_filter(end: "_socket.socket", landlock: "ModuleType", limits: str) -> None:
    """Do what the filter of the confined command leaves to this process, see `landlock`."""
    _, passed, _, _ = end.recvmsg(1, 64)
    if passed:
        landlock.serve_encoded(int.from_bytes(passed[0][2], sys.byteorder), limits)


def _import_landlock() -> "ModuleType":
    # In isolated mode the folder of this script is no place to import from.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    return __import__("landlock")


def _lower_limit(name: int, wanted: int) -> None:
    """Lower a limit; a limit that is already lower stays."""
    hard = resource.getrlimit(name)[1]
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(name, (limit, limit))


def _enter_own_network(number: int, port: int, argv: list[str]) -> None:
    """Make the network, pass the listening socket on to the app, become the program."""
    import _socket  # The module around it takes 12 ms to import.
    import fcntl
    import struct

    user, group = os.getuid(), os.getgid()
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network of its own")
        maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
        for name, text in maps:
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
        any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        fcntl.ioctl(any_socket.fileno(), _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))
        any_socket.close()
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        app = _socket.socket(fileno=number)
        app.sendmsg([b"x"], [(_SOL_SOCKET, _SCM_RIGHTS, struct.pack("@i", listener.fileno()))])
        app.close()
        listener.close()
        os.execv(argv[0], argv)
    except OSError as error:
        os.write(2, f"the network of the sandbox could not be made: {error.strerror}\n".encode())
        os._exit(1)


def main() -> None:
    """Run the command, report its end, and kill what it left behind."""
    if sys.argv[1] == OWN_NETWORK:
        _enter_own_network(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    status_fd, parent, limits, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return
    os.set_inheritable(status_fd, False)
    child = _start_command(argv, limits)
    # Close our ends of the output pipe, so that end of file means that no process of the command holds it.
    empty = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(empty, number)
    status = _wait_for_end(child)
    remaining = len(descendants(os.getpid()))
    deadline = time.monotonic() + _LEFT_GRACE_S
    while remaining and time.monotonic() < deadline:
        time.sleep(0.01)
        _reap()
        remaining = len(descendants(os.getpid()))
    kill_below(os.getpid(), seconds=_KILL_S, reap=True)
    os.write(status_fd, f"exit {status} {remaining}\n".encode())


if __name__ == "__main__":
    main()
