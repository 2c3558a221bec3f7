"""Draws the README's picture from the running program: `python -m tests.readme.picture`."""

import os
import re
import sys
import tempfile
from pathlib import Path

from tests.support.terminal import Terminal

PICTURE = Path(__file__).resolve().parents[2] / ".github" / "screen.svg"
_HOME = "/home/ada/clerks"
"""Shown in the place of the temporary folder, and as long as its name, for the text has been laid out."""
_SECONDS = 15
"""After that Textual saves what it shows and ends; the conversation below takes less."""


def draw() -> None:
    """Hold a short session up to a pending call and keep what is on the screen then."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tmp") as place:
        workspace = Path(place) / "invoices"
        workspace.mkdir()
        (workspace / "note.txt").write_text("The invoice is due on Friday.\n")
        environment = {
            "CHATOPS_HOME": f"{place}/home",
            # The dialog names folders of programs; those of this machine are nobody's business.
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.getcwd(),
            "TEXTUAL_SCREENSHOT": str(_SECONDS),
            "TEXTUAL_SCREENSHOT_LOCATION": place,
            "TEXTUAL_SCREENSHOT_FILENAME": "screen.svg",
        }
        program = [sys.executable, "-m", "chatops", "--role", "coder"]
        with Terminal(program, env=environment, cwd=workspace, cols=96, rows=34) as terminal:
            terminal.wait_for("DEMO")
            terminal.send("read note.txt")
            terminal.press("enter")
            terminal.wait_for("due on Friday")
            terminal.send("run `sed s/Friday/Monday/ note.txt > moved.txt && cat moved.txt`")
            terminal.press("enter")
            terminal.wait_for("a approve once")
            terminal.wait_exit()
        svg = (Path(place) / "screen.svg").read_text(encoding="utf-8")
        # The temporary folder would differ from run to run; fonts would be fetched from a host of others.
        assert len(place) == len(_HOME) and place in svg
        svg = svg.replace(place, _HOME)
        svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    draw()
