"""Registries of Cortex, version 1 and 2, become version 3 files that can be used; no key is copied."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine

VERSION_2: dict[str, Any] = {
    "version": 2,
    "providers": {"google": {"accounts": [{"key": "secret-of-google"}]}},
    "hosts": {
        "web-ui": {"api_url": "http://127.0.0.1:3000", "api_key": "secret-of-host", "max_concurrent": 3},
        "box": {"api_url": "http://127.0.0.1:11434/v1", "api_key": "none", "host_type": "ollama"},
    },
    "models": {
        "qwen": {
            "type": "local_openai", "label": "Qwen", "model_name": "qwen3:32b", "host_id": "web-ui", "context_k": 32,
            "tags": ["local"], "max_rounds": 12,
        },
        "small": {"type": "local_openai", "model_name": "llama3.2", "host_id": "box"},
        "flash": {"type": "gemini_api", "model_name": "gemini-2.5-flash"},
    },
    "roles": {
        "orchestrator": {"primary": "flash"},
        "chat": {"primary": "claude_cli", "backup_1": "qwen", "backup_2": None, "inject_datetime": True},
        "coder": {
            "primary": "qwen", "backup_1": "small", "backup_4": "gemini_cli", "system_append": "You write code.",
            "tools": ["web_search", "file_read", "shell_exec", "http_fetch"], "confirm_deny": ["web_fetch"],
        },
        "silent": {"tools": []},
    },
    "confirm_allow": ["web_fetch"],
    "confirm_deny": ["code_interpreter"],
    "settings": {"orchestrator_max_rounds": 8},
}  # fmt: skip
VERSION_1: dict[str, Any] = {
    "models": [
        {"id": "local", "type": "local_openai", "api_url": "http://127.0.0.1:3000", "model_name": "m",
         "api_key": "secret"},
    ],
    "roles": {"chat": "local", "coder": {"primary": "local", "backups": ["claude_cli", "gemini_api"]}},
    "users": {"ana": {"role": "admin"}, "guest": {"role": "user", "confirm_deny": ["shell_exec"]}},
}  # fmt: skip


def migrated(chatops: CommandLine, old: object) -> tuple[dict[str, Any], str]:
    """Migrate a registry, see that the result can be used, and return it with the notes."""
    source, target = chatops.workspace / "old.json", chatops.workspace / "new.json"
    source.write_text(json.dumps(old))
    ran = chatops("registry", "migrate", str(source), "--output", str(target))
    assert ran.code == 0, ran.err
    assert target.stat().st_mode & 0o777 == 0o600
    assert chatops("registry", "check", str(target)).code == 0
    assert json.loads(chatops("registry", "migrate", str(source)).out) == json.loads(target.read_text())
    assert "secret" not in target.read_text() + ran.err
    new: dict[str, Any] = json.loads(target.read_text())
    return new, ran.err


def test_version_2_is_migrated(chatops: CommandLine) -> None:
    new, notes = migrated(chatops, VERSION_2)
    assert new["models"]["qwen"] == {
        "type": "openai", "host_type": "openwebui", "api_url": "http://127.0.0.1:3000", "model_name": "qwen3:32b",
        "api_key_env": "WEB_UI_API_KEY", "max_concurrent": 3, "label": "Qwen", "max_rounds": 12,
        "context_window": 32_000, "x-tags": ["local"],
    }  # fmt: skip
    assert new["models"]["small"]["host_type"] == "ollama"
    assert "api_key_env" not in new["models"]["small"]
    assert new["models"]["flash"] == {"type": "gemini", "model_name": "gemini-2.5-flash"}
    assert new["models"]["gemini_cli"] == {"type": "cli", "command": ["gemini", "-p"]}
    assert "gemini_cli cannot run here; choose another model." in notes
    assert new["roles"] == {
        "chat": {"primary": "claude_cli", "backup_1": "qwen"},
        "coder": {
            "primary": "qwen", "backup_1": "small", "backup_4": "gemini_cli", "system_append": "You write code.",
            "tools": ["web_search", "file_read", "shell_exec", "web_fetch"],
            "rules": [{"tool": "web_fetch", "verdict": "deny"}],
        },
        "silent": {"tools": []},
    }  # fmt: skip
    assert new["users"] == {
        "*": {"access_level": "operator", "confirm_allow": ["web_fetch"], "confirm_deny": ["code_interpreter"]}
    }
    assert (new["default_role"], new["max_rounds"]) == ("chat", 8)
    for note in ("The role orchestrator is left out", "WEB_UI_API_KEY", "providers: left out", "inject_datetime"):
        assert note in notes
    assert "roles.coder.confirm_deny denies now: these tools never run. Before, they could be confirmed." in notes


def test_version_1_is_migrated(chatops: CommandLine) -> None:
    new, _ = migrated(chatops, VERSION_1)
    assert new["models"]["local"]["host_type"] == "openwebui"
    assert new["models"]["local"]["api_key_env"] == "LOCAL_API_KEY"
    assert new["models"]["gemini_api"]["type"] == "gemini"
    assert new["roles"]["coder"] == {"primary": "local", "backup_1": "claude_cli", "backup_2": "gemini_api"}
    assert new["users"]["ana"] == {"access_level": "admin"}
    assert new["users"]["guest"] == {"access_level": "user", "confirm_deny": ["shell_exec"]}


@pytest.mark.parametrize(
    ("old", "problem"),
    [
        ({"version": 3}, "key version: this is version 3, which needs no migration"),
        ({"version": 4}, "key version: this is not version 1 or 2"),
        ([], "one JSON object"),
        ({"version": 2, "models": {"m": {"type": "gemini_ap"}}}, "there is no type 'gemini_ap'; 'gemini_api' may be"),
        ({"version": 2, "models": {"m": {"host_id": "bx"}}, "hosts": {"box": {}}}, "no host 'bx'; 'box' may be meant"),
        ({"version": 2, "models": 3}, "key models: expected an object"),
        ({"version": 2, "roles": {"r": 3}}, "key roles.r: expected an object"),
        ({"version": 2, "roles": {"r": {"tools": "all"}}}, "key roles.r.tools: expected a list"),
        ({"confirm_deny": "shell_exec"}, "key confirm_deny: expected a list of the names of tools"),
        ({"roles": {"a": {"confirm_deny": ["file_write", 5]}}}, "key roles.a.confirm_deny: expected a list"),
        ({"users": {"a": {"confirm_deny": {"shell_exec": True}}}}, "key users.a.confirm_deny: expected a list"),
        ({"users": [{"id": "a", "confirm_deny": ["file_write"]}, {"id": "a"}]}, "key users[1]: there is another 'a'"),
        ({"models": {"m": {"type": ["gemini_api"]}}}, "there is no type ['gemini_api']"),
        ({"models": {"m": {"host_id": ["box"]}}, "hosts": {"box": {}}}, "there is no host ['box']"),
    ],
)
def test_what_cannot_be_migrated_is_named_with_its_place(chatops: CommandLine, old: object, problem: str) -> None:
    source = chatops.workspace / "old.json"
    source.write_text(json.dumps(old))
    ran = chatops("registry", "migrate", str(source))
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err


def test_nothing_is_left_out_without_a_note_and_no_two_hosts_share_a_key(chatops: CommandLine) -> None:
    server = {"api_url": "http://127.0.0.1:3000"}
    new, notes = migrated(
        chatops,
        {
            "version": 2,
            "hosts": {
                "a-b": {**server, "api_key": "secret-1", "verify_ssl": True},
                "a_b": {**server, "api_key": "secret-2"},
                "spare": server,
            },
            "models": {
                "m": {"host_id": "a-b", "api_key": "secret-3", "context_k": "32"},
                "n": {"host_id": "a_b"},
                "a-b": {"api_key": "secret-4", **server},
            },
            "roles": {"chat": {"primary": "m", "backups": ["n"] * 5}},
            "settings": [1],
        },
    )
    assert len({model["api_key_env"] for model in new["models"].values()}) == 3
    for left in ("hosts.a-b.verify_ssl", "hosts.spare", "models.m.api_key", "models.m.context_k", "settings"):
        assert f"key {left}: left out; " in notes
    assert "chat: only the first 4 backups are kept." in notes


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("https://ana:secret@box/v1?v=1", "https://box/v1?v=1"),
        ("ana:secret@box:80/v1", "box:80/v1"),
        ("https://secret-token@box/v1", "https://box/v1"),
        ("https://ana:sec@ret-secret@box/v1", "https://box/v1"),
        ("https://box/v1?api-key=secret&v=1", "https://box/v1"),
        ("https://ana:secret@box#x@y", "https://box#x@y"),
    ],
)
def test_no_login_in_an_address_is_copied(chatops: CommandLine, address: str, kept: str) -> None:
    model = {"model_name": "m", "host_id": "box"}
    new, notes = migrated(
        chatops, {"version": 2, "hosts": {"box": {"api_url": address}}, "models": {"m": model, "n": model}}
    )
    assert {entry["api_url"] for entry in new["models"].values()} == {kept}
    assert notes.count("The user, password or key in api_url of host box is not copied.") == 1


def test_an_older_registry_that_is_used_names_the_command(chatops: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "old.json"
    source.write_text(json.dumps(VERSION_2))
    assert "chatops registry migrate" in chatops("--registry", str(source), "-p", "hello").err
