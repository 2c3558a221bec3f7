"""The role `builder` of the packaged workflow `components`. It exists in that workflow only."""

from dataclasses import replace

from chatops.policy.registry import Registries, RoleSpec
from chatops.policy.resolve import role_names

_BUILDER = RoleSpec(
    name="builder",
    tools=(
        "component_search",
        "component_details",
        "validate_minimal",
        "validate_full",
        "component_deploy",
        "validate_deployed",
    ),
    system_append=(
        "You are in building mode: you make flows from the components of a catalogue. "
        "Take names and properties from the catalogue and make none up."
    ),
)
_WORKFLOW_ROLES = {"components": _BUILDER}
"""Packaged workflow to the role that its steps name and that comes with it."""
WORKFLOW_TOOLS = frozenset(tool for role in _WORKFLOW_ROLES.values() for tool in role.tools or ())
"""Tools that exist only in the packaged workflow they come with."""


def with_workflow_role(registries: Registries, workflow: str) -> Registries:
    """Return `registries` with the role that comes with a packaged workflow, for use in that workflow only.

    The role gets the models of the role assistant and is left out if that does not exist. A role of the same name in a
    registry takes precedence.
    """
    site, own = registries
    role = _WORKFLOW_ROLES.get(workflow)
    assistant = own.role("assistant") or (site.role("assistant") if site is not None else None)
    if role is None or assistant is None or role.name in role_names(registries):
        return registries
    return site, replace(own, roles=(*own.roles, replace(role, models=assistant.models)))
