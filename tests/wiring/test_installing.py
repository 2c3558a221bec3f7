"""The site's limits hold for installing the packages of servers too."""

import pytest

from chatops.domain.errors import ConfigError
from chatops.domain.sandbox import SandboxLevel
from tests.wiring.conftest import Bench


def test_a_site_that_gives_servers_no_network_lets_nothing_be_fetched(bench: Bench) -> None:
    bench.write()
    bench.write_site(sandbox={"network": False})
    opened = bench.app()
    with pytest.raises(ConfigError, match="the site's registry gives servers no network"):
        opened.servers.installer(opened.paths.servers)


def test_the_level_that_is_required_and_keys_hold(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/certificates")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:key@127.0.0.1:1")
    model = {"type": "openai", "api_url": "http://127.0.0.1:1", "model_name": "m", "api_key_env": "HTTPS_PROXY"}
    bench.write(sandbox={"require": "basic"}, models={"m": model})
    opened = bench.app()
    found = opened.servers.installer(opened.paths.servers)
    assert (found.sandbox.require, found.sandbox.network) == (SandboxLevel.BASIC, True)
    assert "SSL_CERT_FILE" in found.sandbox.env and "HTTPS_PROXY" not in found.sandbox.env
    assert set(opened.paths.protected) <= set(found.protected)
    assert not any(found.folder.is_relative_to(one) for one in found.protected), "servers have to see it"
