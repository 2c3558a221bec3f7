"""Lines of JSON on two file descriptors, below the SDK of the Agent Client Protocol.

The SDK takes some things for granted, so they are seen to here: a frame that is no object, or an answer that nobody
asked for, would end its loop; ``_meta`` would replace checked values; and neither frames nor requests have a limit.
"""

import asyncio
import json
import time
from typing import Any

from chatops.domain.canonical import parse_json
from chatops.headless.json_values import dumps

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""Of a message: an image, and some text. A longer one is refused without being kept."""
MAX_REQUESTS = 64
"""Requests that are answered at a time."""
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
"""Codes of JSON-RPC 2.0, section 5.1."""


class Stdio:
    """Messages to and from the editor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()
        self._open_requests = 0
        """Requests of the editor whose answers were not written yet."""
        self.asked_at: dict[str, float] = {}
        """When each question about a call was written, in monotonic seconds, by the id of its first option."""

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. Raises ConnectionError."""
        if "error" in message:
            # It repeats what was sent, and may hold what is no JSON.
            message["error"].pop("data", None)
        try:
            async with self._sending:
                self._writer.write(dumps(message).encode() + b"\n")
                await self._writer.drain()
        finally:
            if "method" not in message:
                # It is an answer. One that the editor does not read counts as well.
                self._open_requests -= 1
        if message.get("method") == "session/request_permission":
            # Not by the call: its own session and the parent's may both ask about the call of a child turn.
            self.asked_at[message["params"]["options"][0]["optionId"]] = time.monotonic()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next valid message; None at the end of the input, or when the editor reads no more."""
        try:
            return await self._next()
        except ConnectionError:
            return None

    async def _next(self) -> dict[str, Any] | None:
        while (line := await self._read_line()) is not None:
            # Lines that have arrived already are read without waiting: let other tasks run in between.
            await asyncio.sleep(0)
            if not line:
                text = f"A message is longer than {MAX_FRAME_BYTES // 2**20} MB. Nothing was sent."
                await self._refuse(None, _PARSE_ERROR, text)
            elif (message := _parse_message(line)) is None:
                await self._refuse(None, _PARSE_ERROR, "This is no message of the protocol.")
            elif _is_error_of_notification(message):
                # An answer to it could go on for ever.
                continue
            elif not {"method", "id"} <= message.keys():
                return message
            elif self._open_requests >= MAX_REQUESTS:
                await self._refuse(message["id"], _INVALID_REQUEST, "Too many requests at a time.")
            else:
                self._open_requests += 1
                return message
        return None

    async def _refuse(self, id: object, code: int, text: str) -> None:
        # `send` counts the answer to it.
        self._open_requests += 1
        await self.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    async def _read_line(self) -> bytes | None:
        """Return the next line, empty if it was too long; None at the end, also amid a line."""
        dropped = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
                return b"" if dropped else line
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(error.consumed)
                dropped = True
            except asyncio.IncompleteReadError:
                return None

    async def close(self) -> None:
        """Stop reading and writing."""
        self._writer.close()


def _parse_message(line: bytes) -> dict[str, Any] | None:
    """Return the request, notification or response in a line, without ``_meta``; None if it holds none of them."""
    try:
        message: Any = parse_json(line.decode())
        if b"\\ud" in line.lower():
            # Half of a character can be neither stored nor sent on.
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if "method" in message:
        params = message.get("params")
        if isinstance(params, dict):
            # The SDK would let it replace what it has checked.
            params.pop("_meta", None)
        is_valid = isinstance(message["method"], str) and isinstance(params, dict | None)
        return message if is_valid and isinstance(message.get("id"), int | str | None) else None
    if _is_error_of_notification(message):
        return message
    error = message.get("error")
    if error is not None:
        has_text = isinstance(error, dict) and isinstance(error.get("message"), str)
        if not has_text or "result" in message:
            return None
    # The SDK numbers its requests. `isinstance` would also accept true and false.
    return message if type(message.get("id")) is int else None


def _is_error_of_notification(message: dict[str, Any]) -> bool:
    """Return True for an error without the id of a request: it is about a notification."""
    return "method" not in message and message.get("id", 0) is None and message.get("error") is not None
