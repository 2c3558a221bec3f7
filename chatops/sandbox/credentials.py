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
compressed bodies, and in the usual spellings (`domain.known_keys`). Requests for a part of a body lose their range,
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
from chatops.domain.known_keys import spellings
from chatops.domain.sandbox import Credential, SandboxSpec
from chatops.policy.sandbox import split_host
from chatops.sandbox import http_framing
from chatops.sandbox.http_framing import PIECE_BYTES, BadMessageError
from chatops.toolkit.addresses import Target

_VALUE = re.compile(r"[\x21-\x7e]{8,4000}")
"""A shorter value could not be told from other text in a reply. A longer one would keep more of each reply back."""
_PLAIN_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'*+,=:@()-]+/)*[A-Za-z0-9._~!$&'*+,=:@()-]*")
"""A path without empty segments and escapes. A command writes it, so no part may match in two ways."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""`wbits` of zlib for data of either form, with the largest window."""
_NOT_SENT = frozenset(
    {b"accept-encoding", b"range", b"request-range", b"if-range"}
    | {b"x-http-method-override", b"x-http-method", b"x-method-override"}
    | {b"x-original-url", b"x-original-uri", b"x-rewrite-url", b"x-forwarded-uri", b"x-forwarded-path"}
)
"""Headers of a request that would hide the value in a reply, or ask for another method or path."""
_SECOND_PATH = b"destination"
"""A header of WebDAV that names where a file is moved to."""
_FRAMING_HEADERS = frozenset(
    {b"content-length", b"transfer-encoding", b"content-encoding", b"connection", b"keep-alive", b"upgrade"}
    | {b"trailer", b"proxy-connection", b"proxy-authenticate", b"alt-svc"}
)
"""Headers of a reply that say how its body is sent, or name another way to the server (alt-svc)."""


@frozen_dataclass
class CallCredential:
    """A credential in one call."""

    credential: Credential
    value: str = field(repr=False)
    placeholder: str
    """Text that the command has, and sends, in place of the value."""

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

    def headers_to_send(self, headers: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers to send. The configured one gets the value if it held exactly the placeholder."""
        name, _, form = self.credential.header.partition(": ")
        expected, filled = (
            (name.lower().encode(), form.replace("{}", text).encode()) for text in (self.placeholder, self.value)
        )
        sent = [filled if header == expected else header for header in headers if self._may_be_sent(header[0])]
        return (*sent, (b"accept-encoding", b"identity"))

    def _may_be_sent(self, name: bytes) -> bool:
        # Some servers read _ in a name as -.
        name = name.replace(b"_", b"-")
        return name not in _NOT_SENT and not (name == _SECOND_PATH and self.credential.paths)


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
            credential=credential, value=os.environ[credential.env], placeholder=f"placeholder-{secrets.token_hex(16)}"
        )
        for credential in spec.credentials
        if not why_unusable(credential, os.environ)
    )


def credential_environment(used: tuple[CallCredential, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to `environment`: a command, and git, learn placeholders and addresses by them.

    The settings of git that `environment` holds stay in force, because the new ones are numbered from theirs on.
    """
    first = int(environment.get("GIT_CONFIG_COUNT", "0"))
    variables: dict[str, str] = {}
    git_settings: list[tuple[str, str]] = []
    for call_credential in used:
        credential, placeholder = call_credential.credential, call_credential.placeholder
        address = f"http://{credential.name}"
        variables |= {credential.env: placeholder, f"{credential.env}_BASE_URL": address}
        git_settings.append((f"url.{address}/.insteadOf", f"https://{credential.name}/"))
        git_settings.append((f"http.{address}/.extraHeader", credential.header.replace("{}", placeholder)))
    for number, (key, value) in enumerate(git_settings, first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**variables, "GIT_CONFIG_COUNT": str(first + len(git_settings))} if git_settings else {}


class Scrubber:
    """Overwrites values with stars in a stream of bytes, and keeps back what may be the beginning of one."""

    def __init__(self, used: tuple[CallCredential, ...]) -> None:
        values = [call_credential.value for call_credential in used]
        spelled = [spelling.encode() for spelling in spellings(values)]
        spelled += [value.encode(charset) for value in values for charset in ("utf-16-le", "utf-16-be")]
        # The longest first, so that no shorter spelling leaves the rest of a longer one.
        spelled.sort(key=len, reverse=True)
        self._spellings = re.compile(b"|".join(map(re.escape, spelled)), re.IGNORECASE)
        self._longest = len(spelled[0])
        self._kept_back = b""

    def scrub(self, data: bytes) -> bytes:
        """Return complete data without the value."""
        return self._spellings.sub(lambda match: b"*" * len(match[0]), data)

    def feed(self, data: bytes) -> bytes:
        """Return what is certain so far; the rest comes with later data, or from `finish`."""
        text = self.scrub(self._kept_back + data)
        certain = max(0, len(text) - self._longest + 1)
        self._kept_back = text[certain:]
        return text[:certain]

    def finish(self) -> bytes:
        """Return what was kept back, once no more data comes."""
        return self._kept_back


async def send_reply(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, method: str, origin: str, scrubber: Scrubber
) -> None:
    """Pass the reply of a server on without the value. Raises BadMessageError before anything of it was sent.

    `origin` is that of the server, to which redirects lead.
    """
    head = await _read_reply_head(reader)
    pieces = _decompress(_read_body(reader, head.headers), head.headers)
    has_body = method != "HEAD" and head.status not in (b"204", b"304")
    writer.write(scrubber.scrub(_head_to_send(head, origin=origin, has_body=has_body)))
    if not has_body:
        await writer.drain()
        return
    try:
        async for piece in pieces:
            await http_framing.send_chunk(writer, scrubber.feed(piece))
    except BadMessageError as error:
        # The reply has begun, so all that is left is to break it off.
        raise ConnectionAbortedError(str(error)) from error
    await http_framing.send_chunk(writer, scrubber.finish())
    await http_framing.end_chunks(writer)


@frozen_dataclass
class _ReplyHead:
    first_line: bytes
    status: bytes
    headers: list[tuple[bytes, bytes]]


async def _read_reply_head(reader: asyncio.StreamReader) -> _ReplyHead:
    """Return the head of the reply after any interim ones (1xx). Raises BadMessageError."""
    while True:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n").split(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise BadMessageError("its headers are incomplete or too long") from error
        status = _STATUS.fullmatch(lines[0])
        matches = [http_framing.HEADER.fullmatch(line) for line in lines[1:]]
        # 101 is no interim reply: another protocol would follow it.
        if status is None or not all(matches) or status[1] == b"101":
            raise BadMessageError("its headers are malformed")
        if not status[1].startswith(b"1"):
            headers = [(match[1].lower(), match[2].strip()) for match in matches if match]
            return _ReplyHead(first_line=lines[0], status=status[1], headers=headers)


def _head_to_send(head: _ReplyHead, *, origin: str, has_body: bool) -> bytes:
    """Return the head with the framing that the body gets here, and with redirects to the rewritten address."""
    lines = [head.first_line]
    for name, value in head.headers:
        if name == b"location" and value.lower().startswith(b"https://" + origin.encode() + b"/"):
            value = b"http" + value[len(b"https") :]
        if name not in _FRAMING_HEADERS:
            lines.append(name + b": " + value)
    lines += [b"connection: close", *([b"transfer-encoding: chunked"] if has_body else [])]
    return b"\r\n".join([*lines, b"", b""])


def _read_body(reader: asyncio.StreamReader, headers: list[tuple[bytes, bytes]]) -> AsyncIterator[bytes]:
    """Return the body in pieces, without its framing. Raises BadMessageError if its end is not certain."""
    if fault := http_framing.framing_fault(headers):
        raise BadMessageError(fault)
    by_name = dict(headers)
    if b"transfer-encoding" in by_name:
        return http_framing.read_chunks(reader)
    if (length := by_name.get(b"content-length")) is not None:
        return http_framing.read_exactly(reader, int(length))
    return _read_to_end(reader)


async def _read_to_end(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(PIECE_BYTES):
        yield data


def _decompress(pieces: AsyncIterator[bytes], headers: list[tuple[bytes, bytes]]) -> AsyncIterator[bytes]:
    """Return the body without compression, which some servers use unasked. Raises BadMessageError."""
    codings = [value.lower() for name, value in headers if name == b"content-encoding"]
    if codings in ([], [b"identity"]):
        return pieces
    if codings in ([b"gzip"], [b"x-gzip"], [b"deflate"]):
        return _inflate(pieces)
    raise BadMessageError("it is compressed in a way in which the value would not be recognised")


async def _inflate(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    decompressor = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
    async for piece in pieces:
        while piece:
            try:
                yield decompressor.decompress(piece, PIECE_BYTES)
            except zlib.error as error:
                raise BadMessageError("its compression is broken") from error
            piece = decompressor.unconsumed_tail
        if decompressor.unused_data:
            raise BadMessageError("data follow its compressed body")
    yield decompressor.flush()
