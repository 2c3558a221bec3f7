"""Lookup, damage, last good copy, workspace and site registries: with real files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from chatops.config.paths import Paths, packaged_registry
from chatops.config.registry import Loaded, load_registry
from chatops.config.registry_read import read_registry
from chatops.config.site_files import SitePlace
from chatops.domain.decisions import RuleScope
from chatops.domain.errors import ConfigError
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel
from chatops.policy.registry import ModelType
from tests.support.cases import for_each

MINIMAL: dict[str, Any] = {"version": 3, "default_role": "solo", "roles": {"solo": {"tools": ["file_read"]}}}


class Place:
    """A user's folders, a workspace and an optional site registry below a temporary folder."""

    def __init__(self, base: Path) -> None:
        self.paths = Paths(config=base / "config", data=base / "data", log=base / "log")
        self.workspace = base / "ws"
        self.workspace.mkdir()
        self.paths.config.mkdir(mode=0o700)
        self.site_folder = base / "etc"
        self.site_folder.mkdir(mode=0o755)
        self.site = SitePlace(path=self.site_folder / "model_registry.json", owner=os.getuid(), top=self.site_folder)

    def own(self, text: str) -> Path:
        self.paths.registry.write_text(text)
        return self.paths.registry

    def load(self, *, path: Path | None = None, env: dict[str, str] | None = None) -> Loaded:
        return load_registry(path=path, paths=self.paths, env=env or {}, site=self.site)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_packaged_registry_loads_without_a_word(place: Place) -> None:
    loaded = place.load()
    assert loaded.path == packaged_registry()
    assert loaded.notices == () and loaded.broken is None and loaded.access_cap is None
    names = {role.name: role for role in loaded.registry.roles}
    assert {"assistant", "coder", "researcher", "reviewer", "operator"} <= set(names)
    assert len(names["assistant"].tools or ()) <= 6
    assert all(len(role.tools or ()) <= 8 and role.system_append for role in names.values())
    left_out = set("delegate knowledge_search memory_read memory_write python_exec skill_read wolfram_alpha".split())
    assert {tool for role in names.values() for tool in role.tools or ()} <= set(BUILT_IN_TOOLS) - left_out


def test_flag_before_environment_before_own_folder(place: Place, tmp_path: Path) -> None:
    def one(name: str) -> Path:
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"version": 3, "roles": {name: {}}, "default_role": name}))
        return file

    flag, variable = one("flag"), one("variable")
    place.own(json.dumps(MINIMAL))
    env = {"CHATOPS_REGISTRY": str(variable)}
    assert place.load(path=flag, env=env).registry.default_role == "flag"
    assert place.load(env=env).registry.default_role == "variable"
    assert place.load().registry.default_role == "solo"


@pytest.mark.parametrize("where", ["flag", "environment"])
def test_a_named_file_that_is_missing_is_an_error(place: Place, tmp_path: Path, where: str) -> None:
    missing = tmp_path / "nowhere.json"
    with pytest.raises(ConfigError, match="does not exist"):
        if where == "flag":
            place.load(path=missing)
        else:
            place.load(env={"CHATOPS_REGISTRY": str(missing)})


def test_models_that_always_exist(place: Place) -> None:
    place.own(json.dumps(MINIMAL))
    registry = place.load(env={"OPENAI_BASE_URL": "http://h/v1", "OPENAI_MODEL": "m", "OPENAI_API_KEY": "k"}).registry
    env, demo, claude = (registry.model(name) for name in ("env", "demo", "claude_cli"))
    assert env is not None and (env.api_url, env.model_name, env.key.env) == ("http://h/v1", "m", "OPENAI_API_KEY")
    assert demo is not None and demo.type is ModelType.DEMO
    assert claude is not None and claude.command == ("claude", "-p")


def test_scopes_of_rules_are_all_on_unless_the_file_names_those_that_are(place: Place) -> None:
    assert place.load().registry.rule_scopes == tuple(RuleScope)
    place.own(json.dumps({**MINIMAL, "rules": {"remember": ["role", "session"]}}))
    assert place.load().registry.rule_scopes == (RuleScope.SESSION, RuleScope.ROLE)
    place.own(json.dumps({**MINIMAL, "rules": {"remember": []}}))
    assert place.load().registry.rule_scopes == ()
    place.own(json.dumps({**MINIMAL, "rules": {}}))
    assert place.load().registry.rule_scopes == tuple(RuleScope)


def test_only_the_site_limits_where_calls_may_be_decided(place: Place) -> None:
    limited = json.dumps({**MINIMAL, "approvals": {"surfaces": ["terminal"]}})
    place.own(limited)
    place.site.path.write_text(limited)
    place.site.path.chmod(0o644)
    loaded = place.load()
    assert loaded.site is not None and loaded.site.surfaces == ("terminal",)
    (notice,) = [notice.text for notice in loaded.notices if "approvals" in notice.text]
    assert "only the site registry can limit this" in notice
    for wrong in ({"surfaces": ["phone"]}, {"surface": ["cli"]}):
        place.own(json.dumps({**MINIMAL, "approvals": wrong}))
        with pytest.raises(ConfigError, match="approvals"):
            read_registry(place.paths.registry.read_bytes(), source="r.json")


def test_only_the_site_requires_a_sink_of_the_decision_log(place: Place) -> None:
    required = json.dumps({**MINIMAL, "audit": {"sink": "journald"}})
    place.own(required)
    place.site.path.write_text(required)
    place.site.path.chmod(0o644)
    loaded = place.load()
    assert loaded.site is not None and loaded.site.sink == "journald"
    (notice,) = [notice.text for notice in loaded.notices if "audit" in notice.text]
    assert "only the site registry can limit this" in notice
    for wrong in ({"sink": "journal"}, {"sinks": "syslog"}):
        with pytest.raises(ConfigError, match="audit"):
            read_registry(json.dumps({**MINIMAL, "audit": wrong}).encode(), source="r.json", site=True)


def test_a_registry_names_the_database_of_the_store(place: Place) -> None:
    place.own(json.dumps({**MINIMAL, "store": "postgresql://ana:lantern7@db.example/chatops"}))
    loaded = place.load()
    assert loaded.registry.store == "postgresql://ana:lantern7@db.example/chatops"
    assert any("a password in the file" in notice.text for notice in loaded.notices)
    for wrong in ({"store": "/tmp/chatops.db"}, {"stores": "postgresql://db/chatops"}):
        with pytest.raises(ConfigError, match="store"):
            read_registry(json.dumps({**MINIMAL, **wrong}).encode(), source="r.json")


def test_a_broken_file_leaves_its_last_good_copy_in_force(place: Place) -> None:
    good = json.dumps({**MINIMAL, "users": {"*": {"access_level": "viewer"}}}, indent=1)
    place.own(good)
    before = place.load().registry
    place.own(good.replace('"viewer"', '"viewer'))
    after = place.load()
    assert after.broken is not None and "line" in str(after.broken)
    assert after.registry.users == before.users and after.registry.roles == before.roles
    assert after.access_cap is None
    assert any("stays in force" in notice.text for notice in after.notices)


def test_a_broken_file_without_a_copy_means_viewer(place: Place) -> None:
    place.own('{"version": 3, "roles": {')
    loaded = place.load()
    assert loaded.access_cap is AccessLevel.VIEWER
    assert loaded.broken is not None and loaded.registry.role("assistant") is not None


def test_a_damaged_copy_is_not_used(place: Place) -> None:
    place.own(json.dumps(MINIMAL))
    place.load()
    (copy,) = (place.paths.data / "registry").iterdir()
    assert copy.stat().st_mode & 0o777 == 0o600 and copy.parent.stat().st_mode & 0o777 == 0o700
    copy.write_bytes(copy.read_bytes().replace(b"file_read", b"shell_exec"))
    place.own("{")
    loaded = place.load()
    assert loaded.access_cap is AccessLevel.VIEWER and loaded.registry.role("solo") is None


def test_the_copy_of_one_file_never_stands_in_for_another(place: Place, tmp_path: Path) -> None:
    place.own(json.dumps(MINIMAL))
    place.load()
    other = tmp_path / "other.json"
    other.write_text("{")
    assert place.load(path=other).access_cap is AccessLevel.VIEWER


def test_a_link_that_leads_nowhere_is_broken_and_not_absent(place: Place) -> None:
    place.paths.registry.symlink_to(place.workspace / "gone.json")
    assert place.load().access_cap is AccessLevel.VIEWER


def test_even_a_damaged_packaged_file_leaves_a_role_without_tools(place: Place, tmp_path: Path) -> None:
    packaged = tmp_path / "packaged.json"
    packaged.write_text("nothing")
    loaded = load_registry(path=None, paths=place.paths, env={}, site=place.site, packaged=packaged)
    assert loaded.access_cap is AccessLevel.VIEWER and loaded.broken is not None
    assert [role.tools for role in loaded.registry.roles] == [()]


def test_reload_only_when_something_changed(place: Place) -> None:
    place.own(json.dumps(MINIMAL))
    loaded = place.load()
    assert loaded.reload_if_changed() is None
    place.own(json.dumps({**MINIMAL, "max_rounds": 3}))
    again = loaded.reload_if_changed()
    assert again is not None and again.registry.max_rounds == 3 and again.reload_if_changed() is None
    place.paths.registry.unlink()
    gone = again.reload_if_changed()
    assert gone is not None and gone.registry == again.registry and gone.broken is not None
    assert gone.reload_if_changed() is None


def test_reloading_does_not_raise_for_a_named_file_that_is_gone_from_where_it_was_named(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.own(json.dumps(MINIMAL))
    monkeypatch.chdir(place.paths.config)
    named = Path(place.paths.registry.name)
    loaded = load_registry(path=named, paths=place.paths, env={}, site=place.site)
    monkeypatch.chdir(tmp_path)
    again = loaded.reload_if_changed()
    assert again is not None and "which does not exist" in again.broken_note


def test_a_pipe_in_place_of_the_file_is_broken_and_not_waited_for(place: Place) -> None:
    os.mkfifo(place.paths.registry)
    assert "it is not a plain file" in str(place.load().broken)


def test_a_file_everyone_can_write_is_warned_of(place: Place) -> None:
    place.own(json.dumps(MINIMAL)).chmod(0o666)
    assert any("written by everyone" in notice.text for notice in place.load().notices)


def test_a_folder_everyone_can_write_and_a_file_of_another_user_are_warned_of(place: Place) -> None:
    file = place.own(json.dumps(MINIMAL))
    file.parent.chmod(0o777)
    assert any(f"{file.parent} can be written by everyone" in notice.text for notice in place.load().notices)
    file.parent.chmod(0o700)
    if os.getuid() == 0:
        os.chown(file, 54321, -1)
        assert any(f"{file} belongs to another user" in notice.text for notice in place.load().notices)


def test_the_site_registry_is_read_and_its_path_is_a_constant(place: Place) -> None:
    place.site.path.write_text(json.dumps({"version": 3, "users": {"*": {"access_level": "user"}}}))
    place.site.path.chmod(0o644)
    loaded = place.load(env={"CHATOPS_SITE_REGISTRY": "/nowhere"})
    assert loaded.site is not None and loaded.site.users is not None
    assert str(SitePlace().path) == "/etc/chatops/model_registry.json" and SitePlace().owner == 0


def test_no_link_leads_out_of_the_paths_that_the_site_permits(place: Place, tmp_path: Path) -> None:
    permitted, outside = tmp_path / "permitted", tmp_path / "outside"
    (permitted / "mine").mkdir(parents=True)
    outside.mkdir()
    (permitted / "out").symlink_to(outside)
    (permitted / "in").symlink_to(permitted / "mine")
    place.site.path.write_text(json.dumps({"version": 3, "sandbox": {"write": [str(permitted)], "read": ["/opt"]}}))
    place.site.path.chmod(0o644)
    paths = [str(permitted / name) for name in ("mine", "in", "out", "out/more")]
    server = {"command": ["x"], "sandbox": {"read": paths}}
    own = {"version": 3, "sandbox": {"read": ["/", *paths], "write": paths}, "mcp_servers": {"x": server}}
    place.own(json.dumps(own))
    loaded = place.load()
    assert loaded.registry.sandbox is not None
    assert loaded.registry.sandbox.write == tuple(paths[:2])
    assert loaded.registry.sandbox.read == ("/", *paths[:2])
    assert loaded.registry.servers[0].sandbox.read == tuple(paths[:2])
    assert any(f"does not get {paths[2]}" in warning.text for warning in loaded.notices)


@pytest.mark.parametrize("mistake", ["group", "others", "folder", "broken", "link", "owner", "directory"])
def test_a_site_registry_that_cannot_be_trusted_stops_everything(place: Place, mistake: str) -> None:
    file = place.site.path
    file.write_text("{" if mistake == "broken" else "{}")
    file.chmod(0o644)
    site = place.site
    match mistake:
        case "group":
            file.chmod(0o664)
        case "others":
            file.chmod(0o646)
        case "folder":
            place.site_folder.chmod(0o777)
        case "link":
            file.rename(place.site_folder / "real.json")
            file.symlink_to(place.site_folder / "real.json")
        case "owner":
            site = SitePlace(path=file, owner=os.getuid() + 4711, top=place.site_folder)
        case "directory":
            file.unlink()
            file.mkdir()
        case _:
            pass
    with pytest.raises(ConfigError):
        load_registry(path=None, paths=place.paths, env={}, site=site)


def test_a_site_folder_that_is_a_file_stops_everything(place: Place) -> None:
    place.site_folder.rmdir()
    place.site_folder.write_text("")
    with pytest.raises(ConfigError):
        place.load()


ERRORS = [
    ('{\n "version": 3,\n "roles": {"a": {"max_rounds": "12"}}\n}', 3, 18, "roles.a.max_rounds"),
    ('{"notify": {"command": "say"}}', 1, 13, "notify.command"),
    ('{"budget": {"cost": 0}}', 1, 13, "budget.cost"),
    ('{"budget": {"costs": 1}}', 1, 13, "budget.costs"),
    ('{"budgt": {"cost": 1}}', 1, 2, "budgt"),
    ('{"roles": {"a": {"budgets": {"cost": 1}}}}', 1, 18, "roles.a.budgets"),
    ('{"roles": {"a": {"budget": {"tokens": 1.5}}}}', 1, 29, "roles.a.budget.tokens"),
    ('{"users": {"ana": {"acess_level": "admin"}}}', 1, 20, "users.ana.acess_level"),
    ('{"users": {"ana": {"access_level": "root"}}}', 1, 20, "users.ana.access_level"),
    ('{"tools": {"shell_exec": {"verdikt": "ask"}}}', 1, 27, "tools.shell_exec.verdikt"),
    ('{"tools": {"shell_exc": {"verdict": "deny"}}}', 1, 12, "tools.shell_exc"),
    ('{"sandbox": {"net": true}}', 1, 14, "sandbox.net"),
    ('{"sandbox": {"git": "protecct"}}', 1, 14, "sandbox.git"),
    ('{"sandbox": {"git": "open"}}', 1, 14, "sandbox.git"),
    ('{"rules": {"remember": ["sesion"]}}', 1, 25, "rules.remember[0]"),
    ('{"rules": {"rembember": []}}', 1, 12, "rules.rembember"),
    ('{"rule": {"remember": []}}', 1, 2, "rule"),
    ('{"sandbox": {"require": "bublewrap"}}', 1, 14, "sandbox.require"),
    (
        '{"roles": {"a": {"rules": [{"tool": "file_edit", "verdict": "ask", "when": 1}]}}}',
        1,
        68,
        "roles.a.rules[0].when",
    ),
    ('{"roles": {"a": {"tols": ["file_read"]}}}', 1, 18, "roles.a.tols"),
    ('{"user": {}}', 1, 2, "user"),
    ('{"version": 3,\n\n "version": 3}', 3, 2, "version"),
    ('{"version": 2}', 1, 2, "version"),
    ('{"version": 4}', 1, 2, "version"),
    ('{"a": tru}', 1, 7, "a"),
    ("[]", 1, 1, ""),
    ("", 1, 1, ""),
    ('{"a": 1,}', 1, 9, ""),
    ('{"é": "é\udcff"}', 1, 9, ""),
    ('{"models": {"m": {"api_key": "k", "api_key_env": "K"}}}', 1, 13, "models.m"),
    ('{"users": {"a": {"confirm_allow": ["shell_exec:git status; rm x"]}}}', 1, 36, "users.a.confirm_allow[0]"),
    ('{"users": {"a": {"confirm_deny": ["web_fech"]}}}', 1, 35, "users.a.confirm_deny[0]"),
    ('{"models": {"m": {"type": ""}}}', 1, 19, "models.m.type"),
    ('{"models": {"m": {"api_key_file": "/a\\u0000"}}}', 1, 19, "models.m.api_key_file"),
    ('{"mcp_servers": {"s": {"url": "http://[::1"}}}', 1, 24, "mcp_servers.s.url"),
    ('{"mcp_servers": {"s": {"command": "x", "cwd": "~\\u0000x"}}}', 1, 18, "mcp_servers.s"),
    ('{"mcp_servers": {"s": {"command": "x", "tools": {"x-t": "deny"}}}}', 1, 50, "mcp_servers.s.tools.x-t"),
]


@for_each(("text", "line", "column", "key"), ERRORS, ids=[error[0][:40] for error in ERRORS])
def test_an_error_names_file_line_column_and_key(text: str, line: int, column: int, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_registry(text.encode(errors="surrogateescape"), source="/x/model_registry.json")
    message = str(caught.value)
    assert message.startswith(f"/x/model_registry.json, line {line}, column {column}")
    assert not key or f"key {key}:" in message
    assert caught.value.advice


def test_unknown_keys_elsewhere_are_warnings_and_free_keys_are_silent() -> None:
    text = {
        "$schema": "s",
        "x-note": 1,
        "colour": "red",
        "models": {"m": {"x-y": 1, "api_urll": "u", "price": {"input": 1, "output": 1, "inputs": 1}}},
        "users": {"a": {"x-why": "guest"}},
    }
    registry = read_registry(json.dumps(text).encode(), source="f")
    assert len(registry.warnings) == 3
    assert all(word in str(registry.warnings) for word in ("colour", "models.m.api_urll", "price.inputs"))


def test_a_literal_key_works_with_a_warning_and_is_never_shown() -> None:
    text = json.dumps({"models": {"m": {"api_key": "sk-secret-1"}}})
    registry = read_registry(text.encode(), source="f")
    model = registry.model("m")
    assert model is not None and model.key.literal == "sk-secret-1"
    assert "api_key" in registry.warnings[0].text and "sk-secret" not in str(registry)
    for broken in ('{"models": {"m": {"api_key": ["sk-secret-1"]}}}', '{"models": {"m": {"api_key": "sk-secret-1}}}'):
        with pytest.raises(ConfigError) as caught:
            read_registry(broken.encode(), source="f")
        assert "sk-secret" not in str(caught.value) + caught.value.advice


def test_a_role_block_as_people_have_it_today_works_verbatim() -> None:
    block = {
        "primary": "claude_cli",
        "system_append": "You are in code-specialist mode.",
        "tools": ["web_search", "file_read", "shell_exec", "scratch_write"],
    }
    registry = read_registry(json.dumps({"roles": {"coder": block}, "default_role": "coder"}).encode(), source="f")
    role = registry.role("coder")
    assert registry.warnings == () and role is not None
    assert role.models == ("claude_cli",) and role.tools == tuple(block["tools"]) and role.rules == ()


def test_missing_and_empty_tools_differ_and_backups_keep_their_order() -> None:
    roles = {"a": {}, "b": {"tools": [], "primary": "demo", "backup_2": "env", "backup_1": "claude_cli"}}
    registry = read_registry(json.dumps({"roles": roles, "default_role": "a"}).encode(), source="f")
    a, b = registry.role("a"), registry.role("b")
    assert a is not None and b is not None
    assert a.tools is None and a.models == ("default",)
    assert b.tools == () and b.models == ("demo", "claude_cli", "env")


@for_each(
    ("text", "where", "word"),
    [
        ({"models": {"m": {"tool_format": "Hermse"}}}, "models.m.tool_format", "'hermes' may be meant"),
        ({"models": {"m": {"tool_format": "?"}}}, "models.m.tool_format", "auto, native, "),
        ({"mcpServers": {"a": {"command": "x", "autoApprove": ["*"]}}}, "mcpServers.a.autoApprove", "not known"),
        ({"approve_any_shell": True}, "approve_any_shell", "site registry"),
    ],
)
def test_a_key_without_effect_is_warned_of_with_its_place(text: dict[str, Any], where: str, word: str) -> None:
    (warning,) = read_registry(json.dumps(text).encode(), source="f").warnings
    assert warning.text.startswith("f, line 1, column") and f"key {where}:" in warning.text and word in warning.text


def test_what_only_one_of_the_registries_sets_is_warned_of_in_the_other() -> None:
    text = {"approve_any_shell": True, "respond_with_final": False, "default_role": "x", "roles": {"y": {}}}
    warnings = read_registry(json.dumps(text).encode(), source="f", site=True).warnings
    assert len(warnings) == 2
    assert "default_role" in warnings[0].text and "respond_with_final" in warnings[1].text


def test_the_values_that_are_in_force_anyway_are_no_warning() -> None:
    models = {"a": {"tool_format": "auto"}, "b": {"tool_format": "native"}, "c": {"tool_format": "hermes"}}
    text = {"models": models, "mcp_servers": {}, "workflows": {}, "approve_any_shell": False}
    assert read_registry(json.dumps(text).encode(), source="f").warnings == ()


@for_each("key", ["models", "roles", "users", "tools"])
@for_each("note", ["seen in May", 3, ["a"], None])
def test_notes_between_entries_are_free(key: str, note: object) -> None:
    registry = read_registry(json.dumps({key: {"x-note": note, "$schema": "s"}}).encode(), source="f")
    assert registry.warnings == () and not getattr(registry, key)


def test_what_restricts_a_user_called_x_is_no_note() -> None:
    text = {"users": {"x-ray": {"access_level": "viewer"}}, "roles": {"x-ops": {"tools": []}}, "default_role": "x-ops"}
    registry = read_registry(json.dumps(text).encode(), source="f")
    assert registry.users is not None and [user.name for user in registry.users] == ["x-ray"]
    assert [role.tools for role in registry.roles] == [()]


@for_each(
    "text",
    [
        {"roles": {"coder": "x"}}, {"users": {"ana": []}}, {"models": []}, {"tools": {"shell_exec": 1}},
        {"models": {"m": {"stream": 1}}}, {"roles": {"a": {"tools": "file_read"}}}, {"sandbox": 1},
    ],
)  # fmt: skip
def test_an_error_speaks_of_the_file_and_not_of_our_classes(text: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_registry(json.dumps(text).encode(), source="f")
    assert "expected" in str(caught.value)
    assert not any(word in str(caught.value) for word in ("Entry", "dictionary", "instance", "valid"))
