"""Says if a local server has a model in memory, as far as the server states that.

Ollama (``/api/ps``) lists the models in memory, LM Studio (``/api/v0/models``) the state of each. llama.cpp refuses
requests while it loads, with an error that says so. Other servers state nothing.
"""

from collections.abc import Mapping
from types import MappingProxyType

from chatops.domain.canonical import json_or_text
from chatops.policy.registry import HostType

LISTS: Mapping[HostType, str] = MappingProxyType({HostType.OLLAMA: "/api/ps", HostType.LMSTUDIO: "/api/v0/models"})
"""The path at which each kind of server lists its models; it is not below the base path ``/v1``."""


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
