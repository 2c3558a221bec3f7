"""Start a program in a network of its own, with one socket that listens there and belongs to the app.

Run as ``python -I -S own_network.py FD PORT ARGV…``. The new network (a network namespace) has only a loopback device.
This script makes a listening socket on ``127.0.0.1:PORT`` in it, sends it over the unix socket FD, and becomes ARGV. A
socket belongs to the namespace that it was made in, so the app accepts connections of the program there and opens those
to the outside in its own network. The program has no other way out, and needs no relay.

Uses the standard library only, because imports delay each command.
"""

import _socket as socket  # The module around it takes 12 ms to import.
import ctypes
import fcntl
import os
import struct
import sys

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_UP_AND_RUNNING = 0x1 | 0x40


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _listener(port: int) -> socket.socket:
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network of its own")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    any_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(any_socket.fileno(), _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))
    any_socket.close()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def main() -> None:
    """Make the network, pass the listening socket on, run the program."""
    number, port, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    try:
        listener = _listener(port)
        app = socket.socket(fileno=number)
        app.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("@i", listener.fileno()))])
        app.close()
        listener.close()
        os.execv(argv[0], argv)
    except OSError as error:
        os.write(2, f"the network of the sandbox could not be made: {error.strerror}\n".encode())
        os._exit(1)


if __name__ == "__main__":
    main()
