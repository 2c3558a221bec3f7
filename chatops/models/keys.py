"""API keys: read as late as possible, held as briefly as possible, never shown.

The secrets of a request are masked in everything received: servers echo keys in errors, models repeat their input. A
secret is recognised in each of its spellings, see `domain.secrets`. This covers ``Basic`` and ``Bearer`` headers too.
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
from chatops.domain.model import ModelFailure, ModelReply
from chatops.domain.secrets import HIDDEN, SECRET_NAME, SHORTEST, is_distinctive, know, known_keys, spellings, without
from chatops.domain.tools import RawCall
from chatops.models.base import Failed, ModelEvent, ModelNotice, ReasoningChunk, Replied, Retrying, TextChunk
from chatops.policy.registry import KeySource, ModelSpec

NO_KEY = "none"
"""Sent if a server needs no key: with an empty one the SDK would look for another provider's."""

COMMAND_TIMEOUT_S = 15.0


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
        return _checked(source.literal, origin="api_key in the registry")
    if source.env:
        found = environ.get(source.env, "")
        if not found.strip():
            raise ConfigError(
                f"The key is expected in the environment variable {source.env}, which is not set.",
                advice=f"Set it before starting: export {source.env}=…",
            )
        return _checked(found, origin=f"environment variable {source.env}")
    if source.file:
        return _checked(_from_file(source.file), origin=f"file {source.file}")
    if source.command:
        return _checked(await _from_command(source.command), origin=f"command {source.command[0]}")
    if source.keyring:
        return _checked(
            await asyncio.to_thread(_from_keyring, source.keyring), origin=f"keyring entry {source.keyring}"
        )
    return Secret(NO_KEY)


def _checked(text: str, *, origin: str) -> Secret:
    key = text.strip()
    if not key:
        raise ConfigError(f"The {origin} holds no key.", advice="Write the key there, and nothing else.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"What the {origin} holds cannot be a key: it has white space or other characters that no key has.",
            advice="Write the key there as one line, and nothing else.",
        )
    know(key)
    return Secret(key)


def _from_file(name: str) -> str:
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


async def _from_command(command: tuple[str, ...]) -> str:
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


def _from_keyring(entry: str) -> str:
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


CUT = "…"
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
    long_enough = [secret for secret in secrets if len(secret) >= SHORTEST and secret != NO_KEY]
    spelled = spellings(long_enough)
    # The server's text may have been cut in the middle of a secret.
    parts = [without(part, spelled) for part in text.split(CUT)]
    whole = [part[: len(part) - open_] + HIDDEN if (open_ := _open_end(part, spelled)) > 3 else part for part in parts]
    return _KEY_SHAPED.sub(HIDDEN, CUT.join([*whole[:-1], parts[-1]]))


class Mask:
    """Remover of secrets, and of all known keys, from the events of one reply.

    Text is held back while it may be the beginning of a secret. A call with a secret in its arguments cannot run.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        own = tuple(secrets)
        know(*own)
        self._keys = (*own, *known_keys())
        self._spellings = spellings(known_keys())
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
                return [ModelNotice(text=redact(text, *self._keys))]
            case Retrying(reason=reason):
                return [replace(event, reason=redact(reason, *self._keys))]
            case _:
                return [event]

    def _piece(self, kind: type[TextChunk | ReasoningChunk], text: str) -> list[ModelEvent]:
        if not self._spellings:
            return [kind(text=text)]
        text = without(self._held[kind] + text, self._spellings)
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
            calls=tuple(map(self._call, reply.calls)),
            model_id=self._hide(reply.model_id),
        )

    def _call(self, call: RawCall) -> RawCall:
        hidden = self._hide(call.arguments)
        return call if hidden == call.arguments else replace(call, arguments=hidden, problem=call.problem or HELD_A_KEY)

    def _failure(self, failure: ModelFailure) -> ModelFailure:
        return replace(
            failure,
            message=redact(failure.message, *self._keys),
            advice=redact(failure.advice, *self._keys),
            partial_text=self._hide(failure.partial_text),
            partial_reasoning=self._hide(failure.partial_reasoning),
        )

    def _hide(self, text: str) -> str:
        return without(text, self._spellings)


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
