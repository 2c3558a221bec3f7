"""What a server has: the models of a configured one, and what kind of server answers at an address."""

import asyncio
import importlib
from typing import NamedTuple
from urllib.parse import urlsplit

from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.model import FailureKind
from chatops.models.client import AGENT
from chatops.models.hosts import HOSTS, normal_url, split_url, where
from chatops.models.keys import NO_KEY, Secret, read_key, redact
from chatops.policy.registry import HostType, ModelSpec, ModelType, Timeouts

PATIENCE_S = 5.0


class Probe(NamedTuple):
    """What answered: the likely kind of server, its base URL, its models in its own order."""

    host_type: HostType
    base_url: str
    models: list[str]


async def list_models(spec: ModelSpec) -> list[str]:
    """The ids that the server of `spec` lists. Raises ChatopsError with a sentence and the next step."""
    if spec.type is not ModelType.OPENAI:
        return [spec.model_name or spec.name]
    if not spec.api_url:
        raise ConfigError(f"Model {spec.name!r} has no api_url.", advice="Add it in the registry: chatops connect URL")
    url = normal_url(spec.api_url, base_path=HOSTS[spec.host_type].base_path, name=spec.name)
    key = await read_key(spec.key)
    return await _ask(spec, url=url, key=key)


async def probe(url: str, key: str = "", *, host_type: HostType | None = None) -> Probe:
    """Try `url` as given, then with /v1, then with /api, and see what lists models there.

    With `host_type` only the base path of such servers is tried. The key goes to that host only. Raises ChatopsError:
    the most telling of what was met.
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
        spec = ModelSpec(name="probe", api_url=candidate, timeouts=Timeouts(connect=PATIENCE_S))
        try:
            names = await _ask(spec, url=candidate, key=Secret(key or NO_KEY))
        except _Deaf as error:
            raise ChatopsError(str(error), advice=error.advice) from None
        except KeyRefused as error:
            errors.append(_key_needed(where(candidate), error, key=key))
            continue
        except ChatopsError as error:
            errors.append(error)
            continue
        return Probe(host_type or _guess(candidate), candidate, names)
    # A path that wants a key is the API; one that serves a page or nothing is only the wrong path.
    raise max(errors, key=lambda error: (isinstance(error, KeyRefused), not isinstance(error, _NoListing)))


class KeyRefused(ChatopsError):
    """The server does not accept the key, or wants one."""

    def __init__(self, message: str, *, advice: str = "", status: int = 401) -> None:
        super().__init__(message, advice=advice)
        self.status = status


class _Deaf(ChatopsError):
    """Nothing there talks at all, so another path is no help."""


class _NoListing(ChatopsError):
    """Something answers at this path, and it is no list of models."""


def _key_needed(host: str, error: KeyRefused, *, key: str) -> KeyRefused:
    """`error` for a server that is in no registry yet."""
    if key:
        return KeyRefused(f"{host} refuses the key ({error.status}).", advice="Put the right one into the variable.")
    advice = "Put it into an environment variable and name that: --key-env VARIABLE"
    return KeyRefused(f"{host} wants a key ({error.status}).", advice=advice)


async def _ask(spec: ModelSpec, *, url: str, key: Secret) -> list[str]:
    await asyncio.to_thread(importlib.import_module, "chatops.models.failures")
    from chatops.models.connection import Connection, StatusError  # heavy, therefore here
    from chatops.models.deltas import BadData
    from chatops.models.errortext import looks_like_html
    from chatops.models.failures import trouble_of
    from chatops.models.listing import model_ids
    from chatops.models.statuses import about, trouble_of_status

    connection = Connection(spec, url=url, agent=AGENT)
    of = about(spec, url=url)
    body = b""
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            body = await connection.get("/models", key=key, timeout_s=PATIENCE_S)
        names = model_ids(body)
    except StatusError as error:
        if error.status == 404:
            raise _NoListing(
                f"{of.host} answers, and has no list of models at {url}/models (404).",
                advice="Give the base URL that its documentation names for OpenAI-compatible clients.",
            ) from None
        failure = trouble_of_status(error.status, error.headers, error.body, of=of).failure
        message = redact(failure.message, key.reveal())
        if failure.kind is FailureKind.UNAUTHORIZED:
            raise KeyRefused(message, advice=failure.advice, status=error.status) from None
        raise ChatopsError(message, advice=failure.advice) from None
    except BadData:
        what = "a web page" if looks_like_html(body[:4096].decode("utf-8", "replace")) else "something else"
        raise _NoListing(
            f"{of.host} sent {what} instead of a list of models at {url}/models.",
            advice="Give the base URL that its documentation names for OpenAI-compatible clients.",
        ) from None
    except TimeoutError:
        raise _Deaf(f"{of.host} takes too long to answer.", advice="Check that it is the right address.") from None
    except ChatopsError:
        raise
    except Exception as error:
        failure = trouble_of(error, of=of, timeouts=spec.timeouts).failure
        raise _Deaf(redact(failure.message, key.reveal()), advice=failure.advice) from None
    finally:
        await connection.aclose()
    return names


def _guess(url: str) -> HostType:
    """By name, path and usual port; people can correct it in the registry."""
    parts = urlsplit(url)
    host, path = (parts.hostname or ""), parts.path
    if host.endswith("openrouter.ai"):
        return HostType.OPENROUTER
    if path.endswith("/api"):
        return HostType.OPENWEBUI
    ports = {11434: HostType.OLLAMA, 1234: HostType.LMSTUDIO, 8080: HostType.LLAMACPP, 8000: HostType.VLLM}
    ports[4000] = HostType.LITELLM
    port = int(where(url).rpartition(":")[2])
    return HostType.OPENAI if host.endswith("openai.com") else ports.get(port, HostType.OPENAI)
