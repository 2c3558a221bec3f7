"""Mask the secrets of a request in everything that comes back: servers echo keys in errors, models repeat their input.

A secret is recognised in each of its spellings, see `domain.known_keys`. That covers ``Basic`` and ``Bearer`` headers.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import parse_qsl, unquote, urlsplit

from chatops.domain.known_keys import (
    HIDDEN,
    MIN_SPELLING,
    add_known_keys,
    is_distinctive,
    known_keys,
    replace_spellings,
    spellings,
)
from chatops.domain.model import ModelFailure, ModelReply
from chatops.domain.names import SECRET_NAME
from chatops.domain.tools import RawCall
from chatops.models.base import Failed, ModelEvent, ModelNotice, ReasoningChunk, Replied, Retrying, TextChunk
from chatops.models.keys import NO_KEY
from chatops.policy.registry import ModelSpec

CUT = "…"
"""The mark of `domain.wording.cut`."""
_LEFT_OF_A_KEY = 3
"""Characters of a key that was cut which may stay: prefixes such as ``sk-`` are no secret."""
HELD_A_KEY = "a key that chatops knows stood in its arguments, and was taken out"
_KEY_SHAPED = re.compile(r"\b(sk|rk|pk|gsk|xai)[-_][A-Za-z0-9_*.\-]{4,}|\bAIza[A-Za-z0-9_\-]{8,}")


def secrets_of(spec: ModelSpec, *, key: str) -> tuple[str, ...]:
    """Return the secrets that a request to `spec` carries: its key, and those in its address and headers."""
    try:
        parts = urlsplit(spec.api_url)
    except ValueError:
        return (key,)
    fields = [*parse_qsl(parts.query), *spec.headers]
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    held = [password, *(value for name, value in fields if SECRET_NAME.search(name))]
    if not password or is_distinctive(user):
        # https://TOKEN@host and https://TOKEN:x-oauth-basic@host: the user name is the secret.
        held.append(user)
    return tuple(dict.fromkeys([key, *held]))


def redact(text: str, *secrets: str) -> str:
    """Return `text` of an error without `secrets` and without anything else that looks like a key."""
    long_enough = [secret for secret in secrets if len(secret) >= MIN_SPELLING and secret != NO_KEY]
    spelled = spellings(long_enough)
    # The server's text may have been cut in the middle of a secret.
    parts = [replace_spellings(part, spelled) for part in text.split(CUT)]
    before_cuts = [_without_open_end(part, spelled) for part in parts[:-1]]
    return _KEY_SHAPED.sub(HIDDEN, CUT.join([*before_cuts, parts[-1]]))


def _without_open_end(text: str, spellings: tuple[str, ...]) -> str:
    """Return `text` without the beginning of a secret at its end, unless that is too short to help anyone."""
    length = _open_end(text, spellings)
    return text[: len(text) - length] + HIDDEN if length > _LEFT_OF_A_KEY else text


class Mask:
    """Remover of secrets, and of all known keys, from the events of one reply.

    Text is held back while it may be the beginning of a secret. A call with a secret in its arguments cannot run.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        own = tuple(secrets)
        add_known_keys(*own)
        self._keys = (*own, *known_keys())
        self._spellings = spellings(known_keys())
        self._held = {TextChunk: "", ReasoningChunk: ""}
        """The end of each kind of text that may be the beginning of a secret."""

    def events(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the events to show for `event`, without secrets.

        Text held back so far comes first if the event ends the reply. The result is empty while everything is held
        back.
        """
        match event:
            case TextChunk(text=text) | ReasoningChunk(text=text):
                return self._mask_piece(type(event), text)
            case Replied(reply=reply):
                return [*self._take_held(), Replied(reply=self._mask_reply(reply))]
            case Failed(failure=failure):
                return [*self._take_held(), Failed(failure=self._mask_failure(failure))]
            case ModelNotice(text=text):
                return [ModelNotice(text=redact(text, *self._keys))]
            case Retrying(reason=reason):
                return [replace(event, reason=redact(reason, *self._keys))]
            case _:
                return [event]

    def _mask_piece(self, kind: type[TextChunk | ReasoningChunk], text: str) -> list[ModelEvent]:
        if not self._spellings:
            return [kind(text=text)]
        text = replace_spellings(self._held[kind] + text, self._spellings)
        safe = len(text) - _open_end(text, self._spellings)
        self._held[kind] = text[safe:]
        return [kind(text=text[:safe])] if safe else []

    def _take_held(self) -> list[ModelEvent]:
        text, thought = self._held[TextChunk], self._held[ReasoningChunk]
        self._held = {TextChunk: "", ReasoningChunk: ""}
        return [*([ReasoningChunk(text=thought)] if thought else []), *([TextChunk(text=text)] if text else [])]

    def _mask_reply(self, reply: ModelReply) -> ModelReply:
        if not self._spellings:
            return reply
        return replace(
            reply,
            text=self._hide(reply.text),
            reasoning=self._hide(reply.reasoning),
            calls=tuple(map(self._mask_call, reply.calls)),
            model_id=self._hide(reply.model_id),
        )

    def _mask_call(self, call: RawCall) -> RawCall:
        hidden = self._hide(call.arguments)
        return call if hidden == call.arguments else replace(call, arguments=hidden, problem=call.problem or HELD_A_KEY)

    def _mask_failure(self, failure: ModelFailure) -> ModelFailure:
        return replace(
            failure,
            message=redact(failure.message, *self._keys),
            advice=redact(failure.advice, *self._keys),
            partial_text=self._hide(failure.partial_text),
            partial_reasoning=self._hide(failure.partial_reasoning),
        )

    def _hide(self, text: str) -> str:
        return replace_spellings(text, self._spellings)


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
