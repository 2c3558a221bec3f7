"""Read API keys as late as possible, hold them as briefly as possible, never show them.

The secrets of a request are masked in everything that comes back: servers echo keys in errors, models repeat their
input. A secret is recognised in each of its spellings, see `domain.known_keys`. That covers ``Basic`` and ``Bearer``
headers.
"""

import asyncio
import contextlib
import importlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from chatops.config.extras import not_installed
from chatops.config.paths import plain_file
from chatops.domain.errors import ConfigError
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
from chatops.policy.registry import KeySource, ModelSpec

NO_KEY = "none"
"""Sent if a server needs no key: with an empty one the SDK would look for another provider's."""
COMMAND_TIMEOUT_S = 15.0
"""Seconds for a command to print the key: time to touch a device, and not for ever if it waits for a password."""
CUT = "…"
"""The mark of `domain.wording.cut`."""
_LEFT_OF_A_KEY = 3
"""Characters of a key that was cut which may stay: prefixes such as ``sk-`` are no secret."""
HELD_A_KEY = "a key that chatops knows stood in its arguments, and was taken out"
_KEY_SHAPED = re.compile(r"\b(sk|rk|pk|gsk|xai)[-_][A-Za-z0-9_*.\-]{4,}|\bAIza[A-Za-z0-9_\-]{8,}")


class Secret:
    """A key that is never revealed by printing, formatting or comparing."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the key itself, for the one header that needs it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)" if self._text != NO_KEY else "Secret(none)"

    __str__ = __repr__


async def read_key(source: KeySource, *, environ: Mapping[str, str] | None = None) -> Secret:
    """Return the key from `source`; `NO_KEY` if that is empty.

    Raises ConfigError with the next step.
    """
    environ = os.environ if environ is None else environ
    if source.literal:
        return _check_key(source.literal, origin="api_key in the registry")
    if source.env:
        found = environ.get(source.env, "")
        if not found.strip():
            raise ConfigError(
                f"The key is expected in the environment variable {source.env}, which is not set.",
                advice=f"Set it before starting: export {source.env}=…",
            )
        return _check_key(found, origin=f"environment variable {source.env}")
    if source.file:
        return _check_key(_read_file(source.file), origin=f"file {source.file}")
    if source.command:
        return _check_key(await _run_command(source.command), origin=f"command {source.command[0]}")
    if source.keyring:
        return _check_key(
            await asyncio.to_thread(_read_keyring, source.keyring), origin=f"keyring entry {source.keyring}"
        )
    return Secret(NO_KEY)


def _check_key(text: str, *, origin: str) -> Secret:
    key = text.strip()
    if not key:
        raise ConfigError(f"The {origin} holds no key.", advice="Write the key there, and nothing else.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"What the {origin} holds cannot be a key: it has white space or other characters that no key has.",
            advice="Write the key there as one line, and nothing else.",
        )
    add_known_keys(key)
    return Secret(key)


def _read_file(name: str) -> str:
    path = Path(name).expanduser()
    try:
        with plain_file(path, follow=True) as (file, status):
            if status.st_mode & 0o077:
                raise ConfigError(
                    f"The key file {path} can be read by others on this machine, so it is not used.",
                    advice=f"Run: chmod 600 {path}",
                )
            return file.read(65_536).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(
            f"The key file {path} cannot be read: {error.strerror}.", advice="Check api_key_file in the registry."
        ) from None


async def _run_command(command: tuple[str, ...]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The command that should print the key, {command[0]}, cannot be started: {error}.",
            advice="Check api_key_command in the registry.",
        ) from None
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ConfigError(
            f"The command that should print the key, {command[0]}, did not end within {COMMAND_TIMEOUT_S:.0f} s.",
            advice="Run it by hand: it may be waiting for a password or a device.",
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise ConfigError(
            f"The command that should print the key, {command[0]}, ended with status {process.returncode}.",
            advice="Run it by hand to see why.",
        )
    return output.decode("utf-8", "replace")


def _read_keyring(entry: str) -> str:
    try:
        # An optional dependency, and slow to import.
        keyring = importlib.import_module("keyring")
    except ImportError:
        raise ConfigError(
            f"The key is expected in the keyring, and {not_installed('keyring')}.",
            advice="Or use api_key_env or api_key_file.",
        ) from None
    service, _, user = entry.rpartition("/")
    try:
        found = keyring.get_password(service or "chatops", user)
    except Exception as error:  # Backends may raise any exception.
        raise ConfigError(f"The keyring could not be read: {error}.", advice="Unlock it, or use api_key_env.") from None
    if not isinstance(found, str):
        raise ConfigError(
            f"The keyring has no entry {entry!r}.", advice=f"Add it: keyring set {service or 'chatops'} {user}"
        )
    return found


def store_in_keyring(key: str, *, entry: str) -> bool:
    """Store a key in the system's keyring as ``SERVICE/NAME``. Return False if none keeps it."""
    service, _, user = entry.rpartition("/")
    try:
        keyring = importlib.import_module("keyring")
        keyring.set_password(service, user, key)
        return bool(keyring.get_password(service, user) == key)
    except Exception:  # The package may be absent, and backends may raise any exception.
        return False


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
    # The server's text may have been cut in the middle of a secret: before each mark of a cut, its beginning goes too.
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
