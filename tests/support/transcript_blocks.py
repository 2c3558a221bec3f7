"""One block of every kind and state, for golden texts and hostile content."""

import json
from typing import Any

from textual.strip import Strip

from chatops.domain.ids import MessageId
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.tools import Outcome
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import AnswerDrawing
from chatops.tui.transcript.block_lines import block_lines
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    CardStatus,
    EndDetails,
    NoticeBlock,
    ReasoningBlock,
    StepBlock,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.transcript.lines import strips_of

MARKDOWN = """# What it does

A **chat app** with `gated` tools, see [the docs](https://example.org/docs). This line is long enough to be wrapped.

1. First
   - nested one
   - nested two
2. Second

> Quoted words

| Layer | What it does | Lines |
|:------|:-------------|------:|
| domain | values, and **bold** text | 900 |
| engine | the machine that decides what happens next | 1400 |

```python
def hello(name: str) -> str:
    return f"hi {name}"  # a comment that is rather long for a narrow screen
```
"""


NEW = '    print("hello, world")\n    print("and goodbye")'
DIFF = """--- a/hello.py
+++ b/hello.py
@@ -3,4 +3,5 @@
 def main():

-    print("hello")
+    print("hello, world")
+    print("and goodbye")
     return 0
"""
EDIT: dict[str, Any] = {
    "tool": "file_edit",
    "arguments": json.dumps({"new": NEW, "old": '    print("hello")', "path": "hello.py"}),
    "diff": DIFF.replace("\n\n", "\n \n"),
    "added": 2,
    "removed": 1,
}
WRITE: dict[str, Any] = {
    "tool": "file_write",
    "arguments": '{"content":"1\\n2\\n","path":"numbers.txt"}',
    "diff": "--- /dev/null\n+++ b/numbers.txt\n@@ -0,0 +1,40 @@\n" + "".join(f"+{n}\n" for n in range(1, 41)),
    "added": 40,
}
TESTS = "\n".join(f"tests/test_{name}.py {'.' * 9}F" for name in "abcdefg")

FAILED: dict[str, Any] = {
    "outcome": Outcome.FAILED,
    "duration_ms": 3_100,
    "end": EndDetails(ended_because="exit code 1", tail=TESTS, likely_cause="the sandbox hides ~/.venv"),
    "output": TESTS,
}


def card(card_id: str, command: str, status: CardStatus = CardStatus.SETTLED, **more: object) -> ToolCardBlock:
    values = {"tool": "shell_exec", "arguments": f'{{"command":"{command}"}}', **more}
    return ToolCardBlock(id=card_id, status=status, **values)  # type: ignore[arg-type]


def samples() -> list[Block]:
    by_ana = "uid 1 (ana) via tui"
    return [
        UserBlock(id="u", text="Read the README\nand tell me"),
        UserBlock(id="pasted", text="\n".join(f"line {number} of a log" for number in range(1, 21))),
        ReasoningBlock(id="r", text="I should read it first."),
        ReasoningBlock(id="ro", text="Growing", open=True),
        AnswerBlock(id="a", text=MARKDOWN),
        AnswerBlock(id="ai", text="Half an ans", incomplete=True),
        card("ok", "ls", outcome=Outcome.SUCCESS, duration_ms=12, output="a\nb", decided_by="policy"),
        card("wait", "touch x", CardStatus.WAITING, asks_because="shell_exec asks by default"),
        card(
            "denied",
            "rm -rf build",
            outcome=Outcome.DENIED,
            decided_by=by_ana,
            end=EndDetails(ended_because="not now"),
            output="Denied",
        ),
        card(
            "policy",
            "rm x",
            outcome=Outcome.DENIED,
            decided_by="access level user",
            end=EndDetails(ended_because="Not permitted"),
        ),
        card("invalid", "x", outcome=Outcome.INVALID, arguments="nonsense [", output="arguments: not JSON"),
        card("failed", "make", outcome=Outcome.FAILED, duration_ms=63_000, output="no rule"),
        card("unknown", "deploy", outcome=Outcome.UNKNOWN),
        card("unknown_wait", "deploy", CardStatus.UNKNOWN_WAITING, asks_because="it was interrupted"),
        card("interrupted", "sleep 9", outcome=Outcome.INTERRUPTED),
        card("running", "make test", CardStatus.RUNNING, output="collecting"),
        card("edit", "", outcome=Outcome.SUCCESS, duration_ms=28, decided_by=by_ana, **EDIT),
        card(
            "edit_waits",
            "",
            CardStatus.WAITING,
            asks_because="this tool always asks, unless a rule allows the call",
            **EDIT,
        ),
        card("write", "", outcome=Outcome.SUCCESS, duration_ms=3, **WRITE),
        card("left_out", "", outcome=Outcome.SUCCESS, duration_ms=3, left_out=True, **WRITE),
        card(
            "read",
            "",
            outcome=Outcome.SUCCESS,
            duration_ms=2,
            tool="file_read",
            arguments='{"path":"a.py"}',
            output="x",
            count=1,
        ),
        card(
            "tests",
            "pytest -q",
            outcome=Outcome.FAILED,
            duration_ms=3_100,
            end=EndDetails(ended_because="exit code 1", tail=TESTS, likely_cause="the sandbox hides ~/.venv"),
            output=TESTS,
        ),
        card(
            "refused",
            "make",
            outcome=Outcome.FAILED,
            end=EndDetails(error_line="The command could not be started: no such folder."),
        ),
        card("unsettled", "a command that is so long that it does not fit on the line " * 3, CardStatus.UNSETTLED),
        RoleSwitchMessage(
            id=MessageId("d"),
            before="coder",
            after="researcher",
            model="gemini",
            added=("web_search",),
            removed=("shell_exec",),
            suspended=2,
        ),
        NoticeBlock(id="ne", text="The endpoint refused the connection.", advice="Start it.", level="error"),
        NoticeBlock(id="nw", text="Older tool results are left out.", level="warning"),
        NoticeBlock(id="ni", text="Stopped by the user."),
        StepBlock(id="s", title="Step 2: make, attempt 2 of 3", text="The request:\nship it"),
        StepBlock(id="sg", title="Gate tests: pytest -q"),
    ]


def render_block(block: Block, width: int, theme: BlockTheme, **given: Any) -> list[Strip]:
    """Return the lines of any block."""
    if not isinstance(block, AnswerBlock):
        return strips_of(block_lines(block, width=width, theme=theme, **given), width=width, base=theme.base)
    drawing = AnswerDrawing(width=width, theme=theme)
    drawing.extend(block.text)
    if not block.open:
        drawing.close(incomplete=block.incomplete)
    return all_strips(drawing)


def all_strips(drawing: AnswerDrawing) -> list[Strip]:
    """Return all lines of an answer as it is now."""
    return [*drawing.finished(), *drawing.open_strips()]
