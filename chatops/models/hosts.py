"""Differences between servers: base paths and quirks, one profile per `host_type`."""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from chatops.domain.canonical import json_or_text
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.policy.registry import HostType, ModelSpec

_VERSION_SEGMENT = re.compile(r"/v\d+[a-z0-9]*(/|$)")
_ENDPOINT_TAIL = re.compile(r"/(chat/completions|completions|models|embeddings)$")


@frozen_dataclass
class HostProfile:
    """Profile of a kind of server. The defaults are those of OpenAI."""

    base_path: str = "/v1"
    usual_url: str = ""
    """Used in advice only: requests go only to addresses that the user configured."""
    tool_choice_none: bool = True
    """True if the server obeys `tool_choice: "none"`; otherwise the tools are left out."""
    short_ids: bool = False
    """True for call ids of nine letters and digits, which servers with Mistral templates require."""
    max_tokens_field: str = "max_tokens"
    reasoning_field: str = "reasoning_content"
    """Field in which reasoning is sent back to models that want it, until the server has sent some itself."""
    loaded_list: str = ""
    """Path, not below the base path, at which the server lists the models in memory; empty if it has none.
    llama.cpp has none: it refuses requests while it loads, with an error that says so."""
    absent_signature: str = ""
    """JSON object text to send as `extra_content` with a call that another model made, for servers that require one."""


HOSTS: dict[HostType, HostProfile] = {
    HostType.OPENAI: HostProfile(usual_url="https://api.openai.com/v1"),
    HostType.OPENWEBUI: HostProfile(base_path="/api", usual_url="http://localhost:3000/api"),
    HostType.OLLAMA: HostProfile(usual_url="http://127.0.0.1:11434/v1", tool_choice_none=False, loaded_list="/api/ps"),
    HostType.VLLM: HostProfile(usual_url="http://127.0.0.1:8000/v1", short_ids=True),
    HostType.LLAMACPP: HostProfile(usual_url="http://127.0.0.1:8080/v1", tool_choice_none=False),
    HostType.LITELLM: HostProfile(usual_url="http://127.0.0.1:4000/v1", short_ids=True),
    HostType.OPENROUTER: HostProfile(
        usual_url="https://openrouter.ai/api/v1", short_ids=True, reasoning_field="reasoning"
    ),
    HostType.LMSTUDIO: HostProfile(
        usual_url="http://127.0.0.1:1234/v1", tool_choice_none=False, loaded_list="/api/v0/models"
    ),
    # Gemini 3 answers 400 if a call of the history lacks its thought signature. Google documents this value for calls
    # that it did not make itself: https://ai.google.dev/gemini-api/docs/thought-signatures
    HostType.GEMINI: HostProfile(
        absent_signature='{"google":{"thought_signature":"skip_thought_signature_validator"}}'
    ),
}


def host_of(spec: ModelSpec) -> HostProfile:
    """Return the profile of a model's server. OpenAI's own address has another name for the token limit."""
    profile = HOSTS[spec.host_type]
    if urlsplit(spec.api_url).hostname == "api.openai.com":
        return HostProfile(usual_url=profile.usual_url, max_tokens_field="max_completion_tokens")
    return profile


def base_url(spec: ModelSpec) -> str:
    """Return the base URL, to which `/chat/completions` is appended.

    Raises ConfigError naming the model if there is no usable address.
    """
    name = spec.label or spec.name
    if not spec.api_url.strip():
        usual = HOSTS[spec.host_type].usual_url
        raise ConfigError(
            f"Model {name!r} has no api_url, so there is nowhere to send the question.",
            advice=f'Add "api_url" to it in the registry, for example "{usual}", or run: chatops connect URL',
        )
    if not spec.model_name.strip():
        raise ConfigError(
            f"Model {name!r} has no model_name, so the server would not know which model to use.",
            advice='Add "model_name" to it in the registry; chatops models list shows what a server has.',
        )
    return normal_url(spec.api_url, base_path=HOSTS[spec.host_type].base_path, name=name)


def normal_url(url: str, *, base_path: str, name: str = "") -> str:
    """Return `url` with the base path exactly once and no trailing slash.

    Raises ConfigError if it is not a web address.
    """
    parts = split_url(url, name=name)
    path = _ENDPOINT_TAIL.sub("", parts.path.rstrip("/")).rstrip("/")
    if base_path == "/api":
        path = re.sub(r"(/api)?/v1$", "", path)
        path = path if path.endswith("/api") else f"{path}/api"
    elif not _VERSION_SEGMENT.search(path):
        path += base_path
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def other_bases(url: str) -> list[str]:
    """Return other base URLs on the same host that `url` may mean: cut after its version, and the usual two."""
    path = urlsplit(url).path.rstrip("/")
    version = _VERSION_SEGMENT.search(path)
    paths = [path[: version.end()].rstrip("/")] if version else []
    return [f"{root_of(url)}{other}" for other in dict.fromkeys([*paths, "/v1", "/api"]) if other != path]


def root_of(url: str) -> str:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


def split_url(url: str, *, name: str = "") -> SplitResult:
    """Return the parts of a web address. A missing scheme is http for this machine, else https."""
    text = url.strip()
    shown = repr(without_secrets(text))
    subject = f"The api_url of model {name!r}, {shown}," if name else f"The address {shown}"
    advice = "Write it as http://HOST:PORT/v1 or https://HOST/v1."
    if "://" not in text:
        bare = text.partition("/")[0]
        host = bare.rpartition("@")[2].rsplit(":", 1)[0] if ":" in bare else bare
        text = f"{'http' if is_loopback(host.strip('[]')) else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        _ = parts.port  # Raises for a port that is no number.
    except ValueError:
        raise ConfigError(f"{subject} is not a web address.", advice=advice) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{subject} is not a web address.", advice=advice)
    if any(char.isspace() or not char.isprintable() for char in text):
        raise ConfigError(f"{subject} has white space or control characters in it.", advice=advice)
    return parts


def is_loopback(host: str) -> bool:
    """Return True if `host` is this machine, by name or address: such servers never use a proxy."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_secrets(url: str) -> str:
    """Return `url` for messages: without user, password, query and fragment."""
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    return re.sub(r"^([a-z]*://)?[^/@]*@", r"\1", bare, flags=re.IGNORECASE)


def host_and_port(url: str) -> str:
    """Return ``host:port`` of a web address, for messages: no user, no password, no query."""
    parts = urlsplit(url)
    host = parts.hostname or "?"
    host = f"[{host}]" if ":" in host else host
    if parts.scheme not in ("http", "https"):
        return host
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{host}:{port}"


def is_unloaded(listing: str, *, host: HostType, model: str) -> bool:
    """Return True if the server's list says that the model is not in memory; False for anything unexpected."""
    value = json_or_text(listing)
    listed = value.get("models" if host is HostType.OLLAMA else "data") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return False
    entries = [entry for entry in listed if isinstance(entry, dict)]
    if host is HostType.OLLAMA:
        return all(entry.get("model") not in (model, f"{model}:latest") for entry in entries)
    return any(entry.get("id") == model and entry.get("state") == "not-loaded" for entry in entries)
