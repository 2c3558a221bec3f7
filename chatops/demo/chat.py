"""Input and sentences of the demo model: what it reads from a request, and its fixed phrases."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from chatops.models.server_json import as_list, as_object, as_text

HELP = (
    "(demo) I am the built-in demo, not a language model: I only understand a few commands, so that you can see how "
    "tools and approvals work. Try:\n\n"
    "- read FILE · list DIR · search TEXT\n"
    "- run `COMMAND` · write TEXT to FILE · replace A with B in FILE\n"
    "- fetch URL · search the web for TEXT\n\n"
    'Join them with "and" (side by side) or "then" (one after the other). '
    "To talk to a real model, leave with ctrl+c twice and run: chatops connect URL"
)
OVER = "I stop here: no further tool calls are allowed in this turn."
QUOTED_LINES = 3
_DENIED = re.compile(r"\s*(denied|not permitted|refused|rejected)\b", re.IGNORECASE)
_REASON = re.compile(r"reason:\s*(.+?)(?=\s+Do not (?:ask|try)\b|$)", re.IGNORECASE | re.DOTALL)
OURS = "[chatops]"
"""Prefix of messages that the program sends in the role of the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A call that was made, and its result."""

    tool: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The user's last message and everything since."""

    message: str
    rounds: tuple[tuple[Result, ...], ...]
    """The rounds in which every call has been answered."""
    tools: frozenset[str]
    may_not_call: bool

    def results(self) -> list[Result]:
        """Return all results of this turn, in order."""
        return [result for round_ in self.rounds for result in round_]


def read_turn(body: Mapping[str, object]) -> Turn:
    """Return the current turn from the JSON of a request."""
    messages = [as_object(message) for message in as_list(body.get("messages"))]
    place = -1
    for index, message in enumerate(messages):
        # The program also sends messages in the role of the user, and marks them.
        if message.get("role") == "user" and not as_text(message.get("content")).startswith(OURS):
            place = index
    rounds: list[tuple[Result, ...]] = []
    answers = {as_text(m.get("tool_call_id")): as_text(m.get("content")) for m in messages if m.get("role") == "tool"}
    for message in messages[place + 1 :]:
        calls = [as_object(call) for call in as_list(message.get("tool_calls"))]
        if calls:
            rounds.append(
                tuple(
                    Result(
                        tool=as_text(as_object(call.get("function")).get("name")),
                        content=answers.get(as_text(call.get("id")), ""),
                    )
                    for call in calls
                )
            )
    tools = as_list(body.get("tools"))
    return Turn(
        message=as_text(messages[place].get("content")) if place >= 0 else "",
        rounds=tuple(rounds),
        tools=frozenset(as_text(as_object(as_object(tool).get("function")).get("name")) for tool in tools),
        may_not_call=body.get("tool_choice") == "none",
    )


def missing_tool(names: list[str]) -> str:
    """Return a sentence saying that this role lacks tools, and how to switch the role."""
    listing = " and ".join(names)
    return (
        f"(demo) I would need {listing}, which this role does not have. "
        "Another role may (ctrl+r or --role); chatops roles show says what a role lacks."
    )


def denied(result: Result) -> str:
    """Return an acknowledgement with the reason if the call was denied; else an empty string."""
    if not _DENIED.match(result.content):
        return ""
    reason = _REASON.search(result.content)
    why = f"because: {reason.group(1).strip().rstrip('.')}" if reason else f"({_first_lines(result.content, lines=1)})"
    return f"{result.tool} was denied {why}. I continue without it."


def quoted(result: Result) -> str:
    """Return the first lines of a result."""
    lines = _first_lines(result.content, lines=QUOTED_LINES)
    return f"{result.tool} gave:\n\n{lines}" if lines else f"{result.tool} gave nothing back."


def _first_lines(content: str, *, lines: int) -> str:
    found = [line.rstrip()[:200] for line in content.splitlines() if line.strip()]
    more = "  \n> …" if len(found) > lines > 1 else ""
    if lines == 1:
        return found[0] if found else ""
    # Two spaces end a line in Markdown; without them a list of files would be shown as one paragraph.
    return "  \n".join(f"> {line}" for line in found[:lines]) + more
