"""Facts that earlier versions did not store, found in what they did store.

Those versions recognised a tool by its name and the source of a result by its text, again and again. Here that is done
once, when a value is read that lacks the field. What is written today has all fields.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from chatops.domain.endings import KILLED, EndedBy, Ending
from chatops.domain.model import FailureKind
from chatops.domain.tools import BUILT_IN_TOOLS, Outcome, ResultFacts, ResultSource, written_path

_READ_THE_WORKSPACE = frozenset(
    {
        *(name for name, known in BUILT_IN_TOOLS.items() if known.reads_workspace),
        "component_deploy",
        "validate_deployed",
    }
)
_DID_NOT_RUN = frozenset({Outcome.DENIED.value, Outcome.INVALID.value})
_FAILURES = frozenset(kind.value for kind in FailureKind)
_LOST = "No result of this call was recorded. It may or may not have taken effect."
_STOPPED = "Not run: the person stopped the turn."
_SURPLUS = "Not run: too many calls in one reply. Ask for fewer at a time."
_MARKED_DONE = "The program was interrupted while this ran; a person has checked and says that it took effect."
_NO_JSON = (
    "[chatops] Your response was empty. Please provide a valid JSON response.",
    "[chatops] Your response could not be parsed as valid JSON.",
)
_GUIDANCE = "IMPORTANT: This tool call failed. Read the error, understand the issue, fix your parameters, and retry."
_COPIED = "this store was copied or moved since the call was proposed; it may have run in the other copy"
_EARLIER = "earlier attempt"
_NOT_AGAIN = " Do not ask for the same again; go on without it or ask the person."
_DENIED = ("Denied by the person.", "Denied, and no person was asked.")
_LIMITS = ("Reached the ", "The model made the same ")
"""Texts as earlier versions wrote them."""
_RENAMED_FACTS = {"may_heal": "may_resolve", "by_hand": "needs_user"}
_CAUSE = re.compile(r"\[likely cause: (.*)\]")
_END = re.compile(
    r"\[(?:stopped after (?P<seconds>\d{1,9}(?:\.\d{1,9})?(?:e\+\d\d)?) s: the time limit[^\]]*"
    rf"|(?P<killed>{re.escape(KILLED)}), exit code (?P<killed_code>\d{{1,9}})"
    r"|exit code (?P<code>\d{1,9})(?: \((?P<signal>[A-Z0-9+]+)\))?"
    r"|(?P<unknown>the command killed the process that watched over it), so its exit code is not known"
    r"|(?P<stopped>\d{1,9}) background process(?:es)? (?:was|were) stopped when the command ended)\]"
)


def complete_state(payload: dict[str, Any]) -> None:
    """Add the facts that a stored turn lacks, in place. A damaged part is left as it is."""
    phase = _object(payload.get("phase"))
    for grant in (payload.get("grant"), phase.get("under"), phase.get("proposed_under")):
        for tool in _objects(_object(grant).get("tools")):
            known = BUILT_IN_TOOLS.get(str(tool.get("name")))
            if known is not None and "capabilities" not in tool:
                tool["capabilities"] = asdict(known)
    for record in _objects(payload.get("rounds")):
        error, _, kind = str(record.get("finish_reason")).partition(":")
        if "failure" not in record and error == "error" and kind in _FAILURES:
            record["finish_reason"], record["failure"] = error, kind
    if phase.get("kind") == "finished" and "noticed" not in phase:
        phase["noticed"] = phase.get("result") == "limit" and not str(phase.get("detail")).startswith(_LIMITS)
    for one in _objects(phase.get("calls")):
        _complete_call(_object(one.get("call")), _object(one.get("status")))


def _complete_call(call: Mapping[str, Any], status: dict[str, Any]) -> None:
    result = _object(status.get("result"))
    if result and "facts" not in result:
        result["facts"] = _facts({**status, **result, "tool": call.get("name")})
    for waiting in (status, _object(_object(status.get("before_edit")).get("status"))):
        rename_facts(_object(waiting.get("facts")))
        if waiting.get("kind") == "awaiting_decision" and "copied" not in waiting:
            waiting["copied"] = str(waiting.get("why")).endswith(_COPIED)


def rename_facts(facts: dict[str, Any]) -> None:
    """Give the fields of a stored `CallFacts` their present names, in place."""
    for old, new in _RENAMED_FACTS.items():
        if old in facts:
            facts.setdefault(new, facts.pop(old))


def complete_message(payload: dict[str, Any]) -> None:
    """Add the facts that a stored message lacks, in place."""
    if payload.get("kind") == "tool" and "facts" not in payload:
        payload["facts"] = _facts(payload)
    elif payload.get("kind") == "user" and "wants_json" not in payload:
        payload["wants_json"] = payload.get("by") == "machine" and str(payload.get("text")).startswith(_NO_JSON)


def _facts(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a result with this `tool`, `arguments`, `outcome`, `content`, `verdict`, `decided_by`."""
    tool, content, outcome = str(stored.get("tool")), str(stored.get("content")), stored.get("outcome")
    known = BUILT_IN_TOOLS.get(tool)
    source, reason = _source(stored, content)
    wrote = ""
    if known is not None and outcome == Outcome.SUCCESS.value:
        wrote = written_path(known, str(stored.get("arguments")))
    return asdict(
        ResultFacts(
            source=source,
            reason=reason,
            ending=_ending(content) if known is not None and known.runs_anything else None,
            wrote=wrote,
            reads_workspace=tool in _READ_THE_WORKSPACE and outcome not in _DID_NOT_RUN,
        )
    )


def _source(stored: Mapping[str, Any], content: str) -> tuple[ResultSource, str]:
    """Return where a result comes from, and its reason as in `ResultFacts`."""
    match stored.get("outcome"):
        case _ if stored.get("decided_by") == _EARLIER:
            return ResultSource.EARLIER_ATTEMPT, ""
        case Outcome.UNKNOWN if content == _LOST:
            return ResultSource.LOST, ""
        case Outcome.INTERRUPTED if (stored.get("verdict"), stored.get("decided_by")) == ("ask", ""):
            return ResultSource.HELD, ""
        case Outcome.INTERRUPTED if content == _STOPPED:
            return ResultSource.STOPPED, ""
        case Outcome.INVALID if content == _SURPLUS:
            return ResultSource.SURPLUS, ""
        case Outcome.SUCCESS if content.startswith(_MARKED_DONE):
            return ResultSource.USER, ""
        case Outcome.INVALID:
            return ResultSource.CALL, _what_is_wrong(content)
        case Outcome.DENIED:
            return _denial(content)
        case _:
            return ResultSource.CALL, ""


def _denial(content: str) -> tuple[ResultSource, str]:
    for denied in _DENIED:
        before = f"{denied} Reason: "
        if content.startswith(before) and content.endswith(_NOT_AGAIN):
            return ResultSource.USER, content[len(before) : -len(_NOT_AGAIN)].removesuffix(".")
    return (ResultSource.USER if content == f"{_DENIED[0]}{_NOT_AGAIN}" else ResultSource.CALL), ""


def _what_is_wrong(content: str) -> str:
    """Return the first error in a text for the model, without the advice after it."""
    first, _, rest = content.partition("\n")
    listed = rest.partition("\n")[0].removeprefix("- ") if rest.startswith("- ") else ""
    reason = (listed or first.rpartition("ot run: ")[2]).partition(". ")[0].rstrip(".")
    return reason[:1].lower() + reason[1:]


def _ending(content: str) -> Ending | None:
    """Return the end of a program from the lines about it; None if there are none."""
    text = content.removesuffix(f"\n\n{_GUIDANCE}")
    cause = _CAUSE.fullmatch(text.rpartition("\n")[2])
    if cause is not None:
        text = text.rpartition("\n")[0]
    *_, before, last = ("", *text.rsplit("\n", 2)[-2:])
    found = _END.fullmatch(last)
    stopped = int(found["stopped"]) if found is not None and found["stopped"] else 0
    if stopped:
        found = _END.fullmatch(before)
    ended = Ending() if found is None or found["stopped"] else _ended(found)
    if found is None and not stopped and cause is None:
        return None
    return Ending(
        by=ended.by,
        exit_code=ended.exit_code,
        signal=ended.signal,
        seconds=ended.seconds,
        stopped=stopped,
        cause=cause[1] if cause is not None else "",
    )


def _ended(found: re.Match[str]) -> Ending:
    if found["seconds"]:
        return Ending(by=EndedBy.TIME_LIMIT, seconds=float(found["seconds"]))
    if found["unknown"]:
        return Ending(by=EndedBy.UNKNOWN)
    if found["killed"]:
        return Ending(exit_code=int(found["killed_code"]), signal="SIGKILL")
    return Ending(exit_code=int(found["code"]), signal=found["signal"] or "")


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
