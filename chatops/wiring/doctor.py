"""Checks of ``chatops doctor`` and ``/doctor``.

Each check is one line with ok, warn or fail, and an advice.

Keys are only reported as set or not set. Nothing is changed, and nothing is sent except the request for a list of
models. Only if asked about one model, chatops asks that model to call a harmless tool and remembers how it does so.
"""

import asyncio
import locale
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from chatops.config.extras import not_installed
from chatops.config.paths import Paths
from chatops.config.registry import Loaded
from chatops.domain.errors import ChatopsError, ConfigError, UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, SessionId
from chatops.domain.model import FailureKind
from chatops.domain.sandbox import SandboxLevel
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import AccessLevel
from chatops.domain.wording import plural
from chatops.models.discover import list_models
from chatops.models.keys import read_key
from chatops.models.memory import CallStyle
from chatops.models.tool_delivery import NATIVE
from chatops.models.trial import Trial, TrialOutcome, try_calling
from chatops.policy.registry import KeySource, ModelSpec
from chatops.policy.registry_checks import crowded_roles
from chatops.runtime.settings import SessionSettings
from chatops.sandbox.confinement import landlock_fault, probe
from chatops.sandbox.execution import setup_fault
from chatops.store.editor_answers import editors
from chatops.store.health import Finding, findings, write_obstacle
from chatops.toolkit.base import ToolContext
from chatops.wiring.app import App
from chatops.wiring.model_reach import Discover, ModelReach, Reachability, probe_model
from chatops.wiring.rows import unknown_name
from chatops.wiring.stored import database_address

MIN_TERMINAL_SIZE = (60, 15)
"""Columns and lines below which the approval dialog becomes hard to read."""


class Grade(StrEnum):
    """Severity of a check's result."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@frozen_dataclass
class Check:
    """Result of one check."""

    name: str
    grade: Grade
    text: str
    advice: str = ""


def has_failed(checks: Sequence[Check]) -> bool:
    """Return True if something has to be fixed before chatops can be relied on."""
    return any(check.grade is Grade.FAIL for check in checks)


def report_lines(checks: Sequence[Check]) -> str:
    """Format checks as aligned lines: grade, name, finding, advice."""
    width = max((len(check.name) for check in checks), default=0)
    return "\n".join(f"{check.grade.value:<4}  {check.name:<{width}}  {_finding_text(check)}" for check in checks)


def _finding_text(check: Check) -> str:
    if not check.advice:
        return check.text
    # A text that a server wrote may end with a full stop, with another sign, or without any.
    end = "" if check.text.endswith((".", "?", "!", "'")) else "."
    return f"{check.text}{end} {check.advice}"


def registry_checks(loaded: Loaded, *, level: AccessLevel) -> list[Check]:
    """Check the registry in force and the site registry."""
    found = []
    if loaded.broken is not None:
        text, advice = str(loaded.broken), loaded.broken.advice
        found.append(Check(name="registry", grade=Grade.FAIL, text=text, advice=advice))
    else:
        found.append(Check(name="registry", grade=Grade.OK, text=str(loaded.path)))
    found += [Check(name="registry", grade=Grade.WARN, text=warning.text) for warning in loaded.warnings]
    site = "none" if loaded.site is None else loaded.site.source
    found.append(Check(name="site registry", grade=Grade.OK, text=site))
    found.append(Check(name="access level", grade=Grade.OK, text=level.word))
    return found


async def model_checks(
    models: Sequence[ModelSpec],
    *,
    needed: Mapping[str, Grade],
    discover: Discover,
    require: SandboxLevel = SandboxLevel.NONE,
) -> list[Check]:
    """Check the key and server of each model; all servers are asked at the same time.

    `needed` maps a model to the grade if it cannot be used. Unusable models that no role needs are only listed in one
    line.
    """
    found = await asyncio.gather(*(probe_model(spec, discover=discover, require=require) for spec in models))
    spare = [reach.spec.name for reach in found if not reach.usable and reach.spec.name not in needed]
    listed = [reach for reach in found if reach.spec.name not in spare]
    checks = [
        check for reach in listed for check in _checks_of_reach(reach, bad=needed.get(reach.spec.name, Grade.WARN))
    ]
    if spare:
        them, they = ("it", "its state") if len(spare) == 1 else ("them", "their state")
        text = f"{', '.join(spare)}: no role uses {them}; chatops models list shows {they}."
        checks.append(Check(name="other models", grade=Grade.OK, text=text))
    return checks


def _checks_of_reach(reach: ModelReach, *, bad: Grade) -> list[Check]:
    """Return the line about the key, if the server was asked with it, and the line about the model."""
    name = f"model {reach.spec.name}"
    found = []
    asked = (Reachability.THERE, Reachability.UNLISTED, Reachability.REFUSED, Reachability.SILENT)
    if reach.reachability in asked and reach.spec.has_server:
        key = reach.spec.key
        text = "no key configured" if key == KeySource() else f"its key is set ({_key_origin(key)})"
        found.append(Check(name=name, grade=Grade.OK, text=text))
    grade = Grade.OK if reach.usable else bad
    return [*found, Check(name=name, grade=grade, text=reach.text, advice=reach.advice)]


def calling_check(spec: ModelSpec, trial: Trial) -> Check:
    """Return the line about how a model calls tools."""
    name = f"model {spec.name}"
    match trial.outcome:
        case TrialOutcome.NATIVE:
            return Check(name=name, grade=Grade.OK, text="it calls tools natively")
        case TrialOutcome.TEXT:
            text = f"its calls come as text ({trial.format}) and are parsed from it"
            return Check(name=name, grade=Grade.OK, text=text)
        case TrialOutcome.PROMPTED:
            return Check(name=name, grade=Grade.OK, text=f"{_delivery_text(trial)}it calls them")
        case TrialOutcome.UNREADABLE:
            text = f"it tried to call a tool, which could not be run: {trial.answer_text}."
            return Check(name=name, grade=Grade.WARN, text=text, advice=_OTHER_FORMAT_ADVICE)
        case TrialOutcome.NO_CALL:
            quoted = f" It said: {trial.answer_text!r}" if trial.answer_text else ""
            advice = _ONLY_NATIVE_ADVICE if spec.tool_format == NATIVE else _OTHER_FORMAT_ADVICE
            return Check(
                name=name,
                grade=Grade.WARN,
                text=f"{_delivery_text(trial)}it did not call a tool.{quoted}",
                advice=advice,
            )
        case TrialOutcome.FAILED:
            failure = trial.failure
            text, advice = (failure.message, failure.advice) if failure is not None else ("it gave no reply.", "")
            if failure is not None and failure.kind is FailureKind.BROKEN_STREAM and spec.api_url.startswith("http:"):
                advice = f"{advice} If the server has TLS, its address begins with https://."
            return Check(name=name, grade=Grade.FAIL, text=text, advice=advice)
        case finding:
            assert_never(finding)


def _delivery_text(trial: Trial) -> str:
    """Return how and why the tool was described to the model, if not in the request's own field for tools."""
    if not trial.format:
        return ""
    described = f"with tools described in its prompt ({trial.format}) "
    match trial.calling:
        case CallStyle.REFUSED:
            return f"the server accepts no tools for it; {described}"
        case CallStyle.IGNORED:
            return f"it does not call tools that are sent in their own field; {described}"
        case _:
            return described


_ONLY_NATIVE_ADVICE = (
    'Its tool_format is native; with "auto", calls in its text count and its prompt may describe the tools.'
)
_OTHER_FORMAT_ADVICE = "Try another tool_format of it in the registry, or another model for roles with tools."


def _key_origin(source: KeySource) -> str:
    if source.env:
        return f"environment variable {source.env}"
    if source.file:
        return f"file {source.file}"
    if source.command:
        return f"command {source.command[0]}"
    return "keyring" if source.keyring else "written in the registry; an environment variable is safer"


def sandbox_checks(*, require: SandboxLevel, fault: str) -> list[Check]:
    """Check what approved commands can reach. `fault`: see `sandbox.execution.setup_fault`."""
    found, landlock = probe(), landlock_fault()
    if found.program:
        level, text = found.level, f"bubblewrap, level {found.level.word} ({found.program})"
    elif not landlock:
        level, text = SandboxLevel.LANDLOCK, f"Landlock and seccomp, level landlock: {found.fault}"
    else:
        level, text = SandboxLevel.NONE, f"none: {found.fault}; {landlock}"
    if level < require:
        advice = f"The registry requires level {require.word}, so commands are refused."
        return [Check(name="sandbox", grade=Grade.FAIL, text=f"{text}.", advice=advice)]
    if fault:
        text = f"{text}, but it cannot be set up in this folder: {fault.rstrip('.')}."
        advice = "Until this is fixed, commands fail or ask to run unsandboxed."
        return [Check(name="sandbox", grade=Grade.FAIL, text=text, advice=advice)]
    if level is SandboxLevel.HARD:
        return [Check(name="sandbox", grade=Grade.OK, text=text)]
    advice = "Approved commands run with all your rights; install bubblewrap to confine them."
    if level:
        advice = "Install bubblewrap 0.8 or newer for level hard."
    return [Check(name="sandbox", grade=Grade.WARN, text=f"{text}.", advice=advice)]


def terminal_checks(environ: Mapping[str, str]) -> list[Check]:
    """Check whether the chat can be drawn here. Without a terminal only -p works, which is not a fault."""
    if not sys.stdout.isatty():
        return [Check(name="terminal", grade=Grade.OK, text="none here; chatops -p works without one")]
    found = []
    term = environ.get("TERM", "")
    if term in ("", "dumb"):
        found.append(Check(name="terminal", grade=Grade.FAIL, text=f"TERM is {term!r}.", advice="Use chatops -p."))
    size = shutil.get_terminal_size()
    min_columns, min_lines = MIN_TERMINAL_SIZE
    if size.columns < min_columns or size.lines < min_lines:
        text = f"{size.columns}x{size.lines} is small."
        found.append(Check(name="terminal", grade=Grade.WARN, text=text, advice="Make the window larger."))
    encoding = locale.getpreferredencoding(False)
    if "utf" not in encoding.lower():
        text = f"the encoding is {encoding}."
        found.append(Check(name="terminal", grade=Grade.WARN, text=text, advice="Set LANG to a UTF-8 locale."))
    return found or [Check(name="terminal", grade=Grade.OK, text=f"{term}, {size.columns}x{size.lines}, {encoding}")]


def store_checks(path: Path) -> list[Check]:
    """Check the file with sessions and approvals, without writing to it."""
    return as_checks(findings(path))


def as_checks(found: Sequence[Finding]) -> list[Check]:
    """Return findings about a store as lines of the report."""
    return [
        Check(name="store", grade=Grade[finding.severity.name], text=finding.text, advice=finding.advice)
        for finding in found
    ]


def _check_store(app: App) -> list[Check]:
    if not database_address(app.paths, app.options.registry):
        return store_checks(app.paths.store)
    try:
        return as_checks(app.store.describe())
    except ChatopsError as error:
        return [Check(name="store", grade=Grade.FAIL, text=str(error), advice=error.advice)]


def platform_checks(paths: Paths) -> list[Check]:
    """Check the operating system, Python, and chatops' own folders."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    found = [Check(name="python", grade=Grade.OK, text=version)]
    if sys.platform != "linux":
        text = f"{sys.platform}: there are no sandbox levels here."
        found.append(Check(name="platform", grade=Grade.WARN, text=text))
    found += [Check(name="folders", grade=Grade.WARN, text=notice) for notice in paths.notices]
    for folder in dict.fromkeys((paths.config, paths.data, paths.log)):
        found += _check_folder(folder)
    return found


def _check_folder(folder: Path) -> list[Check]:
    if (obstacle := write_obstacle(folder)) is not None:
        return [Check(name="folders", grade=Grade.FAIL, text=f"{folder} {obstacle.why}.", advice=obstacle.advice)]
    if not folder.exists():
        return []
    mode = folder.stat().st_mode & 0o777
    if mode & 0o077:
        text = f"{folder} is open to others ({mode:o})."
        return [Check(name="folders", grade=Grade.WARN, text=text, advice=f"chmod 700 {folder}")]
    return [Check(name="folders", grade=Grade.OK, text=str(folder))]


async def run_checks(app: App, *, model: str | None = None, connect: bool = False) -> list[Check]:
    """Run all checks. With `model`, check only that model, and ask it to call a tool. `connect`: to MCP servers.

    Raises ConfigError if there is no such model.
    """
    models_found = await (_check_models(app) if model is None else _check_one_model(app, model))
    return [
        *platform_checks(app.paths),
        *registry_checks(app.loaded, level=app.rights.level),
        *await asyncio.to_thread(_check_rights, app),
        *await asyncio.to_thread(_check_workflows, app),
        *await asyncio.to_thread(_check_knowledge, app),
        *models_found,
        *await _check_servers(app, connect=connect),
        *await _check_sandbox(app),
        *terminal_checks(os.environ),
        *await asyncio.to_thread(_check_editors, app),
        *await asyncio.to_thread(_check_store, app),
    ]


async def _check_models(app: App) -> list[Check]:
    return await model_checks(
        app.rights.models(), needed=_grade_per_model(app), discover=list_models, require=app.limits.sandbox().require
    )


async def _check_one_model(app: App, name: str) -> list[Check]:
    if (spec := app.rights.model(name)) is None:
        raise unknown_name("model", name, [known.name for known in app.rights.models()])
    require = app.limits.sandbox().require
    found = await model_checks((spec,), needed={name: Grade.FAIL}, discover=list_models, require=require)
    return await _add_call_check(app, spec, found)


async def _check_servers(app: App, *, connect: bool) -> list[Check]:
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


async def _check_sandbox(app: App) -> list[Check]:
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


async def _add_call_check(app: App, spec: ModelSpec, found: list[Check]) -> list[Check]:
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
        return [*(line for line in found if line.grade is Grade.OK), check]
    return [*(replace(line, grade=Grade.WARN) if line.grade is Grade.FAIL else line for line in found), check]


def doctor_text(app: App) -> str:
    """Return the checks as text. Blocks for as long as servers take to answer: call it in a thread."""
    return report_lines(asyncio.run(run_checks(app)))


def _check_rights(app: App) -> list[Check]:
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


def _check_workflows(app: App) -> list[Check]:
    """Return checks for workflows that cannot be used; none if all can."""
    known = app.workflows()
    warnings = [Check(name="workflows", grade=Grade.WARN, text=notice) for notice in known.notices]
    return warnings + [
        Check(
            name=f"workflow {unusable.name}", grade=Grade.WARN, text=str(unusable.error), advice=unusable.error.advice
        )
        for unusable in known.unusable
    ]


def _check_knowledge(app: App) -> list[Check]:
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


def _check_editors(app: App) -> list[Check]:
    """Return how fast each editor has answered questions about calls. One that answers by itself is a warning."""
    found = []
    with suppress(ChatopsError):  # The store has a check of its own.
        store = app.store
        try:
            known = editors(store)
        except UnreadableError as error:
            return [Check(name="editors", grade=Grade.WARN, text=str(error), advice=error.advice)]
        for name, answers in known.items():
            parts = [plural(len(answers.times_s), "answer")]
            if answers.times_s:
                median_s = sorted(answers.times_s)[len(answers.times_s) // 2]
                parts.append(f"the fastest after {min(answers.times_s):.1f} s, half within {median_s:.1f} s")
            parts += [f"{answers.too_soon} too soon, which decided nothing"] if answers.too_soon else []
            advice = "Does it approve by itself? Switch that off in its settings." if answers.too_soon else ""
            grade = Grade.WARN if answers.too_soon else Grade.OK
            found.append(Check(name=f"editor {name}", grade=grade, text=", ".join(parts), advice=advice))
    return found


def _grade_per_model(app: App) -> dict[str, Grade]:
    """Return the grade for each model in use if it cannot be used: only the default role's first one is required."""
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
