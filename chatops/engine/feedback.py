"""Texts of chatops itself in a turn: errors and results of calls, instructions to the model, notices to the user.

An error is short, precise, and says what to do next. The texts about a call whose outcome is unknown (it was
interrupted and may have taken effect) never claim that it had no effect. They stay true whatever follows: a decision of
the user, a second run, a refusal.

The end of a function's name says who reads its text: `_error`, `_note` and `_result` the model, `_notice` the user.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches

from chatops.domain.messages import Message, ToolMessage
from chatops.domain.model import ASSUMED_WINDOW
from chatops.domain.tools import (
    CallFacts,
    Interruption,
    Outcome,
    Problem,
    ResultFacts,
    ResultSource,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from chatops.domain.wording import cut, plural
from chatops.engine.signature import signature

EMPTY_RESULT = "Tool executed successfully"
STOPPED = "Not run: the user stopped the turn."
NARROWED = ToolResult(
    outcome=Outcome.DENIED,
    content="Not run: the user has just taken away rights. Call it again if it is still permitted.",
)
CORRECTED = "Not run: the user interrupted the turn with a message."
TOO_MANY = "Not run: too many calls in one reply. Ask for fewer at a time."
CALLED_AGAIN = "the same call was made again and again"
REPEATED = (
    "Not run: you have made this very call with the same arguments twice in a row and have its results above. "
    "Use them, or do something else."
)
UNKNOWN_OUTCOME = (
    "The outcome of this call is unknown: the program was interrupted while it ran, and it may or may not have "
    "taken effect. It was not repeated. Check before you rely on it."
)
MARKED_DONE = "The program was interrupted while this ran; the user has checked and says that it took effect."
REPEATED_AFTER_RESTART = "Interrupted by a restart; it changes nothing, so it is run again."
_MAX_NAMES = 24
"""Number of tools that are listed by name. The request itself lists all of them."""
_MAX_NAME_CHARS = 80
"""Characters of a tool's name, which a model may have made up."""
_MAX_GATHERED_CHARS = 500
"""Characters of each result in an answer that chatops makes of the results."""
CLOSING = (
    "[chatops] All tool rounds of this turn are used up. Answer now with what you have gathered, without calling "
    "any tool, and say what is still open."
)
STEP_CLOSING = (
    "[chatops] All rounds of this step are used up: this is your last response, and no tool can be called any more. "
    "Give your final answer now, as JSON in the required format. If the step is not complete, answer "
    '{"success": false, "result": null, "reasoning": "what is missing"}.'
)
GUIDANCE = "IMPORTANT: This tool call failed. Read the error, understand the issue, fix your parameters, and retry."
RESPOND = (
    "[chatops] The tools have been used, and the message above is the conclusion of the model that used them. Write "
    "the final answer to the user's last message from it and from the results, in your own words."
)
"""Instruction for the responder: use the conclusion as material, but write your own answer."""
DISCARDED = "The changes of the contained turn were discarded; nothing was applied, the copy is gone."
NOT_UNDONE = "The changes stay applied; the user did not take them back."
SENT_BACK = "The user has not applied your changes yet, and you go on in the same copy."


def unknown_tool_error(name: str, offered: Sequence[str]) -> str:
    """Return the error for an unknown tool, with the closest names on offer and a list of the tools on offer."""
    near = _nearest_names(name, offered)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no tool {short_name(name)!r}.{hint}{_list_tools(offered)}"


def nameless_call_error(problem: str, offered: Sequence[str]) -> str:
    """Return the error for a call that was recognised but malformed before its name."""
    return f"A call was not run: {problem.rstrip('.')}. Write it again, complete and correct.{_list_tools(offered)}"


def out_of_order_error(reason: str, advice: str) -> str:
    """Return the error for a call whose turn in the step has not come or is over."""
    return f"Not run: {reason}. {advice}"


def not_permitted_error(name: str, reason: str, offered: Sequence[str]) -> str:
    """Return the error for a tool that exists but is not permitted here."""
    return f"Not permitted: {name} ({reason}). Do not try it again.{_list_tools(offered)}"


def invalid_arguments_error(call: ToolCall, problems: Sequence[Problem], spec: ToolSpec | None) -> str:
    """Return the error for invalid arguments: field paths, problems, given values, then the signature of `spec`."""
    lines = [f"{call.name} was not run: its arguments are not valid."]
    for problem in problems:
        given = f" (given: {problem.given})" if problem.given else ""
        lines.append(f"- {problem.path or 'arguments'}: {problem.message}{given}")
    if spec is not None:
        lines.append(f"Arguments: {signature(spec)}")
    lines.append("Correct them and call the tool again.")
    return "\n".join(lines)


def unreadable_call_error(call: ToolCall, spec: ToolSpec) -> str:
    """Return the error for a call that was recognised but could not be parsed."""
    problem = call.problem.rstrip(".")
    return f"{call.name} was not run: {problem}. Write it again, complete and correct: {signature(spec)}"


def same_mistake_error(call: ToolCall, problems: Sequence[Problem]) -> str:
    """Return the short error for a call that repeats a mistake already reported to the model."""
    where = ", ".join(dict.fromkeys(problem.path or "arguments" for problem in problems))
    wrong = f" (wrong: {where})" if where else ""
    return (
        f"{short_name(call.name)} was not run: this very call was not valid before, and nothing about it has changed"
        f"{wrong}. Correct it as you were told, use another tool, or answer without it."
    )


def gate_denied_text(reason: str, *, by: str) -> str:
    """Return the result, for users, of a gate's command that was denied; `by` is empty if no user could be asked."""
    who = f"by {by}" if by else "because no user could be asked"
    return f"Its command was denied {who}.{reason_sentence(reason)} It did not run, so the answer is not accepted."


def denied_text(reason: str, *, by_user: bool = True) -> str:
    """Return the result of a call that the user rejected, or that was denied because there was no user to ask."""
    why = reason_sentence(reason)
    who = "Denied by the user." if by_user else "Denied; no user was asked."
    return f"{who}{why} Do not ask for the same again; continue without it, or ask the user."


def lost_calls_notice(tools: Sequence[str]) -> str:
    """Return the notice for the user about calls that an earlier turn left without a result."""
    names = ", ".join(dict.fromkeys(short_name(tool) or "(no name)" for tool in tools))
    what = "A call has" if len(tools) == 1 else f"{len(tools)} calls have"
    return (
        f"{what} no recorded result ({names}): whether it took effect is not known, and the model is told so. "
        "It is not run again."
    )


def refused_error(facts: CallFacts) -> str:
    """Return the error for a target that no approval can permit."""
    return f"Refused: {facts.refusal.rstrip('.')}."


def edited_note(arguments: str, *, ran: bool) -> str:
    """Return the line before the result of a call whose arguments the user changed."""
    if not ran:
        return f"(The user changed the arguments. Not run with: {arguments})\n"
    return f"(The user changed the arguments before approving. Run with: {arguments})\n"


def gathered_answer(limit: str, results: Sequence[tuple[str, str]]) -> str:
    """Return the answer for a turn whose closing call gave none: the limit and the results, cut to size."""
    head = f"{limit} Here is what was gathered:"
    most = _MAX_GATHERED_CHARS
    parts = [f"**{tool}**: {content[:most]}{'…' if len(content) > most else ''}" for tool, content in results]
    return "\n\n".join([head, *parts])


def _list_tools(offered: Sequence[str]) -> str:
    if not offered:
        return " No tools are on offer."
    more = f" and {len(offered) - _MAX_NAMES} more" if len(offered) > _MAX_NAMES else ""
    return f" Tools on offer: {', '.join(offered[:_MAX_NAMES])}{more}."


def _nearest_names(name: str, offered: Sequence[str]) -> list[str]:
    """Return up to three names on offer that resemble `name` or its last part, ignoring case and the order of words."""
    folded = {candidate.casefold(): candidate for candidate in offered}
    wanted = short_name(name).casefold()
    tried = dict.fromkeys([wanted, *re.split(r"[.:/]", wanted)[-1:]])
    words = sorted(wanted.split("_"))
    found = [candidate for candidate in folded if sorted(candidate.split("_")) == words]
    found += [close for word in tried for close in get_close_matches(word, folded, n=3, cutoff=0.5)]
    return [folded[close] for close in dict.fromkeys(found)][:3]


def short_name(name: str) -> str:
    """Return a tool's name as a model wrote it, cut to a length that fits into a sentence."""
    return cut(name, most=_MAX_NAME_CHARS)


def reason_sentence(reason: str) -> str:
    """Return a reason as a sentence to append; empty without one."""
    end = "" if reason.endswith((".", "!", "?", "\n")) else "."
    return f" Reason: {reason}{end}" if reason else ""


NEARLY_FULL_ADVICE = "A summary (/compact in the chat), a new session, or a model with a larger context makes room."
"""Also printed by ``-p``, which has no commands."""


def nearly_full_notice(tokens: int, window: int, *, model: str) -> str:
    """Return the notice that the session nearly fills the context of its model, or no longer fits."""
    if tokens > window:
        return f"About {tokens:,} tokens are sent, and {model} takes {window:,}: it may refuse them or forget a part."
    return f"The session fills about {tokens * 100 // window} % of the context of {model} ({window:,} tokens)."


def left_out_notice(results: Sequence[ToolMessage], *, model: str) -> str:
    """Return the notice that tool results are left out of the request or shortened."""
    tools = ", ".join(dict.fromkeys(result.tool for result in results))
    size = sum(len(result.content) for result in results)
    does, is_ = ("does", "is") if len(results) == 1 else ("do", "are")
    return (
        f"{plural(len(results), 'tool result')} ({tools}, {size:,} characters) {does} not fit into the context of "
        f"{model} any more and {is_} left out or shortened in what it sees; the session keeps all of it."
    )


ASSUMED_ADVICE = f"How many tokens the model takes is unknown; {ASSUMED_WINDOW:,} are assumed: see context_window."
"""Advice for a notice of `left_out_notice`."""
SAME_CALL_UNKNOWN = "the same call was made before, and it is not known whether it took effect"
"""Reason for asking about a call that would need no approval otherwise."""
_SECOND_RUN = (
    "(An earlier run of this call was interrupted and may have taken effect; the user had it run again. "
    "What follows is from the second run.)\n"
)


def unknown_result(interruption: Interruption | None, more: str = "") -> ToolResult:
    """Return a result with outcome unknown; `more` is added to its text, such as a reason that the user gave."""
    text = f"{UNKNOWN_OUTCOME} {more}".strip()
    return ToolResult(outcome=Outcome.UNKNOWN, content=_with_output(text, interruption))


def done_result(interruption: Interruption | None, outcome: Outcome, note: str) -> ToolResult:
    """Return a result that says that the user confirmed the effect."""
    text = f"{MARKED_DONE} {note}".strip()
    facts = ResultFacts(source=ResultSource.USER)
    return ToolResult(outcome=outcome, content=_with_output(text, interruption), facts=facts)


def repetition_failed_result(interruption: Interruption, why: str) -> ToolResult:
    """Return a result for a call that the user wanted run again and that cannot be."""
    return unknown_result(interruption, f"The user wanted it run again, which was not possible: {why}")


def mark_second_run(interruption: Interruption | None, result: ToolResult) -> ToolResult:
    """Return `result`, marked as the result of a second run if `interruption` is not None."""
    return result if interruption is None else replace(result, content=_SECOND_RUN + result.content)


def is_outcome_unknown(messages: Iterable[Message], tool: str, arguments: str) -> bool:
    """Return True if the outcome of the last such call (same tool and arguments) is unknown."""
    made = [m for m in messages if isinstance(m, ToolMessage) and (m.tool, m.arguments) == (tool, arguments)]
    return bool(made) and made[-1].outcome is Outcome.UNKNOWN


def _with_output(text: str, interruption: Interruption | None) -> str:
    if interruption is None or not interruption.output.strip():
        return text
    return f"{text}\nIts output up to the interruption:\n{interruption.output}"
