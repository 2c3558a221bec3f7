"""Fetching: only public addresses, the checked one is dialled, redirects and sizes are bounded."""

import gzip
import os
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio
from hypothesis import example, given
from hypothesis import strategies as st

from chatops.domain.errors import ToolFailedError
from chatops.domain.tools import Outcome
from chatops.sandbox.isolated import Limits, run_isolated
from chatops.toolkit.addresses import BadUrlError, public_address, read_url, why_not_public
from chatops.tools import web
from chatops.tools.function import FunctionTool
from chatops.tools.page import decode_page, read_text
from chatops.tools.web import WebSettings, web_tools
from tests.support.cases import for_each
from tests.support.sockets import TlsListener
from tests.tools.toolkit import World, attempt, cases, context_for, done, inspected
from tests.tools.webserver import Server, answer, redirect, serving

pytestmark = pytest.mark.fault("G10")

ANY_PORT = range(1, 65_536)
"""Test servers listen where there is room."""


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    """A server on the loopback."""
    async with serving() as running:
        yield running


def stub(**names: tuple[str, ...]) -> WebSettings:
    """Settings under which ``stub.test`` and ``www.stub.test`` are public, at the loopback server."""

    async def resolver(host: str, port: int) -> tuple[str, ...]:
        known = {"stub.test": ("127.0.0.1",), "www.stub.test": ("127.0.0.1",), **names}
        if host not in known:
            raise OSError("no such name")
        return known[host]

    return WebSettings(
        resolver=resolver,
        allowed_addresses=frozenset({"127.0.0.1"}),
        max_body=2_000_000,
        timeout_s=10,
        ports=ANY_PORT,
    )


def fetcher(settings: WebSettings) -> FunctionTool:
    return web_tools(settings)[0]


PAGE = """<!doctype html><html><head><title>A  page</title><style>x{}</style></head><body><script>evil()</script>
<h1>Head</h1><p>One <b>two</b> &amp; <a href="https://example.org/x">three</a> <a href="/y">snake_case</a></p>
<ul><li>a</li><li>b</li></ul><img src="data:," alt="A picture"><a href="javascript:x()">four</a>
<pre>def f():
    return 1</pre><table><tr><th>n</th><th>m</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>"""


async def test_a_page_becomes_text(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    server.answers["/p"] = answer(PAGE)
    result = await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/p?q=1#frag"})
    assert result.content == (
        f"URL: http://stub.test:{server.port}/p?q=1\nTitle: A page\n\n"
        "# Head\n\nOne two & three (https://example.org/x) snake_case (/y)\n\n- a\n\n- b\n\n"
        "four\n\ndef f():\nreturn 1\n\n| n | m\n\n| 1 | 2"
    )
    [asked] = server.asked
    assert (asked.path, asked.headers["host"]) == ("/p?q=1", f"stub.test:{server.port}")
    assert not {"cookie", "authorization", "referer"} & asked.headers.keys()


async def test_a_page_becomes_markdown_with_the_extra(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("markdownify")
    server.answers["/p"] = answer(PAGE)
    result = await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/p?q=1#frag"})
    assert result.content == (
        f"URL: http://stub.test:{server.port}/p?q=1\nTitle: A page\n\n"
        f"# Head\n\nOne **two** & [three](https://example.org/x) [snake_case](http://stub.test:{server.port}/y)\n\n"
        "- a\n- b\n\nA picturefour\n\n```\ndef f():\n    return 1\n```\n\n| n | m |\n| --- | --- |\n| 1 | 2 |"
    )


async def test_a_page_that_markdownify_fails_on_is_read_as_text(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("markdownify")
    server.answers["/p"] = answer("<!doctype html>" + "<div>" * 5_000 + "deep")
    result = await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/p"})
    assert result.content.endswith("\n\ndeep")


async def test_the_name_is_resolved_once_and_that_address_is_dialled(server: Server, tmp_path: Path) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> tuple[str, ...]:
        asked.append(host)
        return ("127.0.0.1",) if len(asked) == 1 else ("10.0.0.1",)

    server.answers["/"] = answer("ok", kind="text/plain")
    settings = WebSettings(resolver=rebinding, allowed_addresses=frozenset({"127.0.0.1"}), ports=ANY_PORT)
    result = await done(fetcher(settings), context_for(tmp_path), {"url": f"http://rebind.test:{server.port}/"})
    assert result.content.endswith("ok")
    assert asked == ["rebind.test"]


@pytest.mark.parametrize(
    ("location", "fault"),
    [
        ("http://[", "is not a valid URL"),
        ("ftp://stub.test/", "must start with"),
        ("//a:b@stub.test/", "contains a user"),
    ],
)
async def test_a_redirect_to_a_malformed_url_is_one_sentence(
    server: Server, tmp_path: Path, location: str, fault: str
) -> None:
    server.answers["/p"] = redirect(location)
    with pytest.raises(ToolFailedError, match=f"^Not fetched: the URL of a redirect {fault}"):
        await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/p"})


async def test_one_inner_address_among_public_ones_refuses(server: Server, tmp_path: Path) -> None:
    settings = stub(**{"mixed.test": ("93.184.216.34", "10.0.0.1")})
    with pytest.raises(ToolFailedError, match=r"10\.0\.0\.1"):
        await done(fetcher(settings), context_for(tmp_path), {"url": "http://mixed.test/"})


async def test_inspection_asks_no_name_server(tmp_path: Path) -> None:
    async def never(host: str, port: int) -> tuple[str, ...]:
        raise AssertionError("asked")

    facts = await inspected(
        fetcher(WebSettings(resolver=never)), context_for(tmp_path), {"url": "https://Example.ORG/x"}
    )
    assert (facts.hosts, facts.refusal, facts.network) == (("example.org",), "", True)


async def test_no_attack_of_the_corpus_reaches_an_inner_server(server: Server, tmp_path: Path) -> None:
    world = World(base=tmp_path, port=server.port)

    async def resolver(host: str, port: int) -> tuple[str, ...]:
        known = {"rebind.test": ("127.0.0.1",), "redirect.test": ("127.0.0.1",), "127.0.0.1.nip.io": ("127.0.0.1",)}
        known |= {"metadata.google.internal": ("169.254.169.254",), "good.example.evil.test": ("127.0.0.1",)}
        if host not in known:
            raise OSError("no such name")
        return known[host]

    tool = fetcher(WebSettings(resolver=resolver, ports=ANY_PORT))
    tried = 0
    for case in cases("ssrf"):
        if "stub.test" in case["arguments"]["url"]:
            continue
        outcome = await attempt(tool, context_for(world.ws), world.arguments(case))
        assert not outcome.ran or outcome.failed, case["id"]
        tried += 1
    assert tried >= 30
    assert server.asked == []


@pytest.mark.parametrize(
    ("url", "fetched"),
    [("http://stub.test/", True), ("https://stub.test/", True), ("https://stub.test:80/", True)]
    + [(f"http://stub.test:{port}/", port == 8080) for port in (22, 25, 6379, 8080, 8443, 11434)],
)
async def test_only_ports_of_the_web_are_dialled(tmp_path: Path, url: str, fetched: bool) -> None:
    facts = await inspected(fetcher(WebSettings(ports={80, 443, 8080})), context_for(tmp_path), {"url": url})
    assert bool(facts.refusal) is not fetched
    if not fetched:
        assert '"tools": {"web_fetch": {"ports": [' in facts.refusal


async def test_a_port_is_judged_again_when_a_page_is_fetched(server: Server, tmp_path: Path) -> None:
    """The registry may have changed since the call was approved."""
    facts = await inspected(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/"})
    with pytest.raises(ToolFailedError, match=f"port {server.port}"):
        await fetcher(replace(stub(), ports={80})).run(facts, context_for(tmp_path))
    assert server.asked == []


@pytest.mark.parametrize(
    "url", ["http://stub.test:0/", "http://u:p@stub.test/", "ftp://stub.test/", "stub.test", "http://"]
)
async def test_malformed_urls_are_problems(tmp_path: Path, url: str) -> None:
    facts = await inspected(fetcher(stub()), context_for(tmp_path), {"url": url})
    assert [problem.path for problem in facts.problems] == ["url"]


async def test_redirects_within_the_host_are_followed_and_checked(server: Server, tmp_path: Path) -> None:
    server.answers["/a"] = redirect("/b")
    server.answers["/b"] = redirect(f"http://www.stub.test:{server.port}/c")
    server.answers["/c"] = answer("there", kind="text/plain")
    server.answers["/inner"] = redirect("http://127.0.0.1:9/x")
    server.answers["/file"] = redirect("file:///etc/passwd")
    tool, context, base = fetcher(stub()), context_for(tmp_path), f"http://stub.test:{server.port}"
    assert (await done(tool, context, {"url": f"{base}/a"})).content.endswith("/c\n\nthere")
    with pytest.raises(ToolFailedError, match="http://"):
        await done(tool, context, {"url": f"{base}/file"})
    assert "was not followed" in (await done(tool, context, {"url": f"{base}/inner"})).content


async def test_another_host_needs_another_call(server: Server, tmp_path: Path) -> None:
    settings = stub(**{"other.test": ("127.0.0.1",)})
    server.answers["/away"] = redirect(f"http://other.test:{server.port}/x?secret=1")
    result = await done(fetcher(settings), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/away"})
    assert f"redirects to another host: http://other.test:{server.port}/x?secret=1" in result.content
    assert [asked.path for asked in server.asked] == ["/away"]


async def test_a_grant_for_a_host_does_not_cover_its_other_ports(server: Server, tmp_path: Path) -> None:
    context = context_for(tmp_path)
    assert (await inspected(fetcher(stub()), context, {"url": "https://stub.test/"})).hosts == ("stub.test",)
    assert (await inspected(fetcher(stub()), context, {"url": "http://stub.test:80/"})).hosts == ("stub.test",)
    assert (await inspected(fetcher(stub()), context, {"url": "http://stub.test:22/"})).hosts == ("stub.test:22",)
    server.answers["/port"] = redirect("http://stub.test:22/")
    result = await done(fetcher(stub()), context, {"url": f"http://stub.test:{server.port}/port"})
    assert "was not followed" in result.content


async def test_a_loop_ends(server: Server, tmp_path: Path) -> None:
    server.answers["/loop"] = redirect("/loop")
    with pytest.raises(ToolFailedError, match="more than 5 redirects"):
        await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/loop"})
    assert len(server.asked) == 6


async def test_a_bomb_is_unpacked_no_further_than_the_limit(server: Server, tmp_path: Path) -> None:
    bomb = gzip.compress(b"A" * 30_000_000, 9)
    server.answers["/bomb"] = answer(bomb, kind="text/plain", more="Content-Encoding: gzip\r\n")
    tool, context = fetcher(stub()), context_for(tmp_path)
    await done(tool, context, {"url": f"http://stub.test:{server.port}/bomb"})
    tracemalloc.start()
    result = await done(tool, context, {"url": f"http://stub.test:{server.port}/bomb"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15_000_000
    assert result.truncated
    assert "only the first 2,000,000 bytes were read" in result.content
    assert len(result.content) <= 16_000


async def test_what_follows_a_compressed_page_is_not_read_for_ever(server: Server, tmp_path: Path) -> None:
    def endless(writer: object) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
        writer.write((b"" if sent else head + gzip.compress(b"the page")) + b"x" * 65_536)  # type: ignore[attr-defined]
        sent.append(1)

    sent: list[int] = []
    server.answers["/endless"] = endless
    result = await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/endless"})
    assert "the page\n[only the first 8 bytes were read]" in result.content


async def test_an_endless_page_is_cut(server: Server, tmp_path: Path) -> None:
    def endless(writer: object) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" if not sent else b""
        sent.append(1)
        writer.write(head + b"x" * 65_536)  # type: ignore[attr-defined]

    sent: list[int] = []
    server.answers["/endless"] = endless
    result = await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/endless"})
    assert "only the first 2,000,000 bytes" in result.content


async def test_a_silent_server_times_out(server: Server, tmp_path: Path) -> None:
    server.answers["/slow"] = lambda writer: None
    context = context_for(tmp_path, timeout_s=0.3)
    with pytest.raises(ToolFailedError):
        await done(fetcher(stub()), context, {"url": f"http://stub.test:{server.port}/slow"})


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (answer(b"\x89PNG\0", kind="image/png"), "not text: image/png, 5 bytes"),
        (answer(b"x\0y", kind="text/plain"), "not text"),
        (answer(b"junk", more="Content-Encoding: br\r\n"), "unsupported compression: br"),
        (answer(b"junk", more="Content-Encoding: gzip\r\n"), "could not be decompressed"),
        (b"not http at all\r\n\r\n", "could not be fetched"),
    ],
)
async def test_unreadable_pages_are_one_sentence(server: Server, tmp_path: Path, reply: bytes, says: str) -> None:
    server.answers["/x"] = reply
    with pytest.raises(ToolFailedError, match=says):
        await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/x"})


async def test_refused_connections_and_unknown_names(tmp_path: Path, unused_tcp_port: int) -> None:
    context = context_for(tmp_path)
    with pytest.raises(ToolFailedError, match="could not be fetched"):
        await done(fetcher(stub()), context, {"url": f"http://stub.test:{unused_tcp_port}/"})
    with pytest.raises(ToolFailedError, match="could not be resolved"):
        await done(fetcher(stub()), context, {"url": "http://nowhere.test/"})


async def test_a_refused_certificate_is_named_and_nothing_is_said(tmp_path: Path) -> None:
    with TlsListener("self-signed") as listener:
        with pytest.raises(ToolFailedError, match=r"its certificate was refused \(self-signed certificate\)"):
            await done(fetcher(stub()), context_for(tmp_path), {"url": f"https://stub.test:{listener.port}/"})
        assert listener.received == b""


async def test_an_error_page_is_a_failure_with_its_text(server: Server, tmp_path: Path) -> None:
    result = await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/none"})
    assert result.outcome is Outcome.FAILED
    assert "Status: 404" in result.content
    server.answers["/empty"] = answer("")
    empty = await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/empty"})
    assert "the page has no text" in empty.content


@pytest.mark.more
async def test_a_page_that_is_slow_to_parse_is_stopped(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "run_isolated", partial(run_isolated, limits=Limits(cpu_s=1)))
    server.answers["/p"] = answer("<!doctype html>" + "<a " * 600_000)
    with pytest.raises(ToolFailedError, match="could not be read as HTML: it took too long"):
        await done(fetcher(stub()), context_for(tmp_path), {"url": f"http://stub.test:{server.port}/p"})


INNER = ["127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1"]
INNER += ["255.255.255.255", "168.63.129.16", "::1", "::", "fe80::1", "fc00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
INNER += ["192.0.0.8", "3fff::1", "::ffff:0:127.0.0.1"]
INNER += ["2002:7f00:1::", "2001:0:7f00:1::", "ff02::1", "fec0::1", "::127.0.0.1", "not an address"]


@for_each("address", INNER)
def test_inner_addresses(address: str) -> None:
    assert why_not_public(address)


@for_each("address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses(address: str) -> None:
    assert not why_not_public(address)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "①②⑦.0.0.1", "127。0。0。1"])
async def test_every_spelling_of_the_loopback_is_seen(host: str) -> None:
    async def never(name: str, port: int) -> tuple[str, ...]:
        raise AssertionError("asked")

    with pytest.raises(BadUrlError, match=r"127\.0\.0\.1"):
        await public_address(read_url(f"http://{host}/"), resolver=never)


@given(st.text(max_size=60))
def test_a_url_is_read_or_refused_and_reads_the_same_again(text: str) -> None:
    try:
        target = read_url(f"http://{text}")
    except BadUrlError:
        return
    assert read_url(target.url) == target
    assert "@" not in target.origin


@given(st.text(max_size=300))
@example("<![x[ a ]> b")
def test_any_page_can_be_read(html: str) -> None:
    title, text = cast(list[str], read_text(f"<p>{html}", "https://example.org/"))
    assert len(title) <= 300
    assert "\n\n\n" not in text


@for_each(
    ("data", "charset", "text"),
    [
        ("é".encode("latin-1"), "latin-1", "é"),
        ("é".encode(), "no-such-charset", "é"),
        (b'<meta charset="latin-1">\xe9', "", '<meta charset="latin-1">é'),
        (b"\xef\xbb\xbfx", "latin-1", "x"),
        (b"\xff", "zip", "\ufffd"),
        (b"a-9", "punycode", "a-9"),
        (b"xn--a", "idna", "xn--a"),
    ],
)
def test_charsets(data: bytes, charset: str, text: str) -> None:
    assert decode_page(data, charset=charset) == text


def test_the_page_reader_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert run_isolated(os.getenv, key="OPENAI_API_KEY") is None
    assert run_isolated(os.getenv, key="PATH")
