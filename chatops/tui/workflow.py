"""The panel of a workflow run, with its lines for each shape, and the texts about workflows and runs.

Untrusted text is sanitised in the lines. The texts are not; the code that shows them sanitises them.
"""

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.style import Style

from chatops.domain.canonical import json_or_text
from chatops.domain.events import TurnStatus
from chatops.domain.wording import as_fields, plural
from chatops.engine.workflow.state import AttemptRecord, AwaitingReview, CheckingGate, RunFinished, WorkflowState
from chatops.engine.workflow.view import RunView, StepCheck, StepMark, StepView
from chatops.policy.workflow import CommandGate, StepSpec
from chatops.tui.keys import key_of
from chatops.tui.status import count
from chatops.tui.textual_internals import ErrorBoundary
from chatops.tui.theme import Symbols, symbols_for
from chatops.tui.ticker import Moving
from chatops.tui.transcript.lines import one_line, truncated
from chatops.wiring.rows import RunRow, WorkflowRow

SpanTone = Literal["plain", "strong", "muted", "good", "warn", "bad"]
"""The longest hint that fits is shown."""
_LONGEST_REASON = 400
WIDE, TALL = 118, 22
"""From this window size on, the panel is beside the transcript."""
SIDE_WIDTH = 42
ROOMY_WIDTH, ROOMY_HEIGHT = 56, 20
"""Below this window size, the panel folds to one line by itself."""
USAGE = "/workflow run NAME QUERY"


@dataclass(frozen=True, slots=True)
class StyledSpan:
    """A part of a line. A click on it selects the step with the index `step`."""

    text: str
    tone: SpanTone = "plain"
    step: int | None = None


StyledLine = tuple[StyledSpan, ...]


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


class WorkflowPanel(ErrorBoundary, Moving):
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

    @dataclass
    class StepClicked(Message):
        """Posted when a step is clicked; `step` is its index."""

        step: int

    def __init__(self, look: Callable[[], RunView], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._look = look
        self._opened: bool | None = None
        self._lines: list[StyledLine] = []
        self._working = False

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
        view, size, shape = self._look(), self.app.size, self.shape
        self._working = view.working
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


def folded(view: RunView, *, width: int, signs: Symbols) -> list[StyledLine]:
    """Return one line: the current step, and as much of its state as fits."""
    step = view.steps[view.at] if view.at is not None else None
    parts = [view.word] if step is None or view.problem or view.mark is not StepMark.RUNNING else []
    if step is not None:
        parts.insert(0, f"{step.number}/{len(view.steps)} {one_line(step.name)}")
        parts += _progress(step)
        parts += [_validations(step)] if step.validations else []
    parts += [f"{count(view.tokens)} tokens"] if view.tokens is not None else []
    head = f"{_sign(view.mark, signs)} {one_line(view.workflow)} "
    end = clock(view.seconds)
    room = width - cell_len(head) - cell_len(end) - 2
    while len(parts) > 1 and cell_len(_joined(parts, signs)) > room:
        parts.pop()
    text = truncated(_joined(parts, signs), width=max(0, room), ellipsis=signs.ellipsis)
    left = (StyledSpan(head, _tone(view.mark)), StyledSpan(text))
    return [_spread(left, end, width=width, signs=signs)]


def _hints() -> tuple[str, str]:
    """Return the keys of the panel, in full and in short."""
    folds = f"{key_of('panel')} folds"
    return f"{key_of('steps')} outputs, {folds}", folds


def above(view: RunView, *, width: int, height: int, signs: Symbols) -> list[StyledLine]:
    """Return at most `height` lines over the whole width."""
    at = f" {signs.dot} step {view.at + 1} of {len(view.steps)}" if view.at is not None else ""
    tokens = f" {signs.dot} {count(view.tokens)} tokens" if view.tokens is not None else ""
    head = [StyledSpan(one_line(view.workflow), "strong"), StyledSpan("  "), StyledSpan(view.word, _tone(view.mark))]
    head.append(StyledSpan(f"{at}{tokens} {signs.dot} {clock(view.seconds)}", "muted"))
    room = width - sum(cell_len(span.text) for span in head) - 3
    hint = next((hint for hint in _hints() if cell_len(hint) <= room), "")
    lines = [_spread(head, hint, width=width, signs=signs), *_problem(view, width=width)]
    steps = [_above_step(step, width=width, signs=signs, here=step.number - 1 == view.at) for step in view.steps]
    return [*lines, *_window(steps, view, room=height - len(lines), width=width, signs=signs)]


def beside(view: RunView, *, width: int, height: int, signs: Symbols) -> list[StyledLine]:
    """Return at most `height` lines for a column at the side."""
    tokens = f" {signs.dot} {count(view.tokens)} tokens" if view.tokens is not None else ""
    lines = [
        _spread((StyledSpan(one_line(view.workflow), "strong"),), clock(view.seconds), width=width, signs=signs),
        (StyledSpan(view.word, _tone(view.mark)), StyledSpan(tokens, "muted")),
        *_problem(view, width=width),
        (),
    ]
    steps = [_beside_step(step, width=width, signs=signs, here=step.number - 1 == view.at) for step in view.steps]
    lines += _window(steps, view, room=height - len(lines) - 2, width=width, signs=signs)
    return [_cut(line, width=width, signs=signs) for line in (*lines, (), (StyledSpan(_hints()[0], "muted"),))]


def clock(seconds: float) -> str:
    """Return a duration such as ``0:42``, ``12:05`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _window(
    steps: Sequence[list[StyledLine]], view: RunView, *, room: int, width: int, signs: Symbols
) -> list[StyledLine]:
    """Return the steps in `room` lines: the present one in full first, then its neighbours."""
    if sum(len(lines) for lines in steps) <= room:
        return [line for lines in steps for line in lines]
    middle = view.at if view.at is not None else len(steps) - 1
    present = list(steps[middle])[: max(1, room)]
    left = room - len(present)
    first = last = middle
    shown = {middle: present}
    # Nearest first, later ones before earlier ones. One line is kept free for the count of hidden steps.
    while left > 1 and (first > 0 or last < len(steps) - 1):
        if last < len(steps) - 1 and (last - middle <= middle - first or first == 0):
            last += 1
            shown[last] = steps[last][:1]
        else:
            first -= 1
            shown[first] = steps[first][:1]
        left -= 1
    hidden = len(steps) - len(shown)
    lines = [line for index in sorted(shown) for line in shown[index]]
    if hidden and left:
        text = f"{signs.ellipsis} {plural(hidden, 'more step')}"
        lines.append((StyledSpan(truncated(text, width=width, ellipsis=signs.ellipsis), "muted"),))
    return lines


def _above_step(step: StepView, *, width: int, signs: Symbols, here: bool) -> list[StyledLine]:
    left = [*_title(step, signs, here=here)]
    facts = [*_attempt(step), *(_progress(step) if here else ())]
    if facts:
        left.append(StyledSpan(f"  {_joined(facts, signs)}", "muted"))
    tokens = count(step.tokens) if step.tokens is not None else ""
    time = clock(step.seconds) if step.seconds is not None else ""
    lines = [_spread(left, f"{tokens:>7}{time:>8}" if tokens or time else "", width=width, signs=signs)]
    if here:
        for label, checks in (("validations", step.validations), ("gates", step.gates)):
            if checks:
                lines.append(_checks(label, checks, width=width, signs=signs))
    return lines + [_cut(line, width=width, signs=signs) for line in _reason(step, width=width, most=1, signs=signs)]


def _beside_step(step: StepView, *, width: int, signs: Symbols, here: bool) -> list[StyledLine]:
    time = clock(step.seconds) if step.seconds is not None else ""
    lines = [_spread(_title(step, signs, here=here), time, width=width, signs=signs)]
    facts = [*_attempt(step), *(_progress(step) if here else ())]
    tokens = [f"{count(step.tokens)} tokens"] if here and step.tokens is not None else []
    if facts:
        lines.append((StyledSpan(f"    {_joined(facts, signs)}", "muted"),))
    if tokens:
        lines.append((StyledSpan(f"    {_joined(tokens, signs)}", "muted"),))
    if here:
        lines += [(StyledSpan("    "), *_check(check, signs)) for check in step.validations]
        lines += [(StyledSpan("    "), *_check(check, signs, label="gate ")) for check in step.gates]
    lines += _reason(step, width=width, most=4, signs=signs)
    return [_cut(line, width=width, signs=signs) for line in lines]


def _title(step: StepView, signs: Symbols, *, here: bool) -> Iterator[StyledSpan]:
    index = step.number - 1
    yield StyledSpan(f"{_sign(step.mark, signs)} ", _tone(step.mark), index)
    yield StyledSpan(f"{step.number} {one_line(step.name)}", "strong" if here else "plain", index)
    if step.word:
        yield StyledSpan(f"  {step.word}", _tone(step.mark), index)


def _attempt(step: StepView) -> list[str]:
    if step.attempt < 2:
        return []
    return [f"attempt {step.attempt}" + (f" of {step.attempts}" if step.attempt <= step.attempts else "")]


def _progress(step: StepView) -> list[str]:
    if not step.iteration:
        return []
    return ["closing call" if step.closing else f"iteration {step.iteration}/{step.iterations}"]


def _validations(step: StepView) -> str:
    failing = f", {len(step.failing)} failing" if step.failing else ""
    return f"{step.passed}/{len(step.validations)} validated{failing}"


def _reason(step: StepView, *, width: int, most: int, signs: Symbols) -> list[StyledLine]:
    """Return why the step, or its last attempt, was not accepted."""
    if not step.refusal or step.mark is StepMark.DONE:
        return []
    tone: SpanTone = "bad" if step.mark is StepMark.FAILED else "muted"
    text = one_line(step.refusal[:_LONGEST_REASON])
    parts = textwrap.wrap(text, max(1, width - 4)) or [""]
    if len(parts) > most:
        parts = [*parts[: most - 1], f"{parts[most - 1]} {signs.ellipsis}"]
    return [(StyledSpan(f"    {part}", tone),) for part in parts]


def _checks(label: str, checks: Sequence[StepCheck], *, width: int, signs: Symbols) -> StyledLine:
    spans = [StyledSpan(f"    {label}", "muted")]
    for check in checks:
        spans.append(StyledSpan("  "))
        spans += _check(check, signs)
    return _cut(tuple(spans), width=width, signs=signs)


def _check(check: StepCheck, signs: Symbols, *, label: str = "") -> Iterator[StyledSpan]:
    yield StyledSpan(f"{_sign(check.mark, signs)} ", _tone(check.mark))
    yield StyledSpan(f"{label}{one_line(check.name)}", "muted" if check.mark is StepMark.WAITING else "plain")
    if check.about:
        yield StyledSpan(f" {one_line(check.about)}", "muted")


def _problem(view: RunView, *, width: int) -> list[StyledLine]:
    if not view.problem:
        return []
    parts = textwrap.wrap(one_line(f"{view.problem} R tries again."), max(1, width))
    return [(StyledSpan(part, "bad"),) for part in parts[:3]]


def _sign(mark: StepMark, signs: Symbols) -> str:
    match mark:
        case StepMark.WAITING:
            return signs.dot
        case StepMark.RUNNING:
            return signs.folded
        case StepMark.ASKING:
            return signs.waiting
        case StepMark.DONE:
            return signs.done
        case StepMark.FAILED:
            return signs.failed
        case StepMark.SKIPPED:
            return signs.minus


def _tone(mark: StepMark) -> SpanTone:
    match mark:
        case StepMark.WAITING | StepMark.SKIPPED:
            return "muted"
        case StepMark.RUNNING:
            return "strong"
        case StepMark.ASKING:
            return "warn"
        case StepMark.DONE:
            return "good"
        case StepMark.FAILED:
            return "bad"


def _joined(parts: Sequence[str], signs: Symbols) -> str:
    return f" {signs.dot} ".join(parts)


def _spread(left: Sequence[StyledSpan] | Iterator[StyledSpan], right: str, *, width: int, signs: Symbols) -> StyledLine:
    """Return a line with `left`, and `right` at its end.

    `left` is cut if needed. With too little room, `right` is omitted.
    """
    spans = tuple(left)
    room = width - cell_len(right) - 1
    if right and room >= min(width * 2 // 3, sum(cell_len(span.text) for span in spans)):
        cut = _cut(spans, width=room, signs=signs)
        used = sum(cell_len(span.text) for span in cut)
        return (*cut, StyledSpan(" " * (width - used - cell_len(right))), StyledSpan(right, "muted"))
    return _cut(spans, width=width, signs=signs)


def _cut(line: StyledLine, *, width: int, signs: Symbols) -> StyledLine:
    """Return the line in `width` cells, with an ellipsis if it was cut."""
    if sum(cell_len(span.text) for span in line) <= width:
        return line
    kept: list[StyledSpan] = []
    left = width
    for span in line:
        if cell_len(span.text) < left:
            kept.append(span)
            left -= cell_len(span.text)
            continue
        kept.append(StyledSpan(truncated(f"{span.text} ", width=left, ellipsis=signs.ellipsis), span.tone, span.step))
        break
    return tuple(kept)


def step_text(run: WorkflowState, view: StepView) -> str:
    """Return the output of a step, or why it has none, and the result of each of its attempts."""
    index = view.number - 1
    spec = run.spec.step(index)
    lines = [f"{view.word or view.mark.value}", *_facts(spec)]
    output = _output(run, index)
    if output:
        lines += ["", "Output", *(f"  {line}" for line in as_fields(output).split("\n"))]
    if view.refusal:
        lines += ["", "Not accepted because", *(f"  {line}" for line in view.refusal.split("\n"))]
    records = [record for record in run.attempts if record.step == index]
    if records:
        lines += ["", "Attempts", *(line for record in records for line in _record(record))]
    return "\n".join(lines)


def readable(text: str) -> str:
    """Return JSON pretty-printed, as the user accepts it; any other text as it is."""
    value = json_or_text(text) if text[:1] in ("{", "[") else text
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def listing(workflows: Sequence[WorkflowRow], runs: Sequence[RunRow]) -> str:
    """Return the list of workflows, and of the runs that have not ended."""
    lines: list[str] = []
    for row in workflows:
        if row.problem:
            lines += [row.name, *(f"  cannot be used: {line}" for line in row.problem.split("\n")), ""]
        else:
            lines += [
                f"{row.name}: {' → '.join(row.steps)}",
                *([f"  {row.description}"] if row.description else []),
                "",
            ]
    if not workflows:
        lines += ["None is defined. Define one under workflows in the registry, or as a file beside it.", ""]
    lines += ["Unfinished runs"]
    lines += [f"  {row.id}   {row.state}, {row.when}\n    {row.title}" for row in runs] or ["  none"]
    lines += ["", f"{USAGE} starts one. /workflow resume ID resumes one."]
    return "\n".join(lines)


def attempts_text(run: WorkflowState, step: int) -> list[str]:
    """Return one line per attempt at a step that was not accepted, with the reason."""
    failed = [record for record in run.attempts if record.step == step and record.status is not TurnStatus.ANSWERED]
    return [f"attempt {record.attempt}{_gate(record)}: {' '.join(record.detail.split())}" for record in failed]


def _output(run: WorkflowState, index: int) -> str:
    """Return the accepted result, or the answer that waits for its gates or for the user."""
    phase = run.phase
    if isinstance(phase, AwaitingReview | CheckingGate) and phase.step == index:
        return phase.answer
    given = next((output.text for output in run.outputs if output.step == index), "")
    if not given and isinstance(phase, RunFinished) and index == len(run.spec.steps) - 1:
        return phase.answer
    return given


def _facts(spec: StepSpec) -> Iterator[str]:
    facts = [
        ("role", spec.role),
        ("model", spec.model),
        ("tools", "all of the role" if spec.tools is None else ", ".join(spec.tools) or "none"),
        ("has to pass", ", ".join(dict.fromkeys(check.tool for check in spec.validations))),
        ("gates", ", ".join(f"{gate.name} ({_tested(gate)})" for gate in spec.gates)),
        ("review", "the user accepts the answer" if spec.review else ""),
    ]
    return (f"{label + ':':<13}{text}" for label, text in facts if text)


def _tested(gate: object) -> str:
    return gate.command if isinstance(gate, CommandGate) else "pattern"


def _record(record: AttemptRecord) -> Iterator[str]:
    usage = record.usage
    tokens = f", {usage.input_tokens + usage.output_tokens:,} tokens" if usage is not None else ""
    yield f"  attempt {record.attempt}{_gate(record)}: {record.status.value}{tokens}"
    if record.detail:
        yield from (f"      {line}" for line in record.detail.split("\n"))


def _gate(record: AttemptRecord) -> str:
    return f", gate {record.gate}" if record.gate else ""
