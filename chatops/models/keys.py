"""Read API keys as late as possible, hold them as briefly as possible, never show them."""

import asyncio
import contextlib
import importlib
import os
from collections.abc import Mapping
from pathlib import Path

from chatops.config.extras import not_installed
from chatops.config.paths import plain_file
from chatops.domain.errors import ConfigError
from chatops.domain.known_keys import add_known_keys
from chatops.policy.registry import KeySource

NO_KEY = "none"
"""Sent if a server needs no key: with an empty one the SDK would look for another provider's."""

COMMAND_TIMEOUT_S = 15.0
"""Seconds for a command to print the key: time to touch a device, and not for ever if it waits for a password."""


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
