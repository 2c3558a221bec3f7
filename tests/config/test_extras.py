"""The command that adds an extra, pasted into a shell, for each way to install chatops; without a network."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = ("__init__.py", "safe_path.py", "domain/__init__.py", "config/__init__.py", "config/extras.py")
MAIN = "def main():\n    from chatops.config.extras import not_installed\n    print(not_installed('mcp'))\n"
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n"
EXTRAS = "Provides-Extra: mcp\nRequires-Dist: moonbeam<2,>=1; extra == 'mcp'\nProvides-Extra: pdf\n"
ENTRIES = "[console_scripts]\nchatops = chatops.shown:main\nchatops-tui = chatops.shown:main\n"


def wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Write a wheel by hand: to build one takes an index."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    files |= {f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    found = folder / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(found, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return found


class Machine:
    """A home folder, and wheels in the place of an index."""

    def __init__(self, place: Path) -> None:
        self.place = place
        # The quotes of a printed command have to hold for such a name too.
        wheels = place / "my wheels"
        wheels.mkdir()
        wheel(
            wheels,
            "moonbeam",
            {"moonbeam.py": "", "moonbeam-1.0.dist-info/METADATA": METADATA.format("moonbeam")},
        )
        files = {f"chatops/{part}": (REPOSITORY / "chatops" / part).read_text() for part in PARTS}
        info = "chatops_tui-1.0.dist-info"
        about = {f"{info}/METADATA": METADATA.format("chatops-tui") + EXTRAS, f"{info}/entry_points.txt": ENTRIES}
        self.wheel = wheel(wheels, "chatops-tui", {**files, "chatops/shown.py": MAIN, **about})
        links = wheels.as_uri()
        self.environment = {
            "HOME": str(place),
            "PATH": f"{place}/bin{os.pathsep}{os.environ['PATH']}",
            "PIPX_HOME": str(place / "pipx"),
            "PIPX_BIN_DIR": str(place / "bin"),
            "UV_TOOL_DIR": str(place / "tools"),
            "UV_TOOL_BIN_DIR": str(place / "bin"),
            "UV_CACHE_DIR": str(place / "cache"),
            "PIP_NO_INDEX": "1",
            "UV_OFFLINE": "1",
            "PIP_FIND_LINKS": links,
            "UV_FIND_LINKS": links,
            "UV_PYTHON": sys.executable,
        }

    def run(self, command: str) -> str:
        """Run a line in a shell; it has to succeed."""
        ran = subprocess.run(
            ["bash", "-c", command], env=self.environment, cwd=self.place, capture_output=True, text=True, check=False
        )
        assert not ran.returncode, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def pasted(hint: str) -> str:
    """The command that a hint names."""
    start, command, end = hint.split("`")
    assert (start, end) == ("the extra mcp is not installed; ", " installs it")
    return command


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.mark.more
def test_in_an_environment_with_pip(machine: Machine) -> None:
    machine.run(f"'{sys.executable}' -m venv plain && plain/bin/pip install -q '{machine.wheel}'")
    machine.run(pasted(machine.run("plain/bin/chatops")))
    machine.run("plain/bin/python -c 'import moonbeam'")


@pytest.mark.more
def test_in_an_environment_that_uv_made(machine: Machine) -> None:
    needs("uv")
    machine.run(f"uv venv -q plain && uv pip install -q --python plain/bin/python '{machine.wheel}'")
    machine.run(pasted(machine.run("plain/bin/chatops")))
    machine.run("plain/bin/python -c 'import moonbeam'")


@pytest.mark.more
def test_with_pipx(machine: Machine) -> None:
    needs("pipx", "uv")
    machine.run(f"pipx install --backend uv '{machine.wheel}'")
    command = pasted(machine.run("chatops"))
    assert command.startswith("pipx inject chatops-tui ")
    machine.run(command)
    machine.run("pipx/venvs/chatops-tui/bin/python -c 'import moonbeam'")


@pytest.mark.more
def test_with_uv_tool_and_what_was_there_before_stays(machine: Machine) -> None:
    needs("uv")
    place = machine.wheel.as_uri()
    machine.run(f"uv tool install -q --with 'moonbeam>=1' 'chatops-tui[pdf] @ {place}'")
    command = pasted(machine.run("chatops"))
    machine.run(command)
    receipt = machine.run("cat tools/chatops-tui/uv-receipt.toml")
    assert '"mcp", "pdf"' in receipt and '{ name = "moonbeam", specifier = ">=1" }' in receipt
    machine.run("tools/chatops-tui/bin/python -c 'import moonbeam'")
    # Of a wheel that has gone the tool cannot be made again.
    machine.wheel.unlink()
    command = pasted(machine.run("chatops"))
    assert command.startswith("uv pip install --python ")
    machine.run(command)


@pytest.mark.more
def test_with_uvx(machine: Machine) -> None:
    needs("uvx")
    command = pasted(machine.run(f"uvx --from '{machine.wheel}' chatops"))
    assert command.startswith("uvx --from ")
    machine.run(command.removesuffix(" chatops") + " python -c 'import moonbeam'")


def test_without_an_installation_the_checkout_is_named() -> None:
    ran = subprocess.run(
        [sys.executable, "-S", "-c", "from chatops.config.extras import install_command as c; print(c('web'))"],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.endswith(f" -e '{REPOSITORY}[web]'\n")
