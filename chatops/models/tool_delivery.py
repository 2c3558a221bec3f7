"""Delivery of tools to a model, and reading of its calls: `tool_format` of the registry, and experience.

`auto` sends tools in their own field. They are described in the prompt instead, in the format that the model's family
was trained to write, if a server refuses the field, or if the tokens that it counts show that the model never saw the
tools. Each change is reported to the user and remembered for the endpoint and the model.

Counts are weak evidence: mock servers return a fixed number, and gateways fill in their own count without the tools. So
two counts have to agree, a count with cached tokens or from LiteLLM is never used, and the conclusion is withdrawn if
the model makes a native call although no tools were sent in their field.
"""

from chatops.dialects.families import Family, family_of
from chatops.dialects.writing import WRITABLE
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import ModelReply
from chatops.models.memory import PROMPTED, CallStyle, EndpointMemory, Learned, TokenCount
from chatops.policy.registry import HostType, ModelSpec

NATIVE = "native"
"""Value of `tool_format` that allows only the API's own field for tools."""
SMALLEST_TOOLS = 400
"""Minimum size of the tools, in bytes, at which the token count shows whether they were dropped."""
MOST_BYTES_PER_TOKEN = 10
"""More bytes per token than any tokenizer reaches on average: fewer tokens than that mean dropped text."""


@frozen_dataclass
class InField:
    """Tools are sent in the API's own field for them."""

    reads_text: bool
    """True if calls in the text count when there are none in their own field."""


@frozen_dataclass
class InPrompt:
    """Tools are described in the system prompt; calls and results are sent as text in this format."""

    format: str


@frozen_dataclass
class Withheld:
    """The model does not get its tools: the server refuses them, and the registry allows no other way."""


ToolDelivery = InField | InPrompt | Withheld


@frozen_dataclass
class DeliveryChange:
    """A new delivery, and the notice about it for the user."""

    delivery: ToolDelivery
    text: str


def is_free(spec: ModelSpec) -> bool:
    """Return True if the registry leaves open how tools are delivered; an unknown format counts as open."""
    return spec.tool_format != NATIVE and spec.tool_format not in WRITABLE


class DeliveryChoice:
    """Choice of the delivery for one model at one endpoint."""

    def __init__(self, spec: ModelSpec, *, memory: EndpointMemory, host: str) -> None:
        """Create the choice; `host` is the server's name in notices."""
        self._spec = spec
        self._memory = memory
        self._host = host
        self._withheld = False
        self.family: Family = family_of(spec.model_name)

    def delivery(self) -> ToolDelivery:
        """Return the delivery of the next request."""
        if self._spec.tool_format in WRITABLE:
            return InPrompt(format=self._spec.tool_format)
        if not is_free(self._spec):
            return Withheld() if self._withheld else InField(reads_text=False)
        learned = self._learned()
        if learned is not None and learned.calling in PROMPTED:
            return InPrompt(format=learned.format if learned.format in WRITABLE else self.family.prompted)
        return InField(reads_text=True)

    def after_refusal(self, delivery: ToolDelivery) -> DeliveryChange | None:
        """Return the change to try after the server refused the tool field; None if it was not sent."""
        if not isinstance(delivery, InField):
            return None
        if not is_free(self._spec):
            return DeliveryChange(
                delivery=Withheld(),
                text=f"{self._host} does not accept tools, and tool_format is native, so {self._name} is asked without "
                'any. With "tool_format": "auto" they would be described in its prompt.',
            )
        return DeliveryChange(
            delivery=InPrompt(format=self.family.prompted),
            text=f"{self._host} does not accept tools for {self._name}, so they are described in its prompt "
            f"({self.family.prompted}). {self._advice}",
        )

    def confirm(self, delivery: ToolDelivery) -> None:
        """Remember this delivery: a request with it was answered after another delivery was refused."""
        if delivery == self.delivery():
            return
        match delivery:
            case InPrompt(format=format_) if is_free(self._spec):
                self._memory.learn(Learned(calling=CallStyle.REFUSED, format=format_))
            case Withheld():
                # Not stored: each start tries again, and reports it again.
                self._withheld = True

    def observe(self, reply: ModelReply, delivery: ToolDelivery, *, text_format: str, tools: int, rest: int) -> str:
        """Learn from a reply; return a notice for the user, or an empty string.

        `text_format` is the format of calls that were read from the text. `tools` is the size of that field in the
        request (0: it was not sent), `rest` the size of the messages, both in bytes.
        """
        known = self._learned()
        if is_free(self._spec) and known is not None and known.calling is CallStyle.IGNORED:
            if not reply.calls or text_format:
                return ""
            # The server does not hide tools after all.
            self._memory.learn(Learned(calling=CallStyle.NATIVE))
            where = "in the API's own field; from the next request on tools are sent there again"
            return f"{self._name} called a tool {where}."
        if delivery != InField(reads_text=True) or not tools:
            return ""
        if text_format:
            self._memory.learn(Learned(calling=CallStyle.TEXT, format=text_format))
            if known is not None and known.calling is CallStyle.TEXT:
                return ""
            return f"{self._host} gives the calls of {self._name} as text ({text_format}); they are parsed from it."
        if reply.calls:
            self._memory.learn(Learned(calling=CallStyle.NATIVE))
            return ""
        return "" if known is not None or self._fills_in_counts else self._observe_count(reply, tools=tools, rest=rest)

    def _observe_count(self, reply: ModelReply, *, tools: int, rest: int) -> str:
        """Conclude that the server ignores tools once two counts in a row say so; arguments as for `observe`."""
        if not _lacks_tools(reply, tools=tools, rest=rest):
            self._memory.keep_count(None)
            return ""
        count = TokenCount(tokens=reply.usage.input_tokens if reply.usage is not None else 0, size=rest)
        before = self._memory.count()
        if before is None or not _counts_agree(before, count):
            self._memory.keep_count(count)
            return ""
        self._memory.keep_count(None)
        self._memory.learn(Learned(calling=CallStyle.IGNORED, format=self.family.prompted, by_count=True))
        return (
            f"{self._host} accepted the tools and did not show them to {self._name}; from the next request on they are "
            f"described in its prompt ({self.family.prompted}). {self._advice}"
        )

    def _learned(self) -> Learned | None:
        known = self._memory.learned()
        # The count was used before the registry said that this is LiteLLM.
        return None if known is not None and known.by_count and self._fills_in_counts else known

    @property
    def _fills_in_counts(self) -> bool:
        """True for LiteLLM: if its provider does not count, it fills in its own count without tools."""
        return self._spec.host_type is HostType.LITELLM

    @property
    def _name(self) -> str:
        return self._spec.label or self._spec.name

    @property
    def _advice(self) -> str:
        return f"After a change of the server, look again: chatops doctor --model {self._spec.name}"


def _lacks_tools(reply: ModelReply, *, tools: int, rest: int) -> bool:
    """Return True if the tokens that the server counted cannot include the tools.

    The count has to include the rest of the request. A lower count means that the server counts something else, such as
    only the part that was not in its cache.
    """
    if tools < SMALLEST_TOOLS or reply.usage is None or reply.usage.cached_tokens:
        return False
    return rest / MOST_BYTES_PER_TOKEN <= reply.usage.input_tokens < tools / MOST_BYTES_PER_TOKEN


def _counts_agree(before: TokenCount, now: TokenCount) -> bool:
    """Return True if the request grew and its count grew with it: a fixed number is not a count."""
    grown = now.size - before.size
    return grown > 0 and now.tokens - before.tokens >= grown / MOST_BYTES_PER_TOKEN
