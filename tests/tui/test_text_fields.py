"""Text fields take every character that can be typed, and show each."""

from collections.abc import Sequence

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.widget import Widget

from chatops.tui.composer import Composer
from chatops.tui.text_fields import HIDDEN_SIGN, LineField, TextField


class Host(App[None]):
    def __init__(self, field: Widget) -> None:
        super().__init__()
        self.field = field

    def compose(self) -> ComposeResult:
        yield self.field


async def typed(field: TextField | LineField, text: Sequence[str]) -> str:
    """Type `text` into `field`, one key per character, and return the field as drawn."""
    async with Host(field).run_test(size=(40, 5)) as pilot:
        field.focus()
        await pilot.pause()
        for character in text:
            field.post_message(events.Key(f"key_{ord(character):x}", character))
        await pilot.pause()
        return "".join(segment.text for segment in field.render_line(0))


@pytest.mark.parametrize("make", [TextField, LineField, Composer], ids=lambda make: make.__name__)
@pytest.mark.parametrize("hidden", ["\u200d", "\u200b", "\u202e", "\U000e0041"], ids=ascii)
async def test_a_typed_character_without_a_picture_is_kept_and_shown(
    make: type[TextField | LineField], hidden: str
) -> None:
    field = make()
    drawn = await typed(field, f"a{hidden}b")
    assert (field.value if isinstance(field, LineField) else field.text) == f"a{hidden}b"
    assert f"a{HIDDEN_SIGN}b" in drawn


@pytest.mark.parametrize("make", [TextField, LineField], ids=lambda make: make.__name__)
async def test_a_typed_no_break_space_is_kept(make: type[TextField | LineField]) -> None:
    field = make()
    await typed(field, "10\u00a0km")
    assert (field.value if isinstance(field, LineField) else field.text) == "10\u00a0km"


@pytest.mark.parametrize("make", [TextField, LineField], ids=lambda make: make.__name__)
async def test_a_control_character_is_not_typed(make: type[TextField | LineField]) -> None:
    field = make()
    await typed(field, "a\x1fb\x85")
    assert (field.value if isinstance(field, LineField) else field.text) == "ab"
