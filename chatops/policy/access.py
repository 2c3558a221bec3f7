"""Access level of the user of this process, from the `users` of both registries."""

from collections.abc import Sequence
from dataclasses import dataclass

from chatops.domain.rights import AccessLevel
from chatops.policy.registry import Registries, UserSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """The user of this process: from its uid, never from the environment."""

    uid: int
    login: str
    groups: frozenset[str] = frozenset()
    """Names of the unix groups of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitlement:
    """Rights that the `users` of one registry give to a user."""

    level: AccessLevel
    confirm_allow: tuple[str, ...] = ()
    confirm_deny: tuple[str, ...] = ()
    source: str = ""
    """The entry that set the level, for display."""


def entitlement(users: Sequence[UserSpec], *, user: User) -> Entitlement:
    """Return the rights from the entries that name the user, else from ``*``, else level user.

    If several entries match, the lowest level counts, every `confirm_deny`, and only the `confirm_allow` that all have.
    """
    named = [spec for spec in users if _names(spec.name, user)]
    found = named or [spec for spec in users if spec.name == "*"]
    if not found:
        return Entitlement(level=AccessLevel.USER, source="no entry under users")
    strictest = min(found, key=lambda spec: spec.access_level)
    allowed = [rule for rule in found[0].confirm_allow if all(rule in spec.confirm_allow for spec in found)]
    denied = dict.fromkeys(tool for spec in found for tool in spec.confirm_deny)
    return Entitlement(
        level=strictest.access_level,
        confirm_allow=tuple(allowed),
        confirm_deny=tuple(denied),
        source=f"users entry {strictest.name}",
    )


def access_level(*, registries: Registries, user: User, access_cap: AccessLevel | None = None) -> AccessLevel:
    """Return the highest level that the user may have here: the lowest of both registries and `access_cap`."""
    site, own = registries
    levels = [entitlement(own.users or (), user=user).level]
    if site is not None and site.users is not None:
        levels.append(entitlement(site.users, user=user).level)
    if access_cap is not None:
        levels.append(access_cap)
    return min(levels)


def _names(entry: str, user: User) -> bool:
    return entry[1:] in user.groups if entry.startswith("@") else entry != "*" and entry == user.login
