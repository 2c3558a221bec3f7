"""How a model is told of its tools and how its calls are read: `tool_format` of the registry, and what was learned.

`auto` sends tools in their own field. Where a server refuses that, or the tokens it counts show that the model never
saw them, they are described in the prompt instead, in the format that the model's family was trained to write. Each
change is said to the person and remembered for the endpoint and the model.

Counts are weak evidence: mock servers return a fixed number, and gateways fill in one of their own that leaves the
tools out. Two counts have to agree, a count with cached tokens or from LiteLLM is never used, and the conclusion is
withdrawn when the model makes a native call although no tools were sent in their field.
"""

from dataclasses import dataclass

from chatops.dialects.families import Family, family_of
from chatops.dialects.writing import WRITABLE
from chatops.domain.model import ModelReply
from chatops.models.memory import PROMPTED, Calling, Count, EndpointMemory, Learned
from chatops.policy.registry import HostType, ModelSpec

NATIVE = "native"
"""The value of `tool_format` that allows nothing but the field that the API has for tools."""
SMALLEST_TOOLS = 400
"""Bytes of tools from which the count of tokens says anything about them."""
BYTES_PER_TOKEN = 10
"""More than any tokenizer gets into one token of JSON or prose on average: fewer tokens than that were not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InField:
    """Tools travel in the field that the API has for them."""

    reads_text: bool
    """Calls in the text count, where there are none in their own field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InPrompt:
    """Tools are described in the system prompt; calls and results travel as text of this format."""

    format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """The model is not told of its tools: the server refuses them, and the registry wants them in no other way."""


Manner = InField | InPrompt | Withheld


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another manner, and what the person is told of it."""

    manner: Manner
    text: str


def is_free(spec: ModelSpec) -> bool:
    """Whether the registry leaves it to us how the model is told of its tools; a format nobody knows does too."""
    return spec.tool_format != NATIVE and spec.tool_format not in WRITABLE


class FormatChoice:
    """Chooses the manner for one model at one endpoint."""

    def __init__(self, spec: ModelSpec, *, memory: EndpointMemory, host: str) -> None:
        """`host` is the server's name in what the person is told."""
        self._spec = spec
        self._memory = memory
        self._host = host
        self._withheld = False
        self.family: Family = family_of(spec.model_name)

    def manner(self) -> Manner:
        """How to ask now."""
        if self._spec.tool_format in WRITABLE:
            return InPrompt(format=self._spec.tool_format)
        if not is_free(self._spec):
            return Withheld() if self._withheld else InField(reads_text=False)
        learned = self._learned()
        if learned is not None and learned.calling in PROMPTED:
            return InPrompt(format=learned.format if learned.format in WRITABLE else self.family.prompted)
        return InField(reads_text=True)

    def after_refusal(self, manner: Manner) -> Change | None:
        """What to try when the server does not take tools in their own field; None: they were not there."""
        if not isinstance(manner, InField):
            return None
        if not is_free(self._spec):
            return Change(
                manner=Withheld(),
                text=f"{self._host} does not take tools, and tool_format is native, so {self._name} is asked without "
                'any. With "tool_format": "auto" they would be described in its prompt.',
            )
        return Change(
            manner=InPrompt(format=self.family.prompted),
            text=f"{self._host} does not take tools for {self._name}, so they are described in its prompt "
            f"({self.family.prompted}). {self._reset}",
        )

    def worked(self, manner: Manner) -> None:
        """A request in this manner was answered after another one had been refused."""
        if manner == self.manner():
            return
        match manner:
            case InPrompt(format=format_) if is_free(self._spec):
                self._memory.learn(Learned(calling=Calling.REFUSED, format=format_))
            case Withheld():
                # Not kept: each start asks again, and says so again.
                self._withheld = True

    def heard(self, reply: ModelReply, manner: Manner, *, text_format: str, tools: int, rest: int) -> str:
        """Learn from a reply; what the person is to be told of it, or nothing.

        `text_format` is that of calls that were read out of the text. `tools` is the size of that field in the request
        (0: it was not sent), `rest` that of the messages, both in bytes.
        """
        known = self._learned()
        if is_free(self._spec) and known is not None and known.calling is Calling.IGNORED:
            return self._after_native_call() if reply.calls and not text_format else ""
        if manner != InField(reads_text=True) or not tools:
            return ""
        if text_format:
            self._memory.learn(Learned(calling=Calling.TEXT, format=text_format))
            if known is not None and known.calling is Calling.TEXT:
                return ""
            return f"{self._host} gives the calls of {self._name} as text ({text_format}); they are read out of it."
        if reply.calls:
            self._memory.learn(Learned(calling=Calling.NATIVE))
            return ""
        if known is not None or self._counts_for_others:
            return ""
        if not _without_tools(reply, tools=tools, rest=rest):
            self._memory.keep_count(None)
            return ""
        count = Count(tokens=reply.usage.input_tokens if reply.usage is not None else 0, size=rest)
        before = self._memory.count()
        if before is None or not _agree(before, count):
            self._memory.keep_count(count)
            return ""
        self._memory.keep_count(None)
        self._memory.learn(Learned(calling=Calling.IGNORED, format=self.family.prompted, by_count=True))
        return (
            f"{self._host} took the tools and did not show them to {self._name}; from the next request on they are "
            f"described in its prompt ({self.family.prompted}). {self._reset}"
        )

    def _learned(self) -> Learned | None:
        known = self._memory.learned()
        # Counted before anyone said that this is LiteLLM.
        return None if known is not None and known.by_count and self._counts_for_others else known

    @property
    def _counts_for_others(self) -> bool:
        """Return True for LiteLLM: where its provider does not count, it fills in a count of its own without tools."""
        return self._spec.host_type is HostType.LITELLM

    def _after_native_call(self) -> str:
        """Withdraw that the server hides tools."""
        self._memory.learn(Learned(calling=Calling.NATIVE))
        return (
            f"{self._name} called a tool in the API's own field; from the next request on tools are sent there again."
        )

    @property
    def _name(self) -> str:
        return self._spec.label or self._spec.name

    @property
    def _reset(self) -> str:
        return f"After a change of the server, look again: chatops doctor --model {self._spec.name}"


def _without_tools(reply: ModelReply, *, tools: int, rest: int) -> bool:
    """Return True if the tokens that the server counted cannot include the tools.

    They have to include the rest of the request: a server that counts less than that counts something else, such as
    only what was not in its cache.
    """
    if tools < SMALLEST_TOOLS or reply.usage is None or reply.usage.cached_tokens:
        return False
    return rest / BYTES_PER_TOKEN <= reply.usage.input_tokens < tools / BYTES_PER_TOKEN


def _agree(before: Count, now: Count) -> bool:
    """Return True if the request grew and its count grew with it: a fixed number counts nothing."""
    grown = now.size - before.size
    return grown > 0 and now.tokens - before.tokens >= grown / BYTES_PER_TOKEN
