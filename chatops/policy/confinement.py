"""What commands and web_fetch may reach under both registries: the site sets a ceiling, the user can only narrow it."""

from chatops.policy.registry import Registry, SandboxSpec
from chatops.policy.resolve import Registries


def sandbox(registries: Registries) -> SandboxSpec:
    """Both `sandbox` blocks met. A site registry without the key says nothing; with it, its defaults count too.

    A sandbox is required if either requires one, there is network if both say so, ``.git`` is protected if either
    protects it, and read are only folders (lexically, links are not followed) that both name or hold.
    """
    site, own = registries
    ceiling = site.sandbox if site is not None else None
    wanted = own.sandbox or SandboxSpec()
    return wanted if ceiling is None else met(ceiling, wanted)


def met(one: SandboxSpec, other: SandboxSpec) -> SandboxSpec:
    """The stricter of both in everything."""
    return SandboxSpec(
        require="bubblewrap" if "bubblewrap" in (one.require, other.require) else "none",
        network=one.network and other.network,
        read=tuple(dict.fromkeys(path for path in _both(one.read, other.read) if path)),
        git="protect" if "protect" in (one.git, other.git) else "writable",
    )


def web_ports(registries: Registries) -> frozenset[int]:
    """Return the ports that web_fetch may connect to beside 80 and 443: those of the user that the site names too, if
    it names any."""
    site, own = (_ports(registry) for registry in registries)
    return frozenset(own or ()) if site is None else frozenset(own or ()) & frozenset(site)


def _ports(registry: Registry | None) -> tuple[int, ...] | None:
    settings = registry.tools if registry is not None else ()
    return next((setting.ports for name, setting in settings if name == "web_fetch"), None)


def _both(first: tuple[str, ...], second: tuple[str, ...]) -> list[str]:
    return [_narrower(one, other) for one in second for other in first]


def _narrower(one: str, other: str) -> str:
    """The one of two absolute paths that lies in the other; empty if neither does or one cannot be compared."""
    if _inside(one, other):
        return one
    return other if _inside(other, one) else ""


def _inside(path: str, folder: str) -> bool:
    parts, around = _parts(path), _parts(folder)
    return parts is not None and around is not None and parts[: len(around)] == around


def _parts(path: str) -> list[str] | None:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return parts if path.startswith("/") and ".." not in parts else None
