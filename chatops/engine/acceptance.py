"""Answers in the turn of a workflow step: submitted, checked, then accepted or returned to the model with feedback.

Checks in order: parsable, no tool calls in it, no reported failure, envelope and schema, validations, patterns. The
first failed check gives the feedback. In the feedback no line starts with text of a tool or of the answer.

A refused answer counts as a round. Several answers without any JSON in a row end the turn (see `MAX_WITHOUT_JSON`).
When the rounds are used up one closing call without tools is left, and its answer is checked like any other.
"""

from collections.abc import Mapping, Sequence

from chatops.domain.canonical import JsonValue, PointerError, canonical, parse_json
from chatops.domain.events import AnswerRefused, Status, TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import RoundId
from chatops.domain.messages import AssistantMessage, Message, Speaker, UserMessage
from chatops.domain.model import ModelReply
from chatops.domain.tools import Problem
from chatops.domain.wording import one_line
from chatops.engine import round_limits, rounds, validations
from chatops.engine.contract import AnswerFacts, StepContract
from chatops.engine.draft import StepDraft
from chatops.engine.effects import CheckAnswer
from chatops.engine.state import AwaitingModel, CheckingAnswer, Purpose
from chatops.engine.validations import ValidationState, ValidationStatus
from chatops.policy.grant import Grant

_MAX_PROBLEMS = 12
_MAX_REASON_CHARS = 2_000
_MAX_LINE_CHARS = 400
_MAX_DETAIL_CHARS = 2_000
_MAX_SCHEMA_CHARS = 2_000
"""Characters of a schema that is repeated. Half a schema would mislead, and the system prompt has all of it."""
MAX_WITHOUT_JSON = 3
"""Consecutive answers without any JSON after which an attempt ends. Further reminders would not help."""

EMPTY_FEEDBACK = "[chatops] Your response was empty. Please provide a valid JSON response."
CUT_FEEDBACK = (
    "[chatops] Your response was cut off at the output limit, so it is not taken. Please answer again, shorter, with "
    "the complete JSON."
)
EMPTY_REASON = "Its answer was empty."
CUT_REASON = "Its answer was cut off at the output limit."
_ONLY_JSON = (
    "Please respond with ONLY valid JSON matching the required schema. No markdown, no explanatory text. The form is "
    '{"success": true, "result": …, "reasoning": "…"}.'
)
_UNREADABLE = "Your response could not be parsed as valid JSON."
_SEND_AS_TEXT = (
    "If what you wrote is the result, send it again as the text of `result`: "
    '{"success": true, "result": "what you wrote", "reasoning": "one sentence"}.'
)
_UNFIT = "Your response is valid JSON and does not match the required schema."
_WROTE_CALLS = (
    "You wrote tool calls into your response. They were not made: call the tools themselves, and give your final "
    "answer when you have their results."
)
_UNPROVEN = "You returned a final response but validations have not all passed."
_FIX_AND_VALIDATE = "Please fix the errors and call the validation tools again."
_UNMATCHED = "You returned a final response that does not pass the checks of this step."
_NO_REASON = "The model says that it did not succeed, and not why."


@frozen_dataclass
class Accepted:
    """The answer fulfils the contract.

    `answer` is the result as canonical JSON; without a schema a plain string stays as it is.
    """

    answer: str


@frozen_dataclass
class GivenUp:
    """The model itself reports failure, so the attempt has failed."""

    reason: str


@frozen_dataclass
class Refused:
    """The answer is not accepted."""

    message: str
    """Feedback for the model."""
    why: str
    """The same for the user: what happened, as sentences on one line."""
    unproven: tuple[str, ...] = ()
    """Validations that have not passed, as sentences."""
    wants_json: bool = False
    """True if the answer held no JSON."""
    hopeless: str = ""
    """Reason why no further answer could be accepted; empty if one could."""


Acceptance = Accepted | GivenUp | Refused


@frozen_dataclass
class _Result:
    """A result that has the form of the step."""

    value: JsonValue
    unmatched: tuple[str, ...]
    """Pattern gates that it does not pass, each as a line for the model."""


def judge_answer(contract: StepContract, facts: AnswerFacts, messages: Sequence[Message], grant: Grant) -> Acceptance:
    """Check an answer, parsed as `facts`, in a turn with `messages`."""
    try:
        read = parse_json(facts.value) if facts.value else None
    except ValueError:
        read = None
    if not isinstance(read, Mapping) or not read:
        problems = facts.problems or (Problem(path="", message="an empty object is not an answer"),)
        error = _problem_line(problems[0])
        message = _feedback(f"{_UNREADABLE} Error: {error}", (), f"{_ONLY_JSON} {_reminder(contract)}".rstrip())
        return Refused(message=message, why=_sentence("Its answer could not be read as JSON", [error]), wants_json=True)
    if read.get("tool_calls"):
        return Refused(
            message=_feedback(_WROTE_CALLS, (), ""), why="It wrote tool calls into its answer and did not make them."
        )
    if read.get("success") is False:
        return GivenUp(reason=_reported_reason(read))
    result = _find_result(read, contract, facts)
    if not isinstance(result, _Result):
        unfit = [_problem_line(problem) for problem in result[:_MAX_PROBLEMS]]
        return Refused(
            message=_feedback(_UNFIT, unfit, _ONLY_JSON),
            why=_sentence("Its answer does not have the form of this step", unfit),
        )
    try:
        missing = validations.missing_validations(contract, messages, grant, result.value)
    except PointerError as error:
        why, unnamed = "Nothing shows what its answer was validated for.", str(error)
        return Refused(
            message=_feedback(_UNPROVEN, [unnamed], _FIX_AND_VALIDATE), why=f"{why} {unnamed}", unproven=(unnamed,)
        )
    if missing:
        return _refuse_unproven(missing, grant)
    if result.unmatched:
        message = _feedback(_UNMATCHED, result.unmatched, "Please correct it and give your final answer again.")
        why = _sentence("Its answer does not pass the checks of this step", result.unmatched)
        return Refused(message=message, why=why)
    return Accepted(answer=result_text(result.value, schema=contract.output_schema))


def count_without_json(messages: Sequence[Message]) -> int:
    """Return how many of the last answers in a row were returned to the model because they contained no JSON."""
    count = 0
    for message in reversed(messages):
        match message:
            case UserMessage(wants_json=True):
                count += 1
            case AssistantMessage(calls=()):
                continue
            case _:
                break
    return count


def _reminder(contract: StepContract) -> str:
    """Return a reminder of the required form, for a model that answered in prose."""
    if not contract.output_schema:
        return _SEND_AS_TEXT
    if len(contract.output_schema) > _MAX_SCHEMA_CHARS:
        return ""
    return f"`result` has to fit this JSON Schema: {contract.output_schema}"


def result_text(result: JsonValue, *, schema: str) -> str:
    """Return the result as the run stores it and as patterns match it: JSON, or plain text without a schema."""
    return result if isinstance(result, str) and not schema else canonical(result)


def _find_result(
    read: Mapping[str, JsonValue], contract: StepContract, facts: AnswerFacts
) -> _Result | tuple[Problem, ...]:
    """Return the result of the answer, or the problems with its form.

    The envelope is tried first. An object with ``success`` is an envelope, unless the schema has that member too.
    """
    named = _schema_properties(contract.output_schema)
    enveloped = read.get("success") is True and "result" in read
    may_be_bare = bool(contract.output_schema) and ("success" not in read or "success" in named)
    if enveloped and not facts.result_problems:
        return _Result(value=read["result"], unmatched=facts.result_unmatched)
    # A schema without requirements fits any object.
    if may_be_bare and not facts.bare_problems and (not named or any(name in named for name in read)):
        return _Result(value=read, unmatched=facts.bare_unmatched)
    if enveloped:
        return facts.result_problems
    if may_be_bare and "result" not in read:
        unnamed = Problem(path="", message="none of its members is one that the schema has")
        return facts.bare_problems or (unnamed,)
    problems = []
    if read.get("success") is not True:
        problems.append(Problem(path="success", message="has to be true or false"))
    if "result" not in read:
        problems.append(Problem(path="result", message="is missing"))
    return (*problems, *facts.result_problems)


def _schema_properties(schema: str) -> Mapping[str, JsonValue]:
    """Return the properties of a schema; empty if it lists none."""
    try:
        described = parse_json(schema)
    except ValueError:
        return {}
    named = described.get("properties") if isinstance(described, Mapping) else None
    return named if isinstance(named, Mapping) else {}


def _reported_reason(read: Mapping[str, JsonValue]) -> str:
    for member in ("reasoning", "result"):
        value = read.get(member)
        if value:
            text = value if isinstance(value, str) else canonical(value)
            return one_line(text, most=_MAX_REASON_CHARS)
    return _NO_REASON


def _refuse_unproven(missing: Sequence[ValidationState], grant: Grant) -> Refused:
    lines = [f"- {state.words}" for state in missing[:_MAX_PROBLEMS]]
    if len(missing) > _MAX_PROBLEMS:
        lines.append(f"- and {len(missing) - _MAX_PROBLEMS} more.")
    found = [error for state in missing if state.status is ValidationStatus.FAILED for error in state.found]
    if found:
        lines.append(validations.problem_list(found[: validations.MAX_ERRORS]))
    gone = dict.fromkeys(state.tool for state in missing if grant.tool(state.tool) is None)
    hopeless = f"{', '.join(gone)} would have to pass and may not be called here." if gone else ""
    message = "\n".join([f"[chatops] {_UNPROVEN}", *lines, _FIX_AND_VALIDATE])
    facts = [state.fact for state in missing[:_MAX_PROBLEMS]]
    errors = _sentence("Found", [f"{error.path}: {error.message}" for error in found[:_MAX_PROBLEMS]]) if found else ""
    why = " ".join(part for part in ("Not all validations have passed.", *facts, errors) if part)
    words = tuple(state.words for state in missing)
    return Refused(message=message, why=why, unproven=words, hopeless=hopeless)


def _feedback(head: str, lines: Sequence[str], end: str) -> str:
    listed = [f"- {one_line(line, most=_MAX_LINE_CHARS)}" for line in lines]
    return "\n".join(part for part in (f"[chatops] {head}", *listed, end) if part)


def _sentence(what: str, details: Sequence[str]) -> str:
    text = "; ".join(one_line(detail, most=_MAX_LINE_CHARS) for detail in details)
    return f"{what}: {text}{'' if text.endswith(('.', '!', '?')) else '.'}"


def _problem_line(problem: Problem) -> str:
    given = f" (given: {problem.given})" if problem.given else ""
    where = f"{problem.path}: " if problem.path else ""
    return one_line(f"{where}{problem.message}{given}", most=_MAX_LINE_CHARS)


def submit_answer(draft: StepDraft, phase: AwaitingModel, reply: ModelReply, model: str) -> None:
    """Submit the text of a reply without calls for checking. Its message is already part of the turn."""
    if not reply.text.strip():
        rounds.close_round(draft, phase.round_id, model, Status.ERROR)
        empty = Refused(message=EMPTY_FEEDBACK, why=EMPTY_REASON, wants_json=True)
        _return_to_model(draft, phase.round_id, phase.purpose, empty)
        return
    rounds.close_round(draft, phase.round_id, model, Status.SUCCESS)
    if reply.finish_reason == "length":
        cut = Refused(message=CUT_FEEDBACK, why=CUT_REASON)
        _return_to_model(draft, phase.round_id, phase.purpose, cut)
        return
    draft.set_phase(CheckingAnswer(round_id=phase.round_id, purpose=phase.purpose, text=reply.text))
    request_check(draft)


def request_check(draft: StepDraft) -> None:
    """Emit the effect that checks the answer. Also used to repeat the check after a restart."""
    phase, contract = draft.state.phase, draft.state.contract
    if isinstance(phase, CheckingAnswer) and contract is not None:
        draft.effects.append(
            CheckAnswer(
                round_id=phase.round_id, text=phase.text, schema=contract.output_schema, patterns=contract.patterns
            )
        )


def apply_check(draft: StepDraft, phase: CheckingAnswer, facts: AnswerFacts) -> None:
    """Accept the answer, fail the turn, or return the answer to the model, as the contract says."""
    state = draft.state
    if state.contract is None:
        return
    match judge_answer(state.contract, facts, state.messages, state.grant):
        case Accepted(answer=answer):
            rounds.finish_turn(draft, TurnStatus.ANSWERED, answer)
        case GivenUp(reason=reason):
            rounds.finish_turn(draft, TurnStatus.FAILED, "", detail=reason)
        case Refused() as refused:
            _return_to_model(draft, phase.round_id, phase.purpose, refused)


def _return_to_model(draft: StepDraft, round_id: RoundId, purpose: Purpose, refused: Refused) -> None:
    draft.events.append(
        AnswerRefused(
            id=round_id,
            parent_id=draft.state.turn_id,
            reason=refused.message,
            why=refused.why,
            unproven=refused.unproven,
            final=bool(refused.hopeless) or purpose is Purpose.CLOSE,
        )
    )
    why = one_line(refused.why, most=_MAX_DETAIL_CHARS)
    if refused.hopeless:
        rounds.finish_turn(draft, TurnStatus.FAILED, "", detail=refused.hopeless)
    elif purpose is Purpose.CLOSE:
        rounds.finish_turn(draft, TurnStatus.LIMIT, "", detail=f"{round_limits.limit_text(draft)} {why}")
    else:
        message_id = draft.next_message_id()
        draft.add_message(
            UserMessage(id=message_id, text=refused.message, by=Speaker.MACHINE, wants_json=refused.wants_json)
        )
        round_limits.count_round(draft, only_invalid=False)
        if (times := count_without_json(draft.state.messages)) >= MAX_WITHOUT_JSON:
            detail = f"The model answered {times} times in a row without the JSON that this step asks for. {why}"
            rounds.finish_turn(draft, TurnStatus.FAILED, "", detail=detail)
            return
        rounds.ask_next(draft)
