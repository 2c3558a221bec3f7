"""No text sends people to an installable of others by mistake: `chatops` on a public index is another project."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
OWN = PROJECT["name"]
OF_OTHERS = {"@modelcontextprotocol/server-filesystem", "mcp-server-time", "mcp"}
"""Named as examples, by the names that their authors publish them under."""
INSTALLS = re.compile(
    r"\b(?:(?:pip3?|uv pip|uv tool|pipx) (?:install|inject|upgrade|run)|pipx run|uv add|uvx|npx|npm (?:i|install))\s+"
    r"(?P<words>(?:[\w'\"@/.\[\],<>=~:$*{}+-]+[ ]?)+)"
)
OURS = re.compile(r"""(?<![\w./@-])chatops(?=\[|[=<>~]=)""")
TEXTS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs",
    "chatops",
    "personas",
    "model_registry.json",
    ".ci/run",
)
TABLES = {"chatops/shell/harmless.py", "chatops/shell/program_effects.py"}
"""Their lists of programs read like commands."""


def texts() -> Iterator[Path]:
    for name in TEXTS:
        place = REPOSITORY / name
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in found:
            if file.suffix in (".md", ".py", ".json", "") and file.is_file():
                if str(file.relative_to(REPOSITORY)) not in TABLES:
                    yield file


def installables(text: str) -> Iterator[str]:
    """The names that install commands in a text would look up on an index; placeholders are in capitals."""
    for found in INSTALLS.finditer(text):
        words = found["words"].split()
        for before, word in zip(["", *words], words, strict=False):
            name = word.strip("'\"`").rstrip(".,:)`'\"")
            if word.startswith("-") or before in ("-r", "-d", "--python"):
                continue
            if name and not name.isupper() and not re.match(r"[./${\[]|file:", word.strip("'\"`")):
                yield name
            if before != "--with":
                break


def test_the_distribution_has_a_name_of_its_own() -> None:
    assert OWN == "chatops-tui"
    assert set(PROJECT["scripts"]) == {"chatops", OWN}, "uvx starts the command that is called like the distribution"


def test_no_text_names_an_installable_but_ours() -> None:
    wrong: dict[str, set[str]] = {}
    for file in texts():
        text = file.read_text(encoding="utf-8", errors="replace")
        named = {re.split(r"[\[=<>~]|(?<=.)@", one)[0] for one in installables(text)} - {OWN, *OF_OTHERS}
        if named | set(OURS.findall(text)):
            wrong[str(file.relative_to(REPOSITORY))] = named | set(OURS.findall(text))
    assert not wrong


def test_the_readme_lists_every_extra() -> None:
    table = (REPOSITORY / "README.md").read_text().split("| extra |")[1].split("\n\n")[0]
    assert {line.split("`")[1] for line in table.splitlines()[2:]} == set(PROJECT["optional-dependencies"])


def test_the_search_finds_them() -> None:
    found = list(installables("pip install -q 'chatops[mcp]'; pipx install . ; uvx chatops; uv tool install thing"))
    assert found == ["chatops[mcp]", "chatops", "thing"]
