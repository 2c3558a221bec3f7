"""Build seccomp filters (seccomp(2)) that refuse system calls of a command.

Every sandboxed command gets the first filter. With it no file can become setuid or setgid, as such a file on the real
disk would give others the rights of its owner. A filter sees numbers only, so modes are checked where they are an
argument. Calls that hide them in memory (openat2) or bypass the filter (io_uring) do not exist for the command.

Level landlock adds the second one, see `landlock`. Uses the standard library only, because the supervisor imports it.
"""

import os
import struct

_SET_IDS = 0o6000
_CREATES = 0o20000100  # O_CREAT, and the bit of O_TMPFILE that is not O_DIRECTORY
_FCHMODAT2, _OPENAT2, _IO_URING_SETUP = 452, 437, 425
_ALLOW, _NOTIFY, _ERROR = 0x7FFF0000, 0x7FC00000, 0x00050000
_EPERM, _ENOSYS, _NOT_SUPPORTED = 1, 38, 95
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AF_INET, _AF_INET6 = 2, 10
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWUSER and the others
_X32 = 0x40000000
_SET_FLAGS = (
    0x40086602,
    0x40046602,
    0x401C5820,
    0x40087602,
)  # FS_IOC_SETFLAGS, also of 32 bits, FSSETXATTR, SETVERSION

# Audit number of each interface of a machine; chmod, fchmod, fchmodat, creat, open, openat, mknod, mknodat; 0: no such.
_X86_64 = (0xC000003E, (90, 91, 268, 85, 2, 257, 133, 259))
_I386 = (0x40000003, (15, 94, 306, 8, 5, 295, 14, 297))
_AARCH64 = (0xC00000B7, (0, 52, 53, 0, 0, 56, 0, 33))
_ARM = (0x40000028, (15, 94, 333, 8, 5, 322, 14, 324))
_RISCV64 = (0xC00000F3, _AARCH64[1])
_INTERFACES = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64, _ARM), "riscv64": (_RISCV64,)}

_CONFINED = {
    # socket, clone, clone3, ioctl, prlimit64; what is refused always: ptrace, process_vm_readv and writev, unshare,
    # setns, io_uring_setup, add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, pidfd_getfd, mount,
    # kexec_load, init_module, finit_module; setxattr, lsetxattr, fsetxattr and the same with remove.
    "x86_64": (
        (41, 56, 435, 16, 302),
        (101, 310, 311, 272, 308, 425, 248, 249, 250, 321, 298, 323, 438, 165, 246, 175, 313),
        (188, 189, 190, 197, 198, 199),
    ),
    "aarch64": (
        (198, 220, 435, 29, 261),
        (117, 270, 271, 97, 268, 425, 217, 218, 219, 280, 241, 282, 438, 40, 104, 105, 273),
        (5, 6, 7, 14, 15, 16),
    ),
}
_NEWER_ATTRIBUTES = (463, 466, 469)  # setxattrat, removexattrat, file_setattr

_Lines = list[tuple[int, int, int, int]]


def without_set_ids() -> bytes:
    """Return the filter of every sandboxed command; empty if this machine is of another kind."""
    lines: _Lines = []
    for audit, (chmod, fchmod, fchmodat, creat, open_, openat, mknod, mknodat) in _INTERFACES.get(_machine(), ()):
        rules = [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERROR | _EPERM)]
        rules += _call(_OPENAT2, _ENOSYS) + _call(_IO_URING_SETUP, _ENOSYS)
        second, third = (chmod, fchmod, creat, mknod), (fchmodat, _FCHMODAT2, mknodat)
        for place, numbers in ((1, second), (2, third)):
            for number in filter(None, numbers):
                rules += _call(number, _EPERM, (place, _SET_IDS))
        for place, number in ((1, open_), (2, openat)):
            rules += _call(number, _EPERM, (place, _CREATES), (place + 1, _SET_IDS)) if number else []
        rules.append((_RETURN, 0, 0, _ALLOW))
        lines += [(_EQUAL, 0, len(rules) + 1, audit), (_LOAD, 0, 0, 0), *rules]
    return _encoded([(_LOAD, 0, 0, 4), *lines, (_RETURN, 0, 0, _ERROR | _EPERM)]) if lines else b""


def confining(*, network: bool, notify: tuple[int, ...]) -> bytes:
    """Return the filter of level landlock: no sockets, namespaces or further rights. `notify` go to a listener."""
    (socket, clone, clone3, ioctl, prlimit), refused, attributes = _CONFINED[_machine()]
    lines: _Lines = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _INTERFACES[_machine()][0][0]),
        (_RETURN, 0, 0, _ERROR | _EPERM),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | _EPERM),
        *_call(clone3, _ENOSYS),
        *_call(clone, _EPERM, (0, _NEW_NAMESPACES)),
        *_call(prlimit, _EPERM, (0, 0xFFFFFFFF)),  # limits of another process
    ]
    for number in refused:
        lines += _call(number, _EPERM)
    # Programs know file systems without attributes, and work without them.
    for number in (*attributes, *_NEWER_ATTRIBUTES):
        lines += _call(number, _NOT_SUPPORTED)
    for request in _SET_FLAGS:
        lines += _call(ioctl, _NOT_SUPPORTED, (1, request), compare=_EQUAL)
    for number in notify:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
    if network:
        lines += [(_EQUAL, 0, 4, socket), (_LOAD, 0, 0, 16), (_EQUAL, 2, 0, _AF_INET), (_EQUAL, 1, 0, _AF_INET6)]
        lines.append((_RETURN, 0, 0, _ERROR | _EPERM))
    else:
        lines += _call(socket, _EPERM)
    return _encoded([*lines, (_RETURN, 0, 0, _ALLOW)])


def _call(number: int, error: int, *tests: tuple[int, int], compare: int = _ANY_BIT) -> _Lines:
    """Refuse a call, with `tests` only if each of these arguments has one of its bits set."""
    body: _Lines = []
    for left, (argument, bits) in zip(range(len(tests) - 1, -1, -1), tests, strict=True):
        body += [(_LOAD, 0, 0, 16 + 8 * argument), (compare, 0, 2 * left + 1, bits)]
    body.append((_RETURN, 0, 0, _ERROR | error))
    body += [(_LOAD, 0, 0, 0)] if tests else []
    return [(_EQUAL, 0, len(body), number), *body]


def _encoded(lines: _Lines) -> bytes:
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _machine() -> str:
    return os.uname().machine
