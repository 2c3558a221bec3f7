"""The lines of a run's panel: folded to one, above the transcript, or beside it. Untrusted text is sanitised here."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from chatops.domain.wording import plural
from chatops.engine.workflow.view import RunView, StepCheck, StepMark, StepView
from chatops.tui.keymap import with_user_keys
from chatops.tui.status.status_line import count
from chatops.tui.theme import Symbols
from chatops.tui.transcript.lines import one_line, truncated

SpanTone = Literal["plain", "strong", "muted", "good", "warn", "bad"]
HINTS = ("ctrl+l outputs, ctrl+t folds", "ctrl+t folds")
"""The longest hint that fits is shown."""
_LONGEST_REASON = 400


@dataclass(frozen=True, slots=True)
class StyledSpan:
    """A part of a line. A click on it selects the step with the index `step`."""

    text: str
    tone: SpanTone = "plain"
    step: int | None = None


StyledLine = tuple[StyledSpan, ...]


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


def above(view: RunView, *, width: int, height: int, signs: Symbols) -> list[StyledLine]:
    """Return at most `height` lines over the whole width."""
    at = f" {signs.dot} step {view.at + 1} of {len(view.steps)}" if view.at is not None else ""
    tokens = f" {signs.dot} {count(view.tokens)} tokens" if view.tokens is not None else ""
    head = [StyledSpan(one_line(view.workflow), "strong"), StyledSpan("  "), StyledSpan(view.word, _tone(view.mark))]
    head.append(StyledSpan(f"{at}{tokens} {signs.dot} {clock(view.seconds)}", "muted"))
    room = width - sum(cell_len(one.text) for one in head) - 3
    hint = next((one for one in map(with_user_keys, HINTS) if cell_len(one) <= room), "")
    lines = [_spread(head, hint, width=width, signs=signs), *_problem(view, width=width)]
    steps = [_above_step(one, width=width, signs=signs, here=one.number - 1 == view.at) for one in view.steps]
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
    steps = [_beside_step(one, width=width, signs=signs, here=one.number - 1 == view.at) for one in view.steps]
    lines += _window(steps, view, room=height - len(lines) - 2, width=width, signs=signs)
    return [
        _cut(line, width=width, signs=signs) for line in (*lines, (), (StyledSpan(with_user_keys(HINTS[0]), "muted"),))
    ]


def clock(seconds: float) -> str:
    """Return a duration such as ``0:42``, ``12:05`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _window(
    steps: Sequence[list[StyledLine]], view: RunView, *, room: int, width: int, signs: Symbols
) -> list[StyledLine]:
    """Return the steps in `room` lines: the present one in full first, then its neighbours."""
    if sum(len(one) for one in steps) <= room:
        return [line for one in steps for line in one]
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
        lines += [(StyledSpan("    "), *_check(one, signs)) for one in step.validations]
        lines += [(StyledSpan("    "), *_check(one, signs, label="gate ")) for one in step.gates]
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
    for one in checks:
        spans.append(StyledSpan("  "))
        spans += _check(one, signs)
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
    if right and room >= min(width * 2 // 3, sum(cell_len(one.text) for one in spans)):
        cut = _cut(spans, width=room, signs=signs)
        used = sum(cell_len(one.text) for one in cut)
        return (*cut, StyledSpan(" " * (width - used - cell_len(right))), StyledSpan(right, "muted"))
    return _cut(spans, width=width, signs=signs)


def _cut(line: StyledLine, *, width: int, signs: Symbols) -> StyledLine:
    """Return the line in `width` cells, with an ellipsis if it was cut."""
    if sum(cell_len(one.text) for one in line) <= width:
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
