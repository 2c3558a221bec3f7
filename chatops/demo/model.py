"""The built-in demo model: it uses the same SDK client as all others, over a transport inside the process.

It is deterministic, follows `demo.plan` and `demo.workflows`, and writes "(demo)" in everything it says, so that it is
never taken for a real model. Importing this module imports httpx2.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import httpx2

from chatops.demo.chat import HELP, OVER, Turn, denied, missing_tool, quoted, read_turn, summary
from chatops.demo.plan import DemoReply, plan
from chatops.demo.workflows import play
from chatops.models.chat import OpenAIChat
from chatops.models.client import AGENT
from chatops.models.keys import NO_KEY, Secret
from chatops.models.memory import InMemoryTextStore
from chatops.policy.registry import ModelSpec

URL = "http://demo.invalid/v1"
MODEL = "chatops-demo"
PIECE = 14
"""Number of characters per chunk."""
PAUSE_S = 0.004


def answer(turn: Turn) -> DemoReply:
    """Return the demo's next answer in this turn: the calls of the next round, or the final text."""
    rounds = plan(turn.message)
    if not rounds:
        return DemoReply(text=HELP)
    if len(turn.rounds) >= len(rounds) or turn.may_not_call:
        return DemoReply(text=_last_word(turn, unfinished=len(turn.rounds) < len(rounds)))
    wanted = rounds[len(turn.rounds)]
    offered = tuple(action for action in wanted if action.tool in turn.tools)
    missing = sorted({action.tool for action in wanted} - set(turn.tools))
    if not offered:
        return DemoReply(text="\n\n".join([*(quoted(result) for result in turn.results()), missing_tool(missing)]))
    names = " and ".join(action.tool for action in offered)
    without = f" {missing_tool(missing)}" if missing else ""
    return DemoReply(text=f"(demo) I will call {names}.{without}", calls=offered)


def _last_word(turn: Turn, *, unfinished: bool) -> str:
    lines = []
    for result in turn.results():
        refusal = denied(result)
        lines.append(refusal if refusal else quoted(result))
    if unfinished:
        lines.append(OVER)
    return "(demo) " + "\n\n".join(lines) if lines else HELP


class DemoTransport(httpx2.AsyncBaseTransport):
    """Transport that answers chat completions and the list of models inside the process."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer like a server; `stream` in the request selects the form."""
        if request.method == "GET":
            return httpx2.Response(200, json={"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        body = json.loads(await request.aread())
        return httpx2.Response(
            200,
            headers={"content-type": "text/event-stream"},
            stream=_Pieces(self._reply(body), sent=len(request.content)),
        )

    def _reply(self, body: dict[str, object]) -> DemoReply:
        if text := summary(body):
            return DemoReply(text=text)
        return play(body) or answer(read_turn(body))


class _Pieces(httpx2.AsyncByteStream):
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
    for start in range(0, len(answer.text), PIECE):
        yield chunk({"content": answer.text[start : start + PIECE]})
    written = len(answer.text)
    for index, action in enumerate(answer.calls):
        arguments = json.dumps(dict(action.arguments), ensure_ascii=False)
        written += len(arguments)
        opened = {"index": index, "id": f"demo_{index}", "type": "function"}
        yield chunk({"tool_calls": [{**opened, "function": {"name": action.tool, "arguments": ""}}]})
        for start in range(0, len(arguments), 4 * PIECE):
            part = {"arguments": arguments[start : start + 4 * PIECE]}
            yield chunk({"tool_calls": [{"index": index, "function": part}]})
    yield chunk({}, "tool_calls" if answer.calls else "stop")
    # Estimated tokens: four characters per token.
    tokens = {"prompt_tokens": sent // 4 + 1, "completion_tokens": written // 4 + 1}
    yield {
        "id": "demo",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": MODEL,
        "choices": [],
        "usage": tokens,
    }


def demo_chat(spec: ModelSpec) -> OpenAIChat:
    """Return the demo model behind the client that is used for real servers."""

    async def no_key() -> Secret:
        return Secret(NO_KEY)

    # Most settings of the registry are dropped: the demo has no server whose refusals or address could matter.
    plain = ModelSpec(name=spec.name, type=spec.type, label=spec.label, model_name=MODEL, price=spec.price)
    return OpenAIChat(
        plain, key=no_key, agent=AGENT, remembered=InMemoryTextStore(), url=URL, transport=DemoTransport()
    )
