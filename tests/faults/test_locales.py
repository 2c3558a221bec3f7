"""Terminals that cannot show everything, or nothing: TERM, colours, character sets, and no terminal at all."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.e2e.installation import EFFECT, Installation
from tests.faults.entry_points import FaultyChat, Pipe, Provider, flat, patient_registry
from tests.faults.terminals import chat_in
from tests.support.command_line import program_environment
from tests.support.fake_openai import call, calls, says
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE

MESSAGE = "Grüße – 日本 😀"
ANSWER = "Antwort: **é** → `x`…\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
ASKS = calls(call("shell_exec", command=f"{EFFECT} # é日"))


def chatops(installation: Installation, *arguments: str, **env: str) -> Terminal:
    variables = {"PYTHONPATH": program_environment()["PYTHONPATH"], "CHATOPS_HOME": str(installation.home), **env}
    return Terminal(
        [sys.executable, "-m", "chatops", *installation.flags, *arguments], env=variables, cwd=installation.workspace
    )


def piped(
    installation: Installation, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[bytes]:
    """The program as cron or a script starts it: no terminal anywhere."""
    return subprocess.run(
        [sys.executable, "-m", "chatops", *installation.flags, *arguments],
        input=stdin,
        capture_output=True,
        cwd=installation.workspace,
        env=small_environment(installation) | dict(env),
        start_new_session=True,
        timeout=PATIENCE,
        check=False,
    )


def small_environment(installation: Installation) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(installation.home.parent),
        "CHATOPS_HOME": str(installation.home),
        "PYTHONPATH": program_environment()["PYTHONPATH"],
    }


# No screens


@pytest.mark.some(1)
@pytest.mark.fault("F03")
@pytest.mark.parametrize("term", ["dumb", "", "vt52"])
def test_a_terminal_that_cannot_show_screens_is_refused_at_once_with_a_way_out(
    installation: Installation, term: str
) -> None:
    with chatops(installation, TERM=term) as terminal:
        assert terminal.wait_exit() == 2
        assert re.search(r"cannot show screens. Set TERM .* chatops -p", flat(terminal.text()))
        assert terminal.left_on() == []


@pytest.mark.more
@pytest.mark.fault("F04")
def test_a_gated_call_pauses_and_standard_input_approves_nothing(pipe: Pipe) -> None:
    pipe.provider.script(ASKS)
    asked = piped(pipe.installation, "-p", "write it down", stdin=b"a\ny\nyes\napprove\n" * 50)
    assert asked.returncode == 3
    assert b"Paused: 1 approval pending." in asked.stderr
    (call_id,) = re.findall(r"approvals approve (\S+)", asked.stderr.decode())
    assert pipe.installation.count == 0
    assert pipe.run("approvals", "deny", call_id).code == 0
    assert pipe.run("resume", pipe.installation.session().id).code == 0
    assert pipe.installation.count == 0
    pipe.assert_well()


# Colours


def unreadable(chat: FaultyChat) -> set[str]:
    """Characters in the colour of what is behind them."""
    cells = [cell for row in chat.terminal.cells() for cell in row if cell.text.strip()]
    return {cell.text for cell in cells if cell.foreground == cell.background != "default"}


def told_by_words(chat: FaultyChat) -> None:
    """The dialog says what each key does, what was approved and denied is told apart by words."""
    chat.say("write it down", ASKS, says("It is over."))
    dialog = chat.wait_for("a approve once")
    assert "d deny" in dialog
    chat.terminal.press("d")
    chat.wait_for("not run, denied by you.* It is over")
    assert chat.installation.count == 0


@pytest.mark.more
@pytest.mark.fault("F03", "F05")
def test_a_terminal_that_nobody_knows_is_tried_in_sixteen_colours_that_can_be_read(tmp_path: Path) -> None:
    with chat_in(tmp_path, env={"TERM": "unknown-term", "COLORTERM": ""}) as chat:
        chat.wait_for("This system does not know the terminal unknown-term")
        for theme in ("textual-dark", "textual-light", "ansi-light", "ansi-dark"):
            chat.terminal.send(f"/theme {theme}")
            chat.terminal.wait_for(f"/theme {theme}")
            chat.terminal.press("enter")
            chat.terminal.wait_gone(f"/theme {theme}")
            chat.say(f"say it in {theme}", says(ANSWER))
            chat.wait_for(f"say it in {theme} Antwort: é → x… • one • two")
            assert unreadable(chat) == set()
            chat.terminal.press("ctrl+r")
            chat.wait_for("type to filter")
            assert unreadable(chat) == set()
            chat.terminal.press("escape")
            chat.terminal.wait_gone("type to filter")
        told_by_words(chat)
        assert b";38;2;" not in chat.terminal.raw and b"[38;2;" not in chat.terminal.raw
        chat.assert_well()


# Character sets


def speaks(chat: FaultyChat, *, shown: str, charset: str) -> None:
    """A turn with more than the terminal can show: what is seen, what is sent, and the bytes on the way."""
    chat.say(MESSAGE, says(ANSWER))
    chat.wait_for(shown)
    assert chat.provider.requests[-1].last_user == MESSAGE
    told_by_words(chat)
    written = chat.terminal.raw.decode(charset)
    assert not re.search("[\x80-\x9f\ufffd]", written), "what is not in the set was written as something else"


@pytest.mark.more
@pytest.mark.fault("F05", "F06")
def test_a_c_locale_without_colours_gets_plain_ascii(tmp_path: Path) -> None:
    with chat_in(tmp_path, env={"LANG": "C", "NO_COLOR": "1"}) as chat:
        speaks(chat, shown=r"\| Gru\?e - \?\?\?\? \?\? Antwort: e > x~ \* one \* two a \| b -+ 1 \| 2", charset="ascii")
        assert not COLOUR.search(chat.terminal.raw)
        # Where something is chosen by its background, it is in reverse.
        chat.terminal.press("ctrl+r")
        chat.wait_for("type to filter")
        chosen = "".join(cell.text for row in chat.terminal.cells() for cell in row if cell.marked)
        assert re.search(r"\* coder +reads files", chosen)
        chat.terminal.press("escape")
        chat.terminal.wait_gone("type to filter")
        chat.say("once more", ASKS, says("Over again."))
        # Nothing that is approved has a stand-in.
        chat.wait_for(r"# <U\+00E9><U\+65E5> .* a approve once")
        chat.terminal.press("d")
        chat.wait_for("Over again")
        chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("F05", "F06")
def test_a_latin_terminal_without_colours_gets_latin_bytes_and_sends_them(tmp_path: Path) -> None:
    with chat_in(tmp_path, env={"LANG": "de_DE.ISO-8859-1", "TERM": "vt100"}) as chat:
        chat.provider.script(says("Gut: größer."))
        chat.terminal._write("Käse\r".encode("latin-1"))
        chat.terminal.wait_for("Gut: gr")
        assert chat.provider.requests[-1].last_user == "Käse"
        assert "Gut: größer.".encode("latin-1") in chat.terminal.raw
        assert not COLOUR.search(chat.terminal.raw)
        chat.assert_well()


IN_PIPES: list[tuple[Mapping[str, str], str]] = [
    ({"LANG": "C"}, "utf-8"),
    ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "utf-8"),
    ({"LANG": "POSIX", "PYTHONIOENCODING": "ascii"}, "ascii"),
]


@pytest.mark.more
@pytest.mark.fault("F06")
@pytest.mark.parametrize(("env", "charset"), IN_PIPES, ids=[" ".join(env) for env, _ in IN_PIPES])
def test_commands_write_what_their_stream_can_hold_and_store_all_of_it(
    pipe: Pipe, env: Mapping[str, str], charset: str
) -> None:
    pipe.provider.script(calls(call("shell_exec", command=f"{EFFECT} # é日"), text=ANSWER))
    asked = piped(pipe.installation, "-p", MESSAGE, "--output-format", "stream-json", env=env)
    assert asked.returncode == 3, asked.stderr
    assert pipe.provider.requests[-1].last_user == MESSAGE
    said = [json.loads(line) for line in asked.stdout.decode(charset).splitlines()]
    assert "".join(line["text"] for line in said if line["type"] == "text_delta") == ANSWER
    shown = asked.stderr.decode(charset)
    assert "# é日" in shown if charset == "utf-8" else r"# \xe9\u65e5" in shown
    (call_id,) = re.findall(r"approvals approve (\S+)", shown)
    assert pipe.run("approvals", "deny", call_id).code == 0
    assert pipe.run("resume", pipe.installation.session().id).code == 0
    pipe.assert_well()
    stored = [message["content"] for message in pipe.provider.requests[-1].messages]
    assert MESSAGE in stored and ANSWER in stored


@pytest.mark.more
@pytest.mark.fault("F06")
def test_an_answer_on_a_terminal_is_in_the_terminals_characters(installation: Installation, provider: Provider) -> None:
    installation.use(patient_registry(provider.server.url))
    provider.script(says(ANSWER))
    with chatops(installation, "-p", MESSAGE, LANG="de_DE.ISO-8859-1") as terminal:
        assert terminal.wait_exit() == 0
        start, _, answer = terminal.raw.decode("latin-1").rpartition("\r" + " " * len("Starting") + "\r")
        shown = io.StringIO(answer, newline=None).read()
    assert start == "\rStarting", "it is erased before the answer"
    assert shown == ANSWER.replace("→", "->").replace("…", "...")
    assert provider.requests[-1].last_user == MESSAGE
