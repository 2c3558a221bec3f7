"""Warnings of a run about one registry file, found without opening anything."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from chatops.config.paths import Paths
from chatops.config.person import current_person
from chatops.config.persona import load_personas
from chatops.config.registry import with_built_in_models
from chatops.config.workflow_files import FOLDER, find_workflows
from chatops.demo.role import BROUGHT_TOOLS, with_brought_role
from chatops.demo.tools import component_tools
from chatops.policy.concerns import cannot_answer, registry_warnings, withheld_tools
from chatops.policy.registry import Registry, SandboxSpec
from chatops.policy.resolve import Registries, resolve_grant, role_names
from chatops.policy.workflow_checks import Known
from chatops.tools.catalog import Catalog, builtin_catalog
from chatops.wiring.toolbox import catalog_settings

CANNOT_RUN = "This workflow cannot run as it is."


def concerns_of(registry: Registry, *, file: Path, paths: Paths, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return warnings about `registry`, which was read from `file`, one sentence each.

    They cover names that mean nothing here (tools, personas, models of a missing type), tools that a role lists and
    this user would not get, and problems of its workflows and those beside it.
    """
    catalog = builtin_catalog(
        catalog_settings(SandboxSpec(), data=paths.data, environ=environ), brought=component_tools()
    )
    personas = [persona.name for persona in load_personas(paths).found]
    registries: Registries = (None, with_built_in_models(registry, env=environ))
    return (
        *registry_warnings(
            registries, specs=catalog.specs, absent=(*catalog.absent, *BROUGHT_TOOLS), personas=personas
        ),
        *_of_unused_models(registry),
        *_withheld(registries, catalog=catalog),
        *_of_workflows(registries[1], folder=file.parent / FOLDER, catalog=catalog),
    )


def unusable_models(registry: Registry) -> dict[str, str]:
    """Return each model of the file that cannot answer, and why."""
    return {model.name: why for model in registry.models if (why := cannot_answer(model))}


def _of_unused_models(registry: Registry) -> Iterator[str]:
    used = {name for role in registry.roles for name in (*role.models, role.responder)}
    for name, why in unusable_models(registry).items():
        if name not in used:
            yield f"Model {name} {why}. No role uses it."


def _withheld(registries: Registries, *, catalog: Catalog) -> Iterator[str]:
    for role in registries[1].roles:
        grant = resolve_grant(
            registries=registries,
            role=role.name,
            person=current_person(),
            access_cap=None,
            specs=catalog.specs,
            models=(),
            prompt="",
        )
        yield from withheld_tools(role, grant=grant, registries=registries, specs=catalog.specs, absent=catalog.absent)


def _of_workflows(registry: Registry, *, folder: Path, catalog: Catalog) -> Iterator[str]:
    workflows = find_workflows(site=None, own=registry, site_place=None, folder=folder)
    yield from workflows.notices
    for unusable in workflows.unusable:
        yield f"{unusable.error} {CANNOT_RUN}"
    if not workflows.found:
        return
    from chatops.config.workflow_problems import check  # takes time to import, and few registries have workflows

    for definition in workflows.found:
        known = Known(
            tools=catalog.specs_for(definition.name),
            roles=role_names(with_brought_role((None, registry), definition.name)),
            models=tuple(model.name for model in registry.models),
            absent=catalog.absent,
        )
        checked = check(definition, known=known)
        yield from (f"{error} {CANNOT_RUN}" for error in checked.errors)
        yield from checked.warnings
