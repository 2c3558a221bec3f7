"""The approval dialog as pictures: its states, sizes, dark and light, without colours. WRITE_GOLDEN=1 stores them."""

import pytest

from tests.tui.app.dialog_scenes import SCENES
from tests.tui.app.support_app import stage
from tests.tui.app.test_looks import THEMES, compare

WIDE, USUAL, NARROW = (120, 40), (80, 24), (40, 12)
PICTURES = [
    *((scene, size) for scene in ("shell", "edit") for size in (USUAL, WIDE, NARROW)),
    *((scene, USUAL) for scene in ("details", "form", "full", "list")),
    ("sides", WIDE),
]


@pytest.mark.some(2)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("scene", "size"), PICTURES)
async def test_the_dialog_looks_as_in_its_picture(scene: str, size: tuple[int, int], theme: str) -> None:
    async with stage(size=size, theme=theme) as running:
        await SCENES[scene](running)
        await running.settle()
        await compare(running, f"approval-{scene}")
