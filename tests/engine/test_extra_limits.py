"""An approval with extra limits: exactly those that were shown, once, within the ceiling in force at the run."""

import json
from dataclasses import replace

from chatops.domain.decisions import AnyArguments, Approved, Decision, Edited, Principal
from chatops.domain.events import AskReason, CallDecided
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.tools import CallFacts
from chatops.engine.effects import InspectCall, RunTool, TurnStep
from chatops.engine.inputs import DecideCall, InspectionInput, NarrowGrant, Recover
from chatops.engine.state import AwaitingDecision, InRound, Permitted, TurnState
from chatops.engine.turn import advance
from chatops.engine.view import pending_calls
from chatops.policy.sandbox import widened
from chatops.store import codec
from tests.support.cases import for_each
from tests.support.turns import CALL, paused

USER = Principal(uid=1000, login="ana", via="tui")
BASE = SandboxSpec(read=("/opt/x",))
EXTRA = SandboxSpec(network=True, git="commit")
FACTS = CallFacts(
    arguments='{"command":"git push"}',
    command="git push",
    cwd="/w",
    sandbox="tight",
    extra=EXTRA,
    extra_sandbox="tight, with network",
)
WIDER = replace(FACTS, sandbox="tight, with network", network=True, extra=NARROWEST, extra_sandbox="")


def asked(*, ceiling: SandboxSpec | None = None, facts: CallFacts = FACTS) -> TurnState:
    """A turn whose call waits for its approval, with `facts`."""
    before = paused(command="git push")
    assert isinstance(before.phase, InRound)
    held = replace(before.grant, sandbox=BASE, ceiling=ceiling)
    (one,) = before.phase.calls
    assert isinstance(one.status, AwaitingDecision)
    phase = replace(before.phase, proposed_under=held, calls=(replace(one, status=replace(one.status, facts=facts)),))
    state = replace(before, grant=held, phase=phase)
    # Asked again through the machine, so that the digest is its own.
    edited = decide(state, Edited(arguments=facts.arguments))
    return advance(edited.state, InspectionInput(call_id=CALL, facts=facts)).state


def decide(state: TurnState, decision: Decision, *, by: Principal = USER) -> TurnStep:
    (pending,) = pending_calls(state)
    return advance(state, DecideCall(call_id=CALL, digest=pending.digest, decision=decision, by=by))


def inspection(step: TurnStep) -> InspectCall:
    (effect,) = [one for one in step.effects if isinstance(one, InspectCall)]
    return effect


def ran(step: TurnStep) -> list[RunTool]:
    return [one for one in step.effects if isinstance(one, RunTool)]


def test_it_runs_once_with_exactly_what_was_shown() -> None:
    step = decide(asked(), Approved(extra=EXTRA))
    assert inspection(step).sandbox == widened(BASE, EXTRA)
    (run,) = ran(advance(step.state, InspectionInput(call_id=CALL, facts=WIDER)))
    assert run.sandbox == widened(BASE, EXTRA) and run.facts.sandbox == "tight, with network"


def test_a_plain_approval_gives_nothing_more() -> None:
    step = decide(asked(), Approved())
    assert inspection(step).sandbox == BASE
    (run,) = ran(advance(step.state, InspectionInput(call_id=CALL, facts=FACTS)))
    assert run.sandbox == BASE


@for_each(
    ("decision", "by"),
    [
        (Approved(extra=SandboxSpec(network=True)), USER),
        (Approved(extra=SandboxSpec(network=True, git="writable")), USER),
        (Approved(extra=EXTRA, remember=AnyArguments()), USER),
        (Approved(extra=EXTRA), replace(USER, via="approvals")),
        (Approved(extra=EXTRA), replace(USER, via="headless")),
        (Approved(extra=EXTRA), replace(USER, via="python")),
    ],
)
def test_nothing_but_the_dialog_gives_it_and_only_as_a_whole(decision: Approved, by: Principal) -> None:
    before = asked()
    step = decide(before, decision, by=by)
    assert step.state == before and not any(isinstance(event, CallDecided) for event in step.events)


def test_what_is_not_offered_cannot_be_given() -> None:
    before = asked(facts=replace(FACTS, extra=NARROWEST, extra_sandbox=""))
    assert decide(before, Approved(extra=EXTRA)).state == before


def test_after_a_crash_it_is_honoured_once() -> None:
    approved = decide(asked(), Approved(extra=EXTRA)).state
    stored = codec.decode_state(codec.encode_state(approved), version=codec.STATE_VERSION).state
    again = advance(
        replace(stored, history=approved.history, messages=approved.messages), Recover(grant=approved.grant)
    )
    assert inspection(again).sandbox == widened(BASE, EXTRA)
    started = advance(again.state, InspectionInput(call_id=CALL, facts=WIDER))
    assert len(ran(started)) == 1
    assert ran(advance(started.state, InspectionInput(call_id=CALL, facts=WIDER))) == []


def test_with_all_of_the_network_it_runs_without_the_credential_that_was_shown_and_never_with_another() -> None:
    shown, other = ("T at a.example as X: {}",), ("U at b.example as X: {}",)
    step = decide(asked(facts=replace(FACTS, credentials=shown)), Approved(extra=EXTRA))
    assert ran(advance(step.state, InspectionInput(call_id=CALL, facts=WIDER)))
    assert not ran(advance(step.state, InspectionInput(call_id=CALL, facts=replace(WIDER, credentials=other))))
    plain = decide(asked(), Approved(extra=EXTRA))
    assert not ran(advance(plain.state, InspectionInput(call_id=CALL, facts=replace(WIDER, credentials=other))))


@for_each(
    ("found", "why"),
    [
        (replace(WIDER, sandbox="off (bubblewrap is gone)"), "the sandbox with what it gets in addition"),
        (replace(WIDER, hashes=("/w/Makefile 01",)), "the content of /w/Makefile"),
        (replace(WIDER, argv=("git", "push", "--force")), "the words of the command"),
        (replace(WIDER, hosts=("evil.example",)), "the hosts it contacts"),
    ],
)
def test_a_difference_asks_again(found: CallFacts, why: str) -> None:
    step = decide(asked(), Approved(extra=EXTRA))
    again = advance(step.state, InspectionInput(call_id=CALL, facts=found))
    assert ran(again) == []
    (pending,) = pending_calls(again.state)
    assert pending.reason is AskReason.CHANGED and why in pending.why
    assert pending.facts.sandbox == "tight" and pending.facts.extra == EXTRA


def test_the_words_may_become_known_by_what_it_may_read_now() -> None:
    step = decide(asked(), Approved(extra=EXTRA))
    assert ran(advance(step.state, InspectionInput(call_id=CALL, facts=replace(WIDER, argv=("git", "push")))))


def test_the_ceiling_in_force_counts_when_it_runs() -> None:
    step = decide(asked(), Approved(extra=EXTRA))
    narrowed = advance(step.state, NarrowGrant(layers=(), ceiling=SandboxSpec(read=("/opt",), git="commit")))
    again = advance(narrowed.state, InspectionInput(call_id=CALL, facts=WIDER))
    assert ran(again) == []
    (pending,) = pending_calls(again.state)
    assert "what it may get in addition" in pending.why and pending.facts.extra == NARROWEST
    ceiling = SandboxSpec(read=("/opt",))
    under = decide(asked(ceiling=ceiling), Approved(extra=EXTRA))
    assert inspection(under).sandbox == BASE and inspection(under).ceiling == ceiling


def test_a_forged_checkpoint_runs_nothing_that_was_not_shown() -> None:
    approved = decide(asked(), Approved()).state
    payload = json.loads(codec.encode_state(approved))
    (call,) = payload["phase"]["calls"]
    call["status"]["extra"] = {**call["status"]["extra"], "network": True, "git": "writable", "write": ["/"]}
    forged = codec.decode_state(json.dumps(payload), version=codec.STATE_VERSION).state
    assert isinstance(forged.phase, InRound)
    again = advance(
        replace(forged, history=approved.history, messages=approved.messages), Recover(grant=approved.grant)
    )
    step = advance(again.state, InspectionInput(call_id=CALL, facts=WIDER))
    assert ran(step) == [] and len(pending_calls(step.state)) == 1
    # The very limits that were offered and not given.
    (call,) = payload["phase"]["calls"]
    call["status"]["extra"] = {**call["status"]["extra"], "git": "commit", "write": []}
    forged = codec.decode_state(json.dumps(payload), version=codec.STATE_VERSION).state
    again = advance(
        replace(forged, history=approved.history, messages=approved.messages), Recover(grant=approved.grant)
    )
    assert ran(advance(again.state, InspectionInput(call_id=CALL, facts=WIDER))) == []


def test_an_edit_drops_it() -> None:
    step = decide(asked(), Edited(arguments='{"command":"git status"}'))
    assert inspection(step).sandbox == BASE
    assert not isinstance(step.state.phase, Permitted)
