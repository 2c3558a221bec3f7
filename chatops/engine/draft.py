"""A step under construction: collects changes and closes into an immutable `TurnStep`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import RememberedRule
from chatops.domain.events import CallProposed, Event, Notice, RoundStarted, TurnPaused, TurnStatus
from chatops.domain.ids import CallId, MessageId, call_id, round_id
from chatops.domain.messages import Message, NoticeMessage, total
from chatops.domain.tools import ToolCall, ToolResult, ToolSpec
from chatops.engine.effects import AttemptResult, ComposerDraft, DecisionRecord, Effect, TurnStep, VerdictRecord
from chatops.engine.state import (
    CallState,
    CallStatus,
    Counters,
    InRound,
    Inspecting,
    Phase,
    RoundRecord,
    Stopping,
    TurnState,
)
from chatops.engine.view import pending_calls, turn_status
from chatops.policy.budget import NO_BUDGET, strictest
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Judgement


class StepDraft:
    """Builder of one step. Mutable only between an input and its step; never stored, never shared."""

    def __init__(self, state: TurnState) -> None:
        self.before = state
        self.state = state
        self.effects: list[Effect] = []
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.results: list[AttemptResult] = []
        self.verdicts: list[VerdictRecord] = []
        self.judged: dict[CallId, Judgement] = {}
        """The last judgement of each call in this step."""
        self.decisions: list[DecisionRecord] = []
        self.rules: list[RememberedRule] = []
        """Rules that the step makes."""
        self.composer: ComposerDraft | None = None
        """Text that stays in the composer, if the step takes a message from it."""
        self.remembered: tuple[RememberedRule, ...] = ()
        """Rules in force, if the step is about an inspection."""

    def set_phase(self, phase: Phase) -> None:
        """Set the phase."""
        self.state = replace(self.state, phase=phase)

    def set_grant(self, grant: Grant) -> None:
        """Put `grant` in force. The budget of the command line stays with the turn."""
        before = self.state.grant.run_budget
        if before not in (NO_BUDGET, grant.run_budget):
            grant = replace(grant, run_budget=strictest(before, grant.run_budget))
        self.state = replace(self.state, grant=grant)

    def round_without_model(self, name: str, arguments: Mapping[str, JsonValue]) -> InRound:
        """Add the events of a round with one call that no model has made, and return the phase to set."""
        number = round_id(self.state.turn_id, self.state.counters.requests)
        call = ToolCall(id=call_id(number, 1), name=name, arguments=canonical(arguments))
        self.events.append(RoundStarted(id=number, parent_id=self.state.turn_id, model=""))
        self.events.append(CallProposed(id=call.id, parent_id=number, tool=name, arguments=call.arguments))
        return InRound(
            round_id=number,
            proposed_under=self.state.grant,
            said="",
            model="",
            calls=(CallState(call=call, status=Inspecting()),),
        )

    def count(self, counters: Counters) -> None:
        """Replace the counters."""
        self.state = replace(self.state, counters=counters)

    def record_round(self, record: RoundRecord) -> None:
        """Add the cost of a model call."""
        usage = total(self.state.usage, record.usage)
        self.state = replace(self.state, rounds=(*self.state.rounds, record), usage=usage)

    def count_cut_off(self) -> None:
        """Count a request of which it is not known what it has cost."""
        spending = self.state.spending
        self.state = replace(self.state, spending=replace(spending, cut_off=spending.cut_off + 1))

    def next_message_id(self) -> MessageId:
        """Return the id for the next message of this turn."""
        return MessageId(f"{self.state.turn_id}.m{len(self.state.messages) + 1}")

    def add_message(self, message: Message) -> None:
        """Add a message to the turn."""
        self.messages.append(message)
        self.state = replace(self.state, messages=(*self.state.messages, message))

    def warn(self, text: str, *, advice: str = "", error: bool = False) -> None:
        """Add a warning or an error for the user, as a message of the transcript and as an event."""
        level: Literal["warning", "error"] = "error" if error else "warning"
        message = NoticeMessage(id=self.next_message_id(), text=text, advice=advice, level=level)
        self.add_message(message)
        self.events.append(Notice(id=message.id, parent_id=self.state.turn_id, text=text, advice=advice, level=level))

    def inform(
        self, text: str, *, to_model: str = "", for_model: bool = True, not_chosen: tuple[str, ...] = ()
    ) -> None:
        """Add a notice for the user.

        `for_model`: the next request tells the model too. `to_model`: the words that the model gets instead of `text`.
        """
        message = NoticeMessage(
            id=self.next_message_id(), text=text, for_model=for_model, to_model=to_model, not_chosen=not_chosen
        )
        self.add_message(message)
        self.events.append(Notice(id=message.id, parent_id=self.state.turn_id, text=text, not_chosen=not_chosen))

    def close_attempt(self, index: int, attempt: int, result: ToolResult) -> None:
        """Close the journal row of an attempt at the `index`-th call of the round with `result`."""
        self.results.append(AttemptResult(call_id=self.calls()[index].call.id, attempt=attempt, result=result))

    def calls(self) -> tuple[CallState, ...]:
        """Return the calls of the round in progress; empty outside of one."""
        phase = self.state.phase
        return phase.calls if isinstance(phase, InRound | Stopping) else ()

    def spec(self, tool: str) -> ToolSpec | None:
        """Return the spec of a tool: as the round in progress was proposed under it, else as it is in force."""
        phase = self.state.phase
        return (phase.proposed_under if isinstance(phase, InRound) else self.state.grant).tool(tool)

    def set_status(self, index: int, status: CallStatus) -> None:
        """Set the status of the `index`-th call of the round."""
        self.put_call(index, replace(self.calls()[index], status=status))

    def put_call(self, index: int, call: CallState) -> None:
        """Replace the `index`-th call of the round."""
        phase = self.state.phase
        if isinstance(phase, InRound | Stopping):
            calls = (*phase.calls[:index], call, *phase.calls[index + 1 :])
            self.set_phase(replace(phase, calls=calls))

    def step(self) -> TurnStep:
        """Return the finished step. An input that changed nothing gives the same state and nothing else."""
        if self.state == self.before and not self.effects and not self.events:
            return TurnStep(state=self.before)
        if self.state != self.before and turn_status(self.state) is TurnStatus.PAUSED:
            self.events.append(
                TurnPaused(id=self.state.turn_id, parent_id=self.state.session_id, pending=pending_calls(self.state))
            )
        return TurnStep(
            state=replace(self.state, seq=self.before.seq + 1),
            effects=tuple(self.effects),
            events=tuple(self.events),
            messages=tuple(self.messages),
            results=tuple(self.results),
            verdicts=tuple(self.verdicts),
            decisions=tuple(self.decisions),
            rules=tuple(self.rules),
            draft=self.composer,
        )
