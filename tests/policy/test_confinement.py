"""The sandbox of both registries: the site's block is a ceiling."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.policy.registry import Registry, SandboxSpec, ToolSetting
from chatops.policy.resolve import sandbox, web_ports

OPEN = SandboxSpec(require="none", network=True, read=("/srv/data", "/opt/x"), git="writable")
STRICT = SandboxSpec(require="bubblewrap", network=False, read=(), git="protect")


def registry(spec: SandboxSpec | None) -> Registry:
    return Registry(source="f", digest="d", sandbox=spec)


@pytest.mark.parametrize("site", [None, registry(None)])
def test_without_a_block_of_the_site_the_users_counts(site: Registry | None) -> None:
    assert sandbox((site, registry(OPEN))) == OPEN
    assert sandbox((site, registry(None))) == SandboxSpec()


@pytest.mark.parametrize(
    ("site", "own", "ports"),
    [
        (None, None, ()),
        (None, (8080,), (8080,)),
        ((8080, 1), (8080, 2), (8080,)),
        ((), (8080,), ()),
        ((8080,), None, ()),
    ],
)
def test_the_site_limits_the_ports_that_a_user_may_name(
    site: tuple[int, ...] | None, own: tuple[int, ...] | None, ports: tuple[int, ...]
) -> None:
    both = [Registry(source="f", digest="d", tools=(("web_fetch", ToolSetting(ports=value)),)) for value in (site, own)]
    assert web_ports((both[0], both[1])) == frozenset(ports)
    assert web_ports((None, both[1])) == frozenset(own or ())


def test_a_block_of_the_site_binds_in_every_respect() -> None:
    assert sandbox((registry(STRICT), registry(OPEN))) == STRICT
    assert sandbox((registry(OPEN), registry(STRICT))) == STRICT
    assert sandbox((registry(OPEN), registry(OPEN))) == OPEN


@pytest.mark.parametrize(
    ("site", "own", "read"),
    [
        ("/srv", "/srv/data", ("/srv/data",)),
        ("/srv/data", "/srv", ("/srv/data",)),
        ("/srv/data", "/srv/database", ()),
        ("/srv", "/srv/../home", ()),
        ("/srv", "srv", ()),
        ("/srv/", "/srv/./a/", ("/srv/./a/",)),
    ],
)
def test_read_is_what_lies_in_both(site: str, own: str, read: tuple[str, ...]) -> None:
    both = (registry(replace(STRICT, read=(site,))), registry(replace(STRICT, read=(own,))))
    assert sandbox(both).read == read


specs = st.builds(
    SandboxSpec,
    require=st.sampled_from(["none", "bubblewrap"]),
    network=st.booleans(),
    read=st.lists(st.sampled_from(["/a", "/a/b", "/c", "/"]), max_size=3).map(tuple),
    git=st.sampled_from(["protect", "writable"]),
)


@given(site=specs, own=specs)
def test_neither_side_is_ever_widened(site: SandboxSpec, own: SandboxSpec) -> None:
    met = sandbox((registry(site), registry(own)))
    for side in (site, own):
        assert met.require == "bubblewrap" or side.require == "none"
        assert side.network or not met.network
        assert met.git == "protect" or side.git == "writable"
        for path in met.read:
            assert any(path == other or path.startswith(other.rstrip("/") + "/") for other in side.read)
