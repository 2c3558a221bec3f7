"""Delegated tasks on the screen: the card of the call, the child's questions, and its transcript."""

from dataclasses import replace

from chatops.domain.events import ApprovalRequested, CallProposed, Published, ToolOutput, ToolStarted, TurnStarted
from chatops.domain.ids import CallId, MessageId, RoundId, TurnId, child_session
from chatops.domain.messages import AssistantMessage, Speaker
from chatops.domain.tools import CallFacts, DelegationFacts, ToolCall
from chatops.tui.dialogs.approval_list import ApprovalList
from chatops.tui.transcript.blocks import CardStatus, StepBlock, ToolCardBlock
from chatops.tui.transcript.projector import Projector
from tests.tui.app.fakes import FakeSession, pending_call
from tests.tui.app.support_app import stage

ROUND = RoundId("20261121-101512-k3f9.1.1")
CALL = ToolCall(id=CallId(f"{ROUND}.1"), name="delegate", arguments='{"role":"writer","task":"Write it."}')
OWN = pending_call(tool="file_write")
CHILD = replace(
    OWN, call=replace(OWN.call, id=CallId("20261121-101512-k3f9-1-1-1.1.1.1")), caller="coder", role="writer"
)
ADDS = DelegationFacts(role="writer", model="Qwen", adds=("+ file_write",), grant="9d1c")


async def test_the_command_shows_what_the_role_of_a_task_has_said() -> None:
    session = FakeSession()
    session.change(messages=(AssistantMessage(id=MessageId("20261121-101512-k3f9.1.m2"), text="", calls=(CALL,)),))
    async with stage(session) as running:
        running.app.chat.run_command("/delegated")
        await running.settle()
        assert f"The session of {CALL.id}" in running.text
        await running.press("escape")
        running.app.chat.run_command("/delegated 2")
        await running.settle()
        assert "This session has delegated 1 task." in running.text
        session.publish(CallProposed(id=CALL.id, parent_id=ROUND, tool=CALL.name, arguments=CALL.arguments))
        await running.press("ctrl+up")
        assert "Enter open its transcript" in running.text
        await running.press("enter")
        await running.settle()
        assert f"The session of {CALL.id}" in running.text, "the card opens it too"


def test_the_card_keeps_its_task_while_a_call_of_the_child_waits() -> None:
    projector = Projector()

    def card(*events: CallProposed | ToolStarted | ApprovalRequested | ToolOutput) -> ToolCardBlock:
        for event in events:
            projector.feed(Published(at=0.0, event=event))
        block = projector.blocks[CALL.id]
        assert isinstance(block, ToolCardBlock) and block.tool == "delegate"
        return block

    card(CallProposed(id=CALL.id, parent_id=ROUND, tool=CALL.name, arguments=CALL.arguments))
    started = ToolStarted(
        id=CALL.id, parent_id=ROUND, tool=CALL.name, arguments=CALL.arguments, attempt=1, decided_by="policy"
    )
    card(started)
    waiting = card(ApprovalRequested(id=CALL.id, parent_id=ROUND, pending=CHILD))
    assert (waiting.status, waiting.asks_because) == (CardStatus.WAITING, "writer asks about file_write")
    assert card(ToolOutput(id=CALL.id, parent_id=ROUND, text="file_write\n")).status is CardStatus.RUNNING


def test_approving_the_rest_leaves_out_a_task_that_adds_rights() -> None:
    adds = pending_call(1, tool="delegate", facts=CallFacts(arguments=CALL.arguments, delegation=ADDS))
    plain = pending_call(2, tool="delegate", facts=CallFacts(arguments="{}", delegation=replace(ADDS, adds=())))
    calls = ApprovalList()
    calls.refresh([adds, plain])
    assert [item.pending.call.id for item in calls.approvable()] == [plain.call.id]


def test_what_a_child_was_told_is_titled_as_a_task() -> None:
    projector, turn = Projector(), TurnId(f"{child_session(CALL.id)}.1")
    started = TurnStarted(
        id=turn, parent_id=child_session(CALL.id), text="Write it.", role="writer", model="m", by=Speaker.MACHINE
    )
    projector.feed(Published(at=0.0, event=started))
    assert projector.blocks[f"{turn}.user"] == StepBlock(id=f"{turn}.user", title="Delegated task", text="Write it.")
