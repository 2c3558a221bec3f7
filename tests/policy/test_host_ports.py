"""A grant for a host is a grant for the web there, not for every service on it."""

import pytest

from chatops.domain.decisions import HostPattern
from chatops.domain.tools import CallFacts
from chatops.policy.patterns import covers, matches
from chatops.policy.rule_syntax import parse_rule, show_rule, suggest_exact
from tests.support.cases import for_each


def facts(host: str) -> CallFacts:
    return CallFacts(arguments="{}", hosts=(host,))


@for_each("host", ["example.org:8080", "example.org:22", "example.org.evil.test", "xn--exmple-cua.org"])
def test_a_host_without_a_port_answers_for_no_other_port(host: str) -> None:
    assert matches(HostPattern(host="example.org"), facts("EXAMPLE.org."))
    assert not matches(HostPattern(host="example.org"), facts(host))
    assert not matches(HostPattern(host="*.example.org"), facts(f"www.{host}"))


@pytest.mark.parametrize("host", ["example.org", "example.org:8080", "a.example.org:1"])
def test_a_denied_host_is_denied_on_every_port(host: str) -> None:
    pattern = HostPattern(host="*.example.org" if host.startswith("a.") else "example.org")
    assert covers(pattern, facts(host))
    assert covers(HostPattern(host="::1"), facts("[::1]:8080"))
    assert not covers(HostPattern(host="example.org"), facts("example.com:8080"))


def test_a_grant_on_a_port_is_for_that_port() -> None:
    pattern = suggest_exact("web_fetch", facts("example.org:8080"))
    assert parse_rule(show_rule("web_fetch", pattern)) == ("web_fetch", pattern)
    assert matches(pattern, facts("example.org:8080"))
    assert not matches(pattern, facts("example.org"))
