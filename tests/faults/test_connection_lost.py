"""Faults A: failed connections (nobody there, no answer, certificates, proxies, wrong addresses)."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from chatops.domain.messages import AssistantMessage
from tests.faults.stage import Stage
from tests.support.fake_openai import FakeOpenAI, says
from tests.support.sockets import CERTIFICATES, TlsListener, black_hole, nobody, plain_http, server_tls

CA = str(CERTIFICATES / "ca.pem")
LISTENERS = {"expired": CA, "elsewhere": CA, "homemade": ""}
"""Roles whose server has a bad certificate, and the authority that their model trusts."""


@dataclass(frozen=True, kw_only=True)
class Net:
    """The stage, with what stands behind its further roles."""

    stage: Stage
    ports: dict[str, int]
    listeners: dict[str, TlsListener]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with ExitStack() as opened:
        names = {"homemade": "self-signed"}
        listeners = {name: opened.enter_context(TlsListener(names.get(name, name))) for name in LISTENERS}
        plain = opened.enter_context(FakeOpenAI(lambda request: says(f"Plainly: {request.last_user}")))
        safely = FakeOpenAI(lambda request: says(f"Safely: {request.last_user}"), tls=server_tls("good"))
        safe = opened.enter_context(safely)
        ports = {
            "nobody": opened.enter_context(nobody()),
            "proxy": opened.enter_context(nobody()),
            "hole": opened.enter_context(black_hole()),
            "plain": opened.enter_context(plain_http()),
            "versionless": plain.port,
            "safe": safe.port,
            **{name: listener.port for name, listener in listeners.items()},
        }
        here = "://127.0.0.1"
        hasty = {"connect": 1, "first_token": 60, "idle": 60}
        others: dict[str, dict[str, Any]] = {
            "nobody": {"api_url": f"http{here}:{ports['nobody']}/v1"},
            "unknown": {"api_url": "http://no-such-host.invalid/v1"},
            "hole": {"api_url": f"http{here}:{ports['hole']}/v1", "timeout_s": hasty},
            "pit": {"api_url": f"http{here}:{ports['hole']}/v1", "timeout_s": {**hasty, "connect": 600}},
            "plain": {"api_url": f"https{here}:{ports['plain']}/v1"},
            "safe": {"api_url": f"https{here}:{safe.port}/v1", "ca_file": CA},
            "proxied": {"api_url": "http://models.example.org/v1"},
            "short": {"api_url": f"http{here}:{plain.port}"},
            "long": {"api_url": f"http{here}:{plain.port}/v1/chat"},
        }
        for name, ca_file in LISTENERS.items():
            others[name] = {"api_url": f"https{here}:{ports[name]}/v1", "ca_file": ca_file}
        proxy = f"http://ana:secret@127.0.0.1:{ports['proxy']}"
        variables = dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"), proxy)
        without = dict.fromkeys(("no_proxy", "NO_PROXY"), "no-such-host.invalid")
        folder = tmp_path_factory.mktemp("stage")
        stage = opened.enter_context(Stage.open(folder, others=others, env={**variables, **without}))
        yield Net(stage=stage, ports=ports, listeners=listeners)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A role whose server cannot be reached, and the text expected about it; PORT stands for the port of `at`."""

    says: str
    role: str
    at: str = ""


NOT_ACCEPTED = r"The certificate of 127\.0\.0\.1:PORT is not accepted: "
CASES = {
    "A12": Case(
        role="nobody",
        at="nobody",
        says=r"Nothing listens at 127\.0\.0\.1:PORT \(connection refused\)\. (→ )?Start the server, or correct",
    ),
    "A13": Case(
        role="unknown",
        says=r"The host name no-such-host\.invalid is unknown\. (→ )?Check the address \(api_url in the registry\)",
    ),
    "A14": Case(
        role="hole",
        at="hole",
        says=r"There is no answer from 127\.0\.0\.1:PORT within 1 s\. (→ )?Check the address.*timeout_s\.connect",
    ),
    "A15 expired": Case(
        role="expired",
        at="expired",
        says=NOT_ACCEPTED + r"it has expired\. (→ )?The server needs a new certificate.* Look at it: openssl s_client",
    ),
    "A15 wrong host": Case(
        role="elsewhere",
        at="elsewhere",
        says=NOT_ACCEPTED + r"it is for another address\. (→ )?Use a host name",
    ),
    "A15 self-signed": Case(
        role="homemade",
        at="homemade",
        says=NOT_ACCEPTED + r"it is self-signed\. (→ )?"
        r"If it is your own authority's, name its file with ca_file in the registry\. Look at it: openssl s_client",
    ),
    "A15 no TLS": Case(
        role="plain",
        at="plain",
        says=r"127\.0\.0\.1:PORT does not answer in valid TLS: .*begins with http:// instead of https://",
    ),
    "A18": Case(
        role="proxied",
        at="proxy",
        says=r"The proxy 127\.0\.0\.1:PORT did not lead to models\.example\.org:80: .* (→ )?Check HTTPS_PROXY",
    ),
    "A22": Case(
        role="long",
        at="versionless",
        says=r"The server has nothing at http://127\.0\.0\.1:PORT/v1/chat \(404\)\. "
        r"Did you mean http://127\.0\.0\.1:PORT/v1\? (→ )?Correct api_url",
    ),
}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.fault(name[:3]), id=name) for name, case in CASES.items()]
)
def test_a_server_that_cannot_be_reached_is_told_and_the_conversation_goes_on(net: Net, case: Case) -> None:
    stage, words = net.stage, case.says.replace("PORT", str(net.ports.get(case.at)))
    text = f"anybody in the {case.role} place?"

    ended = stage.ask(text, more=("--role", case.role))
    assert (ended.ran.code, ended.status, ended.answer, ended.asked) == (1, "failed", "", 0)
    assert re.search(words, ended.err), ended.err
    assert "secret" not in ended.ran.err
    assert not [message for message in stage.history(ended) if isinstance(message, AssistantMessage)]

    stage.as_role(case.role)
    stage.said(text, f"{words}.*Press R to retry")
    assert stage.chat.asked == []
    # The role stays what it is until the user changes it.
    assert f"{case.role} · " in stage.chat.terminal.text()
    stage.as_role("coder")
    stage.chat.assert_well()
    assert b"secret" not in stage.chat.terminal.raw


@pytest.mark.fault("A14")
def test_while_no_connection_comes_about_keys_work_and_esc_stops_it(net: Net) -> None:
    net.stage.as_role("pit")
    net.stage.chat.say("hello down there")
    terminal = net.stage.chat.terminal
    terminal.send("still typing")
    terminal.wait_for("still typing")
    terminal.press("escape")
    net.stage.seen("hello down there", r"Stopped by the user\.")
    terminal.wait_for("still typing")
    terminal.press("ctrl+c")
    terminal.wait_gone("still typing")
    net.stage.as_role("coder")
    net.stage.chat.assert_well()


@pytest.mark.fault("A15")
def test_nothing_is_said_to_a_server_whose_certificate_was_refused(net: Net) -> None:
    ended = net.stage.ask("tell nobody", more=("--role", "homemade"))
    assert ended.status == "failed"
    listener = net.listeners["homemade"]
    assert set(listener.first_bytes) == {b"\x16"}
    assert listener.received == b""
    net.stage.goes_on(ended)


@pytest.mark.fault("A15")
def test_a_certificate_of_ones_own_authority_is_accepted_with_ca_file(net: Net) -> None:
    ended = net.stage.ask("is this safe?", more=("--role", "safe"))
    assert (ended.ran.code, ended.answer) == (0, "Safely: is this safe?"), ended.err
    net.stage.goes_on(ended)


@pytest.mark.fault("A22")
def test_an_address_without_its_version_is_understood(net: Net) -> None:
    ended = net.stage.ask("hello?", more=("--role", "short"))
    assert (ended.ran.code, ended.answer) == (0, "Plainly: hello?"), ended.err
    net.stage.goes_on(ended)
