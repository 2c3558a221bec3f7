"""Level landlock: commands write in the workspace only and reach no network, without bubblewrap."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.sandbox.confinement import landlock_fault
from chatops.tools.shell import shell_tools
from tests.tools.running import marked, none_left
from tests.tools.toolkit import SECRET, context_for, done, inspected

pytestmark = pytest.mark.skipif(bool(landlock_fault()), reason=landlock_fault())
(SHELL,) = shell_tools(SandboxLevel.LANDLOCK)
mark = pytest.fixture(marked, name="mark")


async def ran(workspace: Path, command: str, **spec: object) -> str:
    context = context_for(workspace, sandbox=SandboxSpec(**spec))  # type: ignore[arg-type]
    result = await done(SHELL, context, {"command": command})
    return f"{result.outcome} {result.content}"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "key").write_text(SECRET)
    (tmp_path / "home" / ".gitconfig").write_text("[user]\n\tname = Ann\n\temail = ann@example.org\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


async def test_work_in_the_workspace_succeeds(workspace: Path) -> None:
    assert "success" in await ran(workspace, "echo a > a && python3 -V && ls -l && date | cat")
    assert "Ann" in await ran(workspace, "git init -q . && git add a && git commit -qm x && git log --format=%an")
    assert "success" in await ran(workspace, "t=$(mktemp) && echo x > $t && cat $t && echo $HOME && ls ~")
    facts = await inspected(SHELL, context_for(workspace), {"command": "ls"})
    assert facts.sandbox.startswith("Landlock: no network, workspace writable")
    assert not facts.network
    assert not facts.sandboxed


@pytest.fixture
def unix_socket(workspace: Path) -> Iterator[Path]:
    path = workspace / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield path


PYTHON = "python3 -c '{}'"


@pytest.mark.some(10)
@pytest.mark.parametrize(
    "command",
    [
        "cat ../home/key",
        "ln -s ../home/key link && cat link",
        "ln ../home/key hard && cat hard",
        "mv ../home/key . ",
        "echo x > ../home/key",
        "truncate -s 0 ../home/key",
        PYTHON.format('import os; os.truncate("../home/key", 0)'),
        "ls ../home",
        "cat /proc/$PPID/environ",
        "cat /proc/{app}/environ",
        "cat /proc/{app}/root/etc/hostname",
        "cat /proc/{app}/cwd/pyproject.toml",
        "ls -l /proc/{app}/fd",
        "python3 -c 'import os; os.pidfd_open({app}); import signal; os.kill({app}, signal.SIGCONT)'",
        "exec 3<>/dev/tcp/127.0.0.1/{port}",
        "exec 3<>/dev/udp/127.0.0.1/{port}",
        PYTHON.format('import socket; socket.socket(socket.AF_UNIX).connect("s")'),
        PYTHON.format("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
        PYTHON.format('import socket; socket.socket(socket.AF_UNIX).connect("\\0abstract")'),
        "unshare -Ur true",
        "unshare -n true",
        PYTHON.format("import ctypes, os; r = ctypes.CDLL(None).syscall(425, 8, None); os._exit(r < 0)"),
        PYTHON.format("import ctypes, os; r = ctypes.CDLL(None).ptrace(16, {app}, 0, 0); os._exit(r < 0)"),
        PYTHON.format("import resource; resource.prlimit({app}, resource.RLIMIT_CORE, (0, 0))"),
        "touch /etc/x /usr/x /tmp/x /var/tmp/x",
        "touch /dev/shm/x",
        "mount -t tmpfs none .",
    ],
)
async def test_the_way_out_is_closed(workspace: Path, unix_socket: Path, command: str) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        filled = command.replace("{app}", str(os.getpid())).replace("{port}", str(listening.getsockname()[1]))
        seen = await ran(workspace, filled)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert "failed" in seen
    assert SECRET not in seen
    assert (workspace.parent / "home" / "key").read_text() == SECRET


async def test_a_required_level_is_not_undercut(workspace: Path) -> None:
    for level, refused in ((SandboxLevel.LANDLOCK, False), (SandboxLevel.BASIC, True), (SandboxLevel.HARD, True)):
        facts = await inspected(SHELL, context_for(workspace, sandbox=SandboxSpec(require=level)), {"command": "ls"})
        assert bool(facts.refusal) is refused
    (none,) = shell_tools(SandboxLevel.NONE)
    demanding = context_for(workspace, sandbox=SandboxSpec(require=SandboxLevel.LANDLOCK))
    assert "level landlock" in (await inspected(none, demanding, {"command": "ls"})).refusal


async def test_limits_widen_by_name(workspace: Path) -> None:
    more = workspace.parent / "home" / "more"
    more.mkdir()
    (more / "key").write_text(SECRET)
    assert SECRET in await ran(workspace, "cat ../home/more/key", read=(str(more),))
    assert "failed" in await ran(workspace, "touch ../home/more/new", read=(str(more),))
    assert "success" in await ran(workspace, "touch ../home/more/new", write=(str(more),))


async def test_a_folder_that_holds_credentials_is_not_given_in_part(workspace: Path) -> None:
    context = context_for(workspace, sandbox=SandboxSpec(read=(str(workspace.parent / "home"),)))
    assert ".ssh cannot be hidden" in (await inspected(SHELL, context, {"command": "ls"})).refusal


async def test_nothing_is_left_running(workspace: Path, mark: str) -> None:
    await ran(workspace, f"setsid sleep {mark} & sleep 0.1")
    assert await none_left(mark)


def test_confinement_holds_for_an_ordinary_user(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("is an ordinary user already")
    (tmp_path / "key").write_text(SECRET)
    script = (
        "import os, sys; sys.path.insert(0, 'chatops/sandbox'); import landlock; os.setgid(65534); os.setuid(65534)\n"
        "landlock.confine(read=['/usr', '/lib', '/lib64'], write=[], network=False)\n"
        "os.listdir('/etc')"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], cwd=root, capture_output=True, text=True)
    assert "PermissionError" in done.stderr.splitlines()[-1]
