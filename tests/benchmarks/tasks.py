"""Benchmark of small tasks: ``python -m tests.benchmarks.tasks``.

A scripted model works on each task in the real program, over HTTP. It makes the mistakes that models make, and it knows
nothing but what it is told: its next call is chosen by patterns over the last result, and may take words from it. So a
tool's feedback that names what is wrong saves rounds, and a worse one costs rounds or the task. It picks its tools by
their descriptions.

Prints rounds, errors fed back, and the outcome of each task. `tests/data/tasks.json` holds what they were;
``--write`` renews it.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.command_line import program, registry_for
from tests.support.fake_openai import Call, Completion, FakeOpenAI, SeenRequest, calls, says

RECORD = Path(__file__).parents[1] / "data" / "tasks.json"
TOOLS = ["file_read", "file_list", "file_search", "file_write", "file_edit", "shell_exec", "web_fetch", "scratch_write"]
RULES = (
    "file_write",
    "file_edit",
    *(f"shell_exec:{word} *" for word in ("sleep", "echo", "touch")),
)
APPROVED = tuple(flag for rule in RULES for flag in ("--approve", rule))
"""Flags that answer the calls of the tasks."""
GIVES_UP = "I could not do it."
MOST_REPEATS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The model's reaction if the last result matches `after`; `call` may use groups of the match as ``{1}``."""

    after: str
    call: Call | str
    """A call, or the final answer."""


def use(name: str, **arguments: object) -> Call:
    """Return a well-formed call."""
    return Call(name=name, arguments=json.dumps(arguments))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task with the way that the model takes. `moves` are tried in order; the first that matches counts."""

    name: str
    moves: tuple[Move, ...]
    done: Callable[[Path, str], bool]
    """Given workspace and answer: whether the task is done."""
    files: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


START = "^$"
"""`after` of the first move: there is no result yet."""


def tasks() -> Iterator[Task]:
    """Yield the tasks."""
    yield Task(
        name="read a file",
        files={"note.txt": "The invoice is due on Friday.\n"},
        moves=(Move(after=START, call=use("file_read", path="note.txt")), Move(after="(due on .*)", call="{1}")),
        done=says_it("due on Friday"),
    )
    yield Task(
        name="read a file whose name it has wrong",
        files={"docs/notes.txt": "The invoice is due on Friday.\n"},
        moves=(
            Move(after=START, call=use("file_read", path="notes.txt")),
            Move(after="(docs/notes.txt)", call=use("file_read", path="{1}")),
            Move(after="(due on .*)", call="{1}"),
            Move(after="no file|not exist", call=use("file_search", pattern="invoice")),
        ),
        done=says_it("due on Friday"),
    )
    yield Task(
        name="find the tool by its description",
        files={"a.txt": "x\n"},
        moves=(Move(after=START, call=use("?list a folder", path=".")), Move(after="(a.txt)", call="{1}")),
        done=says_it("a.txt"),
    )
    yield Task(
        name="call a tool by the name that others give it",
        files={"note.txt": "The invoice is due on Friday.\n"},
        moves=(
            Move(after=START, call=use("read_file", path="note.txt")),
            Move(after=r"Did you mean (\w+)", call=use("{1}", path="note.txt")),
            Move(after="(due on .*)", call="{1}"),
        ),
        done=says_it("due on Friday"),
    )
    yield Task(
        name="name an argument wrong",
        files={"note.txt": "The invoice is due on Friday.\n"},
        moves=(
            Move(after=START, call=use("file_read", filename="note.txt")),
            Move(after=r"Arguments:.*?(path)", call=Call(name="file_read", arguments='{"{1}": "note.txt"}')),
            Move(after="(due on .*)", call="{1}"),
        ),
        done=says_it("due on Friday"),
    )
    yield Task(
        name="leave an argument out",
        moves=(
            Move(after=START, call=use("file_write", path="made.txt")),
            Move(after="content", call=use("file_write", path="made.txt", content="made\n")),
            Move(after="^Wrote", call="Done."),
        ),
        done=has_file("made.txt", "made\n"),
    )
    yield Task(
        name="give a number as text",
        files={"log.txt": "".join(f"line {number}\n" for number in range(1, 50))},
        moves=(
            Move(after=START, call=use("file_read", path="log.txt", offset="40", limit="2")),
            Move(after="whole number|integer", call=use("file_read", path="log.txt", offset=40, limit=2)),
            Move(after="(line 40)", call="{1}"),
        ),
        done=says_it("line 40"),
    )
    yield Task(
        name="write arguments that have to be repaired",
        files={"note.txt": "The invoice is due on Friday.\n"},
        moves=(
            Move(after=START, call=Call(name="file_read", arguments="{'path': 'note.txt',}")),
            Move(after="not run", call=use("file_read", path="note.txt")),
            Move(after="(due on .*)", call="{1}"),
        ),
        done=says_it("due on Friday"),
    )
    yield Task(
        name="write arguments that are cut off",
        files={"note.txt": "The invoice is due on Friday.\n"},
        moves=(
            Move(after=START, call=Call(name="file_read", arguments='{"path": "note.t')),
            Move(after="not run", call=use("file_read", path="note.txt")),
            Move(after="(due on .*)", call="{1}"),
        ),
        done=says_it("due on Friday"),
    )
    yield Task(
        name="edit with other white space",
        files={"hello.py": "def main():\n\tprint('hello')\n"},
        moves=(
            Move(after=START, call=use("file_edit", path="hello.py", old="    print('hello')", new="    print('bye')")),
            Move(
                after=r"\\t|\tprint",
                call=use("file_edit", path="hello.py", old="\tprint('hello')", new="\tprint('bye')"),
            ),
            Move(after="^Wrote", call="Done."),
            Move(after="not|no ", call=use("file_read", path="hello.py")),
        ),
        done=has_file("hello.py", "def main():\n\tprint('bye')\n"),
    )
    yield Task(
        name="edit what occurs twice",
        files={"a.py": "x = 1\ny = 2\nx = 1\n"},
        moves=(
            Move(after=START, call=use("file_edit", path="a.py", old="x = 1", new="x = 3")),
            Move(after="2 times", call=use("file_edit", path="a.py", old="y = 2\nx = 1", new="y = 2\nx = 3")),
            Move(after="^Wrote", call="Done."),
        ),
        done=has_file("a.py", "x = 1\ny = 2\nx = 3\n"),
    )
    yield Task(
        name="edit a line copied with its number",
        files={"a.py": "x = 1\ny = 2\n"},
        moves=(
            Move(after=START, call=use("file_edit", path="a.py", old="2: y = 2", new="2: y = 3")),
            Move(after="line number|without|(y = 2)", call=use("file_edit", path="a.py", old="y = 2", new="y = 3")),
            Move(after="^Wrote", call="Done."),
            Move(after="not|no ", call=use("file_read", path="a.py")),
        ),
        done=has_file("a.py", "x = 1\ny = 3\n"),
    )
    yield Task(
        name="edit a file that is not there",
        moves=(
            Move(after=START, call=use("file_edit", path="new.py", old="", new="x = 1\n")),
            Move(after="file_write|no file|not exist", call=use("file_write", path="new.py", content="x = 1\n")),
            Move(after="^Wrote", call="Done."),
        ),
        done=has_file("new.py", "x = 1\n"),
    )
    yield Task(
        name="run a command that fails",
        moves=(
            Move(after=START, call=use("shell_exec", command="touch made/made.txt")),
            Move(after="No such file", call=use("shell_exec", command="touch made.txt")),
            Move(after="Tool executed|success|^$|\\(no output\\)", call="Done."),
        ),
        done=has_file("made.txt", ""),
    )
    yield Task(
        name="run a command that takes too long",
        moves=(
            Move(after=START, call=use("shell_exec", command="sleep 60", timeout_s=1)),
            Move(after="time limit|timed out|stopped after", call=use("shell_exec", command="echo quick")),
            Move(after="(quick)", call="{1}"),
        ),
        done=says_it("quick"),
    )
    yield Task(
        name="search with a pattern that is not valid",
        files={"a.py": "f(x)\n"},
        moves=(
            Move(after=START, call=use("file_search", pattern="f(x")),
            Move(after="regular expression|not valid|unterminated", call=use("file_search", pattern=r"f\(x")),
            Move(after=r"(a\.py:1)", call="{1}"),
        ),
        done=says_it("a.py:1"),
    )
    yield Task(
        name="read past the end",
        files={"log.txt": "".join(f"line {number}\n" for number in range(1, 6))},
        moves=(
            Move(after=START, call=use("file_read", path="log.txt", offset=40)),
            Move(after=r"(\d+) lines", call=use("file_read", path="log.txt", offset=5)),
            Move(after="(line 5)", call="{1}"),
        ),
        done=says_it("line 5"),
    )
    yield Task(
        name="read a file in parts",
        files={"big.txt": "".join(f"row {number} {'x' * 90}\n" for number in range(1, 400)) + "the key is 42\n"},
        moves=(
            Move(after=START, call=use("file_read", path="big.txt")),
            Move(after="(the key is 42)", call="{1}"),
            Move(after=r"offset (\d+)", call=Call(name="file_read", arguments='{"path": "big.txt", "offset": {1}}')),
        ),
        done=says_it("the key is 42"),
    )
    yield Task(
        name="read a folder as a file",
        files={"docs/a.txt": "x\n"},
        moves=(
            Move(after=START, call=use("file_read", path="docs")),
            Move(after="(file_list)", call=use("{1}", path="docs")),
            Move(after="(a.txt)", call="{1}"),
        ),
        done=says_it("a.txt"),
    )
    yield Task(
        name="leave the workspace",
        files={"note.txt": "inside\n"},
        moves=(
            Move(after=START, call=use("file_read", path="/etc/hostname")),
            Move(after="outside|workspace", call=use("file_read", path="note.txt")),
            Move(after="(inside)", call="{1}"),
        ),
        done=says_it("inside"),
    )
    yield Task(
        name="be denied and go on",
        moves=(
            Move(after=START, call=use("shell_exec", command="echo hi")),
            Move(after="Denied", call=use("scratch_write", text="denied")),
            Move(after="[Ss]aved|noted|success", call="Not permitted, so I left it."),
        ),
        done=says_it("left it"),
        flags=("--on-approval", "deny"),
    )
    yield Task(
        name="make the same call again and again",
        files={"note.txt": "inside\n"},
        moves=(
            Move(after="again|twice in a row", call="It says inside."),
            Move(after=START, call=use("file_read", path="note.txt")),
            Move(after="inside", call=use("file_read", path="note.txt")),
        ),
        done=says_it("inside"),
    )


def says_it(text: str) -> Callable[[Path, str], bool]:
    """Return a check that the answer contains `text`."""
    return lambda _, answer: text in answer


def has_file(name: str, content: str) -> Callable[[Path, str], bool]:
    """Return a check that a file has exactly this content."""
    return lambda workspace, _: (workspace / name).is_file() and (workspace / name).read_text() == content


class Model:
    """Plays one task. A call that was made twice to no avail is not made a third time."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._made: list[Call] = []

    def __call__(self, request: SeenRequest) -> Completion:
        """Reply to a request."""
        results = request.tool_results
        last = results[-1] if results else ""
        for move in self._task.moves:
            found = re.search(move.after, last) if results or move.after == START else None
            if found is None or (results and move.after == START):
                continue
            if isinstance(move.call, str):
                return says(_filled(move.call, found))
            wanted = Call(
                name=_named(_filled(move.call.name, found), request), arguments=_filled(move.call.arguments, found)
            )
            if self._made.count(wanted) < MOST_REPEATS or "again and again" in self._task.name:
                self._made.append(wanted)
                return calls(wanted)
        return says(GIVES_UP)


def _filled(text: str, found: "re.Match[str]") -> str:
    return text.replace("{1}", found[1] or "") if found.re.groups else text


def _named(name: str, request: SeenRequest) -> str:
    """Return `name`, or for ``?words`` the tool whose description has these words."""
    if not name.startswith("?"):
        return name
    offered: Sequence[Mapping[str, Any]] = request.body.get("tools", [])
    return next(
        (one["function"]["name"] for one in offered if name[1:] in one["function"]["description"].lower()), name
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Result of a task."""

    done: bool
    rounds: int
    """Requests to the model."""
    errors: int
    """Calls that did not run as written, or failed."""


def played(task: Task, folder: Path, *, show: bool = False) -> Score:
    """Play one task in an empty folder."""
    workspace = folder / "work"
    for name, content in task.files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(content)
    workspace.mkdir(exist_ok=True)
    with FakeOpenAI(Model(task), strict=False) as server:
        flags = task.flags or APPROVED
        registry = registry_for(workspace, server.url, tools=TOOLS)
        ran = program("--registry", registry, "-p", task.name, "--output-format", "json", *flags, cwd=workspace)
        rounds = len(server.requests)
        if show:
            print(*server.requests[-1].tool_results, ran.out, sep="\n---\n")
    if not ran.out:
        raise AssertionError(ran.err)
    answer = ran.json
    errors = [one for one in answer["calls"] if one["outcome"] != "success"]
    return Score(done=task.done(workspace, answer["answer"] or ""), rounds=rounds, errors=len(errors))


def score() -> dict[str, Score]:
    """Play all tasks."""
    found = {}
    for task in tasks():
        with tempfile.TemporaryDirectory() as folder:
            found[task.name] = played(task, Path(folder))
    return found


def recorded() -> dict[str, Score]:
    """Return the scores on record."""
    return {name: Score(**one) for name, one in json.loads(RECORD.read_text()).items()}


def main() -> int:
    """Print the scores, beside those on record."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="renew the record")
    arguments = parser.parse_args()
    now, before = score(), recorded() if RECORD.exists() else {}
    print(f"{'TASK':45} DONE  ROUNDS  ERRORS")
    for name, one in now.items():
        changed = "" if before.get(name, one) == one else f"   before: {before[name]}"
        print(f"{name:45} {'yes' if one.done else 'no':4}  {one.rounds:6}  {one.errors:6}{changed}")
    done = sum(one.done for one in now.values())
    print(
        f"{done} of {len(now)} done, {sum(one.rounds for one in now.values())} rounds,"
        f" {sum(one.errors for one in now.values())} errors fed back"
    )
    if arguments.write:
        values = {name: {"done": one.done, "rounds": one.rounds, "errors": one.errors} for name, one in now.items()}
        RECORD.write_text(json.dumps(values, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
