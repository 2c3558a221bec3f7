"""The choices for a user who makes a rule with the decision on a call.

`RuleOffer` holds the patterns from narrow to wide, says why a scope is not possible, and replays a rule over the
session's recorded calls, so that the user sees what it would have allowed before making it. It decides nothing: the
engine checks a rule again when the decision arrives.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from chatops.domain.decisions import ArgumentPattern, RuleScope
from chatops.domain.events import PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.domain.messages import Message, ToolMessage
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import CallFacts, Outcome, ToolCall
from chatops.policy.grant import Grant
from chatops.policy.patterns import matches
from chatops.policy.remembered import SCOPES, rule_from
from chatops.policy.rule_syntax import parse_rule, show_rule, suggest_rules
from chatops.shell.harmless import runs_no_workspace_code
from chatops.toolkit.base import Tool, ToolContext, inspect_call

log = logging.getLogger(__name__)

MAX_RECORDED = 100
"""Earlier calls that are inspected again. Older ones are left out."""
INSPECTING_S = 2.0
"""Seconds after which the calls inspected so far have to do."""


@frozen_dataclass
class RecordedCall:
    """A call of the session with its result, inspected again."""

    message: ToolMessage
    facts: CallFacts


async def recorded_calls(
    tool: Tool,
    messages: Sequence[Message],
    *,
    context: Callable[[CallId], ToolContext],
    sandbox: SandboxSpec | None,
) -> tuple[RecordedCall, ...]:
    """Return the calls of a tool in `messages`, newest first, the same arguments once.

    They are inspected again, which has no effect. Calls that never could run are left out. With `sandbox`, they are
    inspected under these limits, not under those of their `context`.
    """
    found: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage) and message.tool == tool.spec.name:
            found.setdefault(message.arguments, message)
    recorded: list[RecordedCall] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(INSPECTING_S):
            for message in list(found.values())[:MAX_RECORDED]:
                now = context(message.call_id)
                facts = await _inspect_again(tool, message, replace(now, sandbox=sandbox or now.sandbox))
                if facts is not None:
                    recorded.append(RecordedCall(message=message, facts=facts))
    return tuple(recorded)


async def _inspect_again(tool: Tool, message: ToolMessage, context: ToolContext) -> CallFacts | None:
    call = ToolCall(id=message.call_id, name=message.tool, arguments=message.arguments)
    try:
        facts = await inspect_call(tool, call, context)
    except Exception:
        log.exception("a recorded call of %s could not be inspected", message.tool)
        return None
    # A call that ran often could not run again: what it replaced is no longer there. A rule still covers its paths.
    unusable = facts.problems and (message.outcome is Outcome.INVALID or not facts.may_resolve)
    return None if unusable or facts.refusal else facts


@frozen_dataclass
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
            if show_rule(call.name, pattern).isprintable() and any(not self.why_not(pattern, scope) for scope in SCOPES)
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

    def parse(self, text: str) -> ArgumentPattern:
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

    def would_allow(
        self, recorded: Sequence[RecordedCall], pattern: ArgumentPattern, scope: RuleScope
    ) -> list[RecordedCall]:
        """Return those of the recorded calls that ask and that such a rule would have answered."""
        pending = self.pending
        rule = rule_from(pending.call, pending.facts, role=pending.role, pattern=pattern, scope=scope)
        return [
            call
            for call in recorded
            if self.grant.judge(pending.call.name, call.facts, remembered=(rule,)).rule is not None
        ]
