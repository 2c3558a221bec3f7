"""What may be done, and why: the verdict on a call, and the tools, rules and limits of a session.

A call is judged as it would be in a run: inspected in the same context, without any effect.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from chatops.config.folder_identity import folder_identity
from chatops.config.registry import Loaded
from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import AnyArguments, RememberedRule
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import NARROWEST
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CallFacts, Problem, ToolCall, ToolSpec, Verdict, tool_name
from chatops.engine.view import any_read_workspace, workspace_was_read
from chatops.policy.grant import Grant, explain
from chatops.policy.remembered import scope_words, why_not_here
from chatops.policy.rule_syntax import show_rule
from chatops.policy.sandbox import limit_sources
from chatops.policy.verdicts import Judgement, Key
from chatops.runtime.view import SessionView
from chatops.sandbox.confinement import confinement
from chatops.store.base import RuleRow
from chatops.toolkit.base import inspect_call
from chatops.wiring.app import App
from chatops.wiring.rows import RuleItem, describe_rule, unknown_name

EXPLAINED_SESSION = SessionId("explain")
"""Placeholder for calls that are explained without a session."""
ARGUMENTS_ADVICE = 'Write them as \'{"path": "a"}\'.'
_VERDICTS = {Verdict.ALLOW: "allowed", Verdict.ASK: "asks", Verdict.DENY: "denied"}
_MAX_ROLES = 40
"""Columns of a matrix beside the role in force. There may be thousands of roles."""
WITHOUT_ARGUMENTS = "For a particular call, add its arguments as JSON: the verdict may depend on them."


@frozen_dataclass
class Explanation:
    """The verdict on a tool or on one call of it."""

    deciding: Judgement
    layers: tuple[Judgement, ...]
    problems: tuple[Problem, ...]
    """Problems because of which this call could not run, whatever the verdict."""
    lines: tuple[str, ...]
    """The verdict and its reasons as text, the verdict first."""
    notices: tuple[str, ...]
    """Problems, or that arguments may matter, one sentence each."""


async def explain_call(
    app: App,
    grant: Grant,
    tool: str,
    arguments: str | None,
    *,
    session: SessionId = EXPLAINED_SESSION,
    remembered: Sequence[RememberedRule] = (),
    workspace_read: bool = False,
) -> Explanation:
    """Return the verdict under `grant` on a call with these `arguments` (JSON), or on all calls of the tool if None.

    `remembered` and `workspace_read` are those of a session. A tool that does not exist is denied like any other that
    is not on offer.

    Raises ConfigError for arguments that are not a JSON object.
    """
    tool = tool_name(tool)
    facts = await _inspect_call(app, grant, tool, arguments, session=session) if arguments is not None else None
    # The layers are asked about a call in any case: without arguments, about one with none.
    asked_about = facts if facts is not None else CallFacts(arguments="{}")
    if app.catalog.get(tool) is None:
        return _explain_unregistered(app, grant, tool, asked_about)
    if facts is None:
        judged = grant.judge_tool(tool, remembered=remembered, workspace_read=workspace_read)
        notices = [WITHOUT_ARGUMENTS]
    else:
        judged = grant.judge(tool, facts, remembered=remembered, workspace_read=workspace_read)
        notices = [f"This call could not run: {problem.path}: {problem.message}" for problem in facts.problems]
    place = partial(place_of_key, app.loaded)
    return Explanation(
        deciding=judged,
        layers=tuple(grant.reasons(tool, asked_about, workspace_read=workspace_read)),
        problems=asked_about.problems,
        lines=explain(grant, tool, facts, remembered=remembered, workspace_read=workspace_read, place=place),
        notices=tuple(notices),
    )


@frozen_dataclass
class RightsMatrix:
    """The verdicts on the calls of each tool in each role, for this user in this session."""

    level: str
    role: str
    """The role in force."""
    tools: tuple[str, ...]
    grants: Mapping[str, Grant | ConfigError]
    """What each role may do, the role in force first; an error for a role that cannot be used."""
    left_out: int
    """Number of further roles, which have no column."""
    remembered: tuple[RememberedRule, ...]
    workspace_read: bool
    place: Callable[[Key], str] = lambda key: ""
    """Returns file and line of a key of the registries."""

    def verdict(self, tool: str, role: str) -> Verdict | None:
        """Return the verdict on all calls of a tool, as far as it does not depend on arguments; None: unusable role."""
        judged = self.judged(tool, role)
        return None if judged is None else judged.verdict

    def judged(self, tool: str, role: str) -> Judgement | None:
        """Return the verdict as `verdict` does, with its source."""
        grant = self.grants[role]
        if isinstance(grant, ConfigError):
            return None
        return grant.judge_tool(tool, remembered=self.remembered, workspace_read=self.workspace_read)

    def explain(self, tool: str, role: str) -> tuple[str, ...]:
        """Return the verdict and the layer that gave it, then what each layer says, and its rules about arguments."""
        grant = self.grants[role]
        if isinstance(grant, ConfigError):
            return (f"Role {role} cannot be used: {grant.full}",)
        place = self.place
        lines = explain(grant, tool, remembered=self.remembered, workspace_read=self.workspace_read, place=place)
        rules = [
            f"  {rule.verdict.value:<5}  {show_rule(tool, rule.pattern)}  ({layer.name})  {place(rule.key)}".rstrip()
            for layer in grant.layers
            for rule in layer.rules
            if rule.tool == tool and not isinstance(rule.pattern, AnyArguments)
        ]
        rules += [
            f"  allow  {show_rule(tool, answer.pattern)}  ({answer.source})  {place(answer.key)}".rstrip()
            for answer in grant.answers
            if answer.tool == tool
        ]
        return (f"As {role}, {lines[0]}", *lines[1:], *(["By arguments:", *rules] if rules else []))


def rights_matrix(
    app: App, present: Grant, *, remembered: tuple[RememberedRule, ...], workspace_read: bool = False
) -> RightsMatrix:
    """Return the verdicts on all tools under `present` and in the other roles, at most `_MAX_ROLES` of them."""
    others = [role for role in app.rights.roles() if role != present.role]
    grants: dict[str, Grant | ConfigError] = {present.role: present}
    for role in others[:_MAX_ROLES]:
        try:
            grants[role] = app.grant_for(role)
        except ConfigError as error:
            grants[role] = error
    return RightsMatrix(
        level=present.level.word,
        role=present.role,
        tools=tuple(spec.name for spec in app.catalog.specs),
        grants=grants,
        left_out=max(0, len(others) - _MAX_ROLES),
        remembered=remembered,
        workspace_read=workspace_read,
        place=partial(place_of_key, app.loaded),
    )


def place_of_key(loaded: Loaded, key: Key) -> str:
    """Return file and line of a key of the registries in force; empty for none."""
    file, line = loaded.place(key)
    return f"{file}:{line}" if line else file


class SessionRights:
    """Texts about what may be done in a session, and its remembered rules."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def tools(self, session: SessionView) -> str:
        """Return the tools of a session, each with the verdict on its calls."""
        return _tools_text(
            session.grant(),
            specs=self._app.catalog.specs,
            unavailable=self._app.catalog.unavailable,
            remembered=tuple(row.rule for row in await self._rules(session)),
            workspace_read=_workspace_was_read(session),
        )

    async def rules(self, session: SessionView) -> Sequence[RuleItem]:
        """Return the user's remembered rules that could answer in a session, oldest first."""
        described = [(row.rule.id, *describe_rule(row)) for row in await self._rules(session)]
        return [RuleItem(id=id_, rule=rule, about=f"{where}\n{made}") for id_, rule, where, made in described]

    async def revoke(self, session: SessionView, *, rule: str) -> str:
        """Revoke a remembered rule by its id in the text of `permissions`. Return what was revoked."""
        found = next((row.rule for row in await self._rules(session) if row.rule.id == rule), None)
        if found is None or not await asyncio.to_thread(self._app.store.revoke_rule, rule):
            raise ConfigError(f"There is no rule {rule}.", advice="/permissions lists them.")
        return f"Revoked rule {rule}: {show_rule(found.tool, found.pattern)}: {scope_words(found.scope, found.role)}."

    def limits(self, session: SessionView) -> str:
        """Return level, what commands see, write and reach, and the layer of each."""
        settings = session.settings
        layers = self._app.rights.sandbox_layers(settings)
        spec = session.grant().sandbox or NARROWEST
        found = confinement(spec, workspace=self._app.workspace, protected=self._app.limits.protected_paths())
        protected = ".chatops and .git" if spec.git == "protect" else ".chatops"
        lines = [
            f"Level {found.level.word}: {found.description}",
            *([found.refusal] if found.refusal else []),
            "",
            f"Writable   the workspace, but not {protected}",
            "",
            "Beyond the default:",
        ]
        limits = [f"  {limit.key:<8} {limit.value}   ({limit.source})" for limit in limit_sources(layers)]
        lines += limits or ["  nothing"]
        lines += ["", "Changed for this session (/sandbox reset takes it back):"]
        lines += [f"  {change}" for change in settings.sandbox] or ["  nothing"]
        if layers.site is not None:
            lines += ["", "The site registry limits all of it."]
        lines += ["", "To change it: /sandbox git commit, /sandbox hosts +NAME, /sandbox reset."]
        return "\n".join(lines)

    async def verdict(self, session: SessionView, argument: str) -> str:
        """Return the verdict on ``TOOL [JSON]`` in this session, with its grants and what it has read."""
        tool, _, arguments = argument.partition(" ")
        found = await explain_call(
            self._app,
            session.grant(),
            tool,
            arguments.strip() or None,
            session=session.session_id or EXPLAINED_SESSION,
            remembered=tuple(row.rule for row in await self._rules(session)),
            workspace_read=_workspace_was_read(session),
        )
        return "\n".join([*found.lines, "", *found.notices]).rstrip()

    async def matrix(self, session: SessionView) -> RightsMatrix:
        """Return the verdicts on all tools in the role of this session, and in at most `_MAX_ROLES` other roles."""
        remembered = tuple(row.rule for row in await self._rules(session))
        read = _workspace_was_read(session)
        return await asyncio.to_thread(
            rights_matrix, self._app, session.grant(), remembered=remembered, workspace_read=read
        )

    async def _rules(self, session: SessionView) -> tuple[RuleRow, ...]:
        return await asyncio.to_thread(self._app.rules, session.session_id or None)

    async def permissions(self, session: SessionView) -> str:
        """Return the remembered rules, and what configuration and flags allow."""
        grant, rows = session.grant(), await self._rules(session)
        folder = await asyncio.to_thread(folder_identity, session.workspace)
        lines = ["Remembered rules (/permissions revoke takes one back):", ""]
        for row in rows:
            pattern, *more = describe_rule(row)
            reason = why_not_here(row.rule, folder=folder, scopes=grant.rule_scopes)
            if row.rule.role != grant.role:
                reason = f"role {grant.role} is in force"
            more += [f"does not answer here: {reason}"] if reason else []
            lines += [f"  {row.rule.id:>3}  {pattern}", *(f"       {text}" for text in more), ""]
        lines += [] if rows else ["  none", ""]
        lines += ["Allowed by configuration and flags:", ""]
        lines += [f"  {show_rule(answer.tool, answer.pattern)}  ({answer.source})" for answer in grant.answers] or [
            "  none"
        ]
        return "\n".join(lines)


def _tools_text(
    grant: Grant,
    *,
    specs: Sequence[ToolSpec],
    unavailable: Mapping[str, str],
    remembered: Sequence[RememberedRule],
    workspace_read: bool,
) -> str:
    """Return each tool with the verdict on its calls under `grant`, as far as it does not depend on arguments."""
    lines = [f"Tools of role {grant.role} at access level {grant.level.word}:", ""]
    denied: dict[str, list[str]] = {}
    for spec in specs:
        if (permitted := grant.permits(spec.name)).verdict is Verdict.DENY:
            denied.setdefault(permitted.reason, []).append(spec.name)
            continue
        judged = grant.judge_tool(spec.name, remembered=remembered, workspace_read=workspace_read)
        rules = [show_rule(answer.tool, answer.pattern) for answer in grant.answers if answer.tool == spec.name]
        rules += [
            show_rule(one.tool, one.pattern) for one in remembered if (one.tool, one.role) == (spec.name, grant.role)
        ]
        lines += [
            f"  {spec.name}  {_VERDICTS[judged.verdict]} ({judged.answered_by or judged.reason})",
            *([f"      does not ask for {', '.join(dict.fromkeys(rules))}"] if rules else []),
            f"      {sanitize(spec.description, newlines=False)}",
        ]
    lines += [] if lines[2:] else ["  none"]
    lines += ["", "Not on offer:", ""]
    lines += [f"  {', '.join(tools)}  denied by {reason}" for reason, tools in denied.items()]
    lines += [f"  {tool}  {sanitize(why, newlines=False)}" for tool, why in unavailable.items()]
    return "\n".join([*lines, "", "/policy TOOL shows what each layer says. /policy TOOL JSON judges one call."])


def _explain_unregistered(app: App, grant: Grant, tool: str, facts: CallFacts) -> Explanation:
    reason = sanitize(app.catalog.unavailable.get(tool, "no tool of this name is registered"), newlines=False)
    return Explanation(
        deciding=Judgement(verdict=Verdict.DENY, reason=reason),
        layers=grant.reasons(tool, facts),
        problems=(),
        lines=(f"{tool}: deny, {reason}",),
        notices=(unknown_name("tool", tool, [spec.name for spec in app.catalog.specs]).advice,),
    )


async def _inspect_call(app: App, grant: Grant, name: str, text: str, *, session: SessionId) -> CallFacts:
    try:
        value: JsonValue = json.loads(text)
        spelled = canonical(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The arguments are not valid JSON: {error}.", advice=ARGUMENTS_ADVICE) from error
    if not isinstance(value, Mapping):
        raise ConfigError("The arguments are not a JSON object.", advice=ARGUMENTS_ADVICE)
    tool = app.catalog.get(name)
    if tool is None:
        return CallFacts(arguments=spelled)
    call = ToolCall(id=CallId(f"{session}.1.1"), name=name, arguments=spelled)
    context = app.limits.context(session, call.id, tool=tool)
    return await inspect_call(tool, call, replace(context, sandbox=grant.sandbox or context.sandbox))


def _workspace_was_read(session: SessionView) -> bool:
    """Return True if the session has read workspace files, as the next call is judged. It may have no turn yet."""
    if session.state is not None:
        return workspace_was_read(session.state)
    return any_read_workspace(session.snapshot().messages)
