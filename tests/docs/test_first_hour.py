"""docs/first-hour.md, step by step, with a scripted model. ``python -m tests.docs.test_first_hour`` draws it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.readme.shell import follow
from tests.readme.user import renamed, user_in
from tests.support import document
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says
from tests.support.film import Screen, still
from tests.tools.running import needs_sandbox

PAGE = document.DOCS / "first-hour.md"
PICTURES = document.DOCS / "first-hour"
PICTURED = {
    "edit": "Approve Edit?",
    "rule": "Make a rule",
    "contain": "Apply the changes of this turn?",
    "undo": "Undo these changes?",
    "kill": "Unfinished: waiting for your approval",
}
"""The parts of the page, and what is on the screen that shows each."""
PRINT = "    print(greet(sys.argv[1]))"
HOME = "/home/ada/clerks"


def model(request: SeenRequest) -> Completion:
    """What the model of the page says and calls."""
    since = [message["role"] for message in request.messages]
    results = since[::-1].index("user") if "user" in since else 0
    done = since[len(since) - results :].count("tool")
    # After an undo the message begins with what became of the files.
    match request.last_user.rpartition("\n")[2]:
        case "let hello.py say goodbye too":
            more = f'{PRINT}\n    print("Goodbye!")'
            edit = call("file_edit", path="hello.py", old=PRINT, new=more)
            return says("It says goodbye now.") if done else calls(edit)
        case "run the check":
            # The second answer has words of its own: what is on the screen already cannot be waited for.
            again = any(message.get("content") == "The check passes." for message in request.messages)
            answer = "The check passes again." if again else "The check passes."
            return says(answer) if done else calls(call("shell_exec", command="sh check.sh"))
        case "rename greet to welcome" if done == 0:
            old = 'def greet(name):\n    return f"Hello, {name}!"\n\n\nif __name__ == "__main__":\n    print(greet('
            new = old.replace("greet(", "welcome(")
            return calls(call("file_edit", path="hello.py", old=old, new=new))
        case "rename greet to welcome" if done == 1:
            return calls(call("shell_exec", command="sh check.sh"))
        case "rename greet to welcome":
            return says("greet is called welcome now, and the check passes.")
        case _:
            return says("Hello from qwen3.")


def play(folder: Path) -> Iterator[tuple[str, Screen]]:
    """Take all steps of the page. Yield the name of each part and the screen that shows it."""
    files = "\n".join(document.block("hour: files", page=PAGE))
    subprocess.run(["sh", "-e"], input=files, text=True, cwd=folder, check=True)
    with FakeOpenAI(model, models=("qwen3",)) as server:
        follow("hour: connect", folder, page=PAGE, replaced={"http://127.0.0.1:11434": server.root})
        with user_in(folder) as user:
            for name, shown in PICTURED.items():
                rows = document.rows(f"hour: {name}", page=PAGE)
                shots = [(row, shot) for row, shot in user.take(rows)]
                yield name, next(shot for row, shot in shots if shown in row.shown)


@needs_sandbox
def test_the_first_hour_holds_step_by_step(folder: Path, path_with_chatops: str) -> None:
    seen = [name for name, _ in play(folder)]
    assert "def welcome(name):" in (folder / "hello.py").read_text()
    assert {*seen} == {path.stem for path in PICTURES.iterdir()}


def draw() -> None:
    """Renew the pictures of the page."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tmp") as place:
        folder, programs = Path(place) / "greeting", Path(place) / "bin"
        folder.mkdir()
        programs.mkdir()
        (programs / "chatops").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m chatops "$@"\n')
        (programs / "chatops").chmod(0o755)
        os.environ |= {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": os.getcwd(), "CHATOPS_HOME": f"{place}/home"}
        PICTURES.mkdir(exist_ok=True)
        for name, shot in play(folder):
            picture = still(renamed(shot, place, HOME), title=f"Your first hour: {name}")
            (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    draw()
