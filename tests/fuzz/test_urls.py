"""URLs beside three other parsers: the host that was judged is the one that each of them would contact."""

import ipaddress
from contextlib import suppress
from urllib.parse import urljoin, urlsplit

import httpx2
import mdurl
from hypothesis import strategies as st
from pydantic_core import Url, ValidationError

from chatops.policy.sandbox import covers_host
from chatops.sandbox.proxy import Head, RefusedError, read_head
from chatops.toolkit.addresses import BadUrlError, Target, literal_address, read_url
from tests.fuzz.bounded import hold

HOSTS = [
    *(
        "good.test",
        "GOOD.test",
        "evil.test",
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "1.2.3",
        "[::1]",
    ),
    *(
        "[::ffff:127.0.0.1]",
        "[::1%25eth0]",
        "[fe80::1%lo]",
        "[1:2::3]",
        "localhost",
        "good.test.",
        "good.test..",
        ".good.test",
    ),
    *(
        "xn--bcher-kva.test",
        "bücher.test",
        "faß.test",
        "①②⑦.⓪.⓪.①",
        "１２７.0.0.1",
        "evil。test",
        "good.test．",
        "a\u00adb.test",
    ),
    *(
        "ｇｏｏｄ.test",
        "℀.test",
        "good%2etest",
        "%67ood.test",
        "a_b.test",
        "-a.test",
        "a-.test",
        "*.test",
        "good.test\u200b",
    ),
    *(
        "K.test",
        "ſ.test",
        "xn--a.test",
        "xn--",
        "1e3",
        "256.1.1.1",
        "0",
        "[v1.a]",
        "[::1].evil.test",
        "[::1",
        "::1",
        "good,test",
    ),
]
PIECES = [
    *HOSTS,
    *(
        "http://",
        "https://",
        "HTTP://",
        "https:/",
        "http:",
        "//",
        "/",
        "/",
        "\\",
        "@",
        ":",
        ":80",
        ":443",
        ":0",
        ":00080",
    ),
    *(
        ":65536",
        ":8080",
        ":+80",
        ": 80",
        ":８０",
        ":-1",
        "?",
        "#",
        "%",
        "%40",
        "%2f",
        "%5c",
        "%00",
        "%0d%0a",
        ";",
        "&",
        "=",
    ),
    *(
        "user",
        "user:pw@",
        "@evil.test",
        "..",
        "/../",
        ".",
        " ",
        "\t",
        "\r\n",
        "\0",
        "\x7f",
        "\ufeff",
        "\u3000",
        "\ud800",
        "é",
    ),
    *(
        "a",
        "?q=http://evil.test",
        "#@evil.test",
        "ftp://",
        "file://",
        "javascript:",
        "ws://",
        "[",
        "]",
        "{",
        "}",
        "|",
        "^",
        "`",
    ),
]
TEXTS = st.tuples(
    st.sampled_from(
        ["http://", "https://", "http://", "https://", "", "HTTPS://", "https:/", "https:\\\\", "https:///"]
    ),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join),
).map("".join)
PORTS = {"http": 80, "https": 443}
Place = tuple[str, str, int]


def place(scheme: str, host: str, port: int | None) -> Place:
    """Scheme, host and port in one spelling: names in ASCII, addresses as numbers, no dot at the end."""
    name = host.strip("[]").lower().rstrip(".")
    name = literal_address(name) or name
    with suppress(ValueError):
        name = str(ipaddress.ip_address(name))
    return scheme.lower(), name, PORTS.get(scheme.lower(), 0) if port is None else port


def others(text: str) -> dict[str, Place]:
    """Where each of the other parsers would go, of those that take the text at all."""
    found: dict[str, Place] = {}
    with suppress(httpx2.InvalidURL, UnicodeError):
        client = httpx2.URL(text)
        found["httpx2"] = place(client.scheme, client.raw_host.decode(), client.port)
    with suppress(ValidationError, UnicodeError):
        browser = Url(text)
        found["WHATWG"] = place(browser.scheme, browser.host or "", browser.port)
    with suppress(ValueError, UnicodeError):
        node = mdurl.parse(text)
        host = (node.hostname or "").encode("idna").decode()
        found["Node"] = place((node.protocol or "").rstrip(":"), host, int(node.port) if node.port else None)
    return found


def judged(target: Target) -> Place:
    return place(target.scheme, target.host, target.port)


def test_what_was_judged_is_where_every_parser_goes() -> None:
    def check(text: str) -> None:
        try:
            target = read_url(text)
        except BadUrlError:
            return
        assert target.url.isascii() and read_url(target.url) == target
        # What the client gets is made from what was judged: none may read it in another way.
        made = others(target.url)
        assert made == dict.fromkeys(made, judged(target))
        # And none sees another host in what the model wrote and the user was shown.
        shown = others(text)
        assert shown == dict.fromkeys(shown, judged(target))

    hold(
        check,
        TEXTS,
        kept=[
            "https://good.test:443/a?b#c",
            "http://good.test[::1]",
            "http://[::1].evil.test",
            "http://faß.test",
            "http://0.",
        ],
        few=300,
    )


def test_a_redirect_leads_where_a_browser_would_go() -> None:
    def check(text: str) -> None:
        base = "https://good.test/a/b?c"
        try:
            target = read_url(urljoin(base, text))
        except ValueError:
            return
        assert {urlsplit(target.url).hostname} == {target.host}
        assert others(target.url) == dict.fromkeys(others(target.url), judged(target))

    hold(check, st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join), kept=["//evil.test"], few=100)


def test_the_proxy_dials_what_a_request_names() -> None:
    def check(parts: tuple[str, str]) -> None:
        method, text = parts[0], parts[1].encode("utf-8", "replace").decode()
        try:
            head: Head = read_head(f"{method} {text} HTTP/1.1\r\nHost: evil.test\r\n\r\n".encode())
        except RefusedError:
            return
        found = others(f"https://{text}/" if method == "CONNECT" else text)
        assert found == dict.fromkeys(found, judged(head.target))
        name = f"{head.target.host}:{head.target.port}"
        assert covers_host("good.test", name) == (head.target.host == "good.test" and head.target.port in (80, 443))

    authorities = st.tuples(st.sampled_from(HOSTS), st.sampled_from([":80", ":443", ":0", ":8080", ":٨", ""])).map(
        "".join
    )
    requests = st.tuples(st.just("CONNECT"), authorities) | st.tuples(st.sampled_from(["GET", "POST"]), TEXTS)
    hold(check, requests, kept=[("CONNECT", "good.test:443"), ("GET", "http://good.test/")], few=200)
