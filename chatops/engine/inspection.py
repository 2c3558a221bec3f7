"""Checks before a call may run: when it is proposed, when it has been inspected, and right before it starts.

`check_proposed` settles a call that cannot run whatever its arguments are, and has any other one inspected. The facts
of an inspection come back to `apply_inspection`. It judges by the status of the call: `Inspecting` for the first time
or after an edit, `Rechecking` right before the start.
"""

from collections.abc import Iterator
from dataclasses import replace

from chatops.domain.canonical import digest
from chatops.domain.decisions import Approved
from chatops.domain.events import AskReason, CallProposed, Notice
from chatops.domain.messages import AssistantMessage
from chatops.domain.model import CONTENT_FILTER
from chatops.domain.sandbox import NARROWEST
from chatops.domain.tools import CallFacts, Outcome, Problem, ResultSource, ToolCall, Verdict
from chatops.engine import calls, containment, decisions, delegation, feedback, step_limits, validations
from chatops.engine.draft import StepDraft
from chatops.engine.round_limits import MAX_SAME
from chatops.engine.state import BeforeEdit, CallState, Deferred, Inspecting, Mistake, OwnCommand, Permitted, Rechecking
from chatops.engine.view import ALWAYS_ASKS
from chatops.policy.verdicts import BY_POLICY
from chatops.shell.simple_command import simple_words

_MAX_LISTED = 3
"""Number of changes that are named. Further ones are only counted."""
FILTERED_REASON = (
    "the provider's content filter stopped the reply that makes this call, so the call may not be all of it"
)
MAX_CALLS = 64
"""Calls of one reply that are processed. Each further one is settled as invalid at once."""


def check_proposed(draft: StepDraft, index: int) -> None:
    """Check a proposed call before its arguments: settle it if it cannot run in any case, else have it inspected."""
    phase = calls.open_round(draft)
    call = phase.calls[index].call
    draft.events.append(CallProposed(id=call.id, parent_id=phase.round_id, tool=call.name, arguments=call.arguments))
    if index >= MAX_CALLS:
        return calls.settle_unrun(draft, index, Outcome.INVALID, feedback.TOO_MANY, source=ResultSource.SURPLUS)
    spec = phase.proposed_under.tool(call.name)
    if spec is None:
        return _settle_not_offered(draft, index)
    permitted = draft.state.grant.permits(call.name)
    if permitted.verdict is Verdict.DENY:
        return calls.deny(draft, index, permitted)
    early = step_limits.why_out_of_order(draft, index)
    waits = early is not None and step_limits.waits_for_earlier_call(draft, index)
    if early is not None and not waits:
        text = feedback.out_of_order_error(early.reason, early.advice)
        return _refuse_mistake(draft, index, text, reason=early.reason)
    if call.problem:
        return _refuse_mistake(draft, index, feedback.unreadable_call_error(call, spec), reason=call.problem)
    if _count_repetition(draft, call):
        return calls.settle_unrun(draft, index, Outcome.INVALID, feedback.REPEATED, reason=feedback.CALLED_AGAIN)
    if waits:
        draft.set_status(index, Deferred())
    else:
        calls.inspect_call(draft, call)
    return None


def _was_filtered(draft: StepDraft, call: ToolCall) -> bool:
    for message in reversed(draft.state.messages):
        if isinstance(message, AssistantMessage) and any(earlier.id == call.id for earlier in message.calls):
            return message.finish_reason == CONTENT_FILTER
    return False


def apply_inspection(draft: StepDraft, index: int, facts: CallFacts) -> None:
    """Apply the facts that an inspection found: judge the call the first time, compare and start it the last time."""
    call_state = calls.open_round(draft).calls[index]
    call, inspected = call_state.call, call_state.status
    # Repairs by the parser of the reply count even if the tool made none.
    facts = replace(facts, repairs=tuple(dict.fromkeys((*call.repairs, *facts.repairs))))
    if _was_filtered(draft, call):
        facts = replace(facts, needs_user="; ".join(reason for reason in (FILTERED_REASON, facts.needs_user) if reason))
    if containment.is_apply_round(draft):
        return _judge_changes(draft, index, facts)
    facts = delegation.refuse_if_limited(draft, call, facts)
    if facts.contained != containment.copy_for(draft, call) and isinstance(inspected, Inspecting | Rechecking):
        # The turn was contained, or its containment ended, while the call was inspected.
        return calls.inspect_call(draft, call)
    match inspected:
        case Inspecting(before_edit=None):
            _judge_first(draft, index, facts)
        case Inspecting(before_edit=BeforeEdit() as before):
            _judge_edited(draft, index, facts, before)
        case Rechecking() as status:
            _judge_again(draft, index, facts, status)
        case _:
            pass


def _judge_changes(draft: StepDraft, index: int, facts: CallFacts) -> None:
    """Ask about the frozen changes of a contained turn; apply them if the user has approved exactly these."""
    call_state = calls.open_round(draft).calls[index]
    fault = _problem_text(facts)
    if isinstance(call_state.status, Inspecting):
        if fault:
            calls.settle_unrun(draft, index, Outcome.INVALID, fault, facts=facts)
        else:
            calls.ask_user(draft, index, facts, AskReason.POLICY, why=containment.why_asked_again(draft) or ALWAYS_ASKS)
    elif isinstance(call_state.status, Rechecking):
        status, judgement = call_state.status, calls.judge_call(draft, call_state.call, facts)
        denied = judgement.reason if judgement.verdict is Verdict.DENY else ""
        if not fault and not denied and calls.call_digest(draft, call_state.call, facts) == status.digest:
            calls.start_call(draft, index, facts, status)
            return
        why = fault or denied or "the workspace has changed since the changes were approved"
        shown = status.facts if fault else facts
        calls.ask_user(draft, index, shown, AskReason.CHANGED, why=why, attempt=status.attempt)


def _judge_first(draft: StepDraft, index: int, facts: CallFacts) -> None:
    if early := step_limits.why_out_of_order(draft, index):
        text = feedback.out_of_order_error(early.reason, early.advice)
        _refuse_mistake(draft, index, text, reason=early.reason, facts=facts)
    elif facts.problems and facts.may_resolve and not calls.are_earlier_settled(draft, index):
        draft.set_status(index, Deferred())
    elif facts.problems:
        phase = calls.open_round(draft)
        call = phase.calls[index].call
        text = feedback.invalid_arguments_error(call, facts.problems, phase.proposed_under.tool(call.name))
        _refuse_mistake(draft, index, text, reason=_problem_line(facts.problems[0]), facts=facts)
    elif facts.refusal:
        _settle_refused(draft, index, facts)
    else:
        _apply_policy(draft, index, facts)


def _apply_policy(draft: StepDraft, index: int, facts: CallFacts) -> None:
    """Deny a call without mistakes, ask about it, permit it, or give it the result that it had before."""
    call = calls.open_round(draft).calls[index].call
    judgement = calls.judge_call(draft, call, facts)
    match judgement.verdict:
        case Verdict.DENY:
            calls.deny(draft, index, judgement, facts=facts)
        case _ if done := step_limits.reused_result(draft, call, facts):
            calls.log_verdict(draft, call, judgement.verdict, judgement.why, facts=facts)
            calls.settle_call(draft, index, done, verdict=None, decided_by=validations.EARLIER_ATTEMPT, facts=facts)
        case Verdict.ASK:
            _ask_unless_typed(draft, index, facts, judgement.why)
        case Verdict.ALLOW if calls.may_have_run_elsewhere(draft, index):
            calls.ask_user(draft, index, facts, AskReason.COPIED, why=calls.COPIED_REASON)
        case Verdict.ALLOW if _same_outcome_unknown(draft, call, facts):
            calls.ask_user(draft, index, facts, AskReason.POLICY, why=feedback.SAME_CALL_UNKNOWN)
        case Verdict.ALLOW:
            status = Permitted(
                facts=facts,
                digest=calls.call_digest(draft, call, facts),
                verdict=Verdict.ALLOW,
                decided_by=judgement.answered_by or BY_POLICY,
                fresh=True,
            )
            draft.set_status(index, status)


def _settle_refused(draft: StepDraft, index: int, facts: CallFacts) -> None:
    text = feedback.refused_error(facts)
    calls.settle_unrun(draft, index, Outcome.DENIED, text, verdict=Verdict.DENY, facts=facts)


def _ask_unless_typed(draft: StepDraft, index: int, facts: CallFacts, why: str) -> None:
    """Ask about a call, unless the user has typed it and that is the decision."""
    command, phase = draft.state.command, calls.open_round(draft)
    if command is None:
        calls.ask_user(draft, index, facts, AskReason.POLICY, why=why)
    elif any(grant.approvers(draft.calls()[index].call.name) for grant in (phase.proposed_under, draft.state.grant)):
        # Only the approvers decide, and the layer that asks names them.
        calls.ask_user(draft, index, facts, AskReason.POLICY, why=why)
    elif typing := _why_typing_asks(command, facts):
        calls.ask_user(draft, index, facts, AskReason.POLICY, why=typing)
    else:
        calls.ask_user(draft, index, facts, AskReason.POLICY, why=why, publish=False)
        decisions.apply_decision(draft, index, Approved(), command.by)


def _why_typing_asks(command: OwnCommand, facts: CallFacts) -> str:
    """Return why the user's typing of a command does not decide an *ask* about it; empty if it does.

    The dialog asks where no sandbox confines the command, about anything that the text itself does not show, and where
    the user can give what the command will probably lack in its sandbox.
    """
    if facts.needs_user or facts.repairs:
        return "; ".join(filter(None, (facts.needs_user, *facts.repairs)))
    if not command.decides:
        return "not all of the command you typed was shown as it is, or chatops was restarted since"
    if not facts.sandboxed:
        return "no sandbox confines the command you typed"
    if facts.credentials:
        return "the command you typed can use a credential"
    if facts.extra != NARROWEST:
        return "the command you typed may fail in the sandbox, and you can add what it lacks"
    return ""


def _same_outcome_unknown(draft: StepDraft, call: ToolCall, facts: CallFacts) -> bool:
    """Return True if running the call could repeat an effect whose outcome is still unknown."""
    spec = calls.open_round(draft).proposed_under.tool(call.name)
    repeatable = spec is not None and (spec.read_only or spec.idempotent)
    if repeatable or step_limits.is_evidence(draft.state, call.name):
        return False
    return feedback.is_outcome_unknown((*draft.state.history, *draft.state.messages), call.name, facts.arguments)


def _judge_edited(draft: StepDraft, index: int, facts: CallFacts, before: BeforeEdit) -> None:
    call = calls.open_round(draft).calls[index].call
    judgement = calls.judge_call(draft, call, facts)
    why_not = _problem_text(facts) or (judgement.reason if judgement.verdict is Verdict.DENY else "")
    if draft.state.gate is not None:
        why_not = f"the gate {draft.state.gate.name} only passes with its own command"
    if why_not:
        call = replace(call, arguments=before.arguments, repairs=before.repairs)
        draft.put_call(index, CallState(call=call, status=before.status))
        text, advice = (
            f"The edited arguments of {call.name} cannot be used: {why_not}",
            "The call is pending as before.",
        )
        notice = Notice(id=f"{call.id}.edit", parent_id=call.id, text=text, advice=advice, level="warning")
        draft.events.append(notice)
        calls.request_approval(draft, calls.open_round(draft).round_id, call)
        return
    if done := step_limits.reused_result(draft, call, facts):
        calls.settle_call(draft, index, done, verdict=None, decided_by=validations.EARLIER_ATTEMPT, facts=facts)
        return
    why, attempt, earlier = f"arguments edited by {before.edited_by}", before.status.attempt, before.status.interruption
    calls.ask_user(draft, index, facts, AskReason.EDITED, why=why, attempt=attempt, interruption=earlier)


def _judge_again(draft: StepDraft, index: int, facts: CallFacts, status: Rechecking) -> None:
    """Start a call that was permitted, if it may still run; else settle it or ask again.

    A decision of the user holds only for the call as it was shown. A call that was allowed without the user starts with
    the new facts, as long as it is still allowed.
    """
    call = calls.open_round(draft).calls[index].call
    if facts.problems:
        text = feedback.invalid_arguments_error(call, facts.problems, draft.spec(call.name))
        reason = _problem_line(facts.problems[0])
        calls.settle_unrun(draft, index, Outcome.INVALID, text, verdict=status.verdict, facts=facts, reason=reason)
        return
    if facts.refusal:
        _settle_refused(draft, index, facts)
        return
    judgement = calls.judge_call(draft, call, facts)
    if judgement.verdict is Verdict.DENY:
        calls.deny(draft, index, judgement, facts=facts)
        return
    by_user, is_allowed = status.verdict is Verdict.ASK, judgement.verdict is Verdict.ALLOW
    if _is_as_permitted(draft, call, facts, status) and (by_user or is_allowed):
        calls.start_call(draft, index, facts, status)
        return
    if status.extra != NARROWEST:
        facts = _without_extra(draft, facts, status)
    # The user approved the call for the workspace, so one that now works on the copy needs no approval if allowed.
    if is_allowed and (facts.contained or not by_user):
        decided_by = judgement.answered_by or BY_POLICY
        calls.start_call(draft, index, facts, replace(status, verdict=Verdict.ALLOW, decided_by=decided_by))
        return
    if by_user:
        reason, why = AskReason.CHANGED, _why_changed(call.name, status.facts, facts)
    else:
        reason, why = AskReason.POLICY, judgement.why
    earlier = status.interruption
    calls.ask_user(draft, index, facts, reason, why=why, attempt=status.attempt, interruption=earlier)


def _is_as_permitted(draft: StepDraft, call: ToolCall, facts: CallFacts, status: Rechecking) -> bool:
    """Return True if the call, inspected under the limits that it may run under, is the one that was permitted.

    What was shown of a call with extra limits was inspected without them: it differs from `facts` in what they change,
    and in nothing else.
    """
    if status.extra == NARROWEST:
        return calls.call_digest(draft, call, facts) == status.digest
    shown = status.facts
    if shown.extra != status.extra or facts.sandbox != shown.extra_sandbox:
        return False
    # Without the extra limits, the words of a command may have been unknown.
    same_words = facts.argv == shown.argv or (not shown.argv and facts.argv == simple_words(shown.command))
    as_shown = replace(
        facts,
        sandbox=shown.sandbox,
        network=shown.network,
        # With all of the network, a command has no credentials.
        credentials=facts.credentials or (shown.credentials if shown.extra.network else ()),
        argv=shown.argv if same_words else facts.argv,
        # Paths follow from the words, and the words are those that were shown.
        paths=facts.paths if shown.argv else shown.paths,
        extra=shown.extra,
        extra_sandbox=shown.extra_sandbox,
    )
    bound = calls.digest_with_extra(calls.call_digest(draft, call, as_shown), status.extra)
    return bound == status.digest and calls.is_within_ceiling(draft, status.extra)


def _without_extra(draft: StepDraft, facts: CallFacts, status: Rechecking) -> CallFacts:
    """Return `facts` as they are for the call without its extra limits, which the user may give again."""
    shown = status.facts
    offered = calls.is_within_ceiling(draft, shown.extra)
    return replace(
        facts,
        sandbox=shown.sandbox,
        network=shown.network,
        lacks=shown.lacks,
        extra=shown.extra if offered else NARROWEST,
        extra_sandbox=facts.sandbox if offered else "",
    )


def _why_changed(tool: str, shown: CallFacts, now: CallFacts) -> str:
    if shown.definition != now.definition:
        return f"the tool {tool} has changed since it was approved: review it again"
    return f"what would run has changed since it was approved: {difference(shown, now)}"


def _settle_not_offered(draft: StepDraft, index: int) -> None:
    grant = calls.open_round(draft).proposed_under
    call = calls.open_round(draft).calls[index].call
    known = any(rule.tool == call.name for layer in grant.layers for rule in layer.rules)
    if known:
        calls.deny(draft, index, grant.permits(call.name))
    else:
        offered = [spec.name for spec in grant.tools]
        if call.problem and not call.name:
            _refuse_mistake(draft, index, feedback.nameless_call_error(call.problem, offered), reason=call.problem)
        else:
            text = feedback.unknown_tool_error(call.name, offered)
            _refuse_mistake(draft, index, text, reason=f"there is no tool {feedback.short_name(call.name)!r}")


def _refuse_mistake(draft: StepDraft, index: int, problem: str, *, reason: str, facts: CallFacts | None = None) -> None:
    """Settle a call that cannot run as written: `problem` is for the model, `reason` for the user.

    The model gets all details the first time, and one line if it was told before.
    """
    call = calls.open_round(draft).calls[index].call
    counters = draft.state.counters
    arguments = facts.arguments if facts is not None else call.arguments
    signature = digest(call.name, arguments, problem)
    before = next((mistake for mistake in counters.mistakes if mistake.signature == signature), None)
    times = 1 if before is None else before.times + (before.request != counters.requests)
    others = tuple(mistake for mistake in counters.mistakes if mistake is not before)
    mistake = Mistake(signature=signature, times=times, request=counters.requests)
    # The guard against repetition counts only calls that could run.
    draft.count(replace(counters, mistakes=(*others, mistake)[-MAX_CALLS:], same_call=0, last_call=""))
    text = problem if times == 1 else feedback.same_mistake_error(call, facts.problems if facts is not None else ())
    calls.settle_unrun(draft, index, Outcome.INVALID, text, facts=facts, reason=reason)


def _count_repetition(draft: StepDraft, call: ToolCall) -> bool:
    """Count the call, and return True if it was made too often in a row."""
    counters = draft.state.counters
    signature = digest(call.name, call.arguments)
    same = counters.same_call + 1 if signature == counters.last_call else 1
    draft.count(replace(counters, same_call=same, last_call=signature))
    return same >= MAX_SAME


def _problem_text(facts: CallFacts) -> str:
    if facts.problems:
        return "; ".join(_problem_line(problem) for problem in facts.problems)
    return facts.refusal


def _problem_line(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


def difference(before: CallFacts, after: CallFacts) -> str:
    """Return what differs between two inspections of a call, as clauses."""
    found = list(_differences(before, after)) or ["the tool, its arguments or the role it runs under"]
    more = f"; {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
    return "; ".join(found[:_MAX_LISTED]) + more


def _differences(before: CallFacts, after: CallFacts) -> Iterator[str]:
    was, now = _digests_by_path(before), _digests_by_path(after)
    for path in dict.fromkeys((*was, *now)):
        if was.get(path) != now.get(path):
            yield f"the content of {path}"
    for name, old, new in (
        ("the command", before.command, after.command),
        ("the program that runs it", before.interpreter, after.interpreter),
        ("the words of the command", before.argv, after.argv),
        ("the folder it runs in", before.cwd, after.cwd),
        ("the files it touches", before.paths, after.paths),
        ("the hosts it contacts", before.hosts, after.hosts),
        ("the credentials it can use", before.credentials, after.credentials),
        ("the server, or what it says of the tool", before.server, after.server),
    ):
        if old != new:
            yield name
    # Other contents make another change, which is named already.
    if was == now and (before.diff, _digests_after(before)) != (after.diff, _digests_after(after)):
        yield "the change it makes"
    if before.sandbox != after.sandbox:
        yield f"the sandbox, now: {after.sandbox or 'none'}"
    if before.extra != after.extra:
        yield "what it may get in addition"
    elif before.extra_sandbox != after.extra_sandbox:
        yield f"the sandbox with what it gets in addition, now: {after.extra_sandbox}"
    if before.network != after.network:
        yield f"the network, now: {'yes' if after.network else 'no'}"


def _digests_by_path(facts: CallFacts) -> dict[str, str]:
    """Return the digests of contents before the call. An entry for the content after it is ``PATH becomes DIGEST``."""
    pairs = (entry.rpartition(" ") for entry in facts.hashes)
    return {path: digest for path, _, digest in pairs if not path.endswith(" becomes")}


def _digests_after(facts: CallFacts) -> tuple[str, ...]:
    return tuple(entry for entry in facts.hashes if entry.rpartition(" ")[0].endswith(" becomes"))
