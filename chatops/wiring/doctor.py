"""Checks of ``chatops doctor`` and ``/doctor`` for this application."""

import asyncio
import os
from dataclasses import replace

from chatops.config.extras import not_installed
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural
from chatops.headless.doctor import (
    Check,
    Grade,
    calling_check,
    lines,
    model_checks,
    platform_checks,
    registry_checks,
    sandbox_checks,
    store_checks,
    terminal_checks,
)
from chatops.models.discover import list_models
from chatops.models.keys import read_key
from chatops.models.trial import try_calling
from chatops.policy.registry import KeySource, ModelSpec
from chatops.policy.registry_checks import crowded_roles
from chatops.runtime.settings import SessionSettings
from chatops.sandbox.execution import setup_fault
from chatops.toolkit.base import ToolContext
from chatops.wiring.app import App


async def look(app: App, *, model: str | None = None, connect: bool = False) -> list[Check]:
    """Run all checks. With `model`, check only that model, and ask it to call a tool. `connect`: to MCP servers.

    Raises ConfigError if there is no such model.
    """
    models = app.rights.models()
    needed = _needed(app)
    if model is not None:
        chosen = app.rights.model(model)
        models, needed = () if chosen is None else (chosen,), {model: Grade.FAIL}
        if chosen is None:
            names = ", ".join(spec.name for spec in app.rights.models())
            raise ConfigError(f"There is no model {model!r}.", advice=f"Known: {names}.")
    models_found = await model_checks(models, needed=needed, discover=list_models, require=app.limits.sandbox().require)
    if model is not None:
        models_found = await _with_call(app, models[0], models_found)
    return [
        *platform_checks(app.paths),
        *registry_checks(app.loaded, level=app.rights.level),
        *await asyncio.to_thread(_concerns, app),
        *await asyncio.to_thread(_workflows, app),
        *await asyncio.to_thread(_documents, app),
        *models_found,
        *await _servers(app, connect=connect),
        *await _sandbox(app),
        *terminal_checks(os.environ),
        *await asyncio.to_thread(store_checks, app.paths.store),
    ]


async def _servers(app: App, *, connect: bool) -> list[Check]:
    """Check the MCP servers. Without `connect` their state is that of the running app."""
    if connect:
        await app.servers.connect_for(SessionSettings(app.options.role or app.loaded.registry.default_role))
    checks = []
    for status in app.servers.statuses():
        name = f"MCP server {status.name}"
        if status.is_off:
            advice = f"chatops mcp check {status.name} starts it."
            text = "not started: no role in force has a tool of it"
            checks.append(Check(name=name, grade=Grade.OK, text=text, advice=advice))
        elif status.failure:
            checks.append(Check(name=name, grade=Grade.WARN, text=status.reason, advice=f"It is: {status.origin}"))
        else:
            text = f"{status.state.value}, {plural(len(status.tools), 'tool')}, sandbox: {status.sandbox or 'none'}"
            checks.append(Check(name=name, grade=Grade.OK, text=text))
        checks += [Check(name=name, grade=Grade.WARN, text=warning) for warning in status.warnings]
    return checks


async def _sandbox(app: App) -> list[Check]:
    limits = app.limits.sandbox()
    context = ToolContext(
        workspace=app.workspace,
        session_id=SessionId("doctor"),
        call_id=CallId("doctor.1.1"),
        protected=app.limits.protected_paths(),
        sandbox=limits,
    )
    fault = await setup_fault(context)
    return await asyncio.to_thread(sandbox_checks, require=limits.require, fault=fault)


async def _with_call(app: App, spec: ModelSpec, found: list[Check]) -> list[Check]:
    """Return the checks `found` of a model, and how it calls tools.

    A call says more than the list of models: if it fails, only its reason is left, and if the model answers, a fault
    of the list is a warning.
    """
    if not spec.has_server:
        return found
    try:
        if spec.key != KeySource():
            await read_key(spec.key)
        check = calling_check(spec, await try_calling(spec, remembered=app.settings))
    except ConfigError as error:
        check = Check(name=f"model {spec.name}", grade=Grade.FAIL, text=str(error), advice=error.advice)
    if check.grade is Grade.FAIL:
        return [*(one for one in found if one.grade is Grade.OK), check]
    return [*(replace(one, grade=Grade.WARN) if one.grade is Grade.FAIL else one for one in found), check]


def doctor_text(app: App) -> str:
    """Return the checks as text. Blocks for as long as servers take to answer: call it in a thread."""
    return lines(asyncio.run(look(app)))


def _concerns(app: App) -> list[Check]:
    try:
        found = [Check(name="registry", grade=Grade.WARN, text=concern.text) for concern in app.concerns()]
        crowded = crowded_roles(app.loaded.registries, specs=app.catalog.specs)
        found += [Check(name="tools", grade=Grade.OK, text=sentence) for sentence in crowded]
        lacks = app.rights.withheld(app.loaded.registry.default_role)
        found += [Check(name="tools", grade=Grade.OK, text=sentence) for sentence in lacks]
        if "web_search" in app.catalog.absent:
            keys = "Set CHATOPS_SEARXNG_URL, BRAVE_API_KEY or TAVILY_API_KEY, or use the search that needs no key"
            advice = f"{keys}: {not_installed('web')}."
            found.append(Check(name="web search", grade=Grade.OK, text="none", advice=advice))
        return found
    except ChatopsError:
        # Without a store there is no default model to doubt. The store has a check of its own.
        return []


def _workflows(app: App) -> list[Check]:
    """Return checks for workflows that cannot be used; none if all can."""
    known = app.workflows()
    warnings = [Check(name="workflows", grade=Grade.WARN, text=notice) for notice in known.notices]
    return warnings + [
        Check(name=f"workflow {one.name}", grade=Grade.WARN, text=str(one.error), advice=one.error.advice)
        for one in known.unusable
    ]


def _documents(app: App) -> list[Check]:
    """Return a check for each source of knowledge; none if there are no sources."""
    found = []
    for source in app.catalog.settings().knowledge:
        missing = [path for path in source.paths if not os.path.isdir(os.path.expanduser(path))]
        text = f"{', '.join(missing)} is not a folder" if missing else ", ".join(source.paths)
        reason = app.catalog.absent.get(source.name, "")
        found.append(
            Check(
                name=f"knowledge {source.name}",
                grade=Grade.WARN if missing or reason else Grade.OK,
                text=sanitize(reason or text, newlines=False),
            )
        )
    return found


def _needed(app: App) -> dict[str, Grade]:
    """Return how bad it is if a model cannot be used: the default role's first one is required, others are not."""
    needed: dict[str, Grade] = {}
    for role in app.rights.roles():
        try:
            models = app.grant_for(role).models
        except ChatopsError:
            continue
        for target in models:
            needed.setdefault(target.name, Grade.WARN)
        if role == app.loaded.registry.default_role:
            needed[models[0].name] = Grade.FAIL
    return needed
