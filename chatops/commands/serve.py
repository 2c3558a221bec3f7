"""``chatops serve``: the desk in a browser, on this machine or on a phone."""

import re
from argparse import Namespace
from importlib.util import find_spec
from urllib.parse import urlsplit

from chatops.commands.application import with_app
from chatops.config.extras import not_installed
from chatops.domain.errors import ConfigError
from chatops.headless.screen import screen


def run(arguments: Namespace) -> int:
    """Serve the page until it is stopped. Exit code 0."""
    url = _public_address(arguments)
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "jinja2")):
        raise ConfigError(f"The page cannot be served: {not_installed('serve')}.")
    from chatops.serve.listening import ListenOptions, serve

    tls = (arguments.tls[0], arguments.tls[1]) if arguments.tls else None
    options = ListenOptions(
        url=url, host=arguments.host or "", port=arguments.port, tls=tls, behind_proxy=arguments.behind_proxy
    )
    return with_app(arguments, lambda opened: serve(opened, options, screen()), via="serve", broken_ok=True)


def _public_address(arguments: Namespace) -> str:
    """Return the address of the page as browsers write it; empty on loopback. Raises ConfigError."""
    encrypted = bool(arguments.tls or arguments.behind_proxy)
    if arguments.host and not encrypted:
        raise ConfigError(
            "--host lets other machines reach the page, and without TLS they could read and change it.",
            advice="Add --tls CERT KEY, or --behind-proxy if another server does TLS. Both need --url https://NAME.",
        )
    if encrypted != bool(arguments.url):
        raise ConfigError(
            "--url https://NAME and TLS belong together: the page has this one address.",
            advice="Name both: --url https://NAME, and --tls CERT KEY or --behind-proxy.",
        )
    return _parse_origin(arguments.url) if arguments.url else ""


def _parse_origin(url: str) -> str:
    wrong = ConfigError(
        f"--url {url}: this is not an address of the form https://NAME or https://NAME:PORT.",
        advice="The page has no folder of its own: give it a name of its own.",
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    name = parts.hostname or ""
    is_plain = parts.path in ("", "/") and not parts.query and not parts.fragment and "@" not in parts.netloc
    if parts.scheme != "https" or not is_plain or re.fullmatch(r"[a-z0-9.-]+|[0-9a-f:]+", name) is None:
        raise wrong
    shown = f"[{name}]" if ":" in name else name
    return f"https://{shown}{f':{port}' if port not in (None, 443) else ''}"
