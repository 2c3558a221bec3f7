"""A registry that breaks, goes, changes, or is far too large: at the start, and under a running chat."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import Installation
from tests.faults.entry_points import FaultyChat, Pipe, Provider, flat, patient_registry
from tests.faults.terminals import chat_in
from tests.support.fake_openai import call, calls, says


def file_of(installation: Installation) -> Path:
    """The registry that the installation's programs were started with."""
    return Path(installation.flags[1])


def with_tools(provider: Provider, *tools: str) -> dict[str, Any]:
    """The registry with this list of tools for its coder."""
    whole = patient_registry(provider.server.url)
    whole["roles"]["coder"]["tools"] = list(tools)
    return whole


def broken(whole: dict[str, Any]) -> str:
    """The file with a comma lost, and in which line and column that is seen."""
    text = json.dumps(whole, indent=1)
    return text.replace('"version": 3,', '"version": 3', 1)


PLACE = r"registry.json, line 3, column 2"
"""Position of the next key where a comma is missing."""


def offered(chat: FaultyChat) -> list[str]:
    """Names of the tools in the last request."""
    return [tool["function"]["name"] for tool in chat.provider.requests[-1].body.get("tools", [])]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyChat]:
    """A chat under whose feet the registry changes, from test to test."""
    with chat_in(tmp_path_factory.mktemp("registry")) as chat:
        yield chat


@pytest.mark.more
@pytest.mark.fault("E13")
def test_a_file_that_breaks_or_goes_changes_nothing_and_is_told_with_its_place(running: FaultyChat) -> None:
    chat = running
    chat.assert_well()
    before = offered(chat)
    file, good = file_of(chat.installation), file_of(chat.installation).read_text()
    file.write_text(broken(json.loads(good)))
    chat.wait_for(rf"{PLACE}.*The previous version stays in force")
    chat.assert_well()
    assert offered(chat) == before
    file.unlink()
    chat.wait_for(r"registry.json is gone\. The previous version stays in force")
    chat.assert_well()
    assert offered(chat) == before
    file.write_text(good)
    chat.wait_for("The registry can be read again")
    chat.terminal.wait_until(lambda text: "stays in force" not in text.split("\n")[-5:], what="the banner to go")
    chat.assert_well()
    assert offered(chat) == before


@pytest.mark.more
@pytest.mark.fault("E13")
def test_a_file_that_is_broken_at_the_start_leaves_the_last_one_that_could_be_read(
    installation: Installation, provider: Provider
) -> None:
    whole = with_tools(provider, "file_read")
    installation.use(whole)
    pipe = Pipe(installation, provider)
    assert pipe.ask("good morning").code == 0
    whole["roles"]["coder"]["tools"] = ["file_read", "shell_exec"]
    file_of(installation).write_text(broken(whole))
    refused = pipe.ask("and now")
    assert refused.code == 2
    assert "line 3, column 2" in flat(refused.err)
    with installation.open("--role", "coder") as terminal:
        terminal.ready("coder")
        chat = FaultyChat(installation, provider, terminal)
        chat.wait_for(rf"{PLACE}.*The last version of it that could be read stays in force")
        chat.assert_well()
        assert offered(chat) == ["file_read"]
        # Mended, it says more than before: that waits for the user.
        file_of(installation).write_text(json.dumps(whole))
        chat.wait_for(r"The registry has changed .for role coder: \+ shell_exec.\. /reload applies it")
        chat.assert_well()
        assert offered(chat) == ["file_read"]
        terminal.say("/reload")
        chat.wait_for(r"Rights have changed .for role coder: \+ shell_exec")
        chat.assert_well()
        assert offered(chat) == ["file_read", "shell_exec"]


@pytest.mark.more
@pytest.mark.fault("E14")
def test_what_a_changed_file_takes_away_is_gone_also_for_the_call_that_waits(running: FaultyChat) -> None:
    chat = running
    chat.say("write it down", calls(call("shell_exec", command="touch never")), says("Understood."))
    chat.terminal.dialog()
    wider = with_tools(chat.provider, "file_read", "web_fetch", "scratch_write")
    file_of(chat.installation).write_text(json.dumps(wider))
    chat.wait_for(r"The registry has changed .for role coder: \+ web_fetch − .*shell_exec")
    chat.wait_for("Not permitted now: Shell")
    chat.terminal.press("d")
    chat.wait_for(r"denied")
    chat.terminal.wait_for("Understood.")
    assert not (chat.installation.workspace / "never").exists()
    # What it adds is not there before the user says so.
    chat.assert_well()
    assert offered(chat) == ["file_read", "scratch_write"]
    chat.terminal.say("/reload")
    chat.wait_for(r"Rights have changed .for role coder: \+ web_fetch − .*shell_exec")
    chat.assert_well()
    assert offered(chat) == ["file_read", "web_fetch", "scratch_write"]


@pytest.mark.more
@pytest.mark.fault("E13")
def test_a_model_that_a_role_names_and_nobody_describes_is_told_and_can_be_put_right(running: FaultyChat) -> None:
    chat = running
    whole = patient_registry(chat.provider.server.url)
    whole["roles"]["coder"]["primary"] = "lost"
    file_of(chat.installation).write_text(json.dumps(whole))
    chat.wait_for("The registry has changed .*model local → lost")
    chat.assert_well()
    chat.wait_for("key roles.coder.primary: there is no model 'lost'")
    chat.terminal.say("/reload")
    chat.wait_for("Role coder has another model: local → lost")
    chat.say("hello")
    chat.wait_for("There is no model named 'lost' in the registry. → To list them: chatops models list")
    whole["roles"]["coder"]["primary"] = "local"
    file_of(chat.installation).write_text(json.dumps(whole))
    chat.wait_for("The registry has changed .same tools for role coder, model lost → local.. .reload applies it")
    chat.terminal.say("/reload")
    chat.wait_for("Role coder has another model: lost → local")
    chat.assert_well()


def huge(provider: Provider) -> str:
    """More than a registry may hold: ten megabytes."""
    whole = patient_registry(provider.server.url)
    whole["roles"]["coder"]["system_append"] = "x" * 10_000_000
    return json.dumps(whole)


def crowded(provider: Provider) -> str:
    """Five thousand roles."""
    whole = patient_registry(provider.server.url)
    role = whole["roles"]["coder"]
    whole["roles"] |= {f"clerk-{number:04}": role for number in range(5_000)}
    return json.dumps(whole)


@pytest.mark.more
@pytest.mark.fault("E15")
def test_a_file_that_is_far_too_large_is_a_clear_error_and_the_start_is_usable(
    installation: Installation, provider: Provider
) -> None:
    installation.use(huge(provider))
    refused = Pipe(installation, provider).ask("hello")
    assert refused.code == 2
    assert re.search(r"registry.json: the file is larger than \d+ bytes", refused.err)
    with installation.open() as terminal:
        terminal.wait_for("viewer")
        chat = FaultyChat(installation, provider, terminal)
        chat.wait_for(r"registry.json: the file is larger than \d+ bytes.*built-in registry is used, at level viewer")
        # Made smaller, it counts when the user says so.
        installation.use(patient_registry(provider.server.url))
        chat.wait_for("The registry has changed")
        terminal.say("/reload")
        chat.wait_for("Rights have changed")
        terminal.say("/role coder")
        terminal.wait_for("coder · level operator")
        chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("E15")
def test_a_file_that_wants_to_include_itself_includes_nothing_and_says_so(
    installation: Installation, provider: Provider
) -> None:
    whole = patient_registry(provider.server.url)
    whole["include"] = ["registry.json"]
    installation.use(whole)
    pipe = Pipe(installation, provider)
    assert re.search(r"registry.json, line 1, column \d+, key include", flat(pipe.ask("hello").err))
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("E15")
def test_five_thousand_roles_can_be_chosen_from(installation: Installation, provider: Provider) -> None:
    installation.use(crowded(provider))
    with installation.open("--role", "coder") as terminal:
        terminal.ready("coder")
        chat = FaultyChat(installation, provider, terminal)
        terminal.press("ctrl+r")
        terminal.wait_for("type to filter")
        terminal.send("clerk-4321")
        terminal.wait_for("coder to clerk-4321")
        terminal.press("enter")
        terminal.wait_for("clerk-4321 · ")
        chat.assert_well()
