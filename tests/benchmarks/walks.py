"""Count the files that one walk through the program enters: ``python -m tests.benchmarks.walks``.

A file counts if a function of it runs during the walk; importing it does not count. The fewer files, the fewer a reader
has to open to follow the walk. `--files` lists them.

Four walks:

- a typed message, through the model, the dialog and the decision, to the answer after the call;
- ``chatops -p`` with one reading tool, from start to end;
- a role's entry in the registry, to the verdict on a call;
- a Hermes call in a model's text, to the parsed call.
"""

import argparse
import inspect
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

PACKAGE = str(Path(__file__).parents[2] / "chatops") + os.sep
HERMES = '<tool_call>\n{"name": "run_shell", "arguments": {"command": "ls"}}\n</tool_call>'


class Walk:
    """Collects the package's files in which a function is entered, in every thread started after `watch`."""

    def __init__(self) -> None:
        self.counting = False
        self.files: set[str] = set()

    def watch(self) -> None:
        """Start to watch this thread and those to come."""
        threading.setprofile(self._entered)
        sys.setprofile(self._entered)

    def _entered(self, frame: FrameType, event: str, _: object) -> None:
        if self.counting and event == "call" and _is_function(frame.f_code):
            name = frame.f_code.co_filename
            if name.startswith(PACKAGE):
                self.files.add(name.removeprefix(PACKAGE))


def _is_function(code: CodeType) -> bool:
    # The bodies of modules and classes run while a file is imported.
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


@contextmanager
def walking() -> Generator[Walk]:
    """Count within this process and thread."""
    walk = Walk()
    walk.watch()
    walk.counting = True
    try:
        yield walk
    finally:
        walk.counting = False
        sys.setprofile(None)
        threading.setprofile(None)


def probe(report: Path, arguments: list[str], *, at_once: bool) -> int:
    """Run the program and write the files entered to `report`: from SIGUSR1 to SIGUSR2, or from start to end."""
    walk = Walk()

    def start(*_: object) -> None:
        walk.counting = True

    def stop(*_: object) -> None:
        walk.counting = False
        report.write_text("\n".join(sorted(walk.files)))

    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, stop)
    walk.counting = at_once
    walk.watch()
    sys.argv = ["chatops", *arguments]
    from chatops.__main__ import main

    try:
        return main()
    finally:
        if at_once:
            stop()


def hermes() -> set[str]:
    """Return the files from a Hermes call in text to the parsed call."""
    from chatops.dialects import read_calls
    from chatops.domain.canonical import JsonValue

    tools: dict[str, dict[str, JsonValue]] = {
        "run_shell": {"type": "object", "properties": {"command": {"type": "string"}}}
    }
    read_calls(HERMES, tools)
    with walking() as walk:
        reading = read_calls(HERMES, tools)
    assert [call.name for call in reading.calls] == ["run_shell"]
    return walk.files


def role() -> set[str]:
    """Return the files from the registry's text to the verdict on a call of its role."""
    import json

    from chatops.config.registry_read import read_registry
    from chatops.domain.model import ModelTarget
    from chatops.domain.tools import CallFacts, ToolSpec
    from chatops.policy.resolve import User, resolve_grant

    registry = {
        "default_role": "coder",
        "roles": {"coder": {"system_append": "Say what you would run.", "tools": ["shell_exec", "file_read"]}},
        "users": {"*": {"access_level": "operator"}},
    }

    def walk_role() -> None:
        found = read_registry(json.dumps(registry).encode(), source="registry.json")
        grant = resolve_grant(
            registries=(None, found),
            role="coder",
            user=User(uid=1, login="ana"),
            access_cap=None,
            specs=tuple(ToolSpec(name=name, description="", schema="{}") for name in ("shell_exec", "file_read")),
            models=(ModelTarget(name="m"),),
            prompt="",
        )
        grant.judge("shell_exec", CallFacts(arguments='{"command":"ls"}', command="ls", cwd="/w"))

    walk_role()
    with walking() as walk:
        walk_role()
    return walk.files


def message(folder: Path) -> set[str]:
    """Return the files from a typed message to the answer after an approved call."""
    from tests.e2e.installation import ChatTerminal, Installation
    from tests.faults.entry_points import Provider, patient_registry
    from tests.support.fake_openai import call, calls, says

    installation, report = Installation.with_note(folder / "workspace", folder), folder / "walk"
    with Provider() as provider:
        installation.use(patient_registry(provider.server.url))
        provider.script(calls(call("shell_exec", command="echo hello")), says("It is done."))
        command = [sys.executable, "-m", "tests.benchmarks.walks", "--probe", str(report), *installation.flags]
        env = {"PYTHONPATH": str(Path(PACKAGE).parent), "CHATOPS_HOME": str(folder)}
        with ChatTerminal(command, cwd=installation.workspace, env=env, cols=110, rows=36) as terminal:
            terminal.ready("coder")
            os.kill(terminal.pid, signal.SIGUSR1)
            terminal.say("go")
            terminal.decide("a")
            terminal.wait_for("It is done.")
            os.kill(terminal.pid, signal.SIGUSR2)
            terminal.wait_until(lambda _: report.exists(), what="the files")
    return set(report.read_text().split())


def headless(folder: Path) -> set[str]:
    """Return the files of ``chatops -p`` with one reading tool."""
    import subprocess

    from tests.e2e.installation import Installation
    from tests.faults.entry_points import Provider, patient_registry
    from tests.support.fake_openai import call, calls, says

    installation, report = Installation.with_note(folder / "workspace", folder), folder / "walk"
    with Provider() as provider:
        installation.use(patient_registry(provider.server.url))
        provider.script(calls(call("file_read", path="note.txt")), says("It is done."))
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.walks",
            "--probe",
            str(report),
            "--at-once",
            *installation.flags,
        ]
        env = os.environ | {"PYTHONPATH": str(Path(PACKAGE).parent), "CHATOPS_HOME": str(folder)}
        done = subprocess.run(
            [*command, "-p", "go"], cwd=installation.workspace, env=env, capture_output=True, text=True, check=True
        )
        assert "It is done." in done.stdout, done.stderr
    return set(report.read_text().split())


def main() -> int:
    """Print the number of files of each walk."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", action="store_true", help="list the files")
    wanted = parser.parse_args()
    walks: dict[str, Callable[[Path], set[str]]] = {
        "message to resumed answer": message,
        "-p with a tool": headless,
        "role to verdict": lambda _: role(),
        "Hermes call": lambda _: hermes(),
    }
    for name, walk in walks.items():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["CHATOPS_HOME"] = folder
            files = walk(Path(folder))
        print(f"{name}: {len(files)} files")
        if wanted.files:
            print("".join(f"  {file}\n" for file in sorted(files)), end="")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--probe"]:
        file, rest = Path(sys.argv[2]), sys.argv[3:]
        at_once = rest[:1] == ["--at-once"]
        sys.exit(probe(file, rest[at_once:], at_once=at_once))
    sys.exit(main())
