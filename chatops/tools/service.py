"""One HTTP request to a service that the user has set up with a key.

A key goes into a header, never into a URL, a message or a log. Redirects are not followed, proxies and netrc of the
environment are not used, and the size of the answer is limited.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from chatops.domain.errors import ToolFailedError

SERVICE_S = 15.0
"""Seconds for the whole request."""
_MAX_ANSWER = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAnswer:
    """Status and body of an answer."""

    status: int
    data: bytes


async def ask_service(
    method: str,
    url: str,
    *,
    who: str,
    params: Mapping[str, str] | None = None,
    body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = SERVICE_S,
) -> ServiceAnswer:
    """Return the answer of a service. `who` names it at the beginning of error messages.

    Raises ToolFailedError if it cannot be reached, is too slow or sends too much.
    """
    # Slow to import, and only needed for a request.
    import httpx2

    try:
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=seconds) as client,
            client.stream(method, url, params=params, json=body, headers=headers) as response,
        ):
            data = bytearray()
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > _MAX_ANSWER:
                    raise ToolFailedError(f"{who} sent too much data.")
            return ServiceAnswer(status=response.status_code, data=bytes(data))
    except TimeoutError as error:
        raise ToolFailedError(f"{who} did not answer within {seconds:g} s.") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ToolFailedError(f"{who} could not be reached ({type(error).__name__}).") from error
