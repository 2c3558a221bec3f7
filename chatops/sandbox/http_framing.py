"""Read the body of an HTTP/1.1 message whose end is certain; other messages are refused.

The proxy reads requests and replies with this. Where two programs disagree on the end of a message, a second one can
hide in it.
"""

import asyncio
import re
from collections.abc import AsyncIterator

HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\x80-\xff\t]*)")
"""The groups are name and value. White space before the colon is not allowed: programs read it in different ways."""
PIECE_BYTES = 65_536
"""Bytes that are passed on at a time."""
_CHUNK_HEAD = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\x20-\x7e\t]*)?\r\n")


class BadMessageError(OSError):
    """A message that cannot be read for certain; the text says why, as a clause."""


def framing_fault(headers: list[tuple[bytes, bytes]]) -> str:
    """Return why the end of the body is not certain, as a clause; empty if it is. Names have to be in lower case."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or any(coding != b"chunked" for coding in codings):
        return "the length of its body is ambiguous"
    if lengths and not re.fullmatch(rb"[0-9]{1,15}", lengths[0]):
        return "the length of its body is malformed"
    return ""


async def read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the content of a chunked body. A trailer after its last chunk stays in `reader`.

    Raises BadMessageError, and IncompleteReadError or LimitOverrunError for a line that does not end.
    """
    while True:
        head = _CHUNK_HEAD.fullmatch(await reader.readuntil(b"\r\n"))
        if head is None:
            raise BadMessageError("a chunk is malformed")
        size = int(head[1], 16)
        if not size:
            return
        async for piece in read_exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise BadMessageError("a chunk is malformed")


async def read_exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    """Yield the next `size` bytes in pieces. Raises BadMessageError if the stream ends before."""
    while size:
        data = await reader.read(min(size, PIECE_BYTES))
        if not data:
            raise BadMessageError("its body ended early")
        size -= len(data)
        yield data


async def send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send `data` as one chunk. Without data nothing is sent, because an empty chunk ends a body."""
    if data:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()


async def end_chunks(writer: asyncio.StreamWriter) -> None:
    """Send the empty chunk that ends a body, without a trailer."""
    writer.write(b"0\r\n\r\n")
    await writer.drain()
