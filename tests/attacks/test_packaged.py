"""The corpus judged under the packaged registry: what the corpus does not let run asks or is denied in every role."""

import json
from pathlib import Path

import pytest

from chatops.config.paths import packaged_registry
from chatops.config.registry_read import read_registry
from chatops.domain.ids import CallId
from chatops.domain.sandbox import NARROWEST, SandboxLevel
from chatops.domain.tools import ToolCall, Verdict
from chatops.policy.resolve import User, resolve_grant, role_names
from chatops.toolkit.base import inspect_call
from chatops.tools.catalog import CatalogSettings, builtin_catalog
from tests.attacks.judge import RUNS
from tests.attacks.stage import all_cases
from tests.tools.toolkit import World, context_for


async def test_no_role_of_the_packaged_registry_allows_what_must_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = packaged_registry()
    registries = (None, read_registry(file.read_bytes(), source=str(file)))
    catalog = builtin_catalog(CatalogSettings(scratch_dir=tmp_path / "scratch", best=SandboxLevel.HARD))
    grants = [
        resolve_grant(
            registries=registries,
            role=role,
            user=User(uid=1, login="ana"),
            access_cap=None,
            specs=catalog.specs,
            models=(),
            prompt="",
        )
        for role in role_names(registries)
    ]
    judged: set[str] = set()
    allowed: dict[str, tuple[str, ...]] = {}
    for case in all_cases():
        tool = catalog.get(case["tool"] or "")
        if tool is None:
            # A mere text, or the name of no tool. Such a name is on offer in no role, so its calls are denied.
            assert not any(grant.tool(case["tool"] or "") for grant in grants), case["id"]
            continue
        (base := tmp_path / case["id"]).mkdir()
        world = World(base=base)
        monkeypatch.setenv("HOME", str(world.base / "home"))
        if case["setup"].get("git_repo"):
            for name in ("objects", "refs"):
                (world.ws / ".git" / name).mkdir(parents=True)
            (world.ws / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        world.set_up({key: value for key, value in case["setup"].items() if key != "many_files"})
        given = world.filled(case.get("arguments_raw", case["arguments"]))
        call = ToolCall(
            id=CallId("s.1.1.1"), name=case["tool"], arguments=given if isinstance(given, str) else json.dumps(given)
        )
        context = context_for(world.ws, sandbox=grants[0].sandbox or NARROWEST)
        facts = await inspect_call(tool, call, context)
        judged.add(case["id"])
        # A call with problems is an error to the model and never runs.
        roles = [grant.role for grant in grants if grant.judge(call.name, facts).verdict is Verdict.ALLOW]
        if roles and not facts.problems and RUNS not in (case["expected"], *case.get("also_ok", ())):
            allowed[case["id"]] = tuple(roles)
    assert not allowed
    assert len(judged) > 300
