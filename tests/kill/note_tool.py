"""A tool of somebody's own that must not run twice and can tell nothing afterwards. A program that loads this module
has it beside the built-in ones."""

import time
from typing import Annotated

from pydantic import Field

from chatops.toolkit.base import ToolContext
from chatops.tools.function import tool
from chatops.wiring.app import App

TAKES_S = 0.1
"""Before it has taken effect, and again after it."""


@tool()
def note_down(text: Annotated[str, Field(description="One line.")], context: ToolContext) -> str:
    """Add a line to notes.txt. It takes its time."""
    (context.workspace / f"started-{text}").touch()
    time.sleep(TAKES_S)
    with (context.workspace / "notes.txt").open("a") as notes:
        notes.write(f"{text}\n")
    time.sleep(TAKES_S)
    return "Noted."


assert App.__init__.__kwdefaults__ is not None
App.__init__.__kwdefaults__["tools"] = (note_down,)
