"""Checks before anything runs: warnings about a registry file, and if a workflow can run for this user here."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from chatops.config.own_tools import OwnToolsTrust
from chatops.config.paths import Paths
from chatops.config.prompt_files import Memories, load_personas, load_skills
from chatops.config.registry import with_built_in_models
from chatops.config.trust import TrustedWorkspace
from chatops.config.workflow_files import find_workflows
from chatops.config.workflow_read import Checked, check
from chatops.config.workspace_files import WORKFLOWS
from chatops.domain.errors import ConfigError
from chatops.models.cli_programs import command_of
from chatops.policy.grant import Grant
from chatops.policy.registry import ModelType, Registries, Registry
from chatops.policy.registry_checks import model_problem, registry_warnings, withheld_tools
from chatops.policy.resolve import resolve_grant, role_names
from chatops.policy.servers import server_of
from chatops.policy.workflow import Definition, StepSpec, WorkflowSpec
from chatops.policy.workflow_checks import Known
from chatops.runtime.settings import SessionSettings, StepRights
from chatops.wiring.app import App
from chatops.wiring.configuration import Configuration
from chatops.wiring.rights import current_user
from chatops.wiring.servers import McpServers
from chatops.wiring.toolbox import Toolbox

CANNOT_RUN = "This workflow cannot run as it is."


def warnings_about(registry: Registry, *, file: Path, paths: Paths, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return warnings about `registry`, which was read from `file`, one sentence each.

    They cover names that mean nothing here (tools, personas, models of a missing type), tools that a role lists and
    this user would not get, and problems of its workflows and those beside it.
    """
    own = with_built_in_models(registry, env=environ)
    registries: Registries = (None, own)
    trust = OwnToolsTrust(paths.tools, folder=paths.trust)
    now = Configuration(
        registries=registries,
        trusted=TrustedWorkspace(),
        skills=load_skills(paths.skills),
        personas=load_personas(paths),
    )
    catalog = Toolbox(
        lambda: now,
        paths=paths,
        environ=environ,
        memories=Memories(paths.memory, workspace=Path()),
        trust=trust,
        servers=_servers(now, data=paths.data),
    )
    personas = [persona.name for persona in now.personas.found]
    warnings = registry_warnings(registries, specs=catalog.specs, absent=catalog.unavailable, personas=personas)
    return (
        *(warning.text for warning in warnings),
        *catalog.notices,
        *_warn_unused_models(registry),
        *_warn_programs(registry),
        *_warn_withheld_tools(registries, catalog=catalog),
        *_warn_workflows(own, folder=file.parent / WORKFLOWS, catalog=catalog),
    )


def _servers(now: Configuration, *, data: Path) -> McpServers:
    """Return the servers with the tools that they listed when they were connected last. None is started."""
    return McpServers(
        lambda: now,
        workspace=Path(),
        data=data,
        offers=lambda settings, further: (),
        permits=lambda start: False,
        attended=False,
        on_change=lambda: None,
        notify=lambda text: None,
    )


def unusable_models(registry: Registry) -> dict[str, str]:
    """Return each model of the file that cannot answer, and why."""
    return {model.name: why for model in registry.models if (why := model_problem(model))}


def _warn_unused_models(registry: Registry) -> Iterator[str]:
    used = {name for role in registry.roles for name in (*role.models, role.responder)}
    for name, why in unusable_models(registry).items():
        if name not in used:
            yield f"Model {name} {why}. No role uses it."


def _warn_programs(registry: Registry) -> Iterator[str]:
    """Yield why the commands of models are refused."""
    for model in registry.models:
        if model.type is ModelType.CLI and not model_problem(model):
            try:
                command_of(model)
            except ConfigError as error:
                yield error.full


def _warn_withheld_tools(registries: Registries, *, catalog: Toolbox) -> Iterator[str]:
    _, own = registries
    for role in own.roles:
        grant = resolve_grant(
            registries=registries,
            role=role.name,
            user=current_user(),
            access_cap=None,
            specs=catalog.specs,
            models=(),
            prompt="",
        )
        yield from withheld_tools(
            role, grant=grant, registries=registries, specs=catalog.specs, absent=catalog.unavailable
        )


def _warn_workflows(registry: Registry, *, folder: Path, catalog: Toolbox) -> Iterator[str]:
    workflows = find_workflows(site=None, own=registry, site_place=None, folder=folder)
    yield from workflows.notices
    for unusable in workflows.unusable:
        yield f"{unusable.error} {CANNOT_RUN}"
    known = Known(
        tools=catalog.specs,
        roles=role_names((None, registry)),
        models=tuple(model.name for model in registry.models),
        absent=catalog.absent,
    )
    for definition in workflows.found:
        checked = check(definition, known=known)
        yield from (f"{error} {CANNOT_RUN}" for error in checked.errors)
        yield from checked.warnings


async def check_to_run(app: App, definition: Definition, *, role: str) -> Checked:
    """Check a workflow as `check_here` does, once the MCP servers of steps that list their tools are connected.

    Which tools a server has is known only then. Raises ConfigError if there is no such role.
    """
    for step in definition.spec.steps:
        if any(map(server_of, step.tools or ())):
            settings = at_step(definition.spec, step, role=role)
            await app.servers.settled(app.servers.start_for(settings))
    return await asyncio.to_thread(check_here, app, definition, role=role)


def at_step(spec: WorkflowSpec, step: StepSpec, *, role: str) -> SessionSettings:
    """Return the settings of a step before there is a run. `role` is that of steps without one."""
    return SessionSettings(step.role or role, model_pin=step.model, step=StepRights(workflow=spec, step=step))


def check_here(app: App, definition: Definition, *, role: str) -> Checked:
    """Check a workflow here. `role` is used for steps that name none.

    Raises ConfigError if there is no such role.
    """
    app.rights.grant(SessionSettings(role))
    known = Known(
        tools=app.catalog.specs,
        roles=app.rights.roles(),
        models=tuple(model.name for model in app.rights.models()),
        absent=app.catalog.absent,
        grants=_step_grants(app, definition.spec, role=role),
    )
    return check(definition, known=known)


def _step_grants(app: App, spec: WorkflowSpec, *, role: str) -> tuple[Grant | None, ...]:
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
