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
- A workflow run starts with the request as a user message. Its turns start with a step line instead, and the accepted
  answer is not repeated at their end.
- Text stays unsanitised here. The code that draws a block sanitises it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from posixpath import normpath
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
from chatops.domain.tools import BUDGET_EXTEND, CONTAINED_APPLY, ResultSource, built_in_capabilities, written_path
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

_OUR_PREFIX = "[chatops] "
"""Beginning of messages to the model that are not the user's."""
_LONGEST_FIELDS = 100_000
"""Characters of an answer of fields. A longer one is shown as it was written, because reading it would hold keys up."""
_MAX_LIVE_OUTPUT = 8_000
"""Characters kept of the output of a tool that is still running. With more, each further line costs more to draw."""


class _TurnOf(Enum):
    """Owner of a turn."""

    CHAT = "chat"
    STEP = "step"
    """An attempt at a step of a workflow run, or a delegated task."""
    GATE = "gate"
    """A gate of a run. It has no title: its message names it."""


class Projector:
    """Keeps the blocks as the screen has them. `feed` returns the changes."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        """Blocks by id, in the order of the screen."""
        self._growing: dict[str, list[str]] = {}
        """The parts of each text that is still growing, by its block. Joining them at each delta would be slow."""
        self._turn = ""
        """The id of the turn that events belong to; empty before the first one."""
        self._shown_answer = ""
        """The last text of the model in this turn, which its end need not repeat."""
        self._surplus: Counter[str] = Counter()
        """Number of calls beyond the limit, by round."""
        self._first_cards: dict[str, str] = {}
        """The first card of each round. The model's text is put before it."""
        self._run_turns: dict[str, str] = {}
        """The turns of a workflow run with the title of their step; empty for a gate, see `_TurnOf`."""
        self._is_command = False
        """True in a turn whose calls are commands that the user has typed."""
        self._retry_notice = ""
        """Id of the error that says that R retries; empty if none does."""

    def load(self, events: Iterable[Event]) -> list[Block]:
        """Return the blocks of a session that is opened. Call it first."""
        for event in events:
            self._take_event(event)
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
        return self._take_event(published.event, at=published.at)

    def _take_event(self, event: Event, *, at: float = 0.0) -> list[Op]:
        match event:
            case TurnStarted() | TurnCorrected():
                return self._message_arrived(event)
            case TextDelta() | ReasoningDelta():
                return self._grow(event)
            case ThoughtFinished():
                return self._thought_finished(event)
            case CallProposed() | ApprovalRequested() | CallDecided() | ToolStarted() | ToolOutput() | ToolFinished():
                return self._call_changed(event, at=at)
            case TurnFinished():
                return self._turn_finished(event)
            case RoleSwitched() | Notice() | NoticeChanged():
                return self._role_switched_or_noticed(event)
            case RoundClosed():
                return self._round_closed(event.id)
            case WorkflowStarted() | StepStarted() | AnswerRefused() | WorkflowFinished():
                return self._run_changed(event)
            case RoundStarted() | TurnPaused() | GateChecked() | StepFinished() | ReviewRequested():
                return []
            case CallStreamed() | CallProgressed():
                return []  # The transcript draws it when it draws what moves.
            case _ as never:
                assert_never(never)

    def permit(self, permitted: Mapping[CallId, str]) -> list[Op]:
        """Mark calls that wait for others of their round as permitted, with who or what allowed them."""
        cards = ((self.blocks.get(call_id), decided_by) for call_id, decided_by in permitted.items())
        return [
            self._put(replace(card, status=CardStatus.PERMITTED, decided_by=decided_by))
            for card, decided_by in cards
            if isinstance(card, ToolCardBlock) and card.status is CardStatus.UNSETTLED
        ]

    def offer_retry(self, offered: bool) -> list[Op]:
        """Say at the last error of the session that R retries, or no longer say it."""
        blocks = reversed(self.blocks.values()) if offered else ()
        wanted = next((block.id for block in blocks if isinstance(block, NoticeBlock) and block.level == "error"), "")
        if wanted == self._retry_notice:
            return []
        notices = [self.blocks.get(key) for key in (self._retry_notice, wanted)]
        self._retry_notice = wanted
        return [
            self._put(replace(block, retry=block.id == wanted)) for block in notices if isinstance(block, NoticeBlock)
        ]

    def _role_switched_or_noticed(self, event: RoleSwitched | Notice | NoticeChanged) -> list[Op]:
        match event:
            case RoleSwitched(switch=switch):
                last = next(reversed(self.blocks.values()), None)
                divider = role_divider(switch, after=last)
                if divider is None:
                    return self._remove(last.id) if last is not None else []
                return [self._put(divider)]
            case Notice():
                notice = NoticeBlock(id=event.id, text=event.text, advice=event.advice, level=event.level)
                return [*self._leave_out(event.not_chosen), self._put(notice)]
            case NoticeChanged(id=key, text=text):
                block = self.blocks.get(key)
                return [self._put(replace(block, text=text))] if isinstance(block, NoticeBlock) else []

    def _message_arrived(self, event: TurnStarted | TurnCorrected) -> list[Op]:
        if isinstance(event, TurnCorrected):
            self._is_command = False
            correction = UserBlock(id=event.id, text=event.text, files=event.files, role=event.role)
            return [*self._close_growing(""), self._put(correction)]
        self._turn, self._shown_answer, self._is_command = event.id, "", event.by is Speaker.COMMAND
        block_id = f"{event.id}.user"
        if event.by is Speaker.MACHINE:
            # A copy of a run's session does not know its steps.
            default = "Delegated task" if is_child(event.parent_id) else "Workflow step"
            title = self._run_turns.setdefault(event.id, default if event.model else "")
            if title:
                return [self._put(StepBlock(id=block_id, title=title, text=event.text))]
            # A gate: its message names it.
            return [self._put(StepBlock(id=block_id, title=event.text.removeprefix(_OUR_PREFIX)))]
        if not event.model:
            # Of an undo, only its question and its result are shown.
            return []
        return [self._put(UserBlock(id=block_id, text=event.text, files=event.files, role=event.role))]

    def _run_changed(self, event: WorkflowStarted | StepStarted | AnswerRefused | WorkflowFinished) -> list[Op]:
        match event:
            case WorkflowStarted():
                request = UserBlock(id=f"{event.id}.request", text=event.query, role=event.role)
                steps = f"Run of workflow {event.workflow} started. Steps: {', '.join(event.steps)}."
                return [self._put(request), self._put(NoticeBlock(id=f"{event.id}.started", text=steps))]
            case StepStarted():
                self._run_turns[event.turn_id] = _step_title(event)
                return []
            case AnswerRefused(final=True):
                # The end of the attempt says it.
                return []
            case AnswerRefused():
                text = f"Answer not accepted. The model was told: {event.reason.removeprefix(_OUR_PREFIX)}"
                return [self._put(NoticeBlock(id=f"{event.id}.refused", text=text, level="warning"))]
            case WorkflowFinished():
                return [self._put(_run_end_block(event))]

    def _grow(self, event: TextDelta | ReasoningDelta) -> list[Op]:
        block_id = event.id if isinstance(event, TextDelta) else f"{event.id}.reasoning"
        if (parts := self._growing.get(block_id)) is not None:
            parts.append(event.text)
            return [Extend(id=block_id, text=event.text)]
        if not event.text.strip():
            return []
        self._growing[block_id] = [event.text]
        if isinstance(event, TextDelta):
            return [self._put(AnswerBlock(id=block_id, text=event.text, open=True))]
        return [self._put(ReasoningBlock(id=block_id, text=event.text, open=True), before=event.id)]

    def _thought_finished(self, event: ThoughtFinished) -> list[Op]:
        first_call = self._first_card(event.parent_id)
        ops: list[Op] = []
        reasoning_id = f"{event.id}.reasoning"
        if event.reasoning or reasoning_id in self.blocks:
            following = event.id if event.id in self.blocks else first_call
            ops += self._put_final(ReasoningBlock(id=reasoning_id, text=event.reasoning), before=following)
        text = json_as_fields(event.text) if self._turn in self._run_turns else event.text
        self._shown_answer = event.text or self._shown_answer
        answer = AnswerBlock(id=event.id, text=text, incomplete=event.status is Status.ERROR)
        return [*ops, *self._put_final(answer, before=first_call)]

    def _round_closed(self, round_id: RoundId) -> list[Op]:
        """Remove reasoning that led to neither text nor calls, because it is not stored either."""
        thought = thought_id(round_id)
        if thought in self.blocks or self._first_card(round_id):
            return []
        return self._remove(f"{thought}.reasoning")

    def _first_card(self, round_id: str) -> str:
        card = self._first_cards.get(round_id, "")
        return card if card in self.blocks else ""

    def _put_final(self, block: AnswerBlock | ReasoningBlock, *, before: str) -> list[Op]:
        """Put the final text in place of the streamed one, or remove that if there is none."""
        self._growing.pop(block.id, None)
        return [self._put(block, before=before)] if block.text.strip() else self._remove(block.id)

    def _call_changed(
        self,
        event: CallProposed | ApprovalRequested | CallDecided | ToolStarted | ToolOutput | ToolFinished,
        *,
        at: float,
    ) -> list[Op]:
        block = self.blocks.get(event.id)
        own = block.own if isinstance(block, ToolCardBlock) else self._is_command
        self._first_cards.setdefault(event.parent_id, event.id)
        if isinstance(event, ToolFinished):
            return self._call_finished(event, own=own)
        card = block if isinstance(block, ToolCardBlock) else ToolCardBlock(id=event.id, tool="", arguments="", own=own)
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
                output = (card.output + event.text)[-_MAX_LIVE_OUTPUT:]
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

    def _leave_out(self, paths: Sequence[str]) -> list[Op]:
        """Mark the calls of the turn that changed files which the user did not choose to apply."""
        cards = [block for block in self.blocks.values() if isinstance(block, ToolCardBlock)] if paths else []
        of_turn = f"{self._turn}."
        return [
            self._put(replace(card, left_out=True))
            for card in cards
            if card.id.startswith(of_turn) and _writes_one_of(card, paths)
        ]

    def _turn_finished(self, event: TurnFinished) -> list[Op]:
        ops = self._close_growing(event.answer)
        of = self._owner_of(event.id)
        # The answer of an attempt is the accepted text of the model, which is shown already.
        if of is _TurnOf.CHAT and event.answer.strip() and event.answer != self._shown_answer:
            ops.append(self._put(AnswerBlock(id=f"{event.id}.answer", text=event.answer)))
        end = _end_block(event, of)
        return [*ops, self._put(end)] if end is not None else ops

    def _owner_of(self, turn_id: str) -> _TurnOf:
        if turn_id not in self._run_turns:
            return _TurnOf.CHAT
        return _TurnOf.STEP if self._run_turns[turn_id] else _TurnOf.GATE

    def _close_growing(self, answer: str) -> list[Op]:
        """Close the text of a stopped reply, which gets no ThoughtFinished. Reasoning alone is removed.

        `answer` is what is stored of the reply; empty if that is not known.
        """
        ops: list[Op] = []
        has_answer = any(isinstance(self.blocks.get(key), AnswerBlock) for key in self._growing)
        for key in list(self._growing):
            text = "".join(self._growing.pop(key))
            match self.blocks.get(key):
                case ReasoningBlock() as block if has_answer:
                    ops.append(self._put(replace(block, text=text, open=False)))
                case ReasoningBlock():
                    ops.extend(self._remove(key))
                case AnswerBlock():
                    self._shown_answer = answer or text
                    ops.append(self._put(AnswerBlock(id=key, text=self._shown_answer, incomplete=True)))
        return ops

    def _put(self, block: Block, *, before: str = "") -> Op:
        following = list[str]()
        if block.id not in self.blocks and before in self.blocks:
            following = list(self.blocks)[list(self.blocks).index(before) :]
        self.blocks[block.id] = block
        for key in following:
            # A dict keeps the order of insertion: these go behind the new one.
            self.blocks[key] = self.blocks.pop(key)
        return Put(block=block, before=before)

    def _remove(self, block_id: str) -> list[Op]:
        self._growing.pop(block_id, None)
        return [Remove(id=block_id)] if self.blocks.pop(block_id, None) is not None else []


def _writes_one_of(card: ToolCardBlock, paths: Sequence[str]) -> bool:
    """Return True if a call writes one of the paths, which are those in the workspace."""
    path = normpath(written_path(built_in_capabilities(card.tool), card.arguments))
    return path in paths or (path.startswith("/") and path.endswith(tuple(f"/{one}" for one in paths)))


def _end_block(event: TurnFinished, of: _TurnOf) -> NoticeBlock | None:
    """Return the line under a turn that was stopped or reached a limit, or an attempt at a step that was not accepted.

    None if a notice gives the reason already. A failed turn of a chat always has one.
    """
    block = NoticeBlock(id=f"{event.id}.end", text=event.detail, advice=event.advice if of is _TurnOf.CHAT else "")
    match event.result, of:
        case TurnStatus.CANCELLED, _:
            return replace(block, text=event.detail or "Stopped.")
        case TurnStatus.LIMIT, _TurnOf.CHAT if not event.noticed:
            return replace(block, text=event.detail or "A limit was reached.", level="warning")
        case TurnStatus.FAILED | TurnStatus.LIMIT, _TurnOf.STEP if not event.noticed:
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


def _step_title(event: StepStarted) -> str:
    of = f" of {event.attempts}" if event.attempt <= event.attempts else ""
    return f"Step {event.step + 1}: {event.name}" + (f", attempt {event.attempt}{of}" if event.attempt > 1 else "")


def json_as_fields(text: str) -> str:
    """Return an answer that is one JSON value as a code block with a line per field, any other as it is."""
    fields = as_fields(text) if len(text) <= _LONGEST_FIELDS else text
    if fields == text:
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
        added=_net_tools(after.added, switch.added, undone=switch.removed, undoes=after.removed),
        removed=_net_tools(after.removed, switch.removed, undone=switch.added, undoes=after.added),
    )
    is_back = switch.before != switch.after == after.before and not (divider.added or divider.removed)
    return None if is_back and not divider.suspended else divider


def _net_tools(
    first: Sequence[str], second: Sequence[str], *, undone: Sequence[str], undoes: Sequence[str]
) -> tuple[str, ...]:
    """Return the tools that two switches together add, or remove.

    These are the `first` ones that the second switch has not `undone`, and the `second` ones that do not undo the
    first switch.
    """
    remaining = [name for name in first if name not in undone]
    return (*remaining, *(name for name in second if name not in undoes and name not in remaining))
