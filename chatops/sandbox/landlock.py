"""Confine this process with Landlock and seccomp: the sandbox level for machines without bubblewrap.

Loaded by the supervisor in the process that becomes the command. Uses the standard library and the stable kernel
interfaces only (landlock(7), seccomp(2)), because imports delay each command.

Landlock lets the process open files below the given folders only. It cannot take a part out of a folder, so ``.git``
and files with secrets in the workspace are not protected, and it hides no processes; but it keeps the process from
reading their memory and environment. seccomp refuses sockets, because Landlock knows only TCP, and what leads to
further rights: namespaces, tracing, io_uring, keys.

Landlock does not know modes, owners, times and attributes of files either. seccomp refuses changes of attributes. It
leaves the other calls (`HANDLED`) to a thread of the supervisor (seccomp_unotify(2)), because a filter cannot look at a
path. The thread opens the file itself, looks where that file is, and changes what it has opened, if it is below the
folders that the command may write. So it does not matter what the command does to its memory, its descriptors or the
path meanwhile. The thread has given up the rights of root, as the command has.

`set_id_filter` is a filter of every sandboxed command, also in bubblewrap. With it no file can become setuid or
setgid, as such a file on the real disk would give others the rights of its owner. A filter sees numbers only, so modes
are checked where they are an argument. Calls that hide them in memory (openat2) or bypass the filter (io_uring) do not
exist for the command.
"""

import ctypes
import errno
import fcntl
import os
import select
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it at run time would delay each command.
    from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
_MACHINE = os.uname().machine

# Filters of system calls (seccomp). A filter is a program in BPF. Each of its lines holds an operation, the number of
# lines to skip if a test is true, the number to skip if it is false, and an operand. The program loads one number after
# the other from the description of the call (seccomp_data), and tests it.
_Lines = list[tuple[int, int, int, int]]
_LINE = struct.Struct("=HBBI")
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _NOTIFY, _ERROR = 0x7FFF0000, 0x7FC00000, 0x00050000
_CALL_AT, _INTERFACE_AT, _ARGUMENTS_AT = 0, 4, 16
"""Offsets in seccomp_data, in bytes: the number of the call, the interface, and the arguments of 8 bytes each."""
_SET_IDS = 0o6000  # mode bits S_ISUID and S_ISGID
_CREATES = 0o20000100  # O_CREAT, and the bit of O_TMPFILE that is not O_DIRECTORY
_FCHMODAT2, _OPENAT2, _IO_URING_SETUP = 452, 437, 425
_AF_INET, _AF_INET6 = 2, 10
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWUSER and the others
_X32 = 0x40000000  # bit of the calls of a second interface of x86_64, which the filters refuse
# FS_IOC_SETFLAGS, the same of 32 bits, FSSETXATTR, SETVERSION
_SET_FLAGS = (0x40086602, 0x40046602, 0x401C5820, 0x40087602)

# For each interface of a machine: its audit number, and the numbers of chmod, fchmod, fchmodat, creat, open, openat,
# mknod and mknodat; 0: the interface has no such call.
_X86_64 = (0xC000003E, (90, 91, 268, 85, 2, 257, 133, 259))
_I386 = (0x40000003, (15, 94, 306, 8, 5, 295, 14, 297))
_AARCH64 = (0xC00000B7, (0, 52, 53, 0, 0, 56, 0, 33))
_ARM = (0x40000028, (15, 94, 333, 8, 5, 322, 14, 324))
_RISCV64 = (0xC00000F3, _AARCH64[1])
_INTERFACES = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64, _ARM), "riscv64": (_RISCV64,)}

# What `_confining_filter` refuses: the numbers of the calls on each machine.
_REFUSED_BY_ARGUMENTS = {
    "x86_64": {"socket": 41, "clone": 56, "clone3": 435, "ioctl": 16, "prlimit64": 302},
    "aarch64": {"socket": 198, "clone": 220, "clone3": 435, "ioctl": 29, "prlimit64": 261},
}
_REFUSED = {
    # ptrace, process_vm_readv, process_vm_writev, unshare, setns, io_uring_setup, add_key, request_key, keyctl, bpf,
    # perf_event_open, userfaultfd, pidfd_getfd, mount, kexec_load, init_module, finit_module
    "x86_64": (101, 310, 311, 272, 308, 425, 248, 249, 250, 321, 298, 323, 438, 165, 246, 175, 313),
    "aarch64": (117, 270, 271, 97, 268, 425, 217, 218, 219, 280, 241, 282, 438, 40, 104, 105, 273),
}
_ATTRIBUTE_CALLS = {
    # setxattr, lsetxattr, fsetxattr, removexattr, lremovexattr, fremovexattr, setxattrat, removexattrat, file_setattr
    "x86_64": (188, 189, 190, 197, 198, 199, 463, 466, 469),
    "aarch64": (5, 6, 7, 14, 15, 16, 463, 466, 469),
}


def set_id_filter() -> bytes:
    """Return the filter of every sandboxed command; empty if this machine is of another kind."""
    lines: _Lines = []
    for audit, (chmod, fchmod, fchmodat, creat, open_, openat, mknod, mknodat) in _INTERFACES.get(_MACHINE, ()):
        rules = [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
        rules += _refuse(_OPENAT2, errno.ENOSYS) + _refuse(_IO_URING_SETUP, errno.ENOSYS)
        mode_is_argument_1, mode_is_argument_2 = (chmod, fchmod, creat, mknod), (fchmodat, _FCHMODAT2, mknodat)
        for mode, numbers in ((1, mode_is_argument_1), (2, mode_is_argument_2)):
            for number in filter(None, numbers):
                rules += _refuse(number, errno.EPERM, (mode, _SET_IDS))
        # Without the flags that create a file, the mode is not used and may be anything.
        for flags, number in ((1, open_), (2, openat)):
            rules += _refuse(number, errno.EPERM, (flags, _CREATES), (flags + 1, _SET_IDS)) if number else []
        rules.append((_RETURN, 0, 0, _ALLOW))
        lines += [(_EQUAL, 0, len(rules) + 1, audit), (_LOAD, 0, 0, _CALL_AT), *rules]
    return _pack([(_LOAD, 0, 0, _INTERFACE_AT), *lines, (_RETURN, 0, 0, _ERROR | errno.EPERM)]) if lines else b""


def _confining_filter(*, network: bool) -> bytes:
    """Return the filter of level landlock: no sockets, namespaces or further rights. `HANDLED` go to a listener."""
    numbers = _REFUSED_BY_ARGUMENTS[_MACHINE]
    lines: _Lines = [
        (_LOAD, 0, 0, _INTERFACE_AT),
        (_EQUAL, 1, 0, _INTERFACES[_MACHINE][0][0]),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_LOAD, 0, 0, _CALL_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        # Its flags are in memory, where no filter can look. Programs use clone instead.
        *_refuse(numbers["clone3"], errno.ENOSYS),
        *_refuse(numbers["clone"], errno.EPERM, (0, _NEW_NAMESPACES)),
        *_refuse(numbers["prlimit64"], errno.EPERM, (0, 0xFFFFFFFF)),  # limits of another process
    ]
    for number in _REFUSED[_MACHINE]:
        lines += _refuse(number, errno.EPERM)
    # Programs know file systems without attributes, and work without them.
    for number in _ATTRIBUTE_CALLS[_MACHINE]:
        lines += _refuse(number, errno.EOPNOTSUPP)
    for request in _SET_FLAGS:
        lines += _refuse(numbers["ioctl"], errno.EOPNOTSUPP, (1, request), compare=_EQUAL)
    for number in HANDLED:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
    if network:
        lines += [(_EQUAL, 0, 4, numbers["socket"]), (_LOAD, 0, 0, _ARGUMENTS_AT)]
        lines += [(_EQUAL, 2, 0, _AF_INET), (_EQUAL, 1, 0, _AF_INET6), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    else:
        lines += _refuse(numbers["socket"], errno.EPERM)
    return _pack([*lines, (_RETURN, 0, 0, _ALLOW)])


def _refuse(number: int, error: int, *tests: tuple[int, int], compare: int = _ANY_BIT) -> _Lines:
    """Return the lines that refuse a call. With `tests`, (argument, bits), only if all arguments pass `compare`."""
    refusal: _Lines = [(_RETURN, 0, 0, _ERROR | error), *([(_LOAD, 0, 0, _CALL_AT)] if tests else [])]
    # From the last test to the first: one that fails skips all lines up to the one that loads the call's number again.
    for argument, bits in reversed(tests):
        to_skip = len(refusal) - 1
        refusal = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument), (compare, 0, to_skip, bits), *refusal]
    return [(_EQUAL, 0, len(refusal), number), *refusal]


def _pack(lines: _Lines) -> bytes:
    return b"".join(_LINE.pack(*line) for line in lines)


# Access to files (Landlock).
LEAST_ABI = 3
"""Version of Landlock that is needed: before it, a command could truncate a file outside of its folders."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_READ_RIGHTS = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read folder
_FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # execute, write, read, truncate: what a rule for a file may hold
_ALL_RIGHTS = (1 << 15) - 1
_IOCTL_DEV = 1 << 15
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 38, 24
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER = 1, 8  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER


def abi() -> int:
    """Return the version of Landlock in this kernel; 0 if it has none or this machine is of another kind."""
    if sys.platform != "linux" or _MACHINE not in _SECCOMP:
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def encode_arguments(*, read: "Iterable[str]", write: "Iterable[str]", network: bool) -> str:
    """Return the arguments of `confine` as one word that `confine_encoded` reads without importing a parser."""
    lists = (",".join(os.fsencode(path).hex() for path in paths) for paths in (read, write))
    return ";".join((*lists, "network" if network else ""))


def confine_encoded(text: str) -> int:
    """Confine this process as `encode_arguments` says, see `confine`. Raises OSError or ValueError."""
    read, write, network = text.split(";")
    return confine(read=_paths(read), write=_paths(write), network=bool(network))


def serve_encoded(listener: int, text: str) -> None:
    """Let processes confined as `encode_arguments` says change modes, owners and times of what they may write.

    `listener` is what their `confine` has returned. Returns when the last of them has ended. Gives up the rights of
    root for this thread. Raises OSError.
    """
    try:
        _drop_capabilities()
        _serve(listener, _paths(text.split(";")[1]))
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
        raise OSError(errno.ENOSYS, "Landlock is missing")
    # Each field lists what is refused unless a rule allows it; later versions know more fields, each of 8 bytes.
    files = _ALL_RIGHTS | (_IOCTL_DEV if version >= 5 else 0)
    tcp = 3 if not network else 0  # bind, connect
    scopes = 3  # abstract unix sockets, signals
    fields = struct.pack("=QQQ", files, tcp, scopes)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _check_result(_libc.syscall(_CREATE_RULESET, fields, len(fields), 0))
    try:
        for path in read:
            _allow(ruleset, path, _READ_RIGHTS)
        for path in (*write, *_DEVICES):
            _allow(ruleset, path, _ALL_RIGHTS if path not in _DEVICES else _FILE_RIGHTS)
        _check_result(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _drop_capabilities()
        _check_result(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
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
            access &= _FILE_RIGHTS
        rule = struct.pack("=Qi", access, descriptor)
        _check_result(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


def _drop_capabilities() -> None:
    """Give up the rights of root, as for a command in bubblewrap."""
    if os.geteuid():
        return
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    _check_result(_libc.capset(header, bytes(24)))


def _filter_calls(*, network: bool) -> int:
    """Install the filters, and return the descriptor at which the supervisor learns of the calls left to it."""
    _install(set_id_filter(), flags=0)
    return _install(_confining_filter(network=network), flags=_NEW_LISTENER)


def _install(program: bytes, *, flags: int) -> int:
    """Install one filter. Return the descriptor of its listener if `flags` ask for one, else 0. Raises OSError."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // _LINE.size, ctypes.addressof(buffer))
    return _check_result(_libc.syscall(_SECCOMP[_MACHINE], _SET_FILTER, flags, header))


def _check_result(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


# The calls that are left to the supervisor (seccomp_unotify).
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # SECCOMP_IOCTL_NOTIF_…
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_AT_FDCWD = -100
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000  # AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH
_MAX_PATH = 4_096  # bytes, PATH_MAX of Linux
_PAGE = 4_096  # bytes, at least: where pages are larger, more reads are made


class _Call:
    """What a call changes, and which of its arguments holds what; None: no argument does."""

    def __init__(
        self, what: str, *, value: int, file: int | None = None, path: int | None = None, flags: int | None = None
    ) -> None:
        self.what = what
        self.value = value
        """The first of the values; those of an owner are two."""
        self.file = file
        """A descriptor: the file itself, or the folder in which `path` is looked up."""
        self.path = path
        self.flags = flags


_CALLS_X86_64 = {
    90: _Call("mode", path=0, value=1),  # chmod
    91: _Call("mode", file=0, value=1),  # fchmod
    268: _Call("mode", file=0, path=1, value=2),  # fchmodat
    452: _Call("mode", file=0, path=1, value=2, flags=3),  # fchmodat2
    92: _Call("owner", path=0, value=1),  # chown
    94: _Call("owner", path=0, value=1),  # lchown
    93: _Call("owner", file=0, value=1),  # fchown
    260: _Call("owner", file=0, path=1, value=2, flags=4),  # fchownat
    132: _Call("seconds", path=0, value=1),  # utime
    235: _Call("microseconds", path=0, value=1),  # utimes
    261: _Call("microseconds", file=0, path=1, value=2),  # futimesat
    280: _Call("nanoseconds", file=0, path=1, value=2, flags=3),  # utimensat
}
_CALLS_AARCH64 = {
    52: _CALLS_X86_64[91],
    53: _CALLS_X86_64[268],
    55: _CALLS_X86_64[93],
    54: _CALLS_X86_64[260],
    88: _CALLS_X86_64[280],
    452: _CALLS_X86_64[452],
}
_CALLS = {"x86_64": _CALLS_X86_64, "aarch64": _CALLS_AARCH64}.get(_MACHINE, {})
_LCHOWN = 94 if _MACHINE == "x86_64" else None  # Other machines have no such call.
HANDLED = tuple(_CALLS)
"""Numbers of the calls that `_serve` answers."""


def _serve(listener: int, folders: "Iterable[str]") -> None:
    """Answer the calls that arrive at the descriptor `listener`, until the last process of the command has ended."""
    writable = tuple(os.path.realpath(folder) for folder in folders)
    arriving = select.poll()
    arriving.register(listener, select.POLLIN)
    while any(events & select.POLLIN for _, events in arriving.poll()):
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notification)
            cookie, task, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification)
            fault = _perform(listener, cookie, task, number, arguments, writable)
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(cookie, 0, -fault, 0))
        except OSError:
            continue  # The process died meanwhile.


def _perform(
    listener: int, cookie: int, task: int, number: int, arguments: list[int], writable: tuple[str, ...]
) -> int:
    """Perform one call of the thread `task`. Return 0, or the number of the error that the command gets.

    `cookie` is the kernel's id of the notification.
    """
    try:
        file = _open_file(task, number, arguments)
        try:
            call = _CALLS[number]
            sets_times = call.what.endswith("seconds")  # in one of three units
            times = _times(task, arguments[call.value], call.what) if sets_times else None
            # If the call is over, another process may have the id by now.
            fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", cookie))
            return _change_file(file, call, arguments, times) if _is_in(writable, file) else errno.EPERM
        finally:
            os.close(file)
    except OSError as error:
        return error.errno or errno.EPERM
    except struct.error:  # microseconds that are no such number
        return errno.EINVAL


def _is_in(folders: tuple[str, ...], file: int) -> bool:
    """Return True if the open file lies in one of the folders."""
    path = os.readlink(f"/proc/self/fd/{file}")
    if not any(path == folder or path.startswith(f"{folder}/") for folder in folders):
        return False
    # In another mount namespace, which /proc can lead to, the same path is another file.
    return path.endswith(" (deleted)") or os.path.samestat(os.lstat(path), os.fstat(file))


def _change_file(file: int, call: "_Call", arguments: list[int], times: bytes | None) -> int:
    """Change the open file as `call` says. Return as `_perform`."""
    # This link leads to what was opened, even if that is a link itself.
    opened, value = f"/proc/self/fd/{file}".encode(), arguments[call.value]
    if call.what == "mode":
        failed = _libc.chmod(opened, value & 0o1777)
    elif call.what == "owner":
        failed = _libc.chown(opened, _as_c_int(value), _as_c_int(arguments[call.value + 1]))
    else:
        failed = _libc.utimensat(_AT_FDCWD, opened, times, 0)
    return ctypes.get_errno() if failed else 0


def _open_file(task: int, number: int, arguments: list[int]) -> int:
    """Open the file of a call with O_PATH, as the thread `task` would find it. Raises OSError."""
    call = _CALLS[number]
    flags = _NO_FOLLOW if number == _LCHOWN else 0 if call.flags is None else arguments[call.flags]
    descriptor = _AT_FDCWD if call.file is None else _as_c_int(arguments[call.file])
    base = f"/proc/{task}/cwd" if descriptor == _AT_FDCWD else f"/proc/{task}/fd/{descriptor}"
    address = 0 if call.path is None else arguments[call.path]
    name = _text(task, address) if address else b""
    if not name:
        if address and not flags & _EMPTY_PATH:
            raise OSError(errno.ENOENT, "no name")
        if not address and descriptor == _AT_FDCWD:
            raise OSError(errno.EFAULT, "no path")
        return os.open(base, os.O_PATH | os.O_CLOEXEC)
    # These would lead to the supervisor's own process.
    for own in (b"/proc/self/", b"/proc/thread-self/"):
        if name.startswith(own):
            name = b"/proc/%d/%s" % (task, name.removeprefix(own))
    open_flags = os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if flags & _NO_FOLLOW else 0)
    if name.startswith(b"/"):
        return os.open(name, open_flags)
    folder = os.open(base, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.open(name, open_flags, dir_fd=folder)
    finally:
        os.close(folder)


def _times(task: int, address: int, unit: str) -> bytes | None:
    """Return the two times of a call as utimensat(2) takes them; None for the present time."""
    if not address:
        return None
    if unit == "seconds":
        first, second = struct.unpack("=2q", _read_memory(task, address, 16))
        return struct.pack("=4q", first, 0, second, 0)
    data = _read_memory(task, address, 32)
    if unit == "nanoseconds":
        return data
    first, first_us, second, second_us = struct.unpack("=4q", data)
    return struct.pack("=4q", first, first_us * 1000, second, second_us * 1000)


def _text(task: int, address: int) -> bytes:
    """Return the bytes at an address up to the first NUL, read page by page: the next page may not be there."""
    data = b""
    while b"\0" not in data:
        if len(data) >= _MAX_PATH:
            raise OSError(errno.ENAMETOOLONG, "too long")
        data += _read_memory(task, address + len(data), _PAGE - (address + len(data)) % _PAGE)
    return data.partition(b"\0")[0]


def _read_memory(task: int, address: int, size: int) -> bytes:
    memory = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(memory, size, address)
    except OverflowError:
        data = b""
    finally:
        os.close(memory)
    if len(data) != size:
        raise OSError(errno.EFAULT, "no such memory")
    return data


def _as_c_int(value: int) -> int:
    """Return an argument of 32 bits as a C int."""
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
