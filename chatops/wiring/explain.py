"""Explanation of a verdict on a call, for ``chatops policy explain`` and ``/policy``.

The call is judged as it would be in a run: inspected in the same context, without any effect.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import RememberedRule
from chatops.domain.errors import ConfigError
from chatops.domain.ids import CallId, SessionId
from chatops.domain.rights import Verdict
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CallFacts, Problem, ToolCall, ToolSpec, tool_name
from chatops.policy.grant import Grant, explain
from chatops.policy.patterns import show_rule
from chatops.policy.verdicts import Judgement
from chatops.toolkit.base import inspect_call
from chatops.wiring.app import App
from chatops.wiring.words import unknown

NO_SESSION = SessionId("explain")
"""Placeholder for calls that are explained without a session."""
ADVICE = 'Write them as \'{"path": "a"}\'.'
_VERDICTS = {Verdict.ALLOW: "allowed", Verdict.ASK: "asks", Verdict.DENY: "denied"}
WITHOUT_ARGUMENTS = "For a particular call, add its arguments as JSON: the verdict may depend on them."


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
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
    session: SessionId = NO_SESSION,
    remembered: Sequence[RememberedRule] = (),
    workspace_read: bool = False,
) -> Explained:
    """Return the verdict under `grant` on a call with these arguments (JSON); None: on all calls of the tool.

    `remembered` and `workspace_read` are those of a session. A tool that does not exist is denied like any other that
    is not on offer.

    Raises ConfigError for arguments that are not a JSON object.
    """
    tool = tool_name(tool)
    facts = await _facts(app, grant, tool, arguments, session=session) if arguments is not None else None
    known = facts if facts is not None else CallFacts(arguments="{}")
    if app.catalog.get(tool) is None:
        return _unregistered(app, grant, tool, known)
    judged = grant.judge(tool, known, remembered=remembered, workspace_read=workspace_read)
    permitted = grant.permits(tool)
    closed = facts is None and permitted.verdict.strictness > judged.verdict.strictness
    notices = [f"This call could not run: {problem.path}: {problem.message}" for problem in known.problems]
    return Explained(
        deciding=permitted if closed else judged,
        layers=tuple(grant.reasons(tool, known, workspace_read=workspace_read)),
        problems=known.problems,
        lines=explain(grant, tool, facts, remembered=remembered, workspace_read=workspace_read),
        notices=tuple(notices) if facts is not None else (WITHOUT_ARGUMENTS,),
    )


def tools_text(
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
        judged = grant.judge(spec.name, CallFacts(arguments="{}"), remembered=remembered, workspace_read=workspace_read)
        rules = [show_rule(one.tool, one.pattern) for one in grant.answers if one.tool == spec.name]
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


def _unregistered(app: App, grant: Grant, tool: str, facts: CallFacts) -> Explained:
    reason = sanitize(app.catalog.unavailable.get(tool, "no tool of this name is registered"), newlines=False)
    return Explained(
        deciding=Judgement(verdict=Verdict.DENY, reason=reason),
        layers=grant.reasons(tool, facts),
        problems=(),
        lines=(f"{tool}: deny, {reason}",),
        notices=(unknown("tool", tool, [spec.name for spec in app.catalog.specs]).advice,),
    )


async def _facts(app: App, grant: Grant, name: str, text: str, *, session: SessionId) -> CallFacts:
    try:
        value: JsonValue = json.loads(text)
        spelled = canonical(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The arguments are not valid JSON: {error}.", advice=ADVICE) from error
    if not isinstance(value, Mapping):
        raise ConfigError("The arguments are not a JSON object.", advice=ADVICE)
    tool = app.catalog.get(name)
    if tool is None:
        return CallFacts(arguments=spelled)
    call = ToolCall(id=CallId(f"{session}.1.1"), name=name, arguments=spelled)
    context = app.limits.context(session, call.id, tool=tool)
    return await inspect_call(tool, call, replace(context, sandbox=grant.sandbox or context.sandbox))
