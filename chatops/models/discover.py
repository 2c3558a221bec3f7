"""What a server has: the models of a configured one, and what kind of server answers at an address."""

import asyncio
import importlib
from typing import NamedTuple
from urllib.parse import urlsplit

from chatops.domain.errors import ChatopsError, ConfigError
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


async def probe(url: str, key: str = "") -> Probe:
    """Try `url` as given, then with /v1, then with /api, and see what lists models there.

    The key goes to that host only. Raises ChatopsError: the most telling of what was met.
    """
    parts = split_url(url)
    given = parts._replace(query="", fragment="").geturl().rstrip("/")
    candidates = dict.fromkeys(
        [given, normal_url(url, base_path="/v1"), normal_url(url, base_path="/api")]
        if parts.path.strip("/")
        else [normal_url(url, base_path="/v1"), normal_url(url, base_path="/api")]
    )
    first: ChatopsError | None = None
    for candidate in candidates:
        candidate = candidate.removesuffix("/chat/completions").removesuffix("/models")
        spec = ModelSpec(name="probe", api_url=candidate, timeouts=Timeouts(connect=PATIENCE_S))
        try:
            names = await _ask(spec, url=candidate, key=Secret(key or NO_KEY))
        except _Deaf as error:
            raise ChatopsError(str(error), advice=error.advice) from None
        except _Locked:
            first = first or _locked(where(candidate), key=key)
            continue
        except ChatopsError as error:
            first = first or error
            continue
        return Probe(_guess(candidate), candidate, names)
    assert first is not None
    raise first


class _Deaf(ChatopsError):
    """Nothing there talks at all, so another path is no help."""


class _Locked(ChatopsError):
    """What is there wants another key."""


def _locked(host: str, *, key: str) -> ChatopsError:
    if key:
        return ChatopsError(f"{host} refuses the key (401).", advice="Put the right one into the variable.")
    advice = "Put it into an environment variable and name that: --key-env VARIABLE"
    return ChatopsError(f"{host} wants a key (401).", advice=advice)


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
            raise ChatopsError(
                f"{of.host} answers, and has no list of models at {url}/models (404).",
                advice="Give the base URL that its documentation names for OpenAI-compatible clients.",
            ) from None
        failure = trouble_of_status(error.status, error.headers, error.body, of=of).failure
        kind = _Locked if error.status == 401 else ChatopsError
        raise kind(redact(failure.message, key.reveal()), advice=failure.advice) from None
    except BadData:
        what = "a web page" if looks_like_html(body[:4096].decode("utf-8", "replace")) else "something else"
        raise ChatopsError(
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
