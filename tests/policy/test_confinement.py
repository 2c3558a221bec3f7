"""The sandbox of both registries: the site's block is a ceiling."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.sandbox import GIT_ACCESS, SandboxLevel, SandboxSpec
from chatops.policy.registry import Registries, Registry, RoleSandbox, RoleSpec
from chatops.policy.resolve import sandbox_layers, web_ports
from chatops.policy.sandbox import covers_host, resolve, stricter, widened
from chatops.policy.servers import ToolSetting
from tests.support.cases import for_each

OPEN = SandboxSpec(require=SandboxLevel.NONE, network=True, read=("/srv/data", "/opt/x"), git="writable")
STRICT = SandboxSpec(require=SandboxLevel.BASIC, network=False, read=(), git="protect")


def sandbox(registries: Registries) -> SandboxSpec:
    return resolve(sandbox_layers(registries))


def registry(spec: SandboxSpec | None) -> Registry:
    return Registry(source="f", digest="d", sandbox=spec)


@pytest.mark.parametrize("site", [None, registry(None)])
def test_without_a_block_of_the_site_the_users_counts(site: Registry | None) -> None:
    assert sandbox((site, registry(OPEN))) == OPEN
    assert sandbox((site, registry(None))) == SandboxSpec()


@for_each(
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


@for_each(
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


HOSTS = ["a.org", "*.a.org", "b.a.org", "a.org:8080", "127.0.0.1:80"]
specs = st.builds(
    SandboxSpec,
    require=st.sampled_from(SandboxLevel),
    network=st.booleans(),
    hosts=st.lists(st.sampled_from(HOSTS), max_size=3).map(tuple),
    git=st.sampled_from(GIT_ACCESS),
    read=st.lists(st.sampled_from(["/a", "/a/b", "/c", "/"]), max_size=3).map(tuple),
    write=st.lists(st.sampled_from(["/a", "/a/b", "/c"]), max_size=2).map(tuple),
    env=st.lists(st.sampled_from(["A", "B"]), max_size=2).map(tuple),
)


def within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == one or path.startswith(one.rstrip("/") + "/") for one in folders)


def permits_no_more(spec: SandboxSpec, side: SandboxSpec) -> bool:
    return (
        spec.require >= side.require
        and (side.network or not spec.network)
        and all(side.network or any(covers_host(one, host) for one in side.hosts) for host in spec.hosts)
        and GIT_ACCESS.index(spec.git) <= GIT_ACCESS.index(side.git)
        and all(within(path, (*side.read, *side.write)) for path in spec.read)
        and all(within(path, side.write) for path in spec.write)
        and set(spec.env) <= set(side.env)
    )


@given(site=specs, own=specs)
def test_neither_side_is_ever_widened(site: SandboxSpec, own: SandboxSpec) -> None:
    both = sandbox((registry(site), registry(own)))
    assert permits_no_more(both, site)
    assert permits_no_more(both, own)


@given(site=specs, own=specs, added=specs)
def test_what_the_user_adds_stays_under_the_ceiling_of_the_site(
    site: SandboxSpec, own: SandboxSpec, added: SandboxSpec
) -> None:
    layers = sandbox_layers((registry(site), registry(own)), command_line=added)
    assert permits_no_more(resolve(layers), site)
    assert permits_no_more(resolve(layers), widened(own, added))


@given(spec=specs)
def test_the_narrowest_limits_add_nothing(spec: SandboxSpec) -> None:
    assert widened(spec, SandboxSpec()) == widened(spec, spec)
    assert permits_no_more(stricter(spec, SandboxSpec()), SandboxSpec())


def test_a_role_can_only_raise_the_level() -> None:
    def level(own: SandboxLevel, role: SandboxLevel) -> SandboxLevel:
        spec = RoleSpec(name="coder", sandbox=RoleSandbox(require=role))
        file = replace(registry(SandboxSpec(require=own)), roles=(spec,))
        return resolve(sandbox_layers((None, file), role="coder")).require

    assert level(SandboxLevel.NONE, SandboxLevel.HARD) is SandboxLevel.HARD
    assert level(SandboxLevel.BASIC, SandboxLevel.NONE) is SandboxLevel.BASIC
    assert level(SandboxLevel.HARD, SandboxLevel.LANDLOCK) is SandboxLevel.HARD


@for_each(
    ("pattern", "host", "covered"),
    [
        ("a.org", "a.org", True),
        ("a.org", "a.org:443", True),
        ("a.org", "a.org:25", False),
        ("a.org", "b.a.org", False),
        ("*.a.org", "b.a.org", True),
        ("*.a.org", "a.org", False),
        ("*.a.org", "xa.org", False),
        ("a.org:8080", "a.org", False),
        ("A.org:8080", "a.ORG:8080", True),
    ],
)
def test_a_host_covers_only_itself(pattern: str, host: str, covered: bool) -> None:
    assert covers_host(pattern, host) is covered
