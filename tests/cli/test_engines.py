"""Engines of installed packages: the one of CONTRIBUTING.md, and ones that break the protocol."""

import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def block(name: str) -> str:
    """The code block after ``<!-- name -->`` in CONTRIBUTING.md."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n```\w+\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a package with this module, as an installer leaves it."""

    def done(source: str) -> None:
        declared = tomllib.loads(block("engine: entry point"))["project"]["entry-points"]["chatops.models"]
        site = tmp_path / "site"
        info = site / "chatops_parrot-0.3.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chatops-parrot\nVersion: 0.3\n")
        lines = [f"{name} = {place}\n" for name, place in declared.items()]
        (info / "entry_points.txt").write_text("[chatops.models]\n" + "".join(lines))
        (site / "chatops_parrot.py").write_text(source)
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, "chatops_parrot", raising=False)

    return done


def flags(chatops: CommandLine) -> list[str]:
    file = chatops.workspace.parent / "r.json"
    models = {"bird": {"type": "parrot", "model_name": "Polly"}}
    roles = {"assistant": {"primary": "bird", "tools": ["file_read"]}}
    file.write_text(json.dumps({"version": 3, "models": models, "roles": roles}))
    return ["--registry", str(file)]


def test_the_engine_of_the_recipe_answers_and_its_calls_pass_the_gate(
    chatops: CommandLine, install: Callable[[str], None]
) -> None:
    install(block("engine"))
    assert chatops(*flags(chatops), "-p", "hello").out == "Polly: hello\n"
    ran = chatops(*flags(chatops), "-p", "read note.txt", "--output-format", "json", "--max-rounds", "3")
    (made,) = ran.json["calls"]
    assert (made["tool"], made["outcome"]) == ("file_read", "success")
    assert "due on Friday" in ran.json["answer"]
    assert "engine parrot of package chatops-parrot 0.3" in chatops(*flags(chatops), "doctor").out


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("yield TextChunk", "raise ValueError('\\x1b[2J')  #"), "The engine parrot failed: ValueError"),
        (("yield Replied", "return  #"), "The engine parrot ended without a reply"),
        (("self._name = spec.model_name", "raise OSError('no port')"), "The engine parrot cannot be used: OSError"),
    ],
)
def test_an_engine_that_breaks_the_protocol_is_a_failed_reply(
    chatops: CommandLine, install: Callable[[str], None], change: tuple[str, str], said: str
) -> None:
    install(block("engine").replace(*change))
    ran = chatops(*flags(chatops), "-p", "hello")
    assert ran.code == 1
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.err


def test_a_type_that_no_package_has_is_an_error_of_the_registry(chatops: CommandLine) -> None:
    ran = chatops("registry", "check", flags(chatops)[1])
    assert ran.code == 2
    assert "an engine of a package" in ran.out + ran.err
    assert "line 1" in ran.out + ran.err
