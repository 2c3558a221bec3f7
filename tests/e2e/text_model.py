"""A server without a parser for tool calls: what its model writes arrives as text, in the model's own spelling."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.support.fake_openai import Raw, SeenRequest, Step, Wait, delta, sse

Arguments = Mapping[str, str]
PIECE = 5
"""Characters in a chunk: less than any marker has."""


def _hermes(name: str, arguments: Arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _qwen3_xml(name: str, arguments: Arguments) -> str:
    given = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"


def _harmony(name: str, arguments: Arguments) -> str:
    return (
        "<|channel|>analysis<|message|>They want it.<|end|>"
        f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        f"{json.dumps(arguments)}<|call|>"
    )


def _llama3_json(name: str, arguments: Arguments) -> str:
    return json.dumps({"name": name, "parameters": arguments})


def _deepseek_v31(name: str, arguments: Arguments) -> str:
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json.dumps(arguments)}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """Spelling of one family of models."""

    call: Callable[[str, Arguments], str]
    before: tuple[str, str] = ("", "\n")
    """Around what it says before a call."""
    lead: str = ""
    """Opening of a call that follows words, if it is not part of the call."""
    said: tuple[str, str] = ("", "")
    """Around an answer."""
    model: str = "fake-model"
    """A name by which servers know such models."""
    markup: tuple[str, ...] = ()
    """Strings that only its markup has."""

    def asks(self, name: str, *, words: str = "", **arguments: str) -> str:
        """A reply that calls one tool, after some words or none."""
        if not words:
            return self.call(name, arguments)
        before, after = self.before
        return f"{before}{words}{after}{self.lead}{self.call(name, arguments)}"

    def answers(self, text: str) -> str:
        """A reply of words."""
        before, after = self.said
        return f"{before}{text}{after}"


SPELLINGS: Mapping[str, Spelling] = {
    "hermes": Spelling(call=_hermes, model="qwen3:8b", markup=("tool_call>", '"arguments"')),
    "qwen3_xml": Spelling(
        call=_qwen3_xml, model="Qwen3-Coder-30B-A3B", markup=("tool_call>", "<function", "parameter>")
    ),
    "harmony": Spelling(
        call=_harmony,
        before=("<|channel|>commentary<|message|>", "<|end|><|start|>assistant"),
        said=("<|channel|>final<|message|>", "<|return|>"),
        model="openai/gpt-oss-20b",
        markup=("<|", "|>", "to=functions", "commentary"),
    ),
    "llama3_json": Spelling(
        call=_llama3_json,
        lead="<|python_tag|>",
        model="llama3.1:8b",
        markup=("python_tag", '"parameters"', '{"name'),
    ),
    "deepseek_v31": Spelling(call=_deepseek_v31, model="deepseek-v3.1", markup=("｜", "tool▁")),
}


def streamed(text: str, *, finish: str = "stop", hold: threading.Event | None = None, at: int = 0) -> Raw:
    """`text` in small chunks; with `hold`, nothing more comes from its character `at` on until that is set."""

    def steps() -> Iterator[Step]:
        yield sse(delta("", role="assistant"), done=False)
        for start in range(0, len(text), PIECE):
            if hold is not None and start <= at < start + PIECE:
                yield Wait(event=hold)
            yield sse(delta(text[start : start + PIECE]), done=False)
        yield sse(delta(finish=finish))

    return Raw(steps=tuple(steps()))


def replies_so_far(request: SeenRequest) -> int:
    """Return the number of the model's messages in the request."""
    return sum(message["role"] == "assistant" for message in request.messages)
