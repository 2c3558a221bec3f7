"""Which sentences of programs mean that they lacked a file which the sandbox does not show."""

from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.sandbox import lacks
from chatops.sandbox.confinement import Confinement
from chatops.sandbox.process import Command
from tests.tools.toolkit import context_for


@pytest.mark.parametrize(("contained", "advice"), [("", "; + in the dialog"), ("t.c0", "; /contain off ends")])
def test_in_a_contained_turn_no_dialog_is_announced(contained: str, advice: str, tmp_path: Path) -> None:
    context = replace(context_for(tmp_path), contained=contained)
    command = Command(argv=("x",), cwd=tmp_path, environment={}, call="")
    text, needs = lacks.likely_cause(
        "curl: (6) Could not resolve host: x.y", code=6, argv=("x",), command=command, confined=Confinement(),
        context=context,
    )  # fmt: skip
    assert text.startswith(f"the sandbox has no network{advice}") and needs == SandboxSpec(network=True)


@pytest.mark.parametrize(
    "output",
    [
        "bash: line 1: x: command not found",
        "cat: x: No such file or directory",
        "bash: ./x: cannot execute: required file not found",
        "ModuleNotFoundError: No module named 'x'",
        "bash: ./x: /opt/x: bad interpreter: No such device",
    ],
)
def test_each_way_to_miss_a_file_names_the_hidden_folder(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lacks, "hidden_folders_of", lambda *_, **__: ("/opt/x",))
    command = Command(argv=("x",), cwd=tmp_path, environment={}, call="")

    def cause(text: str) -> tuple[str, SandboxSpec]:
        return lacks.likely_cause(
            text, code=1, argv=("x",), command=command, confined=Confinement(), context=context_for(tmp_path)
        )

    text, needs = cause(output)
    assert "does not show /opt/x" in text and needs == SandboxSpec(read=("/opt/x",))
    assert cause("x: failed") == ("", NARROWEST)
    monkeypatch.undo()
    assert cause("ModuleNotFoundError: No module named 'x'") == ("", NARROWEST)


UNREACHED = "fatal: unable to access 'https://x.example/a.git/': "


@pytest.mark.parametrize(
    ("output", "cause", "needs"),
    [
        ("fatal: The current branch main has no upstream branch.", "", NARROWEST),
        ("error: failed to push some refs to 'x.git'\nhint: Updates were rejected", "", NARROWEST),
        ("git@x.example: Permission denied (publickey).", "", NARROWEST),
        (f"{UNREACHED}The requested URL returned error: 403", "", NARROWEST),
        ("fatal: could not read Username for 'https://x.example': No such device or address", "", NARROWEST),
        (f"{UNREACHED}Could not resolve host: x.example", "the sandbox has no network", SandboxSpec(network=True)),
        (f"{UNREACHED}Couldn't connect to server", "the sandbox has no network", SandboxSpec(network=True)),
        ("ssh: Could not resolve hostname x.example", "the sandbox has no network", SandboxSpec(network=True)),
        ("remote: Unable to create '/srv/a.git/x': Read-only file system", "writing only in the workspace", NARROWEST),
        ("cannot lock '.git/refs/x': Read-only file system", ".git is read-only", SandboxSpec(git="commit")),
        ("could not lock .git/config: Read-only file system", ".git is read-only", SandboxSpec(git="writable")),
    ],
)
def test_a_push_fails_for_the_sandbox_or_for_another_reason(
    output: str, cause: str, needs: SandboxSpec, tmp_path: Path
) -> None:
    masks = ("--ro-bind", "/dev/null", str(tmp_path / "key"))
    command = Command(argv=("bwrap", *masks), cwd=tmp_path, environment={}, call="")
    text, wanted = lacks.likely_cause(
        output, code=128, argv=("git", "push"), command=command, confined=Confinement(), context=context_for(tmp_path)
    )
    assert (cause in text if cause else not text) and wanted == needs


def test_a_host_that_the_sandbox_permits_is_not_the_sandboxs_fault() -> None:
    spec = SandboxSpec(hosts=("x.example",))
    assert "permits it" in lacks.unreached_cause(("x.example:443",), code=1, spec=spec)[0]
    text, needs = lacks.unreached_cause(("x.example:443", "y.example:443"), code=1, spec=spec)
    assert text == "not reachable from the sandbox: y.example:443" and needs == SandboxSpec(hosts=("y.example:443",))
