"""Reach of commands and web_fetch under both registries: the site sets a ceiling, the user can only narrow it."""

from chatops.policy.registry import Registry, SandboxSpec
from chatops.policy.resolve import Registries


def sandbox(registries: Registries) -> SandboxSpec:
    """Return the `sandbox` settings that both registries allow.

    A site registry without the key sets nothing. With it, its defaults count too. A sandbox is required if either
    registry requires one. There is network if both allow it. ``.git`` is protected if either protects it. Readable are
    only folders that both name or contain (compared lexically, links are not followed).
    """
    site, own = registries
    ceiling = site.sandbox if site is not None else None
    wanted = own.sandbox or SandboxSpec()
    return wanted if ceiling is None else met(ceiling, wanted)


def met(one: SandboxSpec, other: SandboxSpec) -> SandboxSpec:
    """Return the stricter of both in every setting."""
    return SandboxSpec(
        require="bubblewrap" if "bubblewrap" in (one.require, other.require) else "none",
        network=one.network and other.network,
        read=tuple(dict.fromkeys(path for path in _both(one.read, other.read) if path)),
        git="protect" if "protect" in (one.git, other.git) else "writable",
    )


def web_ports(registries: Registries) -> frozenset[int]:
    """Return the ports besides 80 and 443 that web_fetch may connect to.

    These are the user's ports, limited to those that the site names, if it names any.
    """
    site, own = (_ports(registry) for registry in registries)
    return frozenset(own or ()) if site is None else frozenset(own or ()) & frozenset(site)


def _ports(registry: Registry | None) -> tuple[int, ...] | None:
    settings = registry.tools if registry is not None else ()
    return next((setting.ports for name, setting in settings if name == "web_fetch"), None)


def _both(first: tuple[str, ...], second: tuple[str, ...]) -> list[str]:
    return [_narrower(one, other) for one in second for other in first]


def _narrower(one: str, other: str) -> str:
    """Return the one of two absolute paths that is inside the other; empty if neither is or one cannot be compared."""
    if _inside(one, other):
        return one
    return other if _inside(other, one) else ""


def _inside(path: str, folder: str) -> bool:
    parts, around = _parts(path), _parts(folder)
    return parts is not None and around is not None and parts[: len(around)] == around


def _parts(path: str) -> list[str] | None:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return parts if path.startswith("/") and ".." not in parts else None
