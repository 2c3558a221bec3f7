"""Validations of a step: what their results say, and their state (passed for which subject, failed, or stale).

A validator returns ``{"valid": bool, "errors": [{"property": ..., "message": ...}]}``. Every text in it is untrusted.
It is cut to size and kept on one line, so that it cannot look like a message of chatops.

All of it is computed from the results in the turn; the model's own claims do not count. A pass belongs to the tool and
to the argument values that name what was validated. It goes stale when a tool that it depends on runs afterwards,
whatever that tool reports, since a failed change may have changed something too. Calls of one reply may have run in any
order: if one of them failed and another passed for the same subject, with no change between, the validation failed.

A validation tool that runs arbitrary commands (a shell) counts as changing nothing only for the commands that the
answer names. Any other command may have undone what was validated.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import product
from math import prod

from chatops.domain.canonical import JsonValue, PointerError, canonical, parse_json, resolve_pointer
from chatops.domain.endings import without_ending
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import AssistantMessage, Message, ToolMessage
from chatops.domain.tools import Outcome, Problem, ResultSource, ToolResult, ToolSpec
from chatops.domain.wording import one_line
from chatops.engine.contract import StepContract
from chatops.policy.grant import Grant
from chatops.policy.workflow import PassesWhen, Subject, Validation

EARLIER_ATTEMPT = "earlier attempt"
"""Shown as who decided on a call that was answered with the result of an earlier attempt."""
MAX_SUBJECTS = 64
"""Maximum number of subjects of one answer that need a pass each."""
_MAX_VALUE_CHARS = 120
_MAY_HAVE_RUN = (Outcome.SUCCESS, Outcome.FAILED, Outcome.UNKNOWN, Outcome.INTERRUPTED)


class ValidationStatus(StrEnum):
    """State of a validation of one subject."""

    PASSED = "passed"
    FAILED = "failed"
    STALE = "stale"
    """It passed, and a tool that it depends on ran afterwards."""
    NEVER = "never"


@frozen_dataclass
class ValidationState:
    """One validation of one subject, with its state."""

    tool: str
    status: ValidationStatus
    subject: tuple[tuple[str, str], ...] = ()
    """Argument and value (canonical JSON) of what was validated, or has to be."""
    found: tuple[Problem, ...] = ()
    changed_by: str = ""
    """The tool that ran after a pass."""

    @property
    def fact(self) -> str:
        """The state as a sentence for the user."""
        named = f"{self.tool} ({self._arguments()})" if self.subject else self.tool
        match self.status:
            case ValidationStatus.PASSED:
                return f"{named} has passed."
            case ValidationStatus.FAILED:
                return f"{named} did not pass."
            case ValidationStatus.STALE:
                return f"{named} has passed, but {self.changed_by} ran afterwards."
            case ValidationStatus.NEVER:
                return f"{self.tool} was never called{self._with_arguments()}."

    @property
    def words(self) -> str:
        """The state as sentences for the model, with what to do about it."""
        match self.status:
            case ValidationStatus.PASSED | ValidationStatus.FAILED:
                return self.fact
            case ValidationStatus.STALE:
                return f"{self.fact} Call {self.tool} again."
            case ValidationStatus.NEVER:
                return f"{self.fact} Call {self.tool}{self._with_arguments()}."

    def _with_arguments(self) -> str:
        return f" with {self._arguments()}" if self.subject else ""

    def _arguments(self) -> str:
        return ", ".join(f"{name}={one_line(value, most=_MAX_VALUE_CHARS)}" for name, value in self.subject)


def apply_validation(
    contract: StepContract | None, tool: str, result: ToolResult, *, spec: ToolSpec | None = None
) -> ToolResult:
    """Turn the result of a validation that did not pass into a failure with its findings.

    With `passes_when` success, a result that is the content of files is not read as a report.
    """
    validations = contract.validations if contract is not None else ()
    validation = next((validation for validation in validations if validation.tool == tool), None)
    if validation is None or result.outcome is not Outcome.SUCCESS:
        return result
    found: tuple[Problem, ...]
    ended = result.facts.ending
    said = result.content if ended is None else without_ending(result.content, ended)
    match validation.passes_when:
        case PassesWhen.VALID:
            found = validator_problems(said)
        case _ if ended is not None and ended.pipeline:
            found = (_problem("command", _PIPELINE.format(last=ended.last_program)),)
        case PassesWhen.SUCCESS:
            content = spec is not None and spec.capabilities.returns_content
            found = () if content else json_problems(said)
        case PassesWhen.EXIT_CODE_0:
            # The content is the program's output if one ran, and else a report.
            found = () if ended is not None and ended.succeeded else exit_code_problems(said)
    if not found:
        return result
    facts = replace(result.facts, problems=found)
    return replace(result, outcome=Outcome.FAILED, content=problem_list(found), facts=facts)


def validation_states(contract: StepContract, messages: Sequence[Message], grant: Grant) -> tuple[ValidationState, ...]:
    """Return every validation with every subject seen so far, in the order of the contract.

    A validation that was never called is NEVER, without a subject.
    """
    shown: list[ValidationState] = []
    for validation in contract.validations:
        states = _latest_states(validation, contract, messages, grant, claims=None)
        shown += states.values() or (ValidationState(tool=validation.tool, status=ValidationStatus.NEVER),)
    return tuple(shown)


def missing_validations(
    contract: StepContract, messages: Sequence[Message], grant: Grant, answer: JsonValue
) -> tuple[ValidationState, ...]:
    """Return the validations that `answer` needs and that have not passed.

    Raises PointerError, with a sentence, if the answer does not name what was validated.
    """
    claims: dict[str, tuple[_Claim, ...]] = {}
    for validation in contract.validations:
        try:
            claims[validation.tool] = tuple(_claims(validation, answer))
        except PointerError as error:
            raise PointerError(f"{validation.tool} cannot be matched with the result: {error}.") from None
    missing: list[ValidationState] = []
    for validation in contract.validations:
        states = _latest_states(validation, contract, messages, grant, claims=claims)
        for claim in claims[validation.tool]:
            fitting = [state for key, state in states.items() if _matches_claim(key, claim)]
            if not fitting:
                missing.append(
                    ValidationState(tool=validation.tool, status=ValidationStatus.NEVER, subject=tuple(claim.items()))
                )
            missing += [state for state in fitting if state.status is not ValidationStatus.PASSED]
    return tuple(dict.fromkeys(missing))


_SubjectKey = tuple[tuple[str, str], ...]
_Claim = Mapping[str, str]
_Claims = Mapping[str, Sequence[_Claim]]
"""By validation tool, the subjects that the answer claims."""


def _latest_states(
    validation: Validation, contract: StepContract, messages: Iterable[Message], grant: Grant, *, claims: _Claims | None
) -> dict[_SubjectKey, ValidationState]:
    """Return the present state of a validation for each subject seen.

    `claims` are what the answer says was validated. None: there is no answer yet, so no command of a validation tool
    counts as a change.
    """
    states: dict[_SubjectKey, ValidationState] = {}
    failed: set[_SubjectKey] = set()
    """What failed among the calls of one reply, after its last change."""
    for message in messages:
        if isinstance(message, AssistantMessage):
            failed.clear()
        if not isinstance(message, ToolMessage) or message.facts.source is ResultSource.EARLIER_ATTEMPT:
            continue
        if message.outcome in _MAY_HAVE_RUN and _may_change(message, validation, contract, grant, claims):
            failed.clear()
            for key, state in states.items():
                if state.status is ValidationStatus.PASSED:
                    states[key] = replace(state, status=ValidationStatus.STALE, changed_by=message.tool)
        if message.tool == validation.tool and message.outcome in _MAY_HAVE_RUN:
            key = _subject_of(validation.subject, message.arguments)
            state = _state_of_call(validation.tool, key, message)
            if state.status is ValidationStatus.FAILED:
                failed.add(key)
                states[key] = state
            elif key not in failed:
                states[key] = state
    return states


def _state_of_call(tool: str, key: _SubjectKey, message: ToolMessage) -> ValidationState:
    if message.outcome is Outcome.SUCCESS:
        return ValidationState(tool=tool, status=ValidationStatus.PASSED, subject=key)
    return ValidationState(
        tool=tool,
        status=ValidationStatus.FAILED,
        subject=key,
        # A failed validation that lists no problems has its text as one.
        found=message.facts.problems or (_problem(tool, message.content),),
    )


def _may_change(
    message: ToolMessage, validation: Validation, contract: StepContract, grant: Grant, claims: _Claims | None
) -> bool:
    """Return True if a call may have changed what `validation` checked."""
    tool = message.tool
    spec = grant.tool(tool)
    # What a child has run is not among the messages.
    delegates = spec is not None and spec.capabilities.delegates
    if validation.depends_on is not None and tool != validation.tool and not delegates:
        return tool in validation.depends_on
    if contract.validates(tool):
        runs_anything = spec is None or spec.capabilities.runs_anything
        return runs_anything and claims is not None and not _is_claimed(message, contract, claims)
    return spec is None or not spec.read_only


def _is_claimed(message: ToolMessage, contract: StepContract, claims: _Claims) -> bool:
    subject = next(validation.subject for validation in contract.validations if validation.tool == message.tool)
    key = _subject_of(subject, message.arguments)
    return any(_matches_claim(key, claim) for claim in claims[message.tool])


def _subject_of(subject: Sequence[Subject], arguments: str) -> _SubjectKey:
    try:
        read = parse_json(arguments)
    except ValueError:
        read = None
    given = read if isinstance(read, Mapping) else {}
    return tuple((part.argument, canonical(given.get(part.argument))) for part in subject)


def _claims(validation: Validation, answer: JsonValue) -> Iterator[_Claim]:
    """Yield, for each subject of the answer, the values of its arguments with a pointer. Raises PointerError."""
    named = [subject for subject in validation.subject if subject.pointer]
    values = [_claimed_values(subject, answer) for subject in named]
    count = prod(map(len, values))
    if count > MAX_SUBJECTS:
        raise PointerError(f"it names {count} things to validate, at most {MAX_SUBJECTS} are taken")
    return (
        {subject.argument: value for subject, value in zip(named, chosen, strict=True)} for chosen in product(*values)
    )


def _claimed_values(subject: Subject, answer: JsonValue) -> list[str]:
    value = resolve_pointer(answer, subject.pointer)
    if value is None:
        raise PointerError(f"{subject.pointer} is null, so it names nothing that was validated")
    if not isinstance(value, list):
        return [canonical(value)]
    if not value:
        raise PointerError(f"{subject.pointer} is empty, so it names nothing that was validated")
    if len(value) > MAX_SUBJECTS:
        raise PointerError(f"{subject.pointer} names {len(value)} things to validate, at most {MAX_SUBJECTS} are taken")
    return list(dict.fromkeys(canonical(item) for item in value))


def _matches_claim(key: _SubjectKey, claim: _Claim) -> bool:
    return all(claim.get(name, value) == value for name, value in key)


HEADING = "Validation Errors Found:"
MAX_ERRORS = 20
_MAX_PROPERTY_CHARS = 160
_MAX_MESSAGE_CHARS = 500
_NO_VERDICT = (
    'a validation passes only if it returns an object such as {"valid": true}; the definition of a tool that is no '
    "validator needs passes_when. It gave:"
)
_PIPELINE = (
    "it is a pipeline, so its exit code is that of {last} and says nothing of the programs before it. It does not count"
    " as a pass. Run the command without the pipe."
)
_NOT_A_LETTER = re.compile(r"[^a-z]+")
_GOOD_KEYS = frozenset({"valid", "isvalid", "success", "successful", "succeeded", "ok", "pass", "passed", "passes"})
_BAD_KEYS = frozenset({"invalid", "failed", "failure", "failures", "iserror", "haserrors", "problems", "violations"})
_STATE_KEYS = frozenset({"status", "state", "result", "outcome", "verdict"})
_COUNT_KEYS = frozenset({"exitcode", "returncode", "errorcount", "errorscount", "failurecount", "failurescount"})
"""Member names in lowercase letters only, so that ``is_valid`` and ``isValid`` are the same."""
_BAD_STATES = frozenset(
    {"error", "errors", "errored", "fail", "failed", "failure", "invalid", "not valid", "rejected", "denied"}
    | {"not ok", "not passed", "unsuccessful", "ko", "false", "no"}
)
_NO_WORDS = frozenset({"", "false", "no", "0", "none", "null"})


def validator_problems(content: str) -> tuple[Problem, ...]:
    """Return the reasons why the result of a validator is not a pass; empty if it is one.

    Only an object with ``valid`` true and without a contradicting member is a pass. Text, other JSON, and an object
    that cannot be parsed or has no ``valid`` are not.
    """
    text = _strip_mark(content)
    try:
        read = parse_json(text)
    except ValueError:
        if text.startswith("{"):
            return (_problem("result", f"it cannot be read, so it does not count as a pass: {text}"),)
        read = text
    if not isinstance(read, Mapping):
        return (_problem("result", f"{_NO_VERDICT} {text}"),)
    if found := contradictions(read):
        return found
    if read.get("valid") is not True:
        return (_problem("valid", f"{_NO_VERDICT} {text}"),)
    return ()


def json_problems(content: str) -> tuple[Problem, ...]:
    """Return what in a result contradicts the success of its tool; empty if nothing does or the result is not JSON."""
    try:
        read = parse_json(_strip_mark(content))
    except ValueError:
        return ()
    if read is False:
        return (_problem("result", "it is false"),)
    return contradictions(read) if isinstance(read, Mapping) else ()


def exit_code_problems(content: str) -> tuple[Problem, ...]:
    """Return the reasons why a result does not report exit code 0; empty if it does."""
    try:
        read = parse_json(_strip_mark(content))
    except ValueError:
        read = None
    code = read.get("exit_code") if isinstance(read, Mapping) else None
    if code == 0 and not isinstance(code, bool):
        return ()
    return (_problem("exit_code", f"it has to be 0: {content}"),)


def contradictions(read: Mapping[str, JsonValue]) -> tuple[Problem, ...]:
    """Return a finding for each member of a result that reports an error.

    Only top-level members count. Nested ones may be about parts that are not required to succeed. A member that only
    says that something failed (``valid`` false, a count) is a finding where no other member says what.
    """
    errors: list[Problem] = []
    others: list[Problem] = []
    verdicts: list[Problem] = []
    for key, value in read.items():
        word = _NOT_A_LETTER.sub("", key.lower())
        is_bad = word in _BAD_KEYS and bool(value) and not _means_no(value)
        match word:
            case "error" | "errors":
                errors += _read_problems(value)
            case _ if is_bad and not isinstance(value, bool | int | float):
                others.append(_problem(key, f"it is {_text(value)}"))
            case _ if is_bad or (word in _GOOD_KEYS and _means_no(value)):
                verdicts.append(_problem(key, f"it is {_text(value)}"))
            case _ if word in _STATE_KEYS and isinstance(value, str) and value.strip().lower() in _BAD_STATES:
                verdicts.append(_problem(key, f"it is {value}"))
            case _ if word in _COUNT_KEYS and _is_number(value) and value != 0:
                verdicts.append(_problem(key, f"it is {_text(value)}"))
            case _:
                pass
    return ((*errors, *others) or tuple(verdicts))[:MAX_ERRORS]


def _strip_mark(content: str) -> str:
    return content.strip().removeprefix("\ufeff")


def _means_no(value: JsonValue) -> bool:
    """Return True for false, 0, and the words for it."""
    return (
        value is False
        or (_is_number(value) and value == 0)
        or (isinstance(value, str) and value.strip().lower() in _NO_WORDS)
    )


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def problem_list(found: Sequence[Problem]) -> str:
    """Return the list as the model gets it."""
    lines = [
        f"{n}. Property: {problem.path}\n   Message: {problem.message}" for n, problem in enumerate(found, start=1)
    ]
    return "\n".join([HEADING, *lines])


def _read_problems(value: JsonValue) -> list[Problem]:
    if not value:
        return []
    items: Sequence[JsonValue] = value if isinstance(value, list) else [value]
    return [_problem_of(item) for item in items[:MAX_ERRORS]]


def _problem_of(item: JsonValue) -> Problem:
    if not isinstance(item, Mapping):
        return _problem("", _text(item))
    message = item.get("message")
    return _problem(_text(item.get("property", "")), _text(item if message is None else message))


def _problem(name: str, message: str) -> Problem:
    return Problem(
        path=one_line(name, most=_MAX_PROPERTY_CHARS) or "(none)",
        message=one_line(message, most=_MAX_MESSAGE_CHARS) or "(no message)",
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical(value)
