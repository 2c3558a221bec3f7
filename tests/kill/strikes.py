"""When a kill strikes: at a named place of the program, or a random while after something that can be seen outside."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Phase(IntEnum):
    """Progress of a turn with one gated call, as in the list of faults (D01: death in P0, D11: death in P10)."""

    TYPED = 0
    """Typed, not sent."""
    ASKED = 1
    """The request is sent, no byte has come."""
    STREAMING = 2
    """Text of the reply is coming."""
    PROPOSED = 3
    """The call is complete and not yet checked."""
    WAITING = 4
    """The dialog is open."""
    APPROVED = 5
    """Approved, not started."""
    RUNNING = 6
    """The intent to run it is stored; the tool may have begun."""
    RETURNED = 7
    """The tool has ended, its result is not stored."""
    RECORDED = 8
    """The result is stored, the next request is not sent."""
    CONCLUDING = 9
    """The next reply is coming."""
    DONE = 10
    """The turn is over."""


class EntryPoint(StrEnum):
    """Entry point at which the program is used."""

    SCREEN = "screen"
    """The chat on a terminal."""
    SHELL = "shell"
    """`chatops -p` and the commands that go on with it."""


class Moment(StrEnum):
    """Moments that can be observed from outside."""

    TYPED = "typed"
    """The message stands in its field, not sent."""
    BEGUN = "begun"
    """The program has been started."""
    KEPT = "kept"
    """A message is kept while a call waits, and sent when that turn is over."""
    ASKED = "asked"
    """The server has the request, and says nothing."""
    TEXT = "text"
    """The first words of the reply are shown."""
    DIALOG = "dialog"
    """The call is shown, and can be approved."""
    DECIDING = "deciding"
    """A command in another terminal decides."""
    STARTED = "started"
    """The command or function has begun."""
    ANSWER = "answer"
    """The first words of the last reply are shown."""
    OVER = "over"
    """The turn is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One kill: within `phase`, at `point` (as CHATOPS_FAILPOINT takes it) or `delay_s` after `moment`."""

    phase: Phase
    point: str = ""
    moment: Moment | None = None
    delay_s: float = 0.0

    def __str__(self) -> str:
        return f"P{self.phase.value} {self.point or f'{self.delay_s:.3f} s after {self.moment}'}"


_START = ("before_commit", "in_commit", "after_commit", "after_publish")
_STEP_MS = 4.0
"""Milliseconds that a kill may strike after one of the many places between two steps."""


def _step(number: int, *names: str) -> tuple[str, ...]:
    return tuple(f"{name}:{number}" for name in names)


SCREEN: Mapping[Phase, tuple[tuple[str, ...], Moment | None, float]] = {
    # Places of one turn in the chat; something that can be seen; how many seconds after it at most.
    Phase.TYPED: (("after_create:1", *_step(1, *_START), "before_model:1"), Moment.TYPED, 1.2),
    Phase.ASKED: ((), Moment.ASKED, 0.4),
    Phase.STREAMING: (_step(1, "in_stream"), Moment.TEXT, 0.4),
    Phase.PROPOSED: (
        ("after_model:1", "after_inspect:1", *_step(2, "before_commit", "in_commit")),
        None,
        0.0,
    ),
    Phase.WAITING: (_step(2, "after_commit", "after_publish"), Moment.DIALOG, 0.8),
    Phase.APPROVED: (
        (*_step(3, *_START), "after_inspect:2", *_step(4, "before_commit", "in_commit")),
        Moment.DECIDING,
        0.1,
    ),
    Phase.RUNNING: (
        (
            *_step(4, "after_commit", "after_publish"),
            "before_tool:1",
            "after_spawn:1",
            "before_rename:1",
            "after_rename:1",
        ),
        Moment.STARTED,
        0.3,
    ),
    Phase.RETURNED: (("after_tool:1", *_step(5, "before_commit", "in_commit")), None, 0.0),
    Phase.RECORDED: ((*_step(5, "after_commit", "after_publish"), "before_model:2"), None, 0.0),
    Phase.CONCLUDING: (("in_stream:4", "after_model:2", *_step(6, "before_commit", "in_commit")), Moment.ANSWER, 0.4),
    Phase.DONE: (_step(6, "after_commit", "after_publish"), Moment.OVER, 0.5),
}

SHELL: Mapping[Phase, tuple[tuple[str, ...], Moment | None, float]] = {
    # Up to the question in `chatops -p`, after it in `chatops resume`, which counts anew.
    Phase.TYPED: (("after_create:1", *_step(1, *_START), "before_model:1"), Moment.BEGUN, 0.2),
    Phase.ASKED: ((), Moment.ASKED, 0.3),
    Phase.STREAMING: (_step(1, "in_stream"), Moment.TEXT, 0.3),
    Phase.PROPOSED: SCREEN[Phase.PROPOSED],
    Phase.WAITING: ((*_step(2, "after_commit", "after_publish"), "in_posting:1"), Moment.DECIDING, 0.15),
    Phase.APPROVED: (
        (
            *_step(1, *_START),
            "decision_found:1",
            *_step(2, *_START),
            "after_inspect:1",
            *_step(3, "before_commit", "in_commit"),
        ),
        None,
        0.0,
    ),
    Phase.RUNNING: (
        (
            *_step(3, "after_commit", "after_publish"),
            "before_tool:1",
            "after_spawn:1",
            "before_rename:1",
            "after_rename:1",
        ),
        Moment.STARTED,
        0.3,
    ),
    Phase.RETURNED: (("after_tool:1", *_step(4, "before_commit", "in_commit")), None, 0.0),
    Phase.RECORDED: ((*_step(4, "after_commit", "after_publish"), "before_model:1"), None, 0.0),
    Phase.CONCLUDING: (("in_stream:1", "after_model:1", *_step(5, "before_commit", "in_commit")), Moment.ANSWER, 0.3),
    Phase.DONE: (_step(5, "after_commit", "after_publish"), None, 0.0),
}


def strike(entry_point: EntryPoint, phase: Phase, chance: random.Random) -> Strike:
    """One of the ways to kill in that phase, at random."""
    points, moment, longest = (SCREEN if entry_point is EntryPoint.SCREEN else SHELL)[phase]
    if phase is Phase.TYPED and entry_point is EntryPoint.SCREEN and chance.random() < 0.2:
        point = chance.choice(("sending_kept:1", *_step(7, *_START)))
        return Strike(phase=phase, moment=Moment.KEPT, point=point)
    if moment is not None and (not points or chance.random() < 0.5):
        return Strike(phase=phase, moment=moment, delay_s=chance.uniform(0, longest))
    point = chance.choice(points)
    if chance.random() < 0.5:
        point = f"{point}+{chance.uniform(0, _STEP_MS):.2f}"
    return Strike(phase=phase, point=point)


def kind_for(wanted: Strike, chance: random.Random) -> str:
    """Choose an effect at random among those that reach the place."""
    if wanted.point.startswith("after_spawn"):
        return "shell"
    if "rename" in wanted.point:
        return chance.choice(("edit", "write"))
    if wanted.moment is Moment.STARTED:
        return chance.choice(("shell", "note"))
    return chance.choice(("shell", "edit", "write", "note"))
