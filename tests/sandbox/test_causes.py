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
