"""Prices of models at public providers, from the data of the package genai-prices (extra `prices`).

It matches a provider by its address and a model by its name, so a local server or a company's gateway has no price
here. Its data takes about half a second to load. A price is therefore looked up outside of any request, and stored. A
price in the registry always wins.
"""

import importlib.util
from urllib.parse import urlsplit

from chatops.domain.errors import ChatopsError
from chatops.models.hosts import is_loopback
from chatops.models.memory import EndpointMemory
from chatops.policy.registry import ModelSpec, Price

_SAMPLE_TOKENS = 1_000
"""Tokens that are priced; few, because some providers charge more for long requests."""


def prices_available() -> bool:
    """Return True if the package is installed."""
    return importlib.util.find_spec("genai_prices") is not None


def refresh_prices() -> None:
    """Load the newest data from the package's project instead of the installed one. Blocks for some seconds.

    Raises ChatopsError if it cannot be loaded.
    """
    from genai_prices import UpdatePrices
    from genai_prices.data_snapshot import set_custom_snapshot

    try:
        snapshot = UpdatePrices().fetch()
    except Exception as error:  # any failure of the network or of foreign data
        raise ChatopsError(
            f"The newest prices cannot be loaded: {type(error).__name__}: {error}",
            advice="The installed ones stay in use. Check the network, or upgrade the package genai-prices.",
        ) from None
    set_custom_snapshot(snapshot)


def known_price(spec: ModelSpec, memory: EndpointMemory, *, again: bool = False) -> Price | None:
    """Return the known price of a model in US dollars, and store it; None if there is none.

    What is stored already is returned without loading any data; with `again`, it is looked up again.
    """
    if not again and memory.knows_price():
        return memory.price()
    # No provider has an address of this machine, and the data takes 6 MB.
    local = is_loopback(urlsplit(spec.api_url).hostname or "")
    price = _look_up(spec) if not local and prices_available() else None
    memory.learn_price(price)
    return price


def _look_up(spec: ModelSpec) -> Price | None:
    from genai_prices import Usage, calc_price

    def per_million(usage: Usage) -> float:
        priced = calc_price(usage, model_ref=spec.model_name, provider_api_url=spec.api_url)
        return round(float(priced.total_price) * 1_000_000 / _SAMPLE_TOKENS, 6)

    try:
        sent, written = (
            per_million(Usage(input_tokens=_SAMPLE_TOKENS)),
            per_million(Usage(output_tokens=_SAMPLE_TOKENS)),
        )
        cached = per_million(Usage(input_tokens=_SAMPLE_TOKENS, cache_read_tokens=_SAMPLE_TOKENS))
    except (LookupError, ValueError):
        return None
    return Price(input=sent, output=written, cached_input=cached)
