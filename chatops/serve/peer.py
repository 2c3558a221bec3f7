"""Find the user who owns the other end of a connection over the loopback interface.

The link is no secret from other users of the machine: it stands in the list of processes while a browser starts with
it, and the name in it is all that keeps the cookie from a server of theirs.
"""

import os
import socket
import struct
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _ANY_STATE = 4, 20, 0xFFFFFFFF


def is_of_this_user(host: str, port: int, own_host: str, own_port: int) -> bool:
    """Return True if this user, or root, has made a connection. Only Linux tells; elsewhere True."""
    if not sys.platform.startswith("linux"):
        return True
    ends = [(ip_address(host).packed, port), (ip_address(own_host).packed, own_port)]
    try:
        uid, inode = ask_kernel(ends)
    except OSError:
        # This kernel answers no such question. Its table takes it a hundred times as long.
        uid, inode = search_table(ends)
    # A socket that its process has closed seems to be root's, and has no inode any more.
    return inode != 0 and uid in (0, os.geteuid())


def ask_kernel(ends: Sequence[tuple[bytes, int]]) -> tuple[int, int]:
    """Return user and inode of the socket between these two addresses, see sock_diag(7). Raises OSError."""
    addresses = b"".join(packed.ljust(16, b"\0") for packed, _ in ends)
    ports = b"".join(port.to_bytes(2, "big") for _, port in ends)
    family = socket.AF_INET6 if len(ends[0][0]) == 16 else socket.AF_INET
    asked = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, _ANY_STATE) + ports + addresses + bytes(4) + b"\xff" * 8
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.sendto(struct.pack("=IHHII", 16 + len(asked), _SOCK_DIAG_BY_FAMILY, 1, 0, 0) + asked, (0, 0))
        answer = kernel.recv(4_096)
    kind, between = struct.unpack_from("=H", answer, 4)[0], answer[20 : 20 + len(ports + addresses)]
    if kind != _SOCK_DIAG_BY_FAMILY or between != ports + addresses:
        raise OSError("the kernel knows no such socket")
    uid, inode = struct.unpack_from("=II", answer, 80)
    return uid, inode


def search_table(ends: Sequence[tuple[bytes, int]]) -> tuple[int, int]:
    """Return user and inode of the socket between these two addresses; no inode if there is none."""
    table = Path("/proc/net/tcp6" if len(ends[0][0]) == 16 else "/proc/net/tcp")
    step = -1 if sys.byteorder == "little" else 1
    words = (b"".join(packed[at : at + 4][::step] for at in range(0, len(packed), 4)) for packed, _ in ends)
    wanted = [f"{word.hex()}:{port:04x}".upper() for word, (_, port) in zip(words, ends, strict=True)]
    rows = (line.split() for line in table.read_text("ascii").splitlines())
    return next(((int(row[7]), int(row[9])) for row in rows if row[1:3] == wanted), (-1, 0))
