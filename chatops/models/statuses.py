"""Errors that a server reports, by status or inside a stream, as failures with the next step.

A server may refuse only a part of the request. `remedy_for` finds out which, and how to ask instead.
"""

import json
import re
from collections.abc import Mapping

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind, ModelFailure
from chatops.models.error_text import ServerError, error_of_body, plain_line, sentence
from chatops.models.hosts import host_and_port, without_secrets
from chatops.models.retry import (
    AGAIN,
    LONGEST_WAIT_S,
    AttemptFailure,
    DescribeTools,
    LeaveOut,
    Remedy,
    ReplayReasoning,
    failed_attempt,
    in_words,
    retry_after,
)
from chatops.models.wire import IMAGES, REASONING
from chatops.policy.registry import HostType, KeySource, ModelSpec

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
    *REASONING,
    IMAGES,
)
"""Fields of requests and messages that can be left out if a server does not know them."""

_REFUSING = frozenset({400, 404, 422, 500, 501})
"""Statuses with which servers refuse a part of a request."""
_REFUSES_FIELD = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|extra inputs|extra fields|extra_forbidden|not permitted|"
    r"not allowed|unexpected|additional propert|no such (field|param)|invalid (field|param)"
)
_NAME_ENDS = r"(?![\w\[]|\.\w)"
"""After a name: the match is not part of a longer path, as in `tools[0].function`, but may end a sentence."""
_TOOL_USE = rf"(?:the use of )?(?:tools?{_NAME_ENDS}|tool[ -](?:use|choice|call(?:s|ing)?)|function[ -]call(?:s|ing)?)"
_NO_TOOLS = re.compile(
    "|".join(
        (
            # vLLM; llama.cpp, both current versions and those before its --jinja.
            r"requires? --enable-auto-tool-choice",
            r"tools? param(?:eter)? requires --jinja",
            rf"unsupported param(?:eter)?s?: \W?tools{_NAME_ENDS}",
            # Ollama, LM Studio and many others; OpenRouter.
            rf"(?:does not|doesn't|do not|cannot) support {_TOOL_USE}",
            r"no endpoints found that support (?:tool|function)",
            # Fireworks, Google, Perplexity, Groq …
            rf"{_TOOL_USE}[`'\" ]+(?:is|are) (?:not (?:currently )?(?:supported|enabled|available|allowed)|disabled)",
            rf"{_TOOL_USE}[`'\" ]+(?:is|are) unsupported",
            # LiteLLM, which prints the names that its provider refuses, or the whole field.
            r"does not support parameters: [\[{(][^\])]{0,200}?['\"]tools['\"]",
        )
    )
)
_NO_IMAGES = re.compile(
    # OpenAI; DeepSeek; vLLM; llama.cpp; Ollama and others; OpenRouter.
    r"image_url is only supported|unknown variant `image_url`|is not a multimodal model|at most 0 image"
    r"|image input is not supported|(?:does not|doesn't|do not|cannot) support (?:image|vision)|that support image"
)
_WANTS_REASONING = re.compile(
    r"missing .{0,20}reasoning_content|"
    r"reasoning_content\b.{0,80}\b(?:must be (?:passed|sent|provided)|missing|required)"
)
_TOO_LONG = re.compile(
    r"context[_ ]length|maximum context|n_ctx|context (size|window)|too many (input )?tokens|prompt is too long|"
    r"input is too long|reduce the length|exceeds? the (available|maximum) (context|input)|max_model_len|"
    r"too many total text bytes|request too large for"
)
_LIMIT_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        # OpenAI, vLLM; llama.cpp, its Python server; LM Studio; Anthropic; Google; Mistral.
        r"context (?:length|size|window)(?: is| of)?(?: only)?[ (:]{1,3}(\d[\d,]{2,11})",
        r"\d tokens > (\d[\d,]{2,11}) maximum",
        r"maximum number of tokens allowed \((\d[\d,]{2,11})\)",
        r"model with (\d[\d,]{2,11}) maximum context",
        r"\bn_ctx\W{1,4}(\d[\d,]{2,11})",
    )
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|insufficient (credits|balance|funds)|billing")
_NO_DATABASE = "no_db_connection"
"""Error code of LiteLLM without a database for any key but its master key."""
_UNKNOWN_MODEL = re.compile(
    r"invalid model (?:name|id)\b|model_not_found|\bmodel not found|\bmodel \S{1,200} (?:not found|does not exist)"
)
_TRANSIENT = frozenset({408, 409, 425, 500, 502, 503, 504, 520, 522, 524, 529})
"""Statuses after which the same request may succeed a little later; from 520 on those of Cloudflare and Anthropic."""


def remedy_for(status: int, error: ServerError) -> Remedy | None:
    """Return how to ask instead; None if the error is about something else."""
    if status not in _REFUSING:
        return None
    if _NO_TOOLS.search(error.all):
        return DescribeTools()
    if _NO_IMAGES.search(error.all):
        return LeaveOut(field=IMAGES)
    if _WANTS_REASONING.search(error.all):
        return ReplayReasoning()
    if status in {404, 500} or not _REFUSES_FIELD.search(error.all):
        return None
    return _refused_field(error)


def _refused_field(error: ServerError) -> Remedy | None:
    if error.param == "tools":
        return DescribeTools()
    if error.param:
        return LeaveOut(field=error.param) if error.param in DROPPABLE else None
    found = (field for field in ("tools", *DROPPABLE) if _mention_pattern(field).search(error.all))
    # The first one mentioned: "max_tokens is not supported, use max_completion_tokens".
    first = min(found, key=error.all.index, default="")
    if not first:
        return None
    return DescribeTools() if first == "tools" else LeaveOut(field=first)


def _mention_pattern(field: str) -> re.Pattern[str]:
    if field == "reasoning":
        # Only in quotes, because it is also a plain word: "reasoning models do not support temperature".
        return re.compile(r"[`'\"]reasoning[`'\"]")
    return re.compile(rf"(?<![\w.]){field}{_NAME_ENDS}")


@frozen_dataclass
class Endpoint:
    """The server and model of a request, for messages."""

    url: str
    """The base URL, safe to show."""
    model: str
    """The server's name for the model."""
    name: str
    """The registry's name for the model."""
    key: KeySource
    host_type: HostType = HostType.OPENAI
    window: int | None = None
    """Context window in tokens, from the registry or as the server has stated; None if unknown."""
    sent: int = 0
    """Estimated number of tokens that were sent; 0 if unknown."""

    @property
    def host(self) -> str:
        """``host:port``."""
        return host_and_port(self.url)


def endpoint_of(spec: ModelSpec, *, url: str) -> Endpoint:
    """Return the details about `spec` that messages need."""
    return Endpoint(
        url=without_secrets(url),
        model=spec.model_name,
        name=spec.label or spec.name,
        key=spec.key,
        host_type=spec.host_type,
        window=spec.context_window,
    )


def where_to_set(key: KeySource, *, name: str) -> str:
    """Return how to set the key of a model, without showing it."""
    match key:
        case KeySource(env=env) if env:
            return f"Set a valid key before starting: export {env}=…"
        case KeySource(file=file) if file:
            return f"Write a valid key into {file}."
        case KeySource(command=command) if command:
            return f"Run {command[0]} by hand and look at what it prints."
        case KeySource(keyring=entry) if entry:
            return f"Set it in the keyring: entry {entry}."
        case KeySource(literal=literal) if literal:
            return f"Correct api_key of model {name!r} in the registry, or better, use api_key_env."
        case _:
            return f'Give model {name!r} a key: "api_key_env": "NAME_OF_A_VARIABLE" in the registry.'


def status_failure(status: int, headers: Mapping[str, str], body: bytes, *, endpoint: Endpoint) -> AttemptFailure:
    """Return the failure for a response with an error status. Header names are in lower case."""
    error = error_of_body(body)
    wait = retry_after(headers.get("retry-after", ""), milliseconds=headers.get("retry-after-ms", ""))
    if 300 <= status < 400:
        return _redirect_failure(headers.get("location", ""), endpoint=endpoint)
    if status in {400, 404, 413, 422, 500} and _TOO_LONG.search(error.all):
        return _too_long_failure(error, endpoint=endpoint)
    if remedy := remedy_for(status, error):
        return AttemptFailure(failure=_refusal(status, error, endpoint=endpoint), remedy=remedy)
    if status == 401 or (status == 400 and _NO_DATABASE in error.code):
        return failed_attempt(
            FailureKind.UNAUTHORIZED,
            f"{endpoint.host} refuses the key of model {endpoint.name!r} ({status}).",
            where_to_set(endpoint.key, name=endpoint.name),
        )
    if status == 403:
        return failed_attempt(
            FailureKind.UNAUTHORIZED,
            f"{endpoint.host} does not allow this (403){_reason(error)}",
            "The key is known but has no right to this model or region; use another key or model.",
        )
    if status == 402 or (status in {400, 403, 429} and _QUOTA.search(error.all)):
        return failed_attempt(
            FailureKind.QUOTA,
            f"The quota at {endpoint.host} is used up ({status}){_reason(error)}",
            "Add credit there, or choose another model.",
        )
    if status == 429:
        return _rate_limit_failure(error, wait, endpoint=endpoint)
    if status == 404 or (status == 400 and _UNKNOWN_MODEL.search(error.all)):
        return _not_found_failure(status, error, endpoint=endpoint)
    if status >= 500 or status in _TRANSIENT:
        return failed_attempt(
            FailureKind.SERVER_ERROR,
            f"{status} from {endpoint.host}{_reason(error)}",
            "The server has a problem; try again, or choose another model.",
            again=status in _TRANSIENT,
            after_s=wait,
        )
    return AttemptFailure(failure=_refusal(status, error, endpoint=endpoint))


def stream_failure(error: ServerError, *, endpoint: Endpoint) -> AttemptFailure:
    """Return the failure for an error that came with status 200: by its code, else as a server error."""
    digits = re.match(r"(\d{3})\b", error.code)
    if digits and 400 <= int(digits[1]) <= 599:
        body = json.dumps({"error": {"message": error.message, "code": error.code}})
        return status_failure(int(digits[1]), {}, body.encode(), endpoint=endpoint)
    if _TOO_LONG.search(error.all):
        return _too_long_failure(error, endpoint=endpoint)
    if remedy := remedy_for(400, error):
        return AttemptFailure(failure=_refusal(400, error, endpoint=endpoint), remedy=remedy)
    if _QUOTA.search(error.all):
        return status_failure(402, {}, error.message.encode(), endpoint=endpoint)
    if "rate_limit" in error.all or "rate limit" in error.all:
        return _rate_limit_failure(error, None, endpoint=endpoint)
    return failed_attempt(
        FailureKind.SERVER_ERROR,
        sentence(f"{endpoint.host} reports an error: {error.message or error.code or 'no reason given'}"),
        AGAIN,
        again="overloaded" in error.all or "server_error" in error.all,
    )


def _redirect_failure(location: str, *, endpoint: Endpoint) -> AttemptFailure:
    target = plain_line(without_secrets(location), limit=200) or "nowhere"
    return failed_attempt(
        FailureKind.REFUSED,
        f"The endpoint {endpoint.host} redirects to {target}. The key was not sent there.",
        "If that is right, write that address into api_url of the registry.",
    )


def _too_long_failure(error: ServerError, *, endpoint: Endpoint) -> AttemptFailure:
    limit = _limit_in(error)
    allowed = "" if endpoint.window is None else f"; the registry allows {endpoint.window:,}"
    sizes = f" About {endpoint.sent:,} tokens were sent{allowed}." if endpoint.sent else ""
    advice = "Choose a role or a model with more room, or start a new session."
    if limit:
        advice = f"{advice} From now on its limit of {limit:,} tokens counts."
    elif endpoint.window is None or endpoint.sent < endpoint.window:
        advice = (
            f"{advice[:-1]}; or set context_window of this model in the registry to its limit, then old tool results "
            "are left out in time."
        )
    message = f"The session is longer than {endpoint.model} at {endpoint.host} can take{_reason(error)}{sizes}"
    return failed_attempt(FailureKind.CONTEXT_TOO_LONG, message, advice, limit=limit)


def _limit_in(error: ServerError) -> int:
    """Return the number of tokens that the error names as the limit; 0 if it names none."""
    if error.context_limit:
        return error.context_limit
    found = next((match[1] for pattern in _LIMIT_PATTERNS if (match := pattern.search(error.all))), "0")
    return int(found.replace(",", ""))


def _rate_limit_failure(error: ServerError, wait: float | None, *, endpoint: Endpoint) -> AttemptFailure:
    reason = _reason(error)
    if wait is not None and wait > LONGEST_WAIT_S:
        message = f"{endpoint.host} limits the rate for {in_words(wait)}{reason}"
        advice = "Try again now or later, or choose another model."
    else:
        message = f"{endpoint.host} limits the rate{reason}"
        advice = "Wait a little and try again, or choose another model."
    return failed_attempt(FailureKind.RATE_LIMITED, message, advice, again=True, after_s=wait)


def _not_found_failure(status: int, error: ServerError, *, endpoint: Endpoint) -> AttemptFailure:
    other_cause = f", or nothing answers at {endpoint.url}" if status == 404 else ""
    return failed_attempt(
        FailureKind.NOT_FOUND,
        f"{endpoint.host} does not know model {endpoint.model!r}{other_cause} ({status}){_reason(error)}",
        "See what it has with: chatops models list",
    )


def _refusal(status: int, error: ServerError, *, endpoint: Endpoint) -> ModelFailure:
    return ModelFailure(
        kind=FailureKind.REFUSED,
        message=f"{endpoint.host} does not accept the request ({status}){_reason(error)}",
        advice="Check this model's settings in the registry with: chatops doctor",
    )


def _reason(error: ServerError) -> str:
    """Return the server's message as the end of a sentence of ours."""
    return f": {sentence(error.message)}" if error.message else "."
