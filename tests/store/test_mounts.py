"""Which file systems count as network drives, read off real mount tables."""

from pathlib import Path, PurePosixPath

import pytest

from chatops.store.mounts import is_network, mounts, network_drive, type_of

WORKSTATION = r"""
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
29 22 0:26 / /home rw,relatime shared:11 - nfs4 filer:/export/home rw,vers=4.2,addr=192.0.2.7
31 29 0:30 / /home/ana/.cache rw,nosuid shared:12 - tmpfs tmpfs rw,size=1048576k
35 22 0:33 / /media/usb\040stick rw,nosuid shared:20 - vfat /dev/sdb1 rw,utf8
36 22 0:34 / /srv/team\011share rw,relatime - cifs //box/team rw,vers=3.1.1
40 22 0:40 / /run/user/1000/gvfs rw,nosuid - fuse.gvfsd-fuse gvfsd-fuse rw,user_id=1000
41 22 0:41 / /home/ana/remote rw,nosuid master:3 propagate_from:2 - fuse.sshfs ana@box: rw,user_id=1000
42 22 0:42 / /home/ana/vault rw,nosuid - fuse.gocryptfs /home/ana/.vault rw,user_id=1000
"""
CONTAINER = """
500 400 0:60 / / rw,relatime - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/u,workdir=/w
501 500 0:61 / /proc rw,nosuid - proc proc rw
502 500 254:1 /volumes/data /data rw,relatime - ext4 /dev/vda1 rw
503 500 0:70 / /mnt/host rw,relatime - 9p host rw,trans=virtio
"""
SUBSYSTEM = """
80 60 8:32 / / rw,relatime - ext4 /dev/sdc rw,discard
90 80 0:55 / /mnt/c rw,noatime - 9p C:\\134 rw,dirsync,aname=drvfs
"""


@pytest.mark.parametrize(
    ("table", "path", "type_"),
    [
        (WORKSTATION, "/var/lib/x", ""),
        (WORKSTATION, "/home/ana/.local/share/chatops/chatops.db", "nfs4"),
        (WORKSTATION, "/home/ana/.cache/chatops", ""),
        (WORKSTATION, "/homework/x", ""),
        (WORKSTATION, "/media/usb stick/x", ""),
        (WORKSTATION, "/srv/team\tshare/x", "cifs"),
        (WORKSTATION, "/home/ana/remote/x", "fuse.sshfs"),
        (WORKSTATION, "/home/ana/vault/x", ""),
        (WORKSTATION, "/run/user/1000/gvfs/x", "fuse.gvfsd-fuse"),
        (CONTAINER, "/root/x", ""),
        (CONTAINER, "/data/x", ""),
        (CONTAINER, "/mnt/host/x", "9p"),
        (SUBSYSTEM, "/mnt/c/Users/ana", "9p"),
        (SUBSYSTEM, "/home/ana", ""),
        ("", "/home/ana", ""),
        ("nonsense\n1 2 3\n - \n", "/home/ana", ""),
    ],
)
def test_the_nearest_mount_says_whether_a_path_is_on_a_network_drive(table: str, path: str, type_: str) -> None:
    kind = type_of(PurePosixPath(path), table)
    assert (kind if is_network(kind) else "") == type_


def test_of_two_mounts_on_one_point_the_later_one_counts() -> None:
    below, above = "1 0 0:1 / /home rw - nfs4 box:/ rw\n", "2 1 0:2 / /home rw - ext4 /dev/sda rw\n"
    assert type_of(PurePosixPath("/home/x"), below + above) == "ext4"
    assert type_of(PurePosixPath("/home/x"), above + below) == "nfs4"


def test_a_program_that_serves_files_of_this_machine_is_no_network() -> None:
    kinds = ("overlay", "tmpfs", "btrfs", "fuse", "fuse.gocryptfs", "fuse.bindfs", "fuseblk", "virtiofs", "zfs")
    assert [kind for kind in kinds if is_network(kind)] == []


def test_the_mounts_of_this_process_can_be_read() -> None:
    assert any(str(mount.point) == "/" for mount in mounts(Path("/proc/self/mountinfo").read_text()))
    assert network_drive(Path("/proc/self")) == ""
