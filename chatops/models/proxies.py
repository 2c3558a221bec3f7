"""The proxy of a request. In its own file because the code that reads the environment is slow to import."""

import urllib.request
from urllib.parse import urlsplit

from chatops.models.hosts import is_loopback


def proxy_for(url: str) -> str:
    """Return the proxy that the environment sets for `url`; empty for addresses of this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return ""
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all") or ""
    return found if "://" in found or not found else f"http://{found}"
