"""Masking of a request's secrets in everything received: servers echo keys in errors, models repeat their input.

A secret is recognised as it is, percent-encoded, in hex, and in base64 at any of its three alignments. This covers
``Basic`` and ``Bearer`` headers too.
"""

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from chatops.domain.model import ModelFailure, ModelReply
from chatops.models.base import Failed, ModelEvent, ModelNotice, ReasoningChunk, Replied, Retrying, TextChunk
from chatops.models.keys import NO_KEY
from chatops.policy.registry import ModelSpec

HIDDEN = "[key]"
CUT = "…"
SHORTEST = 6
"""Minimum length in characters of a secret that is masked in errors."""
_KEY_SHAPED = re.compile(r"\b(sk|rk|pk|gsk|xai)[-_][A-Za-z0-9_*.\-]{4,}|\bAIza[A-Za-z0-9_\-]{8,}")
_SECRET_NAME = re.compile(r"key|token|auth|secret|cookie|pass|code|sig", re.IGNORECASE)


def secrets_of(spec: ModelSpec, *, key: str) -> tuple[str, ...]:
    """Return the secrets that a request to `spec` carries: its key, and those in its address and headers."""
    try:
        parts = urlsplit(spec.api_url)
    except ValueError:
        return (key,)
    fields = [*parse_qsl(parts.query), *spec.headers]
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    held = [password, *(value for name, value in fields if _SECRET_NAME.search(name))]
    if not password or _is_distinctive(user):
        # https://TOKEN@host and https://TOKEN:x-oauth-basic@host: the user name is the secret.
        held.append(user)
    return tuple(dict.fromkeys([key, *held]))


def redact(text: str, *secrets: str) -> str:
    """Return `text` of an error without `secrets` and without anything else that looks like a key."""
    long_enough = [secret for secret in secrets if len(secret) >= SHORTEST and secret != NO_KEY]
    spellings = _spellings(long_enough)
    # The server's text may have been cut in the middle of a secret.
    parts = [_without(part, spellings) for part in text.split(CUT)]
    whole = [
        part[: len(part) - open_] + HIDDEN if (open_ := _open_end(part, spellings)) > 3 else part for part in parts
    ]
    return _KEY_SHAPED.sub(HIDDEN, CUT.join([*whole[:-1], parts[-1]]))


class Mask:
    """Remover of secrets from the events of one reply. Text is held back while it may be the beginning of a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._all = tuple(secrets)
        self._spellings = _spellings([secret for secret in self._all if _is_distinctive(secret)])
        self._held = {TextChunk: "", ReasoningChunk: ""}

    def events(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the events to show for `event`, without secrets.

        Text held back so far comes first if the event ends the reply. The result is empty while everything is held
        back.
        """
        match event:
            case TextChunk(text=text) | ReasoningChunk(text=text):
                return self._piece(type(event), text)
            case Replied(reply=reply):
                return [*self._rest(), Replied(reply=self._reply(reply))]
            case Failed(failure=failure):
                return [*self._rest(), Failed(failure=self._failure(failure))]
            case ModelNotice(text=text):
                return [ModelNotice(text=redact(text, *self._all))]
            case Retrying(reason=reason):
                return [replace(event, reason=redact(reason, *self._all))]
            case _:
                return [event]

    def _piece(self, kind: type[TextChunk | ReasoningChunk], text: str) -> list[ModelEvent]:
        if not self._spellings:
            return [kind(text=text)]
        text = _without(self._held[kind] + text, self._spellings)
        safe = len(text) - _open_end(text, self._spellings)
        self._held[kind] = text[safe:]
        return [kind(text=text[:safe])] if safe else []

    def _rest(self) -> list[ModelEvent]:
        text, thought = self._held[TextChunk], self._held[ReasoningChunk]
        self._held = {TextChunk: "", ReasoningChunk: ""}
        return [
            *([ReasoningChunk(text=thought)] if thought else []),
            *([TextChunk(text=text)] if text else []),
        ]

    def _reply(self, reply: ModelReply) -> ModelReply:
        if not self._spellings:
            return reply
        return replace(
            reply,
            text=self._hide(reply.text),
            reasoning=self._hide(reply.reasoning),
            calls=tuple(replace(call, arguments=self._hide(call.arguments)) for call in reply.calls),
            model_id=self._hide(reply.model_id),
        )

    def _failure(self, failure: ModelFailure) -> ModelFailure:
        return replace(
            failure,
            message=redact(failure.message, *self._all),
            advice=redact(failure.advice, *self._all),
            partial_text=self._hide(failure.partial_text),
            partial_reasoning=self._hide(failure.partial_reasoning),
        )

    def _hide(self, text: str) -> str:
        return _without(text, self._spellings)


def _is_distinctive(secret: str) -> bool:
    """Return True if `secret` cannot be a word of an answer: users write ``ollama`` where no key is needed."""
    mixed = any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
    return secret != NO_KEY and (len(secret) >= 16 or (len(secret) >= 8 and mixed))


def _spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return all spellings in which a secret may occur in a text, the longest first."""
    found: set[str] = set()
    for secret in secrets:
        data = secret.encode("utf-8", "surrogatepass")
        whole = b64encode(data).decode()
        found |= {secret, quote(secret, safe=""), data.hex(), data.hex().upper(), whole, whole.rstrip("=")}
        for before in range(3):
            # Leave off both ends, which depend on the bytes around the secret.
            size = (before + len(data)) // 3 * 3
            padded = (bytes(before) + data)[:size]
            begin = -(-before * 8 // 6)
            found |= {encode(padded).decode()[begin:] for encode in (b64encode, urlsafe_b64encode)}
    return tuple(sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True))


def _without(text: str, spellings: tuple[str, ...]) -> str:
    for spelling in spellings:
        if spelling in text:
            text = text.replace(spelling, HIDDEN)
    return text


def _open_end(text: str, spellings: tuple[str, ...]) -> int:
    """Return the number of characters at the end of `text` that may be the beginning of a secret."""
    longest = 0
    for spelling in spellings:
        at = text.find(spelling[0], max(0, len(text) - len(spelling) + 1))
        while at >= 0 and len(text) - at > longest:
            if spelling.startswith(text[at:]):
                longest = len(text) - at
                break
            at = text.find(spelling[0], at + 1)
    return longest
