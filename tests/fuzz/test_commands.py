"""The readers of shell commands beside bash: what it executes is what they say, where they call a command plain."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from chatops.domain.decisions import ArgvPattern
from chatops.domain.errors import ConfigError
from chatops.policy.rule_syntax import parse_rule, show_rule
from chatops.shell.effects import Danger, effects
from chatops.shell.grammar import differs
from chatops.shell.simple_command import simple_words
from tests.fuzz.bounded import hold

PIECES = [
    *(" ", " ", " ", "p", "q", "p ", "q ", " p", "ab", "-n", "--x=1", "A=", "A=1 ", "'", "'", '"', '"', "\\", "\\"),
    *("$", "$A", "${A}", "$(p)", "$((1))", "`q`", "$'\\x41'", '$"a"', "*", "?", "[a-z]", "[", "]", "{", "}", "{p,q}"),
    *("{1..2}", "~", "~+", ":", "=", "+=", "#", "!", "!!", ";", ";;", "&", "&&", "|", "||", "|&", "<", ">", ">>", "&>"),
    *(
        "<<",
        "<<<",
        "<(p)",
        "2>",
        "2>&1",
        ">&-",
        "(",
        ")",
        "()",
        "{ ",
        " }",
        "\n",
        "\t",
        "\r",
        "\v",
        "\f",
        "\x01",
        "\x7f",
    ),
    *(
        "if ",
        "then ",
        "else ",
        "fi",
        "for ",
        "in ",
        "do ",
        "done",
        "while ",
        "until ",
        "case ",
        "esac",
        "select ",
        "time ",
    ),
    *(
        "time -p ",
        "coproc ",
        "function ",
        "[[ ",
        " ]]",
        "eval ",
        "command ",
        "builtin ",
        "exec ",
        "export ",
        "declare ",
    ),
    *(
        "local ",
        "env ",
        "nice ",
        "é",
        "ß",
        "\u00a0",
        "\u2028",
        "\u3000",
        "\u200b",
        "\u202e",
        "\ufeff",
        "\ud800",
        ",",
        "^",
    ),
    *("%", "@", "@(a|b)", "+(a)", "..", ".", "ab/c", "EOF", "\nEOF\n", "0", "1", "-", "--"),
]
COMMANDS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join)
PLAIN = st.lists(
    st.sampled_from([*PIECES[:30], "~", "=", ":", "#", "!", "^", "%", "@", ",", ".", "é", "+", "-", "*", "?"])
)
WORDS = st.lists(st.text(st.sampled_from("ab*?'\"\\$`;|&(){}[]~#=! \té-"), max_size=5), min_size=1, max_size=4)

LOGS = """
command_not_found_handle() {{ printf '%s\\0' "$@" $'\\1' >>{log}; case $1 in q*) return 1 ;; esac }}
PATH=/nowhere FUNCNEST=4; ulimit -t 2 -f 100
"""
"""Instead of a program that is not there, its words are stored. Nothing that these pieces spell is there."""
END = "\1"


class Bash:
    """What bash executes, in a folder with a few files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.start = folder / "work", folder / "log", folder / "start"
        self.start.write_text(LOGS.format(log=self.log))

    def executed(self, command: str) -> list[tuple[str, ...]] | None:
        """Return the words of each program in the order in which bash came to it; None: it had to be stopped."""
        self.folder.mkdir(exist_ok=True)
        for file in self.folder.iterdir():
            file.unlink()
        for name in ("ab", "p", "aba"):
            (self.folder / name).touch()
        self.log.write_bytes(b"")
        environment = {"BASH_ENV": str(self.start), "LC_ALL": "C.UTF-8"}
        with subprocess.Popen(
            [b"/bin/bash", b"-c", b"--", os.fsencode(command)],
            env=environment,
            cwd=self.folder,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                return None
            finally:
                # Also what it has put into the background.
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        calls, words = list[tuple[str, ...]](), list[str]()
        for word in os.fsdecode(self.log.read_bytes()).split("\0"):
            if word == END:
                calls.append(tuple(words))
            words = [] if word == END else [*words, word]
        return calls


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    """Bash, and an empty folder for it."""
    yield Bash(tmp_path)


def test_a_plain_command_has_the_words_that_bash_executes(bash: Bash) -> None:
    def check(command: str) -> None:
        words = simple_words(command)
        if not words or "/" in words[0] or differs(command):
            return
        executed = bash.executed(command)
        if words[0] in BUILTINS or words[0].startswith("%"):
            # A job is started by its name.
            assert executed is not None and len(executed) <= 1
        else:
            assert executed == [words]

    hold(
        check, COMMANDS | PLAIN.map("".join).map("p {}".format), kept=["p '' a\\ b\"c d\"", "p a=~ x", "-", ":"], few=60
    )


BUILTINS = frozenset("eval command builtin exec export declare local env nice . :".split())


def test_a_command_executes_no_program_that_its_effects_leave_out(bash: Bash) -> None:
    """Rules that deny match these words; where a program may be missing, the effects say so."""

    def check(command: str) -> None:
        found = effects(command)
        if "\0" in command or found.unclear or any(one.danger in HIDING for one in found.warnings):
            return
        for words in bash.executed(command) or ():
            assert any(known[0] == words[0] for known in found.argvs), (words, found.argvs)

    hold(check, COMMANDS, kept=["p | q && ab", "p $(q)", "[a-z]", "time -n", "p ==\nq", "0<<<x p", "time ''p="], few=60)


HIDING = (Danger.COMPUTED, Danger.RUNS_INPUT, Danger.REDEFINES)


def test_a_rule_is_shown_as_it_is_read() -> None:
    def check(words: list[str]) -> None:
        shown = show_rule("shell_exec", ArgvPattern(words=("p", *words)))
        try:
            read = parse_rule(shown)
        except ConfigError:
            return
        assert read == ("shell_exec", ArgvPattern(words=("p", *words)))

    hold(check, WORDS, kept=[["*"], ["a", "*"], ["'*'"]], few=100)
