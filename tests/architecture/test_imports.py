"""What modules import: as it is written, and as fresh interpreters load it.

The contracts of import-linter see written imports between packages, and not those for types alone.
"""

import ast
import graphlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import for_each
from tests.support.command_line import REPOSITORY
from tests.support.waiting import PATIENCE

PURE = ["chatops.domain", "chatops.policy", "chatops.dialects", "chatops.engine"]
# What a rule, a right or a turn could only need in order to act by itself.
IMPURE = {"asyncio", "sqlite3", "subprocess", "socket", "textual", "rich", "openai", "httpx2", "pydantic", "yaml"}
SCREEN = {"textual", "rich"}

_EVERYTHING_BELOW = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""
_REPORT = "\nimport json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"


def _loaded(program: str, *arguments: str) -> set[str]:
    """Names of the modules loaded after `program`, in an interpreter that has done nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", program + _REPORT, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def _named_in(tree: ast.AST, known: set[str]) -> set[str]:
    """Modules that the import statements of a file name, wherever they stand."""
    named = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return named & known


def test_no_file_imports_itself_by_way_of_others_not_even_for_types() -> None:
    files = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): path
        for path in REPOSITORY.glob("chatops/**/*.py")
    }
    imports = {name: _named_in(ast.parse(path.read_text()), {*files}) for name, path in files.items()}
    assert sum(map(len, imports.values())) > 1000
    assert [*graphlib.TopologicalSorter(imports).static_order()]


@for_each("package", PURE)
def test_what_decides_loads_nothing_that_acts(package: str) -> None:
    assert _loaded(_EVERYTHING_BELOW, package) & IMPURE == set()


def test_calls_in_text_are_read_with_the_standard_library_alone() -> None:
    loaded = _loaded("from chatops.dialects import read_calls") - _loaded("")
    foreign = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert "chatops.dialects.reader" in foreign
    assert {name for name in foreign if not name.startswith("chatops.d")} == {"chatops", "chatops.safe_path"}


def test_arguments_are_read_without_the_readers_of_all_formats() -> None:
    loaded = _loaded("import chatops.tools.arguments")
    assert "chatops.dialects.json_reader" in loaded
    assert not any(name.startswith(("chatops.dialects.formats", "chatops.dialects.reader")) for name in loaded)


@pytest.mark.some(1)
@pytest.mark.parametrize("package", ["chatops.config", "chatops.models", "chatops.tools", "chatops.store"])
def test_nothing_below_the_runtime_loads_a_screen(package: str) -> None:
    assert _loaded(_EVERYTHING_BELOW, package) & SCREEN == set()


@pytest.mark.some(1)
@pytest.mark.parametrize("package", ["chatops.runtime", "chatops.headless"])
def test_a_run_without_a_screen_loads_none(package: str) -> None:
    assert _loaded(_EVERYTHING_BELOW, package) & SCREEN == set()


def test_the_version_is_told_without_the_weight_of_screen_or_client() -> None:
    program = "import sys; sys.argv[1:] = ['--version']\nfrom chatops.__main__ import main\n" + _CALL
    assert _loaded(program) & (SCREEN | {"openai", "pydantic", "sqlite3", "chatops.wiring"}) == set()


@pytest.mark.more
def test_a_headless_answer_of_the_demo_model_loads_no_screen(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a line\n")
    program = (
        "import sys; sys.argv[1:] = ['--workspace', sys.argv[1], '--model', 'demo', '-p', 'read note.txt']\n"
        "from chatops.__main__ import main\n" + _CALL
    )
    loaded = _loaded(program, str(tmp_path))
    assert loaded & SCREEN == set()
    assert "openai" in loaded, "the demo model goes through the same client as every other"


@pytest.mark.parametrize(
    "program", ["import chatops.tui.app", "import chatops.commands.chat, chatops.commands.approvals"]
)
def test_the_page_editors_and_a_database_load_what_only_they_need(program: str) -> None:
    loaded = _loaded(program)
    assert loaded & {"starlette", "uvicorn", "jinja2", "markupsafe", "segno", "http.server", "chatops.serve"} == set()
    assert loaded & {"acp", "chatops.acp"} == set()
    assert loaded & {"psycopg", "chatops.store.postgres"} == set()


def test_the_app_is_on_its_way_to_the_first_paint_without_client_and_dialects() -> None:
    loaded = _loaded("import chatops.tui.app, chatops.commands.chat")
    assert "textual" in loaded
    assert loaded & {"openai", "httpx2", "pydantic", "chatops.dialects"} == set()


@pytest.mark.some(1)
@pytest.mark.parametrize("servers", [{"time": {"command": ["mcp-server-time"]}}, {}])
def test_the_mcp_sdk_is_loaded_by_the_first_connection_and_not_before(
    servers: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"roles": {"a": {"tools": ["time__*"]}}, "mcp_servers": servers}))
    program = (
        "import sys; sys.argv[1:] = ['--registry', sys.argv[1], 'tools', 'list']\n"
        "from chatops.__main__ import main\n" + _CALL
    )
    loaded = _loaded(program, str(tmp_path / "r.json"))
    assert ("chatops.mcp.servers" in loaded) == bool(servers)
    assert loaded & {"mcp", "mcp_types", "httpx2", "chatops.mcp.connection"} == set()


_CALL = """
try:
    code = main()
except SystemExit as ended:
    code = ended.code
assert not code, code
"""
