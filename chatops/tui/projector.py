"""From what a conversation is and does to blocks on the screen: a plain class that needs no terminal.

`load` draws what is stored, `feed` follows the events; both come to the same blocks. (How a turn ended is
stored for the last turn only, so the closing line of an earlier cancelled turn is gone after a restart.)
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from chatops.domain.events import (
    AnswerRefused,
    ApprovalRequested,
    CallDecided,
    CallProposed,
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
    TurnFinished,
    TurnPaused,
    TurnStarted,
    WorkflowFinished,
    WorkflowStarted,
)
from chatops.domain.ids import CallId, RoundId, thought_id
from chatops.runtime.snapshot import Snapshot
from chatops.tui.blocks.model import (
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
from chatops.tui.blocks.steps import (
    TurnHead,
    end_of_attempt,
    end_of_run,
    head_of,
    laid_out,
    opening_of,
    refused_of,
)
from chatops.tui.blocks.stored import (
    asked_card,
    divider_of,
    end_of_turn,
    is_surplus,
    notice_of,
    settled_card,
    stored_blocks,
    surplus_card,
    turn_of,
)

_LIVE_OUTPUT = 8_000
"""Characters kept of the output of a tool that still runs."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """The text of a block that still grows, gathered so that nothing is copied per piece."""

    parts: list[str]

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Projector:
    """Keeps the list of blocks as the screen has it. `feed` returns what to change."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        """By id, in the order of the screen."""
        self._streams: dict[str, _Open] = {}
        self._turn = ""
        self._turn_answer = ""
        self._surplus: Counter[str] = Counter()
        self._heads: dict[str, TurnHead] = {}
        """The turns of a run, if the conversation is one."""
        self._refused = ""
        """The line about an answer that was just refused, until the model is asked again."""

    def load(self, snapshot: Snapshot, heads: Mapping[str, TurnHead] | None = None) -> list[Block]:
        """The blocks of a stored conversation; what was shown before is forgotten. `heads`: see `heads_of`."""
        self._streams.clear()
        self._heads = dict(heads or {})
        blocks = list(stored_blocks(snapshot.messages, snapshot.pending, self._heads))
        if snapshot.status is not None and snapshot.messages:
            self._turn = turn_of(snapshot.messages[-1])
        if snapshot.status is not None and snapshot.messages and self._turn not in self._heads:
            said = _told_in(self._turn, blocks)
            end = end_of_turn(self._turn, snapshot.status, snapshot.detail, snapshot.advice, said)
            if end is not None:
                blocks.append(end)
        self.blocks = {block.id: block for block in blocks}
        return blocks

    def feed_all(self, batch: Iterable[Published]) -> list[Op]:
        """The operations of several events, neighbouring pieces of one text joined."""
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
        """What an event changes on the screen."""
        event = published.event
        match event:
            case TurnStarted():
                return self._turn_started(event)
            case TextDelta():
                return self._grow(AnswerBlock(id=event.id, text="", open=True), event.text)
            case ReasoningDelta():
                block = ReasoningBlock(id=f"{event.id}.reasoning", text="", open=True)
                return self._grow(block, event.text, before=event.id)
            case ThoughtFinished():
                return self._thought_finished(event)
            case CallProposed() | ApprovalRequested() | CallDecided() | ToolStarted() | ToolOutput() | ToolFinished():
                return self._call(event)
            case TurnFinished():
                return self._turn_finished(event)
            case RoleSwitched() | Notice() | NoticeChanged():
                return self._told(event)
            case RoundClosed():
                return self._round_closed(event.id)
            case RoundStarted() | AnswerRefused() | StepStarted() | WorkflowFinished():
                return self._run_moved(event)
            case TurnPaused() | WorkflowStarted() | GateChecked() | StepFinished() | ReviewRequested():
                return []
            case _ as never:
                assert_never(never)

    def permit(self, permitted: Mapping[CallId, str]) -> list[Op]:
        """Say of calls that wait for others of their round that they may run, and who or what allowed it."""
        waiting = ((self.blocks.get(call_id), by) for call_id, by in permitted.items())
        return [
            self._put(replace(card, status=CardStatus.PERMITTED, decided_by=by))
            for card, by in waiting
            if isinstance(card, ToolCardBlock) and card.status is CardStatus.UNSETTLED
        ]

    def _told(self, event: RoleSwitched | Notice | NoticeChanged) -> list[Op]:
        match event:
            case RoleSwitched(switch=switch):
                return [self._put(divider_of(switch))]
            case Notice():
                return [self._put(notice_of(event))]
            case NoticeChanged(id=key, text=text):
                known = self.blocks.get(key)
                return [self._put(replace(known, text=text))] if isinstance(known, NoticeBlock) else []

    def _turn_started(self, event: TurnStarted) -> list[Op]:
        self._turn, self._turn_answer, self._refused = event.id, "", ""
        if not event.model:
            # No model is asked: the turn of a gate's command.
            self._heads.setdefault(event.id, TurnHead())
        head = self._heads.get(event.id)
        if head is None:
            return [self._put(UserBlock(id=f"{event.id}.user", text=event.text))]
        return [self._put(opening_of(event.id, head, event.text))]

    def _run_moved(self, event: RoundStarted | AnswerRefused | StepStarted | WorkflowFinished) -> list[Op]:
        match event:
            case RoundStarted():
                self._refused = ""
                return []
            case StepStarted():
                self._heads[event.turn_id] = head_of(event)
                return []
            case AnswerRefused():
                self._refused = f"{event.id}.refused"
                return [self._put(refused_of(self._refused, event.reason))]
            case WorkflowFinished():
                return [self._put(end_of_run(event.id, event.result, event.detail))]

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
        text = laid_out(event.text) if self._turn in self._heads else event.text
        answer = AnswerBlock(id=event.id, text=text, incomplete=event.status is Status.ERROR)
        thought = ReasoningBlock(id=reasoning_id, text=event.reasoning)
        self._turn_answer = event.text or self._turn_answer
        ops = self._finish(answer, before=first_call)
        place = event.id if event.id in self.blocks else first_call
        return [*self._finish(thought, before=place), *ops]

    def _round_closed(self, round_id: RoundId) -> list[Op]:
        """A thought that led to neither words nor calls is not stored, so it is not kept here either."""
        thought = thought_id(round_id)
        if thought in self.blocks or self._first_card(round_id):
            return []
        return self._remove(f"{thought}.reasoning")

    def _first_card(self, round_id: str) -> str:
        """The first card of a round, or nothing: what the model said stands before it."""
        cards = (key for key, block in self.blocks.items() if isinstance(block, ToolCardBlock))
        return next((key for key in cards if key.startswith(f"{round_id}.")), "")

    def _finish(self, block: AnswerBlock | ReasoningBlock, *, before: str) -> list[Op]:
        """Close a streamed text; what was streamed stays as it is if it is what was meant."""
        stream = self._streams.pop(block.id, None)
        if not block.text.strip():
            return self._remove(block.id)
        if stream is not None and stream.text == block.text and not getattr(block, "incomplete", False):
            self.blocks[block.id] = block
            return [Close(id=block.id)]
        return [self._put(block, before=before)]

    def _call(
        self, event: CallProposed | ApprovalRequested | CallDecided | ToolStarted | ToolOutput | ToolFinished
    ) -> list[Op]:
        known = self.blocks.get(event.id)
        card = known if isinstance(known, ToolCardBlock) else ToolCardBlock(id=event.id, tool="", arguments="")
        match event:
            case CallProposed():
                card = replace(card, tool=event.tool, arguments=event.arguments, status=CardStatus.UNSETTLED)
            case ApprovalRequested():
                card = asked_card(card, event.pending)
            case CallDecided():
                card = replace(card, status=CardStatus.UNSETTLED, why="")
            case ToolStarted():
                card = replace(
                    card,
                    tool=event.tool,
                    arguments=event.arguments,
                    decided_by=event.decided_by,
                    status=CardStatus.RUNNING,
                    output="",
                )
            case ToolOutput():
                card = replace(card, output=(card.output + event.text)[-_LIVE_OUTPUT:])
            case ToolFinished() if is_surplus(event.outcome, event.content):
                return self._surplus_call(event.id, event.parent_id)
            case ToolFinished():
                card = settled_card(
                    event.id,
                    tool=event.tool,
                    arguments=event.arguments,
                    outcome=event.outcome,
                    content=event.content,
                    truncated=event.truncated,
                    duration_ms=event.duration_ms,
                    decided_by=event.decided_by,
                )
            case _ as never:
                assert_never(never)
        return [self._put(card)]

    def _surplus_call(self, call_id: str, round_id: str) -> list[Op]:
        """One call more that nobody looks at: all of a round share a card."""
        self._surplus[round_id] += 1
        return [*self._remove(call_id), self._put(surplus_card(round_id, self._surplus[round_id]))]

    def _turn_finished(self, event: TurnFinished) -> list[Op]:
        ops = self._close_open(event.answer)
        if event.id in self._heads:
            return [*ops, *self._attempt_ended(event)]
        if event.answer.strip() and event.answer != self._turn_answer:
            ops.append(self._put(AnswerBlock(id=f"{event.id}.answer", text=event.answer)))
        said = _told_in(event.id, self.blocks.values())
        end = end_of_turn(event.id, event.result, event.detail, event.advice, said)
        return [*ops, self._put(end)] if end is not None else ops

    def _attempt_ended(self, event: TurnFinished) -> list[Op]:
        """In a run the answer is what was accepted of the model's words, which are there already."""
        ops = self._remove(self._refused)
        said = _told_in(event.id, self.blocks.values())
        end = end_of_attempt(event.id, self._heads[event.id], event.result, event.detail, said)
        return [*ops, self._put(end)] if end is not None else ops

    def _close_open(self, answer: str) -> list[Op]:
        """Stopped in the middle of a reply: there is no ThoughtFinished for it, and a thought alone is not kept."""
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


def _told_in(turn: str, blocks: Iterable[Block]) -> frozenset[str]:
    """What the notices of a turn say."""
    notices = (block for block in blocks if isinstance(block, NoticeBlock))
    return frozenset(block.text for block in notices if block.id.startswith(f"{turn}."))
