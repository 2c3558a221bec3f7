"""Workflows as the user may run them here, checked against tools, roles, models and rights before anything runs."""

from dataclasses import replace

from chatops.config.workflow_problems import Checked, check
from chatops.domain.errors import ConfigError
from chatops.policy.grant import Grant
from chatops.policy.workflow import WorkflowSpec
from chatops.policy.workflow_checks import Known
from chatops.policy.workflow_definition import Definition
from chatops.runtime.settings import SessionSettings, StepRights
from chatops.wiring.app import App


def check_here(app: App, definition: Definition, *, role: str) -> Checked:
    """Check a workflow here. `role` is used for steps that name none.

    Raises ConfigError if there is no such role.
    """
    app.rights.grant(SessionSettings(role))
    known = Known(
        tools=app.catalog.specs_for(definition.name),
        roles=app.rights.roles(definition.name),
        models=tuple(model.name for model in app.rights.models()),
        absent=app.catalog.absent,
        grants=_grants(app, definition.spec, role=role),
    )
    return check(definition, known=known)


def _grants(app: App, spec: WorkflowSpec, *, role: str) -> tuple[Grant | None, ...]:
    """Return what the role of each step permits there, without the step's own list of tools."""
    unlisted = replace(spec, steps=tuple(replace(step, tools=None) for step in spec.steps))
    grants: list[Grant | None] = []
    for step in unlisted.steps:
        try:
            place = StepRights(workflow=unlisted, step=step)
            grants.append(app.rights.grant(SessionSettings(step.role or role, step=place)))
        except ConfigError:
            grants.append(None)
    return tuple(grants)
