"""Formats whose arguments are one JSON object: a template for each call, and the text around all calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from chatops.dialects.writers.base import WrittenCall
from chatops.dialects.writers.inline import fill, inert, is_plain, object_of


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonItems:
    """One `item` per call: `%s` is the name as JSON, `%n` the bare name, `%i` the index, `%a` the arguments.

    Arguments that are not a JSON object are written as a JSON string: it says what was written, and is not read as a
    call. A format with a bare name cannot express that, nor a name that cannot be bare. All calls are then spelled by
    `otherwise`.
    """

    item: str
    before: str = ""
    between: str = "\n"
    after: str = ""
    otherwise: "JsonItems | None" = None

    def calls(self, calls: Sequence[WrittenCall]) -> str:
        """Return the calls, see `CallSpelling.calls`."""
        if self.otherwise is not None and not all(_is_regular(call) for call in calls):
            return self.otherwise.calls(calls)
        return self.before + self.between.join(self._item(call, place) for place, call in enumerate(calls)) + self.after

    def _item(self, call: WrittenCall, place: int) -> str:
        arguments = object_of(call.arguments)
        spelled = inert(call.arguments if arguments is None else arguments)
        return fill(self.item, s=inert(call.name), n=call.name, i=str(place), a=spelled)


def _is_regular(call: WrittenCall) -> bool:
    return is_plain(call.name) and object_of(call.arguments) is not None


HERMES = JsonItems(item='<tool_call>\n{"name": %s, "arguments": %a}\n</tool_call>')
"""Fallback of every format: models know it, and it works beside calls with their own tags."""

LLAMA_TAGGED = JsonItems(item='{"name": %s, "parameters": %a}', before="<|python_tag|>", between="; ")
"""Fallback of the Llama formats."""
