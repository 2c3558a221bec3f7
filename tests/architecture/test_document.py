"""`chatops/ARCHITECTURE.md` describes the code as it is."""

import ast
import re

from tests.architecture.diagram import DOCUMENT, drawn_into
from tests.support.cases import for_each

TEXT = DOCUMENT.read_text(encoding="utf-8")
HOPS = re.findall(r"\| `([\w/]+\.py)` \| `(\w+)` \|$", TEXT, re.MULTILINE)
FILES = re.findall(r"`(\w+/[\w/]+\.py)`", TEXT)
STARTS = re.findall(r"^\| `(\w+)` \|.*\| `([\w/]+\.py)` \|$", TEXT, re.MULTILINE)


def test_the_drawn_states_are_those_of_the_code() -> None:
    assert drawn_into(TEXT) == TEXT, "Renew them with: python -m tests.architecture.diagram"


@for_each(("file", "function"), HOPS)
def test_each_hop_of_a_message_is_a_function_of_its_file(file: str, function: str) -> None:
    tree = ast.parse((DOCUMENT.parent / file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    assert function in {node.name for node in functions}


def test_each_named_file_is_there() -> None:
    assert len(HOPS) > 20
    named = {*FILES} - {file for _, file in STARTS} | {f"{package}/{file}" for package, file in STARTS}
    assert [file for file in sorted(named) if not (DOCUMENT.parent / file).exists()] == []
    packages = {folder.name for folder in DOCUMENT.parent.iterdir() if (folder / "__init__.py").exists()}
    assert {package for package, _ in STARTS} == packages
