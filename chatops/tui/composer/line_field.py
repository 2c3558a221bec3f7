"""A one-line text field."""

from rich.cells import cell_len
from rich.text import Text
from textual.expand_tabs import expand_tabs_inline
from textual.widgets import Input

from chatops.domain.sanitize import HIDDEN
from chatops.tui.composer.text_fields import SIGN, InOrder


class LineField(InOrder, Input):
    """An input that shows hidden characters and handles keys in the order they arrive."""

    @property
    def _value(self) -> Text:
        value = super()._value
        value.plain = HIDDEN.sub(SIGN, value.plain)
        return value

    def _position_to_cell(self, position: int) -> int:
        return cell_len(expand_tabs_inline(HIDDEN.sub(SIGN, self.value[:position]), 4))
