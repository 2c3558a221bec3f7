"""What has been learned about an endpoint and is worth knowing next time: what it refuses, how it takes tools."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from chatops import __version__
from chatops.domain.errors import ConfigError
from chatops.models.hosts import base_url, shown
from chatops.models.refusals import DROPPABLE
from chatops.policy.registry import ModelSpec

_NOT_KEPT = frozenset({"tool_choice"})
"""Doing without this changes what a model may do: each start asks again, and says so again."""


class Notes(Protocol):
    """Texts by key, kept for as long as the caller wants: see `wiring.settings.Settings`."""

    def get(self, key: str) -> str | None:
        """The text; None if there is none."""
        ...

    def set(self, key: str, value: str) -> None:
        """Keep a text."""
        ...


class NotesInMemory:
    """Notes that end with the process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """The text; None if there is none."""
        return self._texts.get(key)

    def set(self, key: str, value: str) -> None:
        """Keep a text."""
        self._texts[key] = value


class Calling(StrEnum):
    """How a model at an endpoint has been seen to call tools."""

    NATIVE = "native"
    """In their own field."""
    TEXT = "text"
    """In the text, although it was told of the tools in their own field."""
    REFUSED = "refused"
    """The server takes no tools in their own field."""
    IGNORED = "ignored"
    """The server takes them there, and the model never sees them."""


PROMPTED = frozenset({Calling.REFUSED, Calling.IGNORED})
"""Where tools have to be described in the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is known of a model's calls; `format` is that of the text, where they are text."""

    calling: Calling
    format: str = ""
    by_count: bool = False
    """Concluded from the tokens that the server counted, which is weak evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Tokens that a server counted for a request with tools, and the bytes of its messages."""

    tokens: int
    size: int


class EndpointMemory:
    """What (endpoint, model) refuses and wants, kept in notes that the caller may store."""

    def __init__(self, store: Notes, *, url: str, model: str) -> None:
        self._store = store
        self._refused = f"endpoint:refused:{url} {model}"
        self._calling = f"endpoint:tools:{url} {model}"
        self._limit = f"endpoint:limit:{url} {model}"
        self._count = f"endpoint:count:{url} {model}"
        self._reasoning = f"endpoint:reasoning:{url} {model}"
        self._for_now: frozenset[str] = frozenset()

    def refused(self) -> frozenset[str]:
        """The fields to leave out; what cannot be read counts as nothing."""
        known = _parsed(self._store.get(self._refused))
        kept = frozenset(name for name in known if isinstance(name, str)) if isinstance(known, list) else frozenset()
        return (frozenset(DROPPABLE) & kept) - _NOT_KEPT | self._for_now

    def refuse(self, fields: frozenset[str]) -> None:
        """Remember that these are refused too."""
        self._for_now |= fields & _NOT_KEPT
        if kept := (self.refused() | fields) - _NOT_KEPT:
            self._store.set(self._refused, json.dumps(sorted(kept)))

    def learned(self) -> Learned | None:
        """How the model calls tools. What another version of chatops learned does not count: it may have erred."""
        known = _parsed(self._store.get(self._calling))
        if not isinstance(known, dict) or known.get("version") != __version__:
            return None
        calling, format_ = known.get("calling"), known.get("format")
        if calling not in list(Calling) or not isinstance(format_, str):
            return None
        return Learned(calling=Calling(calling), format=format_, by_count=known.get("by_count") is True)

    def learn(self, learned: Learned) -> None:
        """Remember how the model calls tools, in place of what was known."""
        if learned != self.learned():
            kept = {"calling": learned.calling, "format": learned.format, "version": __version__}
            self._store.set(self._calling, json.dumps({**kept, "by_count": learned.by_count}))

    def forget(self) -> None:
        """Nothing is known of how the model calls tools."""
        if self._store.get(self._calling):
            self._store.set(self._calling, "")

    def count(self) -> Count | None:
        """The count that `keep_count` kept."""
        known = _parsed(self._store.get(self._count))
        if isinstance(known, list) and len(known) == 2 and all(type(number) is int for number in known):
            return Count(tokens=known[0], size=known[1])
        return None

    def keep_count(self, count: Count | None) -> None:
        """Keep a count to compare the next one with; None discards it."""
        if count != self.count():
            self._store.set(self._count, "" if count is None else json.dumps([count.tokens, count.size]))

    def learn_limit(self, limit: int, *, window: int) -> None:
        """Remember the context that the server has named, as long as the registry says `window`."""
        if 0 < limit < self.context_window(window):
            self._store.set(self._limit, json.dumps([limit, window]))

    def context_window(self, window: int) -> int:
        """Tokens that the model takes: what the server has named, or `window` as the registry says.

        A registry that has changed since then is newer than what the server said.
        """
        known = _parsed(self._store.get(self._limit))
        if not (isinstance(known, list) and len(known) == 2 and all(type(number) is int for number in known)):
            return window
        limit, said_under = known
        return limit if said_under == window and 0 < limit < window else window

    def wants_reasoning(self) -> bool:
        """Whether the server has asked for the reasoning before calls."""
        return self._store.get(self._reasoning) == "wanted"

    def learn_reasoning(self) -> None:
        """Remember that it has."""
        self._store.set(self._reasoning, "wanted")


def memory_of(spec: ModelSpec, store: Notes) -> EndpointMemory | None:
    """What is known of the endpoint of `spec`; None if it has none."""
    try:
        return EndpointMemory(store, url=shown(base_url(spec)), model=spec.model_name)
    except ConfigError:
        return None


def _parsed(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None
