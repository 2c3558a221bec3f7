"""Turns that begin without a model: a gate's command, a command of the user, the question whether to undo changes.

Each is one call, which is inspected, judged, stored and run like any other.
"""

import re
from dataclasses import replace

from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import Principal
from chatops.domain.events import RoundStarted, TurnStarted, TurnStatus
from chatops.domain.ids import call_id, round_id
from chatops.domain.messages import AssistantMessage, Speaker, UserMessage
from chatops.domain.sanitize import reveal
from chatops.domain.tools import ToolCall
from chatops.engine import containment, inspection, rounds
from chatops.engine.draft import StepDraft
from chatops.engine.effects import TurnStep
from chatops.engine.state import (
    CallState,
    Containment,
    ContainmentKind,
    Finished,
    InRound,
    Inspecting,
    OwnCommand,
    TurnState,
)
from chatops.policy.workflow import SHELL_TOOL, CommandGate

MAX_PLAIN_CHARS = 400
"""Characters of the longest command whose text in the message field can be read at a glance."""
_GAP = re.compile(r"\s{4}")
"""A run of blanks that may push the rest of a command out of view."""


def start_undo(turn: TurnState, *, name: str, number: int = 1, text: str) -> TurnStep:
    """Start a turn without a model that asks to take back what turns have changed.

    `name` is that of the list, `number` counts the undos of it, from 1, and `text` is the command of the user.
    """
    end = Finished(result=TurnStatus.ANSWERED, answer="")
    draft = StepDraft(replace(turn, phase=end, containment=Containment(name=name, kind=ContainmentKind.UNDO)))
    draft.events.append(
        TurnStarted(id=turn.turn_id, parent_id=turn.session_id, text=text, role=turn.grant.role, model="")
    )
    containment.put_apply_call(draft, end, {"turn": name, "undo": True, "list": number})
    return draft.step()


def start_gate(turn: TurnState, gate: CommandGate, *, step: str) -> TurnStep:
    """Start a turn without a model: its only call is the command of the step's gate, judged and run like any other."""
    draft = StepDraft(replace(turn, gate=gate, gate_step=step))
    arguments: dict[str, JsonValue] = {"command": gate.command}
    if gate.timeout_s is not None:
        arguments["timeout_s"] = gate.timeout_s
    text = f"[chatops] Gate {gate.name}"
    _open_shell_round(draft, UserMessage(id=draft.next_message_id(), text=text, by=Speaker.MACHINE), arguments)
    return draft.step()


def start_command(turn: TurnState, command: str, *, private: bool, shown: bool, by: Principal) -> TurnStep:
    """Start a turn whose only call is a shell command that the user has typed.

    The call is judged like one of the model. Where it asks, the user's typing it is the decision, see
    `inspection`, unless it was not `shown` in full when it was sent. If it is `private`, no model gets it or its
    result.
    """
    plain = (
        shown
        and len(command) <= MAX_PLAIN_CHARS
        and not _GAP.search(command)
        and reveal(command, newlines=False, strict=True) == command
    )
    draft = StepDraft(replace(turn, command=OwnCommand(by=by, decides=plain)))
    text = f"{'!!' if private else '!'}{command}"
    said = UserMessage(id=draft.next_message_id(), text=text, by=Speaker.COMMAND, private=private)
    _open_shell_round(draft, said, {"command": command})
    return draft.step()


def _open_shell_round(draft: StepDraft, said: UserMessage, arguments: dict[str, JsonValue]) -> None:
    """Open the turn with a message, and its round with a call of the shell."""
    state = draft.state
    number = round_id(state.turn_id, 1)
    call = ToolCall(id=call_id(number, 1), name=SHELL_TOOL, arguments=canonical(arguments))
    draft.add_message(said)
    draft.add_message(AssistantMessage(id=draft.next_message_id(), text="", calls=(call,), role=state.grant.role))
    # Only a gate has no model at all: what the user runs stands between messages to one.
    model = "" if state.command is None else state.grant.models[0].name
    draft.events += (
        TurnStarted(
            id=state.turn_id,
            parent_id=state.session_id,
            text=said.text,
            by=said.by,
            role=state.grant.role,
            model=model,
        ),
        RoundStarted(id=number, parent_id=state.turn_id, model=""),
    )
    draft.set_phase(
        InRound(
            round_id=number,
            proposed_under=state.grant,
            said="",
            model="",
            calls=(CallState(call=call, status=Inspecting()),),
        )
    )
    inspection.check_proposed(draft, 0)
    rounds.continue_round(draft)
