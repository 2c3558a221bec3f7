"""Operations on the calls of a round: judge, ask, settle, deny, start.

A call is checked in this order: known, permitted, parsable, not repeated, valid (`inspection`), judged, decided
(`decisions`), inspected again, started in its turn (`start_ready_calls`). Functions take a call by its `index` in the
round.

Reads run side by side. No call overtakes one that can change what it reads.
"""

from dataclasses import asdict, replace

from chatops.domain.canonical import digest
from chatops.domain.decisions import NO_UID, Approved, Principal
from chatops.domain.events import ApprovalRequested, AskReason, Status, ToolFinished
from chatops.domain.ids import RoundId
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.tools import (
    CallFacts,
    Exposure,
    Interruption,
    Outcome,
    ResultFacts,
    ResultSource,
    ToolCall,
    ToolResult,
    ToolSpec,
    Verdict,
    changed_lines,
    written_path,
)
from chatops.engine import containment, delegation, feedback
from chatops.engine.draft import StepDraft
from chatops.engine.effects import DecisionRecord, InspectCall, RunTool, VerdictRecord
from chatops.engine.state import (
    AwaitingDecision,
    BeforeEdit,
    CallState,
    CallStatus,
    Deferred,
    InRound,
    Inspecting,
    Permitted,
    Rechecking,
    Settled,
    Started,
    Stopping,
    with_permit,
)
from chatops.engine.view import judge_apply, pending_calls, tool_started, workspace_was_read
from chatops.policy.delegation import MAX_AT_ONCE
from chatops.policy.sandbox import limited_by, widened
from chatops.policy.verdicts import BY_POLICY, Judgement, skill_layer

COPIED_REASON = "this store was copied or moved since the call was proposed; it may have run in the other copy"
_MAX_DIFF_CHARS = 16_000
"""Characters of a diff that are stored with the result. All of it was shown before the call was approved."""
_NOT_RUN = (Outcome.DENIED, Outcome.INVALID, Outcome.INTERRUPTED)
"""Outcomes that say "it did not run", or not to its end."""


def find_call(draft: StepDraft, call_id: str) -> int | None:
    """Return the index of the call with that id in the round in progress; None if there is none."""
    return next((index for index, call in enumerate(draft.calls()) if call.call.id == call_id), None)


def open_round(draft: StepDraft) -> InRound:
    """Return the round in progress. Callers have checked that there is one."""
    phase = draft.state.phase
    if not isinstance(phase, InRound):
        raise AssertionError(f"not in a round but {phase.kind}")
    return phase


def ask_user(
    draft: StepDraft,
    index: int,
    facts: CallFacts,
    reason: AskReason,
    *,
    why: str,
    attempt: int = 0,
    interruption: Interruption | None = None,
    publish: bool = True,
) -> None:
    """Let the call wait for the user. `publish`: tell UIs that an approval is requested.

    With an `interruption` the question is whether to run the call once more. Its digest differs, so that an answer to
    the question whether the call may run at all does not answer it.
    """
    call = open_round(draft).calls[index].call
    bound = call_digest(draft, call, facts)
    status = AwaitingDecision(
        facts=facts,
        digest=bound if interruption is None else _repetition_digest(bound, attempt),
        reason=reason,
        why=why,
        attempt=attempt,
        interruption=interruption,
        copied=reason is AskReason.COPIED,
    )
    draft.set_status(index, status)
    log_verdict(draft, call, Verdict.ASK, why, facts=facts, bound=status.digest)
    if publish:
        request_approval(draft, open_round(draft).round_id, call)


def approval_digest(draft: StepDraft, call: ToolCall, status: AwaitingDecision) -> str:
    """Return the digest of what an approval lets run.

    If a stored question does not match its call, the digest matches no inspection, so the call asks again.
    """
    bound = call_digest(draft, call, status.facts)
    return bound if status.digest == _repetition_digest(bound, status.attempt) else status.digest


def may_have_run_elsewhere(draft: StepDraft, index: int) -> bool:
    """Return True if running the call here could repeat what another copy of the store has done."""
    phase = open_round(draft)
    spec = phase.proposed_under.tool(phase.calls[index].call.name)
    return phase.copied and not (spec is not None and spec.read_only)


def _repetition_digest(bound: str, attempt: int) -> str:
    return digest(bound, "once more", attempt)


def request_approval(draft: StepDraft, round_id: RoundId, call: ToolCall) -> None:
    """Publish that a call waits for approval."""
    for pending in pending_calls(draft.state):
        if pending.call.id == call.id:
            draft.events.append(ApprovalRequested(id=call.id, parent_id=round_id, pending=pending))


def settle_unrun(
    draft: StepDraft,
    index: int,
    outcome: Outcome,
    content: str,
    *,
    verdict: Verdict | None = None,
    decided_by: str = "",
    facts: CallFacts | None = None,
    source: ResultSource = ResultSource.CALL,
    reason: str = "",
) -> None:
    """Settle a call that does not run with its only result. `reason` is for the user, see `ResultFacts`."""
    result = ToolResult(outcome=outcome, content=content, facts=ResultFacts(source=source, reason=reason))
    if verdict is Verdict.DENY:
        call, why = open_round(draft).calls[index].call, decided_by or (facts.refusal if facts is not None else "")
        log_verdict(draft, call, verdict, why, facts=facts)
    elif isinstance(status := open_round(draft).calls[index].status, Permitted | Rechecking):
        _log_unstarted(draft, open_round(draft).calls[index].call, status)
    settle_call(draft, index, result, verdict=verdict, decided_by=decided_by, facts=facts)


def settle_call(
    draft: StepDraft,
    index: int,
    result: ToolResult,
    *,
    verdict: Verdict | None,
    decided_by: str,
    facts: CallFacts | None,
) -> None:
    """Settle a call with its only result.

    If an earlier attempt may have taken effect, "did not run" is replaced by outcome unknown.
    """
    phase = draft.state.phase
    if not isinstance(phase, InRound | Stopping):
        return
    call, status = phase.calls[index].call, phase.calls[index].status
    # This run did not start, but the earlier one may have taken effect.
    if result.outcome in _NOT_RUN and (earlier := _interruption_of(status)) is not None:
        result = feedback.repetition_failed_result(earlier, result.content)
    arguments = facts.arguments if facts is not None else call.arguments
    spec = phase.proposed_under.tool(call.name) if isinstance(phase, InRound) else None
    diff = facts.diff if facts is not None else ""
    result = _with_known_facts(result, spec or draft.state.grant.tool(call.name), arguments, diff)
    settled = Settled(result=result, arguments=arguments, verdict=verdict, decided_by=decided_by)
    draft.set_status(index, settled)
    delegation.count_child(draft, facts, result)
    if result.facts.skill is not None and result.outcome is Outcome.SUCCESS:
        # From the skill that was read on, the turn has no more than what it permits.
        draft.set_grant(draft.state.grant.narrowed(skill_layer(result.facts.skill)))
    draft.events.append(
        ToolFinished(
            id=call.id,
            parent_id=phase.round_id,
            status=Status.SUCCESS if result.outcome is Outcome.SUCCESS else Status.ERROR,
            tool=call.name,
            arguments=arguments,
            outcome=result.outcome,
            content=result.content,
            problems=facts.problems if facts is not None else (),
            truncated=result.truncated,
            duration_ms=result.duration_ms,
            decided_by=decided_by,
            facts=result.facts,
        )
    )


def _with_known_facts(result: ToolResult, spec: ToolSpec | None, arguments: str, diff: str) -> ToolResult:
    """Return `result` with the facts that follow from what its tool does. An unknown tool may have read anything.

    A call that succeeded has made exactly the change of its `diff`, because the tool checks the content before and
    after it.
    """
    if result.outcome in (Outcome.DENIED, Outcome.INVALID):
        return result
    # A child that did not end by itself may have passed on something that it read.
    lost = spec is not None and spec.capabilities.delegates and result.outcome in (Outcome.INTERRUPTED, Outcome.UNKNOWN)
    reads = spec is None or spec.capabilities.reads_workspace or result.facts.reads_workspace or lost
    wrote = written_path(spec.capabilities, arguments) if spec is not None and result.outcome is Outcome.SUCCESS else ""
    known = replace(result.facts, reads_workspace=reads, wrote=wrote)
    if wrote and diff and known.source is ResultSource.CALL:
        added, removed = changed_lines(diff)
        whole_lines = diff if len(diff) <= _MAX_DIFF_CHARS else diff[: diff.rfind("\n", 0, _MAX_DIFF_CHARS) + 1]
        known = replace(known, diff=whole_lines, added=added, removed=removed)
    return replace(result, facts=known)


def _interruption_of(status: CallStatus) -> Interruption | None:
    """Return the attempt that may have taken effect although the call is about to run, or is being edited."""
    match status:
        case Permitted() | Rechecking():
            return status.interruption
        case Inspecting(before_edit=BeforeEdit(status=waiting)):
            return waiting.interruption
        case _:
            return None


def deny(draft: StepDraft, index: int, judgement: Judgement, *, facts: CallFacts | None = None) -> None:
    """Deny a call by policy. The model is told which layer denies it and which tools are on offer."""
    call = open_round(draft).calls[index].call
    offered = [spec.name for spec in draft.state.grant.tools]
    draft.judged[call.id] = judgement
    text, reason = feedback.not_permitted_error(call.name, judgement.reason, offered), judgement.reason
    settle_unrun(draft, index, Outcome.DENIED, text, verdict=Verdict.DENY, decided_by=reason, facts=facts)


def judge_call(draft: StepDraft, call: ToolCall, facts: CallFacts) -> Judgement:
    """Return the stricter verdict of the grant the call was proposed under and the one in force."""
    read = workspace_was_read(draft.state)
    then = open_round(draft).proposed_under
    if containment.is_apply_round(draft):
        return judge_apply(draft.state.containment, (then, draft.state.grant))
    verdicts = [
        grant.judge(call.name, facts, remembered=draft.remembered, workspace_read=read)
        for grant in ((draft.state.grant,) if draft.state.grant == then else (then, draft.state.grant))
    ]
    strictest = max(verdicts, key=lambda judgement: judgement.verdict.strictness)
    strictest = replace(
        strictest,
        workspace_read=any(judgement.workspace_read for judgement in verdicts),
        rule=next((judgement.rule for judgement in verdicts if judgement.rule is not None), None),
    )
    judged = draft.judged[call.id] = containment.answer_ask(draft, call, facts, strictest)
    return judged


def _log_unstarted(draft: StepDraft, call: ToolCall, status: Permitted | Rechecking) -> None:
    """Add the verdict, as it is now, on a call that was allowed and does not start."""
    if status.verdict is Verdict.ALLOW:
        judged = judge_call(draft, call, status.facts)
        # Remembered rules are read with an inspection only.
        rule = status.decided_by if status.decided_by != BY_POLICY else ""
        draft.judged[call.id] = replace(judged, answered_by=rule)
        verdict = Verdict.DENY if judged.verdict is Verdict.DENY else Verdict.ALLOW
        log_verdict(draft, call, verdict, judged.reason, facts=status.facts, bound=status.digest)


def log_verdict(
    draft: StepDraft, call: ToolCall, verdict: Verdict, why: str, *, facts: CallFacts | None, bound: str = ""
) -> None:
    """Add a verdict to the decision log. An approved call that starts has none: the ask and the decision are there."""
    phase = open_round(draft)
    then, now = phase.proposed_under, draft.state.grant
    judged = draft.judged.get(call.id)
    draft.verdicts.append(
        VerdictRecord(
            call=call,
            verdict=verdict,
            why=why,
            layer=judged.reason if judged is not None and verdict in (judged.verdict, Verdict.ALLOW) else "",
            answered_by=judged.answered_by if judged is not None and verdict is Verdict.ALLOW else "",
            grants=(then,) if then == now else (then, now),
            model=phase.model,
            facts=facts,
            digest=bound or (call_digest(draft, call, facts) if facts is not None else ""),
            workspace_read=workspace_was_read(draft.state),
        )
    )


def call_digest(draft: StepDraft, call: ToolCall, facts: CallFacts) -> str:
    """Return the digest that an approval is bound to: tool, schema, role, arguments, and everything they resolve to."""
    phase = open_round(draft)
    spec = phase.proposed_under.tool(call.name)
    return digest(
        call.id,
        call.name,
        spec.schema if spec is not None else "",
        phase.proposed_under.role,
        facts.arguments,
        facts.cwd,
        facts.command,
        list(facts.argv),
        list(facts.interpreter),
        list(facts.repairs),
        list(facts.paths),
        list(facts.hosts),
        list(facts.hashes),
        facts.diff,
        facts.sandbox,
        facts.network,
        # Left out when empty, so that digests stored by versions without these fields stay valid.
        *(value for value in (facts.needs_user, facts.definition, facts.contained) if value),
        *((list(facts.credentials),) if facts.credentials else ()),
        *((asdict(facts.extra), facts.extra_sandbox) if facts.extra != NARROWEST else ()),
        *((asdict(facts.server),) if facts.server is not None else ()),
        *((asdict(facts.delegation),) if facts.delegation is not None else ()),
    )


def digest_with_extra(bound: str, extra: SandboxSpec) -> str:
    """Return the digest of an approval that gives the call `extra` too."""
    return bound if extra == NARROWEST else digest(bound, "with", asdict(extra))


def sandbox_of(draft: StepDraft, extra: SandboxSpec = NARROWEST) -> SandboxSpec:
    """Return the limits of a call: the stricter ones of the grant it was proposed under and the grant in force.

    What the user gave it in `extra` is added, as far as the ceiling in force permits.
    """
    grant = open_round(draft).proposed_under.confined(draft.state.grant.sandbox)
    return limited_by(_ceiling(draft), widened(grant.sandbox or NARROWEST, extra))


def is_within_ceiling(draft: StepDraft, extra: SandboxSpec) -> bool:
    """Return True if the ceiling in force takes nothing away from `extra`."""
    grant = open_round(draft).proposed_under.confined(draft.state.grant.sandbox)
    return sandbox_of(draft, extra) == widened(grant.sandbox or NARROWEST, extra)


def _ceiling(draft: StepDraft) -> SandboxSpec | None:
    then, now = open_round(draft).proposed_under.ceiling, draft.state.grant.ceiling
    return now if then is None else limited_by(now, then)


def inspect_call(draft: StepDraft, call: ToolCall, extra: SandboxSpec = NARROWEST) -> None:
    """Have a call inspected where it would run, under the limits that it would run under."""
    limits, place = sandbox_of(draft, extra), containment.copy_for(draft, call)
    rights = delegation.child_grant(draft, call)
    draft.effects.append(InspectCall(call=call, sandbox=limits, ceiling=_ceiling(draft), contained=place, grant=rights))


def start_ready_calls(draft: StepDraft) -> None:
    """Start every permitted call whose turn in the round has come, and repeat deferred inspections."""
    if not isinstance(draft.state.phase, InRound):
        return
    for index, call in enumerate(draft.calls()):
        match call.status:
            case Permitted(fresh=True) as status if can_start(draft, index):
                start_call(draft, index, status.facts, status)
            case Permitted() as status if can_start(draft, index):
                draft.set_status(index, with_permit(status, Rechecking))
                inspect_call(draft, call.call, status.extra)
            case Permitted(fresh=True) as status:
                draft.set_status(index, replace(status, fresh=False))
            case Deferred() if are_earlier_settled(draft, index):
                draft.set_status(index, Inspecting())
                inspect_call(draft, call.call)
            case _:
                pass


def can_start(draft: StepDraft, index: int) -> bool:
    """Return True if the call may start now.

    All earlier calls must be settled. Otherwise it and all unsettled ones before it must be read-only, or all of these
    must delegate, `MAX_AT_ONCE` at most.
    """
    calls = draft.calls()
    unsettled = [call for call in calls[:index] if not isinstance(call.status, Settled)]
    if not unsettled:
        return True
    if delegation.delegates(draft, calls[index].call):
        return len(unsettled) < MAX_AT_ONCE and all(delegation.delegates(draft, call.call) for call in unsettled)
    return _is_read_only(draft, calls[index]) and all(_is_read_only(draft, call) for call in unsettled)


def start_call(draft: StepDraft, index: int, facts: CallFacts, status: Rechecking | Permitted) -> None:
    """Start a call as inspected. The commit of this step stores the intent before the tool runs."""
    phase = open_round(draft)
    call, attempt = phase.calls[index].call, status.attempt + 1
    bound = call_digest(draft, call, facts)
    started = with_permit(status, Started, facts=facts, digest=bound, attempt=attempt)
    draft.set_status(index, started)
    containment.record_use(draft, call, facts)
    judgement = judge_call(draft, call, facts)
    if status.verdict is not Verdict.ASK:
        log_verdict(draft, call, status.verdict, judgement.reason, facts=facts, bound=bound)
    # The copy of a contained turn holds no files that may hold secrets.
    exposure = Exposure.WHOLE if facts.contained else _exposure(judgement, status.verdict)
    if judgement.rule is not None and status.verdict is not Verdict.ASK:
        by = Principal(uid=NO_UID if judgement.rule.uid is None else judgement.rule.uid, rule=judgement.rule.id)
        draft.decisions.append(
            DecisionRecord(call_id=call.id, tool=call.name, digest=bound, decision=Approved(), by=by)
        )
    draft.effects.append(
        RunTool(
            call=call,
            facts=facts,
            attempt=attempt,
            digest=bound,
            exposure=exposure,
            sandbox=sandbox_of(draft, status.extra),
            **delegation.child_fields(draft, call),
        )
    )
    draft.events.append(tool_started(call, started, phase.round_id))


def _exposure(judgement: Judgement, verdict: Verdict) -> Exposure:
    """Return how much of the workspace a command gets: all of it only if the user was asked about this call."""
    if verdict is Verdict.ASK:
        return Exposure.WHOLE
    return Exposure.READ_ONLY if judgement.workspace_read else Exposure.MASKED


def are_earlier_settled(draft: StepDraft, index: int) -> bool:
    """Return True if every earlier call of the round has its result."""
    return all(isinstance(call.status, Settled) for call in draft.calls()[:index])


def tool_time_ms(draft: StepDraft) -> int:
    """Return how long the calls of the round ran, in milliseconds. Reads in a row ran side by side.

    `delegation.count_child` has counted child turns.
    """
    total_ms, side_by_side_ms = 0, 0
    for call in draft.calls():
        result = call.status.result if isinstance(call.status, Settled) else None
        duration_ms = result.duration_ms if result is not None and result.facts.usage is None else 0
        if _is_read_only(draft, call):
            side_by_side_ms = max(side_by_side_ms, duration_ms)
        else:
            total_ms, side_by_side_ms = total_ms + side_by_side_ms + duration_ms, 0
    return total_ms + side_by_side_ms


def _is_read_only(draft: StepDraft, call: CallState) -> bool:
    spec = draft.spec(call.call.name)
    return spec is not None and spec.read_only
