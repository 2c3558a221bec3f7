"""What kind of file system a path is on: on a network drive several machines share a file but no memory.

Read from ``/proc/self/mountinfo`` (proc_pid_mountinfo(5)); where there is none, nothing is known.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MOUNTINFO = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
    }
)
"""File systems whose files lie on another machine (9p also: the drives of the host in WSL and virtual machines)."""

NETWORK_FUSE = frozenset(
    {
        "afpfs",
        "ceph-fuse",
        "curlftpfs",
        "davfs",
        "davfs2",
        "gcsfuse",
        "glusterfs",
        "goofys",
        "google-drive-ocamlfuse",
        "gvfsd-fuse",
        "juicefs",
        "rclone",
        "s3fs",
        "smbnetfs",
        "sshfs",
    }
)
"""The same, run by a program: what follows ``fuse.``. Other such file systems are on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mounted file system: where, and of what type."""

    point: PurePosixPath
    type: str


def mounts(mountinfo: str) -> list[Mount]:
    """The mounts in the order they were made; lines that are none are left out."""
    found: list[Mount] = []
    for line in mountinfo.splitlines():
        # 36 35 98:0 /root /mnt/point rw,noatime shared:1 - type source options
        left, separator, right = line.partition(" - ")
        fields, what = left.split(" "), right.split(" ")
        if separator and len(fields) >= 5 and what[0]:
            found.append(Mount(point=PurePosixPath(_unescaped(fields[4])), type=what[0]))
    return found


def type_of(path: PurePosixPath, mountinfo: str) -> str:
    """The type of the file system that `path` (absolute, without links) is on; empty if it is on none.

    The nearest mount above a path counts, and of several on one point the last, which covers the others.
    """
    above = [mount for mount in mounts(mountinfo) if path.is_relative_to(mount.point)]
    if not above:
        return ""
    depth = max(len(mount.point.parts) for mount in above)
    return [mount.type for mount in above if len(mount.point.parts) == depth][-1]


def is_network(kind: str) -> bool:
    """Whether a file system of this type, as mountinfo spells it, keeps its files on another machine."""
    base, _, program = kind.partition(".")
    return base in NETWORK or (base == "fuse" and program in NETWORK_FUSE)


def file_system(path: Path) -> str:
    """The type of the file system under `path`, as this process sees it; empty if it is not known."""
    try:
        return type_of(PurePosixPath(path.resolve()), MOUNTINFO.read_text("utf-8", "surrogateescape"))
    except OSError:
        return ""


def network_drive(path: Path) -> str:
    """The type of the network file system under `path`; empty if none is known."""
    kind = file_system(path)
    return kind if is_network(kind) else ""


def _unescaped(field: str) -> str:
    """Spaces, tabs, line ends and backslashes stand as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)
