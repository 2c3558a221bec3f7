"""Combine the sandbox limits of registry, site, role, command line and session.

Theory of operation

`SandboxSpec` (domain) holds everything that a command may see, write and reach. Specs form a lattice:

- `stricter(a, b)` permits what both permit. This is how a ceiling or a stored grant narrows.
- `widened(a, b)` permits what either permits. This is how a decision of the user adds something. ``SandboxSpec()`` is
  the narrowest spec, so it adds nothing.
- `require` goes the other way: the higher level counts in both.

`resolve` makes the spec of a turn from these layers:

1. ``registry``: the user's own registry, key ``sandbox``.
2. ``command line`` and ``session``: changes that the user made (``--add-dir``, ``/sandbox``), applied in order. They
   may widen or narrow, as the user could by editing the registry. The session's are stored beside the session in the
   user's store, one line each, and never in the workspace.
3. ``role``: may only raise `require`.
4. ``keys``: variables that hold keys of models are taken out of `env`.
5. ``site``: the site registry's key ``sandbox`` is the ceiling, applied last. Without the key there is no ceiling.

So nothing that a model, a tool or a workspace writes takes part, and no layer goes beyond the site's.

A spec reaches a command in one way only. The turn's grant holds it (`Grant.sandbox`, with `Grant.ceiling`), and a
resumed turn gets the stored and the current spec, `stricter`. The engine puts the spec of a call into the effects that
inspect and run it, the performer into the `ToolContext`, and `sandbox.confinement` turns it into mounts.
`engine.calls.sandbox_of` is the one place in the engine that knows the spec of a call: a decision that gives a single
call more adds it there, by ``stricter(ceiling, widened(spec, extra))``.

The description of the spec (`sandbox.confinement`) is a part of the facts that an approval is bound to, so a call
asks again if its limits have changed in any respect.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address

from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import GIT_ACCESS, NARROWEST, SandboxLevel, SandboxSpec
from chatops.domain.sanitize import show_path
from chatops.domain.wording import list_words

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?:\*\.(?={_LABEL}\.))?(?:{_LABEL}\.)+(?=[a-z0-9-]*[a-z]){_LABEL}")
FIXED_CHOICES = {"git": GIT_ACCESS, "network": ("on", "off"), "require": tuple(level.word for level in SandboxLevel)}
"""The settings with a fixed choice of values."""
_LISTS = ("hosts", "read", "write", "env")
"""The settings with a list of entries, which the user adds and removes."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@frozen_dataclass
class SandboxChange:
    """A change that the user made for a session. `value` of a list starts with ``+`` or ``-``."""

    key: str
    value: str

    def is_replaced_by(self, other: "SandboxChange") -> bool:
        """Return True if `other` is a later change of the same setting, or of the same entry of a list."""
        return self.key == other.key and (self.key not in _LISTS or self.value[1:] == other.value[1:])

    def __str__(self) -> str:
        """Return the change as `parse_change` reads it."""
        return f"{self.key} {self.value}"


@frozen_dataclass
class SandboxLayers:
    """The limits that each layer sets; see the module."""

    registry: SandboxSpec = NARROWEST
    command_line: SandboxSpec = NARROWEST
    session: tuple[SandboxChange, ...] = ()
    role: SandboxLevel = SandboxLevel.NONE
    site: SandboxSpec | None = None
    """The ceiling, or None."""
    keys: frozenset[str] = frozenset()
    """Variables that hold keys of models. Commands never get them."""


def resolve(layers: SandboxLayers) -> SandboxSpec:
    """Return the limits that follow from all layers."""
    spec = widened(layers.registry, layers.command_line)
    for change in layers.session:
        spec = apply_change(spec, change)
    env = tuple(name for name in spec.env if name not in layers.keys)
    return limited_by(layers.site, replace(spec, env=env, require=max(spec.require, layers.role)))


def parse_change(text: str) -> SandboxChange:
    """Read ``git commit``, ``hosts +example.org``, ``network on``. Raises ConfigError."""
    key, _, value = (part.strip() for part in text.strip().partition(" "))
    if choices := FIXED_CHOICES.get(key):
        if value in choices:
            return SandboxChange(key=key, value=value)
        raise ConfigError(f"{key} is one of {', '.join(choices)}.", advice=f"/sandbox {key} {choices[0]}")
    if key not in _LISTS:
        settings = ", ".join((*FIXED_CHOICES, *_LISTS))
        raise ConfigError(f"The sandbox has no setting {key!r}.", advice=f"Settings: {settings}.")
    sign, name = value[:1], value[1:].strip()
    if sign not in ("+", "-") or not name:
        raise ConfigError(f"Name what to add or remove: /sandbox {key} +NAME or -NAME.", advice="Nothing has changed.")
    problem = ""
    if key == "hosts":
        name = name.lower()
        problem = host_problem(name)
    elif key in ("read", "write"):
        problem = "it is not an absolute path" if _path_parts(name) is None else ""
    elif not _VARIABLE.fullmatch(name):
        problem = "it is not a valid variable name"
    if problem:
        raise ConfigError(f"{key} cannot have {name!r}: {problem}.", advice="Nothing has changed.")
    return SandboxChange(key=key, value=sign + name)


def apply_change(spec: SandboxSpec, change: SandboxChange) -> SandboxSpec:
    """Return `spec` with a change of the user. `require` can only be raised."""
    value = change.value
    match change.key:
        case "require":
            return replace(spec, require=max(spec.require, SandboxLevel[value.upper()]))
        case "network":
            return replace(spec, network=value == "on")
        case "git":
            return replace(spec, git=next(access for access in GIT_ACCESS if access == value))
        case "hosts":
            return replace(spec, hosts=_edit_list(spec.hosts, value))
        case "read":
            return replace(spec, read=_edit_list(spec.read, value))
        case "write":
            return replace(spec, write=_edit_list(spec.write, value))
        case "env":
            return replace(spec, env=_edit_list(spec.env, value))
        case key:
            raise ValueError(f"no limit is called {key}")


def _edit_list(entries: tuple[str, ...], edit: str) -> tuple[str, ...]:
    """Return the entries with the one that `edit` adds (``+NAME``) or without the one that it removes (``-NAME``)."""
    name = edit[1:]
    return _union(entries, (name,)) if edit.startswith("+") else tuple(entry for entry in entries if entry != name)


def is_in_force(spec: SandboxSpec, change: SandboxChange) -> bool:
    """Return True if `spec` has what the change asked for; False if a layer does not permit that."""
    return apply_change(spec, change) == spec


@frozen_dataclass
class SourcedLimit:
    """A limit that is not the narrowest, in words."""

    key: str
    value: str
    """One entry of a list, or the whole value."""
    source: str
    """The layer that it comes from."""


def limit_sources(layers: SandboxLayers) -> Iterator[SourcedLimit]:
    """Yield each limit that is not the narrowest, with its source."""
    so_far = widened(layers.registry, layers.command_line)
    stages = [("your registry", layers.registry), ("--add-dir", so_far)]
    for change in layers.session:
        so_far = apply_change(so_far, change)
        stages.append(("this session", so_far))
    result = resolve(layers)
    for key in ("git", "network", "hosts", "read", "write", "env", "credentials"):
        value = getattr(result, key)
        if value == getattr(NARROWEST, key):
            continue
        for item in value if isinstance(value, tuple) else (value,):
            # The first stage that has it: later ones took it over. No stage has what the ceiling has made of it.
            having = (name for name, stage in stages if _has_item(getattr(stage, key), item))
            source = next(having, "the site's ceiling")
            yield SourcedLimit(key=key, value="on" if item is True else str(item), source=source)
    if result.require:
        source = "the role" if layers.role is result.require else "the registries or this session"
        yield SourcedLimit(key="require", value=result.require.word, source=source)


def _has_item(value: object, item: object) -> bool:
    return item in value if isinstance(value, tuple) else value == item


def limited_by(ceiling: SandboxSpec | None, spec: SandboxSpec) -> SandboxSpec:
    """Return `spec` within the site's ceiling; None: there is none."""
    return spec if ceiling is None else stricter(ceiling, spec)


def stricter(one: SandboxSpec, other: SandboxSpec) -> SandboxSpec:
    """Return the limits that permit only what both permit."""
    write = _common_paths(one.write, other.write)
    read = _common_paths((*one.read, *one.write), (*other.read, *other.write))
    return SandboxSpec(
        require=max(one.require, other.require),
        network=one.network and other.network,
        hosts=_common_hosts(one, other),
        git=min(one.git, other.git, key=GIT_ACCESS.index),
        read=tuple(path for path in read if not any(_is_inside(path, folder) for folder in write)),
        write=write,
        env=tuple(name for name in other.env if name in one.env),
        credentials=tuple(credential for credential in other.credentials if credential in one.credentials),
    )


def widened(spec: SandboxSpec, extra: SandboxSpec) -> SandboxSpec:
    """Return the limits that permit what either permits. `require` is the higher one."""
    return SandboxSpec(
        require=max(spec.require, extra.require),
        network=spec.network or extra.network,
        hosts=_union(spec.hosts, extra.hosts),
        git=max(spec.git, extra.git, key=GIT_ACCESS.index),
        read=_union(spec.read, extra.read),
        write=_union(spec.write, extra.write),
        env=_union(spec.env, extra.env),
        credentials=tuple(dict.fromkeys((*spec.credentials, *extra.credentials))),
    )


def beyond(spec: SandboxSpec, limits: SandboxSpec) -> SandboxSpec:
    """Return what `spec` permits and `limits` do not, apart from `require`; `NARROWEST` if that is nothing."""
    inside = (*limits.read, *limits.write)
    return SandboxSpec(
        network=spec.network and not limits.network,
        hosts=tuple(
            host
            for host in spec.hosts
            if not limits.network and not any(covers_host(entry, host) for entry in limits.hosts)
        ),
        git=spec.git if GIT_ACCESS.index(spec.git) > GIT_ACCESS.index(limits.git) else NARROWEST.git,
        read=tuple(path for path in spec.read if not any(_is_inside(path, folder) for folder in inside)),
        write=tuple(path for path in spec.write if not any(_is_inside(path, folder) for folder in limits.write)),
        env=tuple(name for name in spec.env if name not in limits.env),
        credentials=tuple(credential for credential in spec.credentials if credential not in limits.credentials),
    )


def describe_extra(extra: SandboxSpec) -> str:
    """Return further limits in words: ``the whole network and .git for commits``."""
    git = {"protect": "", "commit": ".git for commits", "writable": "all of .git, with config and hooks"}
    parts = [
        "the whole network" if extra.network else "",
        *(f"the host {host}" for host in extra.hosts),
        git[extra.git],
        *(f"reading {show_path(path)}" for path in extra.read),
        *(f"writing in {show_path(path)}" for path in extra.write),
        *(f"the variable {name}" for name in extra.env),
        *(f"the credential {credential}" for credential in extra.credentials),
    ]
    return list_words([part for part in parts if part])


def covers_host(pattern: str, host: str) -> bool:
    """Return True if the entry `pattern` of `hosts` permits everything that the entry `host` does."""
    name, port = split_host(pattern)
    other, other_port = split_host(host)
    if port and port != other_port:
        return False
    # An entry without a port permits web servers only.
    if not port and other_port not in ("", "80", "443"):
        return False
    return name == other or (name.startswith("*.") and other.endswith(name[1:]) and other != name[1:])


def host_problem(entry: str) -> str:
    """Return why `entry` cannot be an entry of `hosts`, as a clause; empty if it can."""
    name, port = split_host(entry)
    if (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536)) or (":" in entry and not port):
        return "its port is not a number from 1 to 65535"
    try:
        address = ip_address(name)
    except ValueError:
        if _HOST_NAME.fullmatch(name):
            return ""
        return "it is neither a host name (example.org, *.example.org) nor an address"
    if str(address) != name or (address.version == 6) != entry.startswith("["):
        return f"write the address as {address if address.version == 4 else f'[{address}]'}"
    return "" if port or address.is_global else "an address that is not public needs its port (127.0.0.1:8080)"


def split_host(entry: str) -> tuple[str, str]:
    """Split an entry of `hosts` into name and port; empty: it has none. The name of ``[::1]:80`` has no brackets."""
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name.lower(), port.removeprefix(":")
    name, _, port = entry.partition(":")
    return name.lower(), port


def _common_hosts(one: SandboxSpec, other: SandboxSpec) -> tuple[str, ...]:
    # All of the network includes each host.
    if one.network and other.network:
        return _union(one.hosts, other.hosts)
    if one.network or other.network:
        return other.hosts if one.network else one.hosts
    narrower = [
        first if covers_host(second, first) else second
        for second in other.hosts
        for first in one.hosts
        if covers_host(second, first) or covers_host(first, second)
    ]
    return tuple(dict.fromkeys(narrower))


def _union(first: Sequence[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _common_paths(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that both lists name or contain. Compared lexically: links are not followed."""
    inner = (_inner_path(path, other) for path in second for other in first)
    return tuple(dict.fromkeys(path for path in inner if path))


def _inner_path(one: str, other: str) -> str:
    """Return the one of two absolute paths that is inside the other; empty if neither is or one cannot be compared."""
    if _is_inside(one, other):
        return one
    return other if _is_inside(other, one) else ""


def _is_inside(path: str, folder: str) -> bool:
    parts, folder_parts = _path_parts(path), _path_parts(folder)
    return parts is not None and folder_parts is not None and parts[: len(folder_parts)] == folder_parts


def _path_parts(path: str) -> list[str] | None:
    """Return the folders and the name in an absolute path; None if it is not absolute or goes up with ``..``."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return parts if path.startswith("/") and ".." not in parts else None
