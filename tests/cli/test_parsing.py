"""The command line itself: flags, help, usage errors, completion. Nothing heavy is loaded for it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chatops import __version__
from chatops.commands.parser import HOST_TYPES, build_parser, parse
from chatops.config.paths import find_paths
from chatops.policy.registry import HostType
from tests.support.cases import for_each
from tests.support.command_line import REPOSITORY, CommandLine, program_environment

COMMANDS = {
    "approvals", "resume", "jobs", "sessions", "roles", "tools", "policy", "connect", "models", "audit", "registry",
    "doctor", "completions", "parse", "workflow", "trust", "mcp", "serve", "acp", "store", "worker", "queue",
}  # fmt: skip


def test_version_and_help(chatops: CommandLine) -> None:
    assert chatops("--version").out == f"chatops {__version__}\n"
    ran = chatops("--help")
    assert ran.code == 0
    assert {line.split()[0] for line in ran.out.splitlines() if line.startswith("    ") and line.strip()} >= COMMANDS


def test_a_format_before_the_command_counts(chatops: CommandLine) -> None:
    given = ("--output-format", "json")
    assert chatops(*given, "roles", "list").out == chatops("roles", "list", *given).out != chatops("roles", "list").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["aproval"], "Did you mean chatops approvals?"),
        (["approvals", "lst"], "Did you mean chatops approvals list?"),
        (["hello there"], "chatops -p PROMPT"),
        (["run"], "no command 'run'. To send a message"),
        (["approvals", "show"], "ID"),
        (["-p", "x", "--max-rounds", "0"], "--max-rounds: it has to be a whole number above zero, not '0'"),
        (["-p", "x", "--max-rounds", "two"], "not 'two'"),
        (["connect", "http://127.0.0.1:9", "--host-type", "olama"], "choose from"),
        (["-p", "x", "--output-format", "xml"], "--output-format"),
        (["--access", "root", "doctor"], "--access"),
        (["-c", "-r", "s", "-p", "x"], "not allowed with"),
        (["--approve", "file_edit"], "--approve works with -p only"),
        (["doctor", "\x1b[2J"], "\\x1b[2J"),
    ],
)
def test_usage_errors_are_a_sentence_and_exit_with_2(arguments: list[str], said: str, chatops: CommandLine) -> None:
    ran = chatops(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err
    assert "--help" in ran.err
    assert "\x1b" not in ran.err


def test_without_a_terminal_the_chat_explains_itself(chatops: CommandLine) -> None:
    for arguments in ([], ["-c"], ["-r"], ["--role", "coder"]):
        ran = chatops(*arguments)
        assert ran.code == 2
        assert "chatops -p" in ran.err


@for_each(
    "arguments",
    [
        ["--access", "user", "--workspace", "/w", "--registry", "r", "approvals", "list"],
        ["approvals", "--access", "user", "--workspace", "/w", "--registry", "r", "list"],
        ["approvals", "list", "--access", "user", "--workspace", "/w", "--registry", "r"],
        ["--access", "user", "approvals", "--workspace", "/w", "list", "--registry", "r"],
    ],
)
def test_common_flags_stand_before_or_after_a_command(arguments: list[str]) -> None:
    parsed = build_parser().parse_args(arguments)
    assert (parsed.access, parsed.workspace, parsed.registry) == ("user", "/w", "r")
    assert (parsed.command, parsed.action) == ("approvals", "list")


@pytest.mark.parametrize("arguments", [[], ["--output-format", "json"], ["--workspace=/w", "--all"]])
def test_a_command_that_can_list_does_so_by_itself(arguments: list[str]) -> None:
    parse = build_parser().parse_args
    assert parse(["sessions", *arguments]) == parse(["sessions", "list", *arguments])


def test_p_takes_its_prompt_or_none_and_resume_an_optional_session() -> None:
    parse = build_parser().parse_args
    assert parse(["-p", "read a", "-r", "S"]).prompt == "read a"
    assert parse(["-p", "-c"]).prompt == ""
    assert parse(["-r"]).session == ""
    assert parse([]).session is None


@for_each(
    ("arguments", "name", "word"),
    [
        (["workflow", "run", "research", "--model", "demo", "a webhook"], "query", "a webhook"),
        (["workflow", "run", "research", "a webhook", "--model", "demo"], "query", "a webhook"),
        (["workflow", "run", "--model", "demo", "research", "a webhook"], "query", "a webhook"),
        (["workflow", "run", "research", "--model", "demo", "--", "-v or not"], "query", "-v or not"),
        (["workflow", "run", "research", "--model", "demo"], "query", None),
        (["policy", "explain", "file_read", "--role", "coder", "{}"], "call", "{}"),
        (["registry", "check", "--access", "user", "my.json"], "path", "my.json"),
    ],
)
def test_a_word_that_may_be_left_out_stands_before_or_after_the_flags(
    arguments: list[str], name: str, word: str | None
) -> None:
    assert getattr(build_parser().parse_args(arguments), name) == word


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["workflow", "run", "research", "a", "webhook"],
            "arguments: webhook. Words that belong together go in quotes",
        ),
        (
            ["workflow", "run", "research", "--rol", "coder"],
            "chatops workflow run: there is no option --rol. Did you mean --role?",
        ),
        (["--rol", "coder", "-p", "hi"], "chatops: there is no option --rol. Did you mean --role?"),
        (["-p", "hi", "--xyzzy=1"], "chatops: there is no option --xyzzy."),
        (["doctor", "everything"], "chatops doctor --help shows"),
        (["registry"], "chatops registry: one of these has to follow: check, schema"),
        (["sessions", "--workspace", "show"], "one of these has to follow: list, show, "),
        (["workflow", "xyzzy"], "There are: list, show, "),
    ],
)
def test_a_usage_error_names_the_command_it_is_about_and_what_may_stand_there(
    arguments: list[str], said: str, chatops: CommandLine
) -> None:
    ran = chatops(*arguments)
    assert ran.code == 2
    assert said in ran.err


def test_help_and_version_load_neither_screen_nor_models_nor_validation() -> None:
    script = (
        "import sys\nfrom chatops.cli import main\nmain(['--help'])\nmain(['--version'])\n"
        "heavy = {'textual', 'openai', 'pydantic', 'sqlite3', 'asyncio', 'httpx2', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, cwd=REPOSITORY, env=program_environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def offered(chatops: CommandLine, *words: str) -> list[str]:
    """The completions of the last word after ``chatops``."""
    return chatops("completions", "bash", "chatops", *words).out.splitlines()


def test_completion_knows_every_command_and_flag(chatops: CommandLine) -> None:
    assert {*offered(chatops, "")} == COMMANDS
    assert offered(chatops, "approvals", "") == ["list", "show", "approve", "deny"]
    assert {"--on-approval", "--output-format", "--workspace"} <= {*offered(chatops, "resume", "--")}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["appr"], ["approvals"]),
        (["--access", "o"], ["operator"]),
        (["sessions", "export", "--form"], ["--format"]),
        (["completions", "f"], ["fish"]),
        (["--output-format", "s"], ["stream-json"]),
        (["resume", "s", "--output-format", "s"], ["stream-json"]),
        (["sessions", "list", "--output-format", "s"], []),
        (["connect", "URL", "--host-type", "lla"], ["llamacpp"]),
        (["connect", "URL", "--name", ""], []),
        (["--role", "coder", "approvals", "de"], ["deny"]),
        (["--registry", ""], ["<files>"]),
        (["--workspace", ""], ["<folders>"]),
        (["-p", ""], []),
        (["workflow", "run", "res"], ["research"]),
        (["--model", "d"], ["demo"]),
    ],
)
def test_completion_offers(words: list[str], found: list[str], chatops: CommandLine) -> None:
    assert offered(chatops, *words) == found


def test_completion_offers_ids_and_only_plain_names(chatops: CommandLine, tmp_path: Path) -> None:
    session, call = chatops.paused("run `touch one`")
    assert offered(chatops, "approvals", "approve", "") == [call]
    assert offered(chatops, "resume", session[:4]) == offered(chatops, "-r", "") == [session]
    registry = json.loads((REPOSITORY / "model_registry.json").read_text())
    registry["roles"]["$(touch$IFS.here)"] = registry["roles"]["coder"]
    find_paths(os.environ).registry.write_text(json.dumps(registry))
    assert "$(touch$IFS.here)" in chatops("roles", "list").out
    assert offered(chatops, "--role", "") == [*registry["roles"]][:-1]


BEFORE = {"zsh": "compdef() { }\n"}
SHELLS = {
    "bash": """
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _chatops; echo "${COMPREPLY[@]}"; }
ask chatops approvals de
ask chatops --registry regis
""",
    # In the place of zsh's own functions, which only work while a key is being handled.
    "zsh": """
_describe() { local -a shown; shown=("${(@P)2}"); print -rl -- $shown }
_files() { print registry.json }
ask() { local -a words; words=("$@"); local CURRENT=$#; _chatops }
ask chatops approvals de
ask chatops --registry regis
""",
    "fish": "complete -C 'chatops approvals de'\ncomplete -C 'chatops --registry regis'\n",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_works_in_the_shell(shell: str, chatops: CommandLine, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "registry.json").touch()
    program = tmp_path / "chatops"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m chatops "$@"\n')
    program.chmod(0o700)
    script = f"{BEFORE.get(shell, '')}{chatops('completions', shell).out}\n{SHELLS[shell]}"
    bare = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}
    env = {**program_environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [shell, *bare[shell], "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first.split()[0].partition(":")[0] == "deny" and second.split()[0] == "registry.json"


def test_the_command_line_knows_every_kind_of_server() -> None:
    assert set(HOST_TYPES) == {one.value for one in HostType} - {"gemini"}


def test_a_prompt_that_does_not_follow_p_is_explained_as_such(chatops: CommandLine) -> None:
    ran = chatops("-p", "--role", "coder", "text")
    assert ran.code == 2
    assert "the prompt is the argument of -p and follows it: chatops --role ROLE -p PROMPT." in ran.err


def test_roles_show_without_a_role_shows_the_default_one(chatops: CommandLine) -> None:
    for arguments in (("roles", "show"), ("roles", "show", "--output-format", "json")):
        ran = chatops(*arguments)
        assert ran.code == 0 and "assistant" in ran.out


_CHATS: list[list[str]] = [
    [],
    ["-c"],
    ["--resume"],
    ["--role", "dev", "-r"],
    ["--registry", "sessions", "--add-dir", "a", "--add-dir", "b"],
    ["--role", "dev", "-p", "list", "--contain"],
    ["-p"],
]


@for_each("words", _CHATS, ids=str)
def test_a_chat_is_parsed_the_same_without_the_commands(words: list[str]) -> None:
    assert build_parser(words).actions is None
    assert parse(words) == build_parser().parse_args(words)


@for_each("words", [["sessions"], ["--role", "dev", "sessions"], ["-p", "hi", "--help"], ["-p", "--help"]], ids=str)
def test_what_is_not_only_options_of_a_chat_is_parsed_with_the_commands(words: list[str]) -> None:
    assert build_parser(words).actions is not None
