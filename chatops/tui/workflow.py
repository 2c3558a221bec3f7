"""The panel of a workflow run, with its lines for each shape. Untrusted text is sanitised in them."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message

from chatops.domain.wording import plural
from chatops.engine.workflow.view import RunView, StepCheck, StepMark, StepView
from chatops.tui.keys import key_of
from chatops.tui.status import count
from chatops.tui.textual_internals import ErrorBoundary
from chatops.tui.theme import UNICODE
from chatops.tui.ticker import Moving
from chatops.tui.transcript.lines import one_line

_LONGEST_REASON = 400
"""Characters of a reason, so that a long one does not cost time at each drawing. Only some lines of it are shown."""
_MAX_PROBLEM_LINES = 3
_INDENT = "    "
"""Before what belongs to a step."""
MIN_WIDTH_BESIDE, MIN_HEIGHT_BESIDE = 118, 22
"""From this window size on, the panel is beside the transcript."""
SIDE_WIDTH = 42
"""Columns of the panel beside the transcript, as in its CSS."""
ROOMY_WIDTH, ROOMY_HEIGHT = 56, 20
"""Below this window size, the panel folds to one line by itself."""
_MIN_LINES_ABOVE = 3
"""Lines of the panel above the transcript, at least. It gets a third of the window."""
_PADDING, _SIDE_BORDER = 2, 1
"""Columns that the panel's CSS takes from its text: in all shapes, and beside the transcript."""
_TOKENS_WIDTH, _TIME_WIDTH = 7, 8
"""Columns at the right end of a step's line: tokens such as ``123.4k``, a time such as ``1:02:03``, a blank before."""
_MUTED, _STRONG = "$text-muted", "bold"
_AT_WORK = UNICODE.folded
"""▸, as it begins a step in the transcript. `UNICODE.running` (») is the sign of a tool that runs."""
_MARKS = {
    StepMark.WAITING: (UNICODE.dot, _MUTED),
    StepMark.RUNNING: (_AT_WORK, _STRONG),
    StepMark.ASKING: (UNICODE.waiting, "bold $text-warning"),
    StepMark.DONE: (UNICODE.done, "$text-success"),
    StepMark.FAILED: (UNICODE.failed, "$text-error"),
    StepMark.SKIPPED: (UNICODE.minus, _MUTED),
}
"""The sign of each mark, and its style."""
_STYLES = {mark: style for mark, (_, style) in _MARKS.items()}


class PanelLine(NamedTuple):
    """A line of the panel. A click on it selects the step with the index `step`."""

    text: Content
    step: int | None = None


class PanelShape(Enum):
    """Position of the panel."""

    LINE = "line"
    """One line above the transcript: it is folded."""
    ABOVE = "above"
    """Over the whole width, above the transcript."""
    BESIDE = "beside"
    """A column at the right of the transcript."""


def shape_for(width: int, height: int, *, opened: bool | None) -> PanelShape:
    """Return the shape that fits a window of this size. `opened` is the user's choice, None if not made yet."""
    if opened is None:
        opened = width >= ROOMY_WIDTH and height >= ROOMY_HEIGHT
    if not opened:
        return PanelShape.LINE
    return PanelShape.BESIDE if width >= MIN_WIDTH_BESIDE and height >= MIN_HEIGHT_BESIDE else PanelShape.ABOVE


class WorkflowPanel(ErrorBoundary, Moving):
    """Draws what `look` returns: when `draw` is called, and once a second while the run works.

    It folds to one line when the run ends.
    """

    DEFAULT_CSS = """
    WorkflowPanel {
        height: auto;
        padding: 0 1;
        background: $surface;
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

    @dataclass
    class StepClicked(Message):
        """Posted when a step is clicked; `step` is its index."""

        step: int

    def __init__(self, look: Callable[[], RunView]) -> None:
        super().__init__()
        self._look = look
        self._opened: bool | None = None
        """The user's choice; None if not made yet."""
        self._over = False
        """True once the run has ended. The panel folds then."""
        self._lines: list[PanelLine] = []
        self._working = False
        """True while the run works, so that its times pass."""

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

    @property
    def moves(self) -> bool:
        """True while the run works. A waiting run costs nothing."""
        return self._working

    def tick(self, *, second: bool) -> None:
        """Show the working times, once a second."""
        if second:
            self.draw()

    def draw(self) -> None:
        """Show the current state of the run."""
        if not self.is_attached:
            return
        view, size = self._look(), self.app.size
        self._working = view.working
        is_over = view.at is None
        if is_over and not self._over:
            # Only now, so that the user can open the panel again.
            self._opened = False
        self._over = is_over
        shape = self.shape  # Depends on `_opened`.
        self.set_class(shape is PanelShape.BESIDE, "-beside")
        width = (SIDE_WIDTH - _SIDE_BORDER if shape is PanelShape.BESIDE else size.width) - _PADDING
        lines = _panel_lines(view, shape, width=width, height=size.height)
        if lines != self._lines:
            taller = len(lines) != len(self._lines)
            self._lines = lines
            self.refresh(layout=taller)

    def render(self) -> Content:
        """Return the lines in the colours of the theme."""
        return Content("\n").join(line.text for line in self._lines)

    def on_resize(self) -> None:
        """Lay the lines out for the new size."""
        self.draw()

    def on_click(self, event: events.Click) -> None:
        """Post `StepClicked` for a click on a step; fold or open the panel after any other."""
        event.stop()
        offset = event.get_content_offset(self)
        step = self._lines[offset.y].step if offset is not None and offset.y < len(self._lines) else None
        if step is None:
            self.toggle()
        else:
            self.post_message(self.StepClicked(step))


def _panel_lines(view: RunView, shape: PanelShape, *, width: int, height: int) -> list[PanelLine]:
    match shape:
        case PanelShape.LINE:
            return [PanelLine(folded_line(view, width=width))]
        case PanelShape.ABOVE:
            return above(view, width=width, height=max(_MIN_LINES_ABOVE, height // 3))
        case PanelShape.BESIDE:
            return beside(view, width=width, height=height)


def folded_line(view: RunView, *, width: int) -> Content:
    """Return one line: the current step, and as much of its state as fits."""
    if view.at is None:
        parts = [view.word]
    else:
        step = view.steps[view.at]
        parts = [f"{step.number}/{len(view.steps)} {one_line(step.name)}"]
        # That a step runs is said by the sign and by its progress.
        parts += [view.word] if view.problem or view.mark is not StepMark.RUNNING else []
        parts += _progress_words(step)
        parts += [_validation_counts(step)] if step.validations else []
    parts += [f"{count(view.tokens)} tokens"] if view.tokens is not None else []
    sign, style = _MARKS[view.mark]
    head = Content.styled(f"{sign} {one_line(view.workflow)} ", style)
    end = clock(view.seconds)
    room = width - head.cell_length - cell_len(f"  {end}")
    while len(parts) > 1 and cell_len(_join_parts(parts)) > room:
        parts.pop()
    return _spread_line(head + _cut_line(Content(_join_parts(parts)), width=max(0, room)), end, width=width)


def _hints() -> tuple[str, str]:
    """Return what the keys of the panel do, in full and in short."""
    folds = f"{key_of('panel')} folds"
    return f"{key_of('steps')} outputs, {folds}", folds


def above(view: RunView, *, width: int, height: int) -> list[PanelLine]:
    """Return at most `height` lines over the whole width."""
    at = f" · step {view.at + 1} of {len(view.steps)}" if view.at is not None else ""
    tokens = f" · {count(view.tokens)} tokens" if view.tokens is not None else ""
    head = Content.assemble(
        (one_line(view.workflow), _STRONG),
        "  ",
        (view.word, _STYLES[view.mark]),
        (f"{at}{tokens} · {clock(view.seconds)}", _MUTED),
    )
    hint = next((hint for hint in _hints() if head.cell_length + cell_len(f"   {hint}") <= width), "")
    lines = [PanelLine(_spread_line(head, hint, width=width)), *_problem_words(view, width=width)]
    steps = [_above_step(step, width=width, here=step.number - 1 == view.at) for step in view.steps]
    return [*lines, *_steps_in(steps, view, room=height - len(lines), width=width)]


def beside(view: RunView, *, width: int, height: int) -> list[PanelLine]:
    """Return at most `height` lines for a column at the side."""
    tokens = f" · {count(view.tokens)} tokens" if view.tokens is not None else ""
    lines = [
        PanelLine(_spread_line(Content.styled(one_line(view.workflow), _STRONG), clock(view.seconds), width=width)),
        PanelLine(Content.assemble((view.word, _STYLES[view.mark]), (tokens, _MUTED))),
        *_problem_words(view, width=width),
        PanelLine(Content("")),
    ]
    full_hint, _ = _hints()
    foot = [PanelLine(Content("")), PanelLine(Content.styled(full_hint, _MUTED))]
    steps = [_beside_step(step, width=width, here=step.number - 1 == view.at) for step in view.steps]
    lines += _steps_in(steps, view, room=height - len(lines) - len(foot), width=width)
    # The lines of steps are cut already. Those above and below them may be too long.
    return [PanelLine(_cut_line(line.text, width=width), line.step) for line in [*lines, *foot]]


def clock(seconds: float) -> str:
    """Return a duration such as ``0:42``, ``12:05`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _steps_in(steps: Sequence[list[PanelLine]], view: RunView, *, room: int, width: int) -> list[PanelLine]:
    """Return the steps in `room` lines: all of the present one, then the first lines of its neighbours."""
    if sum(len(lines) for lines in steps) <= room:
        return [line for lines in steps for line in lines]
    present = view.at if view.at is not None else len(steps) - 1
    shown = {present: list(steps[present])[: max(1, room)]}
    rows_left = room - len(shown[present])
    # Nearest first, later ones before earlier ones. One line is kept free for the count of hidden steps.
    others = sorted(set(range(len(steps))) - {present}, key=lambda index: (abs(index - present), -index))
    for index in others[: max(0, rows_left - 1)]:
        shown[index] = steps[index][:1]
        rows_left -= 1
    hidden = len(steps) - len(shown)
    lines = [line for index in sorted(shown) for line in shown[index]]
    if hidden and rows_left > 0:
        more = Content.styled(f"{UNICODE.ellipsis} {plural(hidden, 'more step')}", _MUTED)
        lines.append(PanelLine(_cut_line(more, width=width)))
    return lines


def _above_step(step: StepView, *, width: int, here: bool) -> list[PanelLine]:
    facts = _join_parts([*_attempt_words(step), *(_progress_words(step) if here else ())])
    title = _step_title(step, here=here) + Content.styled(f"  {facts}" if facts else "", _MUTED)
    tokens = count(step.tokens) if step.tokens is not None else ""
    time = clock(step.seconds) if step.seconds is not None else ""
    right = f"{tokens:>{_TOKENS_WIDTH}}{time:>{_TIME_WIDTH}}" if tokens or time else ""
    lines = []
    for label, checks in (("validations", step.validations), ("gates", step.gates)):
        if here and checks:
            lines.append(Content("  ").join([Content.styled(_INDENT + label, _MUTED), *map(_check_words, checks)]))
    lines += _reason_lines(step, width=width, most=1)
    return [
        PanelLine(_spread_line(title, right, width=width), step.number - 1),
        *(PanelLine(_cut_line(line, width=width)) for line in lines),
    ]


def _beside_step(step: StepView, *, width: int, here: bool) -> list[PanelLine]:
    time = clock(step.seconds) if step.seconds is not None else ""
    facts = [_join_parts([*_attempt_words(step), *(_progress_words(step) if here else ())])]
    facts += [f"{count(step.tokens)} tokens"] if here and step.tokens is not None else []
    lines = [Content.styled(_INDENT + fact, _MUTED) for fact in facts if fact]
    if here:
        lines += [Content.assemble(_INDENT, _check_words(check)) for check in step.validations]
        lines += [Content.assemble(_INDENT, _check_words(check, label="gate ")) for check in step.gates]
    lines += _reason_lines(step, width=width, most=4)
    return [
        PanelLine(_spread_line(_step_title(step, here=here), time, width=width), step.number - 1),
        *(PanelLine(_cut_line(line, width=width)) for line in lines),
    ]


def _step_title(step: StepView, *, here: bool) -> Content:
    sign, style = _MARKS[step.mark]
    word = f"  {step.word}" if step.word else ""
    name = f"{step.number} {one_line(step.name)}"
    return Content.assemble((f"{sign} ", style), (name, _STRONG if here else ""), (word, style))


def _attempt_words(step: StepView) -> list[str]:
    if step.attempt < 2:
        return []
    # The user may ask for attempts beyond the maximum.
    return [f"attempt {step.attempt}" + (f" of {step.attempts}" if step.attempt <= step.attempts else "")]


def _progress_words(step: StepView) -> list[str]:
    if not step.iteration:
        return []
    # After the last iteration comes a call without tools, in which the model has to answer.
    return ["closing call" if step.closing else f"iteration {step.iteration}/{step.iterations}"]


def _validation_counts(step: StepView) -> str:
    failing = f", {len(step.failing)} failing" if step.failing else ""
    return f"{step.passed}/{len(step.validations)} validated{failing}"


def _reason_lines(step: StepView, *, width: int, most: int) -> list[Content]:
    """Return why the step, or its last attempt, was not accepted."""
    if not step.refusal or step.mark is StepMark.DONE:
        return []
    style = _STYLES[step.mark] if step.mark is StepMark.FAILED else _MUTED
    text = one_line(step.refusal[:_LONGEST_REASON])
    parts = textwrap.wrap(text, max(1, width - len(_INDENT))) or [""]
    if len(parts) > most:
        parts = [*parts[: most - 1], f"{parts[most - 1]} {UNICODE.ellipsis}"]
    return [Content.styled(_INDENT + part, style) for part in parts]


def _check_words(check: StepCheck, label: str = "") -> Content:
    sign, style = _MARKS[check.mark]
    return Content.assemble(
        (f"{sign} ", style),
        (f"{label}{one_line(check.name)}", _MUTED if check.mark is StepMark.WAITING else ""),
        (f" {one_line(check.about)}" if check.about else "", _MUTED),
    )


def _problem_words(view: RunView, *, width: int) -> list[PanelLine]:
    if not view.problem:
        return []
    parts = textwrap.wrap(one_line(f"{view.problem} R tries again."), max(1, width))
    return [PanelLine(Content.styled(part, "$text-error")) for part in parts[:_MAX_PROBLEM_LINES]]


def _join_parts(parts: Sequence[str]) -> str:
    return " · ".join(parts)


def _spread_line(left: Content, right: str, *, width: int) -> Content:
    """Return a line with `left`, cut if needed, and `right` at its end. With too little room, `right` is omitted."""
    room = width - cell_len(f" {right}")
    # `left` keeps two thirds of the line, if it needs so much.
    if not right or room < min(width * 2 // 3, left.cell_length):
        return _cut_line(left, width=width)
    left = _cut_line(left, width=room)
    return Content.assemble(left, " " * (width - left.cell_length - cell_len(right)), (right, _MUTED))


def _cut_line(line: Content, *, width: int) -> Content:
    """Return the line in `width` cells, with an ellipsis if it was cut."""
    if line.cell_length <= width:
        return line
    kept = line.truncate(max(0, width - cell_len(UNICODE.ellipsis))).rstrip()
    # Cut from the whole line, so that the ellipsis has the style of what it stands for.
    return line.truncate(kept.cell_length + cell_len(UNICODE.ellipsis), ellipsis=True)
