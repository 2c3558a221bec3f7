"""Models as servers list them, with the limits and prices that some of them state.

Only the id is standard. llama.cpp states the context in ``meta.n_ctx``, vLLM in ``max_model_len``, OpenRouter in
``context_length`` beside ``pricing``, LM Studio (``/api/v0/models``) in ``loaded_context_length``, LiteLLM
(``/v1/model/info``) in ``model_info``, Ollama in ``/api/show``. The names do not collide, so one reader handles all.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.models.error_text import plain_line
from chatops.models.server_json import BadDataError, JsonObject, as_count, as_list, as_object, as_text, parse
from chatops.policy.registry import Price

_EMBEDS_BY_NAME = re.compile(r"(?<![a-z])embed(?:ding)?s?(?![a-z])|(?<![a-z])(?:bge|e5|gte)-|all-minilm", re.IGNORECASE)
"""Names of embedding models, for servers that list only ids."""
_WITHOUT_TEXT = frozenset(
    {"embedding", "embeddings", "rerank", "image", "image_generation", "audio", "audio_speech", "moderation"}
)
_WITH_TEXT = frozenset({"chat", "completion", "responses", "language", "llm", "vlm"})
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


@frozen_dataclass
class ServedModel:
    """A model of a server; fields are None if the server does not state them."""

    name: str
    owner: str = ""
    """``owned_by``, which identifies some kinds of servers."""
    chats: bool = True
    """False for embedding models and others that do not generate text."""
    context_window: int | None = None
    max_output_tokens: int | None = None
    price: Price | None = None


def models_in(body: bytes) -> list[ServedModel]:
    """Return the models in an answer of `/models`, `/v1/model/info`, `/api/v0/models` or `/api/tags`.

    Raises BadDataError.
    """
    value = parse(body)
    if not isinstance(value, list) and not {"data", "models"} & set(as_object(value)):
        raise BadDataError("no list of models")
    listing = as_list(value) or as_list(as_object(value).get("data")) or as_list(as_object(value).get("models"))
    return [model for item in listing if (model := _read_model(as_object(item))) is not None]


def is_litellm(body: bytes) -> bool:
    """Return True if `body` is an answer of LiteLLM's `/v1/model/info`.

    Raises BadDataError.
    """
    listing = as_list(as_object(parse(body)).get("data"))
    return any("model_info" in as_object(item) and "model_name" in as_object(item) for item in listing)


def merge_details(models: list[ServedModel], detailed: list[ServedModel]) -> list[ServedModel]:
    """Return `models` with the details of those of the same name in `detailed`.

    A gateway may list several deployments under one name, and any of them may answer, so the smallest limit counts.
    """
    by_name: dict[str, ServedModel] = {}
    for model in detailed:
        by_name[model.name] = _with_smaller_limits(by_name.get(model.name, model), model)
    return [_with_smaller_limits(model, by_name.get(model.name, model)) for model in models]


def with_ollama_details(model: ServedModel, body: bytes) -> ServedModel:
    """Return `model` with the details in Ollama's `/api/show`.

    ``num_ctx`` is the context that the model runs with. The context that it was made for is only the upper bound.

    Raises BadDataError.
    """
    shown = as_object(parse(body))
    num_ctx = _NUM_CTX.search(as_text(shown.get("parameters")))
    info = as_object(shown.get("model_info"))
    # The key begins with the model's architecture, as in llama.context_length.
    largest = next((as_count(size) for key, size in info.items() if key.endswith(".context_length")), 0)
    window = int(num_ctx[1]) if num_ctx else largest
    return replace(model, context_window=window or model.context_window)


def _read_model(item: JsonObject) -> ServedModel | None:
    stated = next((text for key in ("id", "name", "model", "model_name") if (text := as_text(item.get(key)))), "")
    if not (name := plain_line(stated)):
        return None
    info, meta, top = (as_object(item.get(key)) for key in ("model_info", "meta", "top_provider"))
    window = _first_of(
        info.get("max_input_tokens"),
        item.get("max_input_tokens"),
        item.get("max_model_len"),
        meta.get("n_ctx"),
        top.get("context_length"),
        item.get("context_length"),
        item.get("loaded_context_length"),
        item.get("max_context_length"),
    )
    output = _first_of(info.get("max_output_tokens"), item.get("max_output_tokens"), top.get("max_completion_tokens"))
    if window and output and output >= window:
        # It means "as much as fits". Requested as such, it would be refused as soon as there is a prompt.
        output = None
    return ServedModel(
        name=name,
        owner=as_text(item.get("owned_by")).lower(),
        chats=_generates_text(name, item, info),
        context_window=window,
        max_output_tokens=output,
        price=_openrouter_price(as_object(item.get("pricing"))) or _litellm_price(info),
    )


def _first_of(*values: object) -> int | None:
    return next((count for value in values if (count := as_count(value))), None)


def _generates_text(name: str, item: JsonObject, info: JsonObject) -> bool:
    kind = as_text(info.get("mode")) or as_text(item.get("mode")) or as_text(item.get("type"))
    modalities = as_list(as_object(item.get("architecture")).get("output_modalities"))
    families = [as_text(family) for family in as_list(as_object(item.get("details")).get("families"))]
    if kind in _WITHOUT_TEXT:
        return False
    if kind in _WITH_TEXT:
        return True
    if modalities:
        return "text" in modalities
    return not (_EMBEDS_BY_NAME.search(name) or any(family.endswith("bert") for family in families))


def _openrouter_price(pricing: Mapping[str, object]) -> Price | None:
    """Return the price from decimal text per token; negative values mean that it depends on the chosen model."""
    sent, written = _per_million(pricing.get("prompt")), _per_million(pricing.get("completion"))
    if sent is None or written is None:
        return None
    return Price(input=sent, output=written, cached_input=_per_million(pricing.get("input_cache_read")))


def _litellm_price(info: Mapping[str, object]) -> Price | None:
    """Return the price from numbers per token; LiteLLM writes zeros for models that it does not know."""
    sent, written = _per_million(info.get("input_cost_per_token")), _per_million(info.get("output_cost_per_token"))
    if not sent and not written:
        return None
    cached = _per_million(info.get("cache_read_input_token_cost"))
    return Price(input=sent or 0.0, output=written or 0.0, cached_input=cached)


def _per_million(value: object) -> float | None:
    """Return a price per million tokens from one per token; None if it is no number, negative, or 1 or more."""
    try:
        price = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return round(price * 1_000_000, 6) if 0 <= price < 1 else None


def _with_smaller_limits(model: ServedModel, other: ServedModel) -> ServedModel:
    return replace(
        model,
        chats=model.chats and other.chats,
        context_window=_smaller(model.context_window, other.context_window),
        max_output_tokens=_smaller(model.max_output_tokens, other.max_output_tokens),
        price=model.price or other.price,
    )


def _smaller(first: int | None, second: int | None) -> int | None:
    return min((size for size in (first, second) if size is not None), default=None)
