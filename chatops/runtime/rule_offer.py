"""Choices for a user who makes a rule with the decision on a call.

`RuleOffer` holds the patterns from narrow to wide, says why a scope is not possible, and replays a rule over the
session's recorded calls, so that the user sees what it would have allowed before making it. It decides nothing: the
engine checks a rule again when the decision arrives.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from chatops.domain.decisions import ArgumentPattern, RuleScope
from chatops.domain.events import PendingCall
from chatops.domain.ids import CallId, SessionId
from chatops.domain.messages import Message, ToolMessage
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import CallFacts, Outcome, ToolCall
from chatops.policy.grant import Grant
from chatops.policy.matching import matches
from chatops.policy.patterns import parse_rule, show_rule, suggest_rules
from chatops.policy.remembered import SCOPES, rule_from
from chatops.runtime.services import Services
from chatops.shell.harmless import runs_no_workspace_code
from chatops.toolkit.base import Tool, inspect_call

log = logging.getLogger(__name__)

MOST_RECORDED = 100
"""Earlier calls that are inspected again. Older ones are left out."""
INSPECTING_S = 2.0
"""Seconds after which the calls inspected so far have to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A call of the session with its result, inspected again."""

    message: ToolMessage
    facts: CallFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOffer:
    """The rules that can be made from the decision on a pending call."""

    pending: PendingCall
    grant: Grant
    """The grant of the call's role now."""

    def patterns(self) -> list[ArgumentPattern]:
        """Return the patterns to choose from, from narrow to wide; those that cannot be shown as they are not.

        A pattern that is possible in no scope is left out.
        """
        call, facts = self.pending.call, self.pending.facts
        spec = self.grant.tool(call.name)
        tools = {call.name: spec.capabilities} if spec is not None else {}
        offered = suggest_rules(call.name, facts, tools=tools)
        return [
            pattern
            for pattern in offered
            if show_rule(call.name, pattern).isprintable() and any(not self.why_not(pattern, one) for one in SCOPES)
        ]

    @property
    def may_run_workspace_code(self) -> bool:
        """True if the call may run files of the workspace, which a rule does not bind."""
        facts, spec = self.pending.facts, self.grant.tool(self.pending.call.name)
        if spec is None or not spec.capabilities.runs_anything:
            return False
        return not runs_no_workspace_code(facts.argv, cwd=facts.cwd)

    def why_not(self, pattern: ArgumentPattern, scope: RuleScope) -> str:
        """Return why a rule with this pattern cannot have this scope; empty if it can."""
        pending = self.pending
        rule = rule_from(pending.call, pending.facts, role=pending.role, pattern=pattern, scope=scope)
        return self.grant.why_not_made(rule, pending.facts)

    def parsed(self, text: str) -> ArgumentPattern:
        """Return the pattern that the user wrote. Raises ConfigError and ValueError with what is wrong with it."""
        tool = self.pending.call.name
        spec = self.grant.tool(tool)
        named, pattern = parse_rule(text.strip(), tools={tool: spec.capabilities} if spec is not None else {})
        if named != tool:
            raise ValueError(f"The rule has to be about {tool}.")
        if not matches(pattern, self.pending.facts):
            raise ValueError("This rule would not cover the call you are looking at.")
        if reason := self.why_not(pattern, RuleScope.SESSION):
            raise ValueError(f"No such rule: {reason}.")
        return pattern

    def allowed(
        self, recorded: Sequence[RecordedCall], pattern: ArgumentPattern, scope: RuleScope
    ) -> list[RecordedCall]:
        """Return those of the recorded calls that ask and that such a rule would have answered."""
        pending = self.pending
        rule = rule_from(pending.call, pending.facts, role=pending.role, pattern=pattern, scope=scope)
        return [
            one
            for one in recorded
            if self.grant.judge(pending.call.name, one.facts, remembered=(rule,)).rule is not None
        ]


async def recorded_calls(
    name: str, services: Services, *, session_id: SessionId, grant: Grant, messages: tuple[Message, ...]
) -> tuple[RecordedCall, ...]:
    """Return the calls of tool `name` among `messages`, newest first, each arguments once.

    They are inspected again, which has no effect. Calls that never could run are left out.
    """
    found: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage) and message.tool == name:
            found.setdefault(message.arguments, message)
    tool = services.tools.get(name)
    recorded: list[RecordedCall] = []
    if tool is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(INSPECTING_S):
                for message in list(found.values())[:MOST_RECORDED]:
                    facts = await _inspected(tool, message, services, session_id=session_id, sandbox=grant.sandbox)
                    if facts is not None:
                        recorded.append(RecordedCall(message=message, facts=facts))
    return tuple(recorded)


async def _inspected(
    tool: Tool, message: ToolMessage, services: Services, *, session_id: SessionId, sandbox: SandboxSpec | None
) -> CallFacts | None:
    call = ToolCall(id=CallId(message.call_id), name=message.tool, arguments=message.arguments)
    context = services.contexts(session_id, call.id, attempt=1, tool=tool, output=lambda text: None)
    try:
        facts = await inspect_call(tool, call, replace(context, sandbox=sandbox or context.sandbox))
    except Exception:
        log.exception("a recorded call of %s could not be inspected", message.tool)
        return None
    # A call that ran often could not run again: what it replaced is no longer there. A rule still covers its paths.
    unusable = facts.problems and (message.outcome is Outcome.INVALID or not facts.may_resolve)
    return None if unusable or facts.refusal else facts
