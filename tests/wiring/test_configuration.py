"""A registry whose file changes while the program runs: what it takes away counts at once, what it adds waits."""

from pathlib import Path
from typing import Any

import pytest

from chatops.domain.errors import ConfigError
from chatops.domain.events import Notice
from chatops.domain.tools import AccessLevel, CallFacts, Verdict
from chatops.runtime.settings import SessionSettings
from chatops.wiring.app import App
from tests.support.waiting import until
from tests.wiring.conftest import Bench

STATUS = CallFacts(arguments='{"command":"git status"}', command="git status", argv=("git", "status"))
OPERATOR = {"*": {"access_level": "operator"}}
RULE = {"tool": "shell_exec", "match": ["git", "status"], "verdict": "allow"}


def write(bench: Bench, *tools: str, users: Any = OPERATOR, more: dict[str, Any] | None = None, **role: Any) -> None:
    bench.write(users=users, roles={"coder": {"tools": list(tools), **role}}, default_role="coder", **(more or {}))


def offered(app: App) -> list[str]:
    return sorted(spec.name for spec in app.grant_for("coder").tools)


def test_what_is_added_waits_for_a_word_and_what_is_taken_away_does_not(bench: Bench) -> None:
    write(bench, "file_read", "shell_exec")
    app = bench.app()
    write(bench, "file_read", "web_fetch")
    assert offered(app) == ["file_read"]
    change = app.rights.change(SessionSettings("coder"))
    assert change is not None
    assert [sorted(spec.name for spec in grant.tools) for grant in change] == [
        ["file_read", "shell_exec"],
        ["file_read", "web_fetch"],
    ]
    app.reload_registry()
    assert offered(app) == ["file_read", "web_fetch"]
    assert app.rights.change(SessionSettings("coder")) is None


def test_a_reload_finds_new_skills_and_asks_about_new_tools(bench: Bench) -> None:
    write(bench, "file_read", "skill_read")
    app = bench.app()
    assert offered(app) == ["file_read"]
    skill, tool = app.paths.skills / "invoice" / "SKILL.md", app.paths.tools / "inv.py"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: invoice\ndescription: Write invoices.\n---\nDo it.")
    tool.parent.mkdir(parents=True)
    tool.write_text("raise SystemExit('nobody trusted this')")
    app.reload_registry()
    assert offered(app) == ["file_read", "skill_read"]
    assert [one.name for one in app.configuration.skills().found] == ["invoice"]
    assert app.own_tools_trust.question.is_open


async def test_what_was_taken_away_before_is_named_when_the_rest_is_put_in_force(bench: Bench) -> None:
    write(bench, "file_read", "shell_exec")
    app = bench.app()
    session = await app.open_session(None, attended=True)
    notices: list[str] = []
    session.subscribe(lambda said: notices.append(said.event.text) if isinstance(said.event, Notice) else None)
    write(bench, "file_read")
    app.configuration.look()
    await until(lambda: bool(notices))
    assert notices.pop().startswith(
        "The registry has changed (for role coder: − shell_exec). Removed rights no longer apply"
    )
    app.reload_registry()
    await until(lambda: bool(notices))
    assert notices.pop() == "Rights have changed (for role coder: − shell_exec)."
    write(bench)
    app.configuration.look()
    await until(lambda: bool(notices))
    notices.clear()
    await session.revoke_tool("scratch_write")
    write(bench, "file_read")
    app.configuration.look()
    await until(lambda: bool(notices))
    assert notices.pop() == "Rights have changed (for role coder: + file_read)."


def test_a_start_is_a_word_too(bench: Bench) -> None:
    write(bench, "file_read")
    bench.app()
    write(bench, "file_read", "shell_exec")
    assert offered(bench.app()) == ["file_read", "shell_exec"]


def test_a_change_taken_back_is_none(bench: Bench) -> None:
    write(bench, "file_read", "shell_exec")
    app = bench.app()
    write(bench, "file_read")
    assert offered(app) == ["file_read"]
    write(bench, "file_read", "shell_exec")
    assert offered(app) == ["file_read", "shell_exec"]
    assert app.rights.change(SessionSettings("coder")) is None


def test_level_sandbox_time_limits_and_rules_follow_the_stricter_one(bench: Bench) -> None:
    settings = {"tools": {"shell_exec": {"timeout_s": 60}}, "sandbox": {"network": True}}
    write(bench, "shell_exec", "file_read", rules=[RULE], more=settings)
    app = bench.app()
    shell = next(spec for spec in app.catalog.specs if spec.name == "shell_exec")
    assert app.grant_for("coder").judge("shell_exec", STATUS).verdict is Verdict.ALLOW
    write(bench, "shell_exec", "file_read", more={"tools": {"shell_exec": {"timeout_s": 5}}})
    assert app.grant_for("coder").judge("shell_exec", STATUS).verdict is Verdict.ASK
    assert app.configuration.now().timeout_of(shell) == 5
    assert not app.limits.sandbox().network
    write(bench, "shell_exec", "file_read", rules=[RULE], more=settings, users={"*": {"access_level": "viewer"}})
    assert app.rights.level is AccessLevel.VIEWER
    assert offered(app) == ["file_read"]


def test_sources_ports_servers_and_key_files_follow_the_stricter_one(bench: Bench) -> None:
    def configure(name: str, port: int) -> None:
        write(
            bench,
            "file_read",
            more={
                "knowledge": {"notes": {"paths": ["/nonexistent/notes"]}, name: {"paths": [f"/nonexistent/{name}"]}},
                "tools": {"web_fetch": {"ports": [8080, port]}},
                "mcp_servers": {"docs": {"command": ["false"]}, name: {"command": ["false"]}},
                "models": {name: {"api_url": "http://127.0.0.1:1", "api_key_file": f"/nonexistent/{name}.key"}},
            },
        )

    def found() -> tuple[list[str], bool, list[str]]:
        settings = app.catalog.settings()
        names = [source.name for source in settings.knowledge]
        return names, 81 in settings.web.ports or 82 in settings.web.ports, [one.name for one in app.servers.statuses()]

    configure("one", 81)
    app = bench.app()
    assert found() == (["notes", "one"], True, ["docs", "one"])
    configure("two", 82)
    assert found() == (["notes"], False, ["docs"])
    assert {Path("/nonexistent/one.key"), Path("/nonexistent/two.key")} <= {*app.limits.protected_paths()}
    app.reload_registry()
    assert found() == (["notes", "two"], True, ["docs", "two"])


def test_a_role_that_is_gone_permits_nothing(bench: Bench) -> None:
    write(bench, "file_read")
    app = bench.app()
    bench.write(roles={"assistant": {}})
    with pytest.raises(ConfigError, match="no role 'coder'"):
        app.grant_for("coder")
    with pytest.raises(ConfigError):
        app.grant_for("assistant")


def test_a_file_that_breaks_takes_nothing_away_and_cannot_be_put_in_force(bench: Bench) -> None:
    write(bench, "file_read", "shell_exec")
    app = bench.app()
    bench.own.write_text('{"version": 3,')
    assert offered(app) == ["file_read", "shell_exec"]
    assert "line 1" in app.rights.broken()
    with pytest.raises(ConfigError, match="line 1"):
        app.reload_registry()
    write(bench, "file_read", "shell_exec", "web_fetch")
    assert offered(app) == ["file_read", "shell_exec"]
    assert app.rights.broken() == ""
    app.reload_registry()
    assert offered(app) == ["file_read", "shell_exec", "web_fetch"]


def test_what_the_machine_permits_is_watched_too(bench: Bench) -> None:
    write(bench, "file_read", "shell_exec")
    bench.write_site(tools={"web_fetch": {"verdict": "deny"}})
    app = bench.app()
    bench.write_site(tools={"shell_exec": {"verdict": "deny"}})
    assert offered(app) == ["file_read"]
