"""Stored form of a workflow run, with a version of its own: see `codec`.

A change that older runs do not survive gets a new number in RUN_VERSIONS and an upgrade here. The golden files in
``tests/data/runs`` must load for ever.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from chatops.domain.errors import UnreadableError
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.state import WorkflowState
from chatops.store.form import DAMAGE_ADVICE, dumps, parsed, validated

RUN_VERSIONS: dict[int, str] = {
    1: "The run with its workflow, request, phase, outputs, attempts and side effects.",
    2: "That no model could be asked for a step.",
    3: "Input tokens that came from the server's prompt cache, and when each validation passes.",
}
"""Contents of each version of a stored WorkflowState."""

RUN_VERSION = max(RUN_VERSIONS)

if sorted(RUN_VERSIONS) != list(range(1, RUN_VERSION + 1)) or not all(RUN_VERSIONS.values()):
    raise AssertionError("run versions are numbered from 1 without gaps, each with a summary")

_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda payload: payload,
    2: lambda payload: payload,
}
"""Upgrades from one version to the next, over the parsed JSON."""

if set(_UPGRADES) != set(range(1, RUN_VERSION)):
    raise AssertionError("every older run version has an upgrade")


def encode_run(state: WorkflowState) -> str:
    """Return `state` encoded at RUN_VERSION."""
    return dumps(_runs().dump_python(state, mode="json"))


def decode_run(text: object, *, version: int) -> WorkflowState:
    """Decode what `encode_run` of this or an older version wrote. Raises UnreadableError."""
    if version not in RUN_VERSIONS:
        raise UnreadableError(
            f"This run was stored by a newer chatops (run version {version}, this one reads up to {RUN_VERSION}).",
            advice="Update chatops to go on with it; its conversation can be read.",
        )
    payload = parsed(text, what="run")
    for older in range(version, RUN_VERSION):
        payload = _UPGRADES[older](payload)
    state = validated(_runs(), payload, what="run")
    if not 0 <= _step_of(state) < len(state.spec.steps):
        raise UnreadableError("A stored run is damaged: it is at a step that it does not have.", advice=DAMAGE_ADVICE)
    return state


def encode_word(word: ReviewStep | CancelRun) -> str:
    """Return a posted review or cancellation encoded."""
    return dumps(_words().dump_python(word, mode="json"))


def decode_word(text: object) -> ReviewStep | CancelRun:
    """Decode a posted review or cancellation. Raises UnreadableError: a damaged one is void."""
    return validated(_words(), parsed(text, what="word to a run"), what="word to a run")


def _step_of(state: WorkflowState) -> int:
    return 0 if state.phase.kind == "run_finished" else state.phase.step


# Built on first use, as in `codec`.


@cache
def _runs() -> TypeAdapter[WorkflowState]:
    return TypeAdapter(WorkflowState)


@cache
def _words() -> TypeAdapter[ReviewStep | CancelRun]:
    return TypeAdapter(Annotated[ReviewStep | CancelRun, Field(discriminator="kind")])
