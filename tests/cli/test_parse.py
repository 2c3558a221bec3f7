"""`chatops parse`: one JSON line in, one JSON line out, whatever the line holds."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import document
from tests.support.command_line import CommandLine, Ran, program, program_environment
from tests.support.waiting import PATIENCE

TOOLS = {"get_weather": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
PARIS = [{"name": "get_weather", "arguments": {"city": "Paris"}}]


def _answers(folder: Path, *lines: object, arguments: tuple[str, ...] = ()) -> list[Any]:
    """Return the real program's answer to `lines`; texts are sent as they are, everything else as JSON."""
    written = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    ran = program("parse", *arguments, stdin="".join(f"{line}\n" for line in written), cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.isascii()
    return [json.loads(line) for line in ran.out.splitlines()]


def test_a_call_in_a_text_comes_out_with_its_content_and_format(workspace: Path) -> None:
    (answer,) = _answers(workspace, {"text": f"I will look.\n{CALL}", "tools": TOOLS})
    assert answer["calls"] == PARIS
    assert answer["content"].strip() == "I will look."
    assert (answer["format"], answer["repairs"], answer["confidence"], answer["diagnostics"]) == (
        "hermes",
        [],
        "high",
        [],
    )


def test_repairs_are_told(workspace: Path) -> None:
    (answer,) = _answers(workspace, {"text": CALL.replace('"Paris"}', '"Paris",}'), "tools": TOOLS})
    assert answer["calls"] == PARIS
    assert answer["repairs"] == ["a comma before a closing bracket was dropped"]


def test_what_gives_no_call_is_diagnosed(workspace: Path) -> None:
    unknown, cut, none = _answers(
        workspace,
        {"text": CALL.replace("get_weather", "get_wether"), "tools": TOOLS},
        {"text": CALL[:50], "tools": TOOLS},
        {"text": "Hello!", "tools": TOOLS},
    )
    assert [each["calls"] for each in (unknown, cut, none)] == [[], [], []]
    assert [(each["kind"], each["name"]) for each in unknown["diagnostics"]] == [("unknown_tool", "get_wether")]
    assert [each["kind"] for each in cut["diagnostics"]] == ["cut_off"]
    assert (none["diagnostics"], none["content"]) == ([], "Hello!")


def test_reasoning_is_kept_out_of_the_content(workspace: Path) -> None:
    (answer,) = _answers(workspace, {"text": "<think>They want weather.</think>It rains.", "tools": TOOLS})
    assert (answer["reasoning"].strip(), answer["content"].strip()) == ("They want weather.", "It rains.")


def test_an_answer_that_was_cut_by_its_limit_can_be_said_to_be(workspace: Path) -> None:
    stopped, cut = _answers(
        workspace, *({"text": CALL, "tools": TOOLS, "finish_reason": reason} for reason in ("stop", "length"))
    )
    assert stopped["calls"] == PARIS
    assert cut["calls"] == PARIS, "a call that was closed is whole, whatever ended the text"


@pytest.mark.parametrize(
    "tools",
    [
        TOOLS,
        [{"type": "function", "function": {"name": "get_weather", "parameters": TOOLS["get_weather"]}}],
        [{"name": "get_weather", "input_schema": TOOLS["get_weather"]}],
    ],
)
def test_tools_may_come_from_a_file_and_a_line_may_have_its_own(tools: object, workspace: Path) -> None:
    (workspace / "tools.json").write_text(json.dumps(tools))
    from_file, own, none = _answers(
        workspace,
        {"text": CALL},
        {"text": CALL, "tools": tools},
        {"text": CALL, "tools": {}},
        arguments=("--tools", "tools.json"),
    )
    assert from_file["calls"] == own["calls"] == PARIS
    assert none["calls"] == []


def test_without_any_tools_nothing_is_a_call(workspace: Path) -> None:
    (answer,) = _answers(workspace, {"text": CALL})
    assert answer["calls"] == []


BROKEN = [
    ("nonsense", "the line is not JSON"),
    ("", "the line is not JSON"),
    (
        '{"text": "cut',
        "the line is not JSON: EOF while parsing a string at line 1 column 13; an object has to be whole",
    ),
    ("[" * 100_000, "the line is not JSON"),
    ("[]", 'not an object with a string "text"'),
    ("{}", 'not an object with a string "text"'),
    ('{"text": 3}', 'not an object with a string "text"'),
    ('{"text": "x", "tools": "all"}', '"tools" is neither'),
    ('{"text": "x", "tools": {"f": 3}}', '"tools" is neither'),
    ('{"text": "x", "tools": [3]}', "has no name"),
    ('{"text": "x", "tools": [{"name": "f", "parameters": 3}]}', '"tools" is neither'),
    ('{"text": "x", "finish_reason": 3}', '"finish_reason" is not a string'),
]
"""Lines, and what is said of each."""


def test_a_broken_line_gives_an_error_and_the_next_is_read(workspace: Path) -> None:
    good = {"text": CALL, "tools": TOOLS}
    answers = _answers(workspace, *(each for line, _ in BROKEN for each in (line, good)))
    assert [one["calls"] for one in answers[1::2]] == [PARIS] * len(BROKEN)
    for (line, reason), broken in zip(BROKEN, answers[::2], strict=True):
        assert list(broken) == ["error"], line[:40]
        assert reason in broken["error"]


def test_half_characters_in_a_text_are_answered_and_written_as_ascii(workspace: Path) -> None:
    escaped, fine = _answers(workspace, r'{"text": "a \ud800 b", "tools": {}}', {"text": "é", "tools": {}})
    assert "content" in escaped
    assert fine["content"] == "é"


@pytest.mark.parametrize("written", ["{", "[3]", '"x"', '{"f": []}'])
def test_a_file_without_tools_is_an_error_with_a_next_step(written: str, chatops: CommandLine) -> None:
    (chatops.workspace / "tools.json").write_text(written)
    ran = chatops("parse", "--tools", "tools.json")
    assert (ran.code, ran.out) == (2, "")
    assert "tools.json holds no tools" in ran.err
    assert "JSON Schema" in ran.err


def test_a_file_that_is_not_there_is_an_error(chatops: CommandLine) -> None:
    ran = chatops("parse", "--tools", "gone.json")
    assert (ran.code, ran.out) == (2, "")
    assert "gone.json cannot be read" in ran.err


class Open:
    """The program while it runs, to ask it line by line."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chatops", "parse"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=program_environment(),
        )

    def ask(self, value: object) -> Any:
        """Write a line, wait for its answer."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(value).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> Ran:
        """Wait for the end."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return Ran(code=self.process.returncode, out=out.decode(), err=err.decode())


def test_every_line_is_answered_before_the_next_is_sent(workspace: Path) -> None:
    opened = Open(workspace)
    assert [opened.ask({"text": text})["content"] for text in ("one", "two", "three")] == ["one", "two", "three"]
    assert opened.end() == Ran(code=0, out="", err="")


def test_ctrl_c_ends_it_without_a_traceback(workspace: Path) -> None:
    opened = Open(workspace)
    opened.ask({"text": "one"})
    opened.process.send_signal(signal.SIGINT)
    assert opened.end() == Ran(code=130, out="", err="")


def test_a_reader_that_goes_away_ends_it_without_a_word(workspace: Path) -> None:
    opened = Open(workspace)
    opened.ask({"text": "one"})
    assert opened.process.stdin and opened.process.stdout and opened.process.stderr
    opened.process.stdout.close()
    opened.process.stdin.write(b'{"text": "two"}\n')
    opened.process.stdin.close()
    assert opened.process.wait(timeout=PATIENCE) == 0
    assert opened.process.stderr.read() == b""
    opened.process.stderr.close()


def test_it_starts_without_screen_client_store_or_configuration(workspace: Path) -> None:
    code = (
        "import sys; sys.argv[1:] = ['parse']\n"
        "from chatops.__main__ import main\n"
        "main()\n"
        "print(*sorted(name for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=workspace,
        env=program_environment(),
        timeout=PATIENCE,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "chatops.dialects" in loaded
    assert not loaded & {
        "textual", "rich", "openai", "httpx2", "pydantic", "sqlite3", "yaml", "asyncio", "jsonschema", "chatops.config",
        "chatops.wiring",
    }  # fmt: skip


def test_the_example_of_the_readme_is_what_it_answers(workspace: Path) -> None:
    (asked,) = document.block("parse: in")
    (answer,) = _answers(workspace, asked)
    assert answer == json.loads("\n".join(document.block("parse: out")))
