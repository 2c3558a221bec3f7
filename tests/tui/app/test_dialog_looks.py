"""The approval dialog as pictures: its states, sizes, dark and light, without colours. WRITE_GOLDEN=1 stores them."""

import pytest

from tests.tui.app.dialog_scenes import SCENES
from tests.tui.app.support_app import stage
from tests.tui.app.test_looks import compare

WIDE, USUAL, NARROW = (120, 40), (80, 24), (40, 12)
PICTURES = [
    *((scene, size, "dark") for scene in ("shell", "edit") for size in (USUAL, WIDE, NARROW)),
    *((scene, USUAL, "light") for scene in ("shell", "edit", "details", "form")),
    *(("sides", WIDE, theme) for theme in ("dark", "light")),
    *((scene, USUAL, "dark") for scene in ("full", "list")),
]


@pytest.mark.some(2)
@pytest.mark.parametrize(("scene", "size", "theme"), PICTURES)
async def test_the_dialog_looks_as_in_its_picture(scene: str, size: tuple[int, int], theme: str) -> None:
    async with stage(size=size) as running:
        running.app.themes.use(f"chatops-{theme}")
        await SCENES[scene](running)
        await running.settle()
        compare(running, f"dialog-{scene}-{theme}-{size[0]}x{size[1]}")
