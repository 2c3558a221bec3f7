"""Change modes, owners and times of files for a command at level landlock, and only below the folders it may write.

Landlock does not know these changes, and a filter cannot look at a path. So the filter leaves the calls (`HANDLED`) to
a thread of the supervisor (seccomp_unotify(2)). It opens the file itself, looks where that file is, and changes what it
has opened. So it does not matter what the command does to its memory, its descriptors or the path meanwhile.

The thread has given up the rights of root, as the command has. Uses the standard library only, as the supervisor does.
"""

import ctypes
import errno
import fcntl
import os
import select
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it at run time would delay each command.
    from collections.abc import Iterable

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # SECCOMP_IOCTL_NOTIF_…
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_AT_FDCWD = -100
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000  # AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH
_MOST_PATH = 4_096
_PAGE = 4_096

# Each call: what it changes, and which argument is folder or file, path, first value, flags; -1: it has none.
_X86_64 = {
    90: ("mode", -1, 0, 1, -1),  # chmod
    91: ("mode", 0, -1, 1, -1),  # fchmod
    268: ("mode", 0, 1, 2, -1),  # fchmodat
    452: ("mode", 0, 1, 2, 3),  # fchmodat2
    92: ("owner", -1, 0, 1, -1),  # chown
    94: ("owner", -1, 0, 1, -1),  # lchown
    93: ("owner", 0, -1, 1, -1),  # fchown
    260: ("owner", 0, 1, 2, 4),  # fchownat
    132: ("seconds", -1, 0, 1, -1),  # utime
    235: ("microseconds", -1, 0, 1, -1),  # utimes
    261: ("microseconds", 0, 1, 2, -1),  # futimesat
    280: ("nanoseconds", 0, 1, 2, 3),  # utimensat
}
_AARCH64 = {52: _X86_64[91], 53: _X86_64[268], 55: _X86_64[93], 54: _X86_64[260], 88: _X86_64[280], 452: _X86_64[452]}
_CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(os.uname().machine, {})
_LCHOWN = 94 if os.uname().machine == "x86_64" else -1
HANDLED = tuple(_CALLS)
"""Numbers of the calls that `serve` answers."""

_libc = ctypes.CDLL(None, use_errno=True)


def serve(listener: int, folders: "Iterable[str]") -> None:
    """Answer the calls that arrive at the descriptor `listener`, until the last process of the command has ended."""
    writable = tuple(os.path.realpath(folder) for folder in folders)
    arriving = select.poll()
    arriving.register(listener, select.POLLIN)
    while any(events & select.POLLIN for _, events in arriving.poll()):
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notification)
            call, task, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification)
            fault = _performed(listener, call, task, number, arguments, writable)
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(call, 0, -fault, 0))
        except OSError:
            continue  # The process died meanwhile.


def _performed(
    listener: int, call: int, task: int, number: int, arguments: list[int], writable: tuple[str, ...]
) -> int:
    """Perform one call of the thread `task`. Return 0, or the number of the error that the command gets."""
    file = -1
    try:
        file = _opened(task, number, arguments)
        what, _, _, value, _ = _CALLS[number]
        times = _times(task, arguments[value], what) if what.endswith("seconds") else None
        # If the call is over, another process may have the id by now.
        fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", call))
        # This link leads to what was opened, even if that is a link itself.
        opened = f"/proc/self/fd/{file}"
        found = os.readlink(opened)
        if not any(found == folder or found.startswith(f"{folder}/") for folder in writable):
            return errno.EPERM
        # In another mount namespace, which /proc can lead to, the same path is another file.
        if not found.endswith(" (deleted)") and not os.path.samestat(os.lstat(found), os.fstat(file)):
            return errno.EPERM
        place = opened.encode()
        if what == "mode":
            done = _libc.chmod(place, arguments[value] & 0o1777)
        elif what == "owner":
            done = _libc.chown(place, _signed(arguments[value]), _signed(arguments[value + 1]))
        else:
            done = _libc.utimensat(_AT_FDCWD, place, times, 0)
        return ctypes.get_errno() if done else 0
    except OSError as error:
        return error.errno or errno.EPERM
    except struct.error:  # microseconds that are no such number
        return errno.EINVAL
    finally:
        if file >= 0:
            os.close(file)


def _opened(task: int, number: int, arguments: list[int]) -> int:
    """Open the file of a call with O_PATH, as the thread `task` would find it. Raises OSError."""
    _, folder, path, _, flags = _CALLS[number]
    given = arguments[flags] if flags >= 0 else _NO_FOLLOW if number == _LCHOWN else 0
    base = _signed(arguments[folder]) if folder >= 0 else _AT_FDCWD
    around = f"/proc/{task}/cwd" if base == _AT_FDCWD else f"/proc/{task}/fd/{base}"
    name = _text(task, arguments[path]) if path >= 0 and arguments[path] else b""
    if not name:
        named = path >= 0 and bool(arguments[path])
        if named and not given & _EMPTY_PATH:
            raise OSError(errno.ENOENT, "no name")
        if not named and base == _AT_FDCWD:
            raise OSError(errno.EFAULT, "no path")
        return os.open(around, os.O_PATH | os.O_CLOEXEC)
    for own in (b"/proc/self/", b"/proc/thread-self/"):
        if name.startswith(own):
            name = b"/proc/%d/%s" % (task, name.removeprefix(own))
    how = os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if given & _NO_FOLLOW else 0)
    if name.startswith(b"/"):
        return os.open(name, how)
    start = os.open(around, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.open(name, how, dir_fd=start)
    finally:
        os.close(start)


def _times(task: int, address: int, unit: str) -> bytes | None:
    """Return the two times of a call as utimensat(2) takes them; None for the present time."""
    if not address:
        return None
    if unit == "seconds":
        first, second = struct.unpack("=2q", _read(task, address, 16))
        return struct.pack("=4q", first, 0, second, 0)
    data = _read(task, address, 32)
    first, parts, second, more = struct.unpack("=4q", data)
    return data if unit == "nanoseconds" else struct.pack("=4q", first, parts * 1000, second, more * 1000)


def _text(task: int, address: int) -> bytes:
    """Return the bytes at an address up to the first NUL, read page by page: the next page may not be there."""
    data = b""
    while b"\0" not in data:
        if len(data) >= _MOST_PATH:
            raise OSError(errno.ENAMETOOLONG, "too long")
        data += _read(task, address + len(data), _PAGE - (address + len(data)) % _PAGE)
    return data.partition(b"\0")[0]


def _read(task: int, address: int, size: int) -> bytes:
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


def _signed(value: int) -> int:
    """Return an argument of 32 bits as a C int."""
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
