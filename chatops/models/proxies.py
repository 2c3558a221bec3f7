"""Which proxy a request goes through. In a file of its own, since what reads the environment is slow to import."""

import urllib.request
from urllib.parse import urlsplit

from chatops.models.hosts import is_loopback


def proxy_for(url: str) -> str:
    """The proxy that the environment names for `url`; none for this machine's own addresses."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return ""
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all") or ""
    return found if "://" in found or not found else f"http://{found}"
