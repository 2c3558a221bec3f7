"""Confine this process with Landlock and seccomp: the sandbox level for machines without bubblewrap.

Loaded by the supervisor in the process that becomes the command. Uses the standard library and the stable kernel
interfaces only (landlock(7), seccomp(2)), because imports delay each command.

Landlock lets the process open files below the given folders only. It cannot take a part out of a folder, so ``.git``
and files with secrets in the workspace are not protected, and it hides no processes; but it keeps the process from
reading their memory and environment. seccomp refuses sockets, because Landlock knows only TCP, and what leads to
further rights: namespaces, tracing, io_uring, keys.
"""

import ctypes
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it at run time would delay each command.
    from collections.abc import Iterable

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
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 38, 22, 24
_MODE_FILTER = 2
_EPERM, _ENOSYS = 1, 38
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWUSER and the others

_ARCHITECTURES = {
    # Audit number; socket, clone, clone3; what is refused always: ptrace, process_vm_readv and writev, unshare, setns,
    # io_uring_setup, add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, pidfd_getfd, mount, kexec_load,
    # init_module, finit_module.
    "x86_64": (
        0xC000003E,
        (41, 56, 435),
        (101, 310, 311, 272, 308, 425, 248, 249, 250, 321, 298, 323, 438, 165, 246, 175, 313),
    ),
    "aarch64": (
        0xC00000B7,
        (198, 220, 435),
        (117, 270, 271, 97, 268, 425, 217, 218, 219, 280, 241, 282, 438, 40, 104, 105, 273),
    ),
}

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Return the version of Landlock in this kernel; 0 if it has none or this machine is of another kind."""
    if sys.platform != "linux" or os.uname().machine not in _ARCHITECTURES:
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def encoded(*, read: "Iterable[str]", write: "Iterable[str]", network: bool) -> str:
    """Return the arguments of `confine` as one word that `confine_encoded` reads without importing a parser."""
    lists = (",".join(os.fsencode(path).hex() for path in paths) for paths in (read, write))
    return ";".join((*lists, "network" if network else ""))


def confine_encoded(text: str) -> None:
    """Confine this process as `encoded` says. Raises OSError or ValueError."""
    read, write, network = text.split(";")
    lists = [[os.fsdecode(bytes.fromhex(path)) for path in paths.split(",") if path] for paths in (read, write)]
    confine(read=lists[0], write=lists[1], network=bool(network))


def confine(*, read: "Iterable[str]", write: "Iterable[str]", network: bool) -> None:
    """Let this process read and run what is below `read`, change what is below `write`, and reach nothing else.

    `network`: internet sockets are permitted, unix sockets are not. Cannot be undone. Raises OSError.
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
    _refuse_calls(network=network)


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


def _refuse_calls(*, network: bool) -> None:
    audit, (socket, clone, clone3), refused = _ARCHITECTURES[os.uname().machine]
    allow, error = 0x7FFF0000, 0x00050000
    program: list[tuple[int, int, int, int]] = [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 1, 0, audit),
        (0x06, 0, 0, error | _EPERM),
        (0x20, 0, 0, 0),  # load the number of the call
        (0x35, 0, 1, 0x40000000),  # calls of the x32 interface
        (0x06, 0, 0, error | _EPERM),
        (0x15, 0, 1, clone3),
        (0x06, 0, 0, error | _ENOSYS),
    ]
    for number in refused:
        program += [(0x15, 0, 1, number), (0x06, 0, 0, error | _EPERM)]
    program += [
        (0x15, 0, 3, clone),
        (0x20, 0, 0, 16),  # its flags
        (0x45, 0, 1, _NEW_NAMESPACES),
        (0x06, 0, 0, error | _EPERM),
        (0x20, 0, 0, 0),
    ]
    if network:
        program += [
            (0x15, 0, 4, socket),
            (0x20, 0, 0, 16),  # its family
            (0x15, 2, 0, _AF_INET),
            (0x15, 1, 0, _AF_INET6),
            (0x06, 0, 0, error | _EPERM),
        ]
    else:
        program += [(0x15, 0, 1, socket), (0x06, 0, 0, error | _EPERM)]
    program.append((0x06, 0, 0, allow))
    code = b"".join(struct.pack("=HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    _checked(_libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(header), 0, 0))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
