"""Finding in a server's error what it refuses of a request, and how to ask instead."""

import re

from chatops.models.errortext import ServerError
from chatops.models.reasoning import FIELDS
from chatops.models.retry import DescribeTools, GiveReasoningBack, LeaveOut, Remedy

DROPPABLE = (
    "stream_options",
    "tool_choice",
    "reasoning_effort",
    "temperature",
    "top_p",
    "stop",
    "user",
    "max_tokens",
    "max_completion_tokens",
    *FIELDS,
)
"""Fields of requests and messages that can be left out if a server does not know them."""

_STATUSES = frozenset({400, 404, 422, 500, 501})
_REFUSES_FIELD = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|extra inputs|extra fields|extra_forbidden|not permitted|"
    r"not allowed|unexpected|additional propert|no such (field|param)|invalid (field|param)"
)
_ALONE = r"(?![\w\[]|\.\w)"
"""After a name: the match is not part of a longer path, as in `tools[0].function`, but may end a sentence."""
_CALLING = rf"(?:the use of )?(?:tools?{_ALONE}|tool[ -](?:use|choice|call(?:s|ing)?)|function[ -]call(?:s|ing)?)"
_NO_TOOLS = re.compile(
    "|".join(
        (
            # vLLM; llama.cpp, both current versions and those before its --jinja.
            r"requires? --enable-auto-tool-choice",
            r"tools? param(?:eter)? requires --jinja",
            rf"unsupported param(?:eter)?s?: \W?tools{_ALONE}",
            # Ollama, LM Studio and many others; OpenRouter.
            rf"(?:does not|doesn't|do not|cannot) support {_CALLING}",
            r"no endpoints found that support (?:tool|function)",
            # Fireworks, Google, Perplexity, Groq …
            rf"{_CALLING}[`'\" ]+(?:is|are) (?:not (?:currently )?(?:supported|enabled|available|allowed)|disabled)",
            rf"{_CALLING}[`'\" ]+(?:is|are) unsupported",
            # LiteLLM, which prints the names that its provider refuses, or the whole field.
            r"does not support parameters: [\[{(][^\])]{0,200}?['\"]tools['\"]",
        )
    )
)
_WANTS_REASONING = re.compile(
    r"missing .{0,20}reasoning_content|"
    r"reasoning_content\b.{0,80}\b(?:must be (?:passed|sent|provided)|missing|required)"
)


def remedy_for(status: int, error: ServerError) -> Remedy | None:
    """Return how to ask instead; None if the error is about something else."""
    if status not in _STATUSES:
        return None
    if _NO_TOOLS.search(error.all):
        return DescribeTools()
    if _WANTS_REASONING.search(error.all):
        return GiveReasoningBack()
    if status in {404, 500} or not _REFUSES_FIELD.search(error.all):
        return None
    return _refused_field(error)


def _refused_field(error: ServerError) -> Remedy | None:
    if error.param == "tools":
        return DescribeTools()
    if error.param:
        return LeaveOut(field=error.param) if error.param in DROPPABLE else None
    found = (field for field in ("tools", *DROPPABLE) if _mentioned(field).search(error.all))
    # The first one mentioned: "max_tokens is not supported, use max_completion_tokens".
    first = min(found, key=error.all.index, default="")
    if not first:
        return None
    return DescribeTools() if first == "tools" else LeaveOut(field=first)


def _mentioned(field: str) -> re.Pattern[str]:
    if field == "reasoning":
        # Only in quotes, because it is also a plain word: "reasoning models do not support temperature".
        return re.compile(r"[`'\"]reasoning[`'\"]")
    return re.compile(rf"(?<![\w.]){field}{_ALONE}")
