"""Confine this process with Landlock and seccomp: the sandbox level for machines without bubblewrap.

Loaded by the supervisor in the process that becomes the command. Uses the standard library and the stable kernel
interfaces only (landlock(7), seccomp(2)), because imports delay each command.

Landlock lets the process open files below the given folders only. It cannot take a part out of a folder, so ``.git``
and files with secrets in the workspace are not protected, and it hides no processes; but it keeps the process from
reading their memory and environment. seccomp refuses sockets, because Landlock knows only TCP, and what leads to
further rights: namespaces, tracing, io_uring, keys. Landlock does not know modes, owners, times and attributes of
files either. So seccomp leaves changes of the first three to the supervisor (`attributes`), and refuses the last.
"""

import ctypes
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it at run time would delay each command.
    from collections.abc import Iterable
if TYPE_CHECKING or __package__:
    from chatops.sandbox import attributes, call_filter
else:
    attributes, call_filter = __import__("attributes"), __import__("call_filter")

LEAST_ABI = 3
"""Before, a file outside could be truncated."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read folder
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # execute, write, read, truncate: what a rule for a file may hold
_ALL = (1 << 15) - 1
_IOCTL_DEV = 1 << 15
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 38, 24
_ENOSYS = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NEW_LISTENER = 8

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Return the version of Landlock in this kernel; 0 if it has none or this machine is of another kind."""
    if sys.platform != "linux" or os.uname().machine not in _SECCOMP:
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def encoded(*, read: "Iterable[str]", write: "Iterable[str]", network: bool) -> str:
    """Return the arguments of `confine` as one word that `confine_encoded` reads without importing a parser."""
    lists = (",".join(os.fsencode(path).hex() for path in paths) for paths in (read, write))
    return ";".join((*lists, "network" if network else ""))


def confine_encoded(text: str) -> int:
    """Confine this process as `encoded` says, see `confine`. Raises OSError or ValueError."""
    read, write, network = text.split(";")
    return confine(read=_paths(read), write=_paths(write), network=bool(network))


def serve_encoded(listener: int, text: str) -> None:
    """Let processes that were confined as `encoded` says change modes, owners and times of what they may write.

    `listener` is what their `confine` has returned. Returns when the last of them has ended. Gives up the rights of
    root for this thread. Raises OSError.
    """
    try:
        _drop_capabilities()
        attributes.serve(listener, _paths(text.split(";")[1]))
    finally:
        os.close(listener)


def _paths(text: str) -> list[str]:
    return [os.fsdecode(bytes.fromhex(path)) for path in text.split(",") if path]


def confine(*, read: "Iterable[str]", write: "Iterable[str]", network: bool) -> int:
    """Let this process read and run what is below `read`, change what is below `write`, and reach nothing else.

    `network`: internet sockets are permitted, unix sockets are not. Cannot be undone. Return the descriptor for
    `serve_encoded`. Raises OSError.
    """
    version = abi()
    if version < LEAST_ABI:
        raise OSError(_ENOSYS, "Landlock is missing")
    handled = _ALL | (_IOCTL_DEV if version >= 5 else 0)
    # Access to files; TCP; signals and abstract sockets: later versions know more fields.
    ports = 3 if version >= 4 and not network else 0
    scoped = 3 if version >= 6 else 0
    fields = struct.pack("=QQQ", handled, ports, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, fields, len(fields), 0))
    try:
        for path in read:
            _allow(ruleset, path, _READ)
        for path in (*write, *_DEVICES):
            _allow(ruleset, path, _ALL if path not in _DEVICES else _FILE)
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _drop_capabilities()
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return _filter_calls(network=network)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _FILE
        rule = struct.pack("=Qi", access, descriptor)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


def _drop_capabilities() -> None:
    """Give up the rights of root, as for a command in bubblewrap."""
    if os.geteuid():
        return
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    header = struct.pack("=Ii", 0x20080522, 0)
    _checked(_libc.capset(header, bytes(24)))


def _filter_calls(*, network: bool) -> int:
    """Install the filters, and return the descriptor at which the supervisor learns of the calls left to it."""
    flags = 0
    listener = -1
    for code in filter(
        None, (call_filter.without_set_ids(), call_filter.confining(network=network, notify=attributes.HANDLED))
    ):
        buffer = ctypes.create_string_buffer(code, len(code))
        header = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
        listener = _checked(_libc.syscall(_SECCOMP[os.uname().machine], 1, flags, header))
        flags = _NEW_LISTENER
    return listener


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
