"""Answers that need a text first: a rule, edited arguments, a reason. Each is a question about one call."""

import json

from chatops.domain.canonical import json_or_text
from chatops.domain.decisions import AnyArguments, Approved, ArgumentPattern, Decision, Edited, ExactArguments, Rejected
from chatops.domain.events import PendingCall
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import BUILT_IN_TOOLS, Capabilities
from chatops.policy.patterns import Tools, matches, parse_rule, show_rule, suggest_exact, suggest_rule
from chatops.tui.dialogs.approval_text import line
from chatops.tui.dialogs.question import Question


def exact_grant(pending: PendingCall) -> ArgumentPattern:
    """Return the pattern that `s` remembers: this exact call and nothing wider."""
    return suggest_exact(pending.call.name, pending.facts)


def scope(pending: PendingCall) -> str:
    """Return what `s` would remember, in rule syntax. Exact arguments are shown elsewhere already."""
    pattern = exact_grant(pending)
    if isinstance(pattern, ExactArguments):
        return f"{pending.call.name} with exactly these arguments"
    return show_rule(pending.call.name, pattern)


def rule_question(pending: PendingCall) -> Question[Decision] | None:
    """Return the question that lets the user edit a rule before it is remembered.

    Returns None if the pattern has unprintable characters and could not be shown faithfully.
    """
    tool, facts = pending.call.name, pending.facts
    text = show_rule(tool, suggest_rule(tool, facts))
    if not text.isprintable():
        return None

    def check(text: str) -> Decision:
        named, pattern = parse_rule(text.strip(), tools=_tools(pending))
        if named != tool:
            raise ValueError(f"The rule has to be about {tool}.")
        if isinstance(pattern, AnyArguments) and facts.command:
            raise ValueError(f"This would let the model run anything. Name the command: {tool}:git status *")
        if not matches(pattern, facts):
            raise ValueError("This rule would not cover the call you are looking at.")
        return Approved(remember=pattern)

    role = line(pending.role)
    return Question[Decision](
        "Make a rule",
        explain=f"Calls that match are approved without asking, in this session, as {role}. Edit it if needed.",
        text=text,
        check=check,
        done="approves and remembers",
    )


def _tools(pending: PendingCall) -> Tools:
    """Return the tool of a call with the capabilities that the facts of the call show."""
    facts, known = pending.facts, BUILT_IN_TOOLS.get(pending.call.name)
    shown = Capabilities(command="command" if facts.command else "", url="url" if facts.hosts else "")
    return {pending.call.name: known or shown}


def arguments_question(pending: PendingCall) -> Question[Decision]:
    """Return the question for edited arguments. Only a JSON object is accepted."""

    def check(text: str) -> Decision:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Not JSON yet: {error}") from None
        if not isinstance(value, dict):
            raise ValueError("Arguments are a JSON object: { … }.")
        return Edited(arguments=text)

    return Question[Decision](
        f"Edit the arguments of {line(pending.call.name)}",
        explain="They are checked anew, and you are asked again before anything runs.",
        text=_pretty(pending.facts.arguments),
        check=check,
        done="checks them",
        lines=True,
    )


def reason_question(pending: PendingCall) -> Question[Decision]:
    """Return the question for the reason of a denial, which the model is given."""
    tool = line(pending.call.name)
    return Question[Decision](
        f"Not {tool} again, its outcome is unknown" if pending.in_doubt else f"Deny {tool}",
        explain="Tell the model why, or what to do instead. The turn goes on.",
        text="",
        check=lambda text: Rejected(reason=text.strip()),
        done="tells the model" if pending.in_doubt else "denies",
        enter_answers=True,
    )


def _pretty(arguments: str) -> str:
    """Return the arguments to edit, with unprintable characters as JSON escapes, which mean the same."""
    value = json_or_text(arguments)
    if isinstance(value, str):
        return sanitize(arguments)
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
