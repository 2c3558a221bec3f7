"""Acceptance of a step's answer, and the feedback to the model if it is refused.

Checks in order: parsable, no tool calls in it, no reported failure, envelope and schema, validations, patterns. The
first failed check gives the feedback. In the feedback no line starts with text of a tool or of the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chatops.domain.canonical import JsonValue, canonical, parsed
from chatops.domain.messages import AssistantMessage, Message, UserMessage
from chatops.domain.tools import Problem
from chatops.engine import findings, tracker
from chatops.engine.contract import AnswerFacts, StepContract
from chatops.engine.tracker import Stand, Standing
from chatops.policy.grant import Grant

_MOST_PROBLEMS = 12
_MOST_OF_A_REASON = 2_000
_MOST_OF_A_LINE = 400
_MOST_OF_A_SCHEMA = 2_000
"""Characters of a schema that is repeated. Half a schema would mislead, and the system prompt has all of it."""
MOST_WITHOUT_JSON = 3
"""Consecutive answers without any JSON after which an attempt ends. Further reminders would not help."""

EMPTY = "[chatops] Your response was empty. Please provide a valid JSON response."
CUT = (
    "[chatops] Your response was cut off at the output limit, so it is not taken. Please answer again, shorter, with "
    "the complete JSON."
)
WAS_EMPTY = "Its answer was empty."
WAS_CUT = "Its answer was cut off at the output limit."
CLOSING = (
    "[chatops] All rounds of this step are used up: this is your last response, and no tool can be called any more. "
    "Give your final answer now, as JSON in the required format. If the step is not complete, answer "
    '{"success": false, "result": null, "reasoning": "what is missing"}.'
)
GUIDANCE = "IMPORTANT: This tool call failed. Read the error, understand the issue, fix your parameters, and retry."
_ONLY_JSON = (
    "Please respond with ONLY valid JSON matching the required schema. No markdown, no explanatory text. The form is "
    '{"success": true, "result": …, "reasoning": "…"}.'
)
_UNREADABLE = "Your response could not be parsed as valid JSON."
NOT_JSON = f"[chatops] {_UNREADABLE}"
_AS_TEXT = (
    "If what you wrote is the result, give it again as the text of `result`: "
    '{"success": true, "result": "what you wrote", "reasoning": "one sentence"}.'
)
_UNFIT = "Your response is valid JSON and does not match the required schema."
_CALLS = (
    "You wrote tool calls into your response. They were not made: call the tools themselves, and give your final "
    "answer when you have their results."
)
_UNPROVEN = "You returned a final response but validations have not all passed."
_AGAIN = "Please fix the errors and call the validation tools again."
_PATTERNS = "You returned a final response that does not pass the checks of this step."
_NO_REASON = "The model says that it did not succeed, and not why."


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The answer fulfils the contract.

    `answer` is the result as canonical JSON; without a schema a plain string stays as it is.
    """

    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The model itself reports failure, so the attempt has failed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The answer is not accepted."""

    told: str
    """Feedback for the model."""
    why: str
    """The same for the user: what happened, as sentences on one line."""
    unproven: tuple[str, ...] = ()
    """Validations that have not passed, as sentences."""
    wants_json: bool = False
    """True if the answer held no JSON."""
    hopeless: str = ""
    """Why no further answer could be accepted; empty if one could."""


Word = Accepted | GivenUp | Refused


def word_on(contract: StepContract, facts: AnswerFacts, messages: Sequence[Message], grant: Grant) -> Word:
    """Check an answer, parsed as `facts`, in a turn with `messages`."""
    try:
        read = parsed(facts.value) if facts.value else None
    except ValueError:
        read = None
    if not isinstance(read, Mapping) or not read:
        problems = facts.problems or (Problem(path="", message="an empty object is no answer"),)
        error = _problem(problems[0])
        told = _told(f"{_UNREADABLE} Error: {error}", (), f"{_ONLY_JSON} {_how(contract)}".rstrip())
        return Refused(told=told, why=_why("Its answer could not be read as JSON", [error]), wants_json=True)
    if read.get("tool_calls"):
        return Refused(told=_told(_CALLS, (), ""), why="It wrote tool calls into its answer and did not make them.")
    if read.get("success") is False:
        return GivenUp(reason=_reason(read))
    result, unmatched, problems = _result(read, contract, facts)
    if problems:
        unfit = [_problem(problem) for problem in problems[:_MOST_PROBLEMS]]
        return Refused(
            told=_told(_UNFIT, unfit, _ONLY_JSON), why=_why("Its answer does not have the form of this step", unfit)
        )
    missing = tracker.unproven(contract, messages, grant, result)
    if isinstance(missing, str):
        why = "Nothing shows what its answer was validated for."
        return Refused(told=_told(_UNPROVEN, [missing], _AGAIN), why=f"{why} {missing}", unproven=(missing,))
    if missing:
        return _unproven(missing, grant)
    if unmatched:
        told = _told(_PATTERNS, unmatched, "Please correct it and give your final answer again.")
        return Refused(told=told, why=_why("Its answer does not pass the checks of this step", unmatched))
    return Accepted(answer=spelled(result, schema=contract.output_schema))


def without_json(messages: Sequence[Message]) -> int:
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


def _how(contract: StepContract) -> str:
    """Return a reminder of the required form, for a model that answered in prose."""
    if not contract.output_schema:
        return _AS_TEXT
    if len(contract.output_schema) > _MOST_OF_A_SCHEMA:
        return ""
    return f"`result` has to fit this JSON Schema: {contract.output_schema}"


def spelled(result: JsonValue, *, schema: str) -> str:
    """Return the result as the run stores it and as patterns match it: JSON, or plain text without a schema."""
    return result if isinstance(result, str) and not schema else canonical(result)


def _result(
    read: Mapping[str, JsonValue], contract: StepContract, facts: AnswerFacts
) -> tuple[JsonValue, tuple[str, ...], tuple[Problem, ...]]:
    """Return the result of the answer and the patterns it does not match, or the problems with its form.

    The envelope is tried first. An object with ``success`` is an envelope, unless the schema has that member too.
    """
    named = _named(contract.output_schema)
    enveloped = read.get("success") is True and "result" in read
    may_be_bare = bool(contract.output_schema) and ("success" not in read or "success" in named)
    if enveloped and not facts.result_problems:
        return read["result"], facts.result_unmatched, ()
    # A schema without requirements fits any object.
    if may_be_bare and not facts.bare_problems and (not named or any(name in named for name in read)):
        return read, facts.bare_unmatched, ()
    if enveloped:
        return None, (), facts.result_problems
    if may_be_bare and "result" not in read:
        unnamed = Problem(path="", message="none of its members is one that the schema has")
        return None, (), facts.bare_problems or (unnamed,)
    problems = []
    if read.get("success") is not True:
        problems.append(Problem(path="success", message="has to be true or false"))
    if "result" not in read:
        problems.append(Problem(path="result", message="is missing"))
    return None, (), (*problems, *facts.result_problems)


def _named(schema: str) -> Mapping[str, JsonValue]:
    """Return the properties of a schema; empty if it lists none."""
    try:
        described = parsed(schema)
    except ValueError:
        return {}
    named = described.get("properties") if isinstance(described, Mapping) else None
    return named if isinstance(named, Mapping) else {}


def _reason(read: Mapping[str, JsonValue]) -> str:
    for member in ("reasoning", "result"):
        said = read.get(member)
        if said:
            text = said if isinstance(said, str) else canonical(said)
            return findings.one_line(text, most=_MOST_OF_A_REASON)
    return _NO_REASON


def _unproven(missing: Sequence[Standing], grant: Grant) -> Refused:
    lines = [f"- {standing.words}" for standing in missing[:_MOST_PROBLEMS]]
    if len(missing) > _MOST_PROBLEMS:
        lines.append(f"- and {len(missing) - _MOST_PROBLEMS} more.")
    found = [error for standing in missing if standing.stand is Stand.FAILED for error in standing.found]
    if found:
        lines.append(findings.numbered(found[: findings.MAX_ERRORS]))
    gone = dict.fromkeys(standing.tool for standing in missing if grant.tool(standing.tool) is None)
    hopeless = f"{', '.join(gone)} would have to pass and may not be called here." if gone else ""
    told = "\n".join([f"[chatops] {_UNPROVEN}", *lines, _AGAIN])
    facts = [standing.fact for standing in missing[:_MOST_PROBLEMS]]
    errors = _why("Found", [f"{error.path}: {error.message}" for error in found[:_MOST_PROBLEMS]]) if found else ""
    why = " ".join(part for part in ("Not all validations have passed.", *facts, errors) if part)
    words = tuple(standing.words for standing in missing)
    return Refused(told=told, why=why, unproven=words, hopeless=hopeless)


def _told(head: str, lines: Sequence[str], end: str) -> str:
    listed = [f"- {findings.one_line(line, most=_MOST_OF_A_LINE)}" for line in lines]
    return "\n".join(part for part in (f"[chatops] {head}", *listed, end) if part)


def _why(what: str, details: Sequence[str]) -> str:
    said = "; ".join(findings.one_line(detail, most=_MOST_OF_A_LINE) for detail in details)
    return f"{what}: {said}{'' if said.endswith(('.', '!', '?')) else '.'}"


def _problem(problem: Problem) -> str:
    given = f" (given: {problem.given})" if problem.given else ""
    where = f"{problem.path}: " if problem.path else ""
    return findings.one_line(f"{where}{problem.message}{given}", most=_MOST_OF_A_LINE)
