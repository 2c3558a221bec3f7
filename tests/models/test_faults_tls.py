"""Fault list A, below HTTP: connections that never come about, and certificates that are refused."""

import random
import ssl

import pytest

from chatops.domain.errors import ChatopsError
from chatops.domain.model import FailureKind
from chatops.models.certificate import read_certificate
from chatops.models.discover import probe
from chatops.policy.registry import Timeouts
from tests.models.asking import ask
from tests.support.fake_openai import FakeOpenAI, says
from tests.support.sockets import CERTIFICATES, TlsListener, black_hole, plain_http, server_tls

CA = str(CERTIFICATES / "ca.pem")


async def test_a14_a_connection_that_is_never_answered_is_given_up_with_the_limit_and_where_to_set_it() -> None:
    with black_hole() as port:
        async with FakeOpenAI() as server:
            heard = await ask(server, api_url=f"http://127.0.0.1:{port}/v1", timeouts=Timeouts(connect=0.4))
    assert heard.failure.kind is FailureKind.UNREACHABLE
    assert heard.failure.message == f"There is no answer from 127.0.0.1:{port} within 0.4 s."
    assert "timeout_s.connect" in heard.failure.advice
    assert not heard.retries


async def test_a15_a_server_without_tls_that_answers_in_plain_text() -> None:
    with plain_http() as port:
        async with FakeOpenAI() as server:
            heard = await ask(server, api_url=f"https://127.0.0.1:{port}/v1")
    assert heard.failure.message.startswith(f"127.0.0.1:{port} does not speak TLS as it should: ")
    assert "http://" in heard.failure.advice


@pytest.mark.parametrize(
    ("name", "ca_file", "words", "advises"),
    [
        pytest.param(
            "expired",
            CA,
            "it has expired. It is for old.example.org, 127.0.0.1, issued by Authority of the tests, "
            "valid from 2020-01-01 to 2020-02-01.",
            "needs a new one",
            id="expired",
        ),
        pytest.param(
            "elsewhere",
            CA,
            "it is for another address. It is for elsewhere.example.org, www.elsewhere.example.org, issued by "
            "Authority of the tests, valid from 2020-01-01 to 2120-01-01.",
            "api_url",
            id="wrong-host",
        ),
        pytest.param(
            "self-signed",
            "",
            "it is self-signed. It is for homemade.example.org, 127.0.0.1, issued by homemade.example.org, "
            "valid from 2020-01-01 to 2120-01-01.",
            "ca_file",
            id="self-signed",
        ),
        pytest.param("good", "", "the authority behind it is not known here.", "ca_file", id="unknown-authority"),
    ],
)
async def test_a15_a_refused_certificate_is_described_and_nothing_is_sent(
    name: str, ca_file: str, words: str, advises: str
) -> None:
    with TlsListener(name) as listener:
        async with FakeOpenAI() as server:
            heard = await ask(server, api_url=f"https://127.0.0.1:{listener.port}/v1", ca_file=ca_file)
        assert heard.failure.kind is FailureKind.UNREACHABLE
        assert heard.failure.message.startswith(f"The certificate of 127.0.0.1:{listener.port} is not accepted: ")
        assert words in heard.failure.message
        assert advises in heard.failure.advice
        assert "never turned off" in heard.failure.advice
        assert not heard.retries
        # Once to ask, once to look at the certificate; never without TLS, and no word over either.
        assert listener.first_bytes == [b"\x16", b"\x16"]
        assert listener.received == b""


async def test_a15_a_certificate_of_ones_own_authority_is_accepted_with_ca_file() -> None:
    async with FakeOpenAI([says("safely")], tls=server_tls("good")) as server:
        assert (await ask(server, ca_file=CA)).reply.text == "safely"


async def test_a15_looking_for_models_describes_the_certificate_too() -> None:
    with TlsListener("self-signed") as listener:
        with pytest.raises(ChatopsError, match=r"is self-signed\. It is for homemade\.example\.org"):
            await probe(f"https://127.0.0.1:{listener.port}/v1")
        assert listener.received == b""


def test_a_damaged_certificate_is_no_certificate() -> None:
    pem = (CERTIFICATES / "good.pem").read_text()
    whole = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])
    assert read_certificate(whole).names == ("localhost", "127.0.0.1")
    damage = random.Random(15)
    for _ in range(2000):
        hurt = bytearray(whole[: damage.randrange(1, len(whole) + 1)])
        for _ in range(damage.randrange(4)):
            hurt[damage.randrange(len(hurt))] = damage.randrange(256)
        try:
            assert str(read_certificate(bytes(hurt))).isprintable()
        except ValueError:
            continue


def test_what_a_certificate_says_is_shown_as_one_plain_line() -> None:
    pem = (CERTIFICATES / "good.pem").read_text()
    whole = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])
    hostile = whole.replace(b"Authority of the tests", b"Auth\x1b[2Jy of\nthe tests")
    assert str(read_certificate(hostile)).isprintable()
