"""The built-in demo model: it uses the same SDK client as all others, over a transport inside the process.

It is deterministic, follows `demo.plan`, and writes "(demo)" in everything it says, so that it is never taken for a
real model. Importing this module imports httpx2.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping

import httpx2

from chatops.demo.plan import plan
from chatops.demo.scenes import OURS, CallMade, DemoReply, offered_tools, play, rounds_of
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import cut, one_line
from chatops.engine.feedback import EMPTY_RESULT
from chatops.models.chat import OpenAIChat
from chatops.models.client import AGENT
from chatops.models.keys import NO_KEY, Secret
from chatops.models.memory import InMemoryTextStore
from chatops.models.server_json import as_list, as_object, as_text
from chatops.policy.registry import ModelSpec
from chatops.runtime.user_actions import SUMMARY_INSTRUCTION

URL = "http://demo.invalid/v1"
MODEL = "chatops-demo"
CHUNK = 14
"""Characters of text per chunk, about three words, so that the text appears as that of a real model does."""
PAUSE_S = 0.004
"""Seconds between two chunks. A longer pause makes the demo, and tests with it, slower to watch."""
HELP = (
    "(demo) I am the built-in demo, not a language model: I only understand a few commands, so that you can see how "
    "tools and approvals work. Try:\n\n"
    "- read FILE · list DIR · search TEXT\n"
    "- run `COMMAND` · write TEXT to FILE · replace A with B in FILE\n"
    "- fetch URL · search the web for TEXT\n"
    "- use TOOL {JSON}: any other tool, such as one of an MCP server\n\n"
    'Join them with "and" (side by side) or "then" (one after the other). '
    "To talk to a real model, leave with /quit and run: chatops connect URL"
)
STOPS_HERE = "I stop here: no further tool calls are allowed in this turn."
QUOTED_LINES = 3
"""Number of non-blank lines quoted from a result."""
_MAX_ASKED = 200
"""Characters of each earlier message that a summary quotes."""
_MAX_LINE = 200
"""Characters of a line that is quoted from a result."""
_EDITED = "(The user changed the arguments"
"""Beginning of a result whose call the user has edited."""
_DENIED = re.compile(r"\s*(denied|not permitted|refused|rejected)\b", re.IGNORECASE)
_DENIED_WITHOUT_REASON = "Denied"
_REASON = re.compile(r"reason:\s*(.+?)(?=\s+Do not (?:ask|try)\b|$)", re.IGNORECASE | re.DOTALL)


@frozen_dataclass
class Turn:
    """The user's last message and everything since."""

    message: str
    rounds: tuple[tuple[CallMade, ...], ...]
    tools: frozenset[str]
    may_not_call: bool

    def results(self) -> list[CallMade]:
        """Return all results of this turn, in order."""
        return [result for round_ in self.rounds for result in round_]


def read_turn(body: Mapping[str, object]) -> Turn:
    """Return the current turn from the JSON of a request."""
    messages = [as_object(message) for message in as_list(body.get("messages"))]
    typed = {
        index: text
        for index, message in enumerate(messages)
        if message.get("role") == "user" and (text := _typed_part(as_text(message.get("content"))))
    }
    last = max(typed, default=None)
    return Turn(
        message=typed[last] if last is not None else "",
        rounds=rounds_of(messages[last + 1 :] if last is not None else messages),
        tools=offered_tools(body),
        may_not_call=body.get("tool_choice") == "none",
    )


def _typed_part(content: str) -> str:
    """Return a message without the paragraphs that the program has put before it; empty if it is the program's."""
    while content.startswith(OURS):
        _, _, content = content.partition("\n\n")
    return content


def missing_tool(names: list[str]) -> str:
    """Return a sentence saying that this role lacks tools, and how to switch the role."""
    listing = " and ".join(names)
    return (
        f"(demo) I would need {listing}, which this role does not have. "
        "Another role may (/role or --role); chatops roles show says what a role lacks."
    )


def denial_reply(result: CallMade) -> str:
    """Return an acknowledgement with the reason if the call was denied; else an empty string."""
    content = _without_edit_note(result.content)
    if not _DENIED.match(content):
        return ""
    reason = _REASON.search(content)
    if reason:
        why = f" because: {reason.group(1).strip().rstrip('.')}"
    else:
        # What follows a denial without a reason is for the model only.
        why = "" if content.startswith(_DENIED_WITHOUT_REASON) else f" ({_lines(content)[0]})"
    return f"{result.tool} was denied{why}. I continue without it."


def quote_result(result: CallMade) -> str:
    """Return the first lines of a result as indented code, which keeps their own indentation and blank lines."""
    content = _without_edit_note(result.content)
    found = _lines(content)
    if not found or content == EMPTY_RESULT:
        return f"{result.tool} gave no output."
    with_text = [at for at, line in enumerate(found) if line]
    end = with_text[QUOTED_LINES - 1] + 1 if len(with_text) > QUOTED_LINES else len(found)
    shown = found[:end] + (["…"] if end < len(found) else [])
    changed = ", with the arguments that you changed" if content != result.content else ""
    return "\n".join([f"{result.tool} gave{changed}:\n", *(f"    {line}".rstrip() for line in shown)])


def summarise(body: Mapping[str, object]) -> str:
    """Return a summary if the request ends with chatops' question for one; else an empty string."""
    messages = map(as_object, as_list(body.get("messages")))
    said = [_typed_part(as_text(message.get("content"))) for message in messages if message.get("role") == "user"]
    if not said or not said[-1].startswith(SUMMARY_INSTRUCTION):
        return ""
    return "\n".join(
        ["(demo) You asked me:\n", *(f"- {one_line(text, most=_MAX_ASKED)}" for text in said[:-1] if text)]
    )


def _without_edit_note(content: str) -> str:
    """Return a result without its first line, which holds JSON, if that says that the user changed the arguments."""
    if not content.startswith(_EDITED):
        return content
    _, _, result = content.partition("\n")
    return result


def _lines(content: str) -> list[str]:
    return (
        [cut(line.rstrip(), most=_MAX_LINE) for line in content.strip("\r\n").splitlines()] if content.strip() else []
    )


def next_reply(turn: Turn) -> DemoReply:
    """Return the demo's next answer in this turn: the calls of the next round, or the final text."""
    rounds = plan(turn.message)
    if not rounds:
        return DemoReply(text=HELP)
    if len(turn.rounds) >= len(rounds) or turn.may_not_call:
        return DemoReply(text=_final_text(turn, unfinished=len(turn.rounds) < len(rounds)))
    wanted = rounds[len(turn.rounds)]
    offered = tuple(action for action in wanted if action.tool in turn.tools)
    missing = sorted({action.tool for action in wanted} - set(turn.tools))
    if not offered:
        return DemoReply(
            text="\n\n".join([*(quote_result(result) for result in turn.results()), missing_tool(missing)])
        )
    names = " and ".join(action.tool for action in offered)
    without = f" {missing_tool(missing)}" if missing else ""
    return DemoReply(text=f"(demo) I will call {names}.{without}", calls=offered)


def _final_text(turn: Turn, *, unfinished: bool) -> str:
    lines = [denial_reply(result) or quote_result(result) for result in turn.results()]
    if unfinished:
        lines.append(STOPS_HERE)
    return "(demo) " + "\n\n".join(lines) if lines else HELP


class DemoTransport(httpx2.AsyncBaseTransport):
    """Transport that answers chat completions and the list of models inside the process."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a GET with the list of models, and anything else with a reply that streams."""
        if request.method == "GET":
            return httpx2.Response(200, json={"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        body = json.loads(await request.aread())
        return httpx2.Response(
            200,
            headers={"content-type": "text/event-stream"},
            stream=_ChunkStream(self._reply(body), sent=len(request.content)),
        )

    def _reply(self, body: dict[str, object]) -> DemoReply:
        if text := summarise(body):
            return DemoReply(text=text)
        # Steps of a workflow have scenes of their own.
        return play(body) or next_reply(read_turn(body))


class _ChunkStream(httpx2.AsyncByteStream):
    def __init__(self, answer: DemoReply, *, sent: int) -> None:
        self._answer = answer
        self._sent = sent

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in chunks(self._answer, sent=self._sent):
            yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
            await asyncio.sleep(PAUSE_S)
        yield b"data: [DONE]\n\n"


def chunks(answer: DemoReply, *, sent: int) -> Iterator[dict[str, object]]:
    """Yield the reply as a server streams it: text in small pieces, calls in fragments, usage at the end."""

    def chunk(delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "demo", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    for start in range(0, len(answer.text), CHUNK):
        yield chunk({"content": answer.text[start : start + CHUNK]})
    written = len(answer.text)
    for index, action in enumerate(answer.calls):
        arguments = json.dumps(dict(action.arguments), ensure_ascii=False)
        written += len(arguments)
        opened = {"index": index, "id": f"demo_{index}", "type": "function"}
        yield chunk({"tool_calls": [{**opened, "function": {"name": action.tool, "arguments": ""}}]})
        for start in range(0, len(arguments), 4 * CHUNK):
            part = {"arguments": arguments[start : start + 4 * CHUNK]}
            yield chunk({"tool_calls": [{"index": index, "function": part}]})
    yield chunk({}, "tool_calls" if answer.calls else "stop")
    # Estimated tokens: four characters per token.
    tokens = {"prompt_tokens": sent // 4 + 1, "completion_tokens": written // 4 + 1}
    yield {**chunk({}), "choices": [], "usage": tokens}


def demo_chat(spec: ModelSpec) -> OpenAIChat:
    """Return the demo model behind the client that is used for real servers."""

    async def no_key() -> Secret:
        return Secret(NO_KEY)

    # Most settings of the registry are dropped: the demo has no server whose refusals or address could matter.
    plain = ModelSpec(
        name=spec.name, type=spec.type, label=spec.label, model_name=MODEL, price=spec.price, images=False
    )
    return OpenAIChat(
        plain, key=no_key, agent=AGENT, remembered=InMemoryTextStore(), url=URL, transport=DemoTransport()
    )
