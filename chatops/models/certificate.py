"""The content of a certificate that was refused. Python drops it when a check fails, so it is fetched once more.

That second connection ends with the handshake: no request and no key are sent over it.
"""

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

from chatops.models.errortext import plain_line

SHOWN_NAMES = 4
_INTEGER, _OID, _UTC_TIME, _SEQUENCE = 0x02, 0x06, 0x17, 0x30
_EXTENSIONS, _DNS_NAME, _ADDRESS = 0xA3, 0x82, 0x87
_ALT_NAMES, _COMMON_NAME, _ORGANISATION = b"\x55\x1d\x11", b"\x55\x04\x03", b"\x55\x04\x0a"
_UTF_16 = 0x1E


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Subject, issuer and validity of a certificate, each on one line and as the certificate states it."""

    names: tuple[str, ...]
    issuer: str
    begins: date
    ends: date

    def __str__(self) -> str:
        """Return a sentence for the user."""
        more = len(self.names) - SHOWN_NAMES
        names = ", ".join(self.names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
        issued = f", issued by {self.issuer}" if self.issuer else ""
        return f"It is for {names or 'nobody'}{issued}, valid from {self.begins} to {self.ends}."


class CertificateError(Exception):
    """A server's certificate was refused. `certificate` is None if it could not be fetched."""

    def __init__(self, *, code: int, check: str, certificate: Certificate | None) -> None:
        super().__init__(check)
        self.code = code
        """OpenSSL's number of the failed check (X509_V_ERR_…)."""
        self.check = check
        self.certificate = certificate


def refused_in(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the failed certificate check that caused `error`; None if there is none."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error
        error = error.__cause__ or error.__context__
    return None


async def certificate_of(host: str, port: int, *, timeout_s: float) -> Certificate | None:
    """Return the certificate that a server sends, unchecked; None if it cannot be fetched or read."""
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=unchecked, server_hostname=host)
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return read_certificate(shown or b"")
    except (OSError, ValueError):
        return None


def read_certificate(der: bytes) -> Certificate:
    """Read the few fields of an X.509 certificate that a user needs (RFC 5280, section 4.1).

    Raises ValueError if `der` is not a certificate.
    """
    try:
        return _read(der)
    except (LookupError, StopIteration, TypeError) as error:
        raise ValueError("not a certificate") from error


def _read(der: bytes) -> Certificate:
    outer = dict(_elements(der))[_SEQUENCE]
    fields = list(_elements(next(value for tag, value in _elements(outer) if tag == _SEQUENCE)))
    # The fields after the serial number are algorithm, issuer, validity and subject.
    serial = next(place for place, (tag, _) in enumerate(fields) if tag == _INTEGER)
    (_, issuer), (_, validity), (_, subject) = fields[serial + 2 : serial + 5]
    begins, ends = (_date(tag, value) for tag, value in _elements(validity))
    extensions = next((value for tag, value in fields if tag == _EXTENSIONS), b"")
    return Certificate(
        names=tuple(_alt_names(extensions)) or tuple(name for name in [_name(subject)] if name),
        issuer=_name(issuer),
        begins=begins,
        ends=ends,
    )


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the elements of a DER value in order: tag and content.

    Raises ValueError if the value is cut off.
    """
    place = 0
    while place < len(data):
        tag, size, place = data[place], data[place + 1], place + 2
        if size & 0x80:
            width = size & 0x7F
            size, place = int.from_bytes(data[place : place + width]), place + width
        if place + size > len(data):
            raise ValueError("cut off")
        yield tag, data[place : place + size]
        place += size


def _name(name: bytes) -> str:
    """Return the common name of a subject or issuer, else its organisation."""
    found: dict[bytes, str] = {}
    for _, part in _elements(name):
        for _, pair in _elements(part):
            (_, kind), (tag, value) = _elements(pair)
            found[kind] = _line(value.decode("utf-16-be" if tag == _UTF_16 else "utf-8", "replace"))
    return found.get(_COMMON_NAME) or found.get(_ORGANISATION, "")


def _alt_names(extensions: bytes) -> Iterator[str]:
    for _, listed in _elements(extensions):
        for _, extension in _elements(listed):
            kind, *_, (_, value) = _elements(extension)
            if kind != (_OID, _ALT_NAMES):
                continue
            for _, names in _elements(value):
                for tag, name in _elements(names):
                    if tag == _DNS_NAME:
                        yield _line(name.decode("ascii", "replace"))
                    elif tag == _ADDRESS:
                        yield str(ipaddress.ip_address(name))


def _line(text: str) -> str:
    return plain_line(text, limit=80)


def _date(tag: int, value: bytes) -> date:
    text = value.decode("ascii", "replace")
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text, form).replace(tzinfo=UTC).date()
