"""The models that a server lists."""

import asyncio
from dataclasses import replace
from difflib import get_close_matches

from chatops.domain.model import ModelFailure
from chatops.models.connection import Connection, StatusError
from chatops.models.deltas import BadDataError
from chatops.models.hosts import other_bases, root_of
from chatops.models.keys import Secret
from chatops.models.served import models_in
from chatops.models.statuses import About

QUICK_S = 3.0
SHOWN = 8


def model_ids(body: bytes) -> list[str]:
    """Return the ids in the answer of `/models` (OpenAI, Open WebUI) or `/api/tags` (Ollama).

    Raises BadDataError.
    """
    return [model.name for model in models_in(body)]


async def explain_not_found(failure: ModelFailure, connection: Connection, *, key: Secret, of: About) -> ModelFailure:
    """Explain a 404: return it with what does not exist, the model or the path, and what does."""
    try:
        names = await _names(connection, "/models", key=key)
    except BadDataError:
        names = []
    except StatusError as error:
        if error.status != 404:
            return failure
        return await _with_the_right_address(failure, connection, key=key, of=of)
    except Exception:  # An error of this second request must not replace that of the user's request.
        return failure
    if not names or of.model in names:
        return failure
    near = get_close_matches(of.model, names, n=3, cutoff=0.4)
    shown = [*near, *(name for name in names if name not in near)][:SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return replace(
        failure,
        message=f"Model {of.model!r} is unknown at {of.host}; known: {', '.join(shown)}{more}.",
        advice="Choose one with chatops connect, or correct model_name in the registry.",
    )


async def _with_the_right_address(
    failure: ModelFailure, connection: Connection, *, key: Secret, of: About
) -> ModelFailure:
    """Return a 404 of the path with the address on the same host that does answer, if there is one."""
    others = other_bases(of.url)
    found = await asyncio.gather(*(_answers(connection, base, key=key) for base in others))
    nothing = f"Nothing answers at {of.url} (404)."
    right = next((base for base, answers in zip(others, found, strict=True) if answers), "")
    if not right:
        advice = f"Did you mean another base path? Ask with: chatops connect {root_of(of.url)}"
        return replace(failure, message=nothing, advice=advice)
    kind = ' with "host_type": "openwebui"' if right.endswith("/api") else ""
    advice = f"Correct api_url of this model in the registry{kind}."
    return replace(failure, message=f"{nothing} Did you mean {right}?", advice=advice)


async def _answers(connection: Connection, base: str, *, key: Secret) -> bool:
    try:
        return bool(await _names(connection, f"{base}/models", key=key))
    except Exception:  # As above: this is only a guess.
        return False


async def _names(connection: Connection, path: str, *, key: Secret) -> list[str]:
    # One limit for everything: a list that arrives byte by byte without a long pause must not delay the failure.
    async with asyncio.timeout(QUICK_S):
        return model_ids(await connection.get(path, key=key, timeout_s=QUICK_S))
