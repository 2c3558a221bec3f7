"""The attack corpus against the tools themselves, as if every policy had allowed every call."""

from pathlib import Path

import pytest

from chatops.tools.catalog import Catalog, CatalogSettings, builtin_catalog
from tests.tools.toolkit import CANARY, World, attempt, cases, context_for, inspected

PATHS = [case for case in cases("path_escape") if case["id"] not in {"PATH-041", "PATH-042"}]
ARGUMENTS = [case for case in cases("argument_abuse") if not case.get("turns")]
INSIDE = {"PATH-031", "PATH-056"}
"""Writes that stay in the workspace, so that only a policy asks about them."""
RESOURCES = [
    case for case in cases("resource_abuse") if case["id"] not in {"RSRC-012", "RSRC-013", "RSRC-014", "RSRC-036"}
]


def catalog(world: World) -> Catalog:
    return builtin_catalog(CatalogSettings(scratch_dir=world.base / "scratch"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose home is the user's."""
    made = World(base=tmp_path.resolve())
    monkeypatch.setenv("HOME", str(made.base / "home"))
    return made


@pytest.mark.parametrize("case", PATHS, ids=lambda case: case["id"])
async def test_no_path_leads_out(world: World, case: dict[str, object]) -> None:
    world.set_up(case["setup"])  # type: ignore[arg-type]
    tool = catalog(world).get(str(case["tool"]))
    assert tool is not None
    outcome = await attempt(tool, context_for(world.ws), world.arguments(case))
    assert CANARY not in outcome.text
    assert world.unharmed()
    assert outcome.ran == (case["expected"] == "runs" or case["id"] in INSIDE), outcome


@pytest.mark.parametrize("case_id", ["PATH-041", "PATH-042"])
async def test_a_swap_while_the_dialog_is_open_harms_nothing(world: World, case_id: str) -> None:
    [case] = [case for case in cases("path_escape") if case["id"] == case_id]
    world.set_up(case["setup"])
    tool = catalog(world).get(case["tool"])
    assert tool is not None
    context = context_for(world.ws)
    facts = await inspected(tool, context, world.arguments(case))
    if case_id == "PATH-041":
        (world.ws / "a.txt").unlink()
        (world.ws / "a.txt").symlink_to(world.out / "canary.txt")
    else:
        (world.ws / "sub").rename(world.ws / "sub2")
        (world.ws / "sub").symlink_to(world.out)
    with pytest.raises(Exception, match=r"changed since|cannot be opened"):
        await tool.run(facts, context)
    assert world.unharmed()
    assert (await inspected(tool, context, world.arguments(case))) != facts


@pytest.mark.parametrize("case", ARGUMENTS, ids=lambda case: case["id"])
async def test_forged_arguments_get_the_expected_outcome(world: World, case: dict[str, object]) -> None:
    world.set_up(case["setup"])  # type: ignore[arg-type]
    tool = catalog(world).get(str(case["tool"]))
    assert tool is not None
    facts = await inspected(tool, context_for(world.ws), world.arguments(case))
    wrong = bool(facts.problems or facts.refusal)
    allowed = {str(case["expected"]), *map(str, case.get("also_ok", []))}  # type: ignore[call-overload]
    # What had to be repaired asks whatever the policy is.
    became = "error to model" if wrong else "asks" if facts.repairs else "runs"
    assert became in allowed, facts


@pytest.mark.some(2)
@pytest.mark.parametrize("case", RESOURCES, ids=lambda case: case["id"])
async def test_no_call_takes_more_than_its_share(world: World, case: dict[str, object]) -> None:
    setup = dict(case["setup"])  # type: ignore[call-overload]
    if case["id"] == "RSRC-034":
        setup["many_files"] = {"many": 700}
    world.set_up(setup)
    tool = catalog(world).get(str(case["tool"]))
    assert tool is not None
    outcome = await attempt(tool, context_for(world.ws, timeout_s=0.6), world.arguments(case))
    assert outcome.ran
    assert len(outcome.text) <= 16_000
    assert world.unharmed()
