"""Reachability of a model: one answer for `models list` and `doctor`, graded by who needs the model."""

from collections.abc import Sequence

import pytest

from chatops.domain.errors import ChatopsError
from chatops.policy.registry import ModelSpec, ModelType
from chatops.wiring.doctor import Grade, model_checks
from chatops.wiring.model_reach import Reachability, probe_model

OPEN = ModelSpec(name="local", api_url="http://127.0.0.1:9/v1", model_name="m")
KEYED = ModelSpec(name="team", api_url="http://127.0.0.1:9/v1", model_name="m", api_key_env="MY_TEST_KEY")


async def has_it(spec: ModelSpec) -> Sequence[str]:
    return ["m", "other"]


async def has_others(spec: ModelSpec) -> Sequence[str]:
    return ["other"]


async def refuses(spec: ModelSpec) -> Sequence[str]:
    raise ChatopsError("Nothing listens there.", advice="Start it.")


async def test_each_way_to_stand_has_words() -> None:
    assert (await probe_model(OPEN, discover=has_it)).usable
    unlisted = await probe_model(OPEN, discover=has_others)
    assert (unlisted.reachability, unlisted.available) == (Reachability.UNLISTED, ("other",))
    silent = await probe_model(OPEN, discover=refuses)
    assert (silent.reachability, silent.text, silent.advice) == (
        Reachability.SILENT,
        "Nothing listens there.",
        "Start it.",
    )
    assert (
        await probe_model(ModelSpec(name="c", type=ModelType.CLI), discover=has_it)
    ).reachability is Reachability.ABSENT
    assert (await probe_model(ModelSpec(name="demo", type=ModelType.DEMO), discover=refuses)).usable


async def test_without_its_key_a_server_is_not_even_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def notes(spec: ModelSpec) -> Sequence[str]:
        asked.append(spec.name)
        return ["m"]

    assert (await probe_model(KEYED, discover=notes)).reachability is Reachability.KEYLESS
    assert asked == []
    monkeypatch.setenv("MY_TEST_KEY", "sk-very-secret-0123456789")
    found = await probe_model(KEYED, discover=notes)
    assert (found.usable, asked) == (True, ["team"])
    assert "very-secret" not in found.text + found.advice


@pytest.mark.parametrize("bad", [Grade.WARN, Grade.FAIL])
async def test_a_model_that_is_needed_and_cannot_be_used_is_graded_so(bad: Grade) -> None:
    checks = await model_checks([OPEN], needed={"local": bad}, discover=refuses)
    assert [(one.grade, one.text) for one in checks] == [
        (Grade.OK, "no key configured"),
        (bad, "Nothing listens there."),
    ]


async def test_no_failure_is_graded_ok_and_models_nobody_needs_are_only_named() -> None:
    checks = await model_checks([OPEN, KEYED], needed={}, discover=refuses)
    (line,) = checks
    assert (line.name, line.grade) == ("other models", Grade.OK)
    assert line.text == "local, team: no role uses them; chatops models list shows their state."
    (line,) = await model_checks([OPEN], needed={}, discover=refuses)
    assert line.text == "local: no role uses it; chatops models list shows its state."
    assert "Nothing listens" not in line.text


async def test_a_model_nobody_needs_that_works_is_told_as_usual() -> None:
    checks = await model_checks([OPEN], needed={}, discover=has_it)
    assert {one.name for one in checks} == {"model local"}
    assert all(one.grade is Grade.OK for one in checks)
