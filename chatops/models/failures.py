"""Errors of the SDK and the network as failures for the user: which server failed, why, and the next step."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from urllib.parse import urlsplit

import httpx2

from chatops.domain.model import FailureKind, ModelFailure
from chatops.models.base import EngineError
from chatops.models.connection import ServerConnection, StatusError, UnknownEncodingError, openai, proxy_for
from chatops.models.error_text import plain_line
from chatops.models.hosts import host_and_port, other_bases, root_of
from chatops.models.keys import Secret
from chatops.models.retry import AGAIN, AttemptFailure, failed_attempt, in_words
from chatops.models.served import models_in
from chatops.models.server_json import BadDataError
from chatops.models.statuses import Endpoint
from chatops.policy.registry import HostType, Timeouts

_OWN_AUTHORITY = "If it is your own authority's, name its file with ca_file in the registry."
_OUT_OF_TIME = "The server needs a new certificate; check the date of this machine too."
_OTHER_NAME = "Use a host name of the certificate in api_url, or get a certificate for this host."
_NO_TLS = "If the server has no TLS, its address begins with http:// instead of https://."
_HANDSHAKE_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""Not failures: the state of a handshake that was given up."""
_CERTIFICATE_FAULTS = {
    9: ("it is not valid yet", _OUT_OF_TIME),
    10: ("it has expired", _OUT_OF_TIME),
    18: ("it is self-signed", _OWN_AUTHORITY),
    19: ("its certificate authority is not trusted here", _OWN_AUTHORITY),
    20: ("its certificate authority is not trusted here", _OWN_AUTHORITY),
    21: ("its certificate authority is not trusted here", _OWN_AUTHORITY),
    62: ("it is for another host", _OTHER_NAME),
    64: ("it is for another address", _OTHER_NAME),
}
"""Fault and advice by OpenSSL's number of a failed check: X509_V_ERR_… in x509_vfy.h."""
QUICK_S = 3.0
"""Seconds for finding out what a server has instead of what a 404 was about."""
_MAX_LISTED = 8
"""Maximum number of model names in the text of a failure."""


def error_failure(error: Exception, *, endpoint: Endpoint, timeouts: Timeouts) -> AttemptFailure:
    """Return the failure for an exception during a request. Its text never holds a traceback or a key."""
    if isinstance(error, UnknownEncodingError):
        how = plain_line(str(error), limit=40)
        message = f"{endpoint.host} compressed its answer as {how}, which cannot be unpacked here."
        return failed_attempt(FailureKind.BROKEN_STREAM, message, AGAIN)
    causes = tuple(_causes_of(error))
    if own := next((cause for cause in causes if isinstance(cause, EngineError)), None):
        return AttemptFailure(failure=own.failure)
    if refused := next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None):
        return _certificate_failure(refused, endpoint=endpoint)
    return _network_failure(error, causes, endpoint=endpoint, timeouts=timeouts)


def _network_failure(
    error: Exception, causes: tuple[BaseException, ...], *, endpoint: Endpoint, timeouts: Timeouts
) -> AttemptFailure:
    tls_errors = [cause for cause in causes if isinstance(cause, ssl.SSLError)]
    if broken := next((cause for cause in tls_errors if not isinstance(cause, _HANDSHAKE_WAITS)), None):
        reason = plain_line(broken.reason or str(broken)).rstrip(".")
        return _unreachable(f"{endpoint.host} does not answer in valid TLS: {reason}.", _NO_TLS)
    if any(isinstance(cause, httpx2.ConnectTimeout) for cause in causes):
        if tls_errors:
            return _unreachable(
                f"{endpoint.host} accepted the connection and did not answer in TLS within"
                f" {in_words(timeouts.connect)}.",
                f"{_NO_TLS} If it is only slow: timeout_s.connect allows more time.",
            )
        return _unreachable(
            f"There is no answer from {endpoint.host} within {in_words(timeouts.connect)}.",
            "Check the address and the network; timeout_s.connect in the registry allows more time.",
        )
    if any(isinstance(cause, httpx2.TimeoutException) for cause in causes):
        return failed_attempt(FailureKind.TIMEOUT, f"{endpoint.host} stopped answering.", AGAIN)
    proxy = proxy_for(endpoint.url)
    if proxy and any(isinstance(cause, httpx2.ProxyError | httpx2.ConnectError) for cause in causes):
        return _unreachable(
            f"The proxy {host_and_port(proxy)} did not lead to {endpoint.host}: {_reason(causes)}.",
            "Check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, or add the host to NO_PROXY.",
        )
    if any(isinstance(cause, httpx2.ConnectError) for cause in causes):
        return _connection_failure(causes, endpoint=endpoint)
    if any(isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL) for cause in causes):
        message = f"The address {endpoint.url} cannot be used: {_reason(causes)}."
        return failed_attempt(FailureKind.CONFIGURATION, message, "Correct api_url in the registry.")
    if any(isinstance(cause, httpx2.DecodingError) for cause in causes):
        message = f"{endpoint.host} sent a compressed answer that cannot be unpacked."
        return failed_attempt(FailureKind.BROKEN_STREAM, message, AGAIN)
    if any(isinstance(cause, httpx2.TransportError | openai.APIConnectionError) for cause in causes):
        message = _how_it_broke(causes, endpoint=endpoint)
        return failed_attempt(FailureKind.BROKEN_STREAM, message, AGAIN, again=True)
    return failed_attempt(
        FailureKind.INTERNAL,
        f"Asking {endpoint.host} failed in an unexpected way: {plain_line(f'{type(error).__name__}: {error}')}",
        "The log has the details; press R to try again.",
    )


def _how_it_broke(causes: tuple[BaseException, ...], *, endpoint: Endpoint) -> str:
    if not any(isinstance(cause, httpx2.RemoteProtocolError) for cause in causes):
        return f"The connection to {endpoint.host} was lost before the reply was complete."
    if _mentions(causes, "without sending a response"):
        return f"{endpoint.host} closed the connection without an answer."
    if _mentions(causes, "closed connection", "disconnected"):
        return f"{endpoint.host} closed the connection before the reply was complete."
    return f"{endpoint.host} does not answer in valid HTTP: {_reason(causes)}."


def _connection_failure(causes: tuple[BaseException, ...], *, endpoint: Endpoint) -> AttemptFailure:
    if any(isinstance(cause, socket.gaierror) for cause in causes) or _mentions(
        causes, "name or service not known", "nodename nor servname", "name resolution", "getaddrinfo failed"
    ):
        host = urlsplit(endpoint.url).hostname
        return _unreachable(
            f"The host name {host} is unknown.", "Check the address (api_url in the registry) and the network."
        )
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes) or _mentions(causes, "refused"):
        return _unreachable(
            f"Nothing listens at {endpoint.host} (connection refused).",
            "Start the server, or correct the address (api_url in the registry).",
        )
    return _unreachable(f"{endpoint.host} cannot be reached: {_reason(causes)}.", "Check the address and the network.")


def _causes_of(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes_of(inner)
        error = error.__cause__ or error.__context__


def _mentions(causes: tuple[BaseException, ...], *words: str) -> bool:
    """Return True if an error text holds one of `words`. The client drops some causes, so only their texts tell."""
    return any(word in str(cause).lower() for cause in causes for word in words)


def _reason(causes: tuple[BaseException, ...]) -> str:
    """Return the innermost non-empty error text."""
    texts = [plain_line(str(cause)).rstrip(".") for cause in causes]
    return next((text for text in reversed(texts) if text), type(causes[0]).__name__)


def _certificate_failure(error: ssl.SSLCertVerificationError, *, endpoint: Endpoint) -> AttemptFailure:
    """Return the failure for a refused certificate. Python drops its content, so the advice says how to see it."""
    reason = plain_line(error.verify_message or str(error)).rstrip(".")
    check, advice = _CERTIFICATE_FAULTS.get(error.verify_code, (reason, _OWN_AUTHORITY))
    proxy = proxy_for(endpoint.url)
    through = f" -proxy {host_and_port(proxy)}" if proxy else ""
    return _unreachable(
        f"The certificate of {endpoint.host} is not accepted: {check}.",
        f"{advice} Look at it: openssl s_client -connect {endpoint.host}{through} </dev/null",
    )


def _unreachable(message: str, advice: str) -> AttemptFailure:
    return failed_attempt(FailureKind.UNREACHABLE, message, advice)


async def explain_not_found(
    failure: ModelFailure, connection: ServerConnection, *, key: Secret, endpoint: Endpoint
) -> ModelFailure:
    """Explain a 404: return it with what does not exist, the model or the path, and what does."""
    try:
        names = await _names(connection, "/models", key=key)
    except BadDataError:
        names = []
    except StatusError as error:
        if error.status != 404:
            return failure
        return await _explain_missing_path(failure, connection, key=key, endpoint=endpoint)
    except Exception:  # An error of this second request must not replace that of the user's request.
        return failure
    if not names or endpoint.model in names:
        return failure
    near = get_close_matches(endpoint.model, names, n=3, cutoff=0.4)
    shown = [*near, *(name for name in names if name not in near)][:_MAX_LISTED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    if endpoint.host_type is HostType.OLLAMA:
        step = f"Get it with ollama pull {endpoint.model}"
    else:
        step = "Choose one with chatops connect"
    return replace(
        failure,
        message=f"Model {endpoint.model!r} is unknown at {endpoint.host}; known: {', '.join(shown)}{more}.",
        advice=f"{step}, or correct model_name in the registry.",
    )


async def _explain_missing_path(
    failure: ModelFailure, connection: ServerConnection, *, key: Secret, endpoint: Endpoint
) -> ModelFailure:
    """Try other base paths on the same host, and return the 404 failure with the one that answers, if any does."""
    others = other_bases(endpoint.url)
    found = await asyncio.gather(*(_answers(connection, base, key=key) for base in others))
    nothing = f"The server has nothing at {endpoint.url} (404)."
    right = next((base for base, answers in zip(others, found, strict=True) if answers), "")
    if not right:
        advice = f"Did you mean another base path? Ask with: chatops connect {root_of(endpoint.url)}"
        return replace(failure, message=nothing, advice=advice)
    kind = ' with "host_type": "openwebui"' if right.endswith("/api") else ""
    advice = f"Correct api_url of this model in the registry{kind}."
    return replace(failure, message=f"{nothing} Did you mean {right}?", advice=advice)


async def _answers(connection: ServerConnection, base: str, *, key: Secret) -> bool:
    try:
        return bool(await _names(connection, f"{base}/models", key=key))
    except Exception:  # The other path is only a guess.
        return False


async def _names(connection: ServerConnection, path: str, *, key: Secret) -> list[str]:
    # One limit for everything: a list that arrives byte by byte without a long pause must not delay the failure.
    async with asyncio.timeout(QUICK_S):
        return [model.name for model in models_in(await connection.get(path, key=key, timeout_s=QUICK_S))]
