"""The stored form of runs: golden files load for ever, and what is damaged or newer says so."""

import json
from pathlib import Path

import pytest

from chatops.domain.errors import UnreadableError
from chatops.store import codec
from tests.store import runkit as run
from tests.store import storekit as kit
from tests.support.cases import for_each

GOLDEN = sorted((Path(__file__).parents[1] / "data" / "runs").glob("v*.json"))


def test_there_is_a_golden_file_for_every_version_of_runs() -> None:
    assert [file.stem for file in GOLDEN] == [f"v{version}" for version in range(1, codec.RUN_VERSION + 1)]


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_golden_runs_of_every_phase_load_for_ever(file: Path) -> None:
    golden = json.loads(file.read_text(encoding="utf-8"))
    for name, payload in golden["runs"].items():
        state = codec.decode_run(json.dumps(payload), version=golden["version"])
        assert state.phase.kind == payload["phase"]["kind"], name
        assert state.spec.name == payload["spec"]["name"]


def test_the_newest_golden_file_of_runs_holds_what_is_written_today() -> None:
    """If this fails, stored runs have changed. What to do is as for the states of turns, in `test_codec`."""
    runs = {name: json.loads(codec.encode_run(state)) for name, state in run.golden_runs().items()}
    written = {"version": codec.RUN_VERSION, "runs": runs}
    assert written == kit.golden(GOLDEN[-1], written)


@for_each("name", run.golden_runs())
def test_every_golden_run_survives(name: str) -> None:
    state = run.golden_runs()[name]
    assert codec.decode_run(codec.encode_run(state), version=codec.RUN_VERSION) == state


@pytest.mark.parametrize("version", [0, -1, codec.RUN_VERSION + 1])
def test_unknown_versions_of_runs_are_unreadable(version: int) -> None:
    with pytest.raises(UnreadableError, match="run version"):
        codec.decode_run(codec.encode_run(run.begun().state), version=version)


@for_each("text", ["", "x", "[]", "{}", '{"phase": {"kind": "martian"}}', None, 5], ids=lambda text: repr(text))
def test_a_damaged_run_is_unreadable_with_the_next_step(text: object) -> None:
    with pytest.raises(UnreadableError) as caught:
        codec.decode_run(text, version=1)
    assert caught.value.advice


def test_a_run_at_a_step_that_it_does_not_have_is_unreadable() -> None:
    payload = json.loads(codec.encode_run(run.begun().state))
    payload["phase"]["step"] = 2
    with pytest.raises(UnreadableError, match="step"):
        codec.decode_run(json.dumps(payload), version=1)
