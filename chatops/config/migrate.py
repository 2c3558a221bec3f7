"""Conversion of Cortex registries (version 1 and 2) to version 3.

Version 2 lists servers under ``hosts`` and names them in models by ``host_id``; a host without ``host_type`` is an Open
WebUI. Version 1 has the server's keys in each model, and a role may be only the name of its model. Entries may be an
object by name or a list of objects with an ``id``.

No key is copied, nor a user, password or key in an address. A migrated model names an environment variable for its key
instead. Whatever else is left out, apart from comments, is named in a note; what could widen a right when it is left
out is an error.
"""

import json
import re
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qsl

from chatops.config.document import Document, Json, read_document, suggestion
from chatops.config.registry_read import MAX_BYTES, read_registry
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.names import SECRET_NAME

OLD_VERSIONS = (1, 2)
DROPPED_ROLE = "orchestrator"
"""The role of Cortex that ran the tool loop for all others. Here each role's own model does."""

_BACKUPS = ("backup_1", "backup_2", "backup_3", "backup_4")
_ROLE_KEYS = ("system_append", "persona", "color")
_HOST_KEYS = ("api_url", "api_key", "host_type", "max_concurrent")
_RENAMED_TOOLS = {"http_fetch": "web_fetch"}
"""Tools that have another name here."""
_CLI_COMMANDS = {"claude_cli": ["claude", "-p"], "gemini_cli": ["gemini", "-p"]}
"""Commands of the model types that were other programs. Their names were models too, without an entry."""
_CONFIRM_KEYS = ("confirm_allow", "confirm_deny")
_NOW_DENIES = "{} denies now: these tools never run. Before, they could be confirmed."
_UNUSED_HOST = "no model uses it"
_GEMINI_CLI_GONE = "gemini_cli cannot run here; choose another model."
_NO_API_KEY = frozenset({"", "none"})
_LOGIN = re.compile(r"^(\s*(?:[a-z][a-z0-9+.-]*:)?[/\\]{2})?[^/\\#]*@", re.IGNORECASE)
"""The beginning of an address with a user or password, up to its end."""
_LOGIN_LEFT_OUT = "The user, password or key in api_url of {} is not copied. Write it into the new file yourself."

_Object = dict[str, Json]


@frozen_dataclass
class Migration:
    """A migrated registry."""

    text: str
    """The version 3 file."""
    notes: tuple[str, ...]
    """Notes for the user, one sentence each."""


def migrate(data: bytes, *, source: str) -> Migration:
    """Convert the bytes of a version 1 or 2 registry.

    Raises ConfigError if they cannot be read, are of another version, or do not make a valid registry.
    """
    document = read_document(data, source=source, advice="Correct it there, and migrate it again.", most=MAX_BYTES)
    old = document.located.value
    if not isinstance(old, dict):
        raise document.error((), "the file has to contain one JSON object")
    version = old.get("version", 1)
    if version == 3:
        raise document.error(
            ("version",), "this is version 3, which needs no migration", advice="chatops registry check checks it."
        )
    if version not in OLD_VERSIONS or isinstance(version, bool):
        raise document.error(
            ("version",), "this is not version 1 or 2", advice="chatops registry check says whether it can be used."
        )
    converter = _Converter(document)
    text = json.dumps(converter.convert_registry(old), indent=2, ensure_ascii=False) + "\n"
    try:
        warnings = read_registry(text.encode(), source="the new file").warnings
    except ConfigError as error:
        raise ConfigError(f"{source} cannot be migrated. {error}", advice="Correct it there.") from error
    return Migration(text=text, notes=(*converter.notes, *(warning.text for warning in warnings)))


class _Converter:
    """Converts one document, and collects notes."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.notes: list[str] = []
        self.keys: dict[str, str] = {}
        """For each environment variable that holds a key, the host or model that it belongs to."""

    def convert_registry(self, old: _Object) -> _Object:
        hosts = dict(self.entries(old, "hosts"))
        for name, host in hosts.items():
            self.note_left_out(host, ("hosts", name), known=("id", *_HOST_KEYS))
        models = {name: self.convert_model(name, entry, hosts) for name, entry in self.entries(old, "models")}
        roles = dict(self.convert_roles(old))
        named = {model for role in roles.values() for model in role.values() if isinstance(model, str)}
        if "gemini_cli" in named and "gemini_cli" not in models:
            models["gemini_cli"] = {"type": "cli", "command": list[Json](_CLI_COMMANDS["gemini_cli"])}
            self.notes.append(_GEMINI_CLI_GONE)
        if "gemini_api" in named and "gemini_api" not in models:
            models["gemini_api"] = {"type": "gemini", "model_name": "gemini-flash-latest"}
            self.notes.append("gemini_api had no entry, so its model_name is a guess: gemini-flash-latest.")
        new: _Object = {"version": 3}
        if roles:
            new["default_role"] = "chat" if "chat" in roles else next(iter(roles))
        new |= {"models": dict[str, Json](models), "roles": dict[str, Json](roles), "users": self.convert_users(old)}
        settings = old.get("settings")
        rounds = settings.get("orchestrator_max_rounds") if isinstance(settings, dict) else None
        if rounds is not None:
            new["max_rounds"] = rounds
        for variable, owner in self.keys.items():
            self.notes.append(f"The key of {owner} is not copied. Put it into the environment variable {variable}.")
        known = ["version", "hosts", "models", "roles", "users", *_CONFIRM_KEYS, "$schema"]
        known += ["settings"] if settings is None or isinstance(settings, dict) else []
        self.note_left_out(old, (), known=known)
        if isinstance(settings, dict):
            self.note_left_out(settings, ("settings",), known=("orchestrator_max_rounds",))
        ids = [entry.get("host_id") for _, entry in self.entries(old, "models")]
        used = [host_id for host_id in ids if isinstance(host_id, str)]
        self.note_left_out(dict[str, Json](hosts), ("hosts",), known=used, why=_UNUSED_HOST)
        return new

    def convert_model(self, name: str, old: _Object, hosts: dict[str, _Object]) -> _Object:
        path = ("models", name)
        kind = old.get("type", "local_openai")
        new: _Object = {}
        if isinstance(kind, str) and kind in _CLI_COMMANDS:
            new = {"type": "cli", "command": list[Json](_CLI_COMMANDS[kind])}
            if kind == "gemini_cli":
                self.notes.append(_GEMINI_CLI_GONE if name == kind else f"{name}: {_GEMINI_CLI_GONE}")
        elif kind == "gemini_api":
            new = {"type": "gemini"}
        elif kind == "local_openai":
            new = {"type": "openai", **self.convert_host(name, old, hosts)}
        else:
            known = ["local_openai", "gemini_api", *_CLI_COMMANDS]
            raise self.document.error((*path, "type"), f"there is no type {kind!r}{suggestion(str(kind), known)}")
        new |= {key: old[key] for key in ("model_name", "label", "max_rounds") if key in old}
        if isinstance(size := old.get("context_k"), int | float) and not isinstance(size, bool):
            new["context_window"] = round(size * 1000)
        if "tags" in old:
            new["x-tags"] = old["tags"]
        known_keys = ["id", "type", "host_id", "model_name", "label", "max_rounds", "tags"]
        known_keys += ["context_k"] if "context_window" in new else []
        # With a host, those of the model itself had no meaning; other types have no server.
        known_keys += _HOST_KEYS if kind == "local_openai" and old.get("host_id") is None else []
        self.note_left_out(old, path, known=known_keys)
        return new

    def convert_host(self, model: str, old: _Object, hosts: dict[str, _Object]) -> _Object:
        """Return the keys of the model's server: those of its host, or of version 1, where a model has them itself."""
        host_id = old.get("host_id")
        if host_id is not None and not (isinstance(host_id, str) and host_id in hosts):
            why = f"there is no host {host_id!r}{suggestion(str(host_id), list(hosts))}"
            raise self.document.error(("models", model, "host_id"), why)
        name, host = (str(host_id), hosts[str(host_id)]) if host_id is not None else (model, old)
        owner = f"host {name}" if host is not old else f"model {name}"
        new: _Object = {"host_type": host.get("host_type") or "openwebui", "api_url": host.get("api_url", "")}
        url = new["api_url"]
        if isinstance(url, str) and (bare := _without_login(url)) != url:
            new["api_url"] = bare
            self.notes.extend({_LOGIN_LEFT_OUT.format(owner)} - set(self.notes))
        if str(host.get("api_key", "")).casefold() not in _NO_API_KEY:
            variable = re.sub(r"\W", "_", name, flags=re.ASCII).upper() + "_API_KEY"
            variable = f"_{variable}" if variable[0].isdigit() else variable
            # Two that share a variable would each get the key of the other.
            while self.keys.get(variable, owner) != owner:
                variable = f"{variable}_2"
            new["api_key_env"] = variable
            self.keys[variable] = owner
        if "max_concurrent" in host:
            new["max_concurrent"] = host["max_concurrent"]
        return new

    def convert_roles(self, old: _Object) -> Iterator[tuple[str, _Object]]:
        for name, entry in self.entries(old, "roles", short="primary"):
            if name == DROPPED_ROLE:
                model = entry.get("primary")
                self.notes.append(
                    f"The role {DROPPED_ROLE} is left out: each role's own model runs its tools here."
                    + (f" It used {model}." if model else "")
                )
                continue
            yield name, self.convert_role(name, entry)

    def convert_role(self, name: str, old: _Object) -> _Object:
        new: _Object = {}
        for key in ("primary", *_BACKUPS):
            if old.get(key):
                new[key] = old[key]
        backups = old.get("backups", old.get("backup"))
        listed = backups if isinstance(backups, list) else [backups] if backups else []
        new |= dict(zip(_BACKUPS, listed, strict=False))
        if len(listed) > len(_BACKUPS):
            self.notes.append(f"{name}: only the first {len(_BACKUPS)} backups are kept.")
        new |= {key: old[key] for key in _ROLE_KEYS if old.get(key)}
        if old.get("tools") is not None:
            new["tools"] = list[Json](self.current_names(self.tool_names(old, "tools", ("roles", name))))
        if denied := self.tool_names(old, "confirm_deny", ("roles", name)):
            new["rules"] = [{"tool": tool, "verdict": "deny"} for tool in self.current_names(denied)]
            self.notes.append(_NOW_DENIES.format(f"roles.{name}.confirm_deny"))
        known = ("id", "primary", *_BACKUPS, "backup", "backups", *_ROLE_KEYS, "tools", "confirm_deny")
        self.note_left_out(old, ("roles", name), known=known)
        return new

    def convert_users(self, old: _Object) -> _Object:
        """Return the users. Confirm lists at the top level were for everyone."""
        users = {name: self.convert_user(("users", name), entry) for name, entry in self.entries(old, "users")}
        everyone = self.convert_user((), {key: old[key] for key in _CONFIRM_KEYS if key in old})
        if "*" not in users:
            users["*"] = {"access_level": "operator"}
            self.notes.append("Everyone gets the access level operator, as in the default registry; see users.")
        for entry in users.values():
            for key in _CONFIRM_KEYS:
                merged = dict.fromkeys((*_texts_of(entry.get(key)), *_texts_of(everyone.get(key))))
                if merged:
                    entry[key] = list[Json](merged)
        return dict[str, Json](users)

    def convert_user(self, path: tuple[str, ...], old: _Object) -> _Object:
        new: _Object = {}
        if (role := old.get("role", old.get("access_level"))) is not None:
            new["access_level"] = role
        for key in _CONFIRM_KEYS:
            if names := self.tool_names(old, key, path):
                new[key] = list[Json](self.current_names(names))
                if key == "confirm_deny":
                    self.notes.append(_NOW_DENIES.format(".".join((*path, key))))
        self.note_left_out(old, path, known=("id", "role", "access_level", *_CONFIRM_KEYS))
        return new

    def entries(self, old: _Object, key: str, *, short: str = "") -> Iterator[tuple[str, _Object]]:
        """Yield name and object of each entry under `key`. With `short`, text stands for an object with that key."""
        section = old.get(key, {})
        if isinstance(section, list):
            pairs: Sequence[tuple[Json, Json]] = [
                (entry.get("id", entry.get("name")), entry) if isinstance(entry, dict) else (None, entry)
                for entry in section
            ]
        elif isinstance(section, dict):
            pairs = list(section.items())
        else:
            raise self.document.error((key,), "expected an object {…}")
        seen: set[str] = set()
        for index, (name, entry) in enumerate(pairs):
            if short and isinstance(entry, str):
                entry = {short: entry}
            if not isinstance(name, str) or not isinstance(entry, dict):
                where = (key, index) if isinstance(section, list) else (key, str(name))
                raise self.document.error(where, "expected an object with a name")
            if name in seen:
                raise self.document.error((key, index), f"there is another {name!r} before it")
            seen.add(name)
            yield name, entry

    def tool_names(self, old: _Object, key: str, path: tuple[str, ...]) -> list[str]:
        """Return a list of tools that decides rights. Raises ConfigError for anything else: nothing is left out."""
        value = old.get(key)
        names = _texts_of(value)
        if value is not None and names != value:
            raise self.document.error((*path, key), "expected a list of the names of tools")
        return names

    def current_names(self, names: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(_RENAMED_TOOLS.get(name, name) for name in names))

    def note_left_out(
        self, old: _Object, path: tuple[str, ...], *, known: Sequence[str], why: str = "it has no meaning here"
    ) -> None:
        """Note the keys that are left out."""
        for key in old:
            if key not in known:
                self.notes.append(f"{self.document.where((*path, key))}: left out; {why}.")


def _without_login(url: str) -> str:
    """Return an address without user and password, and without a query that holds a key."""
    bare, _, query = url.partition("?")
    login = _LOGIN.match(bare)
    address = (login[1] or "") + bare[login.end() :] if login is not None else bare
    secret = any(SECRET_NAME.search(name) for name, _ in parse_qsl(query, keep_blank_values=True))
    return address if secret else address + url[len(bare) :]


def _texts_of(value: Json) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
