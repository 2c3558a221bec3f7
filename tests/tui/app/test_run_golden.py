"""The screens of a run of a workflow, compared with stored pictures. WRITE_GOLDEN=1 stores what is there now."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.tui.app.fake_run import FakeRun
from tests.tui.app.scenes import assembly, busy, failed, gated, on_stage, to_review, worked
from tests.tui.app.support_app import Stage

GOLDEN = Path(__file__).parent / "golden"
Scene = tuple[Callable[[FakeRun], None], Callable[[Stage], Awaitable[None]]]


async def at_work(running: Stage) -> None:
    await worked(running, 30)


def pressed(*keys: str) -> Callable[[Stage], Awaitable[None]]:
    async def press(running: Stage) -> None:
        running.clock.pass_(5)
        await running.press(*keys)

    return press


SCENES: dict[str, Scene] = {
    "run": (busy, at_work),
    "run-folded": (busy, pressed("ctrl+t")),
    "run-gate": (gated, pressed("home")),
    "run-failed": (failed, pressed("home")),
    "run-review": (to_review, pressed("home")),
    "run-later": (failed, pressed("escape")),
    "run-words": (failed, pressed("e")),
    "run-steps": (failed, pressed("escape", "ctrl+l")),
    "run-output": (failed, pressed("escape", "ctrl+l", "up", "enter")),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", SCENES)
async def test_screen_at_80x24(name: str) -> None:
    await compare(name, size=(80, 24))


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["run", "run-failed", "run-review"])
@pytest.mark.parametrize("size", [(120, 40), (40, 12)])
async def test_screen_in_other_sizes(name: str, size: tuple[int, int]) -> None:
    await compare(name, size=size)


async def compare(name: str, *, size: tuple[int, int]) -> None:
    scene, act = SCENES[name]
    async with on_stage(FakeRun(assembly()), scene, size=size) as running:
        await act(running)
        # Else some lines show the present time, and others that of the last tick of a timer.
        await worked(running, 0)
        shown = "\n".join(line.rstrip() for line in running.text.splitlines()) + "\n"
    file = GOLDEN / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("WRITE_GOLDEN") == "1":
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")
