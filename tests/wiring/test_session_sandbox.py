"""The user changes the sandbox of a session, within the ceiling of the site; nothing else does."""

import json
from pathlib import Path

import pytest

from chatops.domain.errors import ConfigError
from chatops.domain.sandbox import NARROWEST, SandboxLevel
from chatops.policy.sandbox import parse_change
from chatops.toolkit.confine import home_secrets
from chatops.wiring.app import App
from chatops.wiring.stored import Options, added_folders
from tests.support.cases import for_each
from tests.wiring.conftest import Bench


async def test_a_change_counts_for_the_session_and_is_kept_with_it(bench: Bench) -> None:
    bench.write(sandbox={"hosts": ["a.example.org"]})
    app = bench.app()
    session = await app.open_session(None, attended=True)
    for text in ("git commit", "hosts +b.example.org", "hosts -a.example.org", "env +CI"):
        await session.change_sandbox(parse_change(text))
    limits = session.grant().sandbox or NARROWEST
    assert (limits.git, limits.hosts, limits.env) == ("commit", ("b.example.org",), ("CI",))
    other = await app.open_session(None, attended=True)
    assert (other.grant().sandbox or NARROWEST).hosts == ("a.example.org",)
    await app.aclose()
    again = await bench.app().open_session(session.session_id, attended=True)
    assert again.grant().sandbox == limits
    await again.change_sandbox(None)
    assert (again.grant().sandbox or NARROWEST).hosts == ("a.example.org",)


@pytest.mark.parametrize(
    "text",
    [
        "network on",
        "hosts +b.example.org",
        "hosts +*.example.org",
        "git writable",
        "read +/srv/x",
        "write +/srv",
        "env +CI",
    ],
)
async def test_the_ceiling_of_the_site_holds(bench: Bench, text: str) -> None:
    bench.write()
    bench.write_site(sandbox={"hosts": ["a.example.org"], "git": "commit", "read": ["/srv/data"]})
    app = bench.app()
    session = await app.open_session(None, attended=True)
    before = session.grant().sandbox
    with pytest.raises(ConfigError, match="not permitted"):
        await session.change_sandbox(parse_change(text))
    assert session.grant().sandbox == before
    for permitted in ("hosts +a.example.org", "git commit", "read +/srv/data/x"):
        await session.change_sandbox(parse_change(permitted))


async def test_what_add_dir_names_beyond_the_ceiling_is_left_out_and_said(bench: Bench, tmp_path: Path) -> None:
    data = tmp_path / "srv" / "data"
    (data / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(data)
    (data / "out").symlink_to(bench.workspace)
    bench.write()
    for ceiling, given, got in (
        ({"write": [str(data)]}, data / "sub", data / "sub"),
        ({"write": [str(data)]}, f"{data}//sub/../.", data),
        ({"write": [str(data)]}, tmp_path / "link", data),
        ({"write": [str(data)]}, data / "sub" / "..", data),
        # Of a folder around it, what the site permits.
        ({"write": [str(data)]}, data.parent, data),
        ({"write": [str(data)]}, data / "out", None),
        ({"write": [str(tmp_path / "link")]}, tmp_path / "link", None),
        ({"write": [str(data).upper()]}, data, None),
        ({"read": [str(data)]}, data, None),
        ({}, data, None),
    ):
        bench.write_site(sandbox=ceiling)
        app = App(Options(workspace=bench.workspace, sandbox=added_folders((str(given),))))
        bench.apps.append(app)
        session = await app.open_session(None, attended=True)
        assert (session.grant().sandbox or NARROWEST).write == ((str(got),) if got is not None else ()), given
        (real,) = app.options.sandbox.write
        said = [one for one in app.notices() if one.startswith("--add-dir")]
        left = f"--add-dir: the site registry does not permit writing in {real}."
        assert said == ([] if str(got) == real else [left])


@pytest.mark.parametrize("key", ["read", "write"])
async def test_no_command_gets_a_folder_of_credentials(bench: Bench, key: str) -> None:
    bench.write()
    session = await bench.app().open_session(None, attended=True)
    before = session.grant().sandbox
    with pytest.raises(ConfigError, match="holds credentials"):
        await session.change_sandbox(parse_change(f"{key} +{home_secrets()[0]}"))
    assert session.grant().sandbox == before
    await session.change_sandbox(parse_change(f"{key} -{home_secrets()[0]}"))


async def test_a_link_is_named_by_what_it_leads_to(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    bench.write()
    session = await bench.app().open_session(None, attended=True)
    with pytest.raises(ConfigError, match="is a link") as raised:
        await session.change_sandbox(parse_change(f"write +{tmp_path}/link"))
    assert raised.value.advice == f"Name what it leads to: {tmp_path}"
    await session.change_sandbox(parse_change(f"write +{tmp_path}"))


async def test_commands_never_get_the_key_of_a_model(bench: Bench) -> None:
    bench.write(
        models={"m": {"api_url": "http://127.0.0.1:9/v1", "model_name": "x", "api_key_env": "MY_KEY"}},
        sandbox={"env": ["MY_KEY", "CI"]},
    )
    session = await bench.app().open_session(None, attended=True)
    assert (session.grant().sandbox or NARROWEST).env == ("CI",)
    with pytest.raises(ConfigError, match="not permitted"):
        await session.change_sandbox(parse_change("env +MY_KEY"))


async def test_a_session_cannot_lower_the_level(bench: Bench) -> None:
    bench.write(sandbox={"require": "hard"})
    app = bench.app()
    session = await app.open_session(None, attended=True)
    await session.change_sandbox(parse_change("require none"))
    assert (session.grant().sandbox or NARROWEST).require is SandboxLevel.HARD


@for_each(
    "text",
    [
        "",
        "hosts b.example.org",
        "hosts +localhost",
        "hosts +127.0.0.1",
        "read +relative",
        "read +/a/../b",
        "env +A=b",
        "x +y",
        "git all",
    ],
)
def test_a_change_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_change(text)


async def test_the_text_names_level_limits_and_their_layers(bench: Bench, tmp_path: Path) -> None:
    from chatops.wiring.explain import SessionRights

    bench.write(sandbox={"hosts": ["a.example.org"]})
    app = bench.app()
    session = await app.open_session(None, attended=True)
    await session.change_sandbox(parse_change(f"read +{tmp_path}"))
    text = SessionRights(app).limits(session)
    assert "a.example.org   (your registry)" in text
    assert f"{tmp_path}   (this session)" in text
    assert text.startswith("Level ")


def test_folders_are_added_by_name_and_a_home_never_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home", "a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    found = added_folders([str(tmp_path / "a"), f"{tmp_path / 'b'}:ro"])
    assert (found.write, found.read) == ((str(tmp_path / "a"),), (str(tmp_path / "b"),))
    for refused in (str(tmp_path / "home"), "/", str(tmp_path / "link"), str(tmp_path), str(tmp_path / "none")):
        with pytest.raises(ConfigError):
            added_folders([refused])


async def test_nothing_in_the_workspace_changes_it(bench: Bench) -> None:
    bench.write()
    app = bench.app()
    (app.workspace / "model_registry.json").write_text(json.dumps({"version": 3, "sandbox": {"network": True}}))
    (app.workspace / ".chatops").mkdir()
    (app.workspace / ".chatops" / "sandbox").write_text("network on\n")
    session = await bench.app().open_session(None, attended=True)
    assert session.grant().sandbox == NARROWEST
