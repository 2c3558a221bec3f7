"""Models that could answer instead of the demo: a key in the environment, servers on this machine.

They are offered, never selected automatically.
"""

import asyncio
from collections.abc import Mapping, Sequence

PATIENCE_S = 0.3
"""Seconds to wait for one server: it is on this machine, or there is none."""
ENOUGH = 64 * 1024
"""Maximum bytes of a response that are examined."""
USUAL_PORTS: tuple[tuple[int, str], ...] = (
    (11434, "Ollama"),
    (8000, "vLLM"),
    (1234, "LM Studio"),
    (8080, "llama.cpp or Open WebUI"),
    (4000, "LiteLLM"),
)
"""Default ports of model servers."""


async def offer(environ: Mapping[str, str], ports: Sequence[tuple[int, str]] = USUAL_PORTS) -> str:
    """Return everything that could answer, in one line that stays on the screen; empty if nothing. Never raises."""
    found = [part for part in (_key_offer(environ), await _server_offer(ports)) if part]
    return " ".join(["The demo answers.", *found]) if found else ""


def _key_offer(environ: Mapping[str, str]) -> str:
    """Return the offer for a key in the environment. The key's value is not used."""
    if not environ.get("OPENAI_API_KEY", "").strip():
        return ""
    if environ.get("OPENAI_MODEL", "").strip():
        return "OPENAI_API_KEY is set: /model env uses it."
    return "OPENAI_API_KEY is set: name a model in OPENAI_MODEL as well, and /model env uses both."


async def _server_offer(ports: Sequence[tuple[int, str]]) -> str:
    """Return the servers of this machine that list models. They are sent no key."""
    found = await asyncio.gather(*(_lists_models(port) for port, _ in ports))
    offers = [
        f"{name} answers at http://127.0.0.1:{port} (chatops connect http://127.0.0.1:{port})"
        for (port, name), answers in zip(ports, found, strict=True)
        if answers
    ]
    return f"On this machine: {'; '.join(offers)}." if offers else ""


async def _lists_models(port: int) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return _is_listing(await _asked(port))
    except (OSError, TimeoutError, ValueError):
        return False


async def _asked(port: int) -> bytes:
    """Return the start of the response to a request for models, headers included."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = ("GET /v1/models HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: application/json", "Connection: close")
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        await writer.drain()
        answer = b""
        while len(answer) < ENOUGH and (more := await reader.read(ENOUGH)):
            answer += more
            if _is_listing(answer):
                break
        return answer
    finally:
        writer.close()


def _is_listing(answer: bytes) -> bool:
    """Return True for a list of models or a request for a key. Other programs use these ports too."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, _, headers = head.partition(b"\r\n")
    code = status.split(b" ")[1:2]
    if b"application/json" not in headers.lower():
        return False
    return code == [b"401"] or (code == [b"200"] and b'"data"' in body)
