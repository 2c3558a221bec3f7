import json
import subprocess
import sys
from pathlib import Path

from tests.support import document
from tests.support.cases import for_each
from tests.support.waiting import PATIENCE

ROOT = document.README.parent


@for_each("target", document.links())
def test_a_link_into_the_repository_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def test_the_registry_entries_are_accepted(tmp_path: Path) -> None:
    models = json.loads("\n".join(document.block("models")))
    registry = tmp_path / "model_registry.json"
    knowledge = json.loads("\n".join(document.block("knowledge")))
    budgets = json.loads("\n".join(document.block("budget")))
    registry.write_text(json.dumps({"version": 3, "models": models, "knowledge": knowledge, **budgets}))
    done = subprocess.run(
        [sys.executable, "-m", "chatops", "registry", "check", str(registry)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(models) == 8


def test_the_test_command_is_one_line_for_a_machine_with_only_python() -> None:
    (command,) = document.block("ci: test")
    assert command.startswith("python3 -m venv .venv && ")
    assert command.endswith("-m pytest -n auto")
