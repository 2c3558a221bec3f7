"""Fault list A, below HTTP: failed connections and refused certificates."""

import pytest

from chatops.domain.errors import ChatopsError
from chatops.domain.model import FailureKind
from chatops.models.discover import probe
from chatops.policy.registry import Timeouts
from tests.models.asking import ask
from tests.support.fake_openai import FakeOpenAI, says
from tests.support.sockets import CERTIFICATES, TlsListener, black_hole, plain_http, server_tls

pytestmark = pytest.mark.fault("A14", "A15")

CA = str(CERTIFICATES / "ca.pem")


async def test_a14_a_connection_that_is_never_answered_is_given_up_with_the_limit_and_where_to_set_it() -> None:
    with black_hole() as port:
        async with FakeOpenAI() as server:
            events = await ask(server, api_url=f"http://127.0.0.1:{port}/v1", timeout_s=Timeouts(connect=0.4))
    assert events.failure.kind is FailureKind.UNREACHABLE
    assert events.failure.message == f"There is no answer from 127.0.0.1:{port} within 0.4 s."
    assert "timeout_s.connect" in events.failure.advice
    assert not events.retries


async def test_a15_a_server_without_tls_that_answers_in_plain_text() -> None:
    with plain_http() as port:
        async with FakeOpenAI() as server:
            events = await ask(server, api_url=f"https://127.0.0.1:{port}/v1")
    assert events.failure.message.startswith(f"127.0.0.1:{port} does not answer in valid TLS: ")
    assert "http://" in events.failure.advice


@pytest.mark.parametrize(
    ("name", "ca_file", "words", "advises"),
    [
        pytest.param(
            "expired",
            CA,
            "it has expired.",
            "needs a new certificate",
            id="expired",
        ),
        pytest.param(
            "elsewhere",
            CA,
            "it is for another address.",
            "api_url",
            id="wrong-host",
        ),
        pytest.param(
            "self-signed",
            "",
            "it is self-signed.",
            "ca_file",
            id="self-signed",
        ),
        pytest.param("good", "", "its certificate authority is not trusted here.", "ca_file", id="unknown-authority"),
    ],
)
async def test_a15_a_refused_certificate_is_an_error_with_its_reason_and_nothing_is_sent(
    name: str, ca_file: str, words: str, advises: str
) -> None:
    with TlsListener(name) as listener:
        async with FakeOpenAI() as server:
            events = await ask(server, api_url=f"https://127.0.0.1:{listener.port}/v1", ca_file=ca_file)
        assert events.failure.kind is FailureKind.UNREACHABLE
        host = f"127.0.0.1:{listener.port}"
        assert events.failure.message == f"The certificate of {host} is not accepted: {words}"
        assert advises in events.failure.advice
        assert events.failure.advice.endswith(f"Look at it: openssl s_client -connect {host} </dev/null")
        assert not events.retries
        # The handshake has begun, and nothing was sent over it.
        assert listener.first_bytes == [b"\x16"]
        assert listener.received == b""


async def test_a15_a_certificate_of_ones_own_authority_is_accepted_with_ca_file() -> None:
    async with FakeOpenAI([says("safely")], tls=server_tls("good")) as server:
        assert (await ask(server, ca_file=CA)).reply.text == "safely"


async def test_a15_looking_for_models_names_the_failed_check_too() -> None:
    with TlsListener("self-signed") as listener:
        with pytest.raises(ChatopsError, match=r"is not accepted: it is self-signed\.$"):
            await probe(f"https://127.0.0.1:{listener.port}/v1")
        assert listener.received == b""
