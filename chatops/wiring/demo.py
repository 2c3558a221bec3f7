"""The demo model: its client, and the workflows that it can play."""

from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.policy.registry import ModelSpec
from chatops.policy.workflow import WorkflowSpec
from chatops.runtime.settings import SessionSettings, StepRights
from chatops.wiring.rights import RegistryRights

if TYPE_CHECKING:
    from chatops.models.chat import OpenAIChat


def demo_model(spec: ModelSpec) -> "OpenAIChat":
    """Return the client of the demo model."""
    from chatops.demo.model import demo_chat  # slow to import

    return demo_chat(spec)


def check_demo(rights: RegistryRights, workflow: WorkflowSpec, query: str, *, role: str, model: str) -> None:
    """Raise ChatopsError for a workflow that the demo cannot play: each attempt would fail in the same way."""
    played = []
    for step in workflow.steps:
        place = StepRights(workflow=workflow, step=step)
        grant = rights.grant(SessionSettings(step.role or role, model_pin=step.model or model, step=place))
        if rights.is_demo(grant.models[0].name):
            played.append(step.name)
    if not played:
        return
    from chatops.demo.workflows import cannot_play  # needed only if the demo answers

    if reason := cannot_play(workflow.name, played, query):
        raise ChatopsError(f"(demo) {reason}", advice="Nothing was run.")
