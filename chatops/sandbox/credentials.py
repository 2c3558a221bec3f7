"""Credentials that commands use without seeing them.

Theory of operation

A command whose limits name a credential gets a placeholder, made for that call, in the credential's variable, and the
address `http://HOST` in `VARIABLE_BASE_URL`. Git learns both from variables of its own. Requests to that address reach
the filtering proxy (`proxy`), in a network that only the command has, and leave it as HTTPS. No TLS is intercepted.

On the way out, the proxy puts the value in where one header is exactly the configured one with the placeholder. It
looks at nothing else: a placeholder in the path, the body or another header goes out as it is. Methods and paths that
the credential does not list are refused, as are spellings of a path that a server could read in another way, and
headers that ask a server for another method or path are left out.

On the way back, the value is overwritten with stars in status, headers and body, also over the borders of chunks, in
compressed bodies, and in the usual spellings (`domain.secrets`). Requests for a part of a body lose their range,
because a part of a value would not be recognised.

The proxy follows no redirect. A request that a client makes for one is a request like any other: to another host it
carries the placeholder.
"""

import asyncio
import os
import re
import secrets
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import field

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import Credential, SandboxSpec
from chatops.domain.secrets import spellings
from chatops.policy.sandbox import split_host
from chatops.toolkit.addresses import Target

_VALUE = re.compile(r"[\x21-\x7e]{8,4000}")
"""A shorter value could not be told from other text in a reply."""
_PLAIN_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'*+,=:@()-]+/)*[A-Za-z0-9._~!$&'*+,=:@()-]*")
"""A path without empty segments and escapes. A command writes it, so no part may match in two ways."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\x80-\xff\t]*)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\x20-\x7e\t]*)?\r\n")
PIECE = 65_536
"""Bytes that are passed on at a time."""
NOT_SENT = frozenset(
    {
        b"accept-encoding",
        b"range",
        b"request-range",
        b"if-range",
        b"x-http-method-override",
        b"x-http-method",
        b"x-method-override",
    }
    | {b"x-original-url", b"x-original-uri", b"x-rewrite-url", b"x-forwarded-uri", b"x-forwarded-path"}
)
"""Headers of a request that would hide the value in a reply, or ask for another method or path. Some servers read ``_``
in a name as ``-``.
"""
_SECOND_PATH = b"destination"
"""A header of WebDAV that names where a file is moved to."""
_FRAMING_HEADERS = frozenset(
    {b"content-length", b"transfer-encoding", b"content-encoding", b"connection", b"keep-alive", b"upgrade"}
    | {b"trailer", b"proxy-connection", b"proxy-authenticate", b"alt-svc"}
)
"""Headers of a reply that say how its body is sent, or name another way to the server (alt-svc)."""


class BadReplyError(OSError):
    """A reply that cannot be read for certain; the text says why, as a clause."""


@frozen_dataclass
class CallCredential:
    """A credential in one call."""

    credential: Credential
    value: str = field(repr=False)
    placeholder: str

    def https_target(self, target: Target) -> Target | None:
        """Return where a request to `target` goes; None if it is not one to the rewritten address."""
        host, port = split_host(self.credential.name)
        if target.host != host or target.port != int(port or 80):
            return None
        return Target(scheme="https", host=host, port=int(port or 443), path=target.path)

    def refusal(self, method: str, path: str) -> str:
        """Return why the credential is not for this request, as a clause; empty if it is."""
        limits = self.credential
        if limits.methods and method not in limits.methods:
            return f"its credential is for {', '.join(limits.methods)} only"
        if not limits.paths:
            return ""
        path = path.partition("?")[0]
        parts = path.split("/")[1:]
        if not _PLAIN_PATH.fullmatch(path) or "." in parts or ".." in parts:
            return "its credential is for certain paths, and this one can be read in several ways"
        if any(_path_pattern(pattern).fullmatch(path) for pattern in limits.paths):
            return ""
        return f"its credential is for {', '.join(limits.paths)} only"

    def headers_to_send(self, given: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers to send. The value stands in the named one if it held exactly the placeholder."""
        name, _, form = self.credential.header.partition(": ")
        named, with_placeholder = name.lower().encode(), form.replace("{}", self.placeholder).encode()
        with_value = form.replace("{}", self.value).encode()
        sent = [
            (header, with_value if header == named and value == with_placeholder else value)
            for header, value in given
            if self._is_sent(header)
        ]
        return (*sent, (b"accept-encoding", b"identity"))

    def _is_sent(self, header: bytes) -> bool:
        header = header.replace(b"_", b"-")
        return header not in NOT_SENT and not (header == _SECOND_PATH and self.credential.paths)


def _path_pattern(pattern: str) -> re.Pattern[str]:
    """Return the expression for a pattern: ``*`` is one segment, ``/**`` at the end everything below."""
    below = pattern.endswith("/**")
    segments = pattern.removesuffix("/**").split("/")
    text = "/".join("[^/]+" if segment == "*" else re.escape(segment) for segment in segments)
    return re.compile(text + ("(?:/.*)?" if below else ""))


def why_unusable(credential: Credential, environ: Mapping[str, str]) -> str:
    """Return why a command cannot use a credential, as a clause; empty if it can."""
    if not environ.get(credential.env):
        return f"{credential.env} is not set"
    if not _VALUE.fullmatch(environ[credential.env]):
        return f"{credential.env} has to be 8 to 4,000 printable ASCII characters without a space"
    return ""


def used_credentials(spec: SandboxSpec) -> tuple[CallCredential, ...]:
    """Return the credentials that a command under `spec` uses, with a placeholder for each."""
    if spec.network:
        return ()
    return tuple(
        CallCredential(
            credential=credential,
            value=os.environ[credential.env],
            placeholder=f"placeholder-{secrets.token_hex(16)}",
        )
        for credential in spec.credentials
        if not why_unusable(credential, os.environ)
    )


def credential_environment(used: tuple[CallCredential, ...], before: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a command, and git, learn placeholders and addresses.

    Settings of git that `before` has already are kept.
    """
    first = int(before.get("GIT_CONFIG_COUNT", "0"))
    variables: dict[str, str] = {}
    settings: list[tuple[str, str]] = []
    for use in used:
        name, limits = use.credential.name, use.credential
        variables |= {limits.env: use.placeholder, f"{limits.env}_BASE_URL": f"http://{name}"}
        settings.append((f"url.http://{name}/.insteadOf", f"https://{name}/"))
        settings.append((f"http.http://{name}/.extraHeader", limits.header.replace("{}", use.placeholder)))
    for number, (key, value) in enumerate(settings, first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**variables, "GIT_CONFIG_COUNT": str(first + len(settings))} if settings else {}


class Scrubber:
    """Overwrites values with stars in a stream of bytes, and keeps back what may be the beginning of one."""

    def __init__(self, used: tuple[CallCredential, ...]) -> None:
        # The longest first, so that no shorter form leaves the rest of a longer one.
        forms = [form.encode() for form in spellings(use.value for use in used)]
        forms += [use.value.encode(code) for use in used for code in ("utf-16-le", "utf-16-be")]
        forms.sort(key=len, reverse=True)
        self._forms = re.compile(b"|".join(map(re.escape, forms)), re.IGNORECASE)
        self._longest = len(forms[0])
        self._held = b""

    def scrub(self, data: bytes) -> bytes:
        """Return complete data without the value."""
        return self._forms.sub(lambda found: b"*" * len(found[0]), data)

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """Return what is certain so far; the rest comes with later data."""
        text = self.scrub(self._held + data)
        cut = len(text) if last else max(0, len(text) - self._longest + 1)
        self._held = text[cut:]
        return text[:cut]


async def send_reply(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, method: str, origin: str, scrubber: Scrubber
) -> None:
    """Pass the reply of a server on without the value. Raises BadReplyError before anything of it was sent."""
    while True:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n").split(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise BadReplyError("its headers are incomplete or too long") from error
        status = _STATUS.fullmatch(lines[0])
        headers = [HEADER.fullmatch(line) for line in lines[1:]]
        if status is None or not all(headers) or status[1] == b"101":
            raise BadReplyError("its headers are malformed")
        if not status[1].startswith(b"1"):
            break
    pairs = [(header[1].lower(), header[2].strip()) for header in headers if header]
    pieces = _decompress(_read_body(reader, pairs), pairs)
    has_no_body = method == "HEAD" or status[1] in (b"204", b"304")
    sent = [lines[0]]
    for name, value in pairs:
        # A redirect within the server leads to the rewritten address again.
        if name == b"location" and value.lower().startswith(b"https://" + origin.encode() + b"/"):
            value = b"http" + value[5:]
        if name not in _FRAMING_HEADERS:
            sent.append(name + b": " + value)
    sent += [b"connection: close", *([] if has_no_body else [b"transfer-encoding: chunked"]), b"", b""]
    writer.write(scrubber.scrub(b"\r\n".join(sent)))
    if has_no_body:
        await writer.drain()
        return
    try:
        async for piece in pieces:
            await _send_chunk(writer, scrubber.feed(piece))
    except BadReplyError as error:
        # The reply has begun, so all that is left is to break it off.
        raise ConnectionAbortedError(str(error)) from error
    await _send_chunk(writer, scrubber.feed(b"", last=True))
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    if data:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()


def _read_body(reader: asyncio.StreamReader, headers: list[tuple[bytes, bytes]]) -> AsyncIterator[bytes]:
    """Return the body in pieces, without its framing. Raises BadReplyError if its end is not certain."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or any(coding != b"chunked" for coding in codings):
        raise BadReplyError("the length of its body is ambiguous")
    if lengths and not re.fullmatch(rb"[0-9]{1,15}", lengths[0]):
        raise BadReplyError("the length of its body is malformed")
    if codings:
        return _read_chunks(reader)
    return _read_exactly(reader, int(lengths[0])) if lengths else _read_to_end(reader)


async def _read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        chunk = _CHUNK.fullmatch(await reader.readuntil(b"\r\n"))
        if chunk is None:
            raise BadReplyError("a chunk is malformed")
        size = int(chunk[1], 16)
        if not size:
            # A trailer is not passed on.
            return
        async for piece in _read_exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise BadReplyError("a chunk is malformed")


async def _read_exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size:
        data = await reader.read(min(size, PIECE))
        if not data:
            raise BadReplyError("its body ended early")
        size -= len(data)
        yield data


async def _read_to_end(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(PIECE):
        yield data


def _decompress(pieces: AsyncIterator[bytes], headers: list[tuple[bytes, bytes]]) -> AsyncIterator[bytes]:
    """Return the body without compression, which was not asked for. Raises BadReplyError for one that is unknown."""
    codings = [value.lower() for name, value in headers if name == b"content-encoding"]
    if codings in ([], [b"identity"]):
        return pieces
    if codings in ([b"gzip"], [b"x-gzip"], [b"deflate"]):
        return _inflate(pieces)
    raise BadReplyError("it is compressed in a way in which the value would not be recognised")


async def _inflate(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    inflate = zlib.decompressobj(wbits=47)
    async for piece in pieces:
        while piece:
            try:
                yield inflate.decompress(piece, PIECE)
            except zlib.error as error:
                raise BadReplyError("its compression is broken") from error
            piece = inflate.unconsumed_tail
        if inflate.unused_data:
            raise BadReplyError("data follow its compressed body")
    yield inflate.flush()
