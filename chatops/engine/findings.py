"""Findings of validations: parse them out of results and format them for the model.

A validator returns ``{"valid": bool, "errors": [{"property": ..., "message": ...}]}``. Every text in it is untrusted.
It is cut to size and kept on one line, so that it cannot look like a message of chatops.
"""

import re
from collections.abc import Mapping, Sequence

from chatops.domain.canonical import JsonValue, canonical, parsed
from chatops.domain.tools import Problem
from chatops.domain.wording import one_line

HEADING = "Validation Errors Found:"
MAX_ERRORS = 20
_MOST_OF_A_PROPERTY = 160
_MOST_OF_A_MESSAGE = 500
_NO_VERDICT = (
    'a validation passes only if it returns an object such as {"valid": true}; the definition of a tool that is no '
    "validator needs passes_when. It gave:"
)
_NOT_A_LETTER = re.compile(r"[^a-z]+")
_GOOD = frozenset({"valid", "isvalid", "success", "successful", "succeeded", "ok", "pass", "passed", "passes"})
_BAD = frozenset({"invalid", "failed", "failure", "failures", "iserror", "haserrors", "problems", "violations"})
_STATE = frozenset({"status", "state", "result", "outcome", "verdict"})
_CODE = frozenset({"exitcode", "returncode", "errorcount", "errorscount", "failurecount", "failurescount"})
"""Member names in lowercase letters only, so that ``is_valid`` and ``isValid`` are the same."""
_WENT_WRONG = frozenset(
    {"error", "errors", "errored", "fail", "failed", "failure", "invalid", "not valid", "rejected", "denied"}
    | {"not ok", "not passed", "unsuccessful", "ko", "false", "no"}
)
_NO_WORDS = frozenset({"", "false", "no", "0", "none", "null"})


def reported(content: str) -> tuple[Problem, ...]:
    """Return the reasons why the result of a validator is no pass; empty if it is one.

    Only an object with ``valid`` true and without a contradicting member is a pass. Text, other JSON, and an object
    that cannot be parsed or has no ``valid`` are not.
    """
    text = _bare(content)
    try:
        read = parsed(text)
    except ValueError:
        if text.startswith("{"):
            return (_error("result", f"it cannot be read, so it is no pass: {text}"),)
        read = text
    if not isinstance(read, Mapping):
        return (_error("result", f"{_NO_VERDICT} {text}"),)
    if found := contradictions(read):
        return found
    if read.get("valid") is not True:
        return (_error("valid", f"{_NO_VERDICT} {text}"),)
    return ()


def denied(content: str) -> tuple[Problem, ...]:
    """Return what in a result contradicts the success of its tool; empty if nothing does or the result is not JSON."""
    try:
        read = parsed(_bare(content))
    except ValueError:
        return ()
    if read is False:
        return (_error("result", "it is false"),)
    return contradictions(read) if isinstance(read, Mapping) else ()


def exit_code(content: str) -> tuple[Problem, ...]:
    """Return the reasons why a result does not report exit code 0; empty if it does."""
    try:
        read = parsed(_bare(content))
    except ValueError:
        read = None
    code = read.get("exit_code") if isinstance(read, Mapping) else None
    if code == 0 and not isinstance(code, bool):
        return ()
    return (_error("exit_code", f"it has to be 0: {content}"),)


def contradictions(read: Mapping[str, JsonValue]) -> tuple[Problem, ...]:
    """Return a finding for each member of a result that reports an error.

    Only top-level members count. Nested ones may be about parts that are not required to succeed.
    """
    errors: list[Problem] = []
    others: list[Problem] = []
    for key, value in read.items():
        match _NOT_A_LETTER.sub("", key.lower()):
            case "error" | "errors":
                errors += _listed(value)
            case word if (word in _GOOD and _no(value)) or (word in _BAD and value and not _no(value)):
                others.append(_error(key, f"it is {_text(value)}"))
            case word if word in _STATE and isinstance(value, str) and value.strip().lower() in _WENT_WRONG:
                others.append(_error(key, f"it is {value}"))
            case word if word in _CODE and _is_code(value) and value != 0:
                others.append(_error(key, f"it is {_text(value)}"))
            case _:
                pass
    return (*errors, *others)[:MAX_ERRORS]


def _bare(content: str) -> str:
    return content.strip().removeprefix("\ufeff")


def _no(value: JsonValue) -> bool:
    """Return True for false, 0, and the words for it."""
    return (
        value is False
        or (_is_code(value) and value == 0)
        or (isinstance(value, str) and value.strip().lower() in _NO_WORDS)
    )


def _is_code(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbered(found: Sequence[Problem]) -> str:
    """Return the list as the model gets it."""
    lines = [f"{n}. Property: {one.path}\n   Message: {one.message}" for n, one in enumerate(found, start=1)]
    return "\n".join([HEADING, *lines])


def untold(tool: str, content: str) -> tuple[Problem, ...]:
    """Return the whole text of a validation that failed without saying what is wrong, as one problem."""
    return (_error(tool, content),)


def _listed(value: JsonValue) -> list[Problem]:
    if not value:
        return []
    items: Sequence[JsonValue] = value if isinstance(value, list) else [value]
    return [_one(item) for item in items[:MAX_ERRORS]]


def _one(item: JsonValue) -> Problem:
    if not isinstance(item, Mapping):
        return _error("", _text(item))
    message = item.get("message")
    return _error(_text(item.get("property", "")), _text(item if message is None else message))


def _error(name: str, message: str) -> Problem:
    return Problem(
        path=one_line(name, most=_MOST_OF_A_PROPERTY) or "(none)",
        message=one_line(message, most=_MOST_OF_A_MESSAGE) or "(no message)",
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical(value)
