"""The turn of a gate: one call of shell_exec made by the workflow, without a model.

The call is judged, decided and journaled like any other. Its result decides whether the gate passes.
"""

from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.events import RoundStarted, TurnStarted
from chatops.domain.ids import call_id, round_id
from chatops.domain.messages import AssistantMessage, Speaker, UserMessage
from chatops.domain.tools import ToolCall
from chatops.engine import inspection, rounds
from chatops.engine.draft import Draft
from chatops.engine.state import CallState, InRound, Inspecting
from chatops.policy.workflow import GATE_TOOL, CommandGate


def begin(draft: Draft, gate: CommandGate) -> None:
    """Create the gate's call and start its inspection."""
    state = draft.state
    number = round_id(state.turn_id, 1)
    arguments: dict[str, JsonValue] = {"command": gate.command}
    if gate.timeout_s is not None:
        arguments["timeout_s"] = gate.timeout_s
    call = ToolCall(id=call_id(number, 1), name=GATE_TOOL, arguments=canonical(arguments))
    text = f"[chatops] Gate {gate.name}: {gate.command}"
    draft.say(UserMessage(id=draft.next_message_id(), text=text, by=Speaker.MACHINE))
    draft.say(AssistantMessage(id=draft.next_message_id(), text="", calls=(call,), role=state.grant.role))
    draft.events += (
        TurnStarted(id=state.turn_id, parent_id=state.session_id, text=text, role=state.grant.role, model=""),
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
    inspection.triage(draft, 0)
    rounds.go_on(draft)
