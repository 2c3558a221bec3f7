"""Every screen and state as a picture: three sizes, dark and light. WRITE_GOLDEN=1 stores them.

A picture is a compressed SVG without its fonts: `rsvg-convert NAME.svgz -o NAME.png`. Written pictures are to be looked
at before they are committed.
"""

import gzip
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from chatops.domain.events import CallProposed, Notice, TextDelta, ToolOutput, ToolStarted, TurnStatus
from chatops.domain.ids import CallId, MessageId, SessionId
from chatops.domain.messages import AssistantMessage, Usage, UserMessage
from chatops.domain.tools import ToolCall
from chatops.tui.dialogs.choices import below_origins
from chatops.tui.first_screen import FirstFacts, branch_of, first_facts, first_lines
from chatops.tui.notice import show_notice
from chatops.wiring.rows import SessionRow
from tests.tui.app.fake_run import FakeRun
from tests.tui.app.fakes import ROUND, TURN, FakeSession, FakeSessions, FakeWorkspace
from tests.tui.app.looks import messages
from tests.tui.app.scenes import assembly, on_stage, worked
from tests.tui.app.support_app import Stage, stage
from tests.tui.app.test_golden import SCENES, command, masked
from tests.tui.app.test_run_golden import SCENES as RUN_SCENES

PICTURES = Path(__file__).parent / "pictures"
SIZES = [(80, 24), (120, 40), (40, 12)]
THEMES = ("chatops-dark", "chatops-light")
HOSTILE = "\x1b[2J\u202etxt[b]x[/b]"
MARKDOWN = """# Release notes
Two things changed, and **one** is `urgent`.
## Tasks
- [x] write the parser
- [ ] tell everyone, in a line that is so long that it has to be wrapped in most windows

### Numbers
| part | lines | share |
|:-----|------:|:-----:|
| engine | 1400 | 61 % |
| domain | 900 | 39 % |

```diff
--- a/hello.py
+++ b/hello.py
-print("hello")
+print("hello, world", "with a line of code that is far too long for a window of eighty columns")
```

> Formulas such as $a_1*b*c$ and keys such as <kbd>Ctrl</kbd> stay as they are."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """Definition of a screen: a session as opened, then the events in it."""

    opened: Callable[[FakeSession], None] = lambda session: None
    then: Callable[[Stage], Awaitable[None]] = lambda running: running.settle()


def answered(session: FakeSession) -> None:
    session.change(messages=messages(), status=TurnStatus.ANSWERED)


def marked_down(session: FakeSession) -> None:
    asked = UserMessage(id=MessageId(f"{TURN}.m1"), text="\n".join(f"line {n} of a log" for n in range(1, 30)))
    session.change(
        messages=(asked, AssistantMessage(id=MessageId(f"{TURN}.m2"), text=MARKDOWN)), status=TurnStatus.ANSWERED
    )


async def unseen(running: Stage) -> None:
    await running.press("pageup")
    running.session.publish(TextDelta(id=f"{ROUND}.later", parent_id=ROUND, text="And there is more. " * 40))
    await running.settle()


async def found(running: Stage) -> None:
    await running.press("ctrl+up", "ctrl+up", "ctrl+up", "ctrl+f")
    await running.type_fast(*"test")


async def picking(running: Stage) -> None:
    await running.app.chat.open_sessions()
    await running.settle()
    await running.press("down")


async def working(running: Stage) -> None:
    running.session.start_turn("run the tests")
    running.session.say("I run them.")
    call = ToolCall(id=CallId(f"{ROUND}.1"), name="shell_exec", arguments='{"command":"npm test"}')
    proposed = CallProposed(id=call.id, parent_id=ROUND, tool=call.name, arguments=call.arguments)
    started = ToolStarted(
        id=call.id, parent_id=ROUND, tool=call.name, arguments=call.arguments, attempt=1, decided_by="policy"
    )
    running.session.publish(proposed, started)
    running.session.publish(ToolOutput(id=call.id, parent_id=ROUND, text="PASS  src/a.test.ts\nPASS  src/b.test.ts\n"))
    await running.settle()
    running.clock.pass_(12)
    running.app.chat.update_now()
    await running.settle()


async def queued(running: Stage) -> None:
    running.session.start_turn("run the tests")
    running.session.change(queued=("then explain what changed in one paragraph", "and commit it"))
    running.app.chat.update_now()
    await running.settle()


async def nearly_full(running: Stage) -> None:
    usage = Usage(input_tokens=31_000, output_tokens=900, cost=0.1234)
    running.session.change(context_used=31_000, contained=True, usage=usage)
    running.app.chat.update_now()
    await running.settle()


async def long_draft(running: Stage) -> None:
    running.app.chat.composer.insert("\n".join(f"line {number}" for number in range(1, 10)))
    await running.settle()


async def noticed(running: Stage) -> None:
    show_notice(running.app, "Written to notes.md.")
    await running.settle()


LOOKS: dict[str, Look] = {
    "transcript": Look(opened=answered),
    "first": Look(),
    "markdown": Look(opened=marked_down),
    "unseen": Look(opened=answered, then=unseen),
    "selected": Look(opened=answered, then=lambda running: running.press("ctrl+up", "ctrl+up")),
    "found": Look(opened=answered, then=found),
    "picker": Look(then=picking),
    "working": Look(then=working),
    "queued": Look(then=queued),
    "nearly-full": Look(opened=answered, then=nearly_full),
    "long-draft": Look(then=long_draft),
    "notice": Look(then=noticed),
    "themes": Look(then=lambda running: command(running, "/theme")),
    "help-search": Look(then=lambda running: running.press("f1", "slash", *"role")),
    "palette": Look(then=lambda running: running.press("ctrl+p")),
    **{name: Look(then=scene) for name, scene in SCENES.items() if name != "chat"},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", LOOKS)
async def test_a_screen_looks_as_in_its_picture(name: str, size: tuple[int, int], theme: str) -> None:
    session = FakeSession()
    LOOKS[name].opened(session)
    async with stage(session, size=size, theme=theme) as running:
        await LOOKS[name].then(running)
        await compare(running, name)


@pytest.mark.more
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", RUN_SCENES)
async def test_a_run_looks_as_in_its_picture(name: str, size: tuple[int, int], theme: str) -> None:
    scene, act = RUN_SCENES[name]
    async with on_stage(FakeRun(assembly()), scene, size=size, theme=theme) as running:
        await act(running)
        await worked(running, 0)
        await compare(running, name)


async def compare(running: Stage, name: str) -> None:
    """Compare the screen with its stored picture."""
    await running.settle()
    size, theme = running.app.size, running.app.theme.removeprefix("chatops-")
    file = PICTURES / f"{name}-{size.width}x{size.height}-{theme}.svgz"
    shown = masked(picture(running), name)
    if os.environ.get("WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gzip.compress(shown.encode(), mtime=0))
    assert shown == gzip.decompress(file.read_bytes()).decode(), (
        f"differs from {file.name}: renew with WRITE_GOLDEN=1, and look"
    )


def picture(running: Stage) -> str:
    """Return the screen as SVG, without fonts to fetch and with stable names."""
    drawn = running.app.export_screenshot(title="chatops")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'<clipPath id="[^"]*line-\d+">.*?</clipPath>\s*', "", drawn, flags=re.DOTALL)
    drawn = re.sub(r' clip-path="[^"]*line-\d+\)"', "", drawn)
    return re.sub(r"terminal-\d+", "terminal", drawn) + "\n"


async def test_a_tip_is_offered_as_the_message_and_the_first_screen_leaves_with_it() -> None:
    async with stage(size=(80, 24)) as running:
        lines = running.text.split("\n")
        at = next(number for number, line in enumerate(lines) if line.startswith("  Try "))
        await running.pilot.click(offset=(12, at))
        await running.settle()
        assert running.draft == "what does this project do?"
        await running.press("enter")
        assert running.session.submitted == ["what does this project do?"]
        running.session.start_turn("what does this project do?")
        await running.settle()
        assert "Try " not in running.text


@pytest.mark.parametrize("size", [(60, 20), (40, 12)])
async def test_tab_takes_one_tip_after_the_other_and_nothing_pushes_the_message_field_away(
    size: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "README.md").touch()
    session = FakeSession()
    session.change(workspace=str(tmp_path), is_demo=True)
    async with stage(session, size=size) as running:
        if size == (60, 20):
            for tip in ("read README.md", "read README.md"):
                await running.press("tab")
                assert running.draft == tip
        await running.press("ctrl+u", "/", "r", "e")
        shown = running.text.split("\n")
        assert any("> /resume" in line for line in shown)
        assert any(line.strip("│ ") == "/re" for line in shown), running.text
        assert "coder ·" in shown[-1], "the status line is the last one"


def test_the_branch_is_read_without_git_and_as_plain_text(tmp_path: Path) -> None:
    assert branch_of(str(tmp_path)) == ""
    head = tmp_path / ".git" / "HEAD"
    head.parent.mkdir()
    for content, branch in ((f"ref: refs/heads/{HOSTILE}\n", HOSTILE), ("0123456789abcdef\n", ""), ("ref: x\n", "")):
        head.write_text(content)
        assert branch_of(str(tmp_path)) == branch
    now = replace(FakeSession().snapshot(), workspace="/w")
    facts = FirstFacts(role="coder", branch=HOSTILE)
    line = first_lines(now, facts, colour="", width=100, roomy=True)[0][2].plain
    assert "git " in line and "[b]x[/b]" in line and not set(line) & set("\x1b\u202e")
    head.unlink()
    os.mkfifo(head)
    assert branch_of(str(tmp_path)) == ""


class Hostile(FakeSessions):
    """Sessions with hostile titles."""

    async def listed(self) -> Sequence[SessionRow]:
        return [replace(row, title=HOSTILE, when=HOSTILE) for row in await super().listed()]


async def test_no_name_on_the_first_screen_acts_or_hides() -> None:
    session = FakeSession()
    session.change(workspace=f"/tmp/{HOSTILE}", model_label=HOSTILE, role=HOSTILE)
    workspace = FakeWorkspace()
    workspace.sessions = Hostile(workspace)
    async with stage(session, workspace=workspace, size=(120, 40)) as running:
        assert not set(running.text) & set("\x1b\u202e")
        assert running.text.count("[b]x[/b]") >= 9


async def test_role_and_frame_change_together() -> None:
    async with stage(size=(80, 24)) as running:
        before = running.app.chat.composer.styles.border_top
        running.session.change(role="researcher")
        running.app.chat.update_now()
        await running.settle()
        assert "─ researcher ─" in running.text
        assert running.app.chat.composer.styles.border_top != before


def test_the_first_screen_suggests_what_the_role_can_do_here(tmp_path: Path) -> None:
    def tips(*tools: str) -> list[str]:
        facts = FirstFacts(role="assistant", tools=tools)
        now = replace(FakeSession().snapshot(), workspace=str(tmp_path), is_demo=True)
        return [*first_lines(now, facts, colour="", width=80, roomy=True)[1].values()]

    assert tips("file_list", "file_read", "file_search", "shell_exec") == ["list .", "search import"]
    (tmp_path / "README.rst").touch()
    (tmp_path / ".git").mkdir()
    assert tips("file_list", "file_read") == ["list .", "read README.rst"]
    assert tips("shell_exec") == ["run `git status`"]
    assert tips() == ["what can you help me with?"]


def test_the_first_screen_names_of_a_session_and_its_copies_only_the_newest() -> None:
    def row(name: str, source: str = "", pending: int = 0) -> SessionRow:
        return SessionRow(id=SessionId(name), title=name, when="", messages=2, source=source, pending=pending)

    rows = [row("copy2", "copy1"), row("other"), row("copy1", "first", pending=1), row("first")]
    assert [one.id for one in first_facts(FakeWorkspace(), "coder", rows).open] == ["copy1", "copy2", "other"]
    # The session picker shows all of them, copies below their origin.
    assert [one.id for one in below_origins(rows)] == ["first", "copy2", "copy1", "other"]


async def test_the_first_screen_is_renewed_when_another_screen_is_closed() -> None:
    async with stage(size=(80, 24)) as running:
        assert "Fix the pa" in running.text

        async def left() -> Sequence[SessionRow]:
            return (SessionRow(id=SessionId("20261120-101500-b7d2"), title="What is left", when="", messages=2),)

        running.workspace.sessions.listed = left  # type: ignore[method-assign]
        await running.press("f1", "escape")
        await running.settle()
        assert "What is left" in running.text and "Fix the pa" not in running.text


async def test_a_notice_is_seen_beside_the_first_screen() -> None:
    async with stage(size=(60, 14)) as running:
        running.session.publish(Notice(id="n1", parent_id="s", text="Rights have changed.", advice="", level="warning"))
        while "Rights have changed." not in running.text:
            await running.pilot.pause(0.01)
        assert "chatops " in running.text
        assert "coder ·" in running.text.split("\n")[-1], "the status line is the last one"


@pytest.mark.more
@pytest.mark.parametrize("size", [(40, 12), (40, 14), (80, 16)])
async def test_a_low_window_names_program_folder_and_model_on_the_first_screen(size: tuple[int, int]) -> None:
    session = FakeSession()
    session.change(messages=(), status=None, workspace="/srv/shop")
    async with stage(session, size=size) as running:
        for text in ("chatops ", "/srv/shop", "Qwen 3"):
            assert text in running.text, running.text
