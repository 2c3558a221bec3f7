"""Input and sentences of the demo model: what it reads from a request, and its fixed phrases."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from chatops.domain.wording import cut, one_line
from chatops.engine.feedback import EMPTY_RESULT
from chatops.models.server_json import as_list, as_object, as_text
from chatops.runtime.summary import INSTRUCTION

HELP = (
    "(demo) I am the built-in demo, not a language model: I only understand a few commands, so that you can see how "
    "tools and approvals work. Try:\n\n"
    "- read FILE · list DIR · search TEXT\n"
    "- run `COMMAND` · write TEXT to FILE · replace A with B in FILE\n"
    "- fetch URL · search the web for TEXT\n"
    "- use TOOL {JSON}: any other tool, such as one of an MCP server\n\n"
    'Join them with "and" (side by side) or "then" (one after the other). '
    "To talk to a real model, leave with ctrl+q and run: chatops connect URL"
)
OVER = "I stop here: no further tool calls are allowed in this turn."
QUOTED_LINES = 3
"""Number of non-blank lines quoted from a result."""
_ASKED, _WIDEST = 200, 200
_EDITED = "(The user changed the arguments"
"""Beginning of a result whose call the user has edited."""
_DENIED = re.compile(r"\s*(denied|not permitted|refused|rejected)\b", re.IGNORECASE)
_NO_REASON = "Denied"
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
        if message.get("role") == "user" and _typed(as_text(message.get("content"))):
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
        message=_typed(as_text(messages[place].get("content"))) if place >= 0 else "",
        rounds=tuple(rounds),
        tools=frozenset(as_text(as_object(as_object(tool).get("function")).get("name")) for tool in tools),
        may_not_call=body.get("tool_choice") == "none",
    )


def _typed(content: str) -> str:
    """Return a message without the paragraphs that the program has put before it; empty if it is the program's."""
    while content.startswith(OURS):
        content = content.partition("\n\n")[2]
    return content


def missing_tool(names: list[str]) -> str:
    """Return a sentence saying that this role lacks tools, and how to switch the role."""
    listing = " and ".join(names)
    return (
        f"(demo) I would need {listing}, which this role does not have. "
        "Another role may (ctrl+r or --role); chatops roles show says what a role lacks."
    )


def denied(result: Result) -> str:
    """Return an acknowledgement with the reason if the call was denied; else an empty string."""
    content, _ = _without_edit_note(result.content)
    if not _DENIED.match(content):
        return ""
    reason = _REASON.search(content)
    if reason:
        why = f" because: {reason.group(1).strip().rstrip('.')}"
    else:
        # What follows a denial without a reason is for the model only.
        why = "" if content.startswith(_NO_REASON) else f" ({_lines(content)[0]})"
    return f"{result.tool} was denied{why}. I continue without it."


def quoted(result: Result) -> str:
    """Return the first lines of a result as indented code, which keeps their own indentation and blank lines."""
    content, edited = _without_edit_note(result.content)
    found = _lines(content)
    if not found or content == EMPTY_RESULT:
        return f"{result.tool} gave no output."
    with_text = [at for at, line in enumerate(found) if line]
    end = with_text[QUOTED_LINES - 1] + 1 if len(with_text) > QUOTED_LINES else len(found)
    shown = found[:end] + (["…"] if end < len(found) else [])
    changed = ", with the arguments that you changed" if edited else ""
    return "\n".join([f"{result.tool} gave{changed}:\n", *(f"    {line}".rstrip() for line in shown)])


def summary(body: Mapping[str, object]) -> str:
    """Return a summary if the request ends with chatops' question for one; else an empty string."""
    said = [_typed(text) for text in _texts_of_user(body)]
    if not said or not said[-1].startswith(INSTRUCTION):
        return ""
    return "\n".join(["(demo) You asked me:\n", *(f"- {one_line(text, most=_ASKED)}" for text in said[:-1] if text)])


def _texts_of_user(body: Mapping[str, object]) -> list[str]:
    messages = [as_object(message) for message in as_list(body.get("messages"))]
    return [as_text(message.get("content")) for message in messages if message.get("role") == "user"]


def _without_edit_note(content: str) -> tuple[str, bool]:
    """Return a result without its first line, which holds JSON, if that says that the user changed the arguments."""
    note, _, rest = content.partition("\n")
    return (rest, True) if note.startswith(_EDITED) else (content, False)


def _lines(content: str) -> list[str]:
    return [cut(line.rstrip(), most=_WIDEST) for line in content.strip("\r\n").splitlines()] if content.strip() else []
