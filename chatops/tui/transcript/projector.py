"""Turns a session's stored messages and events into blocks, without needing a terminal.

Theory of operation
-------------------
The transcript shows a list of blocks (`blocks`). `Projector` keeps that list in the order of the screen and turns
events into changes of it. There are two ways to fill it:

- `load` draws what is stored, from a snapshot. It returns all blocks.
- `feed` follows events. It returns the operations (`Append`, `Replace`, `Extend`, `Close`, `Remove`) that bring the
  screen up to date. `feed_all` joins neighbouring deltas of one text.

The main invariant: both ways give the same blocks with the same ids. A session that is resumed therefore looks like one
that was watched. Both use the same functions for single blocks (`stored_blocks`), and a property test compares them.
One difference is known: how a turn ended is stored for the last turn only, so the closing line of an earlier cancelled
turn is gone after a restart.

Rules:

- A block's id is made from ids of the session: ``TURN.user``, the id of an answer, ``ANSWER.reasoning``, the id of a
  call, ``TURN.end``. A block that exists already is replaced in place, so a notice that is published twice is shown
  once.
- Events arrive in the order of the work, blocks are in the order of reading. Text goes before the cards of its round,
  and reasoning before its answer, although the final text arrives after the first card.
- Streamed text is only appended to (`Extend`). When the final text arrives and equals the streamed one, the block is
  closed and not drawn again. Otherwise it is replaced.
- Reasoning that led to neither text nor calls is not stored, so its block is removed. A turn stopped in the middle of a
  reply keeps the text and marks it incomplete.
- Calls beyond the limit of a reply share one card per round.
- In a workflow run (`run_turns`), a turn starts with a step line instead of a user message, and the accepted answer is
  not repeated at its end.
- Text stays unsanitised here. The code that draws a block sanitises it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import assert_never

from chatops.domain.events import (
    AnswerRefused,
    ApprovalRequested,
    CallDecided,
    CallProposed,
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
    WorkflowFinished,
    WorkflowStarted,
)
from chatops.domain.ids import CallId, RoundId, thought_id
from chatops.domain.tools import CONTAINED_APPLY, ResultSource
from chatops.runtime.view import Snapshot
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Append,
    Block,
    CardStatus,
    Close,
    Extend,
    NoticeBlock,
    Op,
    ReasoningBlock,
    Remove,
    Replace,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.transcript.stored_blocks import (
    RunTurn,
    attempt_end_block,
    finished_card,
    json_as_fields,
    notice_block,
    parent_turn,
    pending_card,
    refused_answer_block,
    role_divider,
    run_end_block,
    run_turn_of,
    step_block,
    stored_blocks,
    surplus_card,
    turn_end_block,
)

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
        self._run_turns: dict[str, RunTurn] = {}
        """The turns of a workflow run, if the session is one."""
        self._refused = ""
        """Id of the line about an answer that was just refused, until the model is called again."""
        self._own_round = ""
        """Id of the last round that is a command of the user."""
        self._retry = ""
        """Id of the error that says that R retries; empty if none does."""

    def load(self, snapshot: Snapshot, run_turns: Mapping[str, RunTurn] | None = None) -> list[Block]:
        """Return the blocks of a stored session and forget what was shown before. `run_turns`: see `run_turns_of`."""
        self._streams.clear()
        self._retry = ""
        self._run_turns = dict(run_turns or {})
        blocks = list(stored_blocks(snapshot.messages, snapshot.pending, self._run_turns, role=snapshot.role))
        if snapshot.status is not None and snapshot.messages:
            self._turn = parent_turn(snapshot.messages[-1])
        if snapshot.status is not None and snapshot.messages and self._turn not in self._run_turns:
            end = turn_end_block(
                self._turn, snapshot.status, snapshot.detail, snapshot.advice, noticed=snapshot.noticed
            )
            if end is not None:
                blocks.append(end)
        self.blocks = {block.id: block for block in blocks}
        answers = (block.text for block in reversed(blocks) if isinstance(block, AnswerBlock))
        self._turn_answer = next(answers, "")
        return blocks

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
        event = published.event
        match event:
            case TurnStarted() | TurnCorrected():
                return self._user_spoke(event)
            case TextDelta():
                return self._grow(AnswerBlock(id=event.id, text="", open=True), event.text)
            case ReasoningDelta():
                block = ReasoningBlock(id=f"{event.id}.reasoning", text="", open=True)
                return self._grow(block, event.text, before=event.id)
            case ThoughtFinished():
                return self._thought_finished(event)
            case CallProposed() | ApprovalRequested() | CallDecided() | ToolStarted() | ToolOutput() | ToolFinished():
                return self._call(published.at, event)
            case TurnFinished():
                return self._turn_finished(event)
            case RoleSwitched() | Notice() | NoticeChanged():
                return self._switch_or_notice(event)
            case RoundClosed():
                return self._round_closed(event.id)
            case RoundStarted() | AnswerRefused() | StepStarted() | WorkflowFinished():
                return self._run_moved(event)
            case TurnPaused() | WorkflowStarted() | GateChecked() | StepFinished() | ReviewRequested():
                return []
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
                return [self._put(notice_block(event))]
            case NoticeChanged(id=key, text=text):
                known = self.blocks.get(key)
                return [self._put(replace(known, text=text))] if isinstance(known, NoticeBlock) else []

    def _user_spoke(self, event: TurnStarted | TurnCorrected) -> list[Op]:
        if isinstance(event, TurnCorrected):
            said = UserBlock(id=event.id, text=event.text, files=event.files, role=event.role)
            return [*self._close_open(""), self._put(said)]
        self._turn, self._turn_answer, self._refused = event.id, "", ""
        if not event.model and not self._run_turns:
            # An undo: its question and its result are all there is of it, live as stored.
            return []
        if not event.model:
            # No model is called: the turn runs the command of a gate.
            self._run_turns.setdefault(event.id, RunTurn())
        head = self._run_turns.get(event.id)
        if head is None:
            return [self._put(UserBlock(id=f"{event.id}.user", text=event.text, files=event.files, role=event.role))]
        return [self._put(step_block(event.id, head, event.text))]

    def _run_moved(self, event: RoundStarted | AnswerRefused | StepStarted | WorkflowFinished) -> list[Op]:
        match event:
            case RoundStarted():
                self._refused = ""
                if not event.model and self._turn not in self._run_turns:
                    self._own_round = event.id
                return []
            case StepStarted():
                self._run_turns[event.turn_id] = run_turn_of(event)
                return []
            case AnswerRefused():
                self._refused = f"{event.id}.refused"
                return [self._put(refused_answer_block(self._refused, event.reason))]
            case WorkflowFinished():
                return [self._put(run_end_block(event.id, event.result, event.detail))]

    def _grow(self, empty: AnswerBlock | ReasoningBlock, text: str, *, before: str = "") -> list[Op]:
        stream = self._streams.get(empty.id)
        if stream is not None:
            stream.parts.append(text)
            return [Extend(id=empty.id, text=text)]
        if not text.strip():
            return []
        self._streams[empty.id] = _Open(parts=[text])
        return [self._put(replace(empty, text=text), before=before)]

    def _thought_finished(self, event: ThoughtFinished) -> list[Op]:
        reasoning_id = f"{event.id}.reasoning"
        first_call = self._first_card(event.parent_id)
        text = json_as_fields(event.text) if self._turn in self._run_turns else event.text
        answer = AnswerBlock(id=event.id, text=text, incomplete=event.status is Status.ERROR)
        thought = ReasoningBlock(id=reasoning_id, text=event.reasoning)
        self._turn_answer = event.text or self._turn_answer
        ops = self._finish(answer, before=first_call)
        place = event.id if event.id in self.blocks else first_call
        return [*self._finish(thought, before=place), *ops]

    def _round_closed(self, round_id: RoundId) -> list[Op]:
        """Remove reasoning that led to neither text nor calls, because it is not stored either."""
        thought = thought_id(round_id)
        if thought in self.blocks or self._first_card(round_id):
            return []
        return self._remove(f"{thought}.reasoning")

    def _first_card(self, round_id: str) -> str:
        """Return the first card of a round, or an empty string. The model's text is put before it."""
        cards = (key for key, block in self.blocks.items() if isinstance(block, ToolCardBlock))
        return next((key for key in cards if key.startswith(f"{round_id}.")), "")

    def _finish(self, block: AnswerBlock | ReasoningBlock, *, before: str) -> list[Op]:
        """Close a streamed text. Streamed text that equals the final text is not drawn again."""
        stream = self._streams.pop(block.id, None)
        if not block.text.strip():
            return self._remove(block.id)
        if stream is not None and stream.text == block.text and not getattr(block, "incomplete", False):
            self.blocks[block.id] = block
            return [Close(id=block.id)]
        return [self._put(block, before=before)]

    def _call(
        self, at: float, event: CallProposed | ApprovalRequested | CallDecided | ToolStarted | ToolOutput | ToolFinished
    ) -> list[Op]:
        known = self.blocks.get(event.id)
        card = known if isinstance(known, ToolCardBlock) else ToolCardBlock(id=event.id, tool="", arguments="")
        match event:
            case CallProposed():
                card = replace(
                    card,
                    tool=event.tool,
                    arguments=event.arguments,
                    own=event.parent_id == self._own_round,
                    status=CardStatus.UNSETTLED,
                )
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
                card = replace(card, output=(card.output + event.text)[-_LIVE_OUTPUT:])
            case ToolFinished() if event.facts.source is ResultSource.SURPLUS:
                return self._surplus_call(event.id, event.parent_id)
            case ToolFinished() if event.tool == CONTAINED_APPLY:
                # The notice that follows tells the result, also after the session was opened again.
                return self._remove(event.id)
            case ToolFinished():
                card = replace(finished_card(event.id, event), paths=card.paths, own=card.own)
            case _ as never:
                assert_never(never)
        return [self._put(card)]

    def _surplus_call(self, call_id: str, round_id: str) -> list[Op]:
        """Count one more call that is not looked at. All of a round share one card."""
        self._surplus[round_id] += 1
        return [*self._remove(call_id), self._put(surplus_card(round_id, self._surplus[round_id]))]

    def _turn_finished(self, event: TurnFinished) -> list[Op]:
        ops = self._close_open(event.answer)
        if event.id in self._run_turns:
            return [*ops, *self._attempt_ended(event)]
        if event.answer.strip() and event.answer != self._turn_answer:
            ops.append(self._put(AnswerBlock(id=f"{event.id}.answer", text=event.answer)))
        end = turn_end_block(event.id, event.result, event.detail, event.advice, noticed=event.noticed)
        return [*ops, self._put(end)] if end is not None else ops

    def _attempt_ended(self, event: TurnFinished) -> list[Op]:
        """End an attempt of a run. Its answer is the accepted text of the model, which is shown already."""
        ops = self._remove(self._refused)
        head = self._run_turns[event.id]
        end = attempt_end_block(event.id, head, event.result, event.detail, noticed=event.noticed)
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
        if block.id in self.blocks:
            self.blocks[block.id] = block
            return Replace(block=block)
        if before in self.blocks:
            rest = list(self.blocks)[list(self.blocks).index(before) :]
            moved = {key: self.blocks.pop(key) for key in rest}
            self.blocks[block.id] = block
            self.blocks.update(moved)
            return Append(block=block, before=before)
        self.blocks[block.id] = block
        return Append(block=block)

    def _remove(self, block_id: str) -> list[Op]:
        self._streams.pop(block_id, None)
        return [Remove(id=block_id)] if self.blocks.pop(block_id, None) is not None else []


def is_delta(event: Event) -> bool:
    """Return True if an event only continues a text. There may be hundreds of them per second."""
    return isinstance(event, TextDelta | ReasoningDelta | ToolOutput)


class FrameBuffer:
    """Passes events on in batches. Deltas wait for the next frame; the end of a text and any other event do not.

    A timer runs only while something waits, so an idle session costs nothing. Call it on the event loop.
    """

    def __init__(self, flush: Callable[[list[Published]], None], *, seconds: float = _FRAME_SECONDS) -> None:
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

    @property
    def waits(self) -> bool:
        """True while events wait for a frame."""
        return bool(self._waiting)

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
