"""Each promise of SECURITY.md names a test that exists and asserts something."""

import ast
import re

from tests.support.document import DOCS

ROOT = DOCS.parent
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_promise_names_a_test_that_is_there() -> None:
    text = (ROOT / ".github" / "SECURITY.md").read_text()
    table = text.partition("## What is promised")[2].partition("\n## ")[0]
    promises = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(promises) > 20
    for promise in promises:
        (named,) = _TEST.findall(promise)
        file, name = named
        tree = ast.parse((ROOT / file).read_text())
        defined = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        tests = {node.name: node for node in defined}
        assert name in tests, f"{promise}\nnames a test that {file} lacks"
        test = tests[name]
        assert any(isinstance(node, ast.Assert) for node in ast.walk(test)) or "raises(" in ast.unparse(test), promise
