"""The panel of a workflow run: beside or above the transcript, or one line, depending on the window size."""

from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from textual import events
from textual.content import Content
from textual.message import Message
from textual.style import Style
from textual.timer import Timer
from textual.widget import Widget

from chatops.engine.workflow.view import RunView
from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.theme import Symbols, symbols_for
from chatops.tui.workflow.lines import SpanTone, StyledLine, above, beside, folded

WIDE, TALL = 118, 22
"""From this window size on, the panel is beside the transcript."""
SIDE_WIDTH = 42
ROOMY_WIDTH, ROOMY_HEIGHT = 56, 20
"""Below this window size, the panel folds to one line by itself."""
TICK_S = 1.0
"""Seconds between redraws of the times while the run works."""


class PanelShape(Enum):
    """Position of the panel."""

    LINE = "line"
    ABOVE = "above"
    BESIDE = "beside"


def shape_for(width: int, height: int, *, opened: bool | None) -> PanelShape:
    """Return the shape that fits a window of this size. `opened` is the user's choice, None if not made yet."""
    if opened is None:
        opened = width >= ROOMY_WIDTH and height >= ROOMY_HEIGHT
    if not opened:
        return PanelShape.LINE
    return PanelShape.BESIDE if width >= WIDE and height >= TALL else PanelShape.ABOVE


class WorkflowPanel(ErrorBoundary, Widget):
    """Draws what `look` returns: when `draw` is called, and once a second while the run works."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"workflow--{tone}" for tone in ("plain", "strong", "muted", "good", "warn", "bad")
    }
    DEFAULT_CSS = """
    WorkflowPanel {
        height: auto;
        padding: 0 1;
        background: $surface;
        & .workflow--plain { color: $foreground; }
        & .workflow--strong { text-style: bold; }
        & .workflow--muted { color: $text-muted; }
        & .workflow--good { color: $text-success; }
        & .workflow--warn { color: $text-warning; text-style: bold; }
        & .workflow--bad { color: $text-error; }
    }
    WorkflowPanel.-beside {
        dock: right;
        width: 42;
        /* A window that has just become narrow leaves room for the message until the panel has moved. */
        max-width: 45%;
        height: 100%;
        border-left: solid $panel;
    }
    """

    class StepClicked(Message):
        """Posted when a step is clicked; `step` is its index."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, look: Callable[[], RunView], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._look = look
        self._opened: bool | None = None
        self._lines: list[StyledLine] = []
        self._clock: Timer | None = None
        """Set only while the run works, so that a waiting run costs nothing."""

    @property
    def _signs(self) -> Symbols:
        """The symbols that this terminal can show."""
        return symbols_for(getattr(self.app, "charset", "utf-8"))

    @property
    def shape(self) -> PanelShape:
        """The current shape."""
        size = self.app.size
        return shape_for(size.width, size.height, opened=self._opened)

    def on_mount(self) -> None:
        """Show the current state of the run."""
        self.draw()

    def toggle(self) -> None:
        """Fold the panel to one line, or open it again."""
        self._opened = self.shape is PanelShape.LINE
        self.draw()

    def draw(self) -> None:
        """Show the current state of the run. Start or stop the clock to match."""
        if not self.is_attached:
            return
        view, size, shape = self._look(), self.app.size, self.shape
        if self._clock is None and view.working:
            self._clock = self.set_interval(TICK_S, self.draw)
        elif self._clock is not None and not view.working:
            self._clock.stop()
            self._clock = None
        self.set_class(shape is PanelShape.BESIDE, "-beside")
        width = (SIDE_WIDTH - 1 if shape is PanelShape.BESIDE else size.width) - 2
        lines = self._laid_out(view, shape, width=width, height=size.height)
        if lines != self._lines:
            taller = len(lines) != len(self._lines)
            self._lines = lines
            self.refresh(layout=taller)

    def _laid_out(self, view: RunView, shape: PanelShape, *, width: int, height: int) -> list[StyledLine]:
        match shape:
            case PanelShape.LINE:
                return folded(view, width=width, signs=self._signs)
            case PanelShape.ABOVE:
                return above(view, width=width, height=max(3, height // 3), signs=self._signs)
            case PanelShape.BESIDE:
                return beside(view, width=width, height=height, signs=self._signs)

    def render(self) -> Content:
        """Return the lines in the colours of the theme."""
        return Content("\n").join(Content("").join(self._styled(line)) for line in self._lines)

    def _styled(self, line: StyledLine) -> list[Content]:
        return [Content.styled(span.text, self._style(span.tone)) for span in line]

    def _style(self, tone: SpanTone) -> Style:
        return self.get_visual_style(f"workflow--{tone}")

    def on_resize(self) -> None:
        """Lay the lines out for the new size."""
        self.draw()

    def on_click(self, event: events.Click) -> None:
        """Post `StepClicked` for a click on a step; fold or open the panel after any other."""
        event.stop()
        offset = event.get_content_offset(self)
        line = self._lines[offset.y] if offset is not None and offset.y < len(self._lines) else ()
        step = next((span.step for span in line if span.step is not None), None)
        if step is None:
            self.toggle()
        else:
            self.post_message(self.StepClicked(step))
