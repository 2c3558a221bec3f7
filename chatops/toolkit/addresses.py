"""URL and address checks for web tools: only public addresses may be reached.

The check is made on the resolved address that is then dialled.
"""

import ipaddress
import re
import socket
import unicodedata
from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlsplit

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.toolkit.output import visible
from chatops.toolkit.threads import in_thread

Resolver = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""Returns every address of a host name for a port. Raises OSError."""

MAX_URL = 4_000
"""Maximum number of characters of a URL. Servers refuse much longer ones, and the user has to read it."""
_LOCAL_NAMES = ("localhost", "local", "internal", "intranet", "lan", "home.arpa", "localdomain")
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",  # services of a cloud provider, on a public address
        "192.0.0.0/24",  # protocols, and documentation: not all versions of Python know that
        "3fff::/20",
        "192.88.99.0/24",  # 6to4 relays
        "64:ff9b::/96",  # the following networks embed an IPv4 address, which may be a private one
        "64:ff9b:1::/48",
        "2002::/16",
        "2001::/32",
        "::/96",
        "fec0::/10",
    )
)
"""Networks that Python, or an old version of it, takes for public."""
_PORTS = {"http": 80, "https": 443}


@frozen_dataclass
class Target:
    """A parsed URL. `host` is in ASCII and lower case, as it is sent in the Host header."""

    scheme: str
    host: str
    port: int
    path: str
    """Path and query, as they are sent."""

    @property
    def origin(self) -> str:
        """``host`` or ``host:port``; an IPv6 address is in brackets. The scheme's own port is left out."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def url(self) -> str:
        """The full URL, without a fragment."""
        return f"{self.scheme}://{self.origin}{self.path}"


class BadUrlError(ValueError):
    """The URL cannot be fetched; the text says why, as a clause or a sentence."""


def read_url(text: str) -> Target:
    """Parse a URL strictly, so that no second parser can see another host in it. Raises BadUrlError."""
    if not text or len(text) > MAX_URL:
        raise BadUrlError(f"must have 1 to {MAX_URL:,} characters")
    if any(char.isspace() or char == "\\" or unicodedata.category(char) in {"Cc", "Cf", "Cs"} for char in text):
        raise BadUrlError("contains white space, a control character or a backslash")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadUrlError("is not a valid URL") from error
    if parts.scheme not in _PORTS or not text[len(parts.scheme) :].startswith("://"):
        raise BadUrlError("must start with http:// or https://")
    if "@" in parts.netloc:
        raise BadUrlError("contains a user name or password")
    # Python takes an address in brackets also from the middle of a host: http://name.example[::1].
    if "[" in parts.netloc and not re.fullmatch(r"\[[^][]*\](:[0-9]*)?", parts.netloc):
        raise BadUrlError("has an invalid host")
    if port == 0:
        raise BadUrlError("has an invalid port")
    return Target(
        scheme=parts.scheme, host=_ascii_host(parts), port=port or _PORTS[parts.scheme], path=_ascii_path(parts)
    )


def _ascii_host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if "%" in host:
        raise BadUrlError("contains a zone or an escape in its host")
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError as error:
            raise BadUrlError("has an invalid IPv6 address") from error
    # Python's standard of 2003 turns these into other letters; browsers keep them, as the standard of 2008 says.
    if not {"ß", "ẞ", "ς"}.isdisjoint(host):
        raise BadUrlError("has a host with ß or ς, which programs read in two ways; write its ASCII form (xn--…)")
    try:
        name = host.encode("idna").decode("ascii").lower().rstrip(".")
    except UnicodeError as error:
        raise BadUrlError("has an invalid host") from error
    if not name or any(not (char.isalnum() or char in "-._") for char in name):
        raise BadUrlError("has an invalid host")
    return name


def _ascii_path(parts: SplitResult) -> str:
    raw = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return "".join(char if "!" <= char <= "~" else "".join(f"%{byte:02X}" for byte in char.encode()) for char in raw)


def literal_address(host: str) -> str:
    """Return the address that `host` spells in any way that resolvers accept; empty if it is a name.

    Examples of such spellings: ``0x7f.1``, ``2130706433``.
    """
    if ":" in host:
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return ""


def why_inner(target: Target, *, allowed: frozenset[str] = frozenset()) -> str:
    """Return why a target is not public, judged by its name alone; empty if it may be public.

    Makes no name server request.
    """
    address = literal_address(target.host)
    if address:
        return "" if address in allowed else why_not_public(address)
    name = target.host
    if any(name == local or name.endswith("." + local) for local in _LOCAL_NAMES):
        return f"{visible(name)} is a name on this machine or its network."
    return ""


def why_not_public(text: str) -> str:
    """Return why an address is not on the public internet, as a sentence; empty if it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"{visible(text)} is not an IP address."
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped is not None:
        return why_not_public(str(mapped))
    listed = any(address in network for network in _NOT_PUBLIC if network.version == address.version)
    if listed or not address.is_global or address.is_multicast or address.is_reserved:
        return f"{address} is not a public address."
    return ""


async def system_resolver(host: str, port: int) -> tuple[str, ...]:
    """Resolve a host name with the system's resolver and keep the order of the addresses."""
    # getaddrinfo can block much longer than a call may take. in_thread uses a daemon thread, so it does not delay the
    # exit of the program either.
    entries = await in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in entries))


async def public_address(target: Target, *, resolver: Resolver, allowed: frozenset[str] = frozenset()) -> str:
    """Resolve a target once and return the address to dial. Every address of the name has to be public.

    Raises BadUrlError.
    """
    if reason := why_inner(target, allowed=allowed):
        raise BadUrlError(reason)
    literal = literal_address(target.host)
    try:
        addresses = (literal,) if literal else await resolver(target.host, target.port)
    except OSError as error:
        raise BadUrlError(f"The name {visible(target.host)} could not be resolved.") from error
    for address in addresses:
        if address not in allowed and why_not_public(address):
            raise BadUrlError(f"{visible(target.host)} resolves to {visible(address)}, which is not a public address.")
    if not addresses:
        raise BadUrlError(f"The name {visible(target.host)} has no address.")
    return addresses[0]
