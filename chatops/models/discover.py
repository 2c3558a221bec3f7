"""Discovery of servers: the models of a configured one, and the kind of server at an address."""

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind
from chatops.models.client import AGENT
from chatops.models.error_text import looks_like_html
from chatops.models.hosts import HOSTS, host_and_port, normal_url, split_url
from chatops.models.keys import NO_KEY, Secret, read_key, redact, secrets_of
from chatops.models.served import ServedModel, is_litellm, merge_details, models_in, with_ollama_details
from chatops.models.server_json import BadDataError
from chatops.models.statuses import endpoint_of, status_failure
from chatops.policy.registry import HostType, ModelSpec, Timeouts

if TYPE_CHECKING:
    from chatops.models.connection import ServerConnection

PATIENCE_S = 5.0
"""Seconds for one answer: the user waits meanwhile, and several addresses are tried."""
_OWNERS = {
    "llamacpp": HostType.LLAMACPP,
    "vllm": HostType.VLLM,
    "library": HostType.OLLAMA,
    "organization_owner": HostType.LMSTUDIO,
}
"""`owned_by` in the list of models, in spellings that only these servers use."""
_USUAL_PORTS = {
    11434: HostType.OLLAMA,
    1234: HostType.LMSTUDIO,
    8080: HostType.LLAMACPP,
    8000: HostType.VLLM,
    4000: HostType.LITELLM,
}


@frozen_dataclass
class Probe:
    """The answer of a server: its likely kind, its base URL, and its models in its own order."""

    host_type: HostType
    base_url: str
    models: tuple[ServedModel, ...]

    @property
    def names(self) -> list[str]:
        """Names of the models that can chat."""
        return [model.name for model in self.models if model.chats]


async def list_models(spec: ModelSpec) -> list[str]:
    """Return the ids of the models that the server of `spec` lists, without those that generate no text.

    Raises ChatopsError with a sentence and the next step.
    """
    if not spec.has_server:
        return [spec.model_name or spec.name]
    if not spec.api_url:
        raise ConfigError(f"Model {spec.name!r} has no api_url.", advice="Add it in the registry: chatops connect URL")
    url = normal_url(spec.api_url, base_path=HOSTS[spec.host_type].base_path, name=spec.name)
    key = await read_key(spec.key)
    models = await _list_models_at(spec, url=url, key=key)
    return [model.name for model in models if model.chats or model.name == spec.model_name]


async def probe(url: str, key: str = "", *, host_type: HostType | None = None) -> Probe:
    """Try `url` as given, then with /v1, then with /api, and return the first that lists models.

    With `host_type`, only the base path of such servers is tried. The key is sent to that host only.

    Raises ChatopsError, with the most informative failure of all attempts.
    """
    parts = split_url(url)
    given = parts._replace(query="", fragment="").geturl().rstrip("/")
    usual = ["/v1", "/api"] if host_type is None else [HOSTS[host_type].base_path]
    candidates = dict.fromkeys(normal_url(url, base_path=path) for path in usual)
    if host_type is None and parts.path.strip("/"):
        candidates = {given: None, **candidates}
    errors: list[ChatopsError] = []
    for candidate in candidates:
        candidate = candidate.removesuffix("/chat/completions").removesuffix("/models")
        secret = Secret(key or NO_KEY)
        try:
            models = await _list_models_at(_spec(candidate), url=candidate, key=secret)
        except _NoAnswerError as error:
            raise ChatopsError(str(error), advice=error.advice) from None
        except KeyRefusedError as error:
            errors.append(_key_error(host_and_port(candidate), error, key=key))
            continue
        except ChatopsError as error:
            errors.append(error)
            continue
        return await _look_closer(models, candidate, key=secret, host_type=host_type)
    # A path that requires a key is the API; one that serves a page or nothing is probably just the wrong path.
    raise max(errors, key=lambda error: (isinstance(error, KeyRefusedError), not isinstance(error, _NoListingError)))


async def details(found: Probe, name: str, key: str = "") -> ServedModel:
    """Return what the server states about one of its models; a missing answer is not an error."""
    model = next((model for model in found.models if model.name == name), ServedModel(name=name))
    if found.host_type is not HostType.OLLAMA:
        return model
    async with _connection(_spec(found.base_url), url=found.base_url) as connection:
        with suppress(Exception):  # The details are optional.
            async with asyncio.timeout(PATIENCE_S):
                address = f"{_outside_v1(found.base_url)}/api/show"
                return with_ollama_details(
                    model, await connection.ask(address, {"model": name}, key=Secret(key or NO_KEY))
                )
    return model


class KeyRefusedError(ChatopsError):
    """The server refused the key, or requires one."""

    def __init__(self, message: str, *, advice: str = "", status: int = 401) -> None:
        super().__init__(message, advice=advice)
        self.status = status


class _NoAnswerError(ChatopsError):
    """The server does not answer at all, so trying another path cannot help."""


class _NoListingError(ChatopsError):
    """A server answers at this path, but not with a list of models."""


def _key_error(host: str, error: KeyRefusedError, *, key: str) -> KeyRefusedError:
    """Return `error` for a server that is not in the registry yet."""
    if key:
        advice = "Type the right key, or set the variable to it."
        return KeyRefusedError(f"{host} refuses the key ({error.status}).", advice=advice)
    advice = "In a terminal, connect asks for it. In scripts, name its environment variable: --key-env VARIABLE"
    return KeyRefusedError(f"{host} requires a key ({error.status}).", advice=advice)


def _spec(url: str) -> ModelSpec:
    return ModelSpec(name="probe", api_url=url, timeout_s=Timeouts(connect=PATIENCE_S))


def _outside_v1(url: str) -> str:
    """Return the address under which servers keep APIs that are not part of OpenAI's."""
    return url.removesuffix("/v1")


@asynccontextmanager
async def _connection(spec: ModelSpec, *, url: str) -> "AsyncIterator[ServerConnection]":
    await asyncio.to_thread(importlib.import_module, "chatops.models.failures")
    from chatops.models.connection import ServerConnection  # slow to import

    connection = ServerConnection(spec, url=url, agent=AGENT)
    try:
        yield connection
    finally:
        await connection.aclose()


async def _look_closer(models: list[ServedModel], url: str, *, key: Secret, host_type: HostType | None) -> Probe:
    """Return the likely kind of the server, and `models`, which it listed, with details from its other endpoints."""
    owners = {_OWNERS.get(model.owner) for model in models}
    # The list identifies the server only if all entries agree.
    stated = host_type or (owners.pop() if len(owners) == 1 else None)
    kind = stated or _guess_type(url)
    has_known_address = kind in (HostType.OPENROUTER, HostType.OPENWEBUI) or _is_openai(url)
    # A gateway lists models with their makers as owners, so only its own endpoint identifies it.
    may_be_gateway = stated is None and not has_known_address
    asked = HostType.LITELLM if may_be_gateway else kind
    places = {
        HostType.LITELLM: f"{url}/model/info",
        HostType.LMSTUDIO: f"{_outside_v1(url)}/api/v0/models",
        HostType.OLLAMA: f"{_outside_v1(url)}/api/tags",
    }
    as_listed = Probe(host_type=kind, base_url=url, models=tuple(models))
    if asked not in places:
        return as_listed
    async with _connection(_spec(url), url=url) as connection:
        with suppress(Exception):  # The details are optional.
            async with asyncio.timeout(PATIENCE_S):
                body = await connection.get(places[asked], key=key, timeout_s=PATIENCE_S)
            if asked is not HostType.LITELLM or is_litellm(body):
                return Probe(host_type=asked, base_url=url, models=tuple(merge_details(models, models_in(body))))
    return as_listed


def _is_openai(url: str) -> bool:
    return (urlsplit(url).hostname or "").endswith("openai.com")


async def _list_models_at(spec: ModelSpec, *, url: str, key: Secret) -> list[ServedModel]:
    async with _connection(spec, url=url) as connection:
        return await _list_served(connection, spec, url=url, key=key)


async def _list_served(connection: "ServerConnection", spec: ModelSpec, *, url: str, key: Secret) -> list[ServedModel]:
    from chatops.models.connection import StatusError  # slow to import
    from chatops.models.failures import error_failure

    endpoint = endpoint_of(spec, url=url)
    body = b""
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            body = await connection.get("/models", key=key, timeout_s=PATIENCE_S)
        return models_in(body)
    except StatusError as error:
        if error.status == 404:
            raise _NoListingError(
                f"{endpoint.host} answers, and has no list of models at {url}/models (404).",
                advice="Give the base URL that its documentation names for OpenAI-compatible clients.",
            ) from None
        failure = status_failure(error.status, error.headers, error.body, endpoint=endpoint).failure
        message = redact(failure.message, *secrets_of(spec, key=key.reveal()))
        if failure.kind is FailureKind.UNAUTHORIZED:
            raise KeyRefusedError(message, advice=failure.advice, status=error.status) from None
        raise ChatopsError(message, advice=failure.advice) from None
    except BadDataError:
        what = "a web page" if looks_like_html(body[:4096].decode("utf-8", "replace")) else "something else"
        raise _NoListingError(
            f"{endpoint.host} sent {what} instead of a list of models at {url}/models.",
            advice="Give the base URL that its documentation names for OpenAI-compatible clients.",
        ) from None
    except TimeoutError:
        raise _NoAnswerError(
            f"{endpoint.host} takes too long to answer.", advice="Check that it is the right address."
        ) from None
    except ChatopsError:
        raise
    except Exception as error:
        failure = error_failure(error, endpoint=endpoint, timeouts=spec.timeout_s).failure
        raise _NoAnswerError(
            redact(failure.message, *secrets_of(spec, key=key.reveal())), advice=failure.advice
        ) from None


def _guess_type(url: str) -> HostType:
    """Guess the kind of server by name, path and usual port. Users can correct it in the registry."""
    parts = urlsplit(url)
    if (parts.hostname or "").endswith("openrouter.ai"):
        return HostType.OPENROUTER
    if parts.path.endswith("/api"):
        return HostType.OPENWEBUI
    port = int(host_and_port(url).rpartition(":")[2])
    return HostType.OPENAI if _is_openai(url) else _USUAL_PORTS.get(port, HostType.OPENAI)
