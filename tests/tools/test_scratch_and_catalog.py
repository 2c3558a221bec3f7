"""The note pad, the bounds of output, and which tools exist with which rights."""

import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.config.prompt_files import Memories
from chatops.domain.ids import SessionId
from chatops.domain.tools import definition_of
from chatops.toolkit.output import Collector, cap, visible
from chatops.tools.catalog import Catalog, CatalogSettings, builtin_catalog
from chatops.tools.memory import scratch_tools
from tests.tools.toolkit import context_for, done, inspected


def everything(base: Path) -> CatalogSettings:
    memories = Memories(base / "memory", workspace=base)
    return CatalogSettings(scratch_dir=base, memories=memories, environ={"BRAVE_API_KEY": "k", "WOLFRAM_APP_ID": "k"})


def notes(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.txt"))


async def test_a_note_is_kept_for_its_session_and_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "scratch"
    write, read = scratch_tools(folder)
    context = context_for(tmp_path)
    assert (await done(read, context, "")).content == "[no note yet]"
    await done(write, context, {"text": "first"})
    await done(write, context, {"text": "héllo 日本語 🙂\r\n"})
    assert (await done(read, context, "")).content == "héllo 日本語 🙂\r\n"
    other = replace(context, session_id=SessionId("../../escape"))
    assert (await done(read, other, "")).content == "[no note yet]"
    await done(write, other, {"text": "x"})
    modes = [(path.parent, stat.S_IMODE(path.stat().st_mode)) for path in notes(tmp_path)]
    assert modes == [(folder, 0o600), (folder, 0o600)]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_note_is_bounded(tmp_path: Path) -> None:
    facts = await inspected(scratch_tools(tmp_path)[0], context_for(tmp_path), {"text": "x" * 1_000_000})
    assert [problem.path for problem in facts.problems] == ["text"]


@given(text=st.text(max_size=900), limit=st.integers(200, 600))
def test_capped_text_fits_and_keeps_head_and_tail(text: str, limit: int) -> None:
    capped = cap(text, limit=limit)
    assert (not text.strip()) == (not capped.text) and len(capped.text) <= limit
    assert capped.truncated == (len(text) > limit and bool(text.strip()))
    if capped.truncated:
        assert text.startswith(capped.text[:50])
        assert text.endswith(capped.text[-50:])
        assert f"of {len(text):,} characters" in capped.text


@given(pieces=st.lists(st.binary(max_size=700), max_size=20), limit=st.integers(200, 400))
def test_collected_output_is_bounded_and_counted(pieces: list[bytes], limit: int) -> None:
    collector = Collector(limit=limit)
    for piece in pieces:
        collector.feed(piece)
    assert collector.total == sum(map(len, pieces))
    assert len(collector.capped(limit=limit).text) <= max(limit, 60)


def test_invisible_characters_are_spelled_out() -> None:
    assert visible("a\x1b\u202e\u200b\n\u00a0b é🙂") == "a<U+001B><U+202E><U+200B>\\n<U+00A0>b é🙂"


RIGHTS = {
    "file_read": "viewer allow",
    "file_list": "viewer allow",
    "file_search": "viewer allow",
    "file_write": "operator ask",
    "file_edit": "operator ask",
    "shell_exec": "operator ask",
    "python_exec": "operator ask",
    "web_fetch": "user ask",
    "web_search": "user allow",
    "wolfram_alpha": "user allow",
    "scratch_write": "user allow",
    "scratch_read": "user allow",
    "memory_read": "user allow",
    "memory_write": "user ask",
    "delegate": "user allow",
}


def test_the_built_in_tools_and_their_rights(tmp_path: Path) -> None:
    catalog = builtin_catalog(everything(tmp_path))
    assert {spec.name: f"{spec.min_access.word} {spec.verdict.value}" for spec in catalog.specs} == RIGHTS
    reading = {spec.name for spec in catalog.specs if spec.capabilities.returns_content}
    assert reading == {"file_read", "file_list", "file_search"}
    assert {spec.name for spec in catalog.specs if spec.reconcilable} == {
        "file_write",
        "file_edit",
        "memory_write",
        "delegate",
    }
    assert not any(spec.read_only or spec.idempotent for spec in catalog.specs if spec.min_access.word == "operator")
    assert all(spec.description for spec in catalog.specs)
    assert list(catalog.absent) == ["skill_read", "knowledge_search"]


def test_a_search_without_a_backend_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    catalog = builtin_catalog(CatalogSettings(scratch_dir=tmp_path))
    assert catalog.get("web_search") is None
    assert "no search service" in catalog.absent["web_search"]


def test_two_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    tools = scratch_tools(tmp_path)
    with pytest.raises(ValueError, match="scratch_write"):
        Catalog([*tools, tools[0]])


def test_the_catalog_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path; from chatops.tools.catalog import *; "
        "builtin_catalog(CatalogSettings(scratch_dir=Path('.'))); "
        "print([name for name in ('openai', 'httpx2', 'textual', 'rich', 'jsonschema', 'ddgs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_tool_with_another_description_or_source_has_another_definition(tmp_path: Path) -> None:
    catalog = builtin_catalog(everything(tmp_path))
    for spec in catalog.specs:
        stored = definition_of(spec)
        assert definition_of(replace(spec, description="Runs.")) != stored
        assert definition_of(replace(spec, source="elsewhere")) != stored
