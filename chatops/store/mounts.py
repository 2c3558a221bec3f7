"""Type of the file system under a path. On a network drive several machines share a file but no memory.

Read from ``/proc/self/mountinfo`` (proc_pid_mountinfo(5)). Without that file nothing is known.
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
"""File systems whose files are on another machine (9p also: drives of the host in WSL and virtual machines)."""

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
"""Network file systems in user space: what follows ``fuse.``. Other ``fuse`` types are local."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mounted file system: mount point and type."""

    point: PurePosixPath
    type: str


def mounts(mountinfo: str) -> list[Mount]:
    """Return the mounts in the order they were made. Malformed lines are left out."""
    found: list[Mount] = []
    for line in mountinfo.splitlines():
        # 36 35 98:0 /root /mnt/point rw,noatime shared:1 - type source options
        left, separator, right = line.partition(" - ")
        fields, what = left.split(" "), right.split(" ")
        if separator and len(fields) >= 5 and what[0]:
            found.append(Mount(point=PurePosixPath(_unescaped(fields[4])), type=what[0]))
    return found


def type_of(path: PurePosixPath, mountinfo: str) -> str:
    """Return the type of the file system that `path` (absolute, without links) is on; empty if it is on none.

    The nearest mount above a path counts, and of several on one point the last, which covers the others.
    """
    above = [mount for mount in mounts(mountinfo) if path.is_relative_to(mount.point)]
    if not above:
        return ""
    depth = max(len(mount.point.parts) for mount in above)
    return [mount.type for mount in above if len(mount.point.parts) == depth][-1]


def is_network(kind: str) -> bool:
    """Return True if a file system of this type, as spelled in mountinfo, keeps its files on another machine."""
    base, _, program = kind.partition(".")
    return base in NETWORK or (base == "fuse" and program in NETWORK_FUSE)


def file_system(path: Path) -> str:
    """Return the type of the file system under `path`, as this process sees it; empty if it is not known."""
    try:
        return type_of(PurePosixPath(path.resolve()), MOUNTINFO.read_text("utf-8", "surrogateescape"))
    except OSError:
        return ""


def network_drive(path: Path) -> str:
    """Return the type of the network file system under `path`; empty if it is local or not known."""
    kind = file_system(path)
    return kind if is_network(kind) else ""


def _unescaped(field: str) -> str:
    """Decode a field: spaces, tabs, line ends and backslashes are written as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)
