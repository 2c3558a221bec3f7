"""Searching: bounded, killable, blind for what is protected."""

import os
from pathlib import Path

import pytest

from chatops.tools.search import file_search
from tests.tools.toolkit import context_for, done, inspected


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A small tree."""
    for name, text in {
        "a.py": "import os\nprint('needle')\n",
        "sub/b.txt": "a needle here\nNEEDLE\n",
        ".git/config": "needle",
        ".env": "needle=1",
        ".env.example": "needle=",
        ".ssh/id": "needle",
        "keys/server.pem": "needle",
        "keys/.docker/config.json": "needle",
        "lib/site-packages/ca.pem": "a certificate",
        "node_modules/x.js": "needle",
        "bin": "needle\0",
        "we[ird].txt": "a+b(c",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


async def found(ws: Path, **arguments: object) -> list[str]:
    return (await done(file_search, context_for(ws), arguments)).content.splitlines()


async def test_lines_come_with_path_and_number_and_protected_files_are_left_out(ws: Path) -> None:
    lines = await found(ws, pattern="need.e")
    assert lines[:3] == [".env.example:1: needle=", "a.py:2: print('needle')", "sub/b.txt:1: a needle here"]
    assert lines[3:] == ["[4 protected files or folders were not searched]"]


async def test_a_folder_a_file_and_case(ws: Path) -> None:
    assert await found(ws, pattern="(?i)needle", path="sub") == ["sub/b.txt:1: a needle here", "sub/b.txt:2: NEEDLE"]
    assert await found(ws, pattern="certificate") == [
        "lib/site-packages/ca.pem:1: a certificate",
        "[4 protected files or folders were not searched]",
    ]
    assert await found(ws, pattern="os", path="a.py") == ["a.py:1: import os"]
    assert await found(ws, pattern="nowhere", path="sub") == ["[no matches]"]


async def test_an_invalid_expression_is_searched_as_plain_text(ws: Path) -> None:
    lines = await found(ws, pattern="b(c")
    assert lines[0] == "we[ird].txt:1: a+b(c"
    assert "not a valid regular expression" in lines[-1]


async def test_links_are_not_followed_and_second_names_not_read(
    ws: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "s.txt").write_text("needle-outside", encoding="utf-8")
    (ws / "dlink").symlink_to(outside)
    (ws / "flink").symlink_to(outside / "s.txt")
    os.link(outside / "s.txt", ws / "hard.txt")
    os.mkfifo(ws / "pipe")
    lines = await found(ws, pattern="needle-outside")
    assert lines[0] == "[no matches]"
    assert any("1 file with several hard links" in line for line in lines)
    assert any("1 file with several" in line for line in await found(ws, pattern="needle-outside", path="hard.txt"))


async def test_protected_paths_of_the_app_are_not_searched(ws: Path) -> None:
    context = context_for(ws, protected=(ws / "sub",))
    content = (await done(file_search, context, {"pattern": "a needle"})).content
    assert content.startswith("[no matches]")


@pytest.mark.more
async def test_an_exponential_expression_is_stopped_and_keeps_what_it_found(ws: Path) -> None:
    (ws / "0.txt").write_text("aaaa\n", encoding="utf-8")
    (ws / "1.txt").write_text("a" * 60 + "!\n", encoding="utf-8")
    result = await done(file_search, context_for(ws, timeout_s=1.0), {"pattern": "^(a+)+$"})
    assert "0.txt:1" in result.content
    assert result.truncated
    assert "stopped after" in result.content


async def test_matches_are_bounded(ws: Path) -> None:
    (ws / "many.txt").write_text("A\n" * 100_000, encoding="utf-8")
    result = await done(file_search, context_for(ws, max_output_chars=2_000), {"pattern": "^A$"})
    assert len(result.content) <= 2_000
    assert "stopped at 200 matches" in result.content


async def test_a_pattern_is_never_an_option_of_anything(ws: Path) -> None:
    lines = await found(ws, pattern=f"--pre=touch {ws}/PWNED")
    assert lines[0] == "[no matches]"
    assert not (ws / "PWNED").exists()


@pytest.mark.parametrize(
    ("arguments", "field"), [({"pattern": ""}, "pattern"), ({"pattern": "x", "path": "no"}, "path")]
)
async def test_problems(ws: Path, arguments: dict[str, str], field: str) -> None:
    facts = await inspected(file_search, context_for(ws), arguments)
    assert [problem.path for problem in facts.problems] == [field]
