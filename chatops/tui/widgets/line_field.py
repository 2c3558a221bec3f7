"""One line to write in."""

from textual.widgets import Input

from chatops.tui.widgets.fields import InOrder


class LineField(InOrder, Input):
    """An input whose keys act in the order in which they come."""
