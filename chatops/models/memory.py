"""Knowledge about an endpoint for later requests: refused fields, how it takes tools, its limits and its price.

Prices at public providers are those of the package genai-prices (extra `prices`). It matches a provider by its address
and a model by its name, so a local server or a company's gateway has no price here. Its data takes about half a second
to load. A price is therefore looked up outside of any request, and stored. A price in the registry always wins.
"""

import importlib.util
from enum import StrEnum
from typing import Protocol
from urllib.parse import urlsplit

from chatops.config.entries import Value, decode_value, encode_value
from chatops.domain import __version__
from chatops.domain.errors import ChatopsError, ConfigError, StoreError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.models.hosts import base_url, is_loopback, without_secrets
from chatops.models.statuses import DROPPABLE
from chatops.policy.registry import ModelSpec, Price

_NOT_KEPT = frozenset({"tool_choice"})
"""Fields not stored as refused: leaving them out changes what a model may do, so each start tries again."""
_SAMPLE_TOKENS = 1_000
"""Tokens that are priced; few, because some providers charge more for long requests."""


class TextStore(Protocol):
    """Texts by key, kept for as long as the caller wants: see `wiring.stored.Settings`."""

    def get(self, key: str) -> str | None:
        """Return the text; None if there is none."""

    def set(self, key: str, value: str) -> None:
        """Store a text."""


class InMemoryTextStore:
    """`TextStore` that lasts as long as the process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """Return the text; None if there is none."""
        return self._texts.get(key)

    def set(self, key: str, value: str) -> None:
        """Store a text."""
        self._texts[key] = value


class CallStyle(StrEnum):
    """How a model at an endpoint makes calls: natively or as text."""

    NATIVE = "native"
    """In the tools' own field."""
    TEXT = "text"
    """In the text, although the tools were sent in their own field."""
    REFUSED = "refused"
    """The server refuses tools in their own field."""
    IGNORED = "ignored"
    """The server accepts them there, but the model never sees them."""


PROMPTED = frozenset({CallStyle.REFUSED, CallStyle.IGNORED})
"""Cases in which tools have to be described in the prompt."""


@frozen_dataclass
class Learned:
    """Knowledge about a model's calls; `format` is the format of calls in text."""

    calling: CallStyle
    format: str = ""
    by_count: bool = False
    """True if concluded from the tokens that the server counted, which is weak evidence."""
    version: str = __version__
    """What another version learned is ignored: it may have been wrong."""


@frozen_dataclass
class TokenCount:
    """Tokens that a server counted for a request with tools, and the size of its messages in bytes."""

    tokens: int
    size: int


@frozen_dataclass
class TaskScore:
    """How a model did the tasks of ``doctor --tasks``."""

    done: int
    of: int
    at: float
    """Seconds since the epoch."""
    version: str = __version__
    """The tasks of another version may differ."""

    @property
    def text(self) -> str:
        """The score for lists of models."""
        return f"tools {self.done} of {self.of}"


class EndpointMemory:
    """Knowledge about one model at one endpoint, in notes that the caller may store. Unreadable ones count as none."""

    def __init__(self, store: TextStore, *, url: str, model: str) -> None:
        self._store = store
        self._endpoint = f"{url} {model}"
        self._for_now: frozenset[str] = frozenset()
        """Fields of `_NOT_KEPT` that are refused."""

    def refused(self) -> frozenset[str]:
        """Return the fields to leave out."""
        kept = self._read("refused", frozenset[str]) or frozenset()
        return self._for_now | (kept & frozenset(DROPPABLE) - _NOT_KEPT)

    def refuse(self, fields: frozenset[str]) -> None:
        """Remember that these fields are refused too."""
        self._for_now |= fields & _NOT_KEPT
        if kept := (self.refused() | fields) - _NOT_KEPT:
            self._write("refused", sorted(kept))

    def learned(self) -> Learned | None:
        """Return how the model calls tools."""
        known = self._read("tools", Learned)
        return known if known is not None and known.version == __version__ else None

    def learn(self, learned: Learned) -> None:
        """Remember how the model calls tools, replacing earlier knowledge."""
        if learned != self.learned():
            self._write("tools", learned)

    def forget(self) -> None:
        """Forget how the model calls tools."""
        if self.learned() is not None:
            self._store.set(self._key("tools"), "")

    def count(self) -> TokenCount | None:
        """Return the count that `keep_count` stored."""
        return self._read("count", TokenCount)

    def keep_count(self, count: TokenCount | None) -> None:
        """Store a count to compare with the next one; None discards it."""
        if count != self.count():
            self._write("count", count)

    def learn_limit(self, limit: int, *, window: int | None) -> None:
        """Remember the context limit that the server has named, as long as the registry says `window`."""
        known = self.context_window(window)
        if 0 < limit and (known is None or limit < known):
            self._write("limit", [limit, window])

    def context_window(self, window: int | None) -> int | None:
        """Return the context window in tokens: the limit that the server has named, or else `window` of the registry.

        A registry that was changed since then is newer than what the server said.
        """
        limit, said_under = self._read("limit", tuple[int, int | None]) or (0, None)
        return limit if said_under == window and 0 < limit and (window is None or limit < window) else window

    def wants_reasoning(self) -> bool:
        """Return True if the server requires the reasoning before earlier calls to be sent back."""
        return self._read("reasoning", bool) is True

    def learn_reasoning(self) -> None:
        """Remember that the server wants the reasoning before calls."""
        self._write("reasoning", True)

    def knows_price(self) -> bool:
        """Return True if a price was looked up before, with or without success."""
        return self._store.get(self._key("price")) is not None

    def price(self) -> Price | None:
        """Return the stored price; None if none is known."""
        return self._read("price", Price)

    def learn_price(self, price: Price | None) -> None:
        """Store what a lookup found, in US dollars per million tokens; None if it found nothing."""
        self._write("price", price)

    def score(self) -> TaskScore | None:
        """Return how the model did the tasks."""
        known = self._read("tasks", TaskScore)
        return known if known is not None and known.version == __version__ else None

    def learn_score(self, score: TaskScore) -> None:
        """Remember how the model did the tasks."""
        self._write("tasks", score)

    def _key(self, subject: str) -> str:
        return f"endpoint:{subject}:{self._endpoint}"

    def _read(self, subject: str, form: type[Value]) -> Value | None:
        try:
            return decode_value(form, self._store.get(self._key(subject)) or "")
        except (ValueError, StoreError):
            return None

    def _write(self, subject: str, value: object) -> None:
        self._store.set(self._key(subject), encode_value(value).decode())


def memory_of(spec: ModelSpec, store: TextStore) -> EndpointMemory | None:
    """Return what is known about the endpoint of `spec`; None if it has none."""
    if not spec.has_server:
        return None
    try:
        return EndpointMemory(store, url=without_secrets(base_url(spec)), model=spec.model_name)
    except ConfigError:
        return None


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
        sent = per_million(Usage(input_tokens=_SAMPLE_TOKENS))
        written = per_million(Usage(output_tokens=_SAMPLE_TOKENS))
        cached = per_million(Usage(input_tokens=_SAMPLE_TOKENS, cache_read_tokens=_SAMPLE_TOKENS))
    except (LookupError, ValueError):
        return None
    return Price(input=sent, output=written, cached_input=cached)
