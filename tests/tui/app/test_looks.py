"""The transcript and the first screen as pictures: three sizes, dark and light. WRITE_GOLDEN=1 stores them.

A picture is an SVG without its fonts. Written pictures are to be looked at before they are committed.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.events import TurnStatus
from chatops.tui.host import SessionRow
from chatops.tui.status.first_screen import FirstFacts, first_lines
from tests.tui.app.fakes import FakeHost, FakeSession
from tests.tui.app.looks import messages
from tests.tui.app.support_app import Stage, stage

GOLDEN = Path(__file__).parent / "golden"
SIZES = [(120, 40), (80, 24), (40, 16)]
HOSTILE = "\x1b[2J\u202etxt[b]x[/b]"


def picture(running: Stage) -> str:
    """Return the screen as SVG, without fonts to fetch and with stable names."""
    drawn = running.app.export_screenshot(title="chatops")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return re.sub(r"terminal-\d+", "terminal", drawn) + "\n"


def compare(running: Stage, name: str) -> None:
    file = GOLDEN / f"{name}.svg"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(picture(running), encoding="utf-8")
    assert picture(running) == file.read_text(encoding="utf-8")


@pytest.mark.some(2)
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_the_transcript_looks_as_in_its_picture(width: int, height: int, theme: str) -> None:
    session = FakeSession(status=TurnStatus.ANSWERED)
    session.change(messages=messages())
    async with stage(session, size=(width, height)) as running:
        running.app.themes.use(f"chatops-{theme}")
        await running.app.workers.wait_for_complete()
        await running.settle()
        compare(running, f"transcript-{theme}-{width}x{height}")


@pytest.mark.some(2)
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_the_first_screen_looks_as_in_its_picture(width: int, height: int, theme: str) -> None:
    async with stage(size=(width, height)) as running:
        running.app.themes.use(f"chatops-{theme}")
        await running.settle()
        compare(running, f"first-{theme}-{width}x{height}")


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


class Hostile(FakeHost):
    """A store with hostile titles."""

    async def sessions(self) -> Sequence[SessionRow]:
        return [replace(row, title=HOSTILE, when=HOSTILE) for row in await super().sessions()]


async def test_no_name_on_the_first_screen_acts_or_hides() -> None:
    session = FakeSession()
    session.change(workspace=f"/tmp/{HOSTILE}", model_label=HOSTILE, role=HOSTILE)
    async with stage(session, host=Hostile(), size=(120, 40)) as running:
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


@pytest.mark.some(1)
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_a_search_and_the_selected_block_look_as_in_their_picture(width: int, height: int, theme: str) -> None:
    session = FakeSession(status=TurnStatus.ANSWERED)
    session.change(messages=messages())
    async with stage(session, size=(width, height)) as running:
        running.app.themes.use(f"chatops-{theme}")
        await running.app.workers.wait_for_complete()
        await running.press("ctrl+up", "ctrl+up", "ctrl+up", "ctrl+f")
        await running.type_fast(*"test")
        compare(running, f"found-{theme}-{width}x{height}")


@pytest.mark.some(1)
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_the_session_picker_looks_as_in_its_picture(width: int, height: int, theme: str) -> None:
    async with stage(size=(width, height)) as running:
        running.app.themes.use(f"chatops-{theme}")
        running.app.chat.open_sessions()
        await running.settle()
        await running.press("down")
        compare(running, f"picker-{theme}-{width}x{height}")
