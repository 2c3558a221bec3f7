"""The contained turn: its calls work on a copy of the workspace, and the user decides once on all changes at the end.

Theory of operation

`TurnState.containment` says that the turn is contained. Two things follow for a call:

- where: built-in tools that read or write the workspace work on the copy. Tools that only read do so once the copy is
  in use, so that a turn that only reads copies nothing.
- whether: an *ask* about `CHANGING` tools is answered. A *deny* stays one, and other tools ask as before.

When the turn would end, or when the user ends the containment, a round is opened with one call that the engine makes:
`CONTAINED_APPLY`. Its inspection freezes the changes, it always asks, and running it applies them. So everything that
holds for a pending call holds for it: digest, checkpoint, journal, resume, decisions from another process. It has no
assistant message, so its result reaches the model as a note, see `rounds`. After it, `InRound.ending` follows, or the
next request if that is None. No model can call it: no grant offers it.

States of `TurnState.containment`, and what leads from one to the next:

| kind  | phase     | the turn                               | next                                               |
|-------|-----------|----------------------------------------|----------------------------------------------------|
| none  |           | works in the workspace                 | APPLY WORKING: `contain_turn`                      |
| APPLY | WORKING   | works in the copy, or asks at its end  | ENDING: the user ends it; SENT_BACK; none: decided |
| APPLY | ENDING    | works in the copy to the round's end   | SENT_BACK; none: decided                           |
| APPLY | SENT_BACK | closes the round that asked            | WORKING: same copy, next list                      |
| UNDO  | WORKING   | is only the question, see `start_undo` | none: taken back, left                             |

A turn that fails before anything ran in its copy stays APPLY WORKING for a retry, see `contain_retry`.
A list cannot be sent back in an UNDO: no model is there to continue.
"""

from dataclasses import replace

from chatops.domain.canonical import JsonValue
from chatops.domain.tools import BUILT_IN, BUILT_IN_TOOLS, CONTAINED_APPLY, CallFacts, ToolCall, Verdict
from chatops.engine.draft import StepDraft
from chatops.engine.effects import DiscardCopy, InspectCall
from chatops.engine.state import Containment, ContainmentKind, ContainmentPhase, Finished, InRound
from chatops.policy.verdicts import Judgement

CHANGING = frozenset(name for name, known in BUILT_IN_TOOLS.items() if known.writes or known.runs_anything)
"""Tools whose *ask* a contained turn answers."""
ANSWERED_BY = "the turn is contained"
PROMPT = (
    "This turn is contained: file and command tools work on a copy of the workspace. The user sees all changes when "
    "the turn ends and decides which are applied. Commands have no network unless hosts are permitted. `.git` is "
    "read-only, so `git add` and `git commit` fail; files that may hold secrets are absent. Do not ask whether you may "
    "change something."
)


def contain_turn(draft: StepDraft) -> None:
    """Contain the turn from now on. A turn of a workflow run is never contained."""
    state = draft.state
    if state.containment is None and state.contract is None and state.gate is None:
        name = f"{state.turn_id}.c{state.counters.requests}"
        draft.state = replace(state, containment=Containment(name=name))


def contain_retry(draft: StepDraft) -> None:
    """Contain the retry of a turn that had failed before anything ran in its copy."""
    if draft.state.containment is not None:
        draft.state = replace(draft.state, containment=None)
        if draft.state.grant.may_contain:
            contain_turn(draft)


def end_with_round(draft: StepDraft) -> None:
    """End the containment with the round; at once if nothing ran in the copy."""
    containment = draft.state.containment
    if containment is not None and containment.used and not is_apply_round(draft):
        draft.state = replace(draft.state, containment=replace(containment, phase=ContainmentPhase.ENDING))
    elif containment is not None and not containment.used:
        end_containment(draft)


def copy_for(draft: StepDraft, call: ToolCall) -> str:
    """Return the name of the copy that a call works on; empty: it works on the workspace."""
    containment = draft.state.containment
    if containment is None:
        return ""
    if is_apply_round(draft):
        return containment.name
    spec = draft.spec(call.name)
    if spec is None or spec.source != BUILT_IN or not spec.capabilities.reads_workspace:
        return ""
    return "" if spec.read_only and not containment.used else containment.name


def answer_ask(draft: StepDraft, call: ToolCall, facts: CallFacts, judgement: Judgement) -> Judgement:
    """Return `judgement`, or ALLOW if it is an ask about a call that runs in the copy."""
    contained = facts.contained and facts.contained == copy_for(draft, call) and call.name in CHANGING
    if judgement.verdict is not Verdict.ASK or not contained or not draft.state.grant.may_contain:
        return judgement
    return Judgement(verdict=Verdict.ALLOW, reason=judgement.reason, answered_by=ANSWERED_BY)


def record_use(draft: StepDraft, call: ToolCall, facts: CallFacts) -> None:
    """Record that a call runs in the copy."""
    containment = draft.state.containment
    if facts.contained and containment is not None and call.name in CHANGING and call.name not in containment.used:
        used = (*containment.used, call.name)
        draft.state = replace(draft.state, containment=replace(containment, used=used))


def open_apply_round(draft: StepDraft, ending: Finished | None) -> bool:
    """Open the round that asks about the changes. Returns False, and opens none, if nothing ran in the copy.

    `ending` is how the turn ends after the decision; None: the model is asked again.
    """
    containment = draft.state.containment
    if containment is None or not containment.used or is_apply_round(draft):
        return False
    put_apply_call(draft, ending, {"turn": containment.name, "list": containment.lists + 1})
    return True


def put_apply_call(draft: StepDraft, ending: Finished | None, arguments: dict[str, JsonValue]) -> None:
    """Open a round with a call of `CONTAINED_APPLY` and have it inspected."""
    draft.count(replace(draft.state.counters, requests=draft.state.counters.requests + 1))
    phase = replace(draft.round_without_model(CONTAINED_APPLY, arguments), ending=ending, applies=True)
    draft.set_phase(phase)
    call = phase.calls[0].call
    draft.effects.append(InspectCall(call=call, contained=copy_for(draft, call)))


def is_apply_round(draft: StepDraft) -> bool:
    """Return True in the round that asks about the changes. The name of a call does not count: models choose it."""
    return isinstance(draft.state.phase, InRound) and draft.state.phase.applies


def send_back(draft: StepDraft) -> None:
    """Record that the user has sent the present list back."""
    if draft.state.containment is not None:
        sent = replace(draft.state.containment, phase=ContainmentPhase.SENT_BACK)
        draft.state = replace(draft.state, containment=sent)


def why_asked_again(draft: StepDraft) -> str:
    """Return which list of the turn is asked about, and why the last one was sent back; empty for the first list."""
    containment = draft.state.containment
    if containment is None or not containment.lists:
        return ""
    because = f": {containment.reason}" if containment.reason else ""
    return f"this is list {containment.lists + 1} of this turn; the last one was sent back{because}"


def next_list(draft: StepDraft, reason: str) -> None:
    """Continue in the same copy, with a new list, after the present one was sent back for `reason`."""
    containment = draft.state.containment
    if containment is not None:
        kept = replace(containment, lists=containment.lists + 1, phase=ContainmentPhase.WORKING, reason=reason)
        draft.state = replace(draft.state, containment=kept)


def end_containment(draft: StepDraft) -> None:
    """End the containment after the decision, or because nothing ran in the copy."""
    containment = draft.state.containment
    if containment is not None:
        draft.state = replace(draft.state, containment=None)
        draft.effects.append(DiscardCopy(name=containment.name))


def is_undo(draft: StepDraft) -> bool:
    """Return True if the turn asks to take back what an earlier one changed."""
    containment = draft.state.containment
    return containment is not None and containment.kind is ContainmentKind.UNDO
