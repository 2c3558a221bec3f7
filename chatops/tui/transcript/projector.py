"""Turns a session's events into blocks, without needing a terminal.

Theory of operation
-------------------
The transcript shows a list of blocks (`blocks`). `Projector` keeps that list in the order of the screen and turns
events into changes of it: `feed` returns the operations (`Put`, `Extend`, `Remove`) that bring the screen up to
date, and `feed_all` joins neighbouring deltas of one text.

A session that is opened is `load`ed first, from the events that `engine.replay` makes of what is stored. There is no
other way in, so that a session that is resumed looks like one that was watched. One difference is known: how a turn
ended is stored for the last turn only, so the closing line of an earlier cancelled turn is gone after a restart.

Rules:

- A block's id is made from the ids of its events: ``TURN.user``, the id of an answer, ``ANSWER.reasoning``, the id of a
  call, ``TURN.end``. A block that exists already is replaced in place, so a notice that is published twice is shown
  once.
- Events arrive in the order of the work, blocks are in the order of reading. Text goes before the cards of its round,
  and reasoning before its answer, although the final text arrives after the first card.
- Streamed text is only appended to (`Extend`). The final text is put in its place, and drawn again only if it differs.
- Reasoning that led to neither text nor calls is not stored, so its block is removed. A turn stopped in the middle of a
  reply keeps the text and marks it incomplete.
- Calls beyond the limit of a reply share one card per round.
- In a workflow run, a turn starts with a step line instead of a user message, and the accepted answer is not repeated
  at its end.
- Text stays unsanitised here. The code that draws a block sanitises it.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import assert_never

from chatops.domain.events import (
    AnswerRefused,
    ApprovalRequested,
    CallDecided,
    CallProgressed,
    CallProposed,
    CallStreamed,
    Event,
    GateChecked,
    Notice,
    NoticeChanged,
    Published,
    ReasoningDelta,
    ReviewRequested,
    RoleSwitched,
    RoundClosed,
    RoundStarted,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ThoughtFinished,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnCorrected,
    TurnFinished,
    TurnPaused,
    TurnStarted,
    TurnStatus,
    WorkflowFinished,
    WorkflowStarted,
)
from chatops.domain.ids import CallId, RoundId, is_child, thought_id
from chatops.domain.messages import RoleSwitchMessage, Speaker
from chatops.domain.tools import BUDGET_EXTEND, CONTAINED_APPLY, ResultSource
from chatops.domain.wording import as_fields
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    CardStatus,
    Extend,
    NoticeBlock,
    Op,
    Put,
    ReasoningBlock,
    Remove,
    StepBlock,
    ToolCardBlock,
    UserBlock,
    finished_card,
    pending_card,
    surplus_card,
)

_OURS = "[chatops] "
"""Beginning of messages to the model that are not the user's."""
_LONGEST_ANSWER = 100_000
"""Characters. A longer answer is shown as it was written instead of as fields."""
_LIVE_OUTPUT = 8_000
"""Characters kept of the output of a tool that is still running."""
_FRAME_SECONDS = 0.05
"""Twenty frames a second. More would cost CPU and bytes, and no one reads faster."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """The text of a block that is still growing, as a list so that nothing is copied per delta."""

    parts: list[str]

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Projector:
    """Keeps the blocks as the screen has them. `feed` returns the changes."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        """Blocks by id, in the order of the screen."""
        self._streams: dict[str, _Open] = {}
        self._turn = ""
        self._turn_answer = ""
        self._surplus: Counter[str] = Counter()
        self._first_cards: dict[str, str] = {}
        """The first card of each round. The model's text is put before it."""
        self._run_turns: dict[str, str] = {}
        """The turns of a workflow run with the title of their step; empty for a gate, which its own message names."""
        self._typed = False
        """True while the calls are commands that the user has typed."""
        self._retry = ""
        """Id of the error that says that R retries; empty if none does."""

    def load(self, events: Iterable[Event]) -> list[Block]:
        """Return the blocks of a session that is opened. Call it first."""
        for event in events:
            self._take(event)
        return list(self.blocks.values())

    def feed_all(self, batch: Iterable[Published]) -> list[Op]:
        """Return the operations for several events, with neighbouring deltas of one text joined."""
        ops: list[Op] = []
        for published in batch:
            for op in self.feed(published):
                last = ops[-1] if ops else None
                if isinstance(op, Extend) and isinstance(last, Extend) and last.id == op.id:
                    ops[-1] = Extend(id=op.id, text=last.text + op.text)
                else:
                    ops.append(op)
        return ops

    def feed(self, published: Published) -> list[Op]:
        """Return the operations for one event."""
        return self._take(published.event, at=published.at)

    def _take(self, event: Event, *, at: float = 0.0) -> list[Op]:
        match event:
            case TurnStarted() | TurnCorrected():
                return self._user_spoke(event)
            case TextDelta() | ReasoningDelta():
                return self._grow(event)
            case ThoughtFinished():
                return self._thought_finished(event)
            case CallProposed() | ApprovalRequested() | CallDecided() | ToolStarted() | ToolOutput() | ToolFinished():
                return self._call(at, event)
            case TurnFinished():
                return self._turn_finished(event)
            case RoleSwitched() | Notice() | NoticeChanged():
                return self._switch_or_notice(event)
            case RoundClosed():
                return self._round_closed(event.id)
            case StepStarted() | AnswerRefused() | WorkflowFinished():
                return self._run_moved(event)
            case RoundStarted() | TurnPaused() | WorkflowStarted() | GateChecked() | StepFinished() | ReviewRequested():
                return []
            case CallStreamed() | CallProgressed():
                return []  # The transcript draws it when it draws what moves.
            case _ as never:
                assert_never(never)

    def permit(self, permitted: Mapping[CallId, str]) -> list[Op]:
        """Mark calls that wait for others of their round as permitted, with who or what allowed them."""
        waiting = ((self.blocks.get(call_id), by) for call_id, by in permitted.items())
        return [
            self._put(replace(card, status=CardStatus.PERMITTED, decided_by=by))
            for card, by in waiting
            if isinstance(card, ToolCardBlock) and card.status is CardStatus.UNSETTLED
        ]

    def offer_retry(self, offered: bool) -> list[Op]:
        """Say at the last error of the session that R retries, or no longer say it."""
        blocks = reversed(self.blocks.values()) if offered else ()
        wanted = next((block.id for block in blocks if isinstance(block, NoticeBlock) and block.level == "error"), "")
        if wanted == self._retry:
            return []
        known = [self.blocks.get(key) for key in (self._retry, wanted)]
        self._retry = wanted
        return [
            self._put(replace(block, retry=block.id == wanted)) for block in known if isinstance(block, NoticeBlock)
        ]

    def _switch_or_notice(self, event: RoleSwitched | Notice | NoticeChanged) -> list[Op]:
        match event:
            case RoleSwitched(switch=switch):
                last = next(reversed(self.blocks.values()), None)
                divider = role_divider(switch, after=last)
                if divider is None:
                    return self._remove(last.id) if last is not None else []
                return [self._put(divider)]
            case Notice():
                notice = NoticeBlock(id=event.id, text=event.text, advice=event.advice, level=event.level)
                return [self._put(notice)]
            case NoticeChanged(id=key, text=text):
                known = self.blocks.get(key)
                return [self._put(replace(known, text=text))] if isinstance(known, NoticeBlock) else []

    def _user_spoke(self, event: TurnStarted | TurnCorrected) -> list[Op]:
        if isinstance(event, TurnCorrected):
            self._typed = False
            said = UserBlock(id=event.id, text=event.text, files=event.files, role=event.role)
            return [*self._close_open(""), self._put(said)]
        self._turn, self._turn_answer, self._typed = event.id, "", event.by is Speaker.COMMAND
        block_id = f"{event.id}.user"
        if event.by is Speaker.MACHINE:
            # A copy of a run's session does not know its steps.
            unknown = "Delegated task" if is_child(event.parent_id) else "Workflow step"
            title = self._run_turns.setdefault(event.id, unknown if event.model else "")
            if title:
                return [self._put(StepBlock(id=block_id, title=title, text=event.text))]
            return [self._put(StepBlock(id=block_id, title=event.text.removeprefix(_OURS)))]
        if not event.model:
            # Of an undo, only its question and its result are shown.
            return []
        return [self._put(UserBlock(id=block_id, text=event.text, files=event.files, role=event.role))]

    def _run_moved(self, event: StepStarted | AnswerRefused | WorkflowFinished) -> list[Op]:
        match event:
            case StepStarted():
                self._run_turns[event.turn_id] = _title(event)
                return []
            case AnswerRefused(final=True):
                # The end of the attempt says it.
                return []
            case AnswerRefused():
                text = f"Answer not accepted. The model was told: {event.reason.removeprefix(_OURS)}"
                return [self._put(NoticeBlock(id=f"{event.id}.refused", text=text, level="warning"))]
            case WorkflowFinished():
                return [self._put(_run_end_block(event))]

    def _grow(self, event: TextDelta | ReasoningDelta) -> list[Op]:
        block_id = event.id if isinstance(event, TextDelta) else f"{event.id}.reasoning"
        stream = self._streams.get(block_id)
        if stream is not None:
            stream.parts.append(event.text)
            return [Extend(id=block_id, text=event.text)]
        if not event.text.strip():
            return []
        self._streams[block_id] = _Open(parts=[event.text])
        if isinstance(event, TextDelta):
            return [self._put(AnswerBlock(id=block_id, text=event.text, open=True))]
        return [self._put(ReasoningBlock(id=block_id, text=event.text, open=True), before=event.id)]

    def _thought_finished(self, event: ThoughtFinished) -> list[Op]:
        first_call = self._first_card(event.parent_id)
        ops: list[Op] = []
        reasoning_id = f"{event.id}.reasoning"
        if event.reasoning or reasoning_id in self.blocks:
            place = event.id if event.id in self.blocks else first_call
            ops += self._finish(ReasoningBlock(id=reasoning_id, text=event.reasoning), before=place)
        text = json_as_fields(event.text) if self._turn in self._run_turns else event.text
        self._turn_answer = event.text or self._turn_answer
        answer = AnswerBlock(id=event.id, text=text, incomplete=event.status is Status.ERROR)
        return [*ops, *self._finish(answer, before=first_call)]

    def _round_closed(self, round_id: RoundId) -> list[Op]:
        """Remove reasoning that led to neither text nor calls, because it is not stored either."""
        thought = thought_id(round_id)
        if thought in self.blocks or self._first_card(round_id):
            return []
        return self._remove(f"{thought}.reasoning")

    def _first_card(self, round_id: str) -> str:
        """Return the first card of a round, or an empty string."""
        card = self._first_cards.get(round_id, "")
        return card if card in self.blocks else ""

    def _finish(self, block: AnswerBlock | ReasoningBlock, *, before: str) -> list[Op]:
        """Put the final text in place of the streamed one."""
        self._streams.pop(block.id, None)
        return [self._put(block, before=before)] if block.text.strip() else self._remove(block.id)

    def _call(
        self, at: float, event: CallProposed | ApprovalRequested | CallDecided | ToolStarted | ToolOutput | ToolFinished
    ) -> list[Op]:
        known = self.blocks.get(event.id)
        own = known.own if isinstance(known, ToolCardBlock) else self._typed
        self._first_cards.setdefault(event.parent_id, event.id)
        if isinstance(event, ToolFinished):
            return self._call_finished(event, own=own)
        card = known if isinstance(known, ToolCardBlock) else ToolCardBlock(id=event.id, tool="", arguments="", own=own)
        match event:
            case CallProposed():
                card = ToolCardBlock(id=event.id, tool=event.tool, arguments=event.arguments, own=own)
            case ApprovalRequested(pending=pending) if pending.call.id != event.id:
                # A call of the child that this one waits for.
                why = f"{pending.role} asks about {pending.call.name}"
                card = replace(card, status=CardStatus.WAITING, asks_because=why)
            case ApprovalRequested():
                card = pending_card(card, event.pending)
            case CallDecided():
                card = replace(card, status=CardStatus.UNSETTLED, asks_because="", diff="", added=0, removed=0)
            case ToolStarted():
                card = replace(
                    card,
                    tool=event.tool,
                    arguments=event.arguments,
                    decided_by=event.decided_by,
                    status=CardStatus.RUNNING,
                    output="",
                    started_at=at,
                )
            case ToolOutput():
                output = (card.output + event.text)[-_LIVE_OUTPUT:]
                card = replace(card, status=CardStatus.RUNNING, asks_because="", output=output)
            case _ as never:
                assert_never(never)
        return [self._put(card)]

    def _call_finished(self, event: ToolFinished, *, own: bool) -> list[Op]:
        match event.facts.source:
            case ResultSource.SURPLUS:
                # All calls of a round that are not looked at share one card.
                self._surplus[event.parent_id] += 1
                shared = surplus_card(event.parent_id, self._surplus[event.parent_id])
                return [*self._remove(event.id), self._put(shared)]
            case ResultSource.HELD:
                card = ToolCardBlock(id=event.id, tool=event.tool, arguments=event.arguments, own=own)
                return [self._put(replace(card, status=CardStatus.HELD))]
            case _ if event.tool in (CONTAINED_APPLY, BUDGET_EXTEND):
                # The notice that follows tells the result, also after the session was opened again.
                return self._remove(event.id)
            case _:
                return [self._put(finished_card(event.id, event, own=own))]

    def _turn_finished(self, event: TurnFinished) -> list[Op]:
        ops = self._close_open(event.answer)
        step = self._run_turns.get(event.id)
        # The answer of an attempt is the accepted text of the model, which is shown already.
        if step is None and event.answer.strip() and event.answer != self._turn_answer:
            ops.append(self._put(AnswerBlock(id=f"{event.id}.answer", text=event.answer)))
        end = _end_block(event, step)
        return [*ops, self._put(end)] if end is not None else ops

    def _close_open(self, answer: str) -> list[Op]:
        """Close the text of a stopped reply, which gets no ThoughtFinished. Reasoning alone is removed."""
        ops: list[Op] = []
        spoken = any(isinstance(self.blocks.get(key), AnswerBlock) for key in self._streams)
        for key in list(self._streams):
            text = self._streams.pop(key).text
            match self.blocks.get(key):
                case ReasoningBlock() as block if spoken:
                    ops.append(self._put(replace(block, text=text, open=False)))
                case ReasoningBlock():
                    ops.extend(self._remove(key))
                case AnswerBlock():
                    self._turn_answer = answer or text
                    ops.append(self._put(AnswerBlock(id=key, text=self._turn_answer, incomplete=True)))
        return ops

    def _put(self, block: Block, *, before: str = "") -> Op:
        moved = list[str]()
        if block.id not in self.blocks and before in self.blocks:
            moved = list(self.blocks)[list(self.blocks).index(before) :]
        self.blocks[block.id] = block
        for key in moved:
            self.blocks[key] = self.blocks.pop(key)
        return Put(block=block, before=before)

    def _remove(self, block_id: str) -> list[Op]:
        self._streams.pop(block_id, None)
        return [Remove(id=block_id)] if self.blocks.pop(block_id, None) is not None else []


def _end_block(event: TurnFinished, step: str | None) -> NoticeBlock | None:
    """Return the line under a turn that was stopped or reached a limit, or an attempt at `step` that was not accepted.

    None if a notice gives the reason already. A failed turn of a chat always has one.
    """
    block = NoticeBlock(id=f"{event.id}.end", text=event.detail, advice=event.advice if step is None else "")
    match event.result:
        case TurnStatus.CANCELLED:
            return replace(block, text=event.detail or "Stopped.")
        case TurnStatus.LIMIT if step is None and not event.noticed:
            return replace(block, text=event.detail or "A limit was reached.", level="warning")
        case TurnStatus.FAILED | TurnStatus.LIMIT if step and not event.noticed:
            return replace(block, text=f"Attempt failed. {event.detail}".rstrip(), level="warning")
        case _:
            return None


def _run_end_block(event: WorkflowFinished) -> NoticeBlock:
    return NoticeBlock(
        id=f"{event.id}.run",
        text=f"Run ended: {event.result}. {event.detail}".rstrip(),
        advice="/workflow show STEP shows the answer of a step.",
        level="error" if event.result == TurnStatus.FAILED else "info",
    )


def _title(event: StepStarted) -> str:
    of = f" of {event.attempts}" if event.attempt <= event.attempts else ""
    return f"Step {event.step + 1}: {event.name}" + (f", attempt {event.attempt}{of}" if event.attempt > 1 else "")


def json_as_fields(text: str) -> str:
    """Return an answer that is one JSON value as a code block with a line per field, any other as it is."""
    if len(text) > _LONGEST_ANSWER or (fields := as_fields(text)) == text:
        return text
    # Longer than any in the text, so that nothing in it ends the block.
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", fields))])
    return f"{fence}\n{fields}\n{fence}"


def role_divider(switch: RoleSwitchMessage, *, after: Block | None = None) -> RoleSwitchMessage | None:
    """Return the line of a role switch. If the block before it, `after`, is such a line, it replaces that one.

    None if both together lead back to the role and the tools before the first.
    """
    if not isinstance(after, RoleSwitchMessage):
        return switch
    divider = replace(
        switch,
        id=after.id,
        before=after.before,
        added=_net(after.added, switch.added, switch.removed, after.removed),
        removed=_net(after.removed, switch.removed, switch.added, after.added),
    )
    back = switch.before != switch.after == after.before and not (divider.added or divider.removed)
    return None if back and not divider.suspended else divider


def _net(earlier: Sequence[str], later: Sequence[str], undone: Sequence[str], undoes: Sequence[str]) -> tuple[str, ...]:
    """Return the tools of one side after two changes: those of the first that the second kept, and its own new ones."""
    kept = [name for name in earlier if name not in undone]
    return (*kept, *(name for name in later if name not in undoes and name not in kept))


def is_delta(event: Event) -> bool:
    """Return True if an event only continues a text or a call. There may be hundreds of them per second."""
    return isinstance(event, TextDelta | ReasoningDelta | CallStreamed | ToolOutput | CallProgressed)


class FrameBuffer:
    """Passes events on in batches. Deltas wait for the next frame; the end of a text and any other event do not.

    A timer runs only while something waits, so an idle session costs nothing. Call it on the event loop.
    """

    def __init__(self, flush: Callable[[list[Published]], object], *, seconds: float = _FRAME_SECONDS) -> None:
        self._flush = flush
        self._seconds = seconds
        self._waiting: list[Published] = []
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        """The earliest time of the next frame."""
        self._at_once = False
        self._holds = 0

    def __call__(self, published: Published) -> None:
        """Add an event. A listener for `Session.subscribe`."""
        self._waiting.append(published)
        if self._holds:
            return
        event = published.event
        patient = is_delta(event) and not (isinstance(event, TextDelta) and not event.text)
        if self._timer is not None and (patient or self._at_once):
            return
        self._stop_timer()
        loop = asyncio.get_running_loop()
        due = max(0.0, self._next - loop.time()) if patient else 0.0
        self._at_once = not due
        self._timer = loop.call_later(due, self.flush)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep all events while the block runs, and pass them on after it."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self.flush()

    def flush(self) -> None:
        """Pass waiting events on now."""
        self._stop_timer()
        if self._waiting:
            batch, self._waiting = self._waiting, []
            if any(is_delta(published.event) for published in batch):
                # The first delta of an answer does not wait for a frame that only drew the question.
                self._next = asyncio.get_running_loop().time() + self._seconds
            self._flush(batch)

    def drop(self) -> None:
        """Drop waiting events, because a snapshot taken now contains them."""
        self._stop_timer()
        self._waiting = []

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
