"""The user's choices persist: the model in new sessions and after a restart, the theme in a file."""

import re
from typing import Any

import pytest

from tests.e2e.installation import ChatTerminal, Installation, registry
from tests.support.fake_openai import FakeOpenAI, says

MODELS = ("fake-model", "other-model", "maker/big")


def two_models(url: str) -> dict[str, Any]:
    """A registry with a second model; the first role takes the user's default, coder has its own model."""
    contents = registry(url)
    contents["models"]["other"] = {**contents["models"]["local"], "model_name": "other-model", "label": "Other"}
    contents["roles"]["assistant"] = {"primary": "default", "tools": []}
    return contents


def test_a_model_is_chosen_for_new_sessions_too_and_becomes_the_default(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"You said: {request.last_user}"), models=MODELS) as server:
        installation.use(two_models(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("/model other")
            terminal.wait_for("other is your default model from now on.")
            terminal.say("one")
            terminal.wait_for("You said: one")
            terminal.say("/new")
            terminal.wait_gone("You said: one")
            terminal.say("two")
            terminal.wait_for("You said: two")
        with installation.open("--role", "assistant") as terminal:
            terminal.ready("assistant")
            terminal.say("three")
            terminal.wait_for("You said: three")
        assert [request.body["model"] for request in server.requests] == ["other-model"] * 3


@pytest.mark.more
def test_the_demo_is_chosen_for_one_session(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"You said: {request.last_user}"), models=MODELS) as server:
        installation.use(two_models(server.url))
        with installation.open() as terminal:
            terminal.ready("assistant")
            terminal.say("/model other")
            terminal.wait_for("is your default model from now on.")
            terminal.say("/model demo")
            terminal.wait_for("demo answers in this session only.")
            terminal.say("hello")
            terminal.wait_for("I am the built-in demo")
            terminal.say("/new")
            terminal.wait_gone("I am the built-in demo")
            terminal.say("one")
            terminal.wait_for("You said: one")
        assert [request.body["model"] for request in server.requests] == ["other-model"]


def test_a_server_s_other_models_are_offered_and_what_nobody_set_up_is_one_line(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"You said: {request.last_user}"), models=MODELS) as server:
        contents = two_models(server.url)
        contents["models"]["gone"] = {"api_url": "http://127.0.0.1:9/v1", "model_name": "m"}
        installation.use(contents)
        with installation.open("--role", "assistant") as terminal:
            terminal.ready("assistant")
            terminal.say("/model")
            terminal.wait_for("local/maker/big")
            terminal.wait_for(re.compile("gone +not usable now"))
            listed = terminal.wait_for("2 more models: env, claude_cli")
            assert "local/other-model" not in listed
            terminal.say("maker")
            terminal.wait_for("local/maker/big is your default model from now on.")
            terminal.say("one")
            terminal.wait_for("You said: one")
            terminal.say("/model gone")
            terminal.wait_for("gone will probably not answer")
            terminal.wait_for("127.0.0.1:9")
            terminal.press("enter")
            terminal.wait_gone("gone will probably not answer")
            terminal.say("/context")
            terminal.wait_for("How many the model takes is unknown")
        with installation.open("--role", "assistant") as terminal:
            terminal.ready("assistant")
            terminal.say("two")
            terminal.wait_for("You said: two")
        assert "* local/maker/big" in installation.run("models", "list").out
        assert "ok    model local/maker/big" in installation.run("doctor").out
        tried = installation.run("doctor", "--model", "local/maker/big").out
    assert "model local/maker/big  the server answers" in tried
    assert {str(request.body["model"]) for request in server.requests} == {"maker/big"}


def background(terminal: ChatTerminal) -> str:
    return terminal.cells()[0][0].background


@pytest.mark.more
def test_a_theme_is_kept_in_the_settings_file_and_shown_from_the_start(installation: Installation) -> None:
    file = installation.home / "config" / "settings.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("# mine\ntheme: textual-light\nkeys: {}\n")
    with installation.open() as terminal:
        terminal.ready("assistant")
        light = background(terminal)
        terminal.say("/theme gruvbox")
        terminal.wait_until(lambda _: "gruvbox" in file.read_text(), what="the theme to be stored")
        terminal.wait_until(lambda _: background(terminal) != light, what="the theme to show")
        dark = background(terminal)
    assert file.read_text() == "# mine\ntheme: gruvbox\nkeys: {}\n"
    with installation.open() as terminal:
        terminal.wait_for("Message (Enter sends")
        assert background(terminal) == dark
    file.write_text("theme: [\n")
    with installation.open() as terminal:
        terminal.wait_for("settings.yaml, line")
        terminal.say("hello")
        terminal.wait_for("I am the built-in demo")
    file.write_text("theme: none-such\n")
    with installation.open() as terminal:
        terminal.wait_for("there is no theme none-such")


@pytest.mark.more
def test_a_model_connected_in_another_terminal_answers_after_a_reload(installation: Installation) -> None:
    installation.flags = ()
    with FakeOpenAI(lambda request: says(f"You said: {request.last_user}")) as server, installation.open() as terminal:
        terminal.wait_for("DEMO model")
        assert installation.run("connect", server.url, "--model", "fake-model").code == 0
        terminal.say("/reload")
        terminal.wait_gone("DEMO model")
        terminal.say("hello")
        terminal.wait_for("You said: hello")
