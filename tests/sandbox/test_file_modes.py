"""Sandboxed commands change nothing about files outside, set no set-id bit, and as root read what others may read."""

import os
import platform
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.sandbox.confinement import landlock_fault
from chatops.tools.shell import shell_tools
from tests.tools.running import needs_sandbox
from tests.tools.toolkit import context_for, done

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of calls are those of x86-64")
needs_landlock = pytest.mark.skipif(bool(landlock_fault()), reason=landlock_fault())
LEVELS = [
    pytest.param(SandboxLevel.HARD, marks=needs_sandbox),
    pytest.param(SandboxLevel.LANDLOCK, marks=needs_landlock),
]

HEAD = """
import ctypes, fcntl, os, sys
libc = ctypes.CDLL(None)
def call(*arguments):
    libc.syscall(*(ctypes.c_char_p(one) if isinstance(one, bytes) else ctypes.c_long(one) for one in arguments))
"""
CHANGES = (
    HEAD
    + """
for name in sys.argv[1:]:
    path = os.fsencode(name)
    try:
        os.symlink(name, "link")
    except FileExistsError:
        pass
    try:
        file = os.open(name, os.O_RDONLY)
    except OSError:
        file = os.open(name, os.O_PATH)
    folder = os.open(os.path.dirname(name), os.O_PATH)
    base = os.path.basename(path)
    ours = b"/proc/self/fd/%d" % file
    times = bytes(32)
    number = int.from_bytes(b"user", "little")
    for one in (path, os.path.relpath(name).encode(), b"link", ours, b"/dev/fd/%d" % file):
        call(90, one, 0o666)
        call(268, -100, one, 0o666)
        call(452, -100, one, 0o666, 0)
        call(452, -100, one, 0o666, 0x100)
        for chown in (92, 94):
            call(chown, one, os.getuid(), os.getgid())
        call(260, -100, one, os.getuid(), os.getgid(), 0)
        call(132, one, times)
        call(235, one, times)
        call(261, -100, one, times)
        call(280, -100, one, times, 0)
        call(280, -100, one, 0, 0)
        for attribute in (188, 189):
            call(attribute, one, b"user.x", b"y", 1, 0)
        call(197, one, b"user.kept")
    call(268, folder, base, 0o666)
    call(260, folder, base, os.getuid(), os.getgid(), 0)
    call(260, file, b"", os.getuid(), os.getgid(), 0x1000)
    call(452, file, b"", 0o666, 0x1000)
    call(280, folder, base, times, 0)
    call(280, file, 0, times, 0)
    call(280, file, b"", times, 0x1000)
    call(91, file, 0o666)
    call(93, file, os.getuid(), os.getgid())
    call(190, file, b"user.x", b"y", 1, 0)
    call(199, file, b"user.kept")
    for request in (0x40086602, 0x40087602):
        try:
            fcntl.ioctl(file, request, (0x40).to_bytes(8, "little"))
        except OSError:
            pass
    os.unlink("link")
print("done")
"""
)
SET_IDS = (
    HEAD
    + """
for bits in (0o4000, 0o2000, 0o6000):
    mode = bits | 0o755
    name = lambda text: f"{text}-{bits:o}".encode()
    for text in ("chmod", "fchmod", "fchmodat", "fchmodat2"):
        open(name(text), "w").close()
    call(90, name("chmod"), mode)
    call(91, os.open(name("fchmod"), os.O_RDONLY), mode)
    call(268, -100, name("fchmodat"), mode)
    call(452, -100, name("fchmodat2"), mode, 0)
    call(2, name("open"), os.O_CREAT | os.O_WRONLY, mode)
    call(257, -100, name("openat"), os.O_CREAT | os.O_WRONLY, mode)
    call(85, name("creat"), mode)
    call(133, name("mknod"), 0o100000 | mode, 0)
    call(259, -100, name("mknodat"), 0o100000 | mode, 0)
    how = b"".join(one.to_bytes(8, "little") for one in (os.O_CREAT | os.O_WRONLY, mode, 0))
    call(437, -100, name("openat2"), how, 24)
    file = libc.syscall(257, -100, b".", os.O_TMPFILE | os.O_RDWR, mode)
    if file >= 0:
        call(265, -100, b"/proc/self/fd/%d" % file, -100, name("linkat"), 0x400)
    os.umask(0)
    call(0x40000000 + 90, name("chmod"), mode)
call(425, 8, bytes(120))
print("done")
"""
)


async def ran(workspace: Path, level: SandboxLevel, command: str, **spec: object) -> str:
    (shell,) = shell_tools(level)
    context = context_for(workspace, sandbox=SandboxSpec(**spec))  # type: ignore[arg-type]
    result = await done(shell, context, {"command": command})
    return f"{result.outcome} {result.content}"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


@pytest.mark.parametrize("level", LEVELS)
async def test_nothing_about_files_outside_changes(workspace: Path, level: SandboxLevel) -> None:
    outside = workspace.parent / "outside"
    (outside / "shown").mkdir(parents=True)
    files = [outside / "key", outside / "shown" / "file"]
    for file in files:
        file.write_text("x")
        file.chmod(0o600)
        try:
            os.setxattr(file, "user.kept", b"1")
        except OSError:
            pass  # This file system has no attributes.
    (workspace / "try.py").write_text(CHANGES)
    paths = (*files, outside, outside / "shown")

    def known() -> list[tuple[object, ...]]:
        found = [path.stat() for path in paths]
        return [(one.st_mode, one.st_uid, one.st_gid, one.st_mtime_ns, one.st_ctime_ns) for one in found]

    before = known()
    shown = " ".join(map(str, paths if level is SandboxLevel.LANDLOCK else paths[1::2]))
    assert "done" in await ran(workspace, level, f"python3 try.py {shown}", read=(str(outside / "shown"),))
    assert known() == before


@needs_landlock
@pytest.mark.more
async def test_a_path_that_is_swapped_meanwhile_leads_nowhere_outside(workspace: Path) -> None:
    key = workspace.parent / "key"
    key.write_text("x")
    key.chmod(0o600)
    (workspace / "ours").write_text("x")
    (workspace / "swap.py").write_text(
        "import os, threading\n"
        "def swap():\n"
        "    for turn in range(3000):\n"
        f"        os.symlink(['{key}', 'ours'][turn % 2], 'new'); os.rename('new', 'link')\n"
        "os.symlink('ours', 'link'); swapping = threading.Thread(target=swap); swapping.start()\n"
        "done = 0\n"
        "while swapping.is_alive():\n"
        "    try: os.chmod('link', 0o666); done += 1\n"
        "    except PermissionError: pass\n"
        "print('changed', done > 0)\n"
    )
    before = key.stat()
    assert "changed True" in await ran(workspace, SandboxLevel.LANDLOCK, "python3 swap.py")
    assert key.stat() == before


@needs_landlock
async def test_what_commands_may_write_they_may_change(workspace: Path) -> None:
    more = workspace.parent / "more"
    more.mkdir()
    command = (
        f"touch a {more}/b && chmod 640 a {more}/b && touch -d '2001-02-03 04:05:06.5 UTC' a && cp -p a $TMPDIR/c"
        " && mv $TMPDIR/c c && ln -s a l && touch -h -d @5 l && chown -h $(id -u):$(id -g) l && tar cf t.tar a"
        ' && rm a && tar xpf t.tar && python3 -c \'import os; os.chmod(os.open("c", 0), 0o600); os.utime("c", (1, 2))\''
        " && stat -c '%a %Y' a c && stat -c %Y l"
    )
    seen = await ran(workspace, SandboxLevel.LANDLOCK, command, write=(str(more),))
    assert seen.split()[1:] == ["640", "981173106", "600", "2", "5"], seen
    assert (more / "b").stat().st_mode & 0o777 == 0o640


@needs_landlock
async def test_a_time_that_is_no_time_is_refused_and_the_next_change_succeeds(workspace: Path) -> None:
    (workspace / "try.py").write_text(
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "open('a', 'w').close()\n"
        "libc.syscall(235, b'a', (ctypes.c_long * 4)(1, 2**62, 1, 2**62))\n"
        "print(os.strerror(ctypes.get_errno()))\n"
        "os.chmod('a', 0o640)\n"
    )
    seen = await ran(workspace, SandboxLevel.LANDLOCK, "python3 try.py")
    assert "success" in seen and "Invalid argument" in seen, seen


@pytest.mark.parametrize("level", LEVELS)
async def test_no_file_gets_a_set_id_bit(workspace: Path, level: SandboxLevel) -> None:
    (workspace / "try.py").write_text(SET_IDS)
    assert "done" in await ran(workspace, level, "python3 try.py")
    refused = "cp /bin/true s && chmod 4755 s; install -m 2755 /bin/true i; mkdir -m 2755 d; chmod g+s ."
    assert "not permitted" in await ran(workspace, level, refused)
    found = {name: oct(os.stat(workspace / name).st_mode) for name in (".", *os.listdir(workspace))}
    assert {name: mode for name, mode in found.items() if int(mode, 8) & 0o6000} == {}
    # The rest of the script has done its work.
    assert {"fchmodat2-4000", "s"} <= set(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="is about commands of root")
@pytest.mark.parametrize("level", LEVELS)
async def test_a_command_of_root_reads_of_etc_what_others_may_read(workspace: Path, level: SandboxLevel) -> None:
    held = _held("/etc")
    seen = await ran(workspace, level, "cat /etc/passwd; find /etc/* -type f ! -perm -o=r -exec cat {} + 2>&1")
    assert "root:x:0:0:" in seen
    assert not [line for line in held if line in seen]
    assert "shadow" in str(await ran(workspace, level, "ls -l /etc/shadow"))


def _held(folder: str) -> list[str]:
    """Return the longer lines of the files that others cannot read."""
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    closed = [path for path in paths if not path.is_symlink() and not path.stat().st_mode & 0o004]
    lines = [line for path in closed for line in path.read_text("utf-8", errors="replace").splitlines()]
    return [line for line in lines if len(line) > 12]
